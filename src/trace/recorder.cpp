#include "trace/recorder.hpp"

namespace penstock::trace {

Operation Operation::on(Verb verb, std::vector<Key> keys) {
  Operation operation;
  operation.fields.verb = verb;
  operation.fields.batch = keys.size() > 1;
  operation.keys = std::move(keys);
  return operation;
}

Operation& Operation::with(const PutOptions& options, Timeout timeout) {
  fields.if_exists = options.if_exists;
  fields.acknowledge = options.acknowledge;
  fields.tag = options.tag;
  fields.timeout = timeout;
  metadata = options.metadata;
  return *this;
}

Operation& Operation::with(const GetOptions& options, Timeout timeout) {
  fields.version = options.version;
  fields.tag = options.tag;
  fields.offset = options.offset;
  fields.part_bytes = options.bytes;
  fields.timeout = timeout;
  return *this;
}

Operation& Operation::with(const ComputeOptions& options, Timeout timeout) {
  fields.wait = options.wait;
  fields.count = options.time_ms;
  fields.memory_bytes = options.memory_bytes;
  fields.timeout = timeout;
  arguments = options.arguments;
  return *this;
}

void note(Operation& operation, const Error& error) {
  operation.fields.outcome = error.code();
  operation.fields.failed = static_cast<std::uint32_t>(operation.keys.size());
}

void note(Operation& operation, const Object& object) {
  if (operation.fields.verb != Verb::compute) operation.sizes = {object.bytes().size()};
}

void note(Operation& operation, const std::vector<Result<Object>>& results) {
  for (const auto& result : results) {
    operation.sizes.push_back(result ? result.value->bytes().size() : 0);
    if (!result && operation.fields.failed++ == 0) operation.fields.outcome = result.code;
  }
}

std::shared_ptr<Recorder> Recorder::open(const std::string& path, const std::string& pool, const Namespace& ns) {
  if (path.empty()) return nullptr;
  auto recorder = std::make_shared<Recorder>();
  recorder->writer_ = TraceWriter::shared(path);
  recorder->client_ = recorder->writer_->client(pool);
  recorder->ns_ = ns;
  return recorder;
}

void Recorder::begin(Operation& operation) const {
  operation.fields.client = client_;
  operation.fields.thread = TraceWriter::this_thread();
  operation.fields.start_ns = TraceWriter::now_ns();
}

void Recorder::end(Operation& operation) const {
  operation.fields.duration_ns = TraceWriter::now_ns() - operation.fields.start_ns;
  TraceEvent event;
  static_cast<TraceFields&>(event) = operation.fields;
  event.ns = ns_;
  event.keys = operation.keys;
  event.sizes = operation.sizes;
  event.metadata = operation.metadata;
  event.function = operation.function;
  event.arguments = operation.arguments;
  writer_->record(event);
}

}  // namespace penstock::trace
