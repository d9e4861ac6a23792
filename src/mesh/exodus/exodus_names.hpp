// What Exodus II calls the dimensions and variables of each type of entity (SAND92-2137 and the library's version 9).
//
// Names with a number at their end get the entity's place among those of its type, from 1: connect1, node_ns3. Assemblies and blobs
// have their id there (assembly_entity100), and attributes of that variable for id and name in place of lists.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/region.hpp"

namespace penstock::mesh {

struct ExodusNames {
  EntityType type;
  int code;                // ex_entity_type, in assemblies
  const char* number;      // dimension: how many entities
  const char* properties;  // "eb_prop": eb_prop1 holds the ids
  const char* names;
  const char* status;           // "": none
  const char* size;             // dimension, by place
  const char* attribute_count;  // dimension, by place
  const char* attributes;       // by place
  const char* attribute_names;  // by place
  const char* results;          // "elem": num_elem_var, name_elem_var, elem_var_tab, vals_elem_var1eb1
  const char* results_of;       // "eb"
  const char* reductions_of;    // "eb": vals_red_var_eb1
  // Sets
  const char* members = "";       // by place
  const char* seconds = "";       // by place: sides, orientations
  const char* factor_count = "";  // dimension, by place
  const char* factors = "";       // by place
  // Blocks
  const char* connectivity = "";     // by place
  const char* nodes_per_entry = "";  // dimension, by place
  const char* entry_counts = "";     // by place: of polygons and polyhedra
  const char* total = "";            // dimension: of all blocks
  const char* ids = "";              // node_num_map and the like
  const char* map_count = "";        // dimension
  const char* maps = "";             // "elem_map", by number
  const char* map_names = "";
  const char* map_properties = "";
};

// Exodus has no names for these: others than usual are attributes of the file.
inline constexpr const char* default_region_name = "region";
inline constexpr const char* default_nodes_name = "nodeblock_1";
inline constexpr const char* region_name_attribute = "penstock_region_name";
inline constexpr const char* nodes_name_attribute = "penstock_node_block_name";

// Attributes of the file that are Exodus's own, or ours.
inline bool is_exodus_attribute(std::string_view name) {
  static constexpr std::array<std::string_view, 15> names{"title",
                                                          "api_version",
                                                          "api version",
                                                          "version",
                                                          "file_size",
                                                          "floating_point_word_size",
                                                          "floating point word size",
                                                          "maximum_name_length",
                                                          "int64_status",
                                                          "last_written_time",
                                                          "processor_info",
                                                          "nemesis_api_version",
                                                          "nemesis_file_version",
                                                          region_name_attribute,
                                                          nodes_name_attribute};
  for (const auto each : names)
    if (each == name) return true;
  return false;
}

inline bool is_numbered_by_id(EntityType type) { return type == EntityType::assembly || type == EntityType::blob; }

// In the order in which a model has them; node blocks and the region itself are not here.
inline constexpr std::array exodus_names{
    ExodusNames{EntityType::edge_block,
                6,
                "num_ed_blk",
                "ed_prop",
                "ed_names",
                "ed_status",
                "num_ed_in_blk",
                "num_att_in_eblk",
                "eattrb",
                "eattrib_name",
                "edge",
                "eb",
                "edb",
                "",
                "",
                "",
                "",
                "ebconn",
                "num_nod_per_ed",
                "",
                "num_edge",
                "edge_num_map",
                "num_edge_maps",
                "edge_map",
                "edmap_names",
                "edm_prop"},
    ExodusNames{EntityType::face_block,
                8,
                "num_fa_blk",
                "fa_prop",
                "fa_names",
                "fa_status",
                "num_fa_in_blk",
                "num_att_in_fblk",
                "fattrb",
                "fattrib_name",
                "face",
                "fb",
                "fb",
                "",
                "",
                "",
                "",
                "fbconn",
                "num_nod_per_fa",
                "fbepecnt",
                "num_face",
                "face_num_map",
                "num_face_maps",
                "face_map",
                "famap_names",
                "fam_prop"},
    ExodusNames{EntityType::element_block,
                1,
                "num_el_blk",
                "eb_prop",
                "eb_names",
                "eb_status",
                "num_el_in_blk",
                "num_att_in_blk",
                "attrib",
                "attrib_name",
                "elem",
                "eb",
                "eb",
                "",
                "",
                "",
                "",
                "connect",
                "num_nod_per_el",
                "ebepecnt",
                "num_elem",
                "elem_num_map",
                "num_elem_maps",
                "elem_map",
                "emap_names",
                "em_prop"},
    ExodusNames{EntityType::node_set, 2, "num_node_sets", "ns_prop", "ns_names", "ns_status", "num_nod_ns",
                "num_att_in_ns", "nsattrb", "nsattrib_name", "nset", "ns", "nset", "node_ns", "", "num_df_ns",
                "dist_fact_ns"},
    ExodusNames{EntityType::edge_set, 7, "num_edge_sets", "es_prop", "es_names", "es_status", "num_edge_es",
                "num_att_in_es", "esattrb", "esattrib_name", "eset", "es", "eset", "edge_es", "ornt_es", "num_df_es",
                "dist_fact_es"},
    ExodusNames{EntityType::face_set, 9, "num_face_sets", "fs_prop", "fs_names", "fs_status", "num_face_fs",
                "num_att_in_fs", "fsattrb", "fsattrib_name", "fset", "fs", "fset", "face_fs", "ornt_fs", "num_df_fs",
                "dist_fact_fs"},
    ExodusNames{EntityType::element_set, 10, "num_elem_sets", "els_prop", "els_names", "els_status", "num_ele_els",
                "num_att_in_els", "elsattrb", "elsattrib_name", "elset", "es", "elset", "elem_els", "", "num_df_els",
                "dist_fact_els"},
    ExodusNames{EntityType::side_set, 3, "num_side_sets", "ss_prop", "ss_names", "ss_status", "num_side_ss",
                "num_att_in_ss", "ssattrb", "ssattrib_name", "sset", "ss", "sset", "elem_ss", "side_ss", "num_df_ss",
                "dist_fact_ss"},
    ExodusNames{EntityType::assembly, 16, "num_assembly", "assembly_prop", "assembly_names", "assembly_status",
                "num_entity_assembly", "", "", "", "assembly", "assembly", "assembly", "assembly_entity"},
    ExodusNames{EntityType::blob, 17, "num_blob", "blob_prop", "blob_names", "blob_status", "num_values_blob", "", "",
                "", "blob", "blob", "blob", "blob_entity"},
};

// Of all nodes: what has a place in its name elsewhere has none here.
inline constexpr ExodusNames exodus_node_names{EntityType::node_block,
                                               0,
                                               "",
                                               "",
                                               "",
                                               "",
                                               "num_nodes",
                                               "num_att_in_nblk",
                                               "nattrb",
                                               "nattrib_name",
                                               "nod",
                                               "",
                                               "",
                                               "",
                                               "",
                                               "",
                                               "",
                                               "",
                                               "",
                                               "",
                                               "num_nodes",
                                               "node_num_map",
                                               "num_node_maps",
                                               "node_map",
                                               "nmap_names",
                                               "nm_prop"};

// IOSS's name of the property with the type of elements as the file spells it, where that is not the topology's name.
inline constexpr const char* original_type_property = "original_topology_type";

inline std::vector<std::string> axis_names(std::size_t dimensions) {
  std::vector<std::string> names;
  for (std::size_t d = 0; d < dimensions; ++d) names.emplace_back(1, "xyz"[d]);
  return names;
}

// The order of elements, a map of all of them without a number.
inline constexpr const char* order_map = "elem_map";

// Coordinate frames, as properties of the region: ids, three points of each, and tags (R, C or S).
inline constexpr const char* frame_ids = "frame_ids";
inline constexpr const char* frame_coordinates = "frame_coordinates";
inline constexpr const char* frame_tags = "frame_tags";

inline std::string numbered(std::string_view name, std::size_t place) {
  return std::string(name) + std::to_string(place);
}
inline std::string numbered(std::string_view name, std::size_t place, std::string_view of, std::size_t entity) {
  return numbered(name, place) + numbered(of, entity);
}

}  // namespace penstock::mesh
