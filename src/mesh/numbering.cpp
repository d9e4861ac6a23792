#include "mesh/numbering.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "mesh/copy.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

// Rows that lie closer than this are read at once, with what is between them.
constexpr std::uint64_t sparse = 4;

// For each element of the part, through its blocks: its topology.
std::vector<std::pair<std::uint64_t, const Topology*>> blocks_of_elements(const Model& model) {
  std::vector<std::pair<std::uint64_t, const Topology*>> blocks;
  std::uint64_t end = 0;
  for (const auto& entity : model.entities) {
    if (entity.type != EntityType::element_block) continue;
    end += entity.count;
    blocks.emplace_back(end, find_topology(entity.topology));
  }
  return blocks;
}

std::vector<std::uint64_t> nodes_of_sides(Source& source, std::uint32_t part, const Entity& set, std::size_t entity) {
  const auto& model = source.model(part);
  const auto sides = read_integers(source, part, {entity, field_place(set, Role::mesh, "element_side")});
  const auto blocks = blocks_of_elements(model);
  std::vector<std::uint64_t> nodes;
  for (std::size_t i = 0; i + 1 < sides.size(); i += 2) {
    const auto element = static_cast<std::uint64_t>(sides[i]);
    const auto block = std::upper_bound(blocks.begin(), blocks.end(), element,
                                        [](std::uint64_t number, const auto& each) { return number < each.first; });
    const auto* topology = block == blocks.end() ? nullptr : block->second;
    const auto side = sides[i + 1];
    if (topology != nullptr && topology->name == "nsided" && side >= 1) {
      nodes.push_back(2);
      continue;
    }
    if (topology == nullptr || side < 1 || static_cast<std::size_t>(side) > topology->side_nodes.size())
      throw Error(Errc::invalid_argument, "side set '" + set.name + "': how many nodes side " + std::to_string(side) +
                                              " of element " + std::to_string(element) + " has is not known");
    nodes.push_back(topology->side_nodes[static_cast<std::size_t>(side - 1)]);
  }
  return nodes;
}

}  // namespace

std::size_t place_among_numbered(EntityType type) {
  return static_cast<std::size_t>(std::find(numbered_types.begin(), numbered_types.end(), type) -
                                  numbered_types.begin());
}

Reference reference_of(const Entity& entity, const Field& field) {
  if (field.role == Role::communication && entity.name == "commset_node") return {EntityType::node_block, false};
  if (field.role != Role::mesh) return {};
  if (field.name == "connectivity_edge") return {EntityType::edge_block};
  if (field.name == "connectivity_face") return {EntityType::face_block};
  if (field.name == "connectivity") {
    const bool of_faces = entity.type == EntityType::element_block && entity.topology == "nfaced";
    return {of_faces ? EntityType::face_block : EntityType::node_block};
  }
  if (field.name == "element_side") return {EntityType::element_block, false};
  if (field.name != "members") return {};
  switch (entity.type) {
    case EntityType::node_set: return {EntityType::node_block};
    case EntityType::edge_set: return {EntityType::edge_block};
    case EntityType::face_set: return {EntityType::face_block};
    case EntityType::element_set: return {EntityType::element_block};
    default: return {};
  }
}

bool is_ragged(const Entity& entity, const Field& field) {
  if (field.role != Role::mesh || field.count == 0) return false;
  return (field.name == "connectivity" && entity.find("entity_counts", Role::mesh) != nullptr) ||
         field.name == "distribution_factors";
}

std::vector<std::uint64_t> starts_of(Source& source, std::uint32_t part, Slot slot) {
  const auto& entity = source.model(part).entities.at(slot.entity);
  const auto& field = entity.fields.at(slot.field);
  std::vector<std::uint64_t> starts{0};
  const auto add = [&starts](std::uint64_t length) { starts.push_back(starts.back() + length); };
  if (field.name == "connectivity") {
    const Slot counts{slot.entity, field_place(entity, Role::mesh, "entity_counts")};
    for (const auto count : read_integers(source, part, counts)) {
      if (count < 0 || static_cast<std::uint64_t>(count) > field.count)
        throw Error(Errc::invalid_argument, std::string(name_of(entity.type)) + " '" + entity.name +
                                                "': an entry has " + std::to_string(count) + " nodes or faces");
      add(static_cast<std::uint64_t>(count));
    }
  } else if (entity.type == EntityType::side_set) {
    for (const auto nodes : nodes_of_sides(source, part, entity, slot.entity)) add(nodes);
  } else if (entity.count > 0 && field.count % entity.count == 0) {
    for (std::uint64_t i = 0; i < entity.count; ++i) add(field.count / entity.count);
  }
  if (starts.size() != entity.count + 1 || starts.back() != field.count)
    throw Error(Errc::invalid_argument, std::string(name_of(entity.type)) + " '" + entity.name + "': field '" +
                                            field.name + "' has " + std::to_string(field.count) +
                                            " entries, and its rows need " + std::to_string(starts.back()));
  return starts;
}

std::vector<std::int64_t> read_integers(Source& source, std::uint32_t part, Slot slot) {
  const auto& field = source.model(part).entities.at(slot.entity).fields.at(slot.field);
  if (size_of(field.dtype) == 0)
    throw Error(Errc::invalid_argument, "field '" + field.name + "' holds no whole numbers");
  const auto bytes = read_whole(source, part, slot);
  std::vector<std::int64_t> values(bytes.size() / size_of(field.dtype));
  if (field.dtype == DType::int64) {
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  } else if (field.dtype == DType::int32) {
    const auto* narrow = reinterpret_cast<const std::int32_t*>(bytes.data());
    std::copy_n(narrow, values.size(), values.begin());
  } else {
    const auto* real = reinterpret_cast<const double*>(bytes.data());  // kept as an attribute
    if (field.dtype != DType::float64)
      throw Error(Errc::invalid_argument, "field '" + field.name + "' holds no whole numbers");
    std::transform(real, real + values.size(), values.begin(), [](double v) { return static_cast<std::int64_t>(v); });
  }
  return values;
}

void read_rows(Source& source, std::uint32_t part, Slot slot, std::span<const std::uint64_t> rows, void* out) {
  if (rows.empty()) return;
  const auto& field = source.model(part).entities.at(slot.entity).fields.at(slot.field);
  const auto size = size_of(field.dtype) * components_of(field);
  const auto [least, greatest] = std::minmax_element(rows.begin(), rows.end());
  const auto first = *least;
  const auto span = *greatest - first + 1;
  auto* to = static_cast<std::byte*>(out);
  const bool contiguous = span == rows.size() && std::is_sorted(rows.begin(), rows.end());
  if (contiguous) return source.read(part, slot, {first, span}, out);
  if (span / sparse <= rows.size()) {
    std::vector<std::byte> all(span * size);
    source.read(part, slot, {first, span}, all.data());
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::memcpy(to + i * size, all.data() + (rows[i] - first) * size, size);
    return;
  }
  for (std::size_t i = 0; i < rows.size();) {
    std::size_t run = 1;
    while (i + run < rows.size() && rows[i + run] == rows[i] + run) ++run;
    source.read(part, slot, {rows[i], run}, to + i * size);
    i += run;
  }
}

namespace {

[[noreturn]] void refuse_number(std::int64_t value, std::size_t count) {
  throw Error(Errc::invalid_argument, "a field names number " + std::to_string(value) + ", and there are " +
                                          std::to_string(count) + " in this part");
}

template <class T>
void translate_as(T* values, std::size_t count, std::size_t stride, std::span<const std::uint64_t> to) {
  for (std::size_t i = 0; i < count; ++i) {
    auto& value = values[i * stride];
    if (value < 0 || static_cast<std::uint64_t>(value) >= to.size()) refuse_number(value, to.size());
    value = static_cast<T>(to[static_cast<std::size_t>(value)]);
  }
}

template <class T>
void find_as(T* values, std::size_t count, std::size_t stride, std::span<const std::uint64_t> ascending) {
  for (std::size_t i = 0; i < count; ++i) {
    auto& value = values[i * stride];
    const auto found = std::lower_bound(ascending.begin(), ascending.end(), static_cast<std::uint64_t>(value));
    if (value < 0 || found == ascending.end() || *found != static_cast<std::uint64_t>(value))
      refuse_number(value, ascending.size());
    value = static_cast<T>(found - ascending.begin());
  }
}

[[noreturn]] void refuse_type() {
  throw Error(Errc::invalid_argument, "numbers of nodes and the like are int32 or int64");
}

}  // namespace

void translate(DType dtype, void* values, std::size_t count, std::size_t stride, std::span<const std::uint64_t> to) {
  if (dtype == DType::int32) return translate_as(static_cast<std::int32_t*>(values), count, stride, to);
  if (dtype == DType::int64) return translate_as(static_cast<std::int64_t*>(values), count, stride, to);
  refuse_type();
}

void find_in(DType dtype, void* values, std::size_t count, std::size_t stride,
             std::span<const std::uint64_t> ascending) {
  if (dtype == DType::int32) return find_as(static_cast<std::int32_t*>(values), count, stride, ascending);
  if (dtype == DType::int64) return find_as(static_cast<std::int64_t*>(values), count, stride, ascending);
  refuse_type();
}

std::size_t entity_place(const Model& model, EntityType type, std::string_view name) {
  for (std::size_t e = 0; e < model.entities.size(); ++e)
    if (model.entities[e].type == type && model.entities[e].name == name) return e;
  return SIZE_MAX;
}

std::size_t field_place(const Entity& entity, Role role, std::string_view name) {
  for (std::size_t i = 0; i < entity.fields.size(); ++i)
    if (entity.fields[i].role == role && entity.fields[i].name == name) return i;
  return SIZE_MAX;
}

}  // namespace penstock::mesh
