#include "transport/shm/bulk_copy.hpp"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "base/fork.hpp"
#include "model/stream_store.hpp"

namespace penstock::transport {

namespace {

constexpr unsigned thread_count = 2;
constexpr std::uint64_t step_bytes = std::uint64_t{4} << 20;  // between looks at the clock
// From this size on, stores bypass the caches (model/stream_store.hpp): memcpy's own threshold is beyond a step.
constexpr std::uint64_t stream_bytes = std::uint64_t{16} << 20;

}  // namespace

CopyJob::CopyJob(std::shared_ptr<fabric::Progress> progress, std::vector<Piece> pieces, base::Deadline deadline,
                 PeerMemory memory)
    : progress_(std::move(progress)),
      pieces_(std::move(pieces)),
      deadline_(deadline),
      memory_(std::move(memory)),
      done_(*progress_) {}

void CopyJob::copy() {
  if (!memory_.leases->enter(memory_.lease))
    throw Error(Errc::invalid_argument, "bulk memory that is not exposed any more");
  struct Leave {
    CopyJob& job;
    ~Leave() { job.memory_.leases->leave(job.memory_.lease); }
  } leave{*this};
  std::uint64_t since_look = 0, all = 0;
  for (const Piece& piece : pieces_) all += piece.bytes;
  for (const Piece& piece : pieces_) {
    for (std::uint64_t at = 0; at < piece.bytes;) {
      const std::uint64_t bytes = std::min(step_bytes, piece.bytes - at);
      if (all >= stream_bytes) model::stream_copy(piece.to + at, piece.from + at, bytes);
      else std::memcpy(piece.to + at, piece.from + at, bytes);
      at += bytes;
      since_look += bytes;
      if (since_look < step_bytes) continue;
      since_look = 0;
      if (dropped_) throw Error(Errc::cancelled, "a transfer that nobody waits for");
      if (deadline_.passed()) throw Error(Errc::timeout, "a transfer was not finished in time");
    }
  }
  if (all >= stream_bytes) model::stream_fence();
}

void CopyJob::run_inline() { copy(); }

void CopyJob::run() {
  int expected = queued;
  if (!state_.compare_exchange_strong(expected, running)) return;
  try {
    if (deadline_.passed()) throw Error(Errc::timeout, "a transfer was not begun in time");
    copy();
    done_.set();
  } catch (...) {
    done_.set_error(std::current_exception());
  }
  state_.store(ended);
  state_.notify_all();
}

void CopyJob::drop() {
  dropped_ = true;
  int expected = queued;
  if (state_.compare_exchange_strong(expected, ended)) return;
  while (state_.load() == running) state_.wait(running);
}

struct CopyThreads::Impl {
  std::mutex mutex;  // guards what follows
  std::condition_variable ready;
  std::deque<std::shared_ptr<CopyJob>> jobs;
  bool stopping = false;

  void work() {
    for (;;) {
      std::shared_ptr<CopyJob> job;
      {
        std::unique_lock lock(mutex);
        ready.wait(lock, [this] { return stopping || !jobs.empty(); });
        if (jobs.empty()) return;
        job = std::move(jobs.front());
        jobs.pop_front();
      }
      job->run();
    }
  }
};

// The threads own what they work on: the last job may hold the last reference to this object.
CopyThreads::CopyThreads() : impl_(std::make_shared<Impl>()) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  for (unsigned i = 0; i < thread_count; ++i) {
    std::thread thread([impl = impl_] { impl->work(); });
    ::pthread_setname_np(thread.native_handle(), "penstock-copy");
    thread.detach();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

CopyThreads::~CopyThreads() {
  std::lock_guard lock(impl_->mutex);
  impl_->stopping = true;
  impl_->ready.notify_all();
}

std::shared_ptr<CopyThreads> CopyThreads::shared() {
  static base::OncePerProcess<CopyThreads> threads;
  return threads.get([] { return std::shared_ptr<CopyThreads>(new CopyThreads); });
}

void CopyThreads::submit(std::shared_ptr<CopyJob> job) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->jobs.push_back(std::move(job));
  }
  impl_->ready.notify_one();
}

}  // namespace penstock::transport
