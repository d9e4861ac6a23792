#include "mesh/generated_database.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "mesh/stored_source.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

constexpr std::uint64_t max_elements_along = 1'000'000;
constexpr std::uint64_t max_states = 1'000'000;
constexpr std::uint64_t max_variables = 1'000;
constexpr std::string_view planes = "xXyYzZ";
// Sides of a hexahedron on these planes, as Exodus numbers them.
constexpr std::array<std::int64_t, 6> side_on_plane{4, 2, 1, 3, 5, 6};

struct Grid {
  std::array<std::uint64_t, 3> elements{};
  std::uint64_t parts = 1;
  std::uint64_t times = 0;
  std::uint64_t global = 0, nodal = 0, element = 0;
  std::string nodeset, sideset;
};

std::string parse_planes(std::string_view text) {
  for (const char c : text)
    if (planes.find(c) == std::string_view::npos || std::count(text.begin(), text.end(), c) != 1)
      throw Error(Errc::invalid_argument,
                  "'" + std::string(text) + "' are no planes: each of x, X, y, Y, z, Z at most once");
  return std::string(text);
}

Grid parse(const std::string& name) {
  Grid grid;
  const auto words = base::split(name, '|');
  const auto sizes = base::split(words.front(), 'x');
  if (sizes.size() != 3)
    throw Error(Errc::invalid_argument, "'" + name + "' is no generated mesh, such as \"10x10x10|times:3\"");
  for (std::size_t d = 0; d < 3; ++d) grid.elements[d] = base::parse_integer(sizes[d], 1, max_elements_along);
  static_cast<void>(element_count({grid.elements[0] + 1, grid.elements[1] + 1, grid.elements[2] + 1, 64}));
  for (const auto word : std::span(words).subspan(1)) {
    const auto colon = word.find(':');
    const auto key = word.substr(0, colon);
    const auto value = colon == std::string_view::npos ? std::string_view{} : word.substr(colon + 1);
    try {
      if (key == "times") grid.times = base::parse_integer(value, 0, max_states);
      else if (key == "parts") grid.parts = base::parse_integer(value, 1, grid.elements[2]);
      else if (key == "global") grid.global = base::parse_integer(value, 0, max_variables);
      else if (key == "nodal") grid.nodal = base::parse_integer(value, 0, max_variables);
      else if (key == "element") grid.element = base::parse_integer(value, 0, max_variables);
      else if (key == "nodeset") grid.nodeset = parse_planes(value);
      else if (key == "sideset") grid.sideset = parse_planes(value);
      else {
        static constexpr std::array<std::string_view, 7> known{"times",   "parts",   "global", "nodal",
                                                               "element", "nodeset", "sideset"};
        throw Error(Errc::invalid_argument, base::unknown_name("option", key, known));
      }
    } catch (const Error& e) {
      throw e.in("generated mesh, " + std::string(key));
    }
  }
  return grid;
}

class GeneratedSource final : public StoredSource {
 public:
  explicit GeneratedSource(Grid grid) : grid_(std::move(grid)) {
    for (std::uint64_t part = 0; part < grid_.parts; ++part) models_.push_back(make(part));
  }
  std::uint32_t parts() const override { return static_cast<std::uint32_t>(grid_.parts); }
  const Model& model(std::uint32_t part) override {
    check_part(part, models_.size());
    return models_[part];
  }
  std::vector<double> times() override {
    std::vector<double> times(grid_.times);
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = static_cast<double>(i);
    return times;
  }
  void read_stored(std::uint32_t part, Slot slot, StateNumber state, Rows rows, void* out) override;

 private:
  struct Slab {  // of elements, along z
    std::uint64_t first, count;
  };
  Slab slab(std::uint64_t part) const {
    const auto first = grid_.elements[2] * part / grid_.parts;
    return {first, grid_.elements[2] * (part + 1) / grid_.parts - first};
  }
  std::uint64_t row_nodes() const { return grid_.elements[0] + 1; }
  std::uint64_t layer_nodes() const { return row_nodes() * (grid_.elements[1] + 1); }
  std::uint64_t layer_elements() const { return grid_.elements[0] * grid_.elements[1]; }
  Model make(std::uint64_t part) const;
  // The nodes or elements of the slab that lie on the plane: from begin to before end, in x, y and z; z from the slab's first layer.
  struct Cells {
    std::array<std::uint64_t, 3> begin{}, end{};
    std::uint64_t count() const { return (end[0] - begin[0]) * (end[1] - begin[1]) * (end[2] - begin[2]); }
  };
  Cells cells_on(char plane, const Slab& slab, bool nodes) const;
  std::vector<std::int64_t> integers(std::uint64_t part, const Entity& entity, const Field& field, Rows rows) const;

  Grid grid_;
  std::vector<Model> models_;
};

Model GeneratedSource::make(std::uint64_t part) const {
  const auto its = slab(part);
  Model model;
  model.title = "generated mesh";
  Entity region{.type = EntityType::region, .name = "region", .count = 1};
  for (std::uint64_t i = 0; i < grid_.global; ++i)
    region.fields.push_back({.name = "global" + std::to_string(i), .role = Role::reduction});
  model.add(std::move(region));
  Entity nodes{
      .type = EntityType::node_block, .name = "nodeblock_1", .id = 1, .count = layer_nodes() * (its.count + 1)};
  nodes.fields = {{.name = "coordinates", .storage = "vector_3d", .role = Role::mesh},
                  {.name = "ids", .dtype = DType::int64, .role = Role::mesh}};
  for (std::uint64_t i = 0; i < grid_.nodal; ++i) nodes.fields.push_back({.name = "nodal" + std::to_string(i)});
  model.add(std::move(nodes));
  Entity block{.type = EntityType::element_block,
               .name = "block_1",
               .id = 1,
               .count = layer_elements() * its.count,
               .topology = "hex8"};
  block.fields = {{.name = "connectivity", .dtype = DType::int64, .storage = "[8]", .role = Role::mesh},
                  {.name = "ids", .dtype = DType::int64, .role = Role::mesh}};
  for (std::uint64_t i = 0; i < grid_.element; ++i) block.fields.push_back({.name = "element" + std::to_string(i)});
  model.add(std::move(block));
  for (std::size_t i = 0; i < grid_.nodeset.size(); ++i) {
    Entity set{.type = EntityType::node_set,
               .name = "nodelist_" + std::to_string(i + 1),
               .id = static_cast<std::int64_t>(i + 1),
               .count = cells_on(grid_.nodeset[i], its, true).count()};
    set.fields = {{.name = "members", .dtype = DType::int64, .role = Role::mesh}};
    model.add(std::move(set));
  }
  for (std::size_t i = 0; i < grid_.sideset.size(); ++i) {
    Entity set{.type = EntityType::side_set,
               .name = "surface_" + std::to_string(i + 1),
               .id = static_cast<std::int64_t>(i + 1),
               .count = cells_on(grid_.sideset[i], its, false).count()};
    set.fields = {{.name = "element_side", .dtype = DType::int64, .storage = "[2]", .role = Role::mesh}};
    model.add(std::move(set));
  }
  const auto shared = (part > 0 ? layer_nodes() : 0) + (part + 1 < grid_.parts ? layer_nodes() : 0);
  if (shared > 0) {
    Entity comm{.type = EntityType::comm_set, .name = "commset_node", .id = 1, .count = shared};
    comm.fields = {{.name = "entity_processor", .dtype = DType::int64, .storage = "[2]", .role = Role::communication}};
    model.add(std::move(comm));
  }
  return model;
}

GeneratedSource::Cells GeneratedSource::cells_on(char plane, const Slab& slab, bool nodes) const {
  const auto more = nodes ? 1U : 0U;
  Cells cells{{}, {grid_.elements[0] + more, grid_.elements[1] + more, slab.count + more}};
  const auto number = planes.find(plane);
  const auto axis = number / 2;
  const bool greatest = number % 2 == 1;
  const bool elsewhere = axis == 2 && (greatest ? slab.first + slab.count != grid_.elements[2] : slab.first != 0);
  if (elsewhere) return {};
  if (greatest) cells.begin[axis] = cells.end[axis] - 1;
  else cells.end[axis] = 1;
  return cells;
}

std::vector<std::int64_t> GeneratedSource::integers(std::uint64_t part, const Entity& entity, const Field& field,
                                                    Rows rows) const {
  const auto its = slab(part);
  std::vector<std::int64_t> values;
  const auto add = [&values](std::uint64_t value) { values.push_back(static_cast<std::int64_t>(value)); };
  if (field.name == "ids") {
    const auto before = its.first * (entity.type == EntityType::node_block ? layer_nodes() : layer_elements());
    for (auto i = rows.first; i < rows.first + rows.count; ++i) add(before + i + 1);
  } else if (field.name == "connectivity") {
    for (auto i = rows.first; i < rows.first + rows.count; ++i) {
      const auto z = i / layer_elements(), y = i % layer_elements() / grid_.elements[0], x = i % grid_.elements[0];
      const auto corner = z * layer_nodes() + y * row_nodes() + x;
      for (const auto up : {std::uint64_t{0}, layer_nodes()})
        for (const auto node : {corner, corner + 1, corner + 1 + row_nodes(), corner + row_nodes()}) add(node + up);
    }
  } else if (field.name == "entity_processor") {
    const auto last = its.count * layer_nodes();
    for (auto i = rows.first; i < rows.first + rows.count; ++i) {
      const bool below = part > 0 && i < layer_nodes();
      add(below ? i : last + (part > 0 ? i - layer_nodes() : i));
      add(below ? part - 1 : part + 1);
    }
  } else {
    const auto plane =
        (field.name == "members" ? grid_.nodeset : grid_.sideset)[static_cast<std::size_t>(entity.id - 1)];
    const bool nodes = field.name == "members";
    const auto cells = cells_on(plane, its, nodes);
    for (auto z = cells.begin[2]; z < cells.end[2]; ++z)
      for (auto y = cells.begin[1]; y < cells.end[1]; ++y)
        for (auto x = cells.begin[0]; x < cells.end[0]; ++x) {
          add(nodes ? z * layer_nodes() + y * row_nodes() + x : z * layer_elements() + y * grid_.elements[0] + x);
          if (!nodes) values.push_back(side_on_plane[planes.find(plane)]);
        }
    const auto width = static_cast<std::ptrdiff_t>(nodes ? 1 : 2);
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(rows.first) * width;
    values = std::vector<std::int64_t>(first, first + static_cast<std::ptrdiff_t>(rows.count) * width);
  }
  return values;
}

void GeneratedSource::read_stored(std::uint32_t part, Slot slot, StateNumber state, Rows rows, void* out) {
  const auto& entity = models_.at(part).entities.at(slot.entity);
  const auto& field = entity.fields.at(slot.field);
  if (field.dtype == DType::int64) {
    const auto values = integers(part, entity, field, rows);
    std::copy(values.begin(), values.end(), static_cast<std::int64_t*>(out));
    return;
  }
  auto* values = static_cast<double*>(out);
  const auto time = static_cast<double>(state.value_or(0));
  const auto its = slab(part);
  const bool nodes = entity.type == EntityType::node_block;
  const auto row = nodes ? row_nodes() : grid_.elements[0];
  const auto layer = nodes ? layer_nodes() : layer_elements();
  for (auto i = rows.first; i < rows.first + rows.count; ++i) {
    const auto x = static_cast<double>(i % row), y = static_cast<double>(i % layer / row);
    const auto z = static_cast<double>(i / layer + its.first);
    if (field.name == "coordinates") {
      for (const auto value : {x, y, z}) *values++ = value;
    } else if (entity.type == EntityType::region) {
      *values++ = time + static_cast<double>(slot.field);
    } else {
      *values++ = x + 0.5 * y - 0.25 * z + time * static_cast<double>(slot.field + 1);
    }
  }
}

}  // namespace

bool is_generated_name(std::string_view name) {
  const auto size = name.substr(0, name.find('|'));
  return std::count(size.begin(), size.end(), 'x') == 2 &&
         size.find_first_not_of("0123456789x") == std::string_view::npos;
}

std::unique_ptr<Source> open_generated(const DatabaseRequest& request) {
  return std::make_unique<GeneratedSource>(parse(request.name));
}

}  // namespace penstock::mesh
