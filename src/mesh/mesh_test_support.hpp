// What the tests of mesh databases share: a region in memory, one with every kind of entity, and the comparison of two regions.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "mesh/copy.hpp"
#include "mesh/database.hpp"
#include "mesh/stored_source.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {

inline std::unique_ptr<Source> generated(const std::string& name) {
  return database_named("generated").open({name, {}, nullptr});
}

// Copies a part, unchanged, state by state, from the source's present place to its end. The sink is closed when this returns.
inline void copy_part(Source& source, std::uint32_t part, Sink& sink) {
  const auto write = [&](Slot slot) { sink.write(slot, read_whole(source, part, slot).data()); };
  const auto copy_model = [&] {
    sink.define(source.model(part));
    each_model_field(source.model(part), write);
  };
  copy_model();
  for (;;) {
    const auto state = source.next_state(configured);
    if (state.kind == StateOutcome::Kind::not_ready) throw Error(Errc::timeout, "no state came in time");
    if (state.kind == StateOutcome::Kind::end) break;
    if (state.kind == StateOutcome::Kind::model) {
      copy_model();
      continue;
    }
    sink.begin_state(state.time);
    each_state_field(source.model(part), write);
    sink.end_state();
  }
  sink.close();
}

// A part with values; those of a state are a function of the place and the state.
class MemorySource : public StoredSource {
 public:
  MemorySource(Model model, std::vector<double> times) : model_(std::move(model)), times_(std::move(times)) {}
  std::uint32_t parts() const override { return 1; }
  const Model& model(std::uint32_t) override { return model_; }
  std::vector<double> times() override { return times_; }
  void read_stored(std::uint32_t, Slot slot, StateNumber state, Rows rows, void* out) override {
    const auto& field = model_.entities.at(slot.entity).fields.at(slot.field);
    const auto columns = components_of(field);
    for (std::uint64_t i = 0; i < rows.count * columns; ++i) {
      const auto at = rows.first * columns + i;
      const auto given = given_.find({slot.entity, slot.field});
      const auto number = given != given_.end()
                              ? given->second.at(at)
                              : static_cast<std::int64_t>(at + 100 * slot.field + 10'000 * (state ? *state + 1 : 0));
      put(field.dtype, out, i, number);
    }
  }
  // Values of a model field of whole numbers.
  void give(EntityType type, std::string_view entity, std::string_view field, std::vector<std::int64_t> values) {
    for (std::size_t e = 0; e < model_.entities.size(); ++e) {
      if (model_.entities[e].type != type || model_.entities[e].name != entity) continue;
      for (std::size_t i = 0; i < model_.entities[e].fields.size(); ++i)
        if (model_.entities[e].fields[i].name == field) {
          ASSERT_EQ(values.size(), values_of(model_.entities[e], model_.entities[e].fields[i]))
              << entity << " " << field;
          given_[{e, i}] = values;
          return;
        }
    }
    FAIL() << "no field " << field;
  }

 private:
  static void put(DType dtype, void* out, std::uint64_t i, std::int64_t number) {
    switch (dtype) {
      case DType::int32: static_cast<std::int32_t*>(out)[i] = static_cast<std::int32_t>(number); break;
      case DType::int64: static_cast<std::int64_t*>(out)[i] = number; break;
      case DType::float32: static_cast<float*>(out)[i] = static_cast<float>(number) + 0.5F; break;
      case DType::float64: static_cast<double*>(out)[i] = static_cast<double>(number) + 0.25; break;
      default: FAIL() << "no values of " << name_of(dtype);
    }
  }
  Model model_;
  std::vector<double> times_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::int64_t>> given_;
};

inline std::string describe(const Entity& entity, const Field& field) {
  return std::string(name_of(entity.type)) + " " + entity.name + ", field " + field.name;
}

// Regions, one after the other: each begins where the topology has changed.
class Sequence : public Source {
 public:
  explicit Sequence(std::vector<std::shared_ptr<Source>> regions) : regions_(std::move(regions)) {}
  std::uint32_t parts() const override { return regions_[now_]->parts(); }
  const Model& model(std::uint32_t part) override { return regions_[now_]->model(part); }
  StateOutcome next_state(Timeout deadline) override {
    const auto outcome = regions_[now_]->next_state(deadline);
    if (outcome.kind != StateOutcome::Kind::end || now_ + 1 == regions_.size()) return outcome;
    ++now_;
    return {StateOutcome::Kind::model, 0, 0};
  }
  std::vector<double> times() override {
    std::vector<double> times;
    for (const auto& each : regions_)
      for (const auto time : each->times()) times.push_back(time);
    return times;
  }
  void seek(std::uint64_t) override {  // to the first
    for (const auto& each : regions_)
      if (!each->times().empty()) each->seek(0);
    now_ = 0;
  }
  void read(std::uint32_t part, Slot slot, Rows rows, void* out) override {
    regions_[now_]->read(part, slot, rows, out);
  }

 private:
  std::vector<std::shared_ptr<Source>> regions_;
  std::size_t now_ = 0;
};

inline void expect_same_values(Source& a, std::uint32_t part_a, Source& b, std::uint32_t part_b, Slot slot) {
  const auto& entity = a.model(part_a).entities[slot.entity];
  if (entity.count == 0) return;
  EXPECT_EQ(read_whole(a, part_a, slot), read_whole(b, part_b, slot)) << describe(entity, entity.fields[slot.field]);
}

// Names, types, counts and all values of the model.
inline void expect_same_model(Source& a, std::uint32_t part_a, Source& b, std::uint32_t part_b) {
  const auto& model = a.model(part_a);
  const auto& other = b.model(part_b);
  EXPECT_EQ(model.title, other.title);
  EXPECT_EQ(model.dimensions, other.dimensions);
  EXPECT_EQ(model.qa, other.qa);
  EXPECT_EQ(model.information, other.information);
  EXPECT_EQ(model.properties, other.properties);
  ASSERT_EQ(model.entities.size(), other.entities.size());
  for (std::size_t e = 0; e < model.entities.size(); ++e) {
    const auto& one = model.entities[e];
    const auto& two = other.entities[e];
    EXPECT_EQ(one.type, two.type);
    EXPECT_EQ(one.name, two.name);
    EXPECT_EQ(one.id, two.id) << one.name;
    EXPECT_EQ(one.count, two.count) << one.name;
    EXPECT_EQ(one.members, two.members) << one.name;
    EXPECT_EQ(one.properties, two.properties) << one.name;
    EXPECT_EQ(one.structured, two.structured) << one.name;
    if (one.count == 0) continue;  // Exodus keeps no fields, and no topology, of what is empty
    EXPECT_EQ(one.topology, two.topology) << one.name;
    ASSERT_EQ(one.fields.size(), two.fields.size()) << one.name;
    for (std::size_t i = 0; i < one.fields.size(); ++i)
      EXPECT_EQ(one.fields[i], two.fields[i])
          << describe(one, one.fields[i]) << " against " << describe(two, two.fields[i]);
  }
  each_model_field(model, [&](Slot slot) { expect_same_values(a, part_a, b, part_b, slot); });
}

// All of the model and the states, from the present place on.
inline void expect_same_from_here(Source& a, std::uint32_t part_a, Source& b, std::uint32_t part_b) {
  expect_same_model(a, part_a, b, part_b);
  for (std::uint64_t state = 0;; ++state) {
    SCOPED_TRACE("state " + std::to_string(state));
    const auto one = a.next_state(Timeout(20'000));
    const auto two = b.next_state(Timeout(20'000));
    ASSERT_EQ(one.kind, two.kind);
    EXPECT_EQ(one.time, two.time);
    if (one.kind == StateOutcome::Kind::end) break;
    if (one.kind == StateOutcome::Kind::model) {
      expect_same_model(a, part_a, b, part_b);
      continue;
    }
    each_state_field(a.model(part_a), [&](Slot slot) { expect_same_values(a, part_a, b, part_b, slot); });
  }
}

// The same; the sources stand at the first state again.
inline void expect_same(Source& a, std::uint32_t part_a, Source& b, std::uint32_t part_b) {
  expect_same_from_here(a, part_a, b, part_b);
  if (!a.times().empty()) a.seek(0);
  if (!b.times().empty()) b.seek(0);
}

// Fields of each role, of one and of several components.
inline std::vector<Field> results() {
  return {{.name = "pressure"},
          {.name = "velocity", .storage = "vector_3d"},
          {.name = "flag", .dtype = DType::int32},
          {.name = "stress", .dtype = DType::float32, .storage = "sym_tensor_33"},
          {.name = "history", .storage = "[12]"}};
}

// Two hexahedra, a tetrahedron and a polyhedron, with each kind of block and set that Exodus has, and results on all of them.
inline MemorySource every_entity(DType integers, std::vector<double> times = {0.5, 1.5, 4}) {
  const auto numbers = [&](std::string name, std::string storage = "scalar", std::uint64_t count = 0) {
    return Field{
        .name = std::move(name), .dtype = integers, .storage = std::move(storage), .role = Role::mesh, .count = count};
  };
  const auto factors = [](std::uint64_t count) {
    return Field{.name = "distribution_factors", .role = Role::mesh, .count = count};
  };
  const auto with = [](std::vector<Field> fields, const std::vector<Field>& more) {
    fields.insert(fields.end(), more.begin(), more.end());
    return fields;
  };
  const std::vector<Field> attributes{{.name = "thickness", .role = Role::attribute},
                                      {.name = "area", .role = Role::attribute}};
  const Field map{.name = "original_map", .dtype = integers, .role = Role::map};
  const Field total{.name = "energy", .role = Role::reduction};

  Model model{.title = "every kind of entity", .dimensions = 3};
  model.qa = {{"penstock", "1", "2026/11/27", "12:00:00"}};
  model.information = {"first line", "second line"};
  model.properties = {{"material_model", std::string("elastic")}, {"seed", std::int64_t{7}}, {"scale", 1.5}};
  using T = EntityType;
  model.add({.type = T::region,
             .name = "region",
             .count = 1,
             .fields = {{.name = "time_step", .role = Role::reduction},
                        {.name = "momentum", .storage = "vector_3d", .role = Role::reduction}}});
  model.add({.type = T::node_block,
             .name = "nodeblock_1",
             .id = 1,
             .count = 17,
             .fields = with({{.name = "coordinates", .storage = "vector_3d", .role = Role::mesh},
                             numbers("ids"),
                             map,
                             {.name = "weight", .role = Role::attribute}},
                            results())});
  model.add({.type = T::edge_block,
             .name = "edges",
             .id = 11,
             .count = 3,
             .topology = "edge2",
             .fields = with(with({numbers("connectivity", "[2]"), numbers("ids")}, attributes), results())});
  model.add({.type = T::face_block,
             .name = "faces",
             .id = 21,
             .count = 2,
             .topology = "quad4",
             .fields = with({numbers("connectivity", "[4]")}, results())});
  model.add({.type = T::face_block,
             .name = "polygons",
             .id = 22,
             .count = 5,
             .topology = "nsided",
             .fields = {numbers("connectivity", "scalar", 18),
                        {.name = "entity_counts", .dtype = DType::int32, .role = Role::mesh},
                        {.name = "pressure"}}});
  model.add({.type = T::element_block,
             .name = "bricks",
             .id = 10,
             .count = 2,
             .topology = "hex8",
             .properties = {{"material", std::int64_t{3}}, {"density", 7.8}, {"kind", std::string("steel")}},
             .fields = with(with({numbers("connectivity", "[8]"), numbers("ids"), map}, attributes),
                            with(results(), {total}))});
  model.add({.type = T::element_block,
             .name = "tets",
             .id = 20,
             .count = 1,
             .topology = "tet4",
             .properties = {{"material", std::int64_t{4}}},
             .fields = with({numbers("connectivity", "[4]"), numbers("ids"), map}, {{.name = "pressure"}, total})});
  model.add({.type = T::element_block,
             .name = "polyhedra",
             .id = 30,
             .count = 1,
             .topology = "nfaced",
             .properties = {{"material", std::int64_t{5}}},
             .fields = {numbers("connectivity", "scalar", 5),
                        {.name = "entity_counts", .dtype = DType::int32, .role = Role::mesh},
                        numbers("ids"),
                        map,
                        {.name = "pressure"}}});
  model.add({.type = T::element_block,
             .name = "nothing",
             .id = 40,
             .count = 0,
             .properties = {{"material", std::int64_t{6}}}});
  model.add({.type = T::node_set,
             .name = "clamped",
             .id = 100,
             .count = 4,
             .fields = with({numbers("members"), factors(0)}, results())});
  model.add({.type = T::node_set, .name = "one_node", .id = 101, .count = 1, .fields = {numbers("members")}});
  model.add({.type = T::edge_set,
             .name = "some_edges",
             .id = 200,
             .count = 2,
             .fields = with({numbers("members"), numbers("orientations")}, {{.name = "pressure"}})});
  model.add({.type = T::face_set,
             .name = "some_faces",
             .id = 300,
             .count = 2,
             .fields = with({numbers("members"), numbers("orientations"), factors(8)}, {{.name = "pressure"}})});
  model.add({.type = T::element_set,
             .name = "some_elements",
             .id = 400,
             .count = 2,
             .fields = with({numbers("members")}, {{.name = "pressure"}, total})});
  model.add({.type = T::side_set,
             .name = "loaded",
             .id = 500,
             .count = 2,
             .fields = with({numbers("element_side", "[2]"), factors(8)}, results())});
  model.add({.type = T::side_set,
             .name = "without_factors",
             .id = 501,
             .count = 1,
             .fields = {numbers("element_side", "[2]")}});
  model.add({.type = T::assembly,
             .name = "solids",
             .id = 1000,
             .count = 2,
             .members = {"bricks", "tets"},
             .fields = {{.name = "momentum", .storage = "vector_3d", .role = Role::reduction}}});
  model.add({.type = T::assembly,
             .name = "all",
             .id = 1001,
             .count = 1,
             .members = {"solids"},
             .member_type = T::assembly,
             .properties = {{"colour", std::string("red")}},
             .fields = {{.name = "momentum", .storage = "vector_3d", .role = Role::reduction}}});
  model.add({.type = T::blob,
             .name = "table",
             .id = 2000,
             .count = 6,
             .properties = {{"unit", std::string("K")}},
             .fields = {{.name = "temperature"}, {.name = "mean", .role = Role::reduction}}});

  MemorySource source(model, std::move(times));
  source.give(T::element_block, "bricks", "connectivity", {0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 8, 9, 10, 11});
  source.give(T::element_block, "tets", "connectivity", {8, 9, 10, 12});
  source.give(T::element_block, "polyhedra", "connectivity", {2, 3, 4, 5, 6});
  source.give(T::element_block, "polyhedra", "entity_counts", {5});
  source.give(T::edge_block, "edges", "connectivity", {0, 1, 1, 2, 2, 3});
  source.give(T::face_block, "faces", "connectivity", {0, 1, 2, 3, 4, 5, 6, 7});
  source.give(T::face_block, "polygons", "connectivity",
              {13, 14, 15, 13, 14, 16, 12, 14, 15, 16, 12, 15, 13, 16, 12, 13, 12, 14});
  source.give(T::face_block, "polygons", "entity_counts", {3, 4, 4, 4, 3});
  source.give(T::node_set, "clamped", "members", {0, 1, 2, 3});
  source.give(T::node_set, "one_node", "members", {16});
  source.give(T::edge_set, "some_edges", "members", {0, 2});
  source.give(T::edge_set, "some_edges", "orientations", {1, -1});
  source.give(T::face_set, "some_faces", "members", {1, 0});
  source.give(T::face_set, "some_faces", "orientations", {-1, 1});
  source.give(T::element_set, "some_elements", "members", {3, 0});
  source.give(T::side_set, "loaded", "element_side", {0, 5, 1, 6});
  source.give(T::side_set, "without_factors", "element_side", {2, 1});
  return source;
}

// Two structured blocks that are connected on a face, with their axes twisted, and a part of a third.
inline MemorySource structured_blocks() {
  Model model{.title = "structured", .dimensions = 3};
  const auto add = [&](const std::string& name, std::int64_t id, Structured structured) {
    model.add({.type = EntityType::node_block,
               .name = name,
               .id = id,
               .count = structured.node_count(),
               .fields = {{.name = "coordinates", .storage = "vector_3d", .role = Role::mesh}, {.name = "speed"}}});
    model.add({.type = EntityType::structured_block,
               .name = name,
               .id = id,
               .count = structured.cell_count(),
               .fields = {{.name = "ids", .dtype = DType::int64, .role = Role::mesh}, {.name = "pressure"}},
               .structured = std::move(structured)});
  };
  add("left", 1,
      {.cells = {2, 3, 2},
       .whole = {2, 3, 2},
       .connectivities = {{"seam", "right", {3, -1, 2}, {{2, 0, 0}, {2, 3, 2}}, {{3, 0, 0}, {0, 2, 0}}}},
       .boundaries = {{"inlet", "inflow", {{0, 0, 0}, {0, 3, 2}}, 0}}});
  add("right", 2, {.cells = {3, 2, 4}, .whole = {3, 2, 4}});
  add("split", 3,
      {.cells = {2, 1, 1},
       .whole = {4, 1, 1},
       .offset = {2, 0, 0},
       .connectivities = {{"cut", "split", {1, 2, 3}, {{2, 0, 0}, {2, 1, 1}}, {{2, 0, 0}, {2, 1, 1}}, true}}});
  add("elsewhere", 4, {.whole = {5, 5, 0}});
  return {model, {0.5, 1.5}};
}

}  // namespace penstock::mesh
