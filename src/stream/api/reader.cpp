// Readers and their steps, as the public API has them: over a step reader, and recorded where there is a trace.
#include <algorithm>
#include <exception>

#include "base/log.hpp"
#include "stream/api/handles.hpp"

namespace penstock {
namespace {

using stream::live;
using trace::Verb;
using Call = trace::StreamRecorder::Call;

const VariableInfo* info_of(const stream::StepReader& reader,
                            std::uint32_t id) {  // null when the step does not have it
  const auto& infos = reader.variables();
  const auto at = std::ranges::lower_bound(infos, id, {}, &VariableInfo::id);
  return at != infos.end() && at->id == id ? &*at : nullptr;
}

// A call that reads what is selected.
template <class Read>
auto read_selected(Reader::Impl& reader, Verb verb, std::uint32_t variable, const Selection& selection, Read read) {
  return trace::recorded(reader.recorder, verb, read, [&](Call& call) {
    trace::append_selection(call.text, selection);
    const auto* is = info_of(reader.reader, variable);
    if (!is) return;
    call.of = is->name;
    call.function = reader.recorder->newly_described(*is);
    const auto form = selection.form();
    call.bytes = form == Selection::Form::box ? trace::array_bytes(selection.box().count, is->dtype)
                 : form == Selection::Form::points
                     ? selection.coordinates().size() / selection.dimensions() * size_of(is->dtype)
                     : trace::array_bytes(reader.reader.shape_of(variable, selection), is->dtype);
  });
}

Outcome begin_step(Reader::Impl& reader, Timeout deadline) {
  const auto begin = [&] { return reader.reader.begin_step(deadline); };
  if (!reader.recorder) return begin();
  return reader.recorder->look(Verb::read_begin, deadline, begin, [&](Call& call, Outcome outcome) {
    switch (outcome) {
      case Outcome::ready: call.version = reader.reader.step(); break;
      case Outcome::not_ready: call.outcome = Errc::timeout; break;
      case Outcome::end_of_stream: call.outcome = Errc::end_of_stream; break;
      case Outcome::writer_lost: call.outcome = Errc::writer_lost; break;
    }
  });
}

void end_step(Reader::Impl& reader) {
  const auto step = reader.reader.last_step();
  trace::recorded(
      reader.recorder, Verb::read_end, [&] { reader.reader.end_step(); }, [&](Call& call) { call.version = step; });
}

constexpr std::size_t most_told = 64;

// Of an on_step function: once for each distinct text.
void report_analysis_error(Reader::Impl& reader, std::uint64_t step, const std::string& what) {
  reader.reader.note_analysis_error();
  if (reader.told.size() < most_told && reader.told.insert(what).second)
    base::log(base::Level::warn, "an analysis failed", {{"stream", reader.name()}, {"step", step}, {"why", what}});
}

void close(Reader::Impl& reader) {
  if (reader.reader.closed()) return;
  trace::recorded(reader.recorder, Verb::read_close, [&] { reader.reader.close(); });
  if (reader.recorder) reader.recorder->flush();
}

}  // namespace

// ----------------------------------------------------------------------------------------------------------- ReadStep

ReadStep::ReadStep(ReadStep&& other) noexcept : reader_(std::exchange(other.reader_, nullptr)) {}
ReadStep& ReadStep::operator=(ReadStep&& other) noexcept {
  ReadStep old(std::exchange(reader_, std::exchange(other.reader_, nullptr)));
  return *this;
}
ReadStep::~ReadStep() {
  if (!reader_ || reader_->origin.inherited()) return;
  try {
    end_step(*reader_);
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "a step did not end well", {{"why", e.what()}});
  }
}

std::uint64_t ReadStep::number() const { return live(reader_).reader.step(); }
const std::vector<VariableInfo>& ReadStep::variables() const { return live(reader_).reader.variables(); }
const VariableInfo* ReadStep::find(std::string_view name) const { return live(reader_).reader.find(name); }
const VariableInfo& ReadStep::variable(std::string_view name) const { return live(reader_).reader.variable(name); }
std::vector<BlockInfo> ReadStep::blocks(std::uint32_t variable) const { return live(reader_).reader.blocks(variable); }
std::vector<std::string> ReadStep::attribute_names() const { return live(reader_).reader.attribute_names(); }
std::optional<Attribute> ReadStep::attribute(std::string_view name) const {
  return live(reader_).reader.attribute(name);
}
std::optional<MinMax> ReadStep::min_max(std::uint32_t variable) const {
  return live(reader_).reader.min_max(variable, {});
}
std::optional<MinMax> ReadStep::min_max(std::uint32_t variable, std::uint64_t block) const {
  return live(reader_).reader.min_max(variable, block);
}
void ReadStep::get(std::uint32_t variable, const Selection& selection, void* out, Order order,
                   std::span<const std::int64_t> strides) {
  auto& reader = live(reader_);
  read_selected(reader, Verb::read_get, variable, selection,
                [&] { reader.reader.get(variable, selection, out, order, strides); });
}
std::vector<std::string> ReadStep::read_strings(std::uint32_t variable) const {
  auto& reader = live(reader_);
  std::uint64_t bytes = 0;
  const auto read = [&] {
    auto strings = reader.reader.read_strings(variable);
    for (const auto& string : strings) bytes += string.size();
    return strings;
  };
  return trace::recorded(reader.recorder, Verb::read_strings, read, [&](Call& call) {
    if (call.outcome == Errc::ok) call.bytes = bytes;
    if (const auto* is = info_of(reader.reader, variable)) call.of = is->name;
  });
}
Dims ReadStep::shape_of(std::uint32_t variable, const Selection& selection) const {
  return live(reader_).reader.shape_of(variable, selection);
}
void ReadStep::wait(Timeout deadline) {
  auto& reader = live(reader_);
  trace::recorded(
      reader.recorder, Verb::read_wait, [&] { reader.reader.wait(deadline); },
      [&](Call& call) { call.timeout = deadline; });
}
Views ReadStep::view(std::uint32_t variable, const Selection& selection) {
  auto& reader = live(reader_);
  return read_selected(reader, Verb::read_view, variable, selection,
                       [&] { return reader.reader.view(variable, selection); });
}
void ReadStep::end() {
  live(reader_);
  end_step(*std::exchange(reader_, nullptr));
}
void ReadStep::require_type(const VariableInfo& variable, DType dtype) {
  if (variable.dtype != dtype)
    throw Error(Errc::invalid_argument, variable.name + " holds " + std::string(penstock::name_of(variable.dtype)) +
                                            ", not " + std::string(penstock::name_of(dtype)));
}

// ------------------------------------------------------------------------------------------------------------- Reader

Reader::Reader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&& other) noexcept {
  Reader old(std::exchange(impl_, std::exchange(other.impl_, nullptr)));
  return *this;
}
Reader::~Reader() {
  if (stream::left_to_parent(impl_)) return;
  try {
    penstock::close(*impl_);
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "the reader did not close well", {{"stream", impl_->name()}, {"why", e.what()}});
  }
  if (impl_->in_function)
    static_cast<void>(impl_.release());  // its own function destroys it, and comes back to what it holds
}

const std::string& Reader::name() const { return impl_->name(); }

ReadStep Reader::begin_step(Timeout deadline) {
  const auto outcome = penstock::begin_step(live(impl_), deadline);
  if (outcome == Outcome::ready) return ReadStep(impl_.get());
  const auto code = outcome == Outcome::not_ready       ? Errc::timeout
                    : outcome == Outcome::end_of_stream ? Errc::end_of_stream
                                                        : Errc::writer_lost;
  throw Error(code, "stream " + name() + ": " + impl_->reader.why());
}

StepOutcome Reader::try_begin_step(Timeout deadline) {
  StepOutcome result;
  result.outcome = penstock::begin_step(live(impl_), deadline);
  if (result.outcome == Outcome::ready) result.step.emplace(ReadStep(impl_.get()));
  return result;
}
StepIterator& StepIterator::operator++() {
  if (step_ && step_->reader_) step_->end();
  step_.reset();
  try {
    step_ = reader_->begin_step();
  } catch (const Error& e) {
    if (e.code() != Errc::end_of_stream) throw;
  }
  return *this;
}
// The function's exception, or else that of the step's end. Freed before the step ends where nobody wants it: it may hold views.
void Reader::on_step(std::function<void(ReadStep&)> function, OnStepError on_error) {
  auto& reader = live(impl_);
  if (!function) throw Error(Errc::invalid_argument, "stream " + name() + ": on_step wants a function");
  reader.reader.on_step([&reader, function = std::move(function), on_error](base::Deadline deadline) {
    const auto outcome = penstock::begin_step(reader, deadline.remaining());
    if (outcome != Outcome::ready) return outcome;
    std::string what;
    std::exception_ptr raised;
    const auto attempt = [&](const auto& call) {
      try {
        call();
        return;
      } catch (const std::exception& e) {
        if (what.empty()) what = e.what();
      } catch (...) {
        if (what.empty()) what = "an unknown exception";
      }
    };
    ReadStep step(&reader);
    const auto number = step.number();
    attempt([&] {
      struct Inside {
        bool& flag;
        ~Inside() { flag = false; }
      } inside{reader.in_function = true};
      try {
        function(step);
      } catch (...) {
        if (on_error == OnStepError::raise) raised = std::current_exception();
        throw;
      }
    });
    if (reader.reader.closed()) step.reader_ = nullptr;
    attempt([&] {
      if (step.reader_) end_step(*std::exchange(step.reader_, nullptr));
    });
    if (what.empty()) return outcome;
    report_analysis_error(reader, number, what);
    if (on_error == OnStepError::raise) {
      if (raised) std::rethrow_exception(raised);
      throw Error(Errc::wrong_state, what);
    }
    return outcome;
  });
}
void Reader::seek(std::uint64_t step) {
  auto& reader = live(impl_);
  trace::recorded(
      reader.recorder, Verb::read_seek, [&] { reader.reader.seek(step); }, [&](Call& call) { call.version = step; });
}
std::vector<std::uint64_t> Reader::steps() {
  auto& reader = live(impl_);
  std::uint64_t count = 0;
  const auto list = [&] {
    auto steps = reader.reader.steps();
    count = steps.size();
    return steps;
  };
  return trace::recorded(reader.recorder, Verb::read_steps, list, [&](Call& call) { call.count = count; });
}
void Reader::close() { penstock::close(live(impl_)); }
const StreamOptions& Reader::options() const { return live(impl_).options; }
StreamStatistics Reader::statistics() const { return live(impl_).reader.statistics(); }

}  // namespace penstock
