#include "mesh/exodus/exodus_sink.hpp"

#include <algorithm>
#include <array>

#include "mesh/exodus/foreign_variables.hpp"
#include "mesh/storage_names.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

constexpr std::size_t string_length = 33;
constexpr std::size_t line_length = 81;
constexpr std::uint64_t offset64_limit = (std::uint64_t{1} << 32) - 4;  // bytes of a variable, or of its record
constexpr float exodus_version = 9.06F;

std::string with_state(const char* what, const Entity& entity, const Field& field) {
  return std::string(what) + " field '" + field.name + "' of " + std::string(name_of(entity.type)) + " '" +
         entity.name + "'";
}

}  // namespace

void check_exodus_options(const MeshOptions& options) {
  using Format = MeshFormat;
  const bool netcdf4 = options.format == Format::netcdf4 || options.format == Format::netcdf4_classic;
  if (options.compression != 0 && !netcdf4)
    throw Error(Errc::invalid_argument, "compression needs format: netcdf4 or netcdf4_classic");
  const bool narrow = options.format == Format::offset64 || options.format == Format::netcdf4_classic;
  if (options.integers == MeshIntegers::bits_64 && narrow)
    throw Error(Errc::invalid_argument, "integers of 64 bits need format: cdf5 or netcdf4");
}

ExodusSink::ExodusSink(std::string path, const MeshOptions& options, std::function<void()> before_named)
    : path_(std::move(path)), options_(options), before_named_(std::move(before_named)) {}

Place& ExodusSink::place_of(std::size_t entity, std::string_view field, Role role) {
  const auto& fields = model_.entities[entity].fields;
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (fields[i].name == field && fields[i].role == role) return places_[entity][i];
  throw Error(Errc::internal, "no field " + std::string(field));
}

void ExodusSink::choose_format() {
  using Format = MeshFormat;
  std::uint64_t largest = 0;
  bool long_numbers = false;
  bool long_results = false;
  for (const auto& entity : model_.entities) {
    if (entity.id != static_cast<std::int32_t>(entity.id)) long_numbers = true;
    for (const auto& field : entity.fields) {
      const auto size = std::max<std::size_t>(8, size_of(field.dtype));
      const auto row = is_in_state(field) ? rows_of(entity, field) : values_of(entity, field);
      largest = std::max(largest, element_count({row, size}));
      if (field.dtype != DType::int64) continue;
      (is_in_state(field) || entity.type == EntityType::region ? long_results : long_numbers) = true;
    }
  }
  wide_ = options_.integers == MeshIntegers::bits_64 || (options_.integers == MeshIntegers::as_given && long_numbers);
  auto format = options_.format;
  const bool needs_64_bits = wide_ || long_results;
  if (format == Format::automatic) format = needs_64_bits || largest > offset64_limit ? Format::cdf5 : Format::offset64;
  if (needs_64_bits && (format == Format::offset64 || format == Format::netcdf4_classic))
    throw Error(Errc::invalid_argument, path_ + ": integers of 64 bits need format: cdf5 or netcdf4 (or integers: 32)");
  if (largest > offset64_limit && format == Format::offset64)
    throw Error(Errc::invalid_argument, path_ + ": a variable of more than 4 GiB needs format: cdf5 or netcdf4");
  static constexpr std::array formats{NetcdfFile::Format::offset64, NetcdfFile::Format::cdf5,
                                      NetcdfFile::Format::netcdf4, NetcdfFile::Format::netcdf4_classic};
  file_.emplace(NetcdfFile::create(path_ + ".writing", formats.at(static_cast<std::size_t>(format) - 1)));
}

int ExodusSink::define(const std::string& name, DType dtype, const std::vector<int>& dimensions) {
  const auto variable = file_->define_variable(name, dtype, dimensions);
  if (options_.compression != 0 && dtype != DType::string && !dimensions.empty())
    file_->compress(variable, static_cast<int>(options_.compression));
  return variable;
}

void ExodusSink::define_texts(const std::string& name, const std::string& dimension, std::vector<std::string> texts) {
  if (texts.empty()) return;
  define(name, DType::string, {file_->define_dimension(dimension, texts.size()), file_->dimension_id("len_name")});
  texts_[name] = std::move(texts);
}

void ExodusSink::define_integers(const std::string& name, const std::vector<int>& dimensions,
                                 std::vector<std::int64_t> values, bool wide) {
  define(name, wide ? DType::int64 : DType::int32, dimensions);
  integers_[name] = std::move(values);
}

void ExodusSink::add_integers(const std::string& name, const std::string& dimension, std::vector<std::int64_t> values) {
  if (values.empty()) return;
  std::vector<int> dimensions;
  if (!dimension.empty()) dimensions.push_back(file_->define_dimension(dimension, values.size()));
  define_integers(name, dimensions, std::move(values), wide_);
}

void ExodusSink::define(const Model& model) { define(model, nullptr); }

void ExodusSink::define(const Model& model, const std::function<void(NetcdfFile&)>& add) {
  states_.emplace(make_file(model, add), 0, path_, before_named_, options_.sync);
}

NetcdfFile ExodusSink::make_file(const Model& model, const std::function<void(NetcdfFile&)>& add) {
  model_ = model;
  for (const auto& entity : model_.entities) places_.emplace_back(entity.fields.size());
  check_records();
  choose_format();
  define_head();
  define_nodes();
  for (const auto& names : exodus_names) define_entities(names);
  if (add) add(*file_);
  for (std::size_t e = 0; e < places_.size(); ++e)  // last: other variables take what is left of names of dimensions
    if (model_.entities[e].type == EntityType::region) define_foreign(*file_, model_.entities[e], places_[e]);
  for (std::size_t e = 0; e < places_.size(); ++e)
    for (std::size_t i = 0; i < places_[e].size(); ++i) {
      const auto& entity = model_.entities[e];
      const auto& field = entity.fields[i];
      if (places_[e][i].columns.empty() && values_of(entity, field) != 0)
        throw Error(Errc::unsupported, path_ + ": " + with_state("Exodus has no place for the", entity, field) +
                                           " (role " + std::string(name_of(field.role)) + ")");
    }
  file_->end_definitions();
  for (const auto& [name, texts] : texts_) file_->write_texts(name, texts);
  for (const auto& [name, values] : integers_) {
    const auto& variable = *file_->find(name);
    Extent count;
    for (const auto dimension : variable.dimensions) count.push_back(file_->length_of(dimension));
    file_->write(variable.id, DType::int64, Extent(count.size(), 0), count, values.data());
  }
  write_frames();
  texts_.clear();
  integers_.clear();
  auto file = std::move(*file_);
  file_.reset();
  return file;
}

// What Exodus would cut off, or has no place for.
void ExodusSink::check_records() const {
  const auto refuse = [&](const std::string& what) {
    throw Error(Errc::unsupported, path_ + ": Exodus keeps " + what);
  };
  for (const auto& record : model_.qa)
    for (const auto* text : {&record.code, &record.version, &record.date, &record.time})
      if (text->size() >= string_length) refuse("QA records of at most 32 characters, not '" + *text + "'");
  for (const auto& line : model_.information)
    if (line.size() >= line_length) refuse("lines of information of at most 80 characters, not '" + line + "'");
  for (const auto& entity : model_.entities)
    if (entity.type == EntityType::region || entity.type == EntityType::node_block)
      for (const auto& [name, value] : entity.properties)
        if (!is_foreign_name(name)) refuse("no properties of the region itself or of nodes ('" + name + "')");
}

void ExodusSink::define_head() {
  std::size_t longest = 32;
  bool doubles = false;
  for (const auto& entity : model_.entities) {
    longest = std::max(longest, entity.name.size());
    for (const auto& field : entity.fields) {
      if (field.dtype == DType::float64) doubles = true;
      for (const auto& name : component_names(field)) longest = std::max(longest, name.size());
    }
  }
  const auto global = NetcdfFile::global_attribute;
  file_->put_real(global, "api_version", exodus_version);
  file_->put_real(global, "version", exodus_version);
  file_->put_attribute(global, "floating_point_word_size", std::int64_t{doubles ? 8 : 4});
  file_->put_attribute(global, "file_size", std::int64_t{1});
  file_->put_attribute(global, "maximum_name_length", static_cast<std::int64_t>(longest));
  file_->put_attribute(global, "int64_status", std::int64_t{wide_ ? 0x1c00 : 0});  // maps, ids, bulk
  file_->put_attribute(global, "title", model_.title);
  const bool has_frames = define_frames();
  for (const auto& [name, value] : model_.properties) {
    if (has_frames && (name == frame_ids || name == frame_coordinates || name == frame_tags)) continue;
    if (is_exodus_attribute(name))
      throw Error(Errc::unsupported, path_ + ": property '" + name + "' has the name of an attribute of Exodus");
    file_->put_attribute(global, name, value);
  }
  file_->define_dimension("len_string", string_length);
  file_->define_dimension("len_name", longest + 1);
  file_->define_dimension("len_line", line_length);
  file_->define_dimension("four", 4);
  time_dimension_ = file_->define_dimension("time_step", 0);
  file_->define_variable("time_whole", DType::float64, {time_dimension_});
  if (model_.dimensions > 0) file_->define_dimension("num_dim", model_.dimensions);
  if (!model_.qa.empty()) {
    define("qa_records", DType::string,
           {file_->define_dimension("num_qa_rec", model_.qa.size()), file_->define_dimension("four", 4),
            file_->define_dimension("len_string", string_length)});
    for (const auto& record : model_.qa)
      for (const auto* text : {&record.code, &record.version, &record.date, &record.time})
        texts_["qa_records"].push_back(*text);
  }
  if (!model_.information.empty()) {
    define("info_records", DType::string,
           {file_->define_dimension("num_info", model_.information.size()),
            file_->define_dimension("len_line", line_length)});
    texts_["info_records"] = model_.information;
  }
}

// False where the properties that have these names are something else.
bool ExodusSink::define_frames() {
  const auto property = [&]<class T>(const char* name) -> const T* {
    const auto found = model_.properties.find(name);
    return found == model_.properties.end() ? nullptr : std::get_if<T>(&found->second);
  };
  const auto* ids = property.operator()<std::vector<std::int64_t>>(frame_ids);
  const auto* points = property.operator()<std::vector<double>>(frame_coordinates);
  const auto* tags = property.operator()<std::string>(frame_tags);
  if (ids == nullptr || ids->empty() || points == nullptr || points->size() != 9 * ids->size() || tags == nullptr ||
      tags->size() != ids->size())
    return false;
  const auto frames = file_->define_dimension("num_cframes", ids->size());
  define(frame_coordinates, DType::float64, {file_->define_dimension("num_cframes_9", points->size())});
  define_integers(frame_ids, {frames}, *ids, false);
  define(frame_tags, DType::string, {frames});
  return true;
}

void ExodusSink::write_frames() {
  if (const auto* points = file_->find(frame_coordinates); points != nullptr) {
    const auto& values = std::get<std::vector<double>>(model_.properties.at(frame_coordinates));
    const auto& tags = std::get<std::string>(model_.properties.at(frame_tags));
    file_->write(points->id, DType::float64, {0}, {values.size()}, values.data());
    file_->write(file_->find(frame_tags)->id, DType::string, {0}, {tags.size()}, tags.data());
  }
}

void ExodusSink::define_nodes() {
  for (std::size_t e = 0; e < model_.entities.size(); ++e) {
    const auto& entity = model_.entities[e];
    if (entity.type == EntityType::region) {
      if (entity.name != default_region_name)
        file_->put_attribute(NetcdfFile::global_attribute, region_name_attribute, entity.name);
      const auto names = union_of_names(model_, {e}, Role::reduction);
      define_texts("name_glo_var", "num_glo_var", names);
      if (names.empty()) continue;
      const auto variable =
          define("vals_glo_var", DType::float64, {time_dimension_, file_->dimension_id("num_glo_var")});
      for (std::size_t i = 0; i < entity.fields.size(); ++i) {
        if (entity.fields[i].role != Role::reduction) continue;
        static_cast<void>(result_type(entity.fields[i]));
        for (const auto& name : component_names(entity.fields[i]))
          places_[e][i].columns.push_back(
              {.variable = variable, .shape = Column::Shape::value, .at = index_of(names, name)});
      }
    }
    if (entity.type != EntityType::node_block) continue;
    if (file_->find("coor_names") != nullptr)
      throw Error(Errc::unsupported, path_ + ": Exodus has one block of nodes, and this region has more");
    if (entity.name != default_nodes_name)
      file_->put_attribute(NetcdfFile::global_attribute, nodes_name_attribute, entity.name);
    const auto* coordinates = entity.find("coordinates", Role::mesh);
    const bool has_axes = coordinates != nullptr && coordinates->components.size() == model_.dimensions;
    define_texts("coor_names", "num_dim", has_axes ? coordinates->components : axis_names(model_.dimensions));
    if (entity.count == 0) continue;
    const auto rows = file_->define_dimension("num_nodes", entity.count);
    for (std::size_t i = 0; i < entity.fields.size(); ++i) {
      const auto& field = entity.fields[i];
      if (field.role == Role::mesh && field.name == "coordinates") {
        if (components_of(field) != model_.dimensions)
          throw Error(Errc::invalid_argument, path_ + ": coordinates of nodes have " +
                                                  std::to_string(components_of(field)) + " components in a mesh of " +
                                                  std::to_string(model_.dimensions) + " dimensions");
        for (std::uint32_t d = 0; d < model_.dimensions; ++d)
          places_[e][i].columns.push_back({.variable = define(std::string("coord") + "xyz"[d], field.dtype, {rows})});
      }
      if (field.role == Role::mesh && field.name == "ids")
        places_[e][i].columns.push_back({.variable = define("node_num_map", integer_type(), {rows})});
    }
    const auto names = union_of_names(model_, {e}, Role::transient);
    define_texts("name_nod_var", "num_nod_var", names);
    for (std::size_t i = 0; i < entity.fields.size(); ++i) {
      if (entity.fields[i].role != Role::transient) continue;
      for (const auto& name : component_names(entity.fields[i]))
        places_[e][i].columns.push_back({.variable = define(numbered("vals_nod_var", index_of(names, name) + 1),
                                                            result_type(entity.fields[i]), {time_dimension_, rows})});
    }
    define_attributes(exodus_node_names, e, "num_nodes", 0);
    define_maps(exodus_node_names, {e});
  }
}

void ExodusSink::define_entities(const ExodusNames& names) {
  std::vector<std::size_t> entities;
  for (std::size_t e = 0; e < model_.entities.size(); ++e)
    if (model_.entities[e].type == names.type) entities.push_back(e);
  if (entities.empty()) return;
  if (!is_numbered_by_id(names.type)) define_lists(names, entities);
  if (*names.total != '\0' && model_.count_of(names.type) > 0)
    file_->define_dimension(names.total, model_.count_of(names.type));
  for (std::size_t n = 0; n < entities.size(); ++n) {
    const auto e = entities[n];
    const auto place = place_of_entity(e, n);
    if (model_.entities[e].count == 0) continue;
    if (names.type == EntityType::assembly) define_assembly(names, e, place);
    else if (names.type == EntityType::blob) define_blob(names, e, place);
    else if (*names.connectivity != '\0') define_block(names, e, place);
    else define_set(names, e, place);
    if (*names.attributes != '\0') define_attributes(names, e, numbered(names.size, place), place);
  }
  if (*names.maps != '\0') define_maps(names, entities);
  define_properties(names, entities);
  define_results(names, entities);
  define_reductions(names, entities);
}

// Ids, names and status of all entities of a type.
void ExodusSink::define_lists(const ExodusNames& names, const std::vector<std::size_t>& entities) {
  std::vector<std::int64_t> ids, status;
  std::vector<std::string> labels;
  for (const auto e : entities) {
    ids.push_back(model_.entities[e].id);
    status.push_back(model_.entities[e].count > 0 ? 1 : 0);
    labels.push_back(model_.entities[e].name);
  }
  const auto number = file_->define_dimension(names.number, entities.size());
  define_integers(names.status, {number}, status, false);
  define_integers(numbered(names.properties, 1), {number}, ids, wide_);
  file_->put_attribute(file_->find(numbered(names.properties, 1))->id, "name", std::string("ID"));
  define_texts(names.names, names.number, labels);
}

// The number in the names of the entity's variables; n: how many of its type come before it.
std::size_t ExodusSink::place_of_entity(std::size_t e, std::size_t n) const {
  const auto& entity = model_.entities[e];
  if (!is_numbered_by_id(entity.type)) return n + 1;
  if (entity.id < 1)
    throw Error(Errc::unsupported, path_ + ": " + std::string(name_of(entity.type)) + " '" + entity.name +
                                       "': Exodus wants a positive id, not " + std::to_string(entity.id));
  return static_cast<std::size_t>(entity.id);
}

void ExodusSink::define_block(const ExodusNames& names, std::size_t e, std::size_t place) {
  const auto& entity = model_.entities[e];
  const auto rows = file_->define_dimension(numbered(names.size, place), entity.count);
  const bool of_faces = entity.topology == "nfaced";
  for (std::size_t i = 0; i < entity.fields.size(); ++i) {
    const auto& field = entity.fields[i];
    if (field.role != Role::mesh) continue;
    if (field.name == "entity_counts") {
      const auto variable = define(numbered(names.entry_counts, place), DType::int32, {rows});
      file_->put_attribute(variable, "entity_type1", std::string(of_faces ? "FACE" : "NODE"));
      file_->put_attribute(variable, "entity_type2",
                           std::string(names.type == EntityType::face_block ? "FACE" : "ELEM"));
      places_[e][i].columns.push_back({.variable = variable});
      continue;
    }
    std::string variable_name, dimension;
    if (field.name == "connectivity" && !of_faces) {
      variable_name = names.connectivity;
      dimension = names.nodes_per_entry;
    } else if (field.name == "connectivity_face" || field.name == "connectivity") {
      variable_name = "facconn";
      dimension = "num_fac_per_el";
    } else if (field.name == "connectivity_edge") {
      variable_name = "edgconn";
      dimension = "num_edg_per_el";
    } else {
      continue;
    }
    const bool flat = entity.find("entity_counts") != nullptr && field.name == "connectivity";
    const auto width = file_->define_dimension(numbered(dimension, place), flat ? field.count : components_of(field));
    const auto variable =
        define(numbered(variable_name, place), integer_type(), flat ? std::vector{width} : std::vector{rows, width});
    if (field.name == "connectivity") file_->put_attribute(variable, "elem_type", element_type(e));
    places_[e][i] = {{{.variable = variable, .shape = flat ? Column::Shape::rows : Column::Shape::matrix}}, {1}};
  }
}

// The file's own spelling, "HEX" or "TETRA10", where the region came from one: readers differ in which they know.
std::string ExodusSink::element_type(std::size_t e) {
  const auto& entity = model_.entities[e];
  const auto original = entity.properties.find(original_type_property);
  const auto* text = original == entity.properties.end() ? nullptr : std::get_if<std::string>(&original->second);
  if (text == nullptr) return entity.topology;
  const auto* nodes = entity.find("connectivity", Role::mesh);
  const bool flat = nodes == nullptr || entity.find("entity_counts") != nullptr;
  const auto* meant = find_topology(*text, flat ? 0 : components_of(*nodes));
  return meant != nullptr && meant->name == entity.topology ? *text : entity.topology;
}

void ExodusSink::define_set(const ExodusNames& names, std::size_t e, std::size_t place) {
  const auto& entity = model_.entities[e];
  const auto rows = file_->define_dimension(numbered(names.size, place), entity.count);
  for (std::size_t i = 0; i < entity.fields.size(); ++i) {
    const auto& field = entity.fields[i];
    if (field.role != Role::mesh) continue;
    auto& its = places_[e][i];
    if (field.name == "members")
      its = {{{.variable = define(numbered(names.members, place), integer_type(), {rows})}}, {1}};
    else if (field.name == "element_side" && names.type == EntityType::side_set)
      its = {{{.variable = define(numbered(names.members, place), integer_type(), {rows})},
              {.variable = define(numbered(names.seconds, place), integer_type(), {rows})}},
             {1, 0}};
    else if (field.name == "orientations" && *names.seconds != '\0')
      its = {{{.variable = define(numbered(names.seconds, place), integer_type(), {rows})}}, {}};
    else if (field.name == "distribution_factors") {
      if (names.type == EntityType::node_set && field.count != 0)
        throw Error(Errc::unsupported, path_ + ": a node set has one distribution factor for each node");
      const auto factors = names.type == EntityType::node_set
                               ? rows
                               : file_->define_dimension(numbered(names.factor_count, place), rows_of(entity, field));
      its = {{{.variable = define(numbered(names.factors, place), field.dtype, {factors})}}, {}};
    }
  }
}

void ExodusSink::define_assembly(const ExodusNames& names, std::size_t e, std::size_t place) {
  const auto& entity = model_.entities[e];
  const auto members = numbered(names.members, place);
  std::vector<std::int64_t> ids;
  for (const auto& member : entity.members) ids.push_back(model_.at(entity.member_type, member).id);
  if (ids.empty()) return;
  define_integers(members, {file_->define_dimension(numbered(names.size, place), ids.size())}, ids, wide_);
  const auto variable = file_->find(members)->id;
  put_id_and_name(variable, entity);
  for (const auto& each : exodus_names)
    if (each.type == entity.member_type) file_->put_attribute(variable, "_type", std::int64_t{each.code});
  std::string type(name_of(entity.member_type));
  std::replace(type.begin(), type.end(), '_', ' ');
  file_->put_attribute(variable, "_typename", type);
}

void ExodusSink::define_blob(const ExodusNames& names, std::size_t e, std::size_t place) {
  const auto& entity = model_.entities[e];
  file_->define_dimension(numbered(names.size, place), entity.count);
  put_id_and_name(define(numbered(names.members, place), DType::int32, {file_->define_dimension("blob_entity", 1)}),
                  entity);
  integers_[numbered(names.members, place)] = {0};
}

void ExodusSink::put_id_and_name(int variable, const Entity& entity) {
  file_->put_attribute(variable, "_id", entity.id);
  file_->put_attribute(variable, "_name", entity.name);
}

void ExodusSink::write(Slot slot, const void* values) {
  const auto& entity = model_.entities.at(slot.entity);
  states_->write(entity, entity.fields.at(slot.field), places_[slot.entity][slot.field], values);
}
void ExodusSink::begin_state(double time) { states_->begin(time); }
void ExodusSink::end_state() { states_->end(); }
void ExodusSink::abandon_state() { states_->abandon(); }
void ExodusSink::close() { states_->close(); }

}  // namespace penstock::mesh
