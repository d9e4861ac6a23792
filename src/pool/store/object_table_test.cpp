#include "pool/store/object_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "model/random_test_support.hpp"
#include "penstock/error.hpp"

namespace penstock::pool {
namespace {

using namespace std::string_literals;
using testing::ElementsAre;

constexpr std::size_t no_limit = ~std::size_t{0};

StoredObject object(std::uint64_t version, std::uint64_t bytes = 1) {
  StoredObject object;
  object.version = version;
  object.bytes = bytes;
  return object;
}

Namespace ns_of(std::uint8_t last) {
  Namespace ns;
  ns.bytes[15] = last;
  return ns;
}

const Namespace ns = ns_of(1);

std::vector<std::string> rows(ObjectTable& table, const std::string& row, const std::string& column = "*") {
  std::vector<std::string> found;
  EXPECT_EQ(table.scan(ns, KeyPattern(Pattern{row, column}), "", no_limit,
                       [&](const ObjectTable::Entry& entry) {
                         found.push_back(std::string(entry.row) + "|" + std::string(entry.column));
                         return true;
                       }),
            "");
  return found;
}

// --------------------------------------------------------------------------------------------------------------- keys

TEST(PackedKey, SplitsAgain) {
  for (const auto& row : {""s, "row"s, "\0"s, "a\0"s, "\0\xff\0\1"s, std::string(4096, '\0'), std::string(255, 'x')}) {
    for (const auto& column : {""s, "\0\1"s, "column"s, std::string(4096, '\0'), std::string(256, '\xff')}) {
      const auto packed = pack_key(ns_of(7), row, column);
      const auto key = unpack_key(packed);
      EXPECT_EQ(key.ns, ns_of(7));
      EXPECT_EQ(key.row, row);
      EXPECT_EQ(key.column, column);
    }
  }
}

TEST(PackedKey, KeepsTheOrder) {
  SCOPED_TRACE("PENSTOCK_TEST_SEED=" + std::to_string(model::test_seed()));
  model::Random random(2);
  const auto text = [&] {
    std::string text;
    for (auto left = random.from(0, 4); left > 0; --left)
      text.push_back(random.one_of({'\0', '\1', 'a', '\xfe', '\xff'}));
    return text;
  };
  for (int round = 0; round < 20'000; ++round) {
    const auto a = std::tuple(ns_of(random.one_of({0, 255})), text(), text());
    const auto b = std::tuple(ns_of(random.one_of({0, 255})), text(), text());
    const auto pack = [](const auto& key) { return pack_key(std::get<0>(key), std::get<1>(key), std::get<2>(key)); };
    ASSERT_EQ(a < b, pack(a) < pack(b));
    ASSERT_EQ(a == b, pack(a) == pack(b));
  }
}

TEST(PackedKey, WhatIsNone) {
  const std::string ns16(16, 'n');
  for (const auto& packed : {""s, ns16.substr(1), ns16, ns16 + "row", ns16 + "row\0"s, ns16 + "row\0\2"s,
                             ns16 + std::string(4097, 'x') + "\0\1"s, ns16 + "\0\1"s + std::string(4097, 'x')}) {
    try {
      unpack_key(packed);
      ADD_FAILURE() << packed.size();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::protocol);
    }
  }
}

// ------------------------------------------------------------------------------------------------------------ versions

TEST(ObjectTable, RacingPuts) {
  ObjectTable table;
  EXPECT_TRUE(table.insert(ns, "r", "c", object(2, 10), false));
  EXPECT_FALSE(table.insert(ns, "r", "c", object(2, 20), false));  // the same number: the first stays
  EXPECT_FALSE(table.insert(ns, "r", "c", object(1, 20), true));   // the slower of two replicas
  EXPECT_EQ(table.find(ns, "r", "c")->bytes, 10u);
  EXPECT_TRUE(table.insert(ns, "r", "c", object(3, 30), false));
  EXPECT_EQ(table.find(ns, "r", "c")->version, 3u);
  EXPECT_EQ(table.find(ns, "r", "c", 2), nullptr);
  EXPECT_EQ(table.bytes(), 30u);
  EXPECT_EQ(table.size(), 1u);
}

TEST(ObjectTable, VersionsAreKeptOnRequest) {
  ObjectTable table;
  for (const std::uint64_t version : {1, 4, 6}) table.insert(ns, "r", "c", object(version, version), true);
  EXPECT_EQ(table.find(ns, "r", "c")->version, 6u);
  EXPECT_EQ(table.find(ns, "r", "c", 1)->bytes, 1u);
  EXPECT_EQ(table.find(ns, "r", "c", 4)->bytes, 4u);
  EXPECT_EQ(table.find(ns, "r", "c", 5), nullptr);
  EXPECT_EQ(table.bytes(), 11u);
  EXPECT_FALSE(table.erase(ns, "r", "c", 5));
  EXPECT_TRUE(table.erase(ns, "r", "c", 6));  // the newest: the one before is it now
  EXPECT_EQ(table.find(ns, "r", "c")->version, 4u);
  EXPECT_TRUE(table.erase(ns, "r", "c", 1));
  EXPECT_TRUE(table.erase(ns, "r", "c", 4));
  EXPECT_EQ(table.find(ns, "r", "c"), nullptr);
  EXPECT_EQ(table.bytes(), 0u);
  EXPECT_EQ(table.index_bytes(), 0u);
  for (const std::uint64_t version : {1, 2}) table.insert(ns, "r", "c", object(version), true);
  EXPECT_TRUE(table.insert(ns, "r", "c", object(3), false));  // an overwrite takes all
  EXPECT_EQ(table.find(ns, "r", "c", 2), nullptr);
  EXPECT_TRUE(table.erase(ns, "r", "c"));
  EXPECT_EQ(table.index_bytes(), 0u);
}

TEST(ObjectTable, KeysOfAnyBytes) {
  ObjectTable table;
  const std::vector<std::string> texts = {""s,
                                          "\0"s,
                                          "\0\0"s,
                                          "a\0b"s,
                                          "a"s,
                                          std::string(255, 'k'),
                                          std::string(256, 'k'),
                                          std::string(4096, '\0'),
                                          std::string(4096, '\xff')};
  std::uint64_t version = 0;
  for (const auto& row : texts)
    for (const auto& column : texts) ASSERT_TRUE(table.insert(ns, row, column, object(++version), false));
  EXPECT_EQ(table.size(), texts.size() * texts.size());
  version = 0;
  for (const auto& row : texts)
    for (const auto& column : texts) ASSERT_EQ(table.find(ns, row, column)->version, ++version);
  std::string after;  // one at a time, so that each key goes through pack and unpack
  std::size_t seen = 0;
  do after = table.scan(ns, KeyPattern(), after, 1, [&](const auto&) { return ++seen, true; });
  while (!after.empty());
  EXPECT_EQ(seen, texts.size() * texts.size());
  EXPECT_THROW(table.insert(ns, std::string(4097, 'x'), "", object(1), false), Error);
  EXPECT_THROW(table.insert(ns, "", std::string(4097, 'x'), object(1), false), Error);
}

// ------------------------------------------------------------------------------------------------------------ listings

TEST(ObjectTable, ListsByPattern) {
  ObjectTable table;
  for (const auto* row : {"heat/1", "heat/2", "heater", "cold"})
    for (const auto* column : {"T", "U"}) table.insert(ns, row, column, object(1), false);
  table.insert(ns_of(2), "heat/1", "V", object(1), false);
  EXPECT_THAT(rows(table, "heat/*", "T"), ElementsAre("heat/1|T", "heat/2|T"));
  EXPECT_THAT(rows(table, "heat/1"), ElementsAre("heat/1|T", "heat/1|U"));
  EXPECT_THAT(rows(table, "*e?ter", "[T-V]"), ElementsAre("heater|T", "heater|U"));
  EXPECT_THAT(rows(table, "*", "U"), ElementsAre("cold|U", "heat/1|U", "heat/2|U", "heater|U"));
  EXPECT_THAT(rows(table, "none*"), ElementsAre());
}

// A listing looks at what its prefix covers and at nothing else, and stops after as many as it was given.
TEST(ObjectTable, AScanIsBoundedByItsPrefix) {
  ObjectTable table;
  for (int row = 0; row < 1000; ++row)
    for (int column = 0; column < 20; ++column)
      table.insert(ns, "row/" + std::to_string(row), "column/" + std::to_string(column), object(1), false);
  // The fewest visits with which one call comes to the end.
  const auto visits = [&](const char* row, const char* column) {
    const KeyPattern pattern(Pattern{row, column});
    std::size_t visits = 1;
    while (!table.scan(ns, pattern, "", visits, [](const auto&) { return true; }).empty()) ++visits;
    return visits;
  };
  EXPECT_EQ(visits("row/77", "*"), 20u);
  EXPECT_EQ(visits("row/77", "column/1*"), 11u);
  EXPECT_EQ(visits("row/77", "column/7"), 1u);
  EXPECT_EQ(visits("row/77*", "column/7"), 11u * 20u);  // 77, 770 .. 779
  EXPECT_EQ(visits("row/7?", "none"), 111u * 20u);      // the glob's prefix
  EXPECT_EQ(table.scan(ns, KeyPattern(Pattern{"none*", "*"}), "", 1, [](const auto&) { return true; }), "");
}

TEST(ObjectTable, AScanGoesOnWhereItEnded) {
  ObjectTable table;
  for (int i = 100; i < 200; ++i) table.insert(ns, "row/" + std::to_string(i), "", object(1), false);
  std::vector<std::string> found;
  const KeyPattern pattern(Pattern{"row/*5", "*"});
  int calls = 0;
  std::string after;
  do {
    ++calls;
    std::size_t seen = found.size();
    after = table.scan(ns, pattern, after, 7, [&](const ObjectTable::Entry& entry) {
      found.emplace_back(entry.row);
      return true;
    });
    EXPECT_LE(found.size() - seen, 1u);
    if (!after.empty()) {  // what it goes on after need not be there any more; what came before is not listed
      const auto key = unpack_key(after);
      table.erase(key.ns, key.row, key.column);
      table.insert(ns, "row/1005", "", object(1), false);
      table.erase(ns, "row/1005", "");
    }
  } while (!after.empty());
  EXPECT_EQ(calls, 15);
  EXPECT_THAT(found, ElementsAre("row/105", "row/115", "row/125", "row/135", "row/145", "row/155", "row/165", "row/175",
                                 "row/185", "row/195"));
}

TEST(ObjectTable, TheVisitorMayStop) {
  ObjectTable table;
  for (const auto* row : {"a", "b", "c"}) table.insert(ns, row, "", object(1), false);
  std::vector<std::string> found;
  const auto visit = [&](const ObjectTable::Entry& entry) {
    found.emplace_back(entry.row);
    return found.size() != 2;
  };
  const auto after = table.scan(ns, {}, "", no_limit, visit);
  EXPECT_EQ(after, pack_key(ns, "b", ""));
  EXPECT_EQ(table.scan(ns, {}, after, no_limit, visit), "");
  EXPECT_THAT(found, ElementsAre("a", "b", "c"));
  EXPECT_THROW(table.scan(ns_of(9), {}, after, 1, visit), Error);
  EXPECT_THROW(table.scan(ns, {}, "nonsense", 1, visit), Error);
}

TEST(ObjectTable, AllNamespacesInTurn) {
  ObjectTable table;
  for (std::uint8_t last : {3, 1, 2})
    for (const auto* row : {"b", "a"}) table.insert(ns_of(last), row, "", object(1), false);
  for (std::size_t step = 1; step < 8; ++step) {
    std::vector<std::string> found;
    std::string after;
    do {
      after = table.scan_all(after, step, [&](const ObjectTable::Entry& entry) {
        found.push_back(std::to_string(entry.ns.bytes[15]) + std::string(entry.row));
        return true;
      });
    } while (!after.empty());
    EXPECT_THAT(found, ElementsAre("1a", "1b", "2a", "2b", "3a", "3b")) << step;
  }
}

// ------------------------------------------------------------------------------------------------------------- waiting

class Waiting : public testing::Test {
 protected:
  std::function<void()> note(std::string what) {
    return [this, what = std::move(what)] { heard.push_back(what); };
  }
  std::vector<std::string> take() { return std::exchange(heard, {}); }
  auto watcher(std::string name) {
    return [this, name](bool dropped, const Namespace&, std::string_view row, std::string_view column,
                        const StoredObject& object) {
      heard.push_back(name + (dropped ? "-" : "+") + std::string(row) + "|" + std::string(column) +
                      std::to_string(object.version));
    };
  }
  ObjectTable table;
  std::vector<std::string> heard;
};

TEST_F(Waiting, SeveralOnOneKeyInTheirOrder) {
  table.wait(ns, "r", "c", note("1"));
  const auto second = table.wait(ns, "r", "c", note("2"));
  table.wait(ns, "r", "c", note("3"));
  table.wait(ns, "r", "other", note("no"));
  table.wait(ns_of(9), "r", "c", note("no"));
  EXPECT_EQ(table.waiters(ns, "r", "c"), 3u);
  EXPECT_EQ(table.waiting(), 5u);
  table.cancel(second);
  EXPECT_EQ(table.waiters(ns, "r", "c"), 2u);
  table.insert(ns, "r", "c", object(1), false);
  EXPECT_THAT(take(), ElementsAre("1", "3"));
  table.insert(ns, "r", "c", object(2), false);
  EXPECT_THAT(take(), ElementsAre());
  EXPECT_EQ(table.waiters(ns, "r", "c"), 0u);
  EXPECT_EQ(table.wait(ns, "r", "c", note("at once")), 0u);
  EXPECT_THAT(take(), ElementsAre("at once"));
  EXPECT_EQ(table.waiting(), 2u);
}

TEST_F(Waiting, ADropLeavesWaitersWaiting) {
  table.insert(ns, "r", "c", object(1), false);
  table.erase(ns, "r", "c");
  table.wait(ns, "r", "c", note("1"));
  EXPECT_FALSE(table.erase(ns, "r", "c"));
  EXPECT_EQ(table.waiters(ns, "r", "c"), 1u);
  EXPECT_THAT(take(), ElementsAre());
  table.insert(ns, "r", "c", object(2), false);
  EXPECT_THAT(take(), ElementsAre("1"));
}

TEST_F(Waiting, AWaiterThatIsCalledFindsTheObject) {
  table.wait(ns, "r", "c", [&] {
    heard.push_back("first drops it");
    table.erase(ns, "r", "c");
  });
  table.wait(ns, "r", "c", [&] { heard.push_back(table.find(ns, "r", "c") ? "second finds it" : "gone"); });
  table.insert(ns, "r", "c", object(1), false);
  EXPECT_THAT(take(), ElementsAre("first drops it"));
  EXPECT_EQ(table.waiters(ns, "r", "c"), 1u);
  table.insert(ns, "r", "c", object(2), false);
  EXPECT_THAT(take(), ElementsAre("second finds it"));
}

TEST_F(Waiting, CallbacksMayChangeTheTable) {
  ObjectTable::WaiterId third = 0;
  table.subscribe(ns, {}, watcher("watch"));
  table.wait(ns, "r", "1", [&] {
    heard.push_back("first");
    table.cancel(third);
    EXPECT_TRUE(table.insert(ns, "r", "2", object(1), false));
    heard.push_back("after its insert");
    table.wait(ns, "r", "3", note("made within"));
  });
  third = table.wait(ns, "r", "1", note("cancelled"));
  table.wait(ns, "r", "1", note("fourth"));
  table.wait(ns, "r", "2", [&] {
    heard.push_back("second key");
    table.insert(ns, "r", "3", object(1), false);
  });
  table.insert(ns, "r", "1", object(1), false);
  EXPECT_THAT(take(), ElementsAre("watch+r|11", "first", "after its insert", "fourth", "watch+r|21", "second key",
                                  "watch+r|31", "made within"));
  EXPECT_EQ(table.waiting(), 0u);
}

// Each put from within a callback: no recursion, however long the chain.
TEST_F(Waiting, AChainOfAHundredThousand) {
  constexpr int length = 100'000;
  for (int i = 0; i < length; ++i)
    table.wait(ns, std::to_string(i), "", [this, i] { table.insert(ns, std::to_string(i + 1), "", object(1), false); });
  table.insert(ns, "0", "", object(1), false);
  EXPECT_NE(table.find(ns, std::to_string(length), ""), nullptr);
  EXPECT_EQ(table.waiting(), 0u);
}

TEST_F(Waiting, RowsReachACount) {
  const KeyPattern ts(Pattern{"*", "T*"});
  table.insert(ns, "r", "T0", object(1), false);
  table.wait_row(ns, "r", {}, 4, note("four"));
  table.wait_row(ns, "r", ts, 2, note("two of T"));
  EXPECT_EQ(table.wait_row(ns, "r", ts, 1, note("one is there")), 0u);
  EXPECT_EQ(table.wait_row(ns, "empty", ts, 0, note("none is none")), 0u);
  EXPECT_THAT(take(), ElementsAre("one is there", "none is none"));
  table.insert(ns, "r", "U", object(1), false);
  table.insert(ns, "r", "T0", object(2), true);  // a version, not an object more
  table.insert(ns, "other", "T1", object(1), false);
  table.erase(ns, "r", "T0", 1);
  EXPECT_THAT(take(), ElementsAre());
  table.erase(ns, "r", "T0");
  table.insert(ns, "r", "T1", object(1), false);
  EXPECT_THAT(take(), ElementsAre());
  table.insert(ns, "r", "T2", object(1), false);
  EXPECT_THAT(take(), ElementsAre("two of T"));
  table.insert(ns, "r", "T3", object(1), false);
  EXPECT_THAT(take(), ElementsAre("four"));
  EXPECT_EQ(table.waiting(), 0u);
}

TEST_F(Waiting, KeysRowsAndSubscriptionsInTheirOrder) {
  table.wait_row(ns, "r", {}, 1, note("row"));
  table.wait(ns, "r", "", note("key"));  // an empty column: packed, it looks like its row
  table.subscribe(ns, KeyPattern(Pattern{"r", "*"}), watcher("watch"));
  table.wait(ns, "r", "", note("late key"));
  table.insert(ns, "r", "", object(5), false);
  EXPECT_THAT(take(), ElementsAre("row", "key", "watch+r|5", "late key"));
}

TEST_F(Waiting, SubscriptionsHearOfEveryMatchingChange) {
  ObjectTable::WaiterId id = table.subscribe(ns, KeyPattern(Pattern{"a*", "*"}), watcher("w"));
  table.insert(ns, "ab", "c", object(1), false);
  table.insert(ns, "ab", "c", object(2), true);
  table.insert(ns, "b", "c", object(1), false);
  table.insert(ns_of(3), "ab", "c", object(1), false);
  table.erase(ns, "ab", "c", 1);
  table.erase(ns, "ab", "c");
  EXPECT_THAT(take(), ElementsAre("w+ab|c1", "w+ab|c2", "w-ab|c1", "w-ab|c2"));
  table.cancel(id);
  id = table.subscribe(ns, {}, [&](auto&&...) {
    heard.push_back("once");
    table.cancel(id);
  });
  table.insert(ns, "ab", "c", object(9), false);
  table.insert(ns, "ab", "c", object(10), false);
  EXPECT_THAT(take(), ElementsAre("once"));
}

// --------------------------------------------------------------------------------------------------- against a model

// What the table is to do, by the simplest means.
struct Model {
  using Key = std::tuple<Namespace, std::string, std::string>;
  std::map<Key, std::map<std::uint64_t, std::uint64_t>> objects;  // sizes by version
  std::map<Key, std::set<std::uint64_t>> keeps;                   // versions put with keep_older
  std::multiset<std::pair<Key, int>> waiting;
  struct Row {
    Namespace ns;
    std::string row;
    std::size_t count;
    int number;
  };
  std::vector<Row> rows;
  std::set<int> called;

  std::size_t in_row(const Row& row) const {
    std::size_t count = 0;
    for (const auto& [key, versions] : objects) count += std::get<0>(key) == row.ns && std::get<1>(key) == row.row;
    return count;
  }
  void tell() {
    std::erase_if(waiting, [&](const auto& waiter) {
      return objects.contains(waiter.first) && (called.insert(waiter.second), true);
    });
    std::erase_if(rows, [&](const Row& row) { return in_row(row) >= row.count && (called.insert(row.number), true); });
  }
};

class RandomTable {
 public:
  explicit RandomTable(std::uint64_t salt) : random_(salt) {}

  void step() {
    const auto [ns, row, column] = key();
    auto& versions = model_.objects[{ns, row, column}];
    const std::uint64_t version = random_.from(1, 8);
    switch (random_.from(0, 9)) {
      case 0:
      case 1:
      case 2:
      case 3: {
        const bool keep = random_.chance(50);
        auto& keeps = model_.keeps[{ns, row, column}];
        const auto later = versions.lower_bound(version);  // itself, if it is there
        const bool taken = std::all_of(later, versions.end(),
                                       [&](const auto& v) { return v.first != version && keeps.contains(v.first); });
        ASSERT_EQ(table_.takes(ns, row, column, version), taken);
        ASSERT_EQ(table_.insert(ns, row, column, object(version, 10 * version), keep), taken);
        if (!taken) break;
        if (!keep) versions.erase(versions.begin(), later);
        versions[version] = 10 * version;
        if (keep) keeps.insert(version);
        else keeps.erase(version);
        break;
      }
      case 4:
        ASSERT_EQ(table_.erase(ns, row, column), !versions.empty());
        versions.clear();
        break;
      case 5: ASSERT_EQ(table_.erase(ns, row, column, version), versions.erase(version) > 0); break;
      case 6: {
        const int number = ++number_;
        const auto id = table_.wait(ns, row, column, [this, number] { called_.insert(number); });
        ASSERT_EQ(id == 0, !versions.empty());
        if (id != 0 && random_.chance(20)) table_.cancel(id);
        else model_.waiting.insert({{ns, row, column}, number});
        break;
      }
      case 7: {
        const int number = ++number_;
        const std::size_t count = random_.from(0, 4);
        table_.wait_row(ns, row, {}, count, [this, number] { called_.insert(number); });
        model_.rows.push_back({ns, row, count, number});
        break;
      }
      default: {
        const auto* found = table_.find(ns, row, column);
        ASSERT_EQ(found == nullptr, versions.empty());
        if (found) {
          ASSERT_EQ(found->version, versions.rbegin()->first);
        }
        const auto* one = table_.find(ns, row, column, version);
        ASSERT_EQ(one != nullptr, versions.contains(version));
        if (one) {
          ASSERT_EQ(one->bytes, 10 * version);
        }
      }
    }
    if (versions.empty()) model_.objects.erase({ns, row, column});
    model_.tell();
    ASSERT_EQ(called_, model_.called);
    ASSERT_EQ(table_.waiting(), model_.waiting.size() + model_.rows.size());
    ASSERT_EQ(table_.size(), model_.objects.size());
  }

  void compare() {
    std::uint64_t bytes = 0;
    std::vector<Model::Key> expected, found;
    for (const auto& [key, versions] : model_.objects) {
      expected.push_back(key);
      for (const auto& [version, size] : versions) bytes += size;
    }
    ASSERT_EQ(table_.bytes(), bytes);
    const auto collect = [&](const ObjectTable::Entry& entry) {
      found.emplace_back(entry.ns, entry.row, entry.column);
      return random_.chance(90);
    };
    std::string after;
    do after = table_.scan_all(after, random_.from(1, 5), collect);
    while (!after.empty());
    ASSERT_EQ(found, expected);

    const auto [ns, row, column] = key();
    const KeyPattern pattern(Pattern{random_.one_of<std::string>({"*", "a*", "?", "*b", "ab"}),
                                     random_.one_of<std::string>({"*", "a", "[ab]*", ""})});
    std::erase_if(expected, [&](const Model::Key& key) {
      return std::get<0>(key) != ns || !pattern.matches(std::get<1>(key), std::get<2>(key));
    });
    found.clear();
    do after = table_.scan(ns, pattern, after, random_.from(1, 5), collect);
    while (!after.empty());
    ASSERT_EQ(found, expected);
  }

 private:
  Model::Key key() {
    const auto text = [&] {
      std::string text;
      for (auto left = random_.from(0, 2); left > 0; --left) text.push_back(random_.one_of({'a', 'b', '\0'}));
      return text;
    };
    return {ns_of(static_cast<std::uint8_t>(random_.from(1, 2))), text(), text()};
  }
  model::Random random_;
  ObjectTable table_;
  Model model_;
  std::set<int> called_;
  int number_ = 0;
};

TEST(ObjectTable, AgreesWithAModel) {
  SCOPED_TRACE("PENSTOCK_TEST_SEED=" + std::to_string(model::test_seed()));
  for (std::uint64_t round = 0; round < 20; ++round) {
    RandomTable table(100 + round);
    for (int i = 0; i < 2000; ++i) {
      ASSERT_NO_FATAL_FAILURE(table.step()) << "round " << round << ", step " << i;
      if (i % 50 == 0) {
        ASSERT_NO_FATAL_FAILURE(table.compare()) << "round " << round << ", step " << i;
      }
    }
  }
}

}  // namespace
}  // namespace penstock::pool
