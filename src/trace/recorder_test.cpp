#include "trace/recorder.hpp"

#include <gtest/gtest.h>

#include "base/test_support.hpp"

namespace penstock::trace {
namespace {

TEST(Recorder, WithoutATraceNothingIsMade) {
  const auto recorder = Recorder::open("", "heat", {});
  EXPECT_EQ(recorder, nullptr);
  const auto never = []() -> Operation { throw std::logic_error("made"); };
  EXPECT_EQ(recorded(recorder, never, [] { return 7; }), 7);
}

// What a call came to, in the record of it.
template <class Result>
Operation noted(Verb verb, const Result& result, std::vector<Key> keys = {{"row", "column"}}) {
  Operation operation = Operation::on(verb, std::move(keys));
  note(operation, result);
  return operation;
}

TEST(Recorder, OutcomesOfEveryShape) {
  const std::vector<Key> keys = {{"row", "column"}, {"row", "other"}, {"row", "third"}};
  EXPECT_EQ(noted(Verb::put, std::uint64_t{1}).fields.outcome, Errc::ok);
  const auto missing = noted(Verb::get, Error(Errc::not_found, "none"));
  EXPECT_EQ(missing.fields.outcome, Errc::not_found);
  EXPECT_EQ(missing.fields.failed, 1u);
  std::vector<std::byte> bytes(9);
  Object object;
  object.bytes_ = bytes;
  EXPECT_EQ(noted(Verb::need, object).sizes, std::vector<std::uint64_t>{9});
  EXPECT_TRUE(noted(Verb::compute, object).sizes.empty());
  std::vector<Result<Object>> results(3);
  results[0].value.emplace().bytes_ = bytes;
  results[1].code = Errc::timeout;
  results[2].code = Errc::not_found;
  const auto batch = noted(Verb::get, results, keys);
  EXPECT_TRUE(batch.fields.batch);
  EXPECT_EQ(batch.fields.outcome, Errc::timeout);
  EXPECT_EQ(batch.fields.failed, 2u);
  EXPECT_EQ(batch.sizes, (std::vector<std::uint64_t>{9, 0, 0}));
  EXPECT_EQ(noted(Verb::drop_pattern, std::uint64_t{41}).fields.count, 41u);
}

TEST(Recorder, ErrorsPassThroughIt) {
  const TestFolder folder;
  const auto recorder = Recorder::open(folder / "one.trace", "heat", {});
  const auto get = [] { return Operation::on(Verb::get, {{"row", "column"}}); };
  EXPECT_EQ(recorded(recorder, get, [] { return 7; }), 7);
  EXPECT_EQ(code_of([&] { recorded(recorder, get, []() -> int { throw Error(Errc::not_found, "none"); }); }),
            Errc::not_found);
}

}  // namespace
}  // namespace penstock::trace
