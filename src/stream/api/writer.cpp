// Writers and their steps, as the public API has them: over a step builder, and recorded where there is a trace.
#include <exception>

#include "base/log.hpp"
#include "stream/api/handles.hpp"

namespace penstock {
namespace {

using stream::live;
using trace::Verb;
using Call = trace::StreamRecorder::Call;

trace::DescribedVariable described(const model::VariableDefinition& v) {
  return {v.dtype, v.shape, {.kind = v.kind, .order = v.order, .min_max = v.min_max}};
}

// A call that puts a block.
template <class Put>
auto put_block(Writer::Impl& writer, std::uint32_t variable, const Box& box, std::string_view how, Put put) {
  return trace::recorded(writer.recorder, Verb::write_put, put, [&](Call& call) {
    const auto& v = writer.builder.definition(variable);
    call.put(described(v), v.name, box, how);
  });
}

void put_attribute(Writer::Impl& writer, std::string_view name, Attribute value, stream::AttributeOf of) {
  const auto what = writer.recorder ? trace::describe_attribute(value) : std::string();
  trace::recorded(
      writer.recorder, Verb::write_attribute, [&] { writer.builder.put_attribute(name, std::move(value), of); },
      [&](Call& call) {
        call.of = name;
        call.text = what;
      });
}

bool begin_step(Writer::Impl& writer, Timeout deadline) {
  const auto begin = [&] { return writer.builder.begin_step(deadline); };
  if (!writer.recorder) return begin();
  return writer.recorder->look(Verb::write_begin, deadline, begin, [&](Call& call, bool begun) {
    if (!begun) {
      call.outcome = Errc::timeout;
      return;
    }
    call.version = writer.builder.step();
    call.existing = writer.builder.dropped();
  });
}

void end_step(Writer::Impl& writer) {
  trace::recorded(
      writer.recorder, Verb::write_end, [&] { writer.builder.end_step(); },
      [&](Call& call) { call.version = writer.builder.step(); });
}

void abandon_step(Writer::Impl& writer) {
  trace::recorded(
      writer.recorder, Verb::write_abandon, [&] { writer.builder.abandon_step(); },
      [&](Call& call) { call.version = writer.builder.step(); });
}

void close(Writer::Impl& writer, Timeout deadline) {
  if (writer.builder.closed()) return;
  trace::recorded(
      writer.recorder, Verb::write_close, [&] { writer.builder.close(deadline); },
      [&](Call& call) { call.timeout = deadline; });
  if (writer.recorder) writer.recorder->flush();
}

void lose(Writer::Impl& writer) {
  if (writer.builder.closed()) return;
  trace::recorded(
      writer.recorder, Verb::write_close, [&] { writer.builder.lose(); }, [&](Call& call) { call.count = 1; });
  if (writer.recorder) writer.recorder->flush();
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------- WriteStep

WriteStep::WriteStep(WriteStep&& other) noexcept : writer_(std::exchange(other.writer_, nullptr)) {}
WriteStep& WriteStep::operator=(WriteStep&& other) noexcept {
  WriteStep old(std::exchange(writer_, std::exchange(other.writer_, nullptr)));
  return *this;
}
WriteStep::~WriteStep() {
  if (!writer_ || writer_->origin.inherited()) return;
  try {
    abandon_step(*writer_);
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "a step could not be abandoned", {{"why", e.what()}});
  }
}

std::uint64_t WriteStep::number() const { return live(writer_).builder.step(); }
bool WriteStep::dropped() const { return live(writer_).builder.dropped(); }
void WriteStep::set_shape(std::uint32_t variable, const Dims& shape) {
  auto& writer = live(writer_);
  trace::recorded(
      writer.recorder, Verb::write_shape, [&] { writer.builder.set_shape(variable, shape); },
      [&](Call& call) {
        call.of = writer.builder.definition(variable).name;
        call.text = trace::describe_shape(shape);
      });
}
void WriteStep::put(std::uint32_t variable, const Box& box, const void* data, std::span<const std::int64_t> strides) {
  auto& writer = live(writer_);
  put_block(writer, variable, box, "", [&] { writer.builder.put(variable, box, data, strides); });
}
std::span<std::byte> WriteStep::put_span(std::uint32_t variable, const Box& box) {
  auto& writer = live(writer_);
  return put_block(writer, variable, box, "span", [&] { return writer.builder.put_span(variable, box); });
}
void WriteStep::lend(std::uint32_t variable, const Box& box, const void* data, std::span<const std::int64_t> strides) {
  auto& writer = live(writer_);
  put_block(writer, variable, box, "lend", [&] { writer.builder.lend(variable, box, data, strides); });
}
void WriteStep::put_whole(std::uint32_t variable, const void* data) {
  auto& writer = live(writer_);
  trace::recorded(
      writer.recorder, Verb::write_put, [&] { writer.builder.put_whole(variable, data); },
      [&](Call& call) {
        const auto& v = writer.builder.definition(variable);
        call.of = v.name;
        call.function = "whole";
        call.bytes = trace::array_bytes(v.shape, v.dtype);
      });
}
void WriteStep::put_string(std::uint32_t variable, std::string_view value) {
  auto& writer = live(writer_);
  trace::recorded(
      writer.recorder, Verb::write_put, [&] { writer.builder.put_string(variable, value); },
      [&](Call& call) {
        call.of = writer.builder.definition(variable).name;
        call.function = "string";
        call.bytes = value.size();
      });
}
void WriteStep::put_attribute(std::string_view name, Attribute value) {
  penstock::put_attribute(live(writer_), name, std::move(value), stream::AttributeOf::step);
}
void WriteStep::end() {
  live(writer_);
  end_step(*std::exchange(writer_, nullptr));
}
void WriteStep::abandon() {
  live(writer_);
  abandon_step(*std::exchange(writer_, nullptr));
}

// ------------------------------------------------------------------------------------------------------------- Writer

Writer::Writer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&& other) noexcept {
  Writer old(std::exchange(impl_, std::exchange(other.impl_, nullptr)));
  return *this;
}
Writer::~Writer() {
  if (stream::left_to_parent(impl_) || impl_->builder.closed()) return;
  try {
    if (std::uncaught_exceptions() > 0) penstock::lose(*impl_);
    else penstock::close(*impl_, configured);
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "the stream did not close well", {{"stream", impl_->name()}, {"why", e.what()}});
  }
}

const std::string& Writer::name() const { return impl_->name(); }
std::string Writer::address() const { return impl_->builder.address(); }
std::uint32_t Writer::define(std::string_view name, DType dtype, const Dims& shape, VariableOptions options) {
  auto& writer = live(impl_);
  return trace::recorded(
      writer.recorder, Verb::write_define, [&] { return writer.builder.define(name, dtype, shape, options); },
      [&](Call& call) {
        call.define(name, {dtype, shape, options});
      });
}
void Writer::put_attribute(std::string_view name, Attribute value) {
  penstock::put_attribute(live(impl_), name, std::move(value), stream::AttributeOf::stream);
}

WriteStep Writer::begin_step(Timeout deadline) {
  if (!penstock::begin_step(live(impl_), deadline))
    throw Error(Errc::timeout,
                "stream " + name() + ": no room for a step in time; awaited: " + impl_->builder.awaited());
  return WriteStep(impl_.get());
}
std::optional<WriteStep> Writer::try_begin_step(Timeout deadline) {
  if (!penstock::begin_step(live(impl_), deadline)) return std::nullopt;
  return WriteStep(impl_.get());
}
void Writer::close(Timeout deadline) { penstock::close(live(impl_), deadline); }
void Writer::lose() { penstock::lose(live(impl_)); }
const StreamOptions& Writer::options() const { return live(impl_).options; }
StreamStatistics Writer::statistics() const { return live(impl_).builder.statistics(); }

}  // namespace penstock
