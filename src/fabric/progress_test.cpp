#include "fabric/progress.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>

#include "base/log.hpp"
#include "base/test_support.hpp"
#include "fabric/asio.hpp"
#include "penstock/error.hpp"
#include "penstock/interrupt.hpp"

namespace penstock::fabric {
namespace {

using base::Deadline;

TEST(Progress, OutlivesHandlersThatThrow) {
  const SilentLog silent;
  for (const auto mode : {Progress::Mode::threaded, Progress::Mode::explicit_poll}) {
    Progress progress(mode);
    std::atomic<int> ran = 0;
    for (int i = 0; i < 3; ++i) {
      asio::post(context_of(progress), [] { throw std::bad_alloc(); });
      asio::post(context_of(progress), [&] {
        ++ran;
        progress.notify();
      });
    }
    EXPECT_TRUE(progress.wait_for([&] { return ran == 3; }, soon()));
  }
}

TEST(Progress, RunsTasksOnItsOwnThread) {
  Progress progress;
  std::thread::id thread;
  progress.call([&] {
    thread = std::this_thread::get_id();
    EXPECT_TRUE(progress.on_engine_thread());
    progress.call([&] { EXPECT_EQ(std::this_thread::get_id(), thread); });
  });
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_FALSE(progress.on_engine_thread());
  EXPECT_FALSE(progress.poll());
  EXPECT_THROW(progress.call([] { throw Error(Errc::internal, "x"); }), Error);
}

TEST(Progress, BlocksSignalsInItsThread) {
  Progress progress;
  sigset_t mask;
  progress.call([&] { ::pthread_sigmask(SIG_SETMASK, nullptr, &mask); });
  EXPECT_EQ(::sigismember(&mask, SIGINT), 1);
  EXPECT_EQ(::sigismember(&mask, SIGTERM), 1);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(::sigismember(&mask, SIGINT), 0);
}

TEST(Progress, ExplicitModeRunsInPoll) {
  Progress progress(Progress::Mode::explicit_poll);
  int ran = 0;
  EXPECT_FALSE(progress.poll());
  progress.post([&] {
    ++ran;
    EXPECT_TRUE(progress.on_engine_thread());
  });
  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(progress.poll());
  EXPECT_EQ(ran, 1);
  EXPECT_FALSE(progress.on_engine_thread());
}

TEST(Progress, TimersFireAndCancel) {
  for (const auto mode : {Progress::Mode::threaded, Progress::Mode::explicit_poll}) {
    Progress progress(mode);
    std::atomic<int> fired{0};
    std::atomic<int> cancelled{0};
    Timer kept = progress.after(std::chrono::milliseconds(1), [&] {
      ++fired;
      progress.notify();
    });
    progress.call([&] {  // on the engine thread, so it cannot fire first
      Timer dropped = progress.after(std::chrono::milliseconds(0), [&] { ++cancelled; });
      dropped.cancel();
    });
    EXPECT_TRUE(progress.wait_for([&] { return fired == 1; }, soon()));
    EXPECT_EQ(cancelled, 0);
  }
}

TEST(Progress, WaitForEndsByDeadlineAndInterruption) {
  for (const auto mode : {Progress::Mode::threaded, Progress::Mode::explicit_poll}) {
    Progress progress(mode);
    EXPECT_FALSE(progress.wait_for([] { return false; }, Deadline{Timeout(20)}));
    {
      const InterruptHandler handler([](void*) { return true; }, nullptr);
      EXPECT_FALSE(progress.wait_for([] { return false; }, Deadline::never()));
    }
    std::atomic<bool> done{false};
    std::thread other([&] {
      progress.post([&] {
        done = true;
        progress.notify();
      });
    });
    EXPECT_TRUE(progress.wait_for([&] { return done.load(); }, soon()));
    other.join();
  }
}

// It would wait for itself.
TEST(Progress, AWaitOnTheEngineThreadIsRefused) {
  Progress progress;
  progress.call([&] {
    EXPECT_TRUE(progress.wait_for([] { return true; }, Deadline::never()));
    EXPECT_FALSE(progress.wait_for([] { return false; }, Deadline(Timeout(0))));
    try {
      progress.wait_for([] { return false; }, Deadline::never());
      ADD_FAILURE() << "it has waited";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::wrong_state);
    }
  });
  EXPECT_NO_THROW(progress.require_may_wait());
}

TEST(Progress, TasksThatThrowAreContained) {
  std::string logged;
  base::set_log_sink([&](base::Level, std::string_view line) { logged = line; });
  {
    Progress progress;
    progress.post([] { throw Error(Errc::internal, "expected in this test"); });
    bool ran = false;
    progress.call([&] { ran = true; });
    EXPECT_TRUE(ran);
  }
  base::set_log_sink({});
  EXPECT_NE(logged.find("expected in this test"), std::string::npos);
}

TEST(Progress, DropsWhatIsPendingWhenDestroyed) {
  auto alive = std::make_shared<int>(1);
  {
    Progress progress(Progress::Mode::explicit_poll);
    progress.post([alive] {});
    Timer timer = progress.after(std::chrono::hours(1), [alive] {});
    EXPECT_EQ(alive.use_count(), 3);
  }
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(Progress, LastOwnerMayLetGoInsideACallback) {
  auto progress = Progress::create();
  std::weak_ptr<Progress> watch = progress;
  std::atomic<bool> released{false};
  std::atomic<bool> done{false};
  progress->post([owner = progress, &released, &done]() mutable {
    while (!released) std::this_thread::yield();
    owner.reset();
    done = true;
  });
  progress.reset();
  released = true;
  const Deadline deadline = soon();
  while (!done && !deadline.passed()) std::this_thread::yield();
  EXPECT_TRUE(done);
  EXPECT_TRUE(watch.expired());
}

std::atomic<bool> exiting{false};

// The engine lets go of itself, and is not done with that when the process exits.
void exit_meanwhile() {
  auto progress = Progress::create();
  std::atomic<bool> released{false}, ending{false};
  progress->impl().owners.emplace(nullptr, [&ending] {
    ending = true;
    while (!exiting) std::this_thread::yield();
    // Nobody who does not wait is still there; well below what the process waits.
    for (const Deadline deadline{Timeout(50)}; !deadline.passed();) std::this_thread::yield();
    std::fputs("ended", stderr);
  });
  progress->post([owner = progress, &released] {
    while (!released) std::this_thread::yield();
  });
  progress.reset();
  released = true;
  while (!ending) std::this_thread::yield();
  std::atexit([] { exiting = true; });
  std::exit(0);
}

TEST(ProgressDeathTest, AProcessThatExitsWaitsForEnginesThatEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_meanwhile(), ::testing::ExitedWithCode(0), "ended");
}

}  // namespace
}  // namespace penstock::fabric
