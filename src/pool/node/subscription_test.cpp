// Subscriptions of a pool, at its servers: how they end, are refused, and lose events.
#include <numeric>

#include "pool/node/server_core_test_support.hpp"

namespace penstock::pool {
namespace {

class Subscriptions : public Servers {
 protected:
  // The subscriptions that a server has.
  std::uint64_t held(std::size_t server) {
    std::uint64_t count = 0;
    servers[server].progress->call([&] { count = core(server).counters().subscriptions; });
    return count;
  }
  // Waits until a server has so many subscriptions.
  bool come_to(std::size_t server, std::uint64_t count) {
    const base::Deadline deadline(patience);
    while (held(server) != count && !deadline.passed()) std::this_thread::yield();
    return held(server) == count;
  }
  fb::SubscribeRequestT request(std::uint64_t id, bool begin) {
    fb::SubscribeRequestT request;
    request.ns = pack_namespace(Namespace{});
    request.row = request.column = pack_bytes("*");
    request.id = id;
    request.begin = begin;
    return request;
  }
  // Puts, until the subscription has heard of it.
  bool hears(std::atomic<int>& heard) {
    const base::Deadline deadline(patience);
    const int before = heard;
    PutOptions again = with(IfExists::overwrite);
    while (heard == before && !deadline.passed()) pool->put({"row", "tick"}, bytes_of("x"), again);
    return heard != before;
  }
};

TEST_F(Subscriptions, ServersForgetThoseThatHaveEnded) {
  every.server.max_subscriptions = 2;
  start(2);
  std::atomic<int> heard{0};
  for (int i = 0; i < 50; ++i) {
    const auto subscription = pool->subscribe({"row", "*"}, [&](const ObjectEvent&) { ++heard; });
    ASSERT_TRUE(hears(heard)) << i;
    subscription->check();
  }
  EXPECT_TRUE(come_to(0, 0));
  EXPECT_TRUE(come_to(1, 0));
}

TEST_F(Subscriptions, ThatEndBeforeTheirServersHaveAnsweredAreForgotten) {
  start(2);
  for (int i = 0; i < 200; ++i) pool->subscribe({"row", "*"}, [](const ObjectEvent&) {}).reset();
  std::atomic<int> heard{0};
  const auto subscription = pool->subscribe({"row", "*"}, [&](const ObjectEvent&) { ++heard; });
  EXPECT_TRUE(hears(heard));
  EXPECT_TRUE(come_to(0, 1));
  EXPECT_TRUE(come_to(1, 1));
}

TEST_F(Subscriptions, TheEndEndsTheLongPoll) {
  start(1);
  const base::Deadline deadline(patience);
  const auto mine = channel(0, "read"), others = channel(0, "read");
  const auto end = [&](const std::shared_ptr<rpc::Channel>& by) {
    fb::UnsubscribeRequestT request;
    request.id = 7;
    fb::ObjectsClient(by).start_unsubscribe(request, {}).get(deadline);
  };
  fb::ObjectsClient client(mine);
  client.start_subscribe(request(7, true), {}).get(deadline);
  EXPECT_EQ(code_of([&] { client.start_subscribe(request(7, true), {}).get(deadline); }), Errc::invalid_argument);
  auto waiting = client.start_subscribe(request(7, false), rpc::CallOptions{base::Deadline(patience)});
  end(others);
  EXPECT_EQ(held(0), 1u);
  end(mine);
  EXPECT_EQ(held(0), 0u);
  EXPECT_TRUE(waiting.get(base::Deadline(Timeout(10'000))).events.empty());  // a long poll waits 20 s
  EXPECT_EQ(code_of([&] { client.start_subscribe(request(7, false), {}).get(deadline); }), Errc::not_found);
  end(mine);
}

TEST_F(Subscriptions, AClientThatGoesTakesItsOwnAlong) {
  start(1);
  const base::Deadline deadline(patience);
  auto mine = channel(0, "read");
  for (std::uint64_t id = 1; id <= 3; ++id)
    fb::ObjectsClient(mine).start_subscribe(request(id, true), {}).get(deadline);
  EXPECT_EQ(held(0), 3u);
  mine->close();
  EXPECT_TRUE(come_to(0, 0));
}

// An object that was read in place keeps the connection open after the pool is closed.
TEST_F(Subscriptions, EndWithTheirPool) {
  start(1);
  pool->put({"row", "large"}, std::vector<std::byte>(std::size_t{1} << 20));
  const auto held_open = pool->get({"row", "large"});
  std::atomic<int> heard{0};
  const auto subscription = pool->subscribe({"row", "*"}, [&](const ObjectEvent&) { ++heard; });
  ASSERT_TRUE(hears(heard));
  EXPECT_EQ(held(0), 1u);
  pool.reset();
  EXPECT_TRUE(come_to(0, 0));
  EXPECT_EQ(held_open.bytes().size(), std::size_t{1} << 20);
  const int before = heard;
  PoolOptions options;
  options.pool = "stage";
  pool.emplace(*context, options);
  std::atomic<int> others{0};
  const auto other = pool->subscribe({"row", "*"}, [&](const ObjectEvent&) { ++others; });
  ASSERT_TRUE(hears(others));
  EXPECT_EQ(heard, before);
}

TEST_F(Subscriptions, AServerThatTakesNoMoreCallsHearsOfTheEndLater) {
  every.server.max_calls = 2;
  start(1);
  const SilentLog silent;
  auto subscription = pool->subscribe({"row", "*"}, [](const ObjectEvent&) {});
  ASSERT_TRUE(come_to(0, 1));
  GetOptions soon;
  soon.timeout = Timeout(1000);
  auto waiting = pool->want({"never", "there"}, soon);
  const auto waits = [&] {
    std::uint32_t waiters = 0;
    servers[0].progress->call([&] { waiters = core(0).store().table().waiters(Namespace{}, "never", "there"); });
    return waiters;
  };
  const base::Deadline deadline(patience);
  while (waits() == 0 && !waiting.done() && !deadline.passed()) std::this_thread::yield();
  subscription.reset();  // beside the long poll and the wait there is no room for the call that says so
  EXPECT_TRUE(come_to(0, 0));
  EXPECT_EQ(code_of([&] { waiting.get(patience); }), Errc::timeout);
}

TEST_F(Subscriptions, ARefusalIsSaidWhileItLasts) {
  every.server.max_subscriptions = 1;
  start(1);
  const SilentLog silent;
  std::atomic<int> first_heard{0}, second_heard{0};
  auto first = pool->subscribe({"row", "*"}, [&](const ObjectEvent&) { ++first_heard; });
  ASSERT_TRUE(hears(first_heard));
  const auto second = pool->subscribe({"row", "*"}, [&](const ObjectEvent&) { ++second_heard; });
  const base::Deadline deadline(patience);
  while (code_of([&] { second->check(); }) == Errc::ok && !deadline.passed()) std::this_thread::yield();
  EXPECT_EQ(code_of([&] { second->check(); }), Errc::overloaded);
  first->check();
  first.reset();
  EXPECT_TRUE(hears(second_heard));  // it is asked again
  second->check();
}

TEST_F(Subscriptions, LostEventsAreCounted) {
  every.server.max_events = 100;
  start(1);
  const SilentLog silent;
  constexpr int puts = 5000;
  std::vector<Pool::PutItem> items;
  for (int i = 0; i < puts; ++i) items.push_back({{"many", std::to_string(i)}, bytes_of("x")});
  std::atomic<int> began{0}, heard{0};
  const auto subscription =
      pool->subscribe({"*", "*"}, [&](const ObjectEvent& event) { ++(event.info.key.row == "many" ? heard : began); });
  ASSERT_TRUE(hears(began));
  pool->put(items);
  const base::Deadline deadline(patience);
  while (heard + subscription->lost() < puts && !deadline.passed()) std::this_thread::yield();
  EXPECT_GT(subscription->lost(), 0u);
  EXPECT_TRUE(hears(began));  // no more come
  EXPECT_EQ(heard + subscription->lost(), puts);
}

// Nobody knows whether it had some.
TEST_F(Subscriptions, AServerThatIsGoneCountsAsALostEvent) {
  start(2);
  const SilentLog silent;
  std::string row = "row";
  while (!primary(1, row)) row += "+";
  std::atomic<int> of_it{0}, heard{0};
  const auto subscription =
      pool->subscribe({"*", "*"}, [&](const ObjectEvent& event) { ++(event.info.key.row == row ? of_it : heard); });
  const base::Deadline deadline(patience);
  while (of_it == 0 && !deadline.passed()) pool->put({row, "tick"}, bytes_of("x"), with(IfExists::overwrite));
  EXPECT_EQ(subscription->lost(), 0u);
  servers[1].server->stop(Timeout(2000));
  while (subscription->lost() == 0 && !deadline.passed()) std::this_thread::yield();
  EXPECT_EQ(subscription->lost(), 1u);
  EXPECT_TRUE(hears(row == "row" ? of_it : heard));  // from the other one
  EXPECT_EQ(subscription->lost(), 1u);
}

TEST_F(Subscriptions, EventsOfAClientAreBoundedInBytes) {
  start(1);
  const base::Deadline deadline(Timeout(120'000));  // sanitizers
  constexpr std::uint32_t objects = 1'100;          // 64 KiB each
  constexpr std::uint64_t subscriptions = 6;        // 64 MiB each would be 384 MiB
  fb::ObjectsClient client(channel(0, "read"));
  std::vector<std::uint64_t> lost(subscriptions + 1), taken(subscriptions + 1);
  const auto poll = [&](std::uint64_t id, const fb::SubscribeRequestT& next) {
    const auto reply = client.start_subscribe(next, rpc::CallOptions{deadline}).get(deadline);
    lost[id] += reply.lost;
    taken[id] += reply.events.size();
  };
  for (std::uint64_t id = 0; id < subscriptions; ++id) poll(id, request(id, true));
  put_many("large", objects, std::string(max_metadata_bytes, 'm'));
  auto last = request(subscriptions, true);  // there is no room for any of its own
  last.existing = true;
  poll(subscriptions, last);
  for (std::uint64_t id = 0; id <= subscriptions; ++id) {
    while (lost[id] + taken[id] < objects && !deadline.passed()) poll(id, request(id, false));
    EXPECT_EQ(lost[id] + taken[id], objects);
  }
  const auto kept = std::accumulate(taken.begin(), taken.end(), std::uint64_t{0});
  EXPECT_GT(kept, 4'000u);  // 250 MiB
  EXPECT_LE(kept, 4'097u);
}

TEST_F(Subscriptions, EventsWithLargeMetadataAreBoundedInBytes) {
  start(1);
  const base::Deadline deadline(patience);
  constexpr std::uint32_t objects = 1'100;  // 64 KiB each: more than the 64 MiB that a server keeps
  constexpr std::uint32_t small = 10'000;   // that come before them
  put_many("few", small, "");
  put_many("large", objects, std::string(max_metadata_bytes, 'm'));
  fb::ObjectsClient client(channel(0, "read"));
  auto next = request(1, true);
  next.existing = true;
  std::uint64_t lost = 0, taken = 0;
  while (lost + taken < objects + small) {
    const auto reply = client.start_subscribe(next, rpc::CallOptions{base::Deadline(patience)}).get(deadline);
    ASSERT_FALSE(reply.events.empty());
    EXPECT_LE(reply.events.size(), 130u);  // 8 MiB
    lost += reply.lost;
    taken += reply.events.size();
    next = request(1, false);
  }
  EXPECT_GT(lost, small + 70);
  EXPECT_GT(taken, 1'000u);
  EXPECT_EQ(lost + taken, objects + small);
}

}  // namespace
}  // namespace penstock::pool
