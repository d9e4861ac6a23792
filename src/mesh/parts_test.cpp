// Spreading and joining: join(spread(x)) is x, for any parts.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "mesh/join.hpp"
#include "mesh/mesh_test_support.hpp"
#include "mesh/numbering.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

using Make = std::function<std::shared_ptr<Source>()>;

Make of_text(const std::string& name) {
  return [name]() -> std::shared_ptr<Source> { return generated(name); };
}
Make copies_of(const MemorySource& source) {
  return [source] { return std::make_shared<MemorySource>(source); };
}

void expect_same_after(const Make& make, const Assignment& assignment, std::uint32_t parts) {
  const std::shared_ptr<Source> apart = spread(make(), assignment, parts);
  for (std::uint32_t part = 0; part < parts; ++part) ASSERT_NO_THROW(check(apart->model(part)));
  const auto again = join(apart);
  expect_same(*make(), 0, *again, 0);
}

TEST(SpreadAndJoin, AnyNumberOfParts) {
  for (const std::uint32_t parts : {1U, 2U, 3U, 8U, 33U}) {
    const auto whole = of_text("5x4x6|times:2|nodal:1|element:2|global:1|nodeset:xYz|sideset:XyZ");
    expect_same_after(whole, assign_linear(whole()->model(0), parts), parts);
  }
}

TEST(SpreadAndJoin, AnyAssignment) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const std::uint32_t parts = 1 + random() % 7;
    const auto whole = of_text("3x4x5|times:1|nodal:1|element:1|nodeset:xX|sideset:zZ");
    Assignment assignment(60);
    for (auto& part : assignment) part = static_cast<std::uint32_t>(random() % parts);
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_same_after(whole, assignment, parts);
  }
}

TEST(SpreadAndJoin, EveryEntity) {
  for (const auto dtype : {DType::int32, DType::int64})
    for (unsigned choice = 0; choice < 81; ++choice) {  // four elements, three parts
      const auto whole = copies_of(every_entity(dtype));
      const Assignment assignment{choice % 3, choice / 3 % 3, choice / 9 % 3, choice / 27 % 3};
      SCOPED_TRACE("assignment " + std::to_string(choice));
      expect_same_after(whole, assignment, 3);
    }
}

// Ids in no order, and sets whose members are in none.
TEST(SpreadAndJoin, OrderIsKept) {
  auto whole = every_entity(DType::int64);
  whole.give(EntityType::node_block, "nodeblock_1", "ids",
             {90, 3, 5, 1, 2, 70, 7, 8, 9, 100, 11, 12, 13, 14, 4, 16, 17});
  whole.give(EntityType::element_block, "bricks", "ids", {40, 7});
  whole.give(EntityType::element_block, "tets", "ids", {3});
  whole.give(EntityType::element_block, "polyhedra", "ids", {99});
  whole.give(EntityType::node_set, "clamped", "members", {3, 0, 2, 1});
  whole.give(EntityType::side_set, "loaded", "element_side", {1, 6, 0, 5});
  for (unsigned choice = 0; choice < 81; ++choice)
    expect_same_after(copies_of(whole), {choice % 3, choice / 3 % 3, choice / 9 % 3, choice / 27 % 3}, 3);
}

// Each shared node is named by each part that has it, for each other one.
TEST(SpreadAndJoin, SharedNodesAreMutual) {
  const std::shared_ptr<Source> whole = generated("4x4x4");
  const auto apart = spread(whole, assign_linear(whole->model(0), 5), 5);
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> shared;  // node, here, there
  for (std::uint32_t part = 0; part < 5; ++part) {
    const auto& model = apart->model(part);
    const auto ids = read_integers(*apart, part, {1, field_place(model.entities[1], Role::mesh, "ids")});
    const auto comm = entity_place(model, EntityType::comm_set, "commset_node");
    ASSERT_NE(comm, SIZE_MAX);
    const auto pairs = read_integers(*apart, part, {comm, 0});
    for (std::size_t i = 0; i < pairs.size(); i += 2)
      shared.emplace(ids.at(static_cast<std::size_t>(pairs[i])), part, pairs[i + 1]);
  }
  EXPECT_GT(shared.size(), 100U);
  for (const auto& [node, here, there] : shared) EXPECT_TRUE(shared.contains({node, there, here}));
}

TEST(SpreadAndJoin, BlocksAlone) {
  const auto whole = std::make_shared<MemorySource>(every_entity(DType::int32));
  const auto part = spread(whole, assign_blocks(whole->model(0), {"tets"}), 1);
  const auto& model = part->model(0);
  EXPECT_EQ(model.at(EntityType::element_block, "bricks").count, 0U);
  EXPECT_EQ(model.at(EntityType::element_block, "tets").count, 1U);
  EXPECT_EQ(model.count_of(EntityType::node_block), 4U);
  const auto tets = entity_place(model, EntityType::element_block, "tets");
  EXPECT_EQ(read_integers(*part, 0, {tets, field_place(model.entities[tets], Role::mesh, "connectivity")}),
            (std::vector<std::int64_t>{0, 1, 2, 3}));
}

TEST(SpreadAndJoin, WrongAssignmentsAreRefused) {
  const std::shared_ptr<Source> whole = generated("2x2x2");
  EXPECT_THROW(static_cast<void>(spread(whole, Assignment(7, 0), 1)), Error);
  EXPECT_THROW(static_cast<void>(spread(whole, Assignment(8, 2), 2)), Error);
  EXPECT_THROW(static_cast<void>(spread(whole, Assignment(8, 0), 0)), Error);
  EXPECT_THROW(static_cast<void>(assign_blocks(whole->model(0), {"block_2"})), Error);
}

TEST(SpreadAndJoin, NumbersThatAreNotThereAreRefused) {
  const auto with = [](EntityType type, const char* entity, const char* field, std::vector<std::int64_t> values) {
    auto source = every_entity(DType::int64);
    source.give(type, entity, field, std::move(values));
    try {
      const std::shared_ptr<Source> whole = std::make_shared<MemorySource>(source);
      const std::shared_ptr<Source> apart = spread(whole, {0, 1, 0, 1}, 2);
      const auto again = join(apart);
      each_model_field(again->model(0), [&](Slot slot) { static_cast<void>(read_whole(*again, 0, slot)); });
    } catch (const Error& e) {
      return e.code();
    }
    return Errc::ok;
  };
  using T = EntityType;
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{99}, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(with(T::element_block, "tets", "connectivity", {8, 9, 10, bad}), Errc::invalid_argument) << bad;
    EXPECT_EQ(with(T::element_block, "polyhedra", "connectivity", {2, 3, 4, 5, bad}), Errc::invalid_argument) << bad;
    EXPECT_EQ(with(T::element_block, "polyhedra", "entity_counts", {bad}), Errc::invalid_argument) << bad;
    EXPECT_EQ(with(T::face_block, "polygons", "entity_counts", {3, bad, 4, 4, 3}), Errc::invalid_argument) << bad;
    EXPECT_EQ(with(T::side_set, "loaded", "element_side", {0, bad, 1, 6}), Errc::invalid_argument) << bad;
  }
  const auto whole = std::make_shared<MemorySource>(every_entity(DType::int64));
  const auto apart = spread(whole, {0, 1, 0, 1}, 2);
  std::vector<double> out(1000);
  EXPECT_THROW(apart->read(0, {1, 0}, {0, 500}, out.data()), Error);
  EXPECT_THROW(apart->read(2, {1, 0}, {0, 1}, out.data()), Error);
  EXPECT_THROW(apart->read(0, {99, 0}, {0, 1}, out.data()), Error);
}

// Parts that a simulation wrote, in any number of others.
TEST(SpreadAndJoin, PartsInOtherParts) {
  const Make joined = []() -> std::shared_ptr<Source> {
    return join(generated("4x3x8|parts:4|times:2|nodal:1|nodeset:zZ|sideset:zZ"));
  };
  expect_same(*generated("4x3x8|times:2|nodal:1|nodeset:zZ|sideset:zZ"), 0, *joined(), 0);
  expect_same_after(joined, assign_linear(joined()->model(0), 3), 3);
}

}  // namespace
}  // namespace penstock::mesh
