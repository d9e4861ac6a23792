#include "mesh/exodus/exodus_source.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "mesh/exodus/classic_header.hpp"
#include "mesh/exodus/foreign_variables.hpp"
#include "mesh/storage_names.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

constexpr std::size_t max_entities = 1'000'000;  // of a type

const std::set<std::string, std::less<>> own_entity_attributes{"elem_type", "name",      "entity_type1", "entity_type2",
                                                               "_name",     "_type",     "_typename",    "_contains",
                                                               "_id",       "_FillValue"};

// Fields hold 32 or 64 bits.
DType dtype_of_field(DType dtype) {
  switch (dtype) {
    case DType::int8:
    case DType::uint8:
    case DType::int16:
    case DType::uint16: return DType::int32;
    case DType::uint32:
    case DType::uint64: return DType::int64;
    default: return dtype;
  }
}

std::string default_name(const ExodusNames& names, std::int64_t id) {
  switch (names.type) {
    case EntityType::element_block: return "block_" + std::to_string(id);
    case EntityType::edge_block: return "edgeblock_" + std::to_string(id);
    case EntityType::face_block: return "faceblock_" + std::to_string(id);
    case EntityType::node_set: return "nodelist_" + std::to_string(id);
    case EntityType::edge_set: return "edgelist_" + std::to_string(id);
    case EntityType::face_set: return "facelist_" + std::to_string(id);
    case EntityType::element_set: return "elementlist_" + std::to_string(id);
    case EntityType::side_set: return "surface_" + std::to_string(id);
    default: return std::string(name_of(names.type)) + "_" + std::to_string(id);
  }
}

}  // namespace

// The variables of results of one type of entity.
struct ExodusSource::Results {
  std::vector<std::string> names;
  std::vector<int> truth;  // entities x names; empty: all true
};

ExodusSource::ExodusSource(const std::string& path) : file_((require_whole(path), NetcdfFile::open(path))) {
  try {
    read_head();
    read_region();
    read_nodes();
    for (const auto& names : exodus_names) read_entities(names);
    resolve_assemblies();
    check(model_);
  } catch (const Error& e) {
    if (e.code() == Errc::system || e.code() == Errc::not_found) throw;
    throw Error(Errc::invalid_argument, path + ": " + e.what());
  }
}

const Model& ExodusSource::model(std::uint32_t part) {
  check_part(part, 1);
  return model_;
}

std::vector<std::string> ExodusSource::texts(const std::string& variable) const {
  const auto* found = file_.find(variable);
  return found != nullptr ? file_.read_texts(*found) : std::vector<std::string>{};
}

void ExodusSource::add_field(Entity& entity, Field field, Place place) {
  const bool numbers = field.role == Role::mesh && field.name != "coordinates" && field.name != "distribution_factors";
  if (size_of(field.dtype) == 0 || (numbers && field.dtype != DType::int32 && field.dtype != DType::int64))
    throw Error(Errc::invalid_argument, std::string(name_of(entity.type)) + " '" + entity.name + "': field '" +
                                            field.name + "' is kept as " + std::string(name_of(field.dtype)));
  entity.fields.push_back(std::move(field));
  pending_.push_back(std::move(place));
}

// A file that is written is whole from its first state on: the header counts states that are complete.
std::string ExodusSource::text_of_file(const char* attribute, const char* otherwise) const {
  const auto attributes = file_.attributes(NetcdfFile::global_attribute);
  const auto found = attributes.find(attribute);
  const auto* text = found == attributes.end() ? nullptr : std::get_if<std::string>(&found->second);
  return text != nullptr && !text->empty() ? *text : otherwise;
}

void ExodusSource::read_head() {
  auto attributes = file_.attributes(NetcdfFile::global_attribute);
  if (!attributes.contains("version") && !attributes.contains("api_version") && !attributes.contains("api version") &&
      !file_.dimension("num_dim"))
    throw Error(Errc::invalid_argument, "is a netCDF file, but no Exodus file: it has no attribute 'version'");
  if (const auto title = attributes.find("title"); title != attributes.end())
    if (const auto* text = std::get_if<std::string>(&title->second)) model_.title = *text;
  for (auto& [name, value] : attributes)
    if (!is_exodus_attribute(name)) model_.properties.emplace(name, value);
  model_.dimensions = static_cast<std::uint32_t>(file_.dimension("num_dim").value_or(0));
  const auto qa = texts("qa_records");
  for (std::size_t i = 0; i + 4 <= qa.size(); i += 4) model_.qa.push_back({qa[i], qa[i + 1], qa[i + 2], qa[i + 3]});
  model_.information = texts("info_records");
  read_frames();
}

void ExodusSource::read_frames() {
  const auto count = file_.dimension("num_cframes").value_or(0);
  const auto* ids = file_.find(frame_ids);
  const auto* points = file_.find(frame_coordinates);
  const auto* tags = file_.find(frame_tags);
  if (count == 0 || count > max_entities || ids == nullptr || points == nullptr || tags == nullptr) return;
  std::vector<std::int64_t> numbers(count);
  std::vector<double> coordinates(9 * count);
  std::string letters(count, ' ');
  file_.read(ids->id, DType::int64, {0}, {count}, numbers.data());
  file_.read(points->id, DType::float64, {0}, {9 * count}, coordinates.data());
  file_.read(tags->id, DType::string, {0}, {count}, letters.data());
  model_.properties[frame_ids] = std::move(numbers);
  model_.properties[frame_coordinates] = std::move(coordinates);
  model_.properties[frame_tags] = std::move(letters);
}

void ExodusSource::read_region() {
  Entity region{
      .type = EntityType::region, .name = text_of_file(region_name_attribute, default_region_name), .count = 1};
  const auto* values = file_.find("vals_glo_var");
  if (values != nullptr) {
    std::size_t at = 0;
    for (auto& field : join_components(texts("name_glo_var"), dtype_of_field(values->dtype), Role::reduction)) {
      Place place;
      for (std::uint32_t c = 0; c < components_of(field); ++c)
        place.columns.push_back({.variable = values->id, .shape = Column::Shape::value, .at = at++});
      add_field(region, std::move(field), std::move(place));
    }
  }
  read_foreign(file_, region, pending_);
  model_.add(std::move(region));
  places_.push_back(std::move(pending_));
  pending_.clear();
}

void ExodusSource::read_nodes() {
  const auto count = file_.dimension("num_nodes").value_or(0);
  Entity nodes{.type = EntityType::node_block,
               .name = text_of_file(nodes_name_attribute, default_nodes_name),
               .id = 1,
               .count = count};
  Place place;
  DType dtype = DType::float64;
  const auto* all = file_.find("coord");
  for (std::size_t d = 0; d < model_.dimensions; ++d) {
    const auto* variable = all != nullptr ? all : file_.find(std::string("coord") + "xyz"[d]);
    if (variable == nullptr) break;
    dtype = dtype_of_field(variable->dtype);
    place.columns.push_back(
        {.variable = variable->id, .shape = all != nullptr ? Column::Shape::lines : Column::Shape::rows, .at = d});
  }
  const auto axes = texts("coor_names");
  const bool has_axes = axes.size() == model_.dimensions && axes != axis_names(model_.dimensions) &&
                        std::none_of(axes.begin(), axes.end(), [](const auto& axis) { return axis.empty(); });
  if (place.columns.size() != model_.dimensions && count > 0 && !place.columns.empty())
    throw Error(Errc::invalid_argument, "coordinates of one of the dimensions are missing");
  if (model_.dimensions > 0 && (count > 0 ? !place.columns.empty() : has_axes)) {
    static constexpr std::array<const char*, 4> storages{"", "scalar", "vector_2d", "vector_3d"};
    Field field{.name = "coordinates", .dtype = dtype, .storage = storages.at(model_.dimensions), .role = Role::mesh};
    if (has_axes) field.components = axes;
    add_field(nodes, std::move(field), std::move(place));
  }
  if (const auto* ids = file_.find("node_num_map"))
    add_field(nodes, {.name = "ids", .dtype = dtype_of_field(ids->dtype), .role = Role::mesh},
              {{{.variable = ids->id}}, {}});
  read_maps(exodus_node_names, nodes, 0);
  read_attributes(nodes, "num_att_in_nblk", "nattrb", "nattrib_name");
  const auto labels = texts("name_nod_var");
  const auto* old = file_.find("vals_nod_var");  // all of them in one, as old files have it
  std::size_t number = 0;
  for (auto& field : join_components(labels, DType::float64, Role::transient)) {
    Place values;
    for (std::uint32_t c = 0; c < components_of(field); ++c, ++number) {
      const auto* variable = old != nullptr ? old : file_.find(numbered("vals_nod_var", number + 1));
      if (variable == nullptr) break;
      field.dtype = dtype_of_field(variable->dtype);
      values.columns.push_back({.variable = variable->id,
                                .shape = old != nullptr ? Column::Shape::lines : Column::Shape::rows,
                                .at = number});
    }
    if (values.columns.size() == components_of(field)) add_field(nodes, std::move(field), std::move(values));
  }
  model_.add(std::move(nodes));
  places_.push_back(std::move(pending_));
  pending_.clear();
}

// Entities of a type in the order of the file: the number in the names of their variables, id and name.
std::vector<ExodusSource::Listed> ExodusSource::list(const ExodusNames& names) const {
  std::vector<Listed> found;
  const auto count = file_.dimension(names.number).value_or(0);
  if (count > max_entities)
    throw Error(Errc::invalid_argument,
                "has " + std::to_string(count) + " entities of type " + std::string(name_of(names.type)));
  if (count > 0) {
    std::vector<std::int64_t> ids(count);
    std::iota(ids.begin(), ids.end(), 1);
    if (const auto* its = file_.find(numbered(names.properties, 1)))
      file_.read(its->id, DType::int64, {0}, {count}, ids.data());
    auto labels = texts(names.names);
    labels.resize(count);
    for (std::size_t i = 0; i < count; ++i) found.push_back({i + 1, ids[i], labels[i]});
  } else if (is_numbered_by_id(names.type)) {
    const std::string_view prefix = names.members;
    std::map<int, Listed> by_variable;
    for (const auto& [name, variable] : file_.variables()) {
      std::size_t place = 0;
      const auto* end = name.data() + name.size();
      if (!name.starts_with(prefix) || std::from_chars(name.data() + prefix.size(), end, place).ptr != end ||
          place == 0)
        continue;
      Listed entity{place, static_cast<std::int64_t>(place), ""};
      const auto attributes = file_.attributes(variable.id);
      if (const auto id = attributes.find("_id");
          id != attributes.end() && std::holds_alternative<std::int64_t>(id->second))
        entity.id = std::get<std::int64_t>(id->second);
      if (const auto its = attributes.find("_name");
          its != attributes.end() && std::holds_alternative<std::string>(its->second))
        entity.name = std::get<std::string>(its->second);
      by_variable.emplace(variable.id, std::move(entity));
    }
    for (auto& [number, entity] : by_variable) found.push_back(std::move(entity));
  }
  std::set<std::string> taken;
  for (const auto& entity : found) taken.insert(entity.name);
  for (auto& entity : found) {
    if (!entity.name.empty()) continue;
    entity.name = default_name(names, entity.id);  // sets that a file has only places for may all have the id -1
    if (taken.contains(entity.name)) entity.name += "_" + std::to_string(entity.place);
    taken.insert(entity.name);
  }
  return found;
}

void ExodusSource::read_entities(const ExodusNames& names) {
  const auto listed = list(names);
  const auto results = results_of(names.results, listed.size());
  std::size_t first = 0;  // row in the maps of all blocks
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const auto place = listed[i].place;
    Entity entity{.type = names.type, .name = listed[i].name, .id = listed[i].id};
    entity.count = file_.dimension(numbered(names.size, place)).value_or(0);
    if (*names.connectivity != '\0') read_block(names, entity, place, first);
    else if (names.type == EntityType::assembly) read_assembly(names, entity, place);
    else if (names.type != EntityType::blob) read_set(names, entity, place);
    else if (const auto* blob = file_.find(numbered(names.members, place)))
      entity.properties = file_.attributes(blob->id);
    for (std::size_t number = 2; const auto* property = file_.find(numbered(names.properties, number)); ++number) {
      const auto attributes = file_.attributes(property->id);
      const auto label = attributes.find("name");
      std::int64_t value = 0;
      file_.read(property->id, DType::int64, {i}, {1}, &value);
      if (label != attributes.end() && std::holds_alternative<std::string>(label->second))
        entity.properties[std::get<std::string>(label->second)] = value;
    }
    std::erase_if(entity.properties, [](const auto& each) { return own_entity_attributes.contains(each.first); });
    if (*names.attributes != '\0')
      read_attributes(entity, numbered(names.attribute_count, place), numbered(names.attributes, place),
                      numbered(names.attribute_names, place));
    read_results(names, results, entity, place);
    read_reductions(names, entity, place);
    first += entity.count;
    model_.add(std::move(entity));
    places_.push_back(std::move(pending_));
    pending_.clear();
  }
}

void ExodusSource::read_block(const ExodusNames& names, Entity& entity, std::size_t place, std::size_t first) {
  const auto per_entry = file_.dimension(numbered(names.nodes_per_entry, place)).value_or(0);
  const auto* counts = *names.entry_counts != '\0' ? file_.find(numbered(names.entry_counts, place)) : nullptr;
  const auto* nodes = file_.find(numbered(names.connectivity, place));
  const auto* faces = names.type == EntityType::element_block ? file_.find(numbered("facconn", place)) : nullptr;
  const auto* edges = names.type == EntityType::element_block ? file_.find(numbered("edgconn", place)) : nullptr;
  const auto* main = nodes != nullptr ? nodes : faces;
  if (main != nullptr) {
    entity.properties = file_.attributes(main->id);
    const auto type = entity.properties.find("elem_type");
    if (type != entity.properties.end())
      if (const auto* text = std::get_if<std::string>(&type->second)) entity.topology = *text;
  }
  const auto* known = find_topology(entity.topology, counts != nullptr ? 0 : static_cast<std::uint32_t>(per_entry));
  if (known != nullptr && known->name != entity.topology) {
    entity.properties[original_type_property] = entity.topology;
    entity.topology = known->name;
  }
  const auto numbers = [&](const NetcdfVariable& variable, std::string name) {
    const bool flat = variable.dimensions.size() <= 1;
    const auto length = file_.width_of(variable);
    Field field{.name = std::move(name), .dtype = dtype_of_field(variable.dtype), .role = Role::mesh};
    if (flat) field.count = counts != nullptr ? length : 0;
    else field.storage = "[" + std::to_string(std::max<std::size_t>(1, length)) + "]";
    add_field(entity, std::move(field),
              {{{.variable = variable.id, .shape = flat ? Column::Shape::rows : Column::Shape::matrix}}, {1}});
  };
  if (nodes != nullptr) numbers(*nodes, "connectivity");
  if (faces != nullptr) numbers(*faces, nodes != nullptr ? "connectivity_face" : "connectivity");
  if (edges != nullptr) numbers(*edges, "connectivity_edge");
  if (counts != nullptr)
    add_field(entity, {.name = "entity_counts", .dtype = dtype_of_field(counts->dtype), .role = Role::mesh},
              {{{.variable = counts->id}}, {}});
  if (const auto* ids = file_.find(names.ids); ids != nullptr && entity.count > 0)
    add_field(entity, {.name = "ids", .dtype = dtype_of_field(ids->dtype), .role = Role::mesh},
              {{{.variable = ids->id, .first = first}}, {}});
  read_maps(names, entity, first);
}

void ExodusSource::read_maps(const ExodusNames& names, Entity& entity, std::size_t first) {
  const auto count = entity.count > 0 ? file_.dimension(names.map_count).value_or(0) : 0;
  auto labels = texts(names.map_names);
  labels.resize(count);
  std::vector<std::int64_t> places(count), ids(count);
  std::iota(places.begin(), places.end(), 1);
  if (const auto* its = file_.find(numbered(names.map_properties, 1)))
    file_.read(its->id, DType::int64, {0}, {count}, ids.data());
  if (std::set(ids.begin(), ids.end()).size() < count) ids = places;
  const auto add = [&](const NetcdfVariable& map, const std::string& label, std::int64_t number) {
    Field field{.name = label, .dtype = dtype_of_field(map.dtype), .role = Role::map};
    if (label.empty()) {
      field.name = "map_" + std::to_string(number);
      field.components = {""};
    }
    add_field(entity, std::move(field), {{{.variable = map.id, .first = first}}, {}});
  };
  for (std::size_t i = 0; i < count; ++i)
    if (const auto* map = file_.find(numbered(names.maps, i + 1))) add(*map, labels[i], ids[i]);
  if (const auto* order = file_.find(order_map); order != nullptr && names.type == EntityType::element_block &&
                                                 entity.count > 0 && entity.find(order_map, Role::map) == nullptr)
    add(*order, order_map, 0);
}

void ExodusSource::read_set(const ExodusNames& names, Entity& entity, std::size_t place) {
  const auto* members = file_.find(numbered(names.members, place));
  const auto* seconds = *names.seconds != '\0' ? file_.find(numbered(names.seconds, place)) : nullptr;
  if (members != nullptr) {
    entity.properties = file_.attributes(members->id);
    const auto dtype = dtype_of_field(members->dtype);
    if (names.type == EntityType::side_set && seconds != nullptr)
      add_field(entity, {.name = "element_side", .dtype = dtype, .storage = "[2]", .role = Role::mesh},
                {{{.variable = members->id}, {.variable = seconds->id}}, {1, 0}});
    else add_field(entity, {.name = "members", .dtype = dtype, .role = Role::mesh}, {{{.variable = members->id}}, {1}});
    if (names.type != EntityType::side_set && seconds != nullptr)
      add_field(entity, {.name = "orientations", .dtype = dtype_of_field(seconds->dtype), .role = Role::mesh},
                {{{.variable = seconds->id}}, {}});
  }
  if (const auto* factors = file_.find(numbered(names.factors, place))) {
    const auto length = file_.width_of(*factors);
    add_field(entity,
              {.name = "distribution_factors",
               .dtype = dtype_of_field(factors->dtype),
               .role = Role::mesh,
               .count = length == entity.count ? 0 : length},
              {{{.variable = factors->id}}, {}});
  }
}

void ExodusSource::read_assembly(const ExodusNames& names, Entity& entity, std::size_t place) {
  std::vector<std::int64_t> members(entity.count);
  if (const auto* variable = file_.find(numbered(names.members, place))) {
    file_.read(variable->id, DType::int64, {0}, {entity.count}, members.data());
    entity.properties = file_.attributes(variable->id);
    for (const auto* key : {"_type", "_contains"}) {
      const auto code = entity.properties.find(key);
      if (code == entity.properties.end() || !std::holds_alternative<std::int64_t>(code->second)) continue;
      for (const auto& each : exodus_names)
        if (each.code == std::get<std::int64_t>(code->second)) entity.member_type = each.type;
    }
  }
  assembly_members_.push_back(std::move(members));
}

// Members are named by ids, of entities that may come later in the file. Entities that are not there are left out.
void ExodusSource::resolve_assemblies() {
  std::size_t number = 0;
  for (auto& assembly : model_.entities) {
    if (assembly.type != EntityType::assembly) continue;
    for (const auto id : assembly_members_[number])
      for (const auto& each : model_.entities)
        if (each.type == assembly.member_type && each.id == id && &each != &assembly)
          assembly.members.push_back(each.name);
    assembly.count = assembly.members.size();
    ++number;
  }
}

void ExodusSource::read_attributes(Entity& entity, const std::string& count, const std::string& values,
                                   const std::string& labels) {
  const auto* variable = file_.find(values);
  if (variable == nullptr) return;
  const bool single = variable->dimensions.size() <= 1;
  const auto number = single ? 1 : file_.dimension(count).value_or(file_.width_of(*variable));
  auto names = texts(labels);
  names.resize(number);
  for (std::size_t i = 0; i < number; ++i) {
    Field field{.name = names[i], .dtype = dtype_of_field(variable->dtype), .role = Role::attribute};
    if (names[i].empty()) {
      field.name = number == 1 ? "attribute" : "attribute_" + std::to_string(i + 1);
      field.components = {""};
    }
    add_field(
        entity, std::move(field),
        {{{.variable = variable->id, .shape = single ? Column::Shape::rows : Column::Shape::columns, .at = i}}, {}});
  }
}

ExodusSource::Results ExodusSource::results_of(const std::string& kind, std::size_t entities) const {
  Results results{texts("name_" + kind + "_var"), {}};
  if (const auto* table = file_.find(kind + "_var_tab"); table != nullptr && !results.names.empty()) {
    results.truth.resize(entities * results.names.size());
    file_.read(table->id, DType::int32, {0, 0}, {entities, results.names.size()}, results.truth.data());
  }
  return results;
}

void ExodusSource::read_results(const ExodusNames& names, const Results& results, Entity& entity, std::size_t place) {
  std::vector<std::string> its;
  std::vector<const NetcdfVariable*> variables;
  for (std::size_t i = 0; i < results.names.size(); ++i) {
    if (!results.truth.empty() && results.truth[(place - 1) * results.names.size() + i] == 0) continue;
    const auto* variable =
        file_.find(numbered("vals_" + std::string(names.results) + "_var", i + 1, names.results_of, place));
    if (variable == nullptr) continue;
    its.push_back(results.names[i]);
    variables.push_back(variable);
  }
  std::size_t next = 0;
  for (auto& field : join_components(its, DType::float64, Role::transient)) {
    Place values;
    field.dtype = dtype_of_field(variables[next]->dtype);
    for (std::uint32_t c = 0; c < components_of(field); ++c)
      values.columns.push_back({.variable = variables[next++]->id});
    add_field(entity, std::move(field), std::move(values));
  }
}

void ExodusSource::read_reductions(const ExodusNames& names, Entity& entity, std::size_t place) {
  const auto* values = file_.find(numbered("vals_red_var_" + std::string(names.reductions_of), place));
  if (values == nullptr) return;
  std::size_t at = 0;
  const auto labels = texts("name_" + std::string(names.results) + "_red_var");
  for (auto& field : join_components(labels, dtype_of_field(values->dtype), Role::reduction)) {
    Place columns;
    for (std::uint32_t c = 0; c < components_of(field); ++c)
      columns.columns.push_back({.variable = values->id, .shape = Column::Shape::value, .at = at++});
    add_field(entity, std::move(field), std::move(columns));
  }
}

std::vector<double> ExodusSource::times() {
  file_.refresh();
  const auto* whole = file_.find("time_whole");
  if (whole == nullptr) return {};
  std::vector<double> times(file_.rows_of(*whole));
  file_.read(whole->id, DType::float64, {0}, {times.size()}, times.data());
  return times;
}

void ExodusSource::read_stored(std::uint32_t, Slot slot, StateNumber state, Rows rows, void* out) {
  const auto& field = model_.entities.at(slot.entity).fields.at(slot.field);
  read_place(file_, places_.at(slot.entity).at(slot.field), field.dtype, components_of(field), state, rows, out);
}

}  // namespace penstock::mesh
