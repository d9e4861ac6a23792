#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/text.hpp"
#include "mesh/structured.hpp"
#include "penstock/error.hpp"
#include "penstock/region.hpp"

namespace penstock::mesh {
namespace {

constexpr std::array<std::string_view, entity_type_count> type_names{
    "region",   "node_block",  "edge_block", "face_block", "element_block",    "node_set", "edge_set",
    "face_set", "element_set", "side_set",   "comm_set",   "structured_block", "assembly", "blob"};
constexpr std::array<std::string_view, role_count> role_names{"mesh",          "attribute", "map",
                                                              "communication", "reduction", "transient"};

[[noreturn]] void refuse(const Entity& entity, const std::string& why) {
  throw Error(Errc::invalid_argument, std::string(name_of(entity.type)) + " '" + entity.name + "': " + why);
}

void check_field(const Entity& entity, const Field& field) {
  const auto where = "field '" + field.name + "' ";
  if (field.name.empty()) refuse(entity, "a field has no name");
  if (field.dtype == DType::none) refuse(entity, where + "has no element type");
  const auto components = components_of(field);
  if (!field.components.empty() && field.components.size() != components)
    refuse(entity, where + "names " + std::to_string(field.components.size()) + " components and has " +
                       std::to_string(components));
  const bool may_have_count =
      field.role != Role::reduction && (field.role != Role::transient || entity.type == EntityType::region);
  if (field.count != 0 && !may_have_count)
    refuse(entity, where + "has a count of its own, which only model fields have");
  static_cast<void>(values_of(entity, field));
}

// What is known of the topology, and how wide its connectivity is.
void check_topology(const Entity& block) {
  const auto* topology = find_topology(block.topology);
  const auto* nodes = block.find("connectivity", Role::mesh);
  if (topology == nullptr || topology->nodes == 0 || nodes == nullptr || block.find("entity_counts") != nullptr) return;
  if (components_of(*nodes) != topology->nodes)
    refuse(block, "elements " + block.topology + " have " + std::to_string(topology->nodes) +
                      " nodes, and connectivity has " + std::to_string(components_of(*nodes)));
}

void check_assembly(const Model& model, const Entity& assembly) {
  if (assembly.member_type == EntityType::region) refuse(assembly, "its members are of no type that it could have");
  for (const auto& member : assembly.members)
    if (model.find(assembly.member_type, member) == nullptr)
      refuse(assembly, "there is no " + std::string(name_of(assembly.member_type)) + " '" + member + "'");
}

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

bool same_value(const Property& a, const Property& b) {
  if (a.index() != b.index()) return false;
  if (const auto* number = std::get_if<double>(&a)) return same_number(*number, std::get<double>(b));
  if (const auto* numbers = std::get_if<std::vector<double>>(&a))
    return std::ranges::equal(*numbers, std::get<std::vector<double>>(b), same_number);
  return a == b;
}

}  // namespace

bool operator==(const Properties& a, const Properties& b) {
  return std::ranges::equal(a, b, [](const auto& left, const auto& right) {
    return left.first == right.first && same_value(left.second, right.second);
  });
}

std::string_view name_of(EntityType type) { return type_names.at(static_cast<std::size_t>(type)); }
std::string_view name_of(Role role) { return role_names.at(static_cast<std::size_t>(role)); }

EntityType entity_type_from_name(std::string_view name) {
  const auto found = std::find(type_names.begin(), type_names.end(), name);
  if (found == type_names.end())
    throw Error(Errc::invalid_argument, base::unknown_name("entity type", name, type_names));
  return static_cast<EntityType>(found - type_names.begin());
}

Role role_from_name(std::string_view name) {
  const auto found = std::find(role_names.begin(), role_names.end(), name);
  if (found == role_names.end()) throw Error(Errc::invalid_argument, base::unknown_name("role", name, role_names));
  return static_cast<Role>(found - role_names.begin());
}

const Field* Entity::find(std::string_view field) const {
  for (const auto& each : fields)
    if (each.name == field) return &each;
  return nullptr;
}

const Field* Entity::find(std::string_view field, Role role) const {
  for (const auto& each : fields)
    if (each.name == field && each.role == role) return &each;
  return nullptr;
}

const Field& Entity::at(std::string_view field) const {
  if (const auto* found = find(field)) return *found;
  std::vector<std::string_view> names;
  for (const auto& each : fields) names.push_back(each.name);
  throw Error(Errc::not_found,
              std::string(name_of(type)) + " '" + name + "': " + base::unknown_name("field", field, names));
}

Entity& Model::add(Entity entity) { return entities.emplace_back(std::move(entity)); }

const Entity* Model::find(EntityType type, std::string_view name) const {
  for (const auto& each : entities)
    if (each.type == type && each.name == name) return &each;
  return nullptr;
}

const Entity& Model::at(EntityType type, std::string_view name) const {
  if (const auto* found = find(type, name)) return *found;
  std::vector<std::string_view> names;
  for (const auto& each : entities)
    if (each.type == type) names.push_back(each.name);
  throw Error(Errc::not_found, base::unknown_name(name_of(type), name, names));
}

std::uint64_t Model::count_of(EntityType type) const {
  std::uint64_t count = 0;
  for (const auto& each : entities)
    if (each.type == type) count += each.count;
  return count;
}

std::uint32_t components_of(const Field& field) {
  return static_cast<std::uint32_t>(std::max<std::size_t>(1, storage_named(field.storage).suffixes.size()));
}

std::uint64_t rows_of(const Entity& entity, const Field& field) {
  if (field.role == Role::reduction) return 1;
  if (entity.type == EntityType::region) return std::max<std::uint64_t>(1, field.count);
  return field.count != 0 ? field.count : entity.count;
}

std::uint64_t values_of(const Entity& entity, const Field& field) {
  return element_count({rows_of(entity, field), components_of(field)});
}

void check(const Model& model) {
  if (model.dimensions > 3) throw Error(Errc::invalid_argument, "a mesh has at most 3 dimensions");
  std::set<std::pair<EntityType, std::string_view>> names;
  std::set<std::pair<EntityType, std::int64_t>> ids;
  for (const auto& entity : model.entities) {
    if (entity.name.empty()) refuse(entity, "has no name");
    if (!names.emplace(entity.type, entity.name).second) refuse(entity, "the name is used twice");
    const bool undefined = entity.count == 0 && entity.id < 0;  // a place for a set that nobody filled
    if (entity.type != EntityType::region && !undefined && !ids.emplace(entity.type, entity.id).second)
      refuse(entity, "another one has id " + std::to_string(entity.id));
    std::set<std::pair<Role, std::string_view>> fields;
    for (const auto& field : entity.fields) {
      try {
        check_field(entity, field);
      } catch (const Error& e) {
        refuse(entity, "field '" + field.name + "': " + e.what());
      }
      if (!fields.emplace(field.role, field.name).second) refuse(entity, "field '" + field.name + "' is there twice");
    }
    if (entity.type == EntityType::assembly) check_assembly(model, entity);
    check_topology(entity);
    check_structured(model, entity);
  }
}

}  // namespace penstock::mesh
