// The C API: the model of a mesh region.
#include "capi/region.hpp"

using namespace penstock;
using namespace penstock::capi;

// The C enumerations are the C++ ones.
static_assert(static_cast<int>(PENSTOCK_REGION) == static_cast<int>(mesh::EntityType::region));
static_assert(static_cast<int>(PENSTOCK_ELEMENT_BLOCK) == static_cast<int>(mesh::EntityType::element_block));
static_assert(static_cast<int>(PENSTOCK_SIDE_SET) == static_cast<int>(mesh::EntityType::side_set));
static_assert(PENSTOCK_BLOB + 1 == static_cast<int>(mesh::entity_type_count));
static_assert(static_cast<int>(PENSTOCK_ROLE_MESH) == static_cast<int>(mesh::Role::mesh));
static_assert(static_cast<int>(PENSTOCK_ROLE_REDUCTION) == static_cast<int>(mesh::Role::reduction));
static_assert(PENSTOCK_ROLE_TRANSIENT + 1 == static_cast<int>(mesh::role_count));

namespace penstock::capi {

std::string describe(const mesh::Entity& entity) {
  return std::string(mesh::name_of(entity.type)) + " '" + entity.name + "'";
}

namespace {
[[noreturn]] void refuse_number(const std::string& owner, const char* what, std::size_t number, std::size_t count) {
  throw Error(Errc::invalid_argument,
              owner + " has no " + what + " " + std::to_string(number) + "; it has " + std::to_string(count));
}
}  // namespace

mesh::Entity& entity_of(penstock_model* handle, std::size_t number) {
  auto& entities = need(handle, "model").model.entities;
  if (number >= entities.size()) refuse_number("the model", "entity", number, entities.size());
  return entities[number];
}

namespace {

mesh::EntityType entity_type_of(int value) { return enum_of(value, mesh::EntityType::blob, "an entity's type"); }

mesh::Properties& properties_of(penstock_model* handle, std::size_t entity) {
  return entity == PENSTOCK_WHOLE_MODEL ? need(handle, "model").model.properties : entity_of(handle, entity).properties;
}

std::string owner_of(penstock_model* handle, std::size_t entity) {
  return entity == PENSTOCK_WHOLE_MODEL ? "the model" : describe(entity_of(handle, entity));
}

mesh::Entity entity_from(const penstock_entity* from) {
  penstock_entity known = penstock_entity_of(0, nullptr, 0, 0);
  const auto& given = need(from, "entity");
  copy_grown(given, &known, std::min(given.struct_size, sizeof known));
  mesh::Entity entity{.type = entity_type_of(known.type),
                      .name = &need(known.name, "an entity's name"),
                      .id = known.id,
                      .count = known.count,
                      .topology = text_of(known.topology),
                      .member_type = entity_type_of(known.member_type)};
  entity.members = texts_of(known.num_members, known.members, "a member's name");
  return entity;
}

mesh::Field field_from(const penstock_field* from) {
  penstock_field known = penstock_field_of(nullptr, 0, nullptr, 0);
  const auto& given = need(from, "field");
  copy_grown(given, &known, std::min(given.struct_size, sizeof known));
  mesh::Field field{.name = &need(known.name, "a field's name")};
  try {
    field.dtype = capi::dtype_of(known.dtype);
    if (known.storage) field.storage = known.storage;
    static_cast<void>(mesh::components_of(field));  // throws for a storage that there is not
    field.role = enum_of(known.role, mesh::Role::transient, "a role");
    field.components = texts_of(known.num_component_names, known.component_names, "a component's name");
  } catch (const Error& e) {
    throw e.in("field '" + field.name + "'");
  }
  field.count = known.count;
  return field;
}

template <class T>
mesh::Property numbers_from(const void* values, std::size_t count, bool is_array) {
  const auto* first = static_cast<const T*>(values);
  if (is_array) return std::vector<T>(first, first + count);
  return *first;
}

template <class T>
penstock_attribute numbers_to_c(DType dtype, const T* values, std::size_t count, bool is_array) {
  return {static_cast<int>(dtype), is_array, count, values, nullptr};
}

penstock_attribute to_c(penstock_model& model, const mesh::Property& property) {
  if (const auto* text = std::get_if<std::string>(&property))
    return {PENSTOCK_STRING, 0, 1, nullptr, model.list(std::span(text, 1))};
  if (const auto* value = std::get_if<std::int64_t>(&property)) return numbers_to_c(DType::int64, value, 1, false);
  if (const auto* value = std::get_if<double>(&property)) return numbers_to_c(DType::float64, value, 1, false);
  if (const auto* all = std::get_if<std::vector<std::int64_t>>(&property))
    return numbers_to_c(DType::int64, all->data(), all->size(), true);
  const auto& all = std::get<std::vector<double>>(property);
  return numbers_to_c(DType::float64, all.data(), all.size(), true);
}

}  // namespace
}  // namespace penstock::capi

const char* const* penstock_model::list(std::span<const std::string> strings) {
  auto& pointers = lists_[strings.data()];
  pointers.clear();
  for (const auto& each : strings) pointers.push_back(each.c_str());
  return pointers.data();
}

extern "C" {

const char* penstock_entity_type_name(int type) {
  if (type < 0 || type > PENSTOCK_BLOB) return "unknown";
  return mesh::name_of(static_cast<mesh::EntityType>(type)).data();  // names are literals
}

const char* penstock_role_name(int role) {
  if (role < 0 || role > PENSTOCK_ROLE_TRANSIENT) return "unknown";
  return mesh::name_of(static_cast<mesh::Role>(role)).data();
}

int penstock_model_create(const char* title, uint32_t dimensions, penstock_model** model, penstock_error* error) {
  return guarded(error, [&] {
    need(model, "model");
    if (dimensions > 3) throw Error(Errc::invalid_argument, "a mesh has at most 3 dimensions");
    *model = new penstock_model({.title = text_of(title), .dimensions = dimensions});
  });
}

void penstock_model_destroy(penstock_model* model) { delete model; }

int penstock_model_add_entity(penstock_model* model, const penstock_entity* entity, size_t* number,
                              penstock_error* error) {
  return guarded(error, [&] {
    need(model, "model");
    auto its = entity_from(entity);  // may be of the model itself: read before that changes
    model->change().add(std::move(its));
    if (number) *number = model->model.entities.size() - 1;
  });
}

int penstock_model_add_field(penstock_model* model, size_t entity, const penstock_field* field, size_t* number,
                             penstock_error* error) {
  return guarded(error, [&] {
    auto& its = entity_of(model, entity);
    try {
      its.fields.push_back(field_from(field));
    } catch (const Error& e) {
      throw e.in(describe(its));
    }
    model->change();
    if (number) *number = its.fields.size() - 1;
  });
}

int penstock_model_add_qa(penstock_model* model, const char* code, const char* version, const char* date,
                          const char* time, penstock_error* error) {
  return guarded(error, [&] {
    need(model, "model").change().qa.push_back({text_of(code), text_of(version), text_of(date), text_of(time)});
  });
}

int penstock_model_add_information(penstock_model* model, const char* line, penstock_error* error) {
  return guarded(error, [&] { need(model, "model").change().information.emplace_back(&need(line, "line")); });
}

int penstock_model_put_property(penstock_model* model, size_t entity, const char* name, int dtype, const void* values,
                                size_t count, int is_array, penstock_error* error) {
  return guarded(error, [&] {
    auto& properties = properties_of(model, entity);
    const std::string key = &need(name, "name");
    const auto where = owner_of(model, entity) + ": property '" + key + "' ";
    if (!is_array && count != 1) throw Error(Errc::invalid_argument, where + "is a scalar: count is 1");
    if (!values && count != 0) throw Error(Errc::invalid_argument, where + "has no values: values is NULL");
    if (dtype != PENSTOCK_INT64 && dtype != PENSTOCK_FLOAT64)
      throw Error(Errc::invalid_argument, where + "is of int64 or float64, not of " + penstock_dtype_name(dtype));
    properties[key] = dtype == PENSTOCK_INT64 ? numbers_from<std::int64_t>(values, count, is_array != 0)
                                              : numbers_from<double>(values, count, is_array != 0);
    model->change();
  });
}

int penstock_model_put_property_string(penstock_model* model, size_t entity, const char* name, const char* value,
                                       penstock_error* error) {
  return guarded(error, [&] {
    properties_of(model, entity)[&need(name, "name")] = std::string(&need(value, "value"));
    model->change();
  });
}

int penstock_model_get_info(penstock_model* model, penstock_model_info* info, penstock_error* error) {
  return guarded(error, [&] {
    const auto& its = need(model, "model").model;
    const penstock_model_info found{0,
                                    its.title.c_str(),
                                    its.dimensions,
                                    its.entities.size(),
                                    its.properties.size(),
                                    its.qa.size(),
                                    its.information.size(),
                                    model->list(its.information)};
    copy_grown(found, info, need(info, "info").struct_size);
  });
}

int penstock_model_entity(penstock_model* model, size_t number, penstock_entity* entity, penstock_error* error) {
  return guarded(error, [&] {
    const auto& its = entity_of(model, number);
    const penstock_entity found{0,
                                static_cast<int>(its.type),
                                its.name.c_str(),
                                its.id,
                                its.count,
                                its.topology.c_str(),
                                static_cast<int>(its.member_type),
                                its.members.size(),
                                model->list(its.members),
                                its.fields.size(),
                                its.properties.size()};
    copy_grown(found, entity, need(entity, "entity").struct_size);
  });
}

int penstock_model_field(penstock_model* model, size_t entity, size_t number, penstock_field* field,
                         penstock_error* error) {
  return guarded(error, [&] {
    const auto& owner = entity_of(model, entity);
    if (number >= owner.fields.size()) refuse_number(describe(owner), "field", number, owner.fields.size());
    const auto& its = owner.fields[number];
    const penstock_field found{0,
                               its.name.c_str(),
                               static_cast<int>(its.dtype),
                               its.storage.c_str(),
                               static_cast<int>(its.role),
                               its.count,
                               its.components.size(),
                               model->list(its.components),
                               mesh::rows_of(owner, its),
                               mesh::components_of(its)};
    copy_grown(found, field, need(field, "field").struct_size);
  });
}

int penstock_model_find_entity(penstock_model* model, int type, const char* name, size_t* number,
                               penstock_error* error) {
  return guarded(error, [&] {
    const auto& its = need(model, "model").model;
    const auto& found = its.at(entity_type_of(type), &need(name, "name"));
    need(number, "number") = static_cast<std::size_t>(&found - its.entities.data());
  });
}

int penstock_model_find_field(penstock_model* model, size_t entity, const char* name, size_t* number,
                              penstock_error* error) {
  return guarded(error, [&] {
    const auto& its = entity_of(model, entity);
    need(number, "number") = static_cast<std::size_t>(&its.at(&need(name, "name")) - its.fields.data());
  });
}

int penstock_model_property_name(penstock_model* model, size_t entity, size_t index, const char** name,
                                 penstock_error* error) {
  return guarded(error, [&] {
    const auto& all = properties_of(model, entity);
    if (index >= all.size()) refuse_number(owner_of(model, entity), "property", index, all.size());
    need(name, "name") = std::next(all.begin(), static_cast<std::ptrdiff_t>(index))->first.c_str();
  });
}

int penstock_model_property(penstock_model* model, size_t entity, const char* name, penstock_attribute* value,
                            penstock_error* error) {
  return guarded(error, [&] {
    const auto& all = properties_of(model, entity);
    const auto found = all.find(std::string_view(&need(name, "name")));
    if (found == all.end()) throw Error(Errc::not_found, owner_of(model, entity) + " has no property '" + name + "'");
    need(value, "value") = to_c(*model, found->second);
  });
}

int penstock_model_qa(penstock_model* model, size_t index, penstock_qa_record* record, penstock_error* error) {
  return guarded(error, [&] {
    const auto& all = need(model, "model").model.qa;
    if (index >= all.size()) refuse_number("the model", "QA record", index, all.size());
    const auto& its = all[index];
    need(record, "record") = {its.code.c_str(), its.version.c_str(), its.date.c_str(), its.time.c_str()};
  });
}

}  // extern "C"
