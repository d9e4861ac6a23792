// A pool of real servers in this process (each with its own engine, sockets and store), used through penstock::Pool.
#include "penstock/pool.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <latch>
#include <random>
#include <thread>

#include "base/test_support.hpp"
#include "penstock/stream.hpp"
#include "pool/node/pool_test_support.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

TEST_F(PoolTest, PutsGetsListsAndDrops) {
  start(2);
  auto ctx = context();
  Pool pool(ctx, client());
  EXPECT_EQ(pool.put({"row", "a"}, bytes_of("hello")), 1u);
  EXPECT_EQ(pool.get({"row", "a"}).text(), "hello");
  EXPECT_EQ(code_of([&] { pool.put({"row", "a"}, bytes_of("again")); }), Errc::already_exists);
  PutOptions overwrite;
  overwrite.if_exists = IfExists::overwrite;
  EXPECT_EQ(pool.put({"row", "a"}, bytes_of("again"), overwrite), 2u);
  EXPECT_EQ(pool.get({"row", "a"}).text(), "again");
  EXPECT_EQ(code_of([&] { pool.get({"row", "none"}); }), Errc::not_found);
  for (int i = 0; i < 50; ++i) pool.put({"many", "column " + std::to_string(i)}, bytes_of("x"));
  for (int i = 0; i < 50; ++i) pool.put({"other " + std::to_string(i), ""}, bytes_of("y"));
  EXPECT_EQ(pool.list({"many", "*"}).objects.size(), 50u);
  EXPECT_EQ(pool.list({"other 1*", "*"}).objects.size(), 11u);
  std::vector<ObjectInfo> paged;
  std::string next;
  do {
    auto page = pool.list({}, 7, next);
    EXPECT_LE(page.objects.size(), 7u);
    paged.insert(paged.end(), page.objects.begin(), page.objects.end());
    next = page.next;
  } while (!next.empty());
  EXPECT_EQ(paged.size(), 101u);
  EXPECT_TRUE(std::is_sorted(paged.begin(), paged.end(),
                             [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; }));
  EXPECT_TRUE(pool.drop({"row", "a"}));
  EXPECT_FALSE(pool.drop({"row", "a"}));
  EXPECT_EQ(pool.drop_matching({"other*", "*"}), 50u);
  EXPECT_EQ(pool.list({}).objects.size(), 50u);
}

TEST_F(PoolTest, LargeObjectsComeBackAsTheyWere) {
  start(2);
  auto ctx = context();
  Pool pool(ctx, client());
  std::mt19937_64 random(7);
  for (const std::size_t size : {0ul, 1ul, 32'767ul, 32'768ul, 600'000ul, 5'000'000ul, 70'000'000ul}) {
    std::vector<std::uint64_t> words(size / 8 + 1);
    for (auto& w : words) w = random();
    const auto bytes = std::as_bytes(std::span(words)).first(size);
    const Key key{"large " + std::to_string(size), ""};
    pool.put(key, bytes);
    const auto object = pool.get(key);
    ASSERT_EQ(object.bytes().size(), size);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), object.bytes().begin())) << size;
    if (size > 100) {
      GetOptions part;
      part.offset = 10;
      part.bytes = 50;
      const auto some = pool.get(key, part);
      EXPECT_TRUE(std::equal(some.bytes().begin(), some.bytes().end(), bytes.begin() + 10));
      EXPECT_EQ(some.bytes().size(), 50u);
    }
  }
}

TEST_F(PoolTest, WaitersGetWhatComesLater) {
  start(2);
  auto ctx = context();
  Pool pool(ctx, client());
  auto first = pool.want({"later", "x"});
  auto second = pool.want({"later", "x"});
  std::promise<Result<Object>> called;
  pool.want({"later", "x"}, [&](Result<Object> result) { called.set_value(std::move(result)); });
  EXPECT_FALSE(pool.drop({"later", "x"}));
  pool.put({"later", "x"}, bytes_of("here"));
  EXPECT_EQ(first.get(patience).text(), "here");
  EXPECT_EQ(second.get(patience).text(), "here");
  EXPECT_EQ(called.get_future().get().value->text(), "here");
  GetOptions soon;
  soon.timeout = Timeout(300);
  EXPECT_EQ(code_of([&] { pool.need({"never", ""}, soon); }), Errc::timeout);
  std::vector<Key> keys{{"later", "x"}, {"never", ""}};
  auto results = pool.need(keys, soon);
  // A machine that stands still for a moment answers too late.
  for (const base::Deadline deadline(patience); !results[0] && !deadline.passed();) results = pool.need(keys, soon);
  ASSERT_TRUE(results[0]) << results[0].message;
  EXPECT_EQ(results[0].value->text(), "here");
  EXPECT_EQ(results[1].code, Errc::timeout);
}

TEST_F(PoolTest, RacingPutsOfOneKeyHaveOneWinner) {
  start(2, 2);
  auto ctx = context();
  Pool pool(ctx, client());
  for (int round = 0; round < 20; ++round) {
    const Key key{"race", std::to_string(round)};
    std::atomic<int> won{0}, refused{0};
    std::latch go(4);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        go.arrive_and_wait();
        const auto code = code_of([&] { pool.put(key, bytes_of(std::string(1, static_cast<char>('a' + t)))); });
        won += code == Errc::ok;
        refused += code == Errc::already_exists;
      });
    for (auto& t : threads) t.join();
    EXPECT_EQ(won, 1);
    EXPECT_EQ(refused, 3);
  }
}

TEST_F(PoolTest, BatchesRowsAndSubscriptions) {
  start(3, 2);
  auto ctx = context();
  Pool pool(ctx, client());
  std::mutex mutex;
  std::vector<std::string> seen;
  std::condition_variable more;
  auto subscription = pool.subscribe(
      Pattern{"b *", "*"},
      [&](const ObjectEvent& event) {
        std::lock_guard lock(mutex);
        seen.push_back((event.what == ObjectEvent::What::put ? "+" : "-") + event.info.key.row);
        more.notify_all();
      },
      true);
  std::vector<std::string> values;
  std::vector<Key> keys;
  for (int i = 0; i < 500; ++i) {
    values.push_back("value " + std::to_string(i));
    keys.push_back({"b " + std::to_string(i), "c"});
  }
  std::vector<Pool::PutItem> items;
  for (int i = 0; i < 500; ++i)
    items.push_back({keys[static_cast<std::size_t>(i)], bytes_of(values[static_cast<std::size_t>(i)])});
  PutOptions replicated;
  replicated.acknowledge = Acknowledge::replicated;
  for (const auto& r : pool.put(items, replicated)) EXPECT_EQ(r.value, 1u) << r.message;
  const auto got = pool.get(keys);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    ASSERT_TRUE(got[i]) << got[i].message;
    EXPECT_EQ(got[i].value->text(), values[i]);
  }
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(more.wait_for(lock, 30s, [&] { return seen.size() >= 500; })) << seen.size();
  }
  auto waiting = std::async(std::launch::async, [&] { return pool.wait_row("row", 3, "c*"); });
  pool.put({"row", "c1"}, bytes_of("1"));
  pool.put({"row", "d"}, bytes_of("1"));
  pool.put({"row", "c2"}, bytes_of("1"));
  pool.put({"row", "c3"}, bytes_of("1"));
  EXPECT_EQ(waiting.get().size(), 3u);
  const auto infos = pool.info(keys);
  EXPECT_EQ(infos[3].value->bytes, 7u);
  for (const auto& dropped : pool.drop(keys)) EXPECT_TRUE(dropped.value.value_or(false)) << dropped.message;
  EXPECT_EQ(pool.status().servers.size(), 3u);
}

TEST_F(PoolTest, AServerThatStopsLosesNothingThatWasReplicated) {
  start(3, 2);
  auto ctx = context();
  Pool pool(ctx, client());
  PutOptions replicated;
  replicated.acknowledge = Acknowledge::replicated;
  for (int i = 0; i < 200; ++i) pool.put({"k " + std::to_string(i), ""}, bytes_of(std::to_string(i)), replicated);
  servers[2].server->stop(Timeout(0));
  servers.pop_back();
  for (int i = 0; i < 200; ++i) EXPECT_EQ(pool.get({"k " + std::to_string(i), ""}).text(), std::to_string(i));
  for (int i = 200; i < 300; ++i) pool.put({"k " + std::to_string(i), ""}, bytes_of(std::to_string(i)), replicated);
  for (int i = 0; i < 300; ++i) EXPECT_EQ(pool.get({"k " + std::to_string(i), ""}).text(), std::to_string(i));
}

TEST_F(PoolTest, ServersJoinAndDrainWhileObjectsComeAndGo) {
  start(2, 1);
  auto ctx = context();
  Pool pool(ctx, client());
  for (int i = 0; i < 500; ++i) pool.put({"k " + std::to_string(i), ""}, bytes_of(std::to_string(i)));
  add(options(2, 1, 1));
  std::atomic<bool> stop{false};
  std::atomic<int> put{500};
  std::thread writer([&] {
    while (!stop) {
      const int i = put;
      pool.put({"k " + std::to_string(i), ""}, bytes_of(std::to_string(i)));
      ++put;
    }
  });
  servers[2].server->start(patience);
  servers[1].server->drain(patience);
  servers.erase(servers.begin() + 1);
  stop = true;
  writer.join();
  for (int i = 0; i < put; ++i)
    ASSERT_EQ(code_of([&] {
                EXPECT_EQ(pool.get({"k " + std::to_string(i), ""}).text(), std::to_string(i));
              }),
              Errc::ok)
        << i;
  std::size_t listed = 0;  // a fast machine puts more than one listing gives
  std::string next;
  do {
    const auto part = pool.list({"k *", "*"}, 10'000, next);
    listed += part.objects.size();
    next = part.next;
  } while (!next.empty());
  EXPECT_EQ(listed, static_cast<std::size_t>(put));
}

// The first object's file is made one that holds up whoever reads it: those behind it are read meanwhile.
TEST_F(PoolTest, ABatchOfObjectsOnDiskIsReadSideBySide) {
  auto with_disk = options(0, 1, 1);
  storage::TierOptions tier;
  tier.path = folder / "tier";
  with_disk.server.store.tiers.push_back(tier);
  add(with_disk);
  start_one(servers[0]);
  constexpr std::size_t first_bytes = 100 << 10, other_bytes = 200 << 10, others = 5;
  const std::string first(first_bytes, 'a'), other(other_bytes, 'b');
  std::vector<Key> keys{{"row", "0"}};
  {
    auto ctx = context();
    Pool pool(ctx, client());
    PutOptions durable;
    durable.acknowledge = Acknowledge::durable;
    pool.put(keys[0], bytes_of(first), durable);
    for (std::size_t i = 1; i <= others; ++i) {
      keys.push_back({"row", std::to_string(i)});
      pool.put(keys[i], bytes_of(other), durable);
    }
  }
  servers[0].server->stop(Timeout(5000));
  servers.clear();
  std::string file;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(tier.path + "/objects"))
    if (entry.is_regular_file() && entry.file_size() >= first_bytes && entry.file_size() < other_bytes)
      file = entry.path();
  ASSERT_NE(file, "");
  std::filesystem::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  add(with_disk);
  start_one(servers[0]);

  auto ctx = context();
  Pool pool(ctx, client());
  auto getting = std::async(std::launch::async, [&] { return pool.get(keys); });
  std::uint64_t read = 0;
  const base::Deadline deadline(patience);
  while (read < others * other_bytes && !deadline.passed())
    servers[0].progress->call([&] { read = servers[0].server->core().store().statistics().tiers[0].read_bytes; });
  EXPECT_EQ(read, others * other_bytes);
  EXPECT_FALSE(getting.wait_for(0s) == std::future_status::ready);
  ::close(::open(file.c_str(), O_WRONLY | O_CLOEXEC));  // lets the reader go on, to an error
  const auto got = getting.get();
  EXPECT_FALSE(got[0]);
  for (std::size_t i = 1; i <= others; ++i) {
    ASSERT_TRUE(got[i]) << got[i].message;
    EXPECT_EQ(got[i].value->text(), other);
  }
}

TEST_F(PoolTest, ABatchThatNamesAKeyTwicePutsOneAfterTheOther) {
  start(2, 2);
  auto ctx = context();
  Pool pool(ctx, client());
  const std::vector<Pool::PutItem> items{{{"row", "a"}, bytes_of("first")}, {{"row", "a"}, bytes_of("second")}};
  const auto refused = pool.put(items);
  EXPECT_EQ(refused[0].value, 1u);
  EXPECT_EQ(refused[1].code, Errc::already_exists);
  EXPECT_EQ(pool.get({"row", "a"}).text(), "first");
  PutOptions overwrite;
  overwrite.if_exists = IfExists::overwrite;
  const auto both = pool.put(items, overwrite);
  EXPECT_EQ(both[0].value, 2u);
  EXPECT_EQ(both[1].value, 3u);
  EXPECT_EQ(pool.get({"row", "a"}).text(), "second");
}

TEST_F(PoolTest, WhatOutlivesThePoolEnds) {
  start(1);
  auto ctx = context();
  auto pool = std::make_unique<Pool>(ctx, client());
  auto subscription = pool->subscribe({"*", "*"}, [](const ObjectEvent&) {});
  auto wanted = pool->want({"never", "there"});
  pool.reset();
  EXPECT_NE(code_of([&] { wanted.get(Timeout(5000)); }), Errc::timeout);
  subscription.reset();
  // The engine still does what it is asked to.
  Pool other(ctx, client());
  EXPECT_EQ(other.put({"row", "a"}, bytes_of("x")), 1u);
}

TEST_F(PoolTest, CallbacksOfAWantAreCalledBeforeThePoolIsGone) {
  start(1);
  auto ctx = context();
  std::atomic<int> called{0}, closed{0}, late{0};
  std::atomic<bool> gone{false};
  const auto want_many = [&](Pool& pool) {
    for (int i = 0; i < 100; ++i)
      pool.want({"never", std::to_string(i)}, [&](Result<Object> result) {
        const bool first = called++ == 0;
        closed += result.code == Errc::wrong_state && result.message == "the pool is closed";
        late += gone;
        if (first) throw std::runtime_error("a callback's own affair");
      });
  };
  // A call of another pool: the engine has done what it was asked to before.
  const auto let_the_engine_go_on = [&] { Pool(ctx, client()).put({"row", std::to_string(called)}, bytes_of("x")); };
  {
    Pool pool(ctx, client());
    want_many(pool);
  }
  gone = true;
  let_the_engine_go_on();
  EXPECT_EQ(called, 100);
  EXPECT_EQ(closed, 100);
  EXPECT_EQ(late, 0);

  gone = false;
  Pool pool(ctx, client());
  want_many(pool);
  pool = Pool(ctx, client());
  gone = true;
  let_the_engine_go_on();
  EXPECT_EQ(called, 200);
  EXPECT_EQ(late, 0);
  EXPECT_EQ(pool.get({"row", "100"}).text(), "x");
}

TEST_F(PoolTest, ACallbackOfAWantMayDestroyThePool) {
  start(1);
  auto ctx = context();
  auto pool = std::make_unique<Pool>(ctx, client());
  int others = 0;
  std::promise<int> ended;
  pool->want({"never", ""}, [&](Result<Object> result) { others += result.code == Errc::wrong_state; });
  pool->want({"later", ""}, [&](Result<Object> result) {
    EXPECT_EQ(result.code, Errc::ok);
    pool.reset();
    ended.set_value(others);
  });
  Pool(ctx, client()).put({"later", ""}, bytes_of("x"));
  EXPECT_EQ(ended.get_future().get(), 1);
}

TEST_F(PoolTest, ARowOfMoreObjectsThanACallHoldsIsRefused) {
  start(1);
  auto ctx = context();
  Pool pool(ctx, client());
  EXPECT_EQ(code_of([&] { pool.wait_row("row", std::size_t{1} << 32); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { pool.wait_row("row", (std::size_t{1} << 32) - 1, "*", Timeout(1)); }), Errc::timeout);
}

TEST_F(PoolTest, RolesDoWhatTheyMay) {
  start(1);
  auto ctx = context();
  Pool admin(ctx, client());
  admin.put({"a", "b"}, bytes_of("x"));
  Pool reader(ctx, client("read"));
  EXPECT_EQ(reader.get({"a", "b"}).text(), "x");
  EXPECT_EQ(code_of([&] { reader.put({"c", ""}, bytes_of("y")); }), Errc::forbidden);
  EXPECT_EQ(code_of([&] { reader.drop({"a", "b"}); }), Errc::forbidden);
  auto wrong = client("admin");
  wrong.token = servers[0].server->token("read").hex();
  wrong.timeout_ms = 2000;
  EXPECT_EQ(code_of([&] { Pool(ctx, wrong).get({"a", "b"}); }), Errc::authentication);
  auto nobody = client();
  nobody.pool = "stag";
  EXPECT_EQ(code_of([&] { Pool p(ctx, nobody); }), Errc::not_found);
}

}  // namespace
}  // namespace penstock
