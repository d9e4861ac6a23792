#include "model/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/plan_cache.hpp"
#include "penstock/error.hpp"

namespace penstock::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// One writer rank per block; its segment 0 holds the block alone.
struct Step {
  std::shared_ptr<const Epoch> epoch;
  std::vector<std::vector<std::byte>> segments;

  template <class T>
  static Step of(VariableDefinition definition, const std::vector<std::pair<Box, std::vector<T>>>& blocks,
                 std::uint64_t number = 1) {
    Step step;
    definition.dtype = dtype_of<T>();
    std::vector<std::shared_ptr<const RankLayout>> layouts;
    for (const auto& [box, values] : blocks) {
      auto layout = std::make_shared<RankLayout>();
      layout->rank = static_cast<int>(layouts.size());
      layout->variables = {definition};
      layout->blocks = {{0, box, 0, 0, values.size() * sizeof(T)}};
      layouts.push_back(layout);
      const auto raw = std::as_bytes(std::span(values));
      step.segments.emplace_back(raw.begin(), raw.end());
    }
    step.epoch = Epoch::build(number, layouts);
    return step;
  }
  const VariableLayout& variable() const { return step_variable(); }
  template <class T>
  std::vector<T> get(const Selection& selection, T fill, const Destination& destination = {}) const {
    std::vector<T> out(element_count(shape_of(variable(), selection)), fill);
    const auto plan = make_plan(variable(), selection, destination);
    for (const auto& piece : plan.pieces())
      execute(piece, segments[static_cast<std::size_t>(piece.writer_rank)].data(), out.data());
    return out;
  }

 private:
  const VariableLayout& step_variable() const { return epoch->variable(std::uint32_t{0}); }
};

VariableDefinition global(Dims shape, Order order = Order::row) {
  return {"T", DType::none, Kind::global_array, order, shape, false};
}

Step two_halves() {
  return Step::of<int>(global({4, 3}), {{{{0, 0}, {2, 3}}, {0, 1, 2, 10, 11, 12}},  //
                                        {{{2, 0}, {2, 3}}, {20, 21, 22, 30, 31, 32}}});
}

std::string plan_refusal(const VariableLayout& variable, const Selection& selection,
                         const Destination& destination = {}) {
  try {
    make_plan(variable, selection, destination);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Plan, joins_blocks) {
  const Step step = two_halves();
  EXPECT_THAT(step.get(Selection::all(), -1), ElementsAre(0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32));
  EXPECT_THAT(step.get(Selection::box({1, 1}, {2, 2}), -1), ElementsAre(11, 12, 21, 22));
  EXPECT_THAT(step.get(Selection::strided({0, 0}, {2, 2}, {3, 2}), -1), ElementsAre(0, 2, 30, 32));
  EXPECT_THAT(step.get(Selection::block(1), -1), ElementsAre(20, 21, 22, 30, 31, 32));
  EXPECT_THAT(step.get(Selection::points({3, 2, 0, 0, 3, 2}, 2), -1), ElementsAre(32, 0, 32));
  EXPECT_THAT(step.get(Selection::box({0, 1}, {3, 1}), -1, {Order::column, {}}), ElementsAre(1, 11, 21));
  EXPECT_TRUE(step.get(Selection::box({4, 0}, {0, 3}), -1).empty());
}

TEST(Plan, the_highest_block_wins_and_holes_stay) {
  const Step step = Step::of<int>(global({5}), {{{{0}, {3}}, {1, 1, 1}}, {{{2}, {2}}, {2, 2}}});
  EXPECT_THAT(step.get(Selection::all(), -1), ElementsAre(1, 1, 2, 2, -1));
  EXPECT_THAT(step.get(Selection::points({2, 4}, 1), -1), ElementsAre(2, -1));
  EXPECT_TRUE(make_plan(step.variable(), Selection::all()).overlapping());
  EXPECT_FALSE(make_plan(step.variable(), Selection::box({3}, {1})).overlapping());
}

TEST(Plan, values) {
  const Step local = Step::of<double>({"n", DType::none, Kind::local_value, Order::row, {}, false},
                                      {{{}, {1.5}}, {{}, {2.5}}, {{}, {3.5}}});
  EXPECT_THAT(local.get(Selection::all(), 0.0), ElementsAre(1.5, 2.5, 3.5));
  EXPECT_THAT(local.get(Selection::box({1}, {2}), 0.0), ElementsAre(2.5, 3.5));
  EXPECT_THAT(local.get(Selection::block(2), 0.0), ElementsAre(3.5));
  EXPECT_EQ(shape_of(local.variable(), Selection::block(2)), Dims{});
  const Step global_value =
      Step::of<double>({"t", DType::none, Kind::global_value, Order::row, {}, false}, {{{}, {1.5}}, {{}, {2.5}}});
  EXPECT_THAT(global_value.get(Selection::all(), 0.0), ElementsAre(2.5));
  EXPECT_THAT(global_value.get(Selection::box({}, {}), 0.0), ElementsAre(2.5));
  EXPECT_THAT(global_value.get(Selection::block(0), 0.0), ElementsAre(1.5));
}

TEST(Plan, local_arrays_are_read_by_block) {
  const VariableDefinition local{"p", DType::none, Kind::local_array, Order::column, {}, false};
  const Step one = Step::of<int>(local, {{{{0, 0}, {2, 2}}, {1, 2, 3, 4}}});
  EXPECT_THAT(one.get(Selection::all(), 0), ElementsAre(1, 3, 2, 4));
  const Step two = Step::of<int>(local, {{{{0, 0}, {2, 2}}, {1, 2, 3, 4}}, {{{0}, {1}}, {9}}});
  EXPECT_THAT(two.get(Selection::block(1), 0), ElementsAre(9));
  EXPECT_THAT(plan_refusal(two.variable(), Selection::all()), HasSubstr("2 blocks"));
  EXPECT_THAT(plan_refusal(two.variable(), Selection::box({0}, {1})), HasSubstr("by block"));
  EXPECT_THAT(plan_refusal(two.variable(), Selection::points({0}, 1)), HasSubstr("by block"));
}

TEST(Plan, refuses_what_is_outside) {
  const Step step = two_halves();
  const std::uint64_t top = ~std::uint64_t{0};
  EXPECT_THAT(plan_refusal(step.variable(), Selection::box({0}, {4})), HasSubstr("dimensions"));
  EXPECT_THAT(plan_refusal(step.variable(), Selection::box({0, 0}, {5, 3})), HasSubstr("outside the shape 4x3"));
  EXPECT_THAT(plan_refusal(step.variable(), Selection::box({top, 0}, {2, 3})), HasSubstr("outside"));
  EXPECT_THAT(plan_refusal(step.variable(), Selection::box({1, 0}, {top, 3})), HasSubstr("outside"));
  EXPECT_THAT(plan_refusal(step.variable(), Selection::strided({0, 0}, {3, 3}, {2, 1})), HasSubstr("outside"));
  EXPECT_THAT(plan_refusal(step.variable(), Selection::strided({0, 0}, {2, 3}, {top, 1})), HasSubstr("outside"));
  EXPECT_EQ(plan_refusal(step.variable(), Selection::strided({0, 0}, {1, 3}, {top, 1})), "");
  EXPECT_THAT(plan_refusal(step.variable(), Selection::points({0, 3}, 2)), HasSubstr("point 0"));
  EXPECT_THAT(plan_refusal(step.variable(), Selection::points({0, 0, 0}, 3)), HasSubstr("dimensions"));
  EXPECT_THAT(plan_refusal(step.variable(), Selection::block(2)), HasSubstr("block 2"));
  const std::int64_t one[] = {8}, vast[] = {INT64_MIN, 4}, wide[] = {INT64_MAX / 2, 4};
  EXPECT_THAT(plan_refusal(step.variable(), Selection::all(), {Order::row, one}), HasSubstr("strides"));
  EXPECT_THAT(plan_refusal(step.variable(), Selection::all(), {Order::row, vast}), HasSubstr("too large"));
  EXPECT_THAT(plan_refusal(step.variable(), Selection::all(), {Order::row, wide}), HasSubstr("too large"));
}

TEST(Plan, strings_are_not_planned) {
  auto layout = std::make_shared<RankLayout>();
  layout->variables = {{"who", DType::string, Kind::global_value, Order::row, {}, false}};
  layout->blocks = {{0, {}, 0, 0, 5}};
  const auto epoch = Epoch::build(1, {layout});
  EXPECT_THROW(make_plan(epoch->variable("who"), Selection::all()), Error);
  EXPECT_EQ(shape_of(epoch->variable("who"), Selection::all()), Dims{});
}

TEST(Plan, lists_source_runs) {
  const Step step = two_halves();
  const auto plan = make_plan(step.variable(), Selection::box({0, 1}, {3, 2}));
  ASSERT_EQ(plan.pieces().size(), 2u);
  std::vector<SourceRun> runs;
  ASSERT_TRUE(contiguous_runs(plan.pieces()[0], 8, 2, runs));
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[1].offset, 16u);
  EXPECT_EQ(runs[1].bytes, 8u);
  EXPECT_FALSE(contiguous_runs(plan.pieces()[0], 9, 2, runs));
  EXPECT_FALSE(contiguous_runs(plan.pieces()[0], 8, 1, runs));
  EXPECT_EQ(runs.size(), 2u);
  EXPECT_TRUE(packed_is_contiguous_at_destination(plan.pieces()[0]));
  EXPECT_EQ(plan.bytes(), 24u);
}

TEST(Plan, views_the_parts_of_each_block) {
  const Step step = two_halves();
  const auto parts = view_parts(step.variable(), Selection::box({1, 1}, {2, 2}));
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].box, (Box{{1, 1}, {1, 2}}));
  EXPECT_EQ(parts[0].offset, 16u);
  EXPECT_EQ(parts[0].bytes, 8u);
  EXPECT_EQ(parts[0].strides[0], 12);
  EXPECT_EQ(parts[1].writer_rank, 1);
  EXPECT_EQ(view_parts(step.variable(), Selection::all()).size(), 2u);
  EXPECT_EQ(view_parts(step.variable(), Selection::block(1)).at(0).bytes, 24u);
  EXPECT_THROW(view_parts(step.variable(), Selection::points({0, 0}, 2)), Error);
  EXPECT_THROW(view_parts(step.variable(), Selection::strided({0, 0}, {2, 1}, {2, 1})), Error);
  EXPECT_THROW(view_parts(step.variable(), Selection::box({0, 0}, {9, 9})), Error);
}

TEST(PlanCache, plans_once) {
  const Step step = two_halves();
  PlanCache cache;
  const auto first = cache.get(*step.epoch, 0, Selection::box({0, 0}, {2, 2}));
  EXPECT_EQ(cache.get(*step.epoch, 0, Selection::box({0, 0}, {2, 2})), first);
  EXPECT_EQ(cache.built(), 1u);
  EXPECT_EQ(cache.reused(), 1u);
  const std::int64_t strides[] = {8, 4}, others[] = {16, 4};
  const std::vector<std::shared_ptr<const Plan>> different = {
      cache.get(*step.epoch, 0, Selection::box({0, 0}, {2, 3})),
      cache.get(*step.epoch, 0, Selection::box({0, 0}, {2, 2}), {Order::column, {}}),
      cache.get(*step.epoch, 0, Selection::box({0, 0}, {2, 2}), {Order::row, strides}),
      cache.get(*step.epoch, 0, Selection::box({0, 0}, {2, 2}), {Order::row, others}),
      cache.get(*step.epoch, 0, Selection::strided({0, 0}, {2, 2}, {2, 1})),
      cache.get(*step.epoch, 0, Selection::block(0)),
      cache.get(*step.epoch, 0, Selection::points({0, 0, 2, 2}, 2)),
      cache.get(*step.epoch, 0, Selection::all())};
  EXPECT_EQ(cache.built(), 9u);
  EXPECT_EQ(cache.reused(), 1u);
  EXPECT_EQ(cache.get(*step.epoch, 0, Selection::all()), different.back());
  EXPECT_THROW(cache.get(*step.epoch, 1, Selection::all()), Error);
}

TEST(PlanCache, forgets_with_the_epoch_and_when_full) {
  const Step step = two_halves();
  const Step next = Step::of<int>(global({6}), {{{{0}, {6}}, {1, 2, 3, 4, 5, 6}}}, 2);
  PlanCache cache(2);
  cache.get(*step.epoch, 0, Selection::all());
  EXPECT_EQ(cache.get(*next.epoch, 0, Selection::all())->bytes(), 24u);
  cache.get(*next.epoch, 0, Selection::block(0));
  EXPECT_EQ(cache.built(), 3u);
  const auto kept = cache.get(*next.epoch, 0, Selection::box({0}, {1}));  // empties the cache first
  cache.get(*next.epoch, 0, Selection::all());
  EXPECT_EQ(cache.built(), 5u);
  cache.get(*next.epoch, 0, Selection::box({0}, {1}));
  EXPECT_EQ(cache.reused(), 1u);
  cache.clear();
  EXPECT_EQ(kept->pieces().size(), 1u);
}

TEST(PlanCache, does_not_keep_what_is_too_large) {
  const Step step = two_halves();
  PlanCache cache(16, 1);
  EXPECT_EQ(cache.get(*step.epoch, 0, Selection::all())->pieces().size(), 2u);
  cache.get(*step.epoch, 0, Selection::all());
  EXPECT_EQ(cache.built(), 2u);
}

}  // namespace
}  // namespace penstock::model
