#include "fabric/task.hpp"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <deque>
#include <thread>

#include "base/log.hpp"

namespace penstock::fabric {

struct Workers::Impl {
  std::mutex mutex;  // guards what follows
  std::condition_variable ready;
  std::deque<std::function<void()>> jobs;
  bool stopping = false;
  std::vector<std::thread> threads;

  void work() {
    for (;;) {
      std::function<void()> job;
      {
        std::unique_lock lock(mutex);
        ready.wait(lock, [this] { return stopping || !jobs.empty(); });
        if (stopping) return;
        job = std::move(jobs.front());
        jobs.pop_front();
      }
      try {
        job();
      } catch (const std::exception& error) {
        base::log(base::Level::error, "a job on a worker thread failed", {{"error", error.what()}});
      }
    }
  }
};

Workers::Workers(Progress& progress, unsigned threads, std::string name)
    : progress_(progress), impl_(std::make_unique<Impl>()) {
  // Threads inherit the mask: signals are the application's.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  for (unsigned i = 0; i < threads; ++i) {
    impl_->threads.emplace_back([impl = impl_.get()] { impl->work(); });
    ::pthread_setname_np(impl_->threads.back().native_handle(), name.substr(0, 15).c_str());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Workers::~Workers() {
  std::deque<std::function<void()>> dropped;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    dropped.swap(impl_->jobs);
  }
  impl_->ready.notify_all();
  for (auto& thread : impl_->threads) thread.join();
}

void Workers::submit(std::function<void()> job) {
  if (impl_->threads.empty()) return progress_.post(std::move(job));  // a simulation's engine does all the work itself
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->stopping) return;
    impl_->jobs.push_back(std::move(job));
  }
  impl_->ready.notify_one();
}

}  // namespace penstock::fabric
