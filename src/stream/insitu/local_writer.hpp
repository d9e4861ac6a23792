// A writer rank as readers of its own process see it: its memory, and the functions that it calls at the end of each step.
//
// Any thread; an analysis is called by the writer's thread alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "fabric/token.hpp"
#include "memory/arena.hpp"
#include "stream/api/step_source.hpp"

namespace penstock::stream {

// A reader's function, and how far it has come.
struct Analysis {
  std::uint64_t cohort = 0;  // the reader's: in the order in which readers were opened
  StepSource::Take take;
  std::optional<std::uint64_t> last;   // step that the reader was given. The writer's thread
  std::atomic<bool> detached = false;  // the reader is closed
  std::mutex turn;                     // held by run
  std::atomic<std::thread::id> runner{};

  // Has the reader take each step up to this one. over: the step has ended for all readers, so it does not come any more.
  // Throws what take throws, when the step was taken all the same, and Error(timeout).
  void run(std::uint64_t step, const std::function<bool()>& over, base::Deadline deadline);
};

class LocalWriter {
 public:
  explicit LocalWriter(std::shared_ptr<memory::Arena> arena) : arena_(std::move(arena)) {}

  const std::shared_ptr<memory::Arena>& arena() const { return arena_; }
  void attach(std::shared_ptr<Analysis> analysis);
  // When it returns, the function is not running and runs no more; called by the function itself, it runs no more after that.
  void detach(Analysis& analysis);
  bool has_analyses() const { return count_ > 0; }
  std::vector<std::shared_ptr<Analysis>> analyses() const;

 private:
  const std::shared_ptr<memory::Arena> arena_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::shared_ptr<Analysis>> analyses_;
  std::atomic<std::size_t> count_{0};
};

// The ranks of writers in this process, by their cohort's token. An entry lasts as long as the object does.
void note_local_writer(const fabric::Token& token, std::uint32_t rank, const std::shared_ptr<LocalWriter>& writer);
std::shared_ptr<LocalWriter> find_local_writer(const fabric::Token& token, std::uint32_t rank);  // null: elsewhere
bool any_local_writer();

}  // namespace penstock::stream
