#include "mesh/exodus/foreign_variables.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "base/text.hpp"
#include "mesh/exodus/exodus_names.hpp"
#include "mesh/stored_source.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

constexpr std::string_view prefix = "netcdf/";  // no name of netCDF has a '/'
constexpr std::string_view states = "time_step";

// The names of Exodus's variables, without the numbers at their ends.
const std::set<std::string, std::less<>>& exodus_variables() {
  static const auto all = [] {
    std::set<std::string, std::less<>> names{"coord",      "coordx",     "coordy",          "coordz",   "coor_names",
                                             "time_whole", "qa_records", "info_records",    "facconn",  "edgconn",
                                             order_map,    frame_ids,    frame_coordinates, frame_tags, "name_glo_var"};
    const auto add = [&names](const ExodusNames& of) {
      for (const auto* name :
           {of.properties, of.names, of.status, of.attributes, of.attribute_names, of.members, of.seconds, of.factors,
            of.connectivity, of.entry_counts, of.ids, of.maps, of.map_names, of.map_properties})
        names.insert(name);
      const std::string kind = of.results;
      names.insert({kind + "_var_tab", "name_" + kind + "_var", "name_" + kind + "_red_var"});
    };
    for (const auto& each : exodus_names) add(each);
    add(exodus_node_names);
    return names;
  }();
  return all;
}

// Of a part's file. A load-balance file of several parts has them with others, for a tool to read.
const std::set<std::string, std::less<>>& nemesis_variables() {
  static const std::set<std::string, std::less<>> names{
      "nem_ftype",        "el_blk_ids_global", "el_blk_cnt_global",  "ns_ids_global",    "ns_node_cnt_global",
      "ns_df_cnt_global", "ss_ids_global",     "ss_side_cnt_global", "ss_df_cnt_global", "int_n_stat",
      "bor_n_stat",       "ext_n_stat",        "int_e_stat",         "bor_e_stat",       "node_mapi",
      "node_mapb",        "node_mape",         "elem_mapi",          "elem_mapb",        "n_comm_ids",
      "n_comm_stat",      "n_comm_data_idx",   "n_comm_info_idx",    "n_comm_nids",      "n_comm_proc",
      "e_comm_ids",       "e_comm_stat",       "e_comm_data_idx",    "e_comm_info_idx",  "e_comm_eids",
      "e_comm_sids",      "e_comm_proc"};
  return names;
}

bool is_exodus_variable(std::string_view name) {
  if (name.starts_with("vals_") || exodus_variables().contains(name)) return true;
  const auto last = name.find_last_not_of("0123456789");
  return last != std::string_view::npos && exodus_variables().contains(name.substr(0, last + 1));
}

DType field_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::float64: return dtype;
    case DType::uint32:
    case DType::int64:
    case DType::uint64: return DType::int64;
    default: return DType::int32;
  }
}

// "y=3": name and length.
std::pair<std::string, std::size_t> parse_dimension(std::string_view text) {
  const auto equals = text.find_last_of('=');
  if (equals == std::string_view::npos || equals == 0)
    throw Error(Errc::invalid_argument, "'" + std::string(text) + "' is no dimension of a netCDF variable");
  return {std::string(text.substr(0, equals)), base::parse_integer(text.substr(equals + 1), 1, INT64_MAX)};
}

// Of the name, or another one where that has another length.
int dimension_of_length(NetcdfFile& file, const std::string& name, std::size_t length) {
  auto free = name;
  for (auto there = file.dimension(free); there && *there != length; there = file.dimension(free)) free += "_";
  return file.define_dimension(free, length);
}

// What the format holds, and no wider than the field.
DType type_in_file(const NetcdfFile& file, DType wanted, const Field& field) {
  const bool is_plain = wanted == DType::int8 || wanted == DType::int16 || wanted == DType::int32 ||
                        wanted == DType::float32 || wanted == DType::float64 || wanted == DType::string;
  if ((!is_plain && !file.holds_64_bits()) || size_of(wanted) > size_of(field.dtype)) return field.dtype;
  return wanted;
}

}  // namespace

bool is_foreign_name(std::string_view name) { return name.starts_with(prefix); }

void read_foreign(const NetcdfFile& file, Entity& region, std::vector<Place>& places) {
  const bool is_part = file.dimension("num_procs_file").value_or(1) <= 1;
  for (const auto& [name, variable] : file.variables()) {
    if (is_exodus_variable(name) || variable.dtype == DType::none) continue;
    if (is_part && nemesis_variables().contains(name)) continue;
    const auto key = std::string(prefix) + name;
    Field field{.name = key, .dtype = field_type(variable.dtype), .role = Role::mesh, .count = 1};
    Column column{.variable = variable.id, .shape = Column::Shape::all};
    column.is_text = variable.dtype == DType::string;
    auto text = std::string(name_of(variable.dtype));
    for (const auto dimension : variable.dimensions) {
      const auto label = file.dimension_name(dimension);
      if (label == states && dimension == variable.dimensions.front()) {
        field.role = Role::transient;
        text.append("/").append(states);
        continue;
      }
      column.lengths.push_back(file.length_of(dimension));
      text += "/" + label + "=" + std::to_string(column.lengths.back());
    }
    field.count = values_in(column.lengths);
    if (field.count == 0) continue;
    region.properties[key] = std::move(text);
    for (auto& [attribute, value] : file.attributes(variable.id))
      if (attribute != "_FillValue") region.properties[key + "/" + attribute] = std::move(value);
    region.fields.push_back(std::move(field));
    places.push_back({{std::move(column)}, {}});
  }
}

void define_foreign(NetcdfFile& file, const Entity& region, std::vector<Place>& places) {
  for (std::size_t i = 0; i < region.fields.size(); ++i) {
    const auto& field = region.fields[i];
    if (!is_foreign_name(field.name)) continue;
    const auto found = region.properties.find(field.name);
    const auto* text = found == region.properties.end() ? nullptr : std::get_if<std::string>(&found->second);
    if (text == nullptr) throw Error(Errc::invalid_argument, "field '" + field.name + "' has no property of this name");
    const auto words = base::split(*text, '/');
    const auto wanted = dtype_from_name(words.front());
    if (wanted == DType::none)
      throw Error(Errc::invalid_argument, "field '" + field.name + "' has no type in its property: " + *text);
    const auto dtype = type_in_file(file, wanted, field);
    Column column{.shape = Column::Shape::all};
    column.is_text = dtype == DType::string;
    std::vector<int> dimensions;
    for (const auto word : std::span(words).subspan(1)) {
      if (word == states) {
        dimensions.push_back(file.dimension_id(std::string(states)));
        continue;
      }
      const auto [name, length] = parse_dimension(word);
      column.lengths.push_back(length);
      dimensions.push_back(dimension_of_length(file, name, length));
    }
    const bool of_states = dimensions.size() > column.lengths.size();
    if (values_in(column.lengths) != rows_of(region, field) || of_states != is_in_state(field))
      throw Error(Errc::invalid_argument, "field '" + field.name + "' is not as its property says: " + *text);
    const auto name = field.name.substr(prefix.size());
    if (file.find(name) != nullptr)
      throw Error(Errc::unsupported, "field '" + field.name + "' has the name of a variable of Exodus or Nemesis");
    column.variable = file.define_variable(name, dtype, dimensions);
    const auto its = field.name + "/";
    for (const auto& [key, value] : region.properties)
      if (key.starts_with(its)) file.put_attribute(column.variable, key.substr(its.size()), value);
    places[i].columns.push_back(std::move(column));
  }
}

}  // namespace penstock::mesh
