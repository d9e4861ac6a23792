// Records what is done to a stream: what stands between the public API and the engine, when there is a trace.
//
// Without one there is no recorder, and nothing is made, copied or timed. A stream is never disturbed: a trace that cannot be
// begun is logged, and the stream goes on without.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "penstock/cohort.hpp"
#include "penstock/options.hpp"
#include "trace/stream_text.hpp"
#include "trace/trace_writer.hpp"

namespace penstock::trace {

// Of one Writer or Reader, which one thread uses at a time: its texts are made in the same places again and again.
class StreamRecorder {
 public:
  // folder: of the process, unless the options say otherwise. Null: nothing is recorded.
  static std::unique_ptr<StreamRecorder> open(const std::string& folder, const std::string& stream,
                                              const StreamOptions& options);
  ~StreamRecorder() { flush(); }

  // A call when it has ended: what it says of itself.
  struct Call : TraceFields {
    std::string_view of;        // variable or attribute
    std::string_view function;  // of what lives until the call is recorded
    std::optional<std::uint64_t> bytes;
    std::string& text;  // the arguments; empty at first

    explicit Call(std::string& arguments) : text(arguments) {}
    void open(const Cohort& cohort, const StreamOptions& options);
    void define(std::string_view name, const DescribedVariable& variable);
    void put(const DescribedVariable& variable, std::string_view name, const Box& box, std::string_view how);
  };

  // Does it and records it. describe(Call&) tells what was called, whatever came of it; its time is not the call's.
  template <class Do, class Describe>
  auto record(Verb verb, Do what, Describe describe) {
    record_look();
    Call call(text_);
    call.verb = verb;
    call.start_ns = TraceWriter::now_ns();
    try {
      if constexpr (std::is_void_v<decltype(what())>) {
        what();
        end(call, describe);
      } else {
        auto result = what();
        end(call, describe);
        return result;
      }
    } catch (const Error& error) {
      call.outcome = error.code();
      end(call, describe);
      throw;
    }
  }

  // The same for a look for a step. describe gives one in vain the outcome that it had. Who waits in slices (Python does, for
  // Ctrl-C) waits once: a look that follows at once on one in vain is recorded as one with it.
  template <class Do, class Describe>
  auto look(Verb verb, Timeout deadline, Do what, Describe describe) {
    Call call(text_);
    call.verb = verb;
    call.timeout = deadline;
    call.start_ns = TraceWriter::now_ns();
    const auto goes_on = continued(call.start_ns);
    if (goes_on) call.start_ns = goes_on->start_ns;
    try {
      const auto result = what();
      call.duration_ns = TraceWriter::now_ns() - call.start_ns;
      text_.clear();
      describe(call, result);
      if (goes_on && goes_on->timeout > Timeout(0) && deadline >= Timeout(0) && deadline < forever / 2)
        call.timeout += goes_on->timeout;
      if (call.outcome == Errc::ok) write(call);
      else look_ = call;
      return result;
    } catch (const Error& error) {
      call.outcome = error.code();
      end(call, [](Call&) {});
      throw;
    }
  }

  // "" when this reader has said so before.
  std::string_view newly_described(const VariableInfo& is);
  void flush();

 private:
  StreamRecorder(std::shared_ptr<TraceWriter> writer, const std::string& pool, const std::string& stream);
  std::optional<TraceFields> continued(std::int64_t now_ns);
  void record_look();
  template <class Describe>
  void end(Call& call, const Describe& describe) {
    call.duration_ns = TraceWriter::now_ns() - call.start_ns;
    text_.clear();
    try {
      describe(call);
    } catch (const Error&) {  // of a variable that is not there, which the call has said
    }
    write(call);
  }
  void write(const Call& call);

  std::shared_ptr<TraceWriter> writer_;
  const std::uint32_t client_;
  Key key_;
  std::string text_, description_;
  std::optional<TraceFields> look_;  // in vain, and not recorded yet
  std::map<std::string, DescribedVariable, std::less<>> described_;
};

// Does a call, and records it where there is a recorder.
template <class Do, class Describe>
auto recorded(const std::unique_ptr<StreamRecorder>& recorder, Verb verb, Do what, Describe describe) {
  return recorder ? recorder->record(verb, std::move(what), std::move(describe)) : what();
}
template <class Do>
auto recorded(const std::unique_ptr<StreamRecorder>& recorder, Verb verb, Do what) {
  return recorded(recorder, verb, std::move(what), [](StreamRecorder::Call&) {});
}

// Without the overflow that element_count reports: the call itself does.
std::uint64_t array_bytes(const Dims& count, DType dtype);

}  // namespace penstock::trace
