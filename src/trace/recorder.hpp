// Records a client's calls in its process's trace: what stands between penstock::Pool's public methods and what they do.
//
// A Pool without a trace has no recorder, and then nothing is made, copied or timed. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/task.hpp"
#include "trace/trace_writer.hpp"

namespace penstock::trace {

// A call as it will be recorded; filled in when it begins and when it has ended.
struct Operation {
  TraceFields fields;
  std::vector<Key> keys;
  std::vector<std::uint64_t> sizes;
  std::string metadata, function, arguments;

  static Operation on(Verb verb, std::vector<Key> keys = {});
  Operation& with(const PutOptions& options, Timeout timeout);
  Operation& with(const GetOptions& options, Timeout timeout);
  Operation& with(const ComputeOptions& options, Timeout timeout);
};

// What came of it.
void note(Operation& operation, const Error& error);
void note(Operation& operation, const Object& object);
void note(Operation& operation, const std::vector<Result<Object>>& results);
inline void note(Operation& operation, std::uint64_t number) {
  if (operation.fields.verb == Verb::drop_pattern) operation.fields.count = number;
}
template <class T>
void note(Operation& operation, const std::vector<Result<T>>& results) {
  for (const auto& result : results) {
    if (result) continue;
    if (operation.fields.failed++ == 0) operation.fields.outcome = result.code;
  }
}
template <class T>
void note(Operation&, const T&) {}

class Recorder {
 public:
  // path: as TraceWriter::open; "": null, nothing is recorded. Throws what that throws.
  static std::shared_ptr<Recorder> open(const std::string& path, const std::string& pool, const Namespace& ns);

  ~Recorder() {
    if (writer_) writer_->flush();  // which stays open for whoever records next
  }

  void begin(Operation& operation) const;
  void end(Operation& operation) const;
  // What has been recorded is in the file when it returns. A Pool calls it when it goes: what it started may outlive it.
  void flush() const { writer_->flush(); }

 private:
  std::shared_ptr<TraceWriter> writer_;
  std::uint32_t client_ = 0;
  Namespace ns_;
};

// Does `call` and records it as the operation that `make` describes.
template <class Make, class Call>
auto recorded(const std::shared_ptr<Recorder>& recorder, Make make, Call call) -> decltype(call()) {
  if (!recorder) return call();
  Operation operation = make();
  recorder->begin(operation);
  try {
    auto result = call();
    note(operation, result);
    recorder->end(operation);
    return result;
  } catch (const Error& error) {
    note(operation, error);
    recorder->end(operation);
    throw;
  }
}

// The same for a call that returns before it is done: begin was called where it was made.
template <class T>
fabric::Task<T> recorded_task(std::shared_ptr<Recorder> recorder, Operation operation, fabric::Task<T> task) {
  try {
    T result = co_await std::move(task);
    note(operation, result);
    recorder->end(operation);
    co_return result;
  } catch (const Error& error) {
    note(operation, error);
    recorder->end(operation);
    throw;
  }
}
template <class Make, class T>
fabric::Task<T> record_task(const std::shared_ptr<Recorder>& recorder, Make make, fabric::Task<T> task) {
  if (!recorder) return task;
  Operation operation = make();
  operation.fields.asynchronous = true;
  recorder->begin(operation);
  return recorded_task<T>(recorder, std::move(operation), std::move(task));
}

}  // namespace penstock::trace
