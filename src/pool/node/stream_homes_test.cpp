// Streams in a pool whose home goes: another server takes over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "pool/coordinator/stream_objects.hpp"
#include "pool/node/stream_pool_test_support.hpp"

namespace penstock::pool {
namespace {

using testing::ElementsAre;

// Which server is the home of a stream of this name.
std::size_t home_of(Servers& servers, const std::string& name) {
  const auto placement = servers[0].core().placement();
  for (std::size_t i = 0; i < servers.size(); ++i)
    if (servers[i].core().is_primary(*placement, streams_namespace(), stream_row(name), std::nullopt)) return i;
  return servers.size();
}

// A stream whose home can be stopped: the first server has the directory.
std::string name_with_home_beyond_first(Servers& servers, std::string name) {
  while (home_of(servers, name) == 0) name += "-";
  return name;
}

// The owner after the home.
std::size_t next_home(Servers& servers, const std::string& name) {
  const auto placement = servers[0].core().placement();
  const auto owners = placement->owners(streams_namespace(), stream_row(name), std::nullopt);
  return placement->view().members[owners.index[1]].id - 1;
}

// Takes a server's memory, but for parts smaller than `least`. own: also what it keeps for its own use. What fits is waited for,
// because the server may have to map it first.
void take_memory(ServerCore& core, bool own, std::uint64_t least, std::vector<std::shared_ptr<Blob>>& taken) {
  const auto free_now = [&] {
    std::uint64_t used = 0;
    core.progress()->call([&] { used = core.store().statistics().memory_used; });
    return core.store().memory_limit() - std::min(used, core.store().memory_limit());
  };
  for (auto size = core.store().memory_limit(); size >= least; size /= 2) {
    try {
      while (size < slab_object_bytes || free_now() >= size) {
        const base::Deadline soon(size < slab_object_bytes ? Timeout(50) : patience);
        taken.push_back(
            fabric::run_task(*core.progress(), core.store().reserve(size, soon, own), base::Deadline(patience)));
      }
    } catch (const Error&) {
    }
  }
}

// What the home put last may have come to one owner only when the row went over: it is not believed to be safe.
TEST(StreamHomes, TheNextHomePutsAgainWhatTheLastOnePut) {
  Servers servers(3, 2);
  const auto name = name_with_home_beyond_first(servers, "passed");
  // By column: the newest version that a server has.
  const auto versions = [&] {
    std::map<std::string, std::uint64_t> newest;
    for (std::size_t i = 0; i < servers.size(); ++i) {
      auto& core = servers[i].core();
      core.progress()->call([&] {
        core.store().table().scan(streams_namespace(), exact_row(stream_row(name)), "", ~std::size_t{0},
                                  [&](const ObjectTable::Entry& entry) {
                                    auto& known = newest[std::string(entry.column)];
                                    known = std::max(known, entry.object.version);
                                    return true;
                                  });
      });
    }
    return newest;
  };
  TestWriter writer(servers, name, 1000);
  for (int i = 0; i < 3; ++i) writer.write();
  TestReader reader(servers, name);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(reader.read(), i);  // so that they are there
  auto before = versions();
  servers.stop(home_of(servers, name));
  writer.write();
  EXPECT_EQ(reader.read(), 3);
  auto after = versions();
  EXPECT_GT(after[std::string(record_column)], before[std::string(record_column)]);
  EXPECT_GT(after[step_column(2)], before[step_column(2)]);
  EXPECT_EQ(after[step_column(1)], before[step_column(1)]) << "which came before another, and was safe";
  writer->close(patience);
}

// A step's record goes first, then its stripes; the last step of a description goes first, then the description.
TEST(StreamHomes, TheNextHomeDropsWhatTheLastOneWasDropping) {
  Servers servers(3, 2);
  servers.wait_settled();
  const auto name = name_with_home_beyond_first(servers, "interrupted");
  auto options = pool_options();
  options.retain_steps = 2;
  TestWriter writer(servers, name, 1000, options);
  for (int i = 0; i < 5; ++i) writer.write();
  // At servers that are there.
  std::size_t stopped = servers.size();
  const auto rows_like = [&](std::string rows) {
    Pattern pattern;
    pattern.row = std::move(rows);
    std::multiset<std::string> found;
    for (std::size_t i = 0; i < servers.size(); ++i) {
      if (i == stopped) continue;
      auto& core = servers[i].core();
      core.progress()->call([&] {
        core.store().table().scan(streams_namespace(), KeyPattern(pattern), "", ~std::size_t{0},
                                  [&](const ObjectTable::Entry& entry) {
                                    found.insert(std::string(entry.column));
                                    return true;
                                  });
      });
    }
    return found;
  };
  const auto stripes_of = [&](std::uint64_t step) { return rows_like(stripe_pattern(name, step)).size(); };
  const auto columns = [&](std::string_view prefix) {
    std::set<std::string> found;
    for (const auto& column : rows_like(stream_row(name)))
      if (column.starts_with(prefix)) found.insert(column);
    return found;
  };
  const base::Deadline deadline(patience);
  while ((columns("step/").size() != 2 || stripes_of(2) > 0) && !deadline.passed()) {
  }
  const auto described = columns("epoch/");
  ASSERT_EQ(described.size(), 1u);
  const auto life = std::stoull(described.begin()->substr(6));
  put_at_owner(servers, stripe_row(name, 1, 0, 0), stripe_column(life), stripe_tag(tag_base_of(name), 1, 0, 0));
  put_at_owner(servers, stripe_row(name, 2, 0, 1), stripe_column(life), stripe_tag(tag_base_of(name), 2, 0, 1));
  put_at_owner(servers, stream_row(name), epoch_column(life, 0), std::nullopt);
  stopped = home_of(servers, name);
  servers.stop(stopped);
  writer.write();
  while ((stripes_of(1) + stripes_of(2) > 0 || columns("epoch/") != described || stripes_of(3) > 0) &&
         !deadline.passed()) {
  }
  EXPECT_EQ(stripes_of(1) + stripes_of(2), 0u);
  EXPECT_EQ(columns("epoch/"), described);
  EXPECT_GT(stripes_of(4), 0u);
  writer->close(patience);
  EXPECT_THAT(TestReader(servers, name).rest(), ElementsAre(4, 5));
}

// Then nobody reads what would make room.
TEST(StreamHomes, TheNextHomeReadsAStreamAlsoIfOtherOwnersHaveNoRoom) {
  Servers servers(3, 2);
  const auto name = name_with_home_beyond_first(servers, "crowded");
  const auto home = home_of(servers, name);
  TestWriter writer(servers, name, 1000);
  for (int i = 0; i < 3; ++i) writer.write();
  TestReader reader(servers, name);
  EXPECT_EQ(reader.read(), 0);
  // Of the two that are left the one that will not be the home.
  std::vector<std::shared_ptr<Blob>> all;
  const auto next = next_home(servers, name);
  for (std::size_t i = 0; i < servers.size(); ++i) {
    if (i == home || i == next) continue;
    take_memory(servers[i].core(), true, 1, all);
  }
  servers.stop(home);
  EXPECT_EQ(reader.read(), 1);
  EXPECT_EQ(reader.read(), 2);
  all.clear();
  writer->close(patience);
}

// Then what was there had been passed on already.
TEST(StreamHomes, StripesThatComeAfterAViewHasChangedReachItsOwners) {
  constexpr std::uint64_t elements = 128 << 10;  // 16 stripes
  Servers servers(3, 2);
  auto options = pool_options();
  options.stripe_bytes = 64 << 10;
  servers.wait_settled();
  // Several streams: the home of some stays where it is.
  const std::vector<std::string> names{"a", "b", "c", "d"};
  std::vector<std::unique_ptr<TestWriter>> writers;
  for (const auto& name : names) writers.push_back(std::make_unique<TestWriter>(servers, name, elements, options));
  std::vector<std::shared_ptr<Blob>> all;
  for (std::size_t i = 0; i < 3; ++i) take_memory(servers[i].core(), false, options.stripe_bytes, all);
  for (auto& writer : writers) writer->write();
  const base::Deadline deadline(patience);
  for (std::size_t i = 0; i < 3; ++i) {
    auto& core = servers[i].core();
    std::uint64_t waiting = 0;
    while (waiting != names.size() && !deadline.passed())
      core.progress()->call([&] { waiting = core.store().statistics().waiting; });
    EXPECT_EQ(waiting, names.size()) << "server " << i;
  }
  servers.add();
  servers.wait_settled();
  all.clear();
  for (const auto& name : names) {
    TestReader reader(servers, name, options);
    EXPECT_EQ(reader.read(), 0) << name;
  }
  for (auto& writer : writers) (*writer)->close(patience);
}

// After a server has joined, most stripes lie where they lay before: where each did, follows from its own tag.
TEST(StreamHomes, StripesThatHaveNotMovedYetAreFound) {
  constexpr std::uint32_t stripes = 30;
  Servers servers(2, 1, 1);  // one message each is passed on at once
  servers.wait_settled();
  // The last stripe of the first server is one that it had before; others of it are not.
  std::string name = "moving";
  while (stripe_tag(tag_base_of(name), 0, 0, stripes - 1) % 6 != 0) name += "x";
  TestWriter writer(servers, name, stripes * (StreamOptions{}.stripe_bytes / 8));
  writer.write();
  writer->close(patience);
  servers.add();
  const auto unsettled = [&](std::size_t i) {
    const auto view = servers[i].core().placement()->view();
    return view.members.size() == 3 && !view.settled;
  };
  const base::Deadline deadline(patience);
  while (!(unsettled(0) && unsettled(1)) && !deadline.passed()) {
  }
  EXPECT_THAT(TestReader(servers, name).rest(), ElementsAre(0));
  EXPECT_TRUE(unsettled(0));
}

// Each server in turn stops while steps come and go; with two replicas nothing is lost and everything goes on.
TEST(StreamHomes, GoesOnWithoutAServer) {
  for (std::size_t victim = 1; victim < 3; ++victim) {
    Servers servers(3, 2);
    auto options = pool_options();
    options.acknowledge = Acknowledge::replicated;  // else the victim may be the only one that has a step
    TestWriter writer(servers, "survivor", 400'000, options);
    TestReader reader(servers, "survivor");
    for (int i = 0; i < 3; ++i) writer.write();
    EXPECT_EQ(reader.read(), 0);
    servers.stop(victim);
    for (int i = 3; i < 8; ++i) writer.write();
    EXPECT_THAT(
        [&] {
          std::vector<std::int64_t> steps;
          for (int i = 1; i < 8; ++i) steps.push_back(reader.read());
          return steps;
        }(),
        ElementsAre(1, 2, 3, 4, 5, 6, 7));
    writer->close(patience);
    EXPECT_EQ(reader.read(), -1);
    EXPECT_EQ(reader.last, Outcome::end_of_stream);
  }
}

}  // namespace
}  // namespace penstock::pool
