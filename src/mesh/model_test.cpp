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
