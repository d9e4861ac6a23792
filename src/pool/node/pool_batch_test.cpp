// Batches through penstock::Pool and one real server in this process: keys named twice, keys that are there, more than the
// memory, sizes of every kind, and who is told. In memory (the short way) and with a disk (the long one).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "base/test_support.hpp"
#include "penstock/pool.hpp"
#include "penstock/stream.hpp"
#include "pool/node/server.hpp"

namespace penstock {
namespace {

// What came of each item: its version, or the name of what went wrong.
std::vector<std::string> outcomes(const std::vector<Result<std::uint64_t>>& results) {
  std::vector<std::string> texts;
  for (const auto& result : results)
    texts.push_back(result ? std::to_string(*result.value) : std::string(name_of(result.code)));
  return texts;
}

struct Where {
  const char* name;
  bool disk;
  Acknowledge acknowledge;
};

class PoolBatch : public testing::TestWithParam<Where> {
 protected:
  void start(std::uint64_t memory_bytes) {
    pool::PoolServerOptions options;
    options.server.pool = "stage";
    options.server.id = 1;
    options.server.listen = "127.0.0.1";
    options.server.store.memory_bytes = memory_bytes;
    options.registration_directory = folder_.path();
    if (GetParam().disk) {
      storage::TierOptions tier;
      tier.path = folder_ / "tier";
      const auto kinds = storage::tier_kinds();
      if (std::ranges::find(kinds, "disk") == kinds.end()) tier.kind = "files";
      options.server.store.tiers.push_back(tier);
    }
    progress_ = fabric::Progress::create();
    server_ = std::make_unique<pool::PoolServer>(progress_, std::move(options));
    server_->start(patience);
    ContextOptions context;
    context.directory = folder_.path();
    context_.emplace(context);
    PoolOptions client;
    client.pool = "stage";
    pool_.emplace(*context_, client);
  }
  void TearDown() override {
    pool_.reset();
    context_.reset();
    if (server_) server_->stop(Timeout(5000));
    server_.reset();
  }
  PutOptions options(IfExists if_exists = IfExists::refuse) const {
    PutOptions put;
    put.if_exists = if_exists;
    put.acknowledge = GetParam().acknowledge;
    return put;
  }

  TestFolder folder_;
  std::shared_ptr<fabric::Progress> progress_;
  std::unique_ptr<pool::PoolServer> server_;
  std::optional<Context> context_;
  std::optional<Pool> pool_;
};

TEST_P(PoolBatch, KeysThatAreThereOrTwiceInIt) {
  start(64 << 20);
  using Items = std::vector<Pool::PutItem>;
  pool_->put({"row", "b"}, bytes_of("old"), options());
  const Items items{{{"row", "a"}, bytes_of("1")},
                    {{"row", "b"}, bytes_of("2")},
                    {{"row", "a"}, bytes_of("3")},
                    {{"other", ""}, bytes_of("4")}};
  using Texts = std::vector<std::string>;
  EXPECT_EQ(outcomes(pool_->put(items, options())), (Texts{"1", "already_exists", "already_exists", "1"}));
  EXPECT_EQ(pool_->get({"row", "a"}).text(), "1");
  EXPECT_EQ(pool_->get({"row", "b"}).text(), "old");
  EXPECT_EQ(outcomes(pool_->put(items, options(IfExists::overwrite))), (Texts{"2", "2", "3", "2"}));
  EXPECT_EQ(pool_->get({"row", "a"}).text(), "3");
  EXPECT_EQ(outcomes(pool_->put(items, options(IfExists::add_version))), (Texts{"4", "3", "5", "3"}));
  GetOptions fourth;
  fourth.version = 4;
  EXPECT_EQ(pool_->get({"row", "a"}, fourth).text(), "1");
  EXPECT_EQ(pool_->get({"row", "a"}).text(), "3");
  EXPECT_TRUE(pool_->put(Items{}, options()).empty());
  EXPECT_EQ(pool_->list({}).objects.size(), 3u);
}

TEST_P(PoolBatch, ObjectsOfAllSizesComeBack) {
  start(64 << 20);
  std::mt19937_64 random(11);
  // Small in the message, small by bulk (more than a message takes), and with pages of their own.
  for (const auto& [count, most] : std::map<std::size_t, std::size_t>{{12'000, 200}, {300, 1000}, {40, 100'000}}) {
    const std::string row = "of " + std::to_string(most);
    std::vector<std::vector<std::byte>> values(count);
    std::vector<Pool::PutItem> items;
    std::vector<Key> keys;
    for (std::size_t i = 0; i < count; ++i) {
      values[i].resize(random() % (most + 1));
      for (auto& b : values[i]) b = static_cast<std::byte>(random());
      keys.push_back({row, std::to_string(random() % 10) + "/" + std::to_string(i)});
      items.push_back({keys.back(), values[i]});
    }
    for (const auto& result : pool_->put(items, options())) ASSERT_TRUE(result) << result.message;
    keys.push_back({row, "none"});
    const auto results = pool_->get(keys);
    ASSERT_EQ(results.size(), keys.size());
    EXPECT_EQ(results.back().code, Errc::not_found);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(results[i]) << results[i].message;
      EXPECT_EQ(results[i].value->info.key, keys[i]);
      ASSERT_TRUE(std::ranges::equal(results[i].value->bytes(), values[i])) << i;
    }
  }
  const auto status = pool_->status();
  EXPECT_EQ(status.servers.at(0).puts, 12'340u);
}

// With a disk, earlier objects make room for later ones; without, what does not fit is refused, and only that.
TEST_P(PoolBatch, MoreThanTheMemory) {
  start(8 << 20);
  const std::vector<std::byte> value(50'000, std::byte{7});
  std::vector<Pool::PutItem> items;
  for (int i = 0; i < 400; ++i) items.push_back({{"row", std::to_string(i)}, value});
  auto put = options();
  put.timeout = GetParam().disk ? patience : Timeout(1000);
  auto results = pool_->put(items, put);
  // A machine that stood still for a moment answers too late; asked again, it says what is there.
  const base::Deadline deadline(patience);
  bool again = false;
  const auto late = [](const auto& result) { return result.code == Errc::timeout; };
  for (; std::ranges::any_of(results, late) && !deadline.passed(); again = true) results = pool_->put(items, put);
  std::size_t there = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (results[i] || (again && results[i].code == Errc::already_exists)) ++there;
    else EXPECT_EQ(results[i].code, Errc::pool_full) << results[i].message;
  }
  if (GetParam().disk) EXPECT_EQ(there, items.size());
  else EXPECT_GT(there, 50u);
  EXPECT_EQ(pool_->list({}).objects.size(), there);
  EXPECT_LE(pool_->status().servers.at(0).memory_bytes, std::uint64_t{8} << 20);
  EXPECT_EQ(pool_->get({"row", "0"}).bytes().size(), value.size());
}

TEST_P(PoolBatch, WaitersAndSubscribersAreTold) {
  start(64 << 20);
  auto wanted = pool_->want({"row", "7"});
  std::atomic<int> events = 0;
  const auto subscription = pool_->subscribe({"row", "*"}, [&](const ObjectEvent&) { ++events; });
  std::vector<Pool::PutItem> items;
  for (int i = 0; i < 100; ++i) items.push_back({{i % 2 == 0 ? "other" : "row", std::to_string(i)}, bytes_of("x")});
  for (const auto& result : pool_->put(items, options())) ASSERT_TRUE(result) << result.message;
  EXPECT_EQ(wanted.get(patience).text(), "x");
  EXPECT_EQ(pool_->wait_row("row", 50).size(), 50u);
  const auto end = std::chrono::steady_clock::now() + patience;
  while (events < 50 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(events, 50);
}

INSTANTIATE_TEST_SUITE_P(Levels, PoolBatch,
                         testing::Values(Where{"memory", false, Acknowledge::memory},
                                         Where{"behind", true, Acknowledge::memory},
                                         Where{"durable", true, Acknowledge::durable}),
                         [](const auto& at) { return std::string(at.param.name); });

}  // namespace
}  // namespace penstock
