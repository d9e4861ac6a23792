#include "trace/stream_recorder.hpp"

#include "base/config.hpp"
#include "base/log.hpp"

namespace penstock::trace {
namespace {

constexpr std::int64_t at_once_ns = 1'000'000;

}  // namespace

std::uint64_t array_bytes(const Dims& count, DType dtype) {
  std::uint64_t bytes = size_of(dtype);
  for (const std::uint64_t length : count) bytes *= length;
  return bytes;
}

std::unique_ptr<StreamRecorder> StreamRecorder::open(const std::string& folder, const std::string& stream,
                                                     const StreamOptions& options) {
  const std::string& path = options.trace.empty() ? folder : options.trace;
  if (path.empty() || path == "off") return nullptr;
  try {
    return std::unique_ptr<StreamRecorder>(new StreamRecorder(TraceWriter::shared(path), options.pool, stream));
  } catch (const Error& error) {
    base::log(base::Level::warn, "a stream is not recorded", {{"stream", stream}, {"why", error.what()}});
    return nullptr;
  }
}

StreamRecorder::StreamRecorder(std::shared_ptr<TraceWriter> writer, const std::string& pool, const std::string& stream)
    : writer_(std::move(writer)), client_(writer_->client(pool)), key_{stream, {}} {}

void StreamRecorder::Call::open(const Cohort& cohort, const StreamOptions& options) {
  timeout = Timeout(options.open_timeout_ms);
  count = static_cast<std::uint64_t>(cohort.size());
  tag = static_cast<std::uint64_t>(cohort.rank());
  text = to_yaml(base::effective(options, verb == Verb::write_open ? base::Side::writer : base::Side::reader));
}

void StreamRecorder::Call::define(std::string_view name, const DescribedVariable& variable) {
  of = name;
  text = describe_variable(variable);
}

void StreamRecorder::Call::put(const DescribedVariable& variable, std::string_view name, const Box& box,
                               std::string_view how) {
  of = name;
  function = how;
  bytes = array_bytes(box.count, variable.dtype);
  append_box(text, box);
}

// The look in vain that the one which begins now goes on with.
std::optional<TraceFields> StreamRecorder::continued(std::int64_t now_ns) {
  if (look_ && now_ns - (look_->start_ns + look_->duration_ns) > at_once_ns) record_look();
  return std::exchange(look_, std::nullopt);
}

void StreamRecorder::record_look() {
  if (!look_) return;
  text_.clear();
  Call call(text_);
  static_cast<TraceFields&>(call) = *std::exchange(look_, std::nullopt);
  write(call);
}

void StreamRecorder::write(const Call& call) {
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

std::string_view StreamRecorder::newly_described(const VariableInfo& is) {
  auto [place, fresh] = described_.try_emplace(is.name);
  if (!fresh && place->second.shape == is.shape && place->second.dtype == is.dtype) return "";
  place->second = {is.dtype, is.shape, {.kind = is.kind, .order = is.order}};
  description_ = describe_variable(place->second);
  return description_;
}

void StreamRecorder::flush() {
  record_look();
  writer_->flush();
}

}  // namespace penstock::trace
