#include "directory/state.hpp"

#include <gtest/gtest.h>

#include <random>

#include "base/test_support.hpp"
#include "penstock/error.hpp"

namespace penstock::directory {
namespace {

using namespace std::chrono_literals;
using Time = DirectoryState::Time;

TEST(DirectoryState, CreateIfAbsentAndCompareAndPut) {
  DirectoryState state(1);
  const auto created = state.put("/a", "1", 0, 0);
  ASSERT_TRUE(created);
  EXPECT_FALSE(state.put("/a", "2", 0, 0));
  EXPECT_FALSE(state.put("/a", "2", created->revision + 7, 0));
  EXPECT_FALSE(state.put("/b", "2", created->revision, 0));
  const auto changed = state.put("/a", "2", created->revision, 0);
  ASSERT_TRUE(changed);
  EXPECT_EQ(state.get("/a")->value, "2");
  EXPECT_EQ(state.get("/a")->created, created->revision);
  EXPECT_EQ(state.get("/a")->revision, changed->revision);
  EXPECT_FALSE(state.remove("/a", created->revision));
  EXPECT_TRUE(state.remove("/a", changed->revision));
  EXPECT_FALSE(state.remove("/a", {}));
}

TEST(DirectoryState, RefusesWhatIsNoPathOrTooLarge) {
  DirectoryState state(1);
  for (const std::string path : {"", "/", "a", "/a/", "//a", "/a//b", "/a b", "/\n", "/\xc3\xa9"})
    EXPECT_EQ(code_of([&] { state.put(path, "", {}, 0); }), Errc::invalid_argument) << path;
  EXPECT_EQ(code_of([&] { state.put("/" + std::string(512, 'x'), "", {}, 0); }), Errc::invalid_argument);
  EXPECT_TRUE(state.put("/" + std::string(511, 'x'), std::string(max_value_bytes, '\0'), {}, 0));
  EXPECT_EQ(code_of([&] { state.put("/a", std::string(max_value_bytes + 1, 'x'), {}, 0); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { state.put("/a", "", {}, 9); }), Errc::not_found);
  EXPECT_EQ(code_of([&] { state.grant(0ms, {}); }), Errc::invalid_argument);
  EXPECT_EQ(state.revision(), 1U);
}

TEST(DirectoryState, EveryBoundIsKept) {
  DirectoryState state(1, {.entries = 2, .bytes = 10, .leases = 1, .history = 3, .history_bytes = 1000});
  state.put("/a", "123", {}, 0);
  EXPECT_EQ(code_of([&] { state.put("/b", "123456", {}, 0); }), Errc::overloaded);
  state.put("/b", "12", {}, 0);
  EXPECT_EQ(code_of([&] { state.put("/c", "", {}, 0); }), Errc::overloaded);
  EXPECT_EQ(code_of([&] { state.put("/b", "1234", {}, 0); }), Errc::overloaded);
  state.put("/a", "", {}, 0);
  state.put("/b", "1234", {}, 0);
  state.grant(1s, {});
  EXPECT_EQ(code_of([&] { state.grant(1s, {}); }), Errc::overloaded);
  EXPECT_TRUE(state.events_since("/", 0, 100, 1000).reset);
  EXPECT_EQ(state.events_since("/", 1, 100, 1000).events.size(), 3U);
}

TEST(DirectoryState, LeasesEndWhenNobodyHeartbeats) {
  DirectoryState state(1);
  const Time start{};
  const auto kept = state.grant(100ms, start).lease;
  const auto left = state.grant(100ms, start + 1ms).lease;
  state.put("/kept", "", {}, kept);
  state.put("/left/b", "", {}, left);
  state.put("/left/a", "", {}, left);
  state.put("/moved", "", {}, left);
  state.put("/moved", "", {}, 0);
  EXPECT_EQ(*state.next_expiry(), start + 100ms);
  EXPECT_TRUE(state.heartbeat(kept, start + 90ms));
  EXPECT_TRUE(state.expire(start + 100ms).empty());
  const auto before = state.revision();
  ASSERT_EQ(state.expire(start + 101ms).size(), 1U);
  EXPECT_FALSE(state.heartbeat(left, start + 102ms));
  EXPECT_EQ(state.entries(), 2U);
  const auto events = state.events_since("", before, 100, 1000);
  ASSERT_EQ(events.events.size(), 2U);
  EXPECT_TRUE(events.events[0].removed);
  EXPECT_EQ(events.events[0].entry.path, "/left/a");
  EXPECT_EQ(events.events[1].entry.revision, before + 2);
  EXPECT_EQ(state.expire(start + 190ms).size(), 1U);
  EXPECT_FALSE(state.revoke(kept));
}

TEST(DirectoryState, WhoCouldNotBeHeardIsSparedOnce) {
  DirectoryState state(1);
  const Time start{};
  const auto alive = state.grant(100ms, start).lease, dead = state.grant(100ms, start).lease;
  const auto slow = state.grant(10s, start).lease;
  state.spare_leases(start + 1h);
  EXPECT_TRUE(state.expire(start + 1h).empty());
  EXPECT_EQ(*state.next_expiry(), start + 1h + 50ms);
  EXPECT_TRUE(state.heartbeat(alive, start + 1h + 49ms));
  state.spare_leases(start + 2h);
  EXPECT_EQ(state.expire(start + 2h).size(), 2U) << "nothing was heard of two since the first time";
  EXPECT_FALSE(state.heartbeat(dead, start + 2h));
  EXPECT_FALSE(state.heartbeat(slow, start + 2h));
  EXPECT_TRUE(state.heartbeat(alive, start + 2h + 49ms));
  // One that has time left keeps what it has.
  state.spare_leases(start + 2h + 50ms);
  EXPECT_EQ(*state.next_expiry(), start + 2h + 149ms);
}

TEST(DirectoryState, EventsComeInPagesThatMissNothing) {
  DirectoryState state(1);
  for (int i = 0; i < 100; ++i) state.put(i % 2 ? "/odd/" + std::to_string(i) : "/even", "xxxxxxxxxx", {}, 0);
  std::uint64_t revision = 0;
  std::size_t seen = 0;
  for (bool more = true; more;) {
    const auto events = state.events_since("/odd/", revision, 7, 400);
    EXPECT_LE(events.events.size(), 7U);
    for (const auto& e : events.events) EXPECT_EQ(e.entry.path, "/odd/" + std::to_string(2 * seen++ + 1));
    revision = events.revision;
    more = events.more;
  }
  EXPECT_EQ(seen, 50U);
  EXPECT_EQ(revision, 100U);
  EXPECT_TRUE(state.events_since("/", 101, 7, 400).reset);
}

// A model without structure: what a client is promised, and nothing else.
struct Model {
  struct Value {
    std::string value;
    std::uint64_t revision = 0, created = 0, lease = 0;
  };
  std::map<std::string, Value> entries;
  std::map<std::uint64_t, std::pair<std::chrono::milliseconds, Time>> leases;
  std::vector<DirectoryEvent> events;
  std::uint64_t revision = 0;

  void put(const std::string& path, const std::string& value, std::uint64_t lease) {
    auto& e = entries[path];
    e.revision = ++revision;
    if (e.created == 0) e.created = revision;
    e.value = value;
    e.lease = lease;
    events.push_back({false, {path, value, e.revision, e.created, lease}});
  }
  void remove(const std::string& path) {
    entries.erase(path);
    events.push_back({true, {path, "", ++revision, 0, 0}});
  }
  void end(std::uint64_t lease) {
    leases.erase(lease);
    std::vector<std::string> gone;
    for (const auto& [path, e] : entries)
      if (e.lease == lease) gone.push_back(path);
    for (const auto& path : gone) remove(path);
  }
};

void expect_same(const DirectoryState& state, const Model& model) {
  ASSERT_EQ(state.revision(), model.revision);
  ASSERT_EQ(state.entries(), model.entries.size());
  ASSERT_EQ(state.leases(), model.leases.size());
  std::string after;
  auto expected = model.entries.begin();
  for (bool more = true; more;) {
    const auto page = state.list("", after, 3, 1 << 20);
    more = page.more;
    for (const auto& e : page.entries) {
      ASSERT_NE(expected, model.entries.end());
      ASSERT_EQ(e.path, expected->first);
      ASSERT_EQ(e.value, expected->second.value);
      ASSERT_EQ(e.revision, expected->second.revision);
      ASSERT_EQ(e.created, expected->second.created);
      ASSERT_EQ(e.lease, expected->second.lease);
      ++expected;
      after = e.path;
    }
  }
  ASSERT_EQ(expected, model.entries.end());
}

void expect_same_events(const DirectoryState& state, const Model& model, const std::string& prefix,
                        std::uint64_t since) {
  const auto got = state.events_since(prefix, since, 1 << 20, 1 << 30);
  if (got.reset) {
    ASSERT_GT(model.revision - since, 50U);
    return;
  }
  auto at = got.events.begin();
  for (const auto& e : model.events) {
    if (e.entry.revision <= since || !e.entry.path.starts_with(prefix)) continue;
    ASSERT_NE(at, got.events.end());
    ASSERT_EQ(at->entry.path, e.entry.path);
    ASSERT_EQ(at->entry.revision, e.entry.revision);
    ASSERT_EQ(at->entry.value, e.entry.value);
    ASSERT_EQ(at->removed, e.removed);
    ++at;
  }
  ASSERT_EQ(at, got.events.end());
}

// One random operation on both; the changes are applied to a follower as a journal would.
void step(std::mt19937_64& random, DirectoryState& state, Model& model, DirectoryState& follower, Time& now) {
  const auto pick = [&](std::uint64_t n) { return random() % n; };
  const std::string path = "/" + std::string(1, static_cast<char>('a' + pick(3))) + "/" + std::to_string(pick(5));
  std::uint64_t lease = 0;
  if (!model.leases.empty() && pick(2) == 0)
    lease = std::next(model.leases.begin(), static_cast<std::ptrdiff_t>(pick(model.leases.size())))->first;
  const auto found = model.entries.find(path);
  const std::uint64_t revision = found == model.entries.end() ? 0 : found->second.revision;
  std::optional<std::uint64_t> expected;
  if (pick(2) == 0) expected = pick(3) == 0 ? pick(model.revision + 1) : revision;
  const bool holds = !expected || *expected == revision;
  std::vector<DirectoryChange> changes;
  const auto keep = [&](const std::optional<DirectoryChange>& change) {
    if (change) changes.push_back(*change);
    return change.has_value();
  };
  switch (pick(8)) {
    case 0:
    case 1:
    case 2: {
      const std::string value = std::to_string(random());
      ASSERT_EQ(keep(state.put(path, value, expected, lease)), holds);
      if (holds) model.put(path, value, lease);
      break;
    }
    case 3:
      ASSERT_EQ(keep(state.remove(path, expected)), holds && revision != 0);
      if (holds && revision != 0) model.remove(path);
      break;
    case 4: {
      const auto ttl = std::chrono::milliseconds(50 + pick(100));
      changes.push_back(state.grant(ttl, now));
      model.leases[changes.back().lease] = {ttl, now + ttl};
      break;
    }
    case 5:
      if (lease != 0) {
        ASSERT_TRUE(state.heartbeat(lease, now));
        model.leases[lease].second = now + model.leases[lease].first;
      }
      break;
    case 6:
      if (lease != 0 && pick(2) == 0) {
        ASSERT_TRUE(keep(state.revoke(lease)));
        model.end(lease);
      }
      break;
    default: {
      now += std::chrono::milliseconds(pick(20));
      changes = state.expire(now);
      for (const auto& change : changes) {
        ASSERT_LE(model.leases.at(change.lease).second, now);
        model.end(change.lease);
      }
      for (const auto& [id, when] : model.leases) ASSERT_GT(when.second, now);
    }
  }
  for (const auto& change : changes) follower.apply(change, now);
}

TEST(DirectoryState, RandomOperationsAgreeWithAModel) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const DirectoryLimits limits{.history = 50};
    DirectoryState state(seed, limits), follower(seed, limits);
    Model model;
    Time now{};
    for (int i = 0; i < 2000; ++i) {
      step(random, state, model, follower, now);
      if (i % 20 == 0) {
        expect_same(state, model);
        expect_same(follower, model);
        const std::string prefix = random() % 2 == 0 ? "" : "/b/";
        expect_same_events(state, model, prefix, random() % (model.revision + 1));
        expect_same_events(state, model, prefix,
                           model.revision - std::min<std::uint64_t>(model.revision, random() % 60));
      }
      if (HasFatalFailure()) return;
    }
    const DirectoryState copy(state.snapshot(), limits, now);
    expect_same(copy, model);
  }
}

}  // namespace
}  // namespace penstock::directory
