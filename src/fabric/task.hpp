// Coroutines on the engine thread, and what they wait for.
//
//   Task<int> f(Progress& progress) { co_await pause_for(progress, 10ms); co_return 1; }
//
// A Task is lazy: it runs when awaited, spawned, or run from an application thread (run_task). All of a task runs on the
// engine thread of the Progress it was spawned on, except what it hands to Workers. Destroying a Task that is suspended
// destroys its locals and everything it awaits; nothing is resumed late (each awaitable notices). Exceptions pass from a
// task to its awaiter.
//
// g++ 12 destroys aggregate temporaries of a co_await expression twice: name arguments before awaiting. It also puts the
// temporary of `if (!co_await x)` where the promise should be when the function has no local variable: declare one.
#pragma once

#include <atomic>
#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "fabric/progress.hpp"
#include "penstock/error.hpp"

namespace penstock::fabric {

template <class T = void>
class Task;

namespace detail {

// A member function's object, where that is an enable_shared_from_this, lives from the call on. The function's own
// `self = shared_from_this()` would come too late for a task that is spawned and whose caller has given up before it runs.
struct TaskPromiseBase {
  std::coroutine_handle<> continuation;  // who awaits it, since it did not end at once
  std::exception_ptr error;
  std::shared_ptr<const void> object;

  TaskPromiseBase() = default;
  template <class Object, class... Arguments>
    requires requires(Object& object) { object.weak_from_this().lock(); }
  explicit TaskPromiseBase(Object& of, const Arguments&...) : object(of.weak_from_this().lock()) {}

  std::suspend_always initial_suspend() noexcept { return {}; }
  struct FinalAwaiter {
    bool await_ready() noexcept { return false; }
    template <class P>
    void await_suspend(std::coroutine_handle<P> done) noexcept {
      if (const auto waiter = done.promise().continuation) waiter.resume();
    }
    void await_resume() noexcept {}
  };
  FinalAwaiter final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { error = std::current_exception(); }
};

template <class T>
struct TaskPromise : TaskPromiseBase {
  using TaskPromiseBase::TaskPromiseBase;
  std::optional<T> value;
  Task<T> get_return_object();
  template <class U>
  void return_value(U&& v) {
    value.emplace(std::forward<U>(v));
  }
  T take() {
    if (error) std::rethrow_exception(error);
    return std::move(*value);
  }
};

template <>
struct TaskPromise<void> : TaskPromiseBase {
  using TaskPromiseBase::TaskPromiseBase;
  Task<void> get_return_object();
  void return_void() {}
  void take() {
    if (error) std::rethrow_exception(error);
  }
};

}  // namespace detail

template <class T>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::TaskPromise<T>;
  using Handle = std::coroutine_handle<promise_type>;
  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, {});
    }
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  auto operator co_await() && noexcept {
    struct Awaiter {
      Handle handle;
      bool await_ready() noexcept { return false; }
      // The task is called, and returns when it waits or has ended. To pass control back and forth instead (symmetric
      // transfer) takes stack with every task that a loop awaits, wherever the compiler does not make jumps of calls: with
      // a sanitizer, and below -O2.
      bool await_suspend(std::coroutine_handle<> waiter) noexcept {
        handle.resume();
        if (handle.done()) return false;  // the waiter goes on
        handle.promise().continuation = waiter;
        return true;
      }
      T await_resume() { return handle.promise().take(); }
    };
    return Awaiter{handle_};
  }
  // Instead of awaiting it: runs it until it waits for something, on the engine thread. It lives as long as this object.
  void begin() { handle_.resume(); }

 private:
  Handle handle_;
};

namespace detail {
template <class T>
Task<T> TaskPromise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<TaskPromise<T>>::from_promise(*this));
}
inline Task<void> TaskPromise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<TaskPromise<void>>::from_promise(*this));
}
}  // namespace detail

// ------------------------------------------------------------------------------------------------- promise and future

// One value (or error) given once, from any thread, and awaited once: by a coroutine on the engine thread, or by an
// application thread through get. A promise destroyed without a value gives Error(internal, "abandoned"). The awaiting
// coroutine is resumed by the engine, never inside set.
template <class T = void>
class Future;

template <class T = void>
class Promise {
  using Value = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

 public:
  explicit Promise(Progress& progress) : state_(std::make_shared<State>(progress)) {}
  Promise(Promise&&) noexcept = default;
  Promise& operator=(Promise&&) noexcept = default;
  ~Promise() {
    if (state_ && !state_->done())
      set_error(std::make_exception_ptr(Error(Errc::internal, "a pending operation was abandoned")));
  }

  Future<T> future() { return Future<T>(state_); }
  // False when it was set before.
  template <class... V>
  bool set(V&&... value) {
    return state_->finish([&](State& s) { s.value.emplace(std::forward<V>(value)...); });
  }
  bool set_error(std::exception_ptr error) {
    return state_->finish([&](State& s) { s.error = std::move(error); });
  }
  bool set_error(const Error& error) { return set_error(std::make_exception_ptr(error)); }

 private:
  friend class Future<T>;
  struct State : std::enable_shared_from_this<State> {
    explicit State(Progress& progress) : progress(progress) {}
    Progress& progress;
    std::mutex mutex;  // guards what follows
    std::optional<Value> value;
    std::exception_ptr error;
    std::coroutine_handle<> waiter;
    std::function<void()> callback;
    std::atomic<bool> finished{false};

    bool done() const { return finished.load(std::memory_order_acquire); }
    template <class F>
    bool finish(F fill) {
      std::function<void()> call;
      {
        std::lock_guard lock(mutex);
        if (done()) return false;
        fill(*this);
        finished.store(true, std::memory_order_release);
        if (waiter) {
          call = [self = this->shared_from_this()] {
            std::coroutine_handle<> resume;
            {
              std::lock_guard inner(self->mutex);
              resume = std::exchange(self->waiter, {});
            }
            if (resume) resume.resume();
          };
        } else if (callback) {
          call = std::move(callback);
          callback = nullptr;
        }
      }
      if (call) progress.post(std::move(call));
      progress.notify();
      return true;
    }
  };
  std::shared_ptr<State> state_;
};

template <class T>
class Future {
  using State = typename Promise<T>::State;

 public:
  Future() = default;
  Future(Future&&) noexcept = default;
  Future& operator=(Future&&) noexcept = default;

  bool valid() const { return state_ != nullptr; }
  bool done() const { return state_->done(); }

  // On the engine thread.
  auto operator co_await() && noexcept {
    struct Awaiter {
      std::shared_ptr<State> state;
      bool suspended = false;
      ~Awaiter() {
        if (!suspended) return;
        std::lock_guard lock(state->mutex);
        state->waiter = {};
      }
      bool await_ready() const noexcept { return state->done(); }
      bool await_suspend(std::coroutine_handle<> handle) {
        std::lock_guard lock(state->mutex);
        if (state->done()) return false;
        state->waiter = handle;
        suspended = true;
        return true;
      }
      T await_resume() {
        suspended = false;
        return take(*state);
      }
    };
    return Awaiter{state_};
  }

  // From an application thread: waits until the deadline. Throws Error(timeout, what + " in time").
  T get(base::Deadline deadline, const std::string& what = "no answer") {
    auto state = state_;
    if (!state->progress.wait_for([&] { return state->done(); }, deadline))
      throw Error(Errc::timeout, what + " in time");
    return take(*state);
  }
  // Calls done on the engine thread once it is set; instead of awaiting.
  void then(std::function<void()> done) {
    {
      std::lock_guard lock(state_->mutex);
      if (!state_->done()) {
        state_->callback = std::move(done);
        return;
      }
    }
    state_->progress.post(std::move(done));
  }
  // Once done.
  T take() { return take(*state_); }

 private:
  friend class Promise<T>;
  explicit Future(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static T take(State& state) {
    std::lock_guard lock(state.mutex);
    if (state.error) std::rethrow_exception(state.error);
    if constexpr (!std::is_void_v<T>) return std::move(*state.value);
  }
  std::shared_ptr<State> state_;
};

// ------------------------------------------------------------------------------------------------------------ running

namespace detail {

// The root of a tree of tasks: owns itself, and dies when the task has ended.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { throw; }  // the body catches everything; the engine would log it
  };
};

template <class T>
Detached run_detached(Task<T> task, Promise<T> promise) {
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(task);
      promise.set();
    } else {
      promise.set(co_await std::move(task));
    }
  } catch (...) {
    promise.set_error(std::current_exception());
  }
}

}  // namespace detail

// Runs a task on the engine thread; the future tells of its end and may be dropped. The task lives until it has ended:
// what it refers to must too (give it shared_ptrs), unless the Progress is destroyed first.
template <class T>
Future<T> spawn(Progress& progress, Task<T> task) {
  Promise<T> promise(progress);
  auto future = promise.future();
  auto start = std::make_shared<std::pair<Task<T>, Promise<T>>>(std::move(task), std::move(promise));
  auto begin = [start] { detail::run_detached<T>(std::move(start->first), std::move(start->second)); };
  if (progress.on_engine_thread()) begin();
  else progress.post(begin);
  return future;
}

// From an application thread: runs the task on the engine and waits for its end. On Error(timeout) the task goes on.
template <class T>
T run_task(Progress& progress, Task<T> task, base::Deadline deadline, const std::string& what = "no answer") {
  progress.require_may_wait();  // before the task begins, which may use the caller's memory
  return spawn(progress, std::move(task)).get(deadline, what);
}

// ------------------------------------------------------------------------------------------------------------ waiting

inline Task<void> pause_for(Progress& progress, std::chrono::nanoseconds delay) {
  auto promise = std::make_shared<Promise<void>>(progress);
  auto timer = progress.after(delay, [promise] { promise->set(); });
  co_await promise->future();
}

// Something that several coroutines wait for, again and again. Engine thread only.
class Signal {
 public:
  explicit Signal(Progress& progress) : progress_(progress) {}
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal() { notify_all(); }

  void notify_all() {
    auto waiting = std::exchange(waiting_, {});
    for (auto& w : waiting) w->set(true);
  }
  // True when notified, false after the deadline.
  Task<bool> wait(base::Deadline deadline) {
    auto promise = std::make_shared<Promise<bool>>(progress_);
    waiting_.push_back(promise);
    Timer timer;
    if (!deadline.is_never()) timer = progress_.after(deadline.remaining(), [promise] { promise->set(false); });
    const bool notified = co_await promise->future();
    if (!notified) std::erase(waiting_, promise);
    co_return notified;
  }

 private:
  Progress& progress_;
  std::vector<std::shared_ptr<Promise<bool>>> waiting_;
};

// Threads for what would block the engine: copies of bulk data, disk, checksums. Tasks resume on the engine thread.
class Workers {
 public:
  Workers(Progress& progress, unsigned threads, std::string name = "worker");
  // Finishes what was begun, drops what was not (its waiters get Error(internal)).
  ~Workers();
  // In order of submission, by the next free thread.
  void submit(std::function<void()> job);
  template <class F>
  Task<std::invoke_result_t<F>> run(F function) {
    using R = std::invoke_result_t<F>;
    auto promise = std::make_shared<Promise<R>>(progress_);
    auto future = promise->future();
    submit([promise, function = std::move(function)]() mutable {
      try {
        if constexpr (std::is_void_v<R>) {
          function();
          promise->set();
        } else {
          promise->set(function());
        }
      } catch (...) {
        promise->set_error(std::current_exception());
      }
    });
    promise.reset();
    co_return co_await std::move(future);
  }

 private:
  struct Impl;
  Progress& progress_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::fabric
