#include "penstock/cohort.hpp"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "penstock/error.hpp"

namespace penstock {
namespace {

void check_root(int root, int size) {
  if (root < 0 || root >= size)
    throw Error(Errc::invalid_argument,
                "root " + std::to_string(root) + " is not a rank of a cohort of " + std::to_string(size));
}

class SoloCohort final : public Cohort {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string broadcast(const std::string& bytes, int root) override {
    check_root(root, 1);
    return bytes;
  }
  std::vector<std::string> gather(const std::string& bytes, int root) override {
    check_root(root, 1);
    return {bytes};
  }
};

// Where the threads of a cohort meet. Every collective is one exchange: all put their bytes in, all see all of them, and
// none starts the next exchange before the last has left. A rank that fails or returns breaks the meeting, so that the
// others throw instead of waiting for it.
class Meeting {
 public:
  explicit Meeting(int size) : size_(size), slots_(size) {}

  int size() const { return size_; }

  template <class Take>
  auto exchange(int rank, const std::string& bytes, Take take) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return broken_ || leaving_ == 0; });
    check_whole();
    slots_[rank] = bytes;
    if (++arrived_ == size_) {
      arrived_ = 0;
      leaving_ = size_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return broken_ || leaving_ > 0; });
      if (leaving_ == 0) check_whole();
    }
    auto result = take(slots_);
    if (--leaving_ == 0) changed_.notify_all();
    return result;
  }

  // A rank failed or returned: no exchange that it has not entered can complete any more.
  void leave() {
    std::lock_guard lock(mutex_);
    broken_ = true;
    changed_.notify_all();
  }

 private:
  void check_whole() const {
    if (broken_) throw Error(Errc::peer_lost, "another rank of the thread cohort failed or returned");
  }

  const int size_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::vector<std::string> slots_;
  int arrived_ = 0;  // ranks that wait for the rest of their exchange
  int leaving_ = 0;  // ranks that have yet to take the result of the last one
  bool broken_ = false;
};

class ThreadCohort final : public Cohort {
 public:
  ThreadCohort(std::shared_ptr<Meeting> meeting, int rank) : meeting_(std::move(meeting)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return meeting_->size(); }

  std::string broadcast(const std::string& bytes, int root) override {
    check_root(root, size());
    const std::string none;
    return meeting_->exchange(rank_, rank_ == root ? bytes : none, [&](auto& slots) { return slots[root]; });
  }
  std::vector<std::string> gather(const std::string& bytes, int root) override {
    check_root(root, size());
    return meeting_->exchange(rank_, bytes,
                              [&](auto& slots) { return rank_ == root ? slots : std::vector<std::string>{}; });
  }

 private:
  std::shared_ptr<Meeting> meeting_;
  int rank_;
};

}  // namespace

std::shared_ptr<Cohort> solo() { return std::make_shared<SoloCohort>(); }

void run_thread_cohort(int size, const std::function<void(std::shared_ptr<Cohort>)>& body) {
  if (size < 1) throw Error(Errc::invalid_argument, "a cohort has at least one rank, not " + std::to_string(size));
  auto meeting = std::make_shared<Meeting>(size);
  std::mutex mutex;  // guards first
  std::exception_ptr first;
  auto run = [&](int rank) {
    try {
      body(std::make_shared<ThreadCohort>(meeting, rank));
    } catch (...) {
      // The first failure is the cause; those of the other ranks follow from it.
      std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
    meeting->leave();
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(size);
    try {
      for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
    } catch (...) {
      meeting->leave();  // a thread could not be started: let those that wait for it go
      throw;
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace penstock
