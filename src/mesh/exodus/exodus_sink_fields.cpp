// What an Exodus file keeps of the fields of entities: attributes, maps, properties, results.
#include <algorithm>
#include <charconv>

#include "mesh/exodus/exodus_sink.hpp"
#include "mesh/storage_names.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

// Maps without a name are called by their id.
std::int64_t map_id(std::string_view name, std::size_t place) {
  constexpr std::string_view prefix = "map_";
  std::int64_t id = 0;
  const auto* end = name.data() + name.size();
  const bool numbered = name.starts_with(prefix) &&
                        std::from_chars(name.data() + prefix.size(), end, id) == std::from_chars_result{end, {}};
  return numbered ? id : static_cast<std::int64_t>(place);
}

}  // namespace

// As the file has it. Classic files hold no 64-bit integers; results of those would be rounded.
DType ExodusSink::result_type(const Field& field) {
  if (field.dtype == DType::int32 || field.dtype == DType::float32) return field.dtype;
  if (field.dtype == DType::float64 || field.dtype == DType::int64) return field.dtype;
  throw Error(Errc::unsupported,
              "Exodus has no results of type " + std::string(name_of(field.dtype)) + " (field '" + field.name + "')");
}

// Names of the components of all fields of the role, over the entities, each once, in the order in which they come.
std::vector<std::string> ExodusSink::union_of_names(const Model& model, const std::vector<std::size_t>& entities,
                                                    Role role) {
  std::vector<std::string> names;
  for (const auto entity : entities)
    for (const auto& field : model.entities[entity].fields)
      if (field.role == role)
        for (auto& name : component_names(field))
          if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  return names;
}

std::size_t ExodusSink::index_of(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

void ExodusSink::define_attributes(const ExodusNames& names, std::size_t e, const std::string& rows,
                                   std::size_t place) {
  const auto& entity = model_.entities[e];
  std::vector<std::string> labels;  // empty ones for attributes without a name
  for (const auto& field : entity.fields)
    if (field.role == Role::attribute)
      for (auto& name : component_names(field)) labels.push_back(std::move(name));
  if (labels.empty()) return;
  const auto of_place = [&](const char* name) { return place == 0 ? std::string(name) : numbered(name, place); };
  DType dtype = DType::float32;
  for (const auto& field : entity.fields)
    if (field.role == Role::attribute && field.dtype != DType::float32) dtype = DType::float64;
  define_texts(of_place(names.attribute_names), of_place(names.attribute_count), labels);
  const auto variable = define(of_place(names.attributes), dtype,
                               {file_->dimension_id(rows), file_->dimension_id(of_place(names.attribute_count))});
  std::size_t at = 0;
  for (std::size_t i = 0; i < entity.fields.size(); ++i)
    if (entity.fields[i].role == Role::attribute)
      for (std::uint32_t c = 0; c < components_of(entity.fields[i]); ++c)
        places_[e][i].columns.push_back({.variable = variable, .shape = Column::Shape::columns, .at = at++});
}

// One variable holds a map of all blocks: a map that only some of them have is refused.
void ExodusSink::define_maps(const ExodusNames& names, const std::vector<std::size_t>& entities) {
  const auto rows = [&] { return file_->dimension_id(names.total); };
  const auto place_all = [&](const std::string& field, Role role, int variable) {
    std::size_t first = 0;
    for (const auto e : entities) {
      if (model_.entities[e].find(field, role) != nullptr)
        place_of(e, field, role).columns.push_back({.variable = variable, .first = first});
      else if (model_.entities[e].count > 0)
        throw Error(Errc::unsupported, path_ + ": field '" + field + "' is on some " +
                                           std::string(name_of(names.type)) +
                                           "s only; Exodus keeps it for all or none");
      first += model_.entities[e].count;
    }
  };
  if (model_.count_of(names.type) == 0) return;
  const auto has_ids = [&](std::size_t e) { return model_.entities[e].find("ids", Role::mesh) != nullptr; };
  if (names.type != EntityType::node_block && std::any_of(entities.begin(), entities.end(), has_ids))
    place_all("ids", Role::mesh, define(names.ids, integer_type(), {rows()}));
  std::vector<std::string> maps, labels;
  bool has_order = false;
  for (const auto e : entities)
    for (const auto& field : model_.entities[e].fields) {
      if (field.role != Role::map || index_of(maps, field.name) < maps.size()) continue;
      if (field.name == order_map && names.type == EntityType::element_block) {
        has_order = true;
        continue;
      }
      maps.push_back(field.name);
      labels.push_back(component_names(field).front());
    }
  if (has_order) place_all(order_map, Role::map, define(order_map, integer_type(), {rows()}));
  if (maps.empty()) return;
  define_texts(names.map_names, names.map_count, std::move(labels));
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < maps.size(); ++i) {
    numbers.push_back(map_id(maps[i], i + 1));
    place_all(maps[i], Role::map, define(numbered(names.maps, i + 1), integer_type(), {rows()}));
  }
  define_integers(numbered(names.map_properties, 1), {file_->dimension_id(names.map_count)}, numbers, wide_);
  file_->put_attribute(file_->find(numbered(names.map_properties, 1))->id, "name", std::string("ID"));
}

// A whole number that all entities have is one of Exodus's properties; anything else is an attribute of the entity's variable.
void ExodusSink::define_properties(const ExodusNames& names, const std::vector<std::size_t>& entities) {
  const auto number_of = [&](std::size_t e, const std::string& name) -> const std::int64_t* {
    const auto found = model_.entities[e].properties.find(name);
    return found == model_.entities[e].properties.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  };
  std::size_t number = 2;
  const auto kept_in_lists =
      is_numbered_by_id(names.type) ? Properties{} : model_.entities[entities.front()].properties;
  for (const auto& [name, ignored] : kept_in_lists) {
    std::vector<std::int64_t> values;
    for (const auto e : entities)
      if (const auto* value = number_of(e, name)) values.push_back(*value);
    if (values.size() < entities.size()) continue;
    const auto variable = numbered(names.properties, number++);
    define_integers(variable, {file_->dimension_id(names.number)}, std::move(values), wide_);
    file_->put_attribute(file_->find(variable)->id, "name", name);
    for (const auto e : entities) model_.entities[e].properties.erase(name);
  }
  for (std::size_t n = 0; n < entities.size(); ++n) {
    const auto& entity = model_.entities[entities[n]];
    const auto place = place_of_entity(entities[n], n);
    const auto* variable =
        file_->find(numbered(*names.connectivity != '\0' ? names.connectivity : names.members, place));
    if (variable == nullptr && names.type == EntityType::element_block)
      variable = file_->find(numbered("facconn", place));
    if (variable == nullptr) continue;  // an empty block or set has no variable to hold them
    for (const auto& [name, value] : entity.properties)
      if (name != original_type_property) file_->put_attribute(variable->id, name, value);
  }
}

void ExodusSink::define_results(const ExodusNames& names, const std::vector<std::size_t>& entities) {
  const auto labels = union_of_names(model_, entities, Role::transient);
  if (labels.empty()) return;
  const std::string kind = names.results;
  define_texts("name_" + kind + "_var", "num_" + kind + "_var", labels);
  std::vector<std::int64_t> truth(entities.size() * labels.size(), 0);
  for (std::size_t n = 0; n < entities.size(); ++n) {
    const auto e = entities[n];
    const auto& entity = model_.entities[e];
    if (entity.count == 0) continue;
    const auto place = place_of_entity(e, n);
    const auto rows = file_->dimension_id(numbered(names.size, place));
    for (std::size_t i = 0; i < entity.fields.size(); ++i) {
      if (entity.fields[i].role != Role::transient) continue;
      for (const auto& name : component_names(entity.fields[i])) {
        const auto at = index_of(labels, name);
        truth[n * labels.size() + at] = 1;
        places_[e][i].columns.push_back(
            {.variable = define(numbered("vals_" + kind + "_var", at + 1, names.results_of, place),
                                result_type(entity.fields[i]), {time_dimension_, rows})});
      }
    }
  }
  if (is_numbered_by_id(names.type)) return;
  define_integers(kind + "_var_tab", {file_->dimension_id(names.number), file_->dimension_id("num_" + kind + "_var")},
                  std::move(truth), false);
}

void ExodusSink::define_reductions(const ExodusNames& names, const std::vector<std::size_t>& entities) {
  const auto labels = union_of_names(model_, entities, Role::reduction);
  if (labels.empty()) return;
  const std::string dimension = "num_" + std::string(names.results) + "_red_var";
  define_texts("name_" + std::string(names.results) + "_red_var", dimension, labels);
  for (std::size_t n = 0; n < entities.size(); ++n) {
    const auto e = entities[n];
    const auto& fields = model_.entities[e].fields;
    const auto has_one = [](const Field& field) { return field.role == Role::reduction; };
    if (std::none_of(fields.begin(), fields.end(), has_one)) continue;
    const auto variable = define(numbered("vals_red_var_" + std::string(names.reductions_of), place_of_entity(e, n)),
                                 DType::float64, {time_dimension_, file_->dimension_id(dimension)});
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (fields[i].role != Role::reduction) continue;
      static_cast<void>(result_type(fields[i]));
      for (const auto& name : component_names(fields[i]))
        places_[e][i].columns.push_back(
            {.variable = variable, .shape = Column::Shape::value, .at = index_of(labels, name)});
    }
  }
}

}  // namespace penstock::mesh
