#include "pool/recorder.hpp"

#include <gtest/gtest.h>

#include "base/test_support.hpp"

namespace penstock::pool {
namespace {

TEST(Recorder, WithoutATraceNothingIsMade) {
  const auto recorder = Recorder::open("", "heat", {});
  EXPECT_EQ(recorder, nullptr);
  const auto never = []() -> Operation { throw std::logic_error("made"); };
  EXPECT_EQ(recorded(recorder, never, [] { return 7; }), 7);
}

TEST(Recorder, OutcomesOfEveryShape) {
  const TestFolder folder;
  const Key key{"row", "column"};
  const std::vector<Key> keys = {key, {"row", "other"}, {"row", "third"}};
  {
    const auto recorder = Recorder::open(folder / "one.trace", "heat", {});
    const auto on = [&](Verb verb) { return [&, verb] { return Operation::on(verb, {key}); }; };
    recorded(recorder, on(Verb::put), [] { return std::uint64_t{1}; });
    try {
      recorded(recorder, on(Verb::get), []() -> Object { throw Error(Errc::not_found, "none"); });
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::not_found);
    }
    std::vector<std::byte> bytes(9);
    recorded(recorder, on(Verb::need), [&] {
      Object object;
      object.bytes_ = bytes;
      return object;
    });
    recorded(
        recorder, [&] { return Operation::on(Verb::get, keys); },
        [&] {
          std::vector<Result<Object>> results(3);
          results[0].value.emplace().bytes_ = bytes;
          results[1].code = Errc::timeout;
          results[2].code = Errc::not_found;
          return results;
        });
    recorded(
        recorder,
        [] {
          return Operation::on(Verb::drop_pattern, {{"*", "*"}});
        },
        [] { return std::uint64_t{41}; });
    recorded(recorder, on(Verb::subscribe), [] { return std::make_unique<int>(1); });
  }
  const Trace trace = read_trace(folder / "one.trace");
  ASSERT_EQ(trace.records.size(), 6u);
  EXPECT_EQ(trace.clients.at(0), "heat");
  const auto& records = trace.records;
  EXPECT_EQ(records[0].outcome, Errc::ok);
  EXPECT_FALSE(records[0].batch);
  EXPECT_EQ(records[1].outcome, Errc::not_found);
  EXPECT_EQ(records[1].failed, 1u);
  EXPECT_EQ(records[2].sizes, std::vector<std::uint64_t>{9});
  EXPECT_TRUE(records[3].batch);
  EXPECT_EQ(records[3].outcome, Errc::timeout);
  EXPECT_EQ(records[3].failed, 2u);
  EXPECT_EQ(records[3].sizes, (std::vector<std::uint64_t>{9, 0, 0}));
  EXPECT_EQ(records[4].count, 41u);
  for (const auto& record : records) EXPECT_GE(record.duration_ns, 0);
}

}  // namespace
}  // namespace penstock::pool
