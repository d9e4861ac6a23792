#include "model/layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "penstock/error.hpp"

namespace penstock::model {
namespace {

using testing::HasSubstr;
using Layouts = std::vector<std::shared_ptr<const RankLayout>>;

RankLayout half(int rank) {
  RankLayout layout;
  layout.rank = rank;
  layout.variables = {{"T", DType::float64, Kind::global_array, Order::row, {8, 4}, false}};
  layout.blocks = {{0, {{static_cast<std::uint64_t>(rank) * 4, 0}, {4, 4}}, 0, 64, 4 * 4 * 8}};
  return layout;
}

std::shared_ptr<const RankLayout> shared(RankLayout layout) {
  return std::make_shared<const RankLayout>(std::move(layout));
}

std::string layout_refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::protocol);
    return error.what();
  }
  return "";
}

TEST(Epoch, merges_ranks_by_name) {
  RankLayout first = half(0), second = half(1);
  second.variables.insert(second.variables.begin(), {"p", DType::int32, Kind::local_array, Order::column, {}, true});
  second.blocks.front().variable = 1;
  second.blocks.push_back({0, {{0}, {3}}, 2, 4, 12});
  const auto epoch = Epoch::build(7, {shared(first), shared(second)});
  EXPECT_EQ(epoch->number(), 7u);
  ASSERT_EQ(epoch->variables().size(), 2u);
  EXPECT_EQ(epoch->variables()[0].name, "T");
  EXPECT_EQ(epoch->variables()[0].blocks, 2u);
  EXPECT_EQ(epoch->variables()[1].name, "p");
  EXPECT_EQ(epoch->find("p")->info.id, 1u);
  EXPECT_EQ(epoch->find("q"), nullptr);
  const auto& temperature = epoch->variable("T");
  EXPECT_EQ(temperature.blocks[1].writer_rank, 1);
  EXPECT_EQ(temperature.blocks[1].rank_block, 0u);
  EXPECT_FALSE(temperature.overlapping);
  const auto& p = epoch->variable("p").blocks.at(0);
  EXPECT_EQ(p.segment, 2u);
  EXPECT_EQ(p.offset, 4u);
  EXPECT_EQ(p.bytes, 12u);
  EXPECT_EQ(p.rank_block, 1u);
  EXPECT_TRUE(p.min_max);
}

TEST(Epoch, numbers_empty_blocks_and_never_finds_them) {
  RankLayout first = half(0);
  first.blocks.insert(first.blocks.begin(), {0, {{1, 0}, {0, 4}}, 0, 0, 0});
  const auto epoch = Epoch::build(1, {shared(first)});
  const auto& T = epoch->variable("T");
  ASSERT_EQ(T.blocks.size(), 2u);
  EXPECT_EQ(T.blocks[1].rank_block, 1u);
  EXPECT_FALSE(T.overlapping);
  std::vector<std::uint32_t> found;
  T.query({{0, 0}, {8, 4}}, found);
  EXPECT_EQ(found, std::vector<std::uint32_t>{1});
}

TEST(Epoch, holds_what_a_rank_put) {
  RankLayout first = half(0), second = half(1);
  first.variables.push_back({"n", DType::int64, Kind::global_value, Order::row, {}, false});
  first.blocks.clear();
  first.variables[0].shape = {8, 9};  // of a rank that puts nothing of it
  const auto epoch = Epoch::build(1, {shared(first), shared(second)});
  ASSERT_EQ(epoch->variables().size(), 1u);
  EXPECT_EQ(epoch->variables()[0].id, 0u);
  EXPECT_EQ(epoch->variable("T").info.shape, (Dims{8, 4}));
  EXPECT_EQ(epoch->defined().size(), 2u);
  EXPECT_EQ(epoch->find("n"), nullptr);
  EXPECT_EQ(epoch->find(1), nullptr);
  EXPECT_THROW(epoch->variable(1), Error);
}

TEST(Epoch, gives_local_values_a_shape) {
  Layouts layouts;
  for (int rank = 0; rank < 3; ++rank) {
    RankLayout layout;
    layout.rank = rank;
    layout.variables = {{"n", DType::int64, Kind::local_value, Order::row, {}, false},
                        {"who", DType::string, Kind::local_value, Order::row, {}, false}};
    if (rank != 1) layout.blocks = {{0, {}, 0, 8, 8}, {1, {}, 0, 16, 5}};
    layouts.push_back(shared(layout));
  }
  const auto epoch = Epoch::build(1, layouts);
  EXPECT_EQ(epoch->variable("n").info.shape, (Dims{2}));
  EXPECT_EQ(epoch->variable("n").blocks[1].box, (Box{{1}, {1}}));
  EXPECT_EQ(epoch->variable("n").blocks[1].writer_rank, 2);
  EXPECT_EQ(epoch->variable("who").blocks[1].bytes, 5u);
}

TEST(Epoch, sees_overlap) {
  RankLayout second = half(1);
  second.blocks[0].box.start[0] = 3;
  EXPECT_TRUE(Epoch::build(1, {shared(half(0)), shared(second)})->variable("T").overlapping);
}

TEST(Epoch, says_which_ranks_disagree) {
  RankLayout second = half(1);
  second.variables[0].dtype = DType::int64;
  const auto message = layout_refusal([&] { Epoch::build(1, {shared(half(0)), shared(second)}); });
  EXPECT_THAT(message, HasSubstr("'T'"));
  EXPECT_THAT(message, HasSubstr("rank 0 has float64"));
  EXPECT_THAT(message, HasSubstr("rank 1 has int64"));
  second = half(1);
  second.variables[0].shape = {8, 5};
  EXPECT_THAT(layout_refusal([&] { Epoch::build(1, {shared(half(0)), shared(second)}); }), HasSubstr("8x5"));
  EXPECT_THAT(layout_refusal([&] { Epoch::build(1, {shared(half(1))}); }), HasSubstr("rank 0"));
  EXPECT_THAT(layout_refusal([&] { Epoch::build(1, {nullptr}); }), HasSubstr("rank 0"));
}

TEST(Epoch, suggests_the_nearest_name) {
  RankLayout layout = half(0);
  layout.variables[0].name = "temperature";
  const auto epoch = Epoch::build(1, {shared(layout)});
  EXPECT_EQ(epoch->nearest("temprature"), "temperature");
  EXPECT_EQ(epoch->nearest("p"), "");
  EXPECT_THROW(epoch->variable("temprature"), Error);
  EXPECT_THROW(epoch->variable(3), Error);
}

TEST(RankLayout, every_field_is_checked) {
  const std::uint64_t top = ~std::uint64_t{0};
  const std::vector<std::function<void(RankLayout&)>> spoilers = {
      [](RankLayout& l) { l.rank = -1; },
      [](RankLayout& l) { l.variables[0].name = ""; },
      [](RankLayout& l) { l.variables[0].name = std::string(5000, 'x'); },
      [](RankLayout& l) { l.variables[0].dtype = DType::none; },
      [](RankLayout& l) { l.variables[0].dtype = static_cast<DType>(99); },
      [](RankLayout& l) { l.variables[0].dtype = DType::string; },
      [](RankLayout& l) { l.variables[0].kind = static_cast<Kind>(9); },
      [](RankLayout& l) { l.variables[0].kind = Kind::local_array; },
      [](RankLayout& l) { l.variables[0].order = static_cast<Order>(2); },
      [=](RankLayout& l) {
        l.variables[0].shape = {top, 4};
      },
      [](RankLayout& l) { l.variables.push_back(l.variables[0]); },
      [](RankLayout& l) { l.variables.resize(max_variables + 1, l.variables[0]); },
      [](RankLayout& l) { l.blocks[0].variable = 1; },
      [](RankLayout& l) { l.blocks[0].box.start[0] = 5; },
      [=](RankLayout& l) { l.blocks[0].box.start[0] = top; },
      [=](RankLayout& l) { l.blocks[0].box.count[1] = top; },
      [](RankLayout& l) {
        l.blocks[0].box = {{0}, {4}};
      },
      [](RankLayout& l) { l.blocks[0].box.start = {0}; },
      [](RankLayout& l) { l.blocks[0].segment = max_segments; },
      [](RankLayout& l) { l.blocks[0].bytes += 8; },
      [](RankLayout& l) { l.blocks[0].bytes = 0; },
      [](RankLayout& l) { l.blocks[0].offset = 3; },
      [=](RankLayout& l) { l.blocks[0].offset = top - 127; },
      [=](RankLayout& l) { l.blocks[0].offset = top / 2 - 63; },
      [](RankLayout& l) { l.blocks[0].strides = {64}; },
      [=](RankLayout& l) {
        l.blocks[0].strides = {top, 8};
      },
      [=](RankLayout& l) {
        l.blocks[0].strides = {top / 6, top / 6};
      },
      [=](RankLayout& l) {
        l.blocks[0].strides = {top / 8, 8};
        l.blocks[0].offset = top / 2 / 64 * 64;
      },
  };
  EXPECT_NO_THROW(validate(half(0)));
  for (std::size_t i = 0; i < spoilers.size(); ++i) {
    RankLayout layout = half(0);
    spoilers[i](layout);
    EXPECT_NE(layout_refusal([&] { validate(layout); }), "") << "spoiler " << i;
  }
}

TEST(RankLayout, values_and_local_arrays_have_their_own_rules) {
  RankLayout layout;
  layout.variables = {{"v", DType::int8, Kind::global_value, Order::row, {}, false}};
  layout.blocks = {{0, {{0}, {1}}, 0, 0, 1}};
  EXPECT_THAT(layout_refusal([&] { validate(layout); }), HasSubstr("dimensions"));
  layout.variables[0].kind = Kind::local_array;
  EXPECT_NO_THROW(validate(layout));
  layout.blocks[0].box.start[0] = 1;
  EXPECT_THAT(layout_refusal([&] { validate(layout); }), HasSubstr("zero"));
}

}  // namespace
}  // namespace penstock::model
