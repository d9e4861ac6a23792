#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "mesh/mesh_test_support.hpp"
#include "mesh/storage_names.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

using testing::HasSubstr;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(MeshModel, ContradictionsAreRefused) {
  const auto model = every_entity(DType::int32).model(0);
  EXPECT_NO_THROW(check(model));
  const auto with = [&](const std::function<void(Model&)>& change) {
    Model changed = model;
    change(changed);
    return refusal([&] { check(changed); });
  };
  EXPECT_THAT(with([](Model& m) { m.entities[6].name = "bricks"; }),
              HasSubstr("element_block 'bricks': the name is used twice"));
  EXPECT_THAT(with([](Model& m) { m.entities[6].id = 10; }), HasSubstr("another one has id 10"));
  EXPECT_THAT(with([](Model& m) { m.entities[1].fields[0].storage = "vector_4d"; }),
              HasSubstr("'vector_4d' is no storage"));
  EXPECT_THAT(with([](Model& m) { m.entities[1].fields[0].storage = "[0]"; }), HasSubstr("is no storage"));
  EXPECT_THAT(with([](Model& m) { m.entities[1].fields[0].storage = "[999999999]"; }), HasSubstr("is no storage"));
  EXPECT_THAT(with([](Model& m) { m.entities[1].fields.push_back(m.entities[1].fields[0]); }),
              HasSubstr("is there twice"));
  EXPECT_THAT(with([](Model& m) { m.entities[5].count = UINT64_MAX / 2; }), HasSubstr("element_block 'bricks'"));
  EXPECT_THAT(with([](Model& m) {
                m.entities.back().fields[0].components = {"a", "b"};
              }),
              HasSubstr("names 2 components"));
  EXPECT_THAT(with([](Model& m) { m.entities[m.entities.size() - 3].members = {"brick"}; }),
              HasSubstr("no element_block 'brick'"));
  EXPECT_THAT(with([](Model& m) { m.dimensions = 4; }), HasSubstr("at most 3"));
}

TEST(MeshModel, StructuredBlocksAreChecked) {
  const auto model = structured_blocks().model(0);
  EXPECT_NO_THROW(check(model));
  const auto place = static_cast<std::size_t>(&model.at(EntityType::structured_block, "left") - model.entities.data());
  const auto with = [&](const std::function<void(Entity&, Structured&)>& change) {
    Model changed = model;
    change(changed.entities[place], *changed.entities[place].structured);
    return refusal([&] { check(changed); });
  };
  const auto connected = [&](const std::function<void(ZoneConnectivity&)>& change) {
    return with([&](Entity&, Structured& its) { change(its.connectivities[0]); });
  };
  const auto bounded = [&](const std::function<void(BoundaryCondition&)>& change) {
    return with([&](Entity&, Structured& its) { change(its.boundaries[0]); });
  };
  EXPECT_THAT(with([](Entity& e, Structured&) { e.count = 13; }),
              HasSubstr("structured_block 'left': count is 13, and there are 12 cells, 2 3 2"));
  EXPECT_THAT(with([](Entity& e, Structured&) { e.structured.reset(); }), HasSubstr("are not given"));
  EXPECT_THAT(with([](Entity&, Structured& s) { s.whole = {2, 3, 1}; }), HasSubstr("not inside of the whole, 2 3 1"));
  EXPECT_THAT(with([](Entity&, Structured& s) { s.whole = {2, 0, 2}; }), HasSubstr("the whole has 2 0 2 cells"));
  EXPECT_THAT(with([](Entity&, Structured& s) { s.offset = {0, 1, 0}; }), HasSubstr("from 0 1 0 on are not inside"));
  EXPECT_THAT(with([](Entity&, Structured& s) { s.offset = {0, -1, 0}; }), HasSubstr("are not inside"));
  EXPECT_THAT(with([](Entity&, Structured& s) { s.cells = {2, 0, 2}; }), HasSubstr("along all axes or along none"));
  EXPECT_THAT(with([](Entity& e, Structured& s) {
                s.cells = {1, 3, 2};
                e.count = 6;
              }),
              HasSubstr("has 36 nodes, and the cells have 24"));
  EXPECT_THAT(with([](Entity&, Structured& s) {
                s.whole = {2, INT64_MAX, INT64_MAX};
              }),
              HasSubstr("structured_block 'left': an array of"));
  EXPECT_THAT(with([](Entity& e, Structured&) { e.type = EntityType::blob; }),
              HasSubstr("blob 'left': only a structured block"));
  EXPECT_THAT(connected([](ZoneConnectivity& z) { z.name.clear(); }), HasSubstr("a connectivity has no name"));
  EXPECT_THAT(connected([](ZoneConnectivity& z) { z.donor = "rihgt"; }), HasSubstr("no structured block 'rihgt'"));
  EXPECT_THAT(connected([](ZoneConnectivity& z) { z.transform = {3, -1, 1}; }), HasSubstr("each of the axes 1, 2, 3"));
  EXPECT_THAT(connected([](ZoneConnectivity& z) { z.transform = {4, -1, 2}; }), HasSubstr("each of the axes 1, 2, 3"));
  EXPECT_THAT(connected([](ZoneConnectivity& z) {
                z.transform = {3, 1, 2};
              }),
              HasSubstr("connectivity 'seam': axis j goes 3 nodes on, and axis i of the donor -3"));
  EXPECT_THAT(connected([](ZoneConnectivity& z) { z.owner_range.last[1] = 4; }),
              HasSubstr("nodes 2 0 0 to 2 4 2 are not inside of the part's, 0 0 0 to 2 3 2"));
  EXPECT_THAT(connected([](ZoneConnectivity& z) { z.donor_range.first[0] = 4; }),
              HasSubstr("are not inside of the donor's, 0 0 0 to 3 2 4"));
  EXPECT_THAT(connected([](ZoneConnectivity& z) { z.decomposition = true; }), HasSubstr("its own donor"));
  EXPECT_THAT(bounded([](BoundaryCondition& b) { b.face = 6; }), HasSubstr("face 6 is none of 0 to 5"));
  EXPECT_THAT(bounded([](BoundaryCondition& b) { b.face = 3; }), HasSubstr("not on face 3, which has i 2"));
  EXPECT_THAT(bounded([](BoundaryCondition& b) { b.range.last[2] = 3; }), HasSubstr("'inlet': nodes 0 0 0 to 0 3 3"));
  Model without = model;
  without.entities.erase(without.entities.begin());
  EXPECT_THAT(refusal([&] { check(without); }), HasSubstr("'left': there is no node block of this name"));
}

TEST(MeshModel, NamesSuggestTheNearest) {
  const auto model = every_entity(DType::int32).model(0);
  EXPECT_THAT(refusal([&] { static_cast<void>(model.at(EntityType::element_block, "brics")); }),
              HasSubstr("did you mean 'bricks'"));
  EXPECT_THAT(refusal([&] { static_cast<void>(model.at(EntityType::element_block, "bricks").at("presure")); }),
              HasSubstr("did you mean 'pressure'"));
  EXPECT_THAT(refusal([&] { static_cast<void>(database_named("exodos")); }), HasSubstr("did you mean 'exodus'"));
}

TEST(MeshStorage, ComponentsBecomeFields) {
  const auto fields = join_components({"DISP_X", "DISP_Y", "DISP_Z", "T", "s_xx", "s_yy", "s_zz", "s_xy", "s_yz",
                                       "s_zx", "a_1", "a_2", "v_x", "v_y", "w_x", "b_2", "q_s", "q_q"},
                                      DType::float64, Role::transient);
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& field : fields) found.emplace_back(field.name, field.storage);
  EXPECT_EQ(found, (std::vector<std::pair<std::string, std::string>>{{"DISP", "vector_3d"},
                                                                     {"T", "scalar"},
                                                                     {"s", "sym_tensor_33"},
                                                                     {"a", "[2]"},
                                                                     {"v", "vector_2d"},
                                                                     {"w_x", "scalar"},
                                                                     {"b_2", "scalar"},
                                                                     {"q", "quaternion_2d"}}));
  EXPECT_EQ(component_names(fields[0]), (std::vector<std::string>{"DISP_X", "DISP_Y", "DISP_Z"}));
  EXPECT_TRUE(fields[2].components.empty());
}

// What a field's components are called is what they are found by.
TEST(MeshStorage, NamesComeBack) {
  for (const auto& storage : named_storages())
    for (const auto* base : {"u", "stress_old", "a_1"}) {
      const Field field{.name = base, .storage = storage.name};
      const auto again = join_components(component_names(field), DType::float64, Role::transient);
      ASSERT_EQ(again.size(), 1U) << storage.name;
      EXPECT_EQ(component_names(again[0]), component_names(field));
      if (storage.suffixes.size() > 1) {
        EXPECT_EQ(again[0].storage, storage.name);
      }
    }
  for (const auto* storage : {"[2]", "[9]", "[10]", "[120]"}) {
    const Field field{.name = "h", .storage = storage};
    EXPECT_EQ(join_components(component_names(field), DType::float64, Role::transient).at(0), field) << storage;
  }
}

TEST(MeshTopology, NamesOfFiles) {
  const auto name = [](std::string_view text, std::uint32_t nodes = 0) {
    const auto* found = find_topology(text, nodes);
    return found != nullptr ? std::string(found->name) : "none";
  };
  EXPECT_EQ(name("HEX", 8), "hex8");
  EXPECT_EQ(name("HEX", 20), "hex20");
  EXPECT_EQ(name("hex8"), "hex8");
  EXPECT_EQ(name("HEX8", 20), "none");
  EXPECT_EQ(name("TETRA", 4), "tet4");
  EXPECT_EQ(name("TRUSS", 2), "bar2");
  EXPECT_EQ(name("SHELL", 4), "shell4");
  EXPECT_EQ(name("Circle", 1), "sphere");
  EXPECT_EQ(name("nsided"), "nsided");
  EXPECT_EQ(name("NFACED"), "nfaced");
  EXPECT_EQ(name(""), "none");
  EXPECT_EQ(name("hex99999999999999999999"), "none");
}

TEST(MeshTopology, OrdersOfVtkArePermutations) {
  for (const auto& each : topologies()) {
    if (each.vtk_order.empty()) continue;
    EXPECT_NE(each.vtk, 0) << each.name;
    auto order = each.vtk_order;
    std::ranges::sort(order);
    ASSERT_EQ(order.size(), each.nodes) << each.name;
    for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i) << each.name;
  }
}

}  // namespace
}  // namespace penstock::mesh
