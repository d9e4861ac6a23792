// An event queue for completions: futures post to it as they are set, a thread takes from it. For programs that wait for many
// calls at once without a callback for each.
//
//   CompletionQueue queue;
//   auto reply = client.start_echo(request, options);
//   queue.watch(reply, 17);
//   if (const auto tag = queue.take(deadline)) ...          // 17: reply.take() does not wait
//
// Any thread. A queue may be destroyed before the futures that it watches are set.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "base/clock.hpp"
#include "fabric/task.hpp"

namespace penstock::rpc {

class CompletionQueue {
 public:
  CompletionQueue() : state_(std::make_shared<State>()) {}

  // Posts tag once the future is set; instead of awaiting it or of then().
  template <class T>
  void watch(fabric::Future<T>& future, std::uint64_t tag) {
    future.then([state = state_, tag] { post(*state, tag); });
  }
  void post(std::uint64_t tag) { post(*state_, tag); }

  // The next, in the order of completion; nothing after the deadline.
  std::optional<std::uint64_t> take(base::Deadline deadline) {
    std::unique_lock lock(state_->mutex);
    const auto ready = [this] { return !state_->tags.empty(); };
    if (deadline.is_never()) state_->changed.wait(lock, ready);
    else if (!state_->changed.wait_until(lock, deadline.when(), ready)) return std::nullopt;
    const auto tag = state_->tags.front();
    state_->tags.pop_front();
    return tag;
  }
  std::size_t size() const {
    std::lock_guard lock(state_->mutex);
    return state_->tags.size();
  }

 private:
  struct State {
    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::deque<std::uint64_t> tags;
  };
  static void post(State& state, std::uint64_t tag) {
    {
      std::lock_guard lock(state.mutex);
      state.tags.push_back(tag);
    }
    state.changed.notify_one();
  }
  std::shared_ptr<State> state_;
};

}  // namespace penstock::rpc
