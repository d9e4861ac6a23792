// A program's calls recorded, and done again on a real server: every verb, with the same outcomes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <latch>
#include <set>
#include <thread>

#include "base/test_support.hpp"
#include "penstock/stream.hpp"
#include "penstock/trace.hpp"
#include "pool/replay.hpp"
#include "pool/replay_pool_test_support.hpp"

namespace penstock {
namespace {

class ReplayOnAPool : public OnePoolServer {
 protected:
  std::string trace() const { return folder / "one.trace"; }
};

template <class Call>
void fails_with(Errc code, Call call) {
  try {
    call();
    ADD_FAILURE() << "did not fail with " << name_of(code);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
  }
}

void write_objects(Pool& pool) {
  pool.put({"row", "a"}, bytes_of("hello"));
  fails_with(Errc::already_exists, [&] { pool.put({"row", "a"}, bytes_of("again")); });
  pool.put({"row", "a"}, bytes_of("newer"), {.if_exists = IfExists::overwrite, .tag = {}, .metadata = "text"});
  const std::string large(1 << 20, 'x');
  const std::vector<Pool::PutItem> items = {
      {{"row", "a"}, bytes_of("refused")}, {{"row", "b"}, bytes_of("")}, {{"row", "large"}, bytes_of(large)}};
  EXPECT_TRUE(pool.put(items)[2]);
  pool.put({"tagged", ""}, bytes_of("t"), {.tag = 7, .metadata = {}});
  pool.start_put({"row", "later"}, bytes_of("pending")).get();
}

void read_objects(Pool& pool) {
  EXPECT_EQ(pool.get({"row", "a"}).text(), "newer");
  EXPECT_EQ(pool.get({"tagged", ""}, {.version = {}, .tag = 7}).text(), "t");
  GetOptions part;
  part.offset = 2, part.bytes = 2;
  EXPECT_EQ(pool.get({"row", "a"}, part).text(), "we");
  fails_with(Errc::not_found, [&] { pool.get({"row", "none"}); });
  const std::vector<Key> keys = {{"row", "a"}, {"row", "none"}, {"row", "large"}};
  EXPECT_FALSE(pool.get(keys)[1]);
  std::vector<std::byte> memory(16);
  EXPECT_EQ(pool.get_into({"row", "later"}, memory), 7u);
  EXPECT_EQ(pool.need({"row", "a"}).text(), "newer");
  GetOptions soon;
  soon.timeout = Timeout(50);
  fails_with(Errc::timeout, [&] { pool.need({"row", "none"}, soon); });
  EXPECT_EQ(pool.info({"row", "large"}).bytes, 1u << 20);
  EXPECT_TRUE(pool.info(keys)[0]);
  EXPECT_EQ(pool.list({"row", "*"}).objects.size(), 4u);
  EXPECT_EQ(pool.wait_row("row", 2).size(), 4u);
  pool.status();
}

void wait_and_drop(Pool& pool) {
  std::latch wanted(1);
  std::jthread other([&] {
    wanted.wait();
    pool.put({"late", "one"}, bytes_of("here"));
  });
  auto pending = pool.want({"late", "one"});
  wanted.count_down();
  EXPECT_EQ(pending.get(patience).text(), "here");
  const auto subscription = pool.subscribe(
      {"row", "*"}, [](const ObjectEvent&) {}, true);
  fails_with(Errc::not_found, [&] {
    const std::vector<Key> keys = {{"row", "a"}};
    pool.compute("no such function", keys);
  });
  EXPECT_TRUE(pool.drop({"row", "a"}));
  const std::vector<Key> keys = {{"row", "a"}, {"row", "b"}};
  EXPECT_TRUE(pool.drop(keys)[1]);
  EXPECT_EQ(pool.drop_matching({"row", "*"}), 2u);
  fails_with(Errc::not_found, [&] { pool.get({"row", "large"}); });
}

TEST_F(ReplayOnAPool, EveryVerbWithTheSameOutcome) {
  const Context ctx = new_context();
  {
    PoolOptions options;
    options.pool = "stage";
    options.ns = "recorded";
    options.trace = trace();
    Pool pool(ctx, options);
    write_objects(pool);
    read_objects(pool);
    wait_and_drop(pool);
  }
  const pool::Timeline timeline = pool::merge(pool::read_traces(trace()));
  std::set<pool::Verb> verbs;
  for (const auto& item : timeline.items) verbs.insert(timeline.record(item).verb);
  EXPECT_EQ(verbs.size(), static_cast<std::size_t>(pool::Verb::write_open));  // those before are of objects

  for (const double factor : {0.0, 4.0}) {
    PoolOptions options;
    options.pool = "stage";
    const auto target = pool::make_pool_target(ctx, options);
    const auto report = pool::replay(timeline, pool::plan_replay(timeline, {factor}), *target, patience);
    EXPECT_FALSE(report.stopped);
    EXPECT_EQ(report.same, timeline.items.size()) << describe(timeline, report);
    options.ns = pool::replay_namespace(Namespace::named("recorded"));
    Pool cleaner(ctx, options);
    cleaner.drop_matching({});
    cleaner.drop({"tagged", ""}, {.version = {}, .tag = 7});
  }
  std::ofstream out(folder / "chrome.json");
  pool::write_chrome_trace(timeline, out);
  EXPECT_TRUE(out.good());
}

// What users have: copies at once, objects that were there before, and nothing left behind.
TEST_F(ReplayOnAPool, CopiesAtOnce) {
  const Context ctx = new_context();
  PoolOptions options;
  options.pool = "stage";
  options.ns = "recorded";
  options.trace = "off";
  Pool before(ctx, options);
  before.put({"old", "a"}, bytes_of("there before"));
  before.put({"old", "tagged"}, bytes_of("t"), {.tag = 3, .metadata = {}});
  options.trace = folder / "traces";
  {
    Pool pool(ctx, options);
    pool.get({"old", "a"});
    pool.get({"old", "tagged"}, {.version = {}, .tag = 3});
    fails_with(Errc::already_exists, [&] { pool.put({"old", "a"}, bytes_of("again")); });
    pool.put({"new", "b"}, bytes_of("b"));
    pool.drop({"old", "a"});
    fails_with(Errc::not_found, [&] { pool.get({"old", "a"}); });
  }
  const auto recording = Recording::read({options.trace});
  EXPECT_EQ(recording.operations(), 6u);
  EXPECT_THAT(recording.summary(), testing::HasSubstr("\"already_exists\":1"));
  EXPECT_EQ(std::ranges::count(recording.lines(2, 3), '\n'), 3);
  const auto objects = before.status().servers.at(0).objects;
  for (const std::uint32_t clients : {1u, 5u}) {
    ReplayOptions how;
    how.speed = 0;
    how.clients = clients;
    Replay replay(ctx, recording, how);
    ASSERT_TRUE(replay.wait(patience));
    EXPECT_EQ(replay.progress(), std::pair(std::uint64_t{6 * clients}, std::uint64_t{6 * clients}));
    EXPECT_THAT(replay.report(), testing::HasSubstr("\"different\":0,"));
    EXPECT_THAT(replay.report(), testing::HasSubstr("\"prepared_objects\":2,"));
  }
  EXPECT_EQ(before.status().servers.at(0).objects, objects);
  ReplayOptions none;
  none.clients = 0;
  EXPECT_THROW(Replay(ctx, recording, none), Error);
}

}  // namespace
}  // namespace penstock
