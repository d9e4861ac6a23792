#include "regions.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace sedov {
namespace {

namespace mesh = penstock::mesh;
using mesh::EntityType;
using mesh::Role;
using penstock::DType;

mesh::Field numbers(std::string name, std::string storage = "scalar", Role role = Role::mesh) {
  return {.name = std::move(name), .dtype = DType::int64, .storage = std::move(storage), .role = role};
}

template <class Value>
void write(mesh::Sink& sink, const mesh::Model& model, EntityType type, std::string_view entity, std::string_view field,
           const std::vector<Value>& values) {
  sink.write(mesh::slot_of(model, type, entity, field), values.data());
}

// The nodes that the neighbours have too: the lowest and the highest layer.
std::vector<std::int64_t> shared_nodes(const std::vector<std::int64_t>& layer_of, std::int64_t lowest,
                                       std::int64_t highest, int rank, int ranks) {
  std::vector<std::int64_t> pairs;
  for (std::size_t i = 0; i < layer_of.size(); ++i) {
    if (layer_of[i] == lowest && rank > 0) pairs.insert(pairs.end(), {static_cast<std::int64_t>(i), rank - 1});
    if (layer_of[i] == highest && rank + 1 < ranks) pairs.insert(pairs.end(), {static_cast<std::int64_t>(i), rank + 1});
  }
  return pairs;
}

void add_comm_set(mesh::Model& model, std::size_t pairs) {
  if (pairs == 0) return;
  model.add({.type = EntityType::comm_set,
             .name = "commset_node",
             .id = 1,
             .count = pairs,
             .fields = {numbers("entity_processor", "[2]", Role::communication)}});
}

mesh::Model model_of(std::string title, std::size_t nodes, std::size_t elements, const char* block,
                     const char* topology, const char* storage) {
  mesh::Model model{.title = std::move(title)};
  model.add({.type = EntityType::region, .name = "region", .count = 1});
  model.add({.type = EntityType::node_block,
             .name = "nodeblock_1",
             .id = 1,
             .count = nodes,
             .fields = {{.name = "coordinates", .storage = "vector_3d", .role = Role::mesh},
                        numbers("ids"),
                        {.name = "displ", .storage = "vector_3d"}}});
  model.add({.type = EntityType::element_block,
             .name = block,
             .id = 1,
             .count = elements,
             .topology = topology,
             .fields = {numbers("connectivity", storage), numbers("ids"), {.name = "density"}, {.name = "pressure"}}});
  return model;
}

std::vector<Vector> displacements(const Blast& blast, const std::vector<std::size_t>* nodes = nullptr) {
  std::vector<Vector> values(nodes != nullptr ? nodes->size() : blast.nodes());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto node = nodes != nullptr ? (*nodes)[i] : i;
    for (int d = 0; d < 3; ++d) values[i][d] = blast.position()[node][d] - blast.start()[node][d];
  }
  return values;
}

}  // namespace

VolumeRegion::VolumeRegion(const Blast& blast, int rank, int ranks, std::unique_ptr<mesh::Sink> sink)
    : sink_(std::move(sink)) {
  const std::int64_t n = blast.n(), row = n + 1, layer = row * row;
  const auto first = static_cast<std::int64_t>(blast.first_layer());
  model_ = model_of("Sedov blast: volume", blast.nodes(), blast.elements(), "gas", "hex8", "[8]");
  model_.entities[0].fields = {{.name = "total_energy", .role = Role::reduction},
                               {.name = "shock_radius", .role = Role::reduction}};
  model_.entities[1].fields.push_back({.name = "velocity", .storage = "vector_3d"});
  model_.entities[2].fields.push_back({.name = "energy"});

  std::vector<std::int64_t> ids, layers, connectivity, elements, sides;
  std::vector<std::int64_t> planes[3];
  for (std::size_t i = 0; i < blast.nodes(); ++i) {
    const auto number = static_cast<std::int64_t>(i);
    ids.push_back(first * layer + number + 1);
    layers.push_back(first + number / layer);
    for (int d = 0; d < 3; ++d)
      if (blast.start()[i][d] == 0) planes[d].push_back(number);
  }
  for (std::size_t e = 0; e < blast.elements(); ++e) {
    const auto number = static_cast<std::int64_t>(e);
    elements.push_back(first * n * n + number + 1);
    for (const int node : blast.corners()[e]) connectivity.push_back(node);
    const std::int64_t x = number % n, y = number / n % n, z = first + number / (n * n);
    if (x == n - 1) sides.insert(sides.end(), {number, 2});
    if (y == n - 1) sides.insert(sides.end(), {number, 3});
    if (z == n - 1) sides.insert(sides.end(), {number, 6});
  }
  static constexpr const char* plane_names[] = {"plane_x", "plane_y", "plane_z"};
  for (int d = 0; d < 3; ++d)
    model_.add({.type = EntityType::node_set,
                .name = plane_names[d],
                .id = d + 1,
                .count = planes[d].size(),
                .fields = {numbers("members")}});
  model_.add({.type = EntityType::side_set,
              .name = "outside",
              .id = 10,
              .count = sides.size() / 2,
              .fields = {numbers("element_side", "[2]")}});
  const auto shared = shared_nodes(layers, first, first + blast.layers(), rank, ranks);
  add_comm_set(model_, shared.size() / 2);

  sink_->define(model_);
  if (!shared.empty()) sedov::write(*sink_, model_, EntityType::comm_set, "commset_node", "entity_processor", shared);
  sedov::write(*sink_, model_, EntityType::node_block, "nodeblock_1", "coordinates", blast.start());
  sedov::write(*sink_, model_, EntityType::node_block, "nodeblock_1", "ids", ids);
  sedov::write(*sink_, model_, EntityType::element_block, "gas", "connectivity", connectivity);
  sedov::write(*sink_, model_, EntityType::element_block, "gas", "ids", elements);
  for (int d = 0; d < 3; ++d) sedov::write(*sink_, model_, EntityType::node_set, plane_names[d], "members", planes[d]);
  sedov::write(*sink_, model_, EntityType::side_set, "outside", "element_side", sides);
}

void VolumeRegion::write(const Blast& blast, double total_energy, double shock_radius) {
  sink_->begin_state(blast.time());
  sedov::write(*sink_, model_, EntityType::region, "region", "total_energy", std::vector{total_energy});
  sedov::write(*sink_, model_, EntityType::region, "region", "shock_radius", std::vector{shock_radius});
  sedov::write(*sink_, model_, EntityType::node_block, "nodeblock_1", "displ", displacements(blast));
  sedov::write(*sink_, model_, EntityType::node_block, "nodeblock_1", "velocity", blast.velocity());
  sedov::write(*sink_, model_, EntityType::element_block, "gas", "density", blast.density());
  sedov::write(*sink_, model_, EntityType::element_block, "gas", "pressure", blast.pressure());
  sedov::write(*sink_, model_, EntityType::element_block, "gas", "energy", blast.energy());
  sink_->end_state();
}

SurfaceRegion::SurfaceRegion(const Blast& blast, int rank, int ranks, std::unique_ptr<mesh::Sink> sink)
    : sink_(std::move(sink)) {
  const std::int64_t n = blast.n(), row = n + 1, layer = row * row;
  const auto first = static_cast<std::int64_t>(blast.first_layer());
  std::vector<std::int64_t> ids, layers, connectivity, elements, place(blast.nodes(), -1);
  std::vector<Vector> coordinates;
  for (std::size_t i = 0; i < blast.nodes(); ++i) {
    if (blast.start()[i][1] != 0) continue;
    place[i] = static_cast<std::int64_t>(nodes_.size());
    nodes_.push_back(i);
    ids.push_back(first * layer + static_cast<std::int64_t>(i) + 1);
    layers.push_back(first + static_cast<std::int64_t>(i) / layer);
    coordinates.push_back(blast.start()[i]);
  }
  for (std::size_t e = 0; e < blast.elements(); ++e) {
    if (static_cast<std::int64_t>(e) / n % n != 0) continue;
    elements_.push_back(e);
    elements.push_back(first * n * n + static_cast<std::int64_t>(e) + 1);
    for (const int corner : {0, 1, 5, 4}) connectivity.push_back(place[blast.corners()[e][corner]]);
  }
  model_ = model_of("Sedov blast: surface y = 0", nodes_.size(), elements_.size(), "plane", "shell4", "[4]");
  const auto shared = shared_nodes(layers, first, first + blast.layers(), rank, ranks);
  add_comm_set(model_, shared.size() / 2);

  sink_->define(model_);
  if (!shared.empty()) sedov::write(*sink_, model_, EntityType::comm_set, "commset_node", "entity_processor", shared);
  sedov::write(*sink_, model_, EntityType::node_block, "nodeblock_1", "coordinates", coordinates);
  sedov::write(*sink_, model_, EntityType::node_block, "nodeblock_1", "ids", ids);
  sedov::write(*sink_, model_, EntityType::element_block, "plane", "connectivity", connectivity);
  sedov::write(*sink_, model_, EntityType::element_block, "plane", "ids", elements);
}

void SurfaceRegion::write(const Blast& blast) {
  std::vector<double> density, pressure;
  for (const auto element : elements_) {
    density.push_back(blast.density()[element]);
    pressure.push_back(blast.pressure()[element]);
  }
  sink_->begin_state(blast.time());
  sedov::write(*sink_, model_, EntityType::node_block, "nodeblock_1", "displ", displacements(blast, &nodes_));
  sedov::write(*sink_, model_, EntityType::element_block, "plane", "density", density);
  sedov::write(*sink_, model_, EntityType::element_block, "plane", "pressure", pressure);
  sink_->end_state();
}

}  // namespace sedov
