#include "analysis/channel_fields.hpp"

#include <algorithm>
#include <utility>

#include "analysis/refuse.hpp"
#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::analysis {
namespace {

Kind kind_of(const Placed& placed) { return placed.global ? Kind::global_array : Kind::local_array; }

// Dimensions of a field's block, without interleaved components.
std::size_t rank_of(const Mesh& mesh, const Placed& placed, std::uint32_t components) {
  if (placed.global) return placed.shape.size() - (components > 1 ? 1 : 0);
  const auto* amr = std::get_if<AmrMesh>(&mesh.shape);
  return 1 + (amr ? amr->cells.size() : 0);
}

// Whether a rule names the field that the variable is of.
bool is_named(const Rule& rule, const ChannelFields::Variable& v) {
  if (v.field.empty()) return false;
  return rule.fields.contains(v.field) || rule.fields.contains(v.name) || rule.fields.contains(v.mesh + "/" + v.field);
}

}  // namespace

const MeshDescription& ChannelFields::mesh_named(std::string_view name) const {
  const auto found = meshes_.find(name);
  if (found != meshes_.end()) return found->second;
  std::vector<std::string_view> names;
  for (const auto& [each, description] : meshes_) names.push_back(each);
  throw Error(Errc::not_found, base::unknown_name("mesh", name, names));
}

Placed ChannelFields::place_of(const Variable& v, const Mesh& mesh) const {
  if (v.field.empty()) return place_of_structure(v.mesh, mesh, v.name, ranks_);
  const auto& fields = mesh_named(v.mesh).fields;
  return place_of_field(v.mesh, mesh, fields.find(v.field)->second.association, v.components);
}

void ChannelFields::set_mesh(std::string_view name, Mesh mesh) {
  check_mesh(name, mesh);
  auto found = meshes_.find(name);
  if (found != meshes_.end()) {
    const auto& before = found->second.mesh;
    if (before.shape.index() != mesh.shape.index())
      refuse("mesh '" + std::string(name) + "' cannot become one of another kind");
    for (const auto& v : variables_)
      if (v.mesh == name && place_of(v, mesh).shape.size() != v.shape.size())
        refuse("mesh '" + std::string(name) + "' cannot become one of another number of dimensions");
  } else {
    found = meshes_.emplace(name, MeshDescription{}).first;
  }
  for (auto& v : variables_)
    if (v.mesh == name) v.shape = place_of(v, mesh).shape;
  found->second.mesh = std::move(mesh);
  ++version_;
}

std::uint32_t ChannelFields::add_field(Writer& writer, std::string_view mesh, std::string_view name, DType dtype,
                                       const FieldOptions& options) {
  const auto& description = mesh_named(mesh);
  const auto context = "field '" + std::string(name) + "' of mesh '" + std::string(mesh) + "'";
  if (name.empty()) refuse("a field of mesh '" + std::string(mesh) + "' needs a name");
  if (options.components == 0) refuse(context + " has at least one component");
  if (dtype == DType::string || dtype == DType::complex64 || dtype == DType::complex128)
    refuse(context + " holds real numbers, not " + std::string(name_of(dtype)));
  const auto known = description.fields.find(name);
  if (known != description.fields.end()) {
    const auto& field = known->second;
    if (options.variable.empty()) throw Error(Errc::already_exists, context + " exists");
    if (field.association != options.association || field.components != 1 || options.components != 1)
      refuse(context + ": a field's variables are of one association and not interleaved");
  }
  const auto placed = place_of_field(mesh, description.mesh, options.association, options.components);
  const auto variable = options.variable.empty() ? std::string(name) : options.variable;
  const auto id = writer.define(variable, dtype, placed.shape,
                                {.kind = kind_of(placed), .order = options.order, .min_max = options.min_max});
  auto& field = meshes_.find(mesh)->second.fields[std::string(name)];
  field.association = options.association;
  field.components = options.components;
  if (!options.units.empty()) field.units = options.units;
  field.variables.push_back(variable);
  variables_.push_back({std::string(mesh), std::string(name), variable, id, placed.global, placed.shape, placed.shape,
                        false, rank_of(description.mesh, placed, options.components), options.components});
  ++version_;
  return static_cast<std::uint32_t>(variables_.size() - 1);
}

std::uint32_t ChannelFields::add_structure(Writer& writer, std::string_view mesh, std::string_view variable,
                                           DType dtype, Order order) {
  const auto placed = place_of_structure(mesh, mesh_named(mesh).mesh, variable, ranks_);
  const auto id = writer.define(variable, dtype, placed.shape, {.kind = kind_of(placed), .order = order});
  variables_.push_back({std::string(mesh), "", std::string(variable), id, placed.global, placed.shape, placed.shape});
  ++version_;
  return static_cast<std::uint32_t>(variables_.size() - 1);
}

ChannelFields::Variable& ChannelFields::variable(std::uint32_t handle) {
  if (handle >= variables_.size())
    throw Error(Errc::not_found, "the channel has no field of number " + std::to_string(handle));
  return variables_[handle];
}

std::vector<std::uint8_t> ChannelFields::wanted(const Rule& rule) const {
  if (rule.all) return std::vector<std::uint8_t>(variables_.size(), 1);
  std::vector<std::uint8_t> out(variables_.size());
  for (const auto& [mesh, description] : meshes_) {
    bool any = rule.fields.contains(mesh);
    for (std::size_t i = 0; i < variables_.size(); ++i)
      if (variables_[i].mesh == mesh && is_named(rule, variables_[i])) out[i] = any = true;
    for (std::size_t i = 0; any && i < variables_.size(); ++i) {
      const auto& v = variables_[i];
      if (v.mesh == mesh && (v.field.empty() || v.field == description.mesh.ghosts)) out[i] = 1;
    }
  }
  return out;
}

const std::string& ChannelFields::json() {
  if (std::exchange(json_version_, version_) != version_ && !meshes_.empty()) {
    json_version_ = 0;  // should it throw
    json_ = to_json(meshes_);
    json_version_ = version_;
  }
  return json_;
}

Box ChannelFields::box_of(const Variable& v, const Box& box) {
  if (box.count.empty()) {
    if (!v.global) refuse("'" + v.name + "' has no whole: it consists of local arrays; give the box of a block");
    return whole(v.shape);
  }
  Box out = box;
  if (out.start.empty()) out.start = Dims::filled(out.count.size(), 0);
  if (v.components == 1 || out.count.size() != v.rank) return out;
  const auto append = [](const Dims& dims, std::uint64_t last) {
    Dims longer = Dims::filled(dims.size() + 1, last);
    std::ranges::copy(dims, longer.begin());
    return longer;
  };
  return {append(out.start, 0), append(out.count, v.components)};
}

}  // namespace penstock::analysis
