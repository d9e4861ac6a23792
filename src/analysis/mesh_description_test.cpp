// The attribute `meshes`: each kind of mesh against the text of docs/internals/coprocessing.md, and contradictions.
#include "analysis/mesh_description.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/test_support.hpp"

namespace penstock::analysis {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

Json described(Mesh mesh, decltype(MeshDescription::fields) fields = {}) {
  check_mesh("grid", mesh);
  const auto json = Json::parse(to_json({{"grid", {std::move(mesh), std::move(fields)}}}));
  EXPECT_EQ(json["version"], 1);
  return json["meshes"]["grid"];
}

TEST(MeshDescription, Uniform) {
  const auto json = described({UniformMesh{{4, 5, 6}, "zyx", {1, 2, 3}, {0.5, 1, 2}}},
                              {{"U", {.variables = {"U"}, .units = "mol/l"}},
                               {"v", {.association = Association::element, .variables = {"v"}, .components = 3}}});
  EXPECT_EQ(json, Json::parse(R"({"type": "uniform", "shape": [4, 5, 6], "axes": "zyx", "origin": [1, 2, 3],
    "spacing": [0.5, 1, 2], "fields": {"U": {"association": "node", "variables": ["U"], "units": "mol/l"},
    "v": {"association": "element", "variables": ["v"], "components": 3}}})"));
  EXPECT_EQ(described({UniformMesh{{4, 5}}})["axes"], "xy");
}

TEST(MeshDescription, Rectilinear) {
  EXPECT_EQ(described({RectilinearMesh{{4, 5}, "yx", {"ys", "xs"}}}),
            Json::parse(R"({"type": "rectilinear", "shape": [4, 5], "axes": "yx", "coordinates": {"x": "xs", "y": "ys"},
                            "fields": {}})"));
}

TEST(MeshDescription, Curvilinear) {
  EXPECT_EQ(described({CurvilinearMesh{{4, 5, 6}, "", {"p"}}})["coordinates"], "p");
  EXPECT_EQ(described({CurvilinearMesh{{4, 5, 6}, "", {"a", "b", "c"}}})["coordinates"], Json({"a", "b", "c"}));
}

TEST(MeshDescription, Unstructured) {
  Mesh mesh{UnstructuredMesh{{"points"}, {{"steel", 7, "hex8", "c1"}, {"air", 8, "mixed", "c2", "o2", "t2"}}}, "ghost",
            "ni", "ei"};
  EXPECT_EQ(described(mesh, {{"ghost", {.association = Association::element, .variables = {"ghost"}}}}),
            Json::parse(R"({"type": "unstructured", "coordinates": "points", "blocks": [
              {"name": "steel", "id": 7, "topology": "hex8", "connectivity": "c1"},
              {"name": "air", "id": 8, "topology": "mixed", "connectivity": "c2", "offsets": "o2", "topologies": "t2"}],
              "fields": {"ghost": {"association": "element", "variables": ["ghost"]}},
              "ghosts": {"association": "element", "variables": ["ghost"]}, "ids": {"node": "ni", "element": "ei"}})"));
}

TEST(MeshDescription, ParticlesAmrAndMultiblock) {
  EXPECT_EQ(described({ParticleMesh{{"x", "y", "z"}}})["coordinates"], Json({"x", "y", "z"}));
  EXPECT_EQ(described({AmrMesh{.cells = {10, 10}, .axes = "yx", .ghost_layers = 1, .levels = "l", .indices = "i"}}),
            Json::parse(R"({"type": "amr", "cells": [10, 10], "axes": "yx", "ghost_layers": 1, "origin": [0, 0, 0],
              "spacing": [1, 1, 1], "refinement": 2, "levels": "l", "indices": "i", "fields": {}})"));
  const auto split = described({AmrMesh{.cells = {8}, .levels = "l", .indices = "i", .splits = "s", .depth = 3}});
  EXPECT_EQ(split["splits"], "s");
  EXPECT_EQ(split["depth"], 3);
  const MeshDescriptions meshes{
      {"all", {{MultiblockMesh{{"a", "b"}}}, {}}}, {"a", {{UniformMesh{{2}}}, {}}}, {"b", {{UniformMesh{{2}}}, {}}}};
  EXPECT_EQ(Json::parse(to_json(meshes))["meshes"]["all"]["blocks"], Json({"a", "b"}));
}

TEST(MeshDescription, PlacesOfVariables) {
  const Mesh uniform{UniformMesh{{4, 1, 6}}, "", "n", "e"};
  EXPECT_EQ(place_of_field("m", uniform, Association::node, 1).shape, (Dims{4, 1, 6}));
  EXPECT_EQ(place_of_field("m", uniform, Association::element, 3).shape, (Dims{3, 1, 5, 3}));
  EXPECT_EQ(place_of_structure("m", uniform, "e").shape, (Dims{3, 1, 5}));
  EXPECT_EQ(place_of_structure("m", {RectilinearMesh{{4, 5}, "", {"a", "b"}}}, "b").shape, (Dims{5}));
  EXPECT_EQ(place_of_structure("m", {CurvilinearMesh{{4, 5}, "", {"p"}}}, "p").shape, (Dims{4, 5, 3}));
  EXPECT_EQ(place_of_structure("m", {CurvilinearMesh{{4, 5}, "", {"p", "q", "r"}}}, "q").shape, (Dims{4, 5}));
  EXPECT_FALSE(place_of_structure("m", {ParticleMesh{{"p"}}}, "p").global);
  EXPECT_FALSE(place_of_structure("m", {ParticleMesh{{"p"}}, "", "", "ids"}, "ids").global);
  EXPECT_FALSE(place_of_field("m", {ParticleMesh{{"p"}}}, Association::element, 3).global);
  const Mesh amr{AmrMesh{.cells = {8}, .levels = "l", .indices = "i", .splits = "s"}};
  EXPECT_FALSE(place_of_structure("m", amr, "i", 3).global);
  EXPECT_EQ(place_of_structure("m", amr, "s", 3).shape, (Dims{3}));
  EXPECT_EQ(code_of([&] { place_of_structure("m", uniform, "q"); }), Errc::not_found);
  EXPECT_EQ(code_of([&] { place_of_structure("m", uniform, ""); }), Errc::not_found);
  EXPECT_EQ(code_of([&] { place_of_field("m", {ParticleMesh{{"p"}}}, Association::node, 1); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { place_of_field("m", {MultiblockMesh{}}, Association::node, 1); }), Errc::invalid_argument);
}

TEST(MeshDescription, ContradictionsAreRefused) {
  const double nan = std::nan("");
  const std::pair<Mesh, const char*> cases[] = {
      {{UniformMesh{{}}}, "1 to 3 dimensions"},
      {{UniformMesh{{1, 2, 3, 4}}}, "1 to 3 dimensions, not 4"},
      {{UniformMesh{{4, 0}}}, "a dimension of 0"},
      {{UniformMesh{{1u << 31, 1ull << 32, 4}}}, "mesh 'grid'"},
      {{UniformMesh{{4, 4}, "xx"}}, "axes 'xx'"},
      {{UniformMesh{{4, 4}, "xw"}}, "axes 'xw'"},
      {{UniformMesh{{4, 4}, "xyz"}}, "name 3 axes for 2 dimensions"},
      {{UniformMesh{{4}, "", {nan, 0, 0}}}, "origin is not finite"},
      {{UniformMesh{{4}, "", {}, {1, 0, 1}}}, "spacing is 0"},
      {{RectilinearMesh{{4, 5}, "", {"a"}}}, "one variable for each of the axes"},
      {{RectilinearMesh{{4}, "", {""}}}, "name is empty"},
      {{CurvilinearMesh{{4}, "", {"a", "b"}}}, "one variable or three, not 2"},
      {{UnstructuredMesh{{"p"}, {{"b", 0, "hex9", "c"}}}}, "did you mean 'hex8'"},
      {{UnstructuredMesh{{"p"}, {{"b", 0, "hex8", ""}}}}, "connectivity: a variable's name is empty"},
      {{UnstructuredMesh{{"p"}, {{"b", 0, "mixed", "c", "o"}}}}, "offsets and topologies"},
      {{UnstructuredMesh{{"p"}, {{"b", 0, "hex8", "c", "o", "t"}}}}, "offsets and topologies"},
      {{ParticleMesh{}}, "one variable or three, not 0"},
      {{AmrMesh{.cells = {8, 2}, .ghost_layers = 1, .levels = "l", .indices = "i"}}, "no cells"},
      {{AmrMesh{.cells = {8}, .refinement = 1, .levels = "l", .indices = "i"}}, "refinement is at least 2"},
      {{AmrMesh{.cells = {8}, .levels = "l"}}, "levels, indices"},
      {{AmrMesh{.cells = {8}, .levels = "l", .indices = "i", .depth = 1}}, "depth is given with splits"},
      {{AmrMesh{.cells = {8}, .levels = "l", .indices = "i", .splits = "s", .depth = 21}}, "at most 20, not 21"},
      {{AmrMesh{.cells = {8}, .refinement = 3, .levels = "l", .indices = "i", .splits = "s"}}, "refinement 2, not 3"},
      {{MultiblockMesh{{"nowhere"}}}, "no mesh 'nowhere'"},
      {{UniformMesh{{4}}, "ghost"}, "ghosts are the field 'ghost'"},
  };
  for (const auto& [mesh, message] : cases) {
    const auto [code, text] = error_of([&] { described(mesh); });
    EXPECT_EQ(code, Errc::invalid_argument) << message;
    EXPECT_THAT(text, HasSubstr(message));
    EXPECT_THAT(text, HasSubstr("grid"));
  }
  EXPECT_EQ(code_of([] { check_mesh("", {UniformMesh{{4}}}); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([] {
              described({UniformMesh{{4}}}, {{"T", {.variables = {"T"}, .units = "\xff"}}});
            }),
            Errc::invalid_argument);
}

}  // namespace
}  // namespace penstock::analysis
