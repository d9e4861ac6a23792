#include "pool/keys/placement.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <random>
#include <set>

#include "penstock/error.hpp"
#include "pool/keys/stream_keys.hpp"

namespace penstock::pool {
namespace {

constexpr std::size_t key_count = 100'000;

View servers(std::size_t count, std::uint64_t seed = 1, std::uint32_t replication = 1) {
  View view{.number = 1, .settled = true, .replication = replication, .members = {}};
  std::mt19937_64 engine(seed);
  std::set<std::uint64_t> ids;
  while (ids.size() < count) ids.insert(engine());
  for (const auto id : ids) view.members.push_back({.id = id, .name = "node", .endpoint = {}, .weight = 1});
  return view;
}

struct KeyPatternCase {
  const char* name;
  std::function<std::string(std::size_t)> row;
};
const KeyPatternCase cases[] = {
    {"rank/00001/T", [](std::size_t i) { return fmt::format("rank/{:05}/T", i); }},
    {"rank/1", [](std::size_t i) { return fmt::format("rank/{}", i); }},
    {"step/var/rank", [](std::size_t i) { return fmt::format("{}/{}/{}", i / 1000, "TUVW"[i / 250 % 4], i % 250); }},
    {"stripe/heat/step/rank/stripe",
     [](std::size_t i) { return fmt::format("stripe/heat/{:020}/{}/{}", i / 512, i / 4 % 128, i % 4); }},
    {"binary rank, 4 bytes",
     [](std::size_t i) {
       return std::string{static_cast<char>(i), static_cast<char>(i >> 8), static_cast<char>(i >> 16), '\0'};
     }},
};

double imbalance(const std::vector<std::size_t>& loads) {
  std::size_t sum = 0, most = 0;
  for (const auto load : loads) sum += load, most = std::max(most, load);
  return static_cast<double>(most) * static_cast<double>(loads.size()) / static_cast<double>(sum);
}

// What FAODEL places by: djb2 of bucket and row, mod N.
std::uint32_t djb2(std::string_view text) {
  std::uint32_t hash = 5381;
  for (const char c : text) hash = hash * 33 + static_cast<std::uint8_t>(c);
  return hash;
}

// Large steps that come every so many steps, small ones between: no server has much more of them than others. Of a stream that
// an earlier server placed, all steps lie alike.
TEST(Placement, StepsFillAllServers) {
  const auto base = tag_base_of("heat");
  for (std::uint64_t servers = 2; servers <= 8; ++servers) {
    for (std::uint64_t every = 1; every <= 32; ++every) {
      std::vector<std::size_t> loads(servers);
      for (std::uint64_t step = 0; step < 400 * every; step += every) ++loads[stripe_tag(base, step, 0, 0) % servers];
      EXPECT_LE(imbalance(loads), 1.5) << "every " << every << ". step on " << servers;
    }
  }
  EXPECT_EQ(stripe_tag(base, 7, 2, 1), stripe_tag(base, 6, 1, 3));
  for (const std::uint64_t step : {0, 7, 1000}) EXPECT_EQ(stripe_tag(5, step, 2, 1), 8u);
}

// The table of the issue: how evenly keys as programs name them are spread.
TEST(Placement, LoadIsEven) {
  std::string table =
      "Load of the fullest server over the mean (1.00: even).\n\n"
      "| rows | keys | servers | Penstock | djb2 mod N (FAODEL) |\n|---|---|---|---|---|\n";
  for (const auto& one : cases) {
    for (const std::size_t keys : {std::size_t{32}, key_count}) {
      for (const std::size_t count : {4, 16}) {
        const Placement placement(servers(count));
        std::vector<std::size_t> loads(count), djb2_loads(count);
        for (std::size_t i = 0; i < keys; ++i) {
          const std::string row = one.row(i);
          ++loads[placement.owners({}, row).index[0]];
          ++djb2_loads[djb2(row) % count];
        }
        table += fmt::format("| {} | {} | {} | {:.2f} | {:.2f} |\n", one.name, keys, count, imbalance(loads),
                             imbalance(djb2_loads));
        if (keys == key_count) {
          EXPECT_LE(imbalance(loads), 1.1) << one.name << " on " << count;
        }
      }
    }
  }
  std::ofstream(PENSTOCK_BINARY_DIR "/placement-table.md") << table;
}

// A few ranks are too few for a hash; their tags put them one by one.
TEST(Placement, TagsAreDealtInTurn) {
  const Placement placement(servers(16, 1, 2));
  std::vector<std::size_t> loads(16);
  for (std::uint64_t rank = 0; rank < 32; ++rank) {
    const Owners owners = placement.owners({}, "any", rank);
    ASSERT_EQ(owners.count, 2u);
    EXPECT_EQ(owners.index[0], rank % 16);
    EXPECT_EQ(owners.index[1], (rank + 1) % 16);
    ++loads[owners.index[0]];
  }
  EXPECT_EQ(imbalance(loads), 1.0);
}

TEST(Placement, RemovingAServerMovesOnlyItsKeys) {
  const View before = servers(16);
  View after = before;
  const std::uint64_t gone = before.members[5].id;
  after.members.erase(after.members.begin() + 5);
  const Placement old_placement(before), new_placement(after);
  std::size_t moved = 0;
  for (std::size_t i = 0; i < key_count; ++i) {
    const std::string row = cases[0].row(i);
    const auto was = before.members[old_placement.owners({}, row).index[0]].id;
    const auto is = after.members[new_placement.owners({}, row).index[0]].id;
    if (was == is) continue;
    ++moved;
    ASSERT_EQ(was, gone) << row;
  }
  EXPECT_NEAR(static_cast<double>(moved) / key_count, 1.0 / 16, 0.1 / 16);
}

TEST(Placement, AFirstReplicaTakesOver) {
  const View before = servers(8, 3, 3);
  View after = before;
  after.members[2].state = ServerState::draining;
  const Placement old_placement(before), new_placement(after);
  for (std::size_t i = 0; i < 1000; ++i) {
    const Owners was = old_placement.owners({}, cases[0].row(i));
    const Owners is = new_placement.owners({}, cases[0].row(i));
    EXPECT_FALSE(is.contains(2));
    if (was.index[0] == 2) {
      EXPECT_EQ(is.index[0], was.index[1]);
    }
  }
}

TEST(Placement, ReplicasAreDistinct) {
  for (const std::uint32_t replication : {1, 2, 3, 8}) {
    for (const std::size_t count : {1, 2, 5, 12}) {
      const Placement placement(servers(count, 7, replication));
      for (std::uint64_t i = 0; i < 200; ++i) {
        for (const auto tag : {std::optional<std::uint64_t>{}, std::optional(i)}) {
          const Owners owners = placement.owners({}, cases[0].row(i), tag);
          ASSERT_EQ(owners.count, std::min<std::size_t>(replication, count));
          const std::set<std::uint32_t> distinct(owners.all().begin(), owners.all().end());
          ASSERT_EQ(distinct.size(), owners.count);
        }
      }
    }
  }
}

TEST(Placement, WeightsAreShares) {
  View view = servers(4);
  view.members[1].weight = 3;
  const Placement placement(view);
  std::vector<std::size_t> loads(4);
  for (std::size_t i = 0; i < key_count; ++i) ++loads[placement.owners({}, cases[0].row(i)).index[0]];
  EXPECT_NEAR(static_cast<double>(loads[1]), key_count / 2.0, key_count * 0.05);
  EXPECT_NEAR(static_cast<double>(loads[0]), key_count / 6.0, key_count * 0.02);
}

TEST(Placement, NamespacesAreSpreadApart) {
  const Placement placement(servers(16));
  Namespace other;
  other.bytes[15] = 1;
  std::size_t same = 0;
  for (std::size_t i = 0; i < 1600; ++i)
    same += placement.owners({}, cases[0].row(i)).index[0] == placement.owners(other, cases[0].row(i)).index[0];
  EXPECT_LT(same, 300u);  // 100 by chance
}

// Where an object lies must not change from one version of the library to the next.
TEST(Placement, IsTheSameEverywhere) {
  const Placement placement(servers(16, 1));
  std::string places;
  for (std::size_t i = 0; i < 20; ++i) places += "0123456789abcdef"[placement.owners({}, cases[0].row(i)).index[0]];
  EXPECT_EQ(places, "83470b8b8bf308a7014e");
}

TEST(Placement, WithoutActiveServers) {
  View view = servers(2);
  for (auto& member : view.members) member.state = ServerState::draining;
  for (const Placement& placement : {Placement(view), Placement(View{})}) {
    try {
      placement.owners({}, "row");
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::peer_lost);
    }
  }
}

TEST(Placement, HugePoolsKeepTheRingBounded) {
  View view = servers(max_members);
  for (auto& member : view.members) member.weight = 4;
  const Placement placement(view);
  EXPECT_EQ(placement.owners({}, "row").count, 1u);
}

}  // namespace
}  // namespace penstock::pool
