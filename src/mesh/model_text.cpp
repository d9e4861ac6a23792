#include "mesh/model_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

using Json = nlohmann::json;

// nlohmann::json converts any number to any other, also out of range.
std::uint64_t count_of(const Json& json) {
  if (!json.is_number_unsigned()) throw Error(Errc::invalid_argument, "a count is a whole number of at least 0");
  return json.get<std::uint64_t>();
}
std::int64_t integer_of(const Json& json) {
  const bool fits = json.is_number_unsigned() ? json.get<std::uint64_t>() <= INT64_MAX : json.is_number_integer();
  if (!fits) throw Error(Errc::invalid_argument, "a whole number has 64 bits");
  return json.get<std::int64_t>();
}

// Real numbers as their bits: JSON has no infinity and no NaN.
Json value_of(const Property& value) {
  return std::visit(
      [](const auto& each) -> Json {
        using T = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<T, double>) return {{"bits", std::bit_cast<std::uint64_t>(each)}};
        else if constexpr (std::is_same_v<T, std::vector<double>>) {
          Json bits = Json::array();
          for (const auto number : each) bits.push_back(std::bit_cast<std::uint64_t>(number));
          return {{"bits", bits}};
        } else return each;
      },
      value);
}

Property property_of(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number()) return integer_of(json);
  if (json.is_array()) {
    std::vector<std::int64_t> numbers;
    for (const auto& each : json) numbers.push_back(integer_of(each));
    return numbers;
  }
  const auto& bits = json.at("bits");
  if (!bits.is_array()) return std::bit_cast<double>(count_of(bits));
  std::vector<double> numbers;
  for (const auto& each : bits) numbers.push_back(std::bit_cast<double>(count_of(each)));
  return numbers;
}

Json json_of(const Properties& properties) {
  Json json = Json::object();
  for (const auto& [name, value] : properties) json[name] = value_of(value);
  return json;
}
Properties properties_of(const Json& json) {
  Properties properties;
  for (const auto& [name, value] : json.items()) properties.emplace(name, property_of(value));
  return properties;
}

Json json_of(const Field& field) {
  return {{"name", field.name},          {"dtype", name_of(field.dtype)}, {"storage", field.storage},
          {"role", name_of(field.role)}, {"count", field.count},          {"components", field.components}};
}
Field field_of(const Json& json) {
  return {json.at("name"),
          dtype_from_name(json.at("dtype").get<std::string>()),
          json.at("storage"),
          role_from_name(json.at("role").get<std::string>()),
          count_of(json.at("count")),
          json.at("components")};
}

Json json_of(const NodeRange& range) { return {range.first, range.last}; }
Ijk ijk_of(const Json& json) { return {integer_of(json.at(0)), integer_of(json.at(1)), integer_of(json.at(2))}; }
NodeRange range_of(const Json& json) { return {ijk_of(json.at(0)), ijk_of(json.at(1))}; }
std::int32_t small_of(const Json& json) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(integer_of(json), INT32_MIN, INT32_MAX));
}

Json json_of(const Structured& structured) {
  Json connectivities = Json::array(), boundaries = Json::array();
  for (const auto& each : structured.connectivities)
    connectivities.push_back({{"name", each.name},
                              {"donor", each.donor},
                              {"transform", each.transform},
                              {"owner_range", json_of(each.owner_range)},
                              {"donor_range", json_of(each.donor_range)},
                              {"decomposition", each.decomposition}});
  for (const auto& each : structured.boundaries)
    boundaries.push_back(
        {{"name", each.name}, {"family", each.family}, {"range", json_of(each.range)}, {"face", each.face}});
  return {{"cells", structured.cells},
          {"whole", structured.whole},
          {"offset", structured.offset},
          {"connectivities", std::move(connectivities)},
          {"boundaries", std::move(boundaries)}};
}
Structured structured_of(const Json& json) {
  Structured structured{
      .cells = ijk_of(json.at("cells")), .whole = ijk_of(json.at("whole")), .offset = ijk_of(json.at("offset"))};
  for (const auto& each : json.at("connectivities")) {
    const auto& transform = each.at("transform");
    structured.connectivities.push_back(
        {each.at("name"),
         each.at("donor"),
         {small_of(transform.at(0)), small_of(transform.at(1)), small_of(transform.at(2))},
         range_of(each.at("owner_range")),
         range_of(each.at("donor_range")),
         each.at("decomposition")});
  }
  for (const auto& each : json.at("boundaries"))
    structured.boundaries.push_back(
        {each.at("name"), each.at("family"), range_of(each.at("range")), small_of(each.at("face"))});
  return structured;
}

Json json_of(const Entity& entity) {
  Json fields = Json::array();
  for (const auto& field : entity.fields) fields.push_back(json_of(field));
  return {{"type", name_of(entity.type)},
          {"name", entity.name},
          {"id", entity.id},
          {"count", entity.count},
          {"topology", entity.topology},
          {"members", entity.members},
          {"member_type", name_of(entity.member_type)},
          {"properties", json_of(entity.properties)},
          {"fields", std::move(fields)},
          {"structured", entity.structured ? json_of(*entity.structured) : Json()}};
}
Entity entity_of(const Json& json) {
  Entity entity{.type = entity_type_from_name(json.at("type").get<std::string>()),
                .name = json.at("name"),
                .id = integer_of(json.at("id")),
                .count = count_of(json.at("count")),
                .topology = json.at("topology"),
                .members = json.at("members"),
                .member_type = entity_type_from_name(json.at("member_type").get<std::string>()),
                .properties = properties_of(json.at("properties"))};
  for (const auto& field : json.at("fields")) entity.fields.push_back(field_of(field));
  if (!json.at("structured").is_null()) entity.structured = structured_of(json.at("structured"));
  return entity;
}

}  // namespace

std::string to_text(const Model& model) {
  Json json{{"title", model.title},
            {"dimensions", model.dimensions},
            {"information", model.information},
            {"properties", json_of(model.properties)},
            {"qa", Json::array()},
            {"entities", Json::array()}};
  for (const auto& record : model.qa) json["qa"].push_back({record.code, record.version, record.date, record.time});
  for (const auto& entity : model.entities) json["entities"].push_back(json_of(entity));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Model unchecked_model_from_text(std::string_view text) {
  try {
    const auto json = Json::parse(text);
    Model model{
        .title = json.at("title"),
        .dimensions = static_cast<std::uint32_t>(std::min<std::uint64_t>(count_of(json.at("dimensions")), UINT32_MAX)),
        .information = json.at("information"),
        .properties = properties_of(json.at("properties"))};
    for (const auto& record : json.at("qa"))
      model.qa.push_back({record.at(0), record.at(1), record.at(2), record.at(3)});
    for (const auto& entity : json.at("entities")) model.entities.push_back(entity_of(entity));
    return model;
  } catch (const Json::exception& e) {
    throw Error(Errc::protocol, std::string("this is no model of a mesh region: ") + e.what());
  } catch (const Error& e) {
    throw Error(Errc::protocol, std::string("this is no model of a mesh region: ") + e.what());
  }
}

Model model_from_text(std::string_view text) {
  auto model = unchecked_model_from_text(text);
  try {
    check(model);
  } catch (const Error& e) {
    throw Error(Errc::protocol, std::string("this is no model of a mesh region: ") + e.what());
  }
  return model;
}

}  // namespace penstock::mesh
