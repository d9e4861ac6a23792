#include "fabric/task.hpp"

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace penstock::fabric {
namespace {

using namespace std::chrono_literals;

Task<int> add(Progress& progress, int a, int b) {
  co_await pause_for(progress, 1ms);
  co_return a + b;
}

Task<int> sum(Progress& progress, int n) {
  int total = 0;
  for (int i = 0; i < n; ++i) total = co_await add(progress, total, i);
  co_return total;
}

Task<void> fail(Progress& progress) {
  co_await pause_for(progress, 1ms);
  throw Error(Errc::not_found, "nothing here");
}

struct Alive {
  explicit Alive(std::atomic<int>& count) : count(&count) { ++count; }
  Alive(const Alive&) = delete;
  ~Alive() { --*count; }
  std::atomic<int>* count;
};

Task<bool> hold(Signal& signal, std::shared_ptr<Alive> alive, base::Deadline deadline) {
  const bool result = co_await signal.wait(deadline);
  alive.reset();
  co_return result;
}

TEST(Task, RunsOnTheEngineAndReturnsItsValue) {
  Progress progress;
  EXPECT_EQ(run_task(progress, sum(progress, 5), base::Deadline(10s)), 10);
}

TEST(Task, PassesExceptionsToTheAwaiter) {
  Progress progress;
  try {
    run_task(progress, fail(progress), base::Deadline(10s));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::not_found);
  }
}

TEST(Task, AWaitOfAnApplicationThreadHasADeadline) {
  Progress progress;
  Promise<int> never(progress);
  EXPECT_THROW(never.future().get(base::Deadline(5ms)), Error);
}

class Owner : public std::enable_shared_from_this<Owner> {
 public:
  Task<int> read(int more) {
    auto self = shared_from_this();
    co_return self->value_ + more;
  }

 private:
  int value_ = 7;
};

TEST(Task, AnObjectLivesFromTheCallOfItsTask) {
  Progress progress;
  std::promise<void> go_on;
  progress.post([held = go_on.get_future().share()] { held.wait(); });
  auto owner = std::make_shared<Owner>();
  const std::weak_ptr<Owner> alive = owner;
  auto future = spawn(progress, owner->read(1));
  owner.reset();  // as one whose deadline has passed
  EXPECT_FALSE(alive.expired());
  go_on.set_value();
  EXPECT_EQ(future.get(base::Deadline(10s)), 8);
  run_task(progress, pause_for(progress, 0ns), base::Deadline(10s));  // the first task's frame has gone
  EXPECT_TRUE(alive.expired());
}

TEST(Task, SignalWakesEveryWaiterAndTimesOutOthers) {
  Progress progress;
  Signal signal(progress);
  std::atomic<int> alive{0};
  auto early = spawn(progress, hold(signal, std::make_shared<Alive>(alive), base::Deadline(2ms)));
  EXPECT_FALSE(early.get(base::Deadline(10s)));
  auto a = spawn(progress, hold(signal, std::make_shared<Alive>(alive), base::Deadline(10s)));
  auto b = spawn(progress, hold(signal, std::make_shared<Alive>(alive), base::Deadline(10s)));
  progress.call([&] { signal.notify_all(); });
  EXPECT_TRUE(a.get(base::Deadline(10s)));
  EXPECT_TRUE(b.get(base::Deadline(10s)));
  EXPECT_EQ(alive, 0);
}

TEST(Task, ASuspendedTaskThatIsDestroyedIsNotResumed) {
  Progress progress;
  Promise<int> promise(progress);
  std::atomic<int> alive{0};
  progress.call([&] {
    auto wait = [](Future<int> future, std::shared_ptr<Alive> held) -> Task<int> {
      const int value = co_await std::move(future);
      held.reset();
      co_return value;
    };
    auto task = std::make_unique<Task<int>>(wait(promise.future(), std::make_shared<Alive>(alive)));
    task->begin();
    task.reset();
  });
  EXPECT_EQ(alive, 0);
  promise.set(1);
  progress.call([] {});
}

Task<int> at_once(int value) { co_return value; }

Task<int> now_and_then(Progress& progress, int value) {
  if (value % 50'000 == 0) co_await pause_for(progress, 0ns);
  co_return co_await at_once(value);
}

TEST(Task, ManyThatEndAtOnceNeedNoStack) {
  Progress progress;
  constexpr int times = 100'000;
  const auto loop = [](Progress& progress) -> Task<int> {
    int done = 0;
    for (int i = 0; i < times; ++i)
      if (co_await now_and_then(progress, i) == i) ++done;
    co_return done;
  };
  EXPECT_EQ(run_task(progress, loop(progress), base::Deadline(60s)), times);
}

TEST(Task, AnAbandonedPromiseIsAnError) {
  Progress progress;
  Future<int> future;
  {
    Promise<int> promise(progress);
    future = promise.future();
  }
  EXPECT_THROW(future.get(base::Deadline(1s)), Error);
}

Task<std::thread::id> on_worker(Workers& workers) {
  co_return co_await workers.run([] { return std::this_thread::get_id(); });
}

Task<int> throwing(Workers& workers) {
  co_return co_await workers.run([]() -> int { throw Error(Errc::system, "disk"); });
}

TEST(Workers, RunOffTheEngineAndResumeOnIt) {
  Progress progress;
  Workers workers(progress, 2);
  const auto worker = run_task(progress, on_worker(workers), base::Deadline(10s));
  EXPECT_NE(worker, std::this_thread::get_id());
  EXPECT_THROW(run_task(progress, throwing(workers), base::Deadline(10s)), Error);
}

}  // namespace
}  // namespace penstock::fabric
