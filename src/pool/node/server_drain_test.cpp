// Draining a server by an administrator: two real servers in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include "base/test_support.hpp"
#include "penstock/stream.hpp"
#include "pool/node/server.hpp"

namespace penstock::pool {
namespace {

using namespace std::chrono_literals;
using State = ServerCore::DrainState;

constexpr Timeout drain_patience(60'000);
constexpr std::uint64_t memory = 32 << 20;

class DrainTest : public testing::Test {
 protected:
  struct Running {
    std::shared_ptr<fabric::Progress> progress = fabric::Progress::create();
    std::unique_ptr<PoolServer> server;
  };

  void start(std::uint32_t count, std::uint64_t rebalance_bytes_per_s = std::uint64_t{512} << 20) {
    for (std::uint32_t i = 0; i < count; ++i) {
      PoolServerOptions o;
      o.server.pool = "stage";
      o.server.id = 100 + i;
      o.server.name = "server-" + std::to_string(i);
      o.server.listen = "127.0.0.1";
      o.server.servers = count;
      o.server.rebalance_bytes_per_s = rebalance_bytes_per_s;
      o.server.store.memory_bytes = memory;
      o.directory = i == 0 ? "embedded" : "registered";
      o.registration_directory = folder.path();
      servers.emplace_back();
      servers.back().server = std::make_unique<PoolServer>(servers.back().progress, o);
    }
    auto first = std::async(std::launch::async, [&] { servers[0].server->start(drain_patience); });
    while (!std::filesystem::exists(folder / "directory.json") && first.wait_for(0s) != std::future_status::ready)
      std::this_thread::yield();
    for (std::uint32_t i = 1; i < count; ++i) servers[i].server->start(drain_patience);
    first.get();
    ContextOptions c;
    c.directory = folder.path();
    context.emplace(c);
    PoolOptions p;
    p.pool = "stage";
    pool.emplace(*context, p);
    settle();
  }
  void TearDown() override {
    pool.reset();
    context.reset();
    while (!servers.empty()) {  // the directory goes last
      servers.back().server->stop(Timeout(5000));
      servers.pop_back();
    }
  }

  void wait_for(const std::function<bool()>& what) {
    const base::Deadline deadline(drain_patience);
    while (!what() && !deadline.passed()) std::this_thread::yield();
    ASSERT_TRUE(what());
  }
  void settle() {
    wait_for([&] { return pool->status().settled; });
  }
  ServerCore& core(std::size_t i) { return servers[i].server->core(); }
  void begin_drain(std::size_t i) {
    servers[i].progress->call([&] { core(i).begin_drain([this] { left = true; }); });
  }
  ServerCore::DrainStatus drain(std::size_t i) {
    ServerCore::DrainStatus status;
    servers[i].progress->call([&] { status = core(i).drain_status(); });
    return status;
  }
  std::uint64_t held(std::size_t i) {
    std::uint64_t objects = 0;
    servers[i].progress->call([&] { objects = core(i).store().table().size(); });
    return objects;
  }
  std::vector<Key> put(int count, std::size_t bytes) {
    std::vector<Key> keys;
    for (int n = 0; n < count; ++n) {
      keys.push_back({"row " + std::to_string(n), "x"});
      pool->put(keys.back(), bytes_of(text_of(n, bytes)));
    }
    return keys;
  }
  static std::string text_of(std::size_t n, std::size_t bytes) {
    return std::string(bytes, static_cast<char>('a' + n % 26));
  }
  std::size_t readable(const std::vector<Key>& keys, std::size_t bytes) {
    std::size_t count = 0;
    const auto found = pool->get(keys);
    for (std::size_t n = 0; n < keys.size(); ++n) count += found[n] && found[n].value->text() == text_of(n, bytes);
    return count;
  }
  std::vector<std::string> states() {
    std::vector<std::string> all;
    for (const auto& server : pool->status().servers) all.push_back(server.state);
    return all;
  }

  TestFolder folder;
  std::vector<Running> servers;
  std::optional<Context> context;
  std::optional<Pool> pool;
  std::atomic<bool> left = false;
};

TEST_F(DrainTest, HandsEveryObjectOnAndLeaves) {
  start(2);
  const auto keys = put(2500, 20);
  const auto before = held(1);
  ASSERT_GT(before, 500u);
  begin_drain(1);
  EXPECT_EQ(drain(1).left.objects, before);
  begin_drain(1);  // it is in progress
  wait_for([&] { return left.load(); });
  EXPECT_EQ(drain(1).state, State::left);
  EXPECT_EQ(drain(1).left.objects, 0u);
  wait_for([&] { return states().size() == 1; });
  servers[1].server->stop(Timeout(0));
  EXPECT_EQ(readable(keys, 20), keys.size());
}

TEST_F(DrainTest, TheOnlyActiveServerIsNotDrained) {
  start(1);
  const auto keys = put(10, 20);
  std::string why;
  try {
    begin_drain(0);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::wrong_state);
    why = error.what();
  }
  EXPECT_THAT(why, testing::HasSubstr("the only active server of pool stage: nobody can take over its 10 objects"));
  EXPECT_EQ(drain(0).state, State::none);
  EXPECT_EQ(readable(keys, 20), keys.size());
}

TEST_F(DrainTest, FailsWithoutRoomAndLosesNothing) {
  start(2);
  constexpr std::size_t bytes = 2 << 20;
  const auto keys = put(20, bytes);
  const auto before = held(1);
  ASSERT_GT(before, 3u);
  ASSERT_LT(before, 17u);
  begin_drain(1);
  wait_for([&] { return drain(1).state == State::failed; });
  const auto status = drain(1);
  EXPECT_THAT(status.why, testing::AllOf(testing::HasSubstr("server server-0"), testing::HasSubstr("no room for")));
  // The memory of one server has room for 16 objects at most.
  EXPECT_GE(status.left.objects, 4u);
  EXPECT_LT(status.left.objects, before + 1);
  EXPECT_EQ(status.left.bytes, status.left.objects * bytes);
  settle();
  EXPECT_THAT(states(), testing::ElementsAre("active", "active"));
  EXPECT_EQ(readable(keys, bytes), keys.size());
  EXPECT_EQ(held(1), before);
  EXPECT_FALSE(left);
}

TEST_F(DrainTest, OneThatIsCancelledLosesNothing) {
  start(2, 1 << 20);
  constexpr std::size_t bytes = 100'000;
  const auto keys = put(200, bytes);  // to hand on half of them takes ten seconds
  const auto before = held(1);
  begin_drain(1);
  wait_for([&] { return drain(1).left.objects < before; });
  servers[1].progress->call([&] { core(1).cancel_drain("enough"); });
  EXPECT_EQ(drain(1).state, State::failed);
  EXPECT_EQ(drain(1).why, "enough");
  EXPECT_EQ(code_of([&] { servers[1].progress->call([&] { core(1).cancel_drain("again"); }); }), Errc::wrong_state);
  settle();
  EXPECT_THAT(states(), testing::ElementsAre("active", "active"));
  EXPECT_EQ(held(1), before);
  EXPECT_EQ(readable(keys, bytes), keys.size());
}

// Both are asked at once: one hands on to the other.
TEST_F(DrainTest, OfTwoOneStays) {
  start(2, 1 << 20);
  constexpr std::size_t bytes = 20'000;
  const auto keys = put(200, bytes);
  begin_drain(0);
  begin_drain(1);
  const auto over = [&](std::size_t i) { return drain(i).state == State::left || drain(i).state == State::failed; };
  wait_for([&] { return over(0) && over(1); });
  EXPECT_NE(drain(0).state, drain(1).state);
  wait_for([&] { return states() == std::vector<std::string>{"active"}; });
  EXPECT_EQ(readable(keys, bytes), keys.size());
}

}  // namespace
}  // namespace penstock::pool
