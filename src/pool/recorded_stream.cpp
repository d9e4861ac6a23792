#include "pool/recorded_stream.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "pool/stream_trace.hpp"
#include "pool/trace_writer.hpp"

namespace penstock::pool {

namespace {

// Of one Writer or Reader, which one thread uses at a time: its texts are made in the same places again and again.
class StreamRecorder {
 public:
  StreamRecorder(std::shared_ptr<TraceWriter> writer, const std::string& pool, const std::string& stream)
      : writer_(std::move(writer)), client_(writer_->client(pool)), key_{stream, {}} {}

  // A call while it is under way: what it says of itself, and when it began.
  struct Call : TraceFields {
    std::string_view of;        // variable or attribute
    std::string_view function;  // of what lives until the call is recorded
    std::optional<std::uint64_t> bytes;
  };

  // Does it and records it. describe(Call&) tells what was called, whatever came of it; its time is not the call's.
  template <class Do, class Describe>
  auto operator()(Verb verb, Do what, Describe describe) {
    record_look();
    Call call;
    call.verb = verb;
    call.start_ns = TraceWriter::now_ns();
    try {
      if constexpr (std::is_void_v<decltype(what(call))>) {
        what(call);
        record(call, describe);
      } else {
        auto result = what(call);
        record(call, describe);
        return result;
      }
    } catch (const Error& error) {
      call.outcome = error.code();
      record(call, describe);
      throw;
    }
  }
  template <class Do>
  auto operator()(Verb verb, Do what) {
    return (*this)(verb, std::move(what), [](Call&) {});
  }

  // The same for a look for a step. Who waits in slices (Python does, for Ctrl-C) waits once: a look that follows at once on
  // one in vain is recorded as one with it.
  template <class Do>
  auto look(Verb verb, Do what) {
    Call call;
    call.verb = verb;
    call.start_ns = TraceWriter::now_ns();
    if (look_ && call.start_ns - (look_->start_ns + look_->duration_ns) > at_once_ns) record_look();
    const auto goes_on = std::exchange(look_, std::nullopt);
    if (goes_on) call.start_ns = goes_on->start_ns;
    const auto nothing = [](Call&) {};
    try {
      auto result = what(call);
      if (goes_on && goes_on->timeout > Timeout(0) && call.timeout >= Timeout(0) && call.timeout < forever / 2)
        call.timeout += goes_on->timeout;
      call.duration_ns = TraceWriter::now_ns() - call.start_ns;
      if (call.outcome == Errc::ok) record(call, nothing);
      else look_ = call;
      return result;
    } catch (const Error& error) {
      call.outcome = error.code();
      record(call, nothing);
      throw;
    }
  }

  std::string& text() { return text_; }  // of the call's arguments; empty when it is described
  void flush() {
    record_look();
    writer_->flush();
  }

 private:
  static constexpr std::int64_t at_once_ns = 1'000'000;

  void record_look() {
    if (!look_) return;
    text_.clear();
    write(*std::exchange(look_, std::nullopt));
  }
  template <class Describe>
  void record(Call& call, Describe& describe) {
    call.duration_ns = TraceWriter::now_ns() - call.start_ns;
    text_.clear();
    try {
      describe(call);
    } catch (const Error&) {  // of a variable that is not there, which the call has said
    }
    write(call);
  }
  void write(const Call& call) {
    TraceEvent event;
    static_cast<TraceFields&>(event) = call;
    event.client = client_;
    event.thread = TraceWriter::this_thread();
    key_.column.assign(call.of);
    event.keys = {&key_, 1};
    const std::uint64_t bytes = call.bytes.value_or(0);
    if (call.bytes) event.sizes = {&bytes, 1};
    event.function = call.function;
    event.arguments = text_;
    writer_->record(event);
  }

  std::shared_ptr<TraceWriter> writer_;
  const std::uint32_t client_;
  Key key_;
  std::string text_;
  std::optional<Call> look_;  // in vain, and not recorded yet
};

using Call = StreamRecorder::Call;

// Without the overflow that element_count reports: the call itself does.
std::uint64_t array_bytes(const Dims& count, DType dtype) {
  std::uint64_t bytes = size_of(dtype);
  for (const std::uint64_t length : count) bytes *= length;
  return bytes;
}

class RecordedWriter final : public stream::WriterEngine {
 public:
  RecordedWriter(std::unique_ptr<stream::WriterEngine> engine, std::shared_ptr<StreamRecorder> recorder)
      : record_(std::move(recorder)), engine_(std::move(engine)) {}
  ~RecordedWriter() override {
    engine_.reset();
    record_->flush();
  }

  const std::string& name() const override { return engine_->name(); }
  std::string address() const override { return engine_->address(); }
  std::uint32_t define(std::string_view name, DType dtype, const Dims& shape, const VariableOptions& options) override {
    return (*record_)(
        Verb::write_define,
        [&](Call&) {
          const auto id = engine_->define(name, dtype, shape, options);
          if (id >= variables_.size()) variables_.resize(id + std::size_t{1});
          variables_[id] = {std::string(name), {dtype, shape, options}};
          return id;
        },
        [&](Call& call) {
          call.of = name;
          record_->text() = describe_variable({dtype, shape, options});
        });
  }
  void put_attribute(std::string_view name, Attribute value, stream::AttributeOf of) override {
    std::string text = describe_attribute(value);
    (*record_)(
        Verb::write_attribute, [&](Call&) { engine_->put_attribute(name, std::move(value), of); },
        [&](Call& call) {
          call.of = name;
          record_->text() = std::move(text);
        });
  }
  bool begin_step(Timeout deadline) override {
    return record_->look(Verb::write_begin, [&](Call& call) {
      call.timeout = deadline;
      const bool begun = engine_->begin_step(deadline);
      if (!begun) {
        call.outcome = Errc::timeout;
        return begun;
      }
      call.version = engine_->step();
      call.existing = engine_->dropped();
      return begun;
    });
  }
  std::string awaited() const override { return engine_->awaited(); }
  std::uint64_t step() const override { return engine_->step(); }
  bool dropped() const override { return engine_->dropped(); }
  void set_shape(std::uint32_t variable, const Dims& shape) override {
    (*record_)(
        Verb::write_shape,
        [&](Call&) {
          engine_->set_shape(variable, shape);
          variables_[variable].is.shape = shape;
        },
        [&](Call& call) {
          call.of = of(variable).name;
          record_->text() = describe_shape(shape);
        });
  }
  void put(std::uint32_t variable, const Box& box, const void* data, std::span<const std::int64_t> strides) override {
    (*record_)(
        Verb::write_put, [&](Call&) { engine_->put(variable, box, data, strides); },
        [&](Call& call) { describe_put(call, variable, box, ""); });
  }
  std::span<std::byte> put_span(std::uint32_t variable, const Box& box) override {
    return (*record_)(
        Verb::write_put, [&](Call&) { return engine_->put_span(variable, box); },
        [&](Call& call) { describe_put(call, variable, box, "span"); });
  }
  void lend(std::uint32_t variable, const Box& box, const void* data) override {
    (*record_)(
        Verb::write_put, [&](Call&) { engine_->lend(variable, box, data); },
        [&](Call& call) { describe_put(call, variable, box, "lend"); });
  }
  void put_whole(std::uint32_t variable, const void* data) override {
    (*record_)(
        Verb::write_put, [&](Call&) { engine_->put_whole(variable, data); },
        [&](Call& call) {
          const Variable& known = of(variable);
          call.of = known.name;
          call.function = "whole";
          call.bytes = array_bytes(known.is.shape, known.is.dtype);
        });
  }
  void put_string(std::uint32_t variable, std::string_view value) override {
    (*record_)(
        Verb::write_put, [&](Call&) { engine_->put_string(variable, value); },
        [&](Call& call) {
          call.of = of(variable).name;
          call.function = "string";
          call.bytes = value.size();
        });
  }
  void end_step() override {
    (*record_)(Verb::write_end, [&](Call& call) {
      call.version = engine_->step();
      engine_->end_step();
    });
  }
  void abandon_step() override {
    (*record_)(Verb::write_abandon, [&](Call& call) {
      call.version = engine_->step();
      engine_->abandon_step();
    });
  }
  void close(Timeout deadline) override {
    if (engine_->closed()) return engine_->close(deadline);
    (*record_)(Verb::write_close, [&](Call& call) {
      call.timeout = deadline;
      engine_->close(deadline);
    });
    record_->flush();
  }
  void lose() override {
    if (engine_->closed()) return engine_->lose();
    (*record_)(Verb::write_close, [&](Call& call) {
      call.count = 1;
      engine_->lose();
    });
    record_->flush();
  }
  bool closed() const override { return engine_->closed(); }
  StreamStatistics statistics() const override { return engine_->statistics(); }

 private:
  struct Variable {
    std::string name;
    DescribedVariable is;
  };
  const Variable& of(std::uint32_t variable) const {
    if (variable >= variables_.size()) throw Error(Errc::not_found, "no such variable");
    return variables_[variable];
  }
  void describe_put(Call& call, std::uint32_t variable, const Box& box, std::string_view how) {
    const Variable& known = of(variable);
    call.of = known.name;
    call.function = how;
    call.bytes = array_bytes(box.count, known.is.dtype);
    append_box(record_->text(), box);
  }

  std::shared_ptr<StreamRecorder> record_;
  std::unique_ptr<stream::WriterEngine> engine_;
  std::vector<Variable> variables_;  // by id
};

class RecordedReader final : public stream::ReaderEngine {
 public:
  RecordedReader(std::unique_ptr<stream::ReaderEngine> engine, std::shared_ptr<StreamRecorder> recorder)
      : record_(std::move(recorder)), engine_(std::move(engine)) {}
  ~RecordedReader() override {
    engine_.reset();
    record_->flush();
  }

  const std::string& name() const override { return engine_->name(); }
  Outcome begin_step(Timeout deadline) override {
    return record_->look(Verb::read_begin, [&](Call& call) {
      call.timeout = deadline;
      const Outcome outcome = engine_->begin_step(deadline);
      switch (outcome) {
        case Outcome::ready: call.version = begun_ = engine_->step(); break;
        case Outcome::not_ready: call.outcome = Errc::timeout; break;
        case Outcome::end_of_stream: call.outcome = Errc::end_of_stream; break;
        case Outcome::writer_lost: call.outcome = Errc::writer_lost; break;
      }
      return outcome;
    });
  }
  std::string why() const override { return engine_->why(); }
  std::uint64_t step() const override { return engine_->step(); }
  void seek(std::uint64_t step) override {
    (*record_)(Verb::read_seek, [&](Call& call) {
      call.version = step;
      engine_->seek(step);
    });
  }
  std::vector<std::uint64_t> steps() override {
    return (*record_)(Verb::read_steps, [&](Call& call) {
      auto steps = engine_->steps();
      call.count = steps.size();
      return steps;
    });
  }
  const std::vector<VariableInfo>& variables() const override { return engine_->variables(); }
  const VariableInfo* find(std::string_view name) const override { return engine_->find(name); }
  const VariableInfo& variable(std::string_view name) const override { return engine_->variable(name); }
  std::vector<BlockInfo> blocks(std::uint32_t variable) const override { return engine_->blocks(variable); }
  std::vector<std::string> attribute_names() override { return engine_->attribute_names(); }
  std::optional<Attribute> attribute(std::string_view name) override { return engine_->attribute(name); }
  std::optional<MinMax> min_max(std::uint32_t variable, std::optional<std::uint64_t> block) override {
    return engine_->min_max(variable, block);
  }
  std::vector<std::string> read_strings(std::uint32_t variable) override {
    return (*record_)(
        Verb::read_strings,
        [&](Call& call) {
          auto strings = engine_->read_strings(variable);
          call.bytes = 0;
          for (const auto& string : strings) *call.bytes += string.size();
          return strings;
        },
        [&](Call& call) {
          if (const auto* is = info_of(variable)) call.of = is->name;
        });
  }
  Dims shape_of(std::uint32_t variable, const Selection& selection) const override {
    return engine_->shape_of(variable, selection);
  }
  void get(std::uint32_t variable, const Selection& selection, void* out, Order order,
           std::span<const std::int64_t> strides) override {
    (*record_)(
        Verb::read_get, [&](Call&) { engine_->get(variable, selection, out, order, strides); },
        [&](Call& call) { describe_read(call, variable, selection); });
  }
  void wait(Timeout deadline) override {
    (*record_)(Verb::read_wait, [&](Call& call) {
      call.timeout = deadline;
      engine_->wait(deadline);
    });
  }
  Views view(std::uint32_t variable, const Selection& selection) override {
    return (*record_)(
        Verb::read_view, [&](Call&) { return engine_->view(variable, selection); },
        [&](Call& call) { describe_read(call, variable, selection); });
  }
  void end_step() override {
    (*record_)(Verb::read_end, [&](Call& call) {
      call.version = begun_;
      engine_->end_step();
    });
  }
  void close() override {
    if (std::exchange(closed_, true)) return engine_->close();
    (*record_)(Verb::read_close, [&](Call&) { engine_->close(); });
    record_->flush();
  }
  StreamStatistics statistics() const override { return engine_->statistics(); }

 private:
  const VariableInfo* info_of(std::uint32_t id) const {  // null when the step does not have it
    const auto& infos = engine_->variables();
    const auto at = std::ranges::lower_bound(infos, id, {}, &VariableInfo::id);
    return at != infos.end() && at->id == id ? &*at : nullptr;
  }
  void describe_read(Call& call, std::uint32_t variable, const Selection& selection) {
    append_selection(record_->text(), selection);
    const auto* found = info_of(variable);
    if (!found) return;
    const VariableInfo& is = *found;
    call.of = is.name;
    call.function = newly_described(is);
    const Selection::Form form = selection.form();
    call.bytes = form == Selection::Form::box ? array_bytes(selection.box().count, is.dtype)
                 : form == Selection::Form::points
                     ? selection.coordinates().size() / selection.dimensions() * size_of(is.dtype)
                     : array_bytes(engine_->shape_of(variable, selection), is.dtype);
  }
  // "" when this reader has said so before.
  std::string_view newly_described(const VariableInfo& is) {
    auto [place, fresh] = described_.try_emplace(is.name);
    if (!fresh && place->second.shape == is.shape && place->second.dtype == is.dtype) return "";
    place->second = {is.dtype, is.shape, {.kind = is.kind, .order = is.order}};
    description_ = describe_variable(place->second);
    return description_;
  }

  std::shared_ptr<StreamRecorder> record_;
  std::unique_ptr<stream::ReaderEngine> engine_;
  std::map<std::string, DescribedVariable, std::less<>> described_;
  std::string description_;
  std::optional<std::uint64_t> begun_;  // the step
  bool closed_ = false;
};

// Null: nothing is recorded.
std::shared_ptr<StreamRecorder> open_recorder(const stream::EngineContext& context, const std::string& name,
                                              const StreamOptions& options) {
  const std::string& path = options.trace.empty() ? context.trace : options.trace;
  if (path.empty() || path == "off") return nullptr;
  try {
    return std::make_shared<StreamRecorder>(TraceWriter::shared(path), options.pool, name);
  } catch (const Error& error) {
    base::log(base::Level::warn, "a stream is not recorded",
              {{"stream", name}, {"why", std::string_view(error.what())}});
    return nullptr;
  }
}

template <class Recorded, class Engine>
std::unique_ptr<Engine> opened(Verb verb, const stream::EngineContext& context, const std::string& name,
                               const Cohort& cohort, const StreamOptions& options,
                               const std::function<std::unique_ptr<Engine>(std::uint64_t& number)>& open) {
  auto recorder = open_recorder(context, name, options);
  std::uint64_t number = 0;
  if (!recorder) return open(number);
  auto engine = (*recorder)(
      verb, [&](Call&) { return open(number); },
      [&](Call& call) {
        call.timeout = Timeout(options.open_timeout_ms);
        call.count = static_cast<std::uint64_t>(cohort.size());
        call.tag = static_cast<std::uint64_t>(cohort.rank());
        if (number != 0) call.version = number;
        recorder->text() = to_yaml(options);
      });
  return std::make_unique<Recorded>(std::move(engine), std::move(recorder));
}

}  // namespace

std::unique_ptr<stream::WriterEngine> recorded_writer(
    const stream::EngineContext& context, const std::string& name, const Cohort& cohort, const StreamOptions& options,
    const std::function<std::unique_ptr<stream::WriterEngine>(std::uint64_t& number)>& open) {
  return opened<RecordedWriter>(Verb::write_open, context, name, cohort, options, open);
}

std::unique_ptr<stream::ReaderEngine> recorded_reader(
    const stream::EngineContext& context, const std::string& name, const Cohort& cohort, const StreamOptions& options,
    const std::function<std::unique_ptr<stream::ReaderEngine>(std::uint64_t& number)>& open) {
  return opened<RecordedReader>(Verb::read_open, context, name, cohort, options, open);
}

}  // namespace penstock::pool
