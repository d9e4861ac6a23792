#include "analysis/mesh_description.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "analysis/refuse.hpp"
#include "base/text.hpp"
#include "penstock/error.hpp"
#include "penstock/region.hpp"

namespace penstock::analysis {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Those that readers can draw, of elements with as many nodes each.
const std::vector<std::string_view>& topologies() {
  static const auto names = [] {
    std::vector<std::string_view> found{"mixed"};
    for (const auto& each : mesh::topologies())
      if (each.vtk != 0 && each.nodes != 0) found.push_back(each.name);
    return found;
  }();
  return names;
}
constexpr std::string_view all_axes = "xyz";

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

std::string axes_of(const std::string& axes, const Dims& shape) {
  return axes.empty() ? std::string(all_axes.substr(0, shape.size())) : axes;
}

void check_shape(const Dims& shape, const std::string& given, const char* what) {
  if (shape.empty() || shape.size() > 3)
    refuse(std::string(what) + " has 1 to 3 dimensions, not " + std::to_string(shape.size()));
  if (std::ranges::count(shape, 0u) > 0) refuse(std::string(what) + " " + to_string(shape) + " has a dimension of 0");
  element_count(shape);  // throws when it overflows
  const auto axes = axes_of(given, shape);
  for (const char axis : axes)
    if (all_axes.find(axis) == std::string_view::npos || std::ranges::count(axes, axis) > 1)
      refuse("axes '" + axes.substr(0, 20) + "' are not some of x, y and z, each once");
  if (axes.size() != shape.size())
    refuse("axes '" + axes + "' name " + std::to_string(axes.size()) + " axes for " + std::to_string(shape.size()) +
           " dimensions");
}

void check_geometry(const Vector3& origin, const Vector3& spacing) {
  for (const double value : origin)
    if (!std::isfinite(value)) refuse("the origin is not finite");
  for (const double value : spacing)
    if (!std::isfinite(value) || value == 0) refuse("the spacing is 0 or not finite");
}

void check_named(std::span<const std::string> variables, const char* what) {
  for (const auto& variable : variables)
    if (variable.empty()) refuse(std::string(what) + ": a variable's name is empty");
}

void check_points(const std::vector<std::string>& coordinates) {
  if (coordinates.size() != 1 && coordinates.size() != 3)
    refuse("coordinates are one variable or three, not " + std::to_string(coordinates.size()));
  check_named(coordinates, "coordinates");
}

void check_block(const ElementBlock& block) {
  if (std::ranges::find(topologies(), block.topology) == topologies().end())
    refuse("block '" + block.name + "': " + base::unknown_name("topology", block.topology, topologies()));
  check_named(std::span(&block.connectivity, 1), "connectivity");
  const bool mixed = block.topology == "mixed";
  if (mixed == (block.offsets.empty() || block.topologies.empty()))
    refuse("block '" + block.name + "': offsets and topologies are given with topology mixed, and only then");
}

void check_splits(const AmrMesh& mesh) {
  if (mesh.splits.empty() && mesh.depth != 0) refuse("depth is given with splits, and only then");
  if (!mesh.splits.empty() && mesh.refinement != 2)
    refuse("splits need the refinement 2, not " + std::to_string(mesh.refinement));
  if (mesh.depth > max_amr_depth)
    refuse("the depth is at most " + std::to_string(max_amr_depth) + ", not " + std::to_string(mesh.depth));
}

void check(const MeshShape& shape) {
  std::visit(Overloaded{[](const UniformMesh& m) {
                          check_shape(m.shape, m.axes, "the shape");
                          check_geometry(m.origin, m.spacing);
                        },
                        [](const RectilinearMesh& m) {
                          check_shape(m.shape, m.axes, "the shape");
                          if (m.coordinates.size() != m.shape.size())
                            refuse("coordinates are one variable for each of the axes");
                          check_named(m.coordinates, "coordinates");
                        },
                        [](const CurvilinearMesh& m) {
                          check_shape(m.shape, m.axes, "the shape");
                          check_points(m.coordinates);
                        },
                        [](const UnstructuredMesh& m) {
                          check_points(m.coordinates);
                          std::ranges::for_each(m.blocks, check_block);
                        },
                        [](const ParticleMesh& m) { check_points(m.coordinates); },
                        [](const AmrMesh& m) {
                          check_shape(m.cells, m.axes, "a block's cells");
                          check_geometry(m.origin, m.spacing);
                          for (const auto cells : m.cells)
                            if (cells <= 2 * std::uint64_t{m.ghost_layers})
                              refuse("a block has ghost layers and no cells");
                          if (m.refinement < 2) refuse("the refinement is at least 2");
                          check_named(std::array{m.levels, m.indices}, "levels, indices");
                          check_splits(m);
                        },
                        [](const MultiblockMesh& m) { check_named(m.blocks, "blocks"); }},
             shape);
}

// Of structured meshes: nodes by array dimension.
const Dims* nodes_of(const MeshShape& shape) {
  return std::visit(
      Overloaded{[](const UniformMesh& m) { return &m.shape; }, [](const RectilinearMesh& m) { return &m.shape; },
                 [](const CurvilinearMesh& m) { return &m.shape; }, [](const auto&) -> const Dims* { return nullptr; }},
      shape);
}

bool elements_only(const MeshShape& shape) {
  return std::holds_alternative<ParticleMesh>(shape) || std::holds_alternative<AmrMesh>(shape);
}

Dims extended(Dims shape, std::uint64_t components) {
  if (components == 1) return shape;
  Dims out = Dims::filled(shape.size() + 1, components);
  std::ranges::copy(shape, out.begin());
  return out;
}

Dims counted(const Dims& nodes, Association association) {
  Dims shape = nodes;
  if (association == Association::element)
    for (auto& size : shape) size = std::max<std::uint64_t>(size - 1, 1);
  return shape;
}

OrderedJson points_of(const std::vector<std::string>& coordinates) {
  return coordinates.size() == 1 ? OrderedJson(coordinates.front()) : OrderedJson(coordinates);
}

OrderedJson to_json(const ElementBlock& block) {
  OrderedJson out{
      {"name", block.name}, {"id", block.id}, {"topology", block.topology}, {"connectivity", block.connectivity}};
  if (!block.offsets.empty()) out["offsets"] = block.offsets;
  if (!block.topologies.empty()) out["topologies"] = block.topologies;
  return out;
}

OrderedJson sizes(const Dims& dims) { return OrderedJson(std::vector<std::uint64_t>(dims.begin(), dims.end())); }

OrderedJson to_json(const MeshShape& shape) {
  return std::visit(
      Overloaded{
          [](const UniformMesh& m) {
            return OrderedJson{{"type", "uniform"},
                               {"shape", sizes(m.shape)},
                               {"axes", axes_of(m.axes, m.shape)},
                               {"origin", m.origin},
                               {"spacing", m.spacing}};
          },
          [](const RectilinearMesh& m) {
            const auto axes = axes_of(m.axes, m.shape);
            OrderedJson coordinates = OrderedJson::object();
            for (std::size_t d = 0; d < axes.size(); ++d) coordinates[std::string(1, axes[d])] = m.coordinates[d];
            return OrderedJson{
                {"type", "rectilinear"}, {"shape", sizes(m.shape)}, {"axes", axes}, {"coordinates", coordinates}};
          },
          [](const CurvilinearMesh& m) {
            return OrderedJson{{"type", "curvilinear"},
                               {"shape", sizes(m.shape)},
                               {"axes", axes_of(m.axes, m.shape)},
                               {"coordinates", points_of(m.coordinates)}};
          },
          [](const UnstructuredMesh& m) {
            OrderedJson blocks = OrderedJson::array();
            for (const auto& block : m.blocks) blocks.push_back(to_json(block));
            return OrderedJson{{"type", "unstructured"}, {"coordinates", points_of(m.coordinates)}, {"blocks", blocks}};
          },
          [](const ParticleMesh& m) {
            return OrderedJson{{"type", "particles"}, {"coordinates", points_of(m.coordinates)}};
          },
          [](const AmrMesh& m) {
            OrderedJson out{{"type", "amr"},
                            {"cells", sizes(m.cells)},
                            {"axes", axes_of(m.axes, m.cells)},
                            {"ghost_layers", m.ghost_layers},
                            {"origin", m.origin},
                            {"spacing", m.spacing},
                            {"refinement", m.refinement},
                            {"levels", m.levels},
                            {"indices", m.indices}};
            if (!m.splits.empty()) {
              out["splits"] = m.splits;
              out["depth"] = m.depth;
            }
            return out;
          },
          [](const MultiblockMesh& m) {
            return OrderedJson{{"type", "multiblock"}, {"blocks", m.blocks}};
          }},
      shape);
}

OrderedJson to_json(const FieldDescription& field) {
  OrderedJson out{{"association", field.association == Association::node ? "node" : "element"},
                  {"variables", field.variables}};
  if (field.components != 1) out["components"] = field.components;
  if (!field.units.empty()) out["units"] = field.units;
  return out;
}

OrderedJson to_json(const MeshDescription& description) {
  const auto& [mesh, fields] = description;
  OrderedJson out = to_json(mesh.shape);
  OrderedJson members = OrderedJson::object();
  for (const auto& [name, field] : fields) members[name] = to_json(field);
  out["fields"] = std::move(members);
  if (!mesh.ghosts.empty()) {
    if (!fields.contains(mesh.ghosts)) refuse("its ghosts are the field '" + mesh.ghosts + "', which it does not have");
    out["ghosts"] = to_json(fields.at(mesh.ghosts));
  }
  OrderedJson ids = OrderedJson::object();
  if (!mesh.node_ids.empty()) ids["node"] = mesh.node_ids;
  if (!mesh.element_ids.empty()) ids["element"] = mesh.element_ids;
  if (!ids.empty()) out["ids"] = std::move(ids);
  return out;
}

// Errors of what it runs name the mesh.
template <class Body>
auto of_mesh(std::string_view name, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    throw error.in("mesh '" + std::string(name) + "'");
  }
}

bool names(const std::vector<std::string>& variables, std::string_view variable) {
  return std::ranges::find(variables, variable) != variables.end();
}

// Nothing: the mesh does not name the variable.
std::optional<Placed> find_structure(const Mesh& mesh, std::string_view variable, std::uint64_t ranks) {
  using Found = std::optional<Placed>;
  constexpr auto global = [](Dims shape) { return Found({true, shape}); };
  constexpr auto local_if = [](bool named) { return named ? Found(Placed{}) : std::nullopt; };
  if (variable.empty()) return std::nullopt;
  if (variable == mesh.node_ids || variable == mesh.element_ids) {
    const auto of = variable == mesh.node_ids ? Association::node : Association::element;
    const auto* nodes = nodes_of(mesh.shape);
    return nodes ? global(counted(*nodes, of)) : local_if(true);
  }
  if (const auto* amr = std::get_if<AmrMesh>(&mesh.shape); amr && variable == amr->splits) return global({ranks});
  return std::visit(
      Overloaded{[&](const RectilinearMesh& m) {
                   const auto found = std::ranges::find(m.coordinates, variable);
                   if (found == m.coordinates.end()) return Found();
                   return global({m.shape[static_cast<std::size_t>(found - m.coordinates.begin())]});
                 },
                 [&](const CurvilinearMesh& m) {
                   if (!names(m.coordinates, variable)) return Found();
                   return global(extended(m.shape, m.coordinates.size() == 1 ? 3 : 1));
                 },
                 [&](const UnstructuredMesh& m) {
                   bool named = names(m.coordinates, variable);
                   for (const auto& b : m.blocks)
                     named = named || variable == b.connectivity || variable == b.offsets || variable == b.topologies;
                   return local_if(named);
                 },
                 [&](const ParticleMesh& m) { return local_if(names(m.coordinates, variable)); },
                 [&](const AmrMesh& m) { return local_if(variable == m.levels || variable == m.indices); },
                 [](const auto&) { return Found(); }},
      mesh.shape);
}

}  // namespace

void check_mesh(std::string_view name, const Mesh& mesh) {
  if (name.empty()) refuse("a mesh needs a name");
  of_mesh(name, [&] {
    check(mesh.shape);
    if (elements_only(mesh.shape) && !mesh.node_ids.empty()) refuse("its ids are of elements");
  });
}

Placed place_of_field(std::string_view name, const Mesh& mesh, Association association, std::uint32_t components) {
  return of_mesh(name, [&]() -> Placed {
    if (std::holds_alternative<MultiblockMesh>(mesh.shape))
      refuse("a multiblock has no fields: those of its blocks are its own");
    if (elements_only(mesh.shape) && association == Association::node) refuse("its fields are of elements");
    const auto* nodes = nodes_of(mesh.shape);
    if (!nodes) return {};
    return {true, extended(counted(*nodes, association), components)};
  });
}

Placed place_of_structure(std::string_view name, const Mesh& mesh, std::string_view variable, std::uint64_t ranks) {
  if (const auto found = find_structure(mesh, variable, ranks)) return *found;
  throw Error(Errc::not_found,
              "mesh '" + std::string(name) + "' does not name a variable '" + std::string(variable) + "'");
}

std::string to_json(const MeshDescriptions& meshes) {
  OrderedJson all = OrderedJson::object();
  for (const auto& [name, description] : meshes) {
    if (const auto* blocks = std::get_if<MultiblockMesh>(&description.mesh.shape))
      for (const auto& block : blocks->blocks) {
        const auto found = meshes.find(block);
        if (found == meshes.end() || std::holds_alternative<MultiblockMesh>(found->second.mesh.shape))
          refuse("mesh '" + name + "': there is no mesh '" + block + "' to be its block");
      }
    all[name] = of_mesh(name, [&] { return to_json(description); });
  }
  try {
    return OrderedJson{{"version", 1}, {"meshes", std::move(all)}}.dump();
  } catch (const OrderedJson::exception&) {
    refuse("a name or unit of the meshes is not UTF-8");
  }
}

}  // namespace penstock::analysis
