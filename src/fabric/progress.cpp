#include "fabric/progress.hpp"

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "fabric/asio.hpp"
#include "fabric/exit.hpp"
#include "penstock/error.hpp"
#include "penstock/interrupt.hpp"

namespace penstock::fabric {

namespace {

using base::Clock;
constexpr std::chrono::seconds exit_patience{2};  // it may be an engine's own thread that exits

// A callback that throws is a defect; it must not take the application down with it.
void run_guarded(const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception& error) {
    base::log(base::Level::error, "a callback on the engine thread failed", {{"error", error.what()}});
  }
}

// Runs the loop through handlers that throw, which is a defect as well, as long as there is something to do.
template <class Run>
auto run_loop(Run run) {
  for (;;) {
    try {
      return run();
    } catch (const std::exception& error) {
      base::log(base::Level::error, "a handler on the engine thread failed", {{"error", error.what()}});
    }
  }
}

// This thread is the engine as long as this lives.
class EngineHere {
 public:
  explicit EngineHere(std::atomic<std::thread::id>& engine)
      : engine_(engine), before_(engine.exchange(std::this_thread::get_id())) {}
  ~EngineHere() { engine_.store(before_); }
  EngineHere(const EngineHere&) = delete;
  EngineHere& operator=(const EngineHere&) = delete;

 private:
  std::atomic<std::thread::id>& engine_;
  const std::thread::id before_;
};

class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// Ends engines in threads of their own, for who cannot wait. A process that exits waits for them: what they still use goes next.
class Enders {
 public:
  static Enders& all() {
    static auto* const enders = new Enders;  // never destroyed: the threads come here last
    static const Wait wait{*enders};
    return *enders;
  }
  void run(std::function<void()> end) {
    {
      std::lock_guard lock(mutex_);
      ++running_;
    }
    BlockedSignals blocked;
    std::thread([this, end = std::move(end)]() mutable {
      std::exchange(end, nullptr)();
      std::lock_guard lock(mutex_);
      --running_;
      changed_.notify_all();
    }).detach();
  }
  void wait_for(std::weak_ptr<const int> life) {
    std::lock_guard lock(mutex_);
    drop_ended();
    lives_.push_back(std::move(life));
  }

 private:
  struct Wait {
    Enders& enders;
    ~Wait() {
      const auto until = Clock::now() + exit_patience;
      std::unique_lock lock(enders.mutex_);
      while (!enders.ended() && Clock::now() < until) enders.changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
  };
  bool ended() {  // under the lock
    drop_ended();
    return running_ == 0 && lives_.empty();
  }
  void drop_ended() {
    std::erase_if(lives_, [](const auto& life) { return life.expired(); });
  }
  std::mutex mutex_;                 // guards what follows
  std::condition_variable changed_;  // running_
  int running_ = 0;
  std::vector<std::weak_ptr<const int>> lives_;  // of engines
};

}  // namespace

struct Timer::State {
  explicit State(asio::io_context& context) : timer(context) {}
  std::function<void()> take() {
    std::lock_guard lock(mutex);
    return std::exchange(task, nullptr);
  }
  asio::steady_timer timer;
  std::mutex mutex;  // held while the task is looked at, not while it runs
  std::function<void()> task;
};

Timer& Timer::operator=(Timer&& other) noexcept {
  if (this == &other) return *this;
  cancel();
  state_ = std::move(other.state_);
  return *this;
}

void Timer::cancel() {
  auto state = std::exchange(state_, nullptr);
  if (!state) return;
  const std::function<void()> dropped = state->take();
  if (!dropped) return;
  // The timer belongs to the engine thread; until then it would only hold an empty task.
  auto executor = state->timer.get_executor();
  asio::post(executor, [state = std::move(state)] { state->timer.cancel(); });
}

Progress::Progress(Mode mode) : impl_(std::make_unique<Impl>(mode)) {
  if (!impl_->threaded) return;
  // A thread inherits its creator's mask: with all signals blocked, the application's handlers run in its own threads.
  BlockedSignals blocked;
  impl_->thread = std::thread([impl = impl_.get()] {
    impl->engine.store(std::this_thread::get_id());
    ::pthread_setname_np(::pthread_self(), "penstock");
    run_loop([impl] { return impl->context.run(); });
  });
}

void release_owners(Progress::Impl& impl) {
  std::unordered_map<const void*, std::function<void()>> owners;
  {
    std::lock_guard lock(impl.mutex);
    owners.swap(impl.owners);
  }
  for (const auto& [key, release] : owners) release();
}

std::shared_ptr<Progress> Progress::create(Mode mode) {
  return {new Progress(mode), [](Progress* progress) {
            // The engine thread cannot wait for its own end.
            if (progress->threaded() && progress->on_engine_thread())
              Enders::all().run([progress] { delete progress; });
            else delete progress;
          }};
}

Progress::~Progress() {
  if (impl_->origin.inherited()) {
    static_cast<void>(impl_.release());  // all of it is the parent's
    return;
  }
  impl_->context.stop();
  if (!impl_->thread.joinable() || !on_engine_thread()) {
    if (impl_->thread.joinable()) impl_->thread.join();
    release_owners(*impl_);
    return;
  }
  // The last owner let go inside a callback: the loop is still below us on this stack, so someone else must end it.
  Enders::all().run([impl = std::shared_ptr<Impl>(std::move(impl_))] {
    impl->thread.join();
    release_owners(*impl);
  });
}

void wait_at_exit(Progress& progress) {
  if (!progress.impl().origin.inherited()) Enders::all().wait_for(progress.impl().life);
}

void Progress::post(std::function<void()> task) {
  if (impl_->origin.inherited()) return;
  asio::post(impl_->context, [task = std::move(task)] { run_guarded(task); });
}

Timer Progress::after(std::chrono::nanoseconds delay, std::function<void()> task) {
  auto state = std::make_shared<Timer::State>(impl_->context);
  state->task = std::move(task);
  // The loop does not see the timer before async_wait, so setting it up here is safe from any thread.
  state->timer.expires_after(std::chrono::duration_cast<asio::steady_timer::duration>(delay));
  // When the loop ends without having run it, the task is dropped: it may own who holds the Timer.
  std::shared_ptr<Timer::State> pending(state.get(), [state](Timer::State* which) { which->take(); });
  state->timer.async_wait([pending = std::move(pending)](const asio::error_code&) {
    if (const auto due = pending->take()) run_guarded(due);
  });
  return Timer(state);
}

bool Progress::on_engine_thread() const { return impl_->engine.load() == std::this_thread::get_id(); }

void Progress::require_may_wait() const {
  if (threaded() && on_engine_thread())
    throw Error(
        Errc::wrong_state,
        "a call that waits was made in a callback, whose thread does the work that it would wait for: make it in "
        "another thread, which the callback wakes");
}

bool Progress::threaded() const { return impl_->threaded; }

void Progress::call(const std::function<void()>& task) {
  if (impl_->origin.inherited()) return;
  if (!impl_->threaded) {
    // This thread is the engine meanwhile: what the task closes calls nobody afterwards.
    const EngineHere here(impl_->engine);
    task();
    return;
  }
  if (on_engine_thread()) {
    task();
    return;
  }
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false;
  std::exception_ptr failure;
  asio::post(impl_->context, [&] {
    try {
      task();
    } catch (...) {
      failure = std::current_exception();
    }
    std::lock_guard lock(mutex);
    done = true;
    finished.notify_one();
  });
  std::unique_lock lock(mutex);
  finished.wait(lock, [&] { return done; });
  if (failure) std::rethrow_exception(failure);
}

bool Progress::poll() {
  if (impl_->threaded || impl_->origin.inherited()) return false;
  const EngineHere here(impl_->engine);
  return run_loop([this] { return impl_->context.poll(); }) > 0;
}

void Progress::notify() {
  if (impl_->origin.inherited()) return;
  {
    std::lock_guard lock(impl_->mutex);
    ++impl_->notices;
  }
  if (!impl_->threaded) asio::post(impl_->context, [] {});  // ends the run_one of wait_for
  impl_->changed.notify_all();
}

bool Progress::wait_for(const std::function<bool()>& ready, base::Deadline deadline) {
  impl_->origin.check("this");
  auto next_question = Clock::now() + interruption_period;
  for (;;) {
    std::uint64_t seen;
    {
      std::lock_guard lock(impl_->mutex);
      seen = impl_->notices;
    }
    if (ready()) return true;
    if (deadline.passed()) return false;
    require_may_wait();
    if (Clock::now() >= next_question) {
      if (penstock::interrupted()) return ready();
      next_question = Clock::now() + interruption_period;
    }
    const auto until = std::min(deadline.when(), next_question);
    if (!impl_->threaded) {
      const EngineHere here(impl_->engine);
      run_loop([&] { return impl_->context.run_one_until(until); });
    } else {
      std::unique_lock lock(impl_->mutex);
      impl_->changed.wait_until(lock, until, [&] { return impl_->notices != seen; });
    }
  }
}

}  // namespace penstock::fabric
