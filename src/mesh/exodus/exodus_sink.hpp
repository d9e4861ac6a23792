// Writes a part of a region as an Exodus II file. It is called path.writing until its model is complete, and a netCDF-4 file until it is
// closed: HDF5 promises nothing for a file that was not.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mesh/database.hpp"
#include "mesh/exodus/exodus_layout.hpp"
#include "mesh/exodus/exodus_names.hpp"
#include "mesh/exodus/exodus_states.hpp"

namespace penstock::mesh {

// Throws Error(invalid_argument) for options that contradict each other.
void check_exodus_options(const MeshOptions& options);

class ExodusSink final : public Sink {
 public:
  // before_named: called before the file takes the path.
  ExodusSink(std::string path, const MeshOptions& options, std::function<void()> before_named = {});
  void define(const Model& model) override;
  void write(Slot slot, const void* values) override;
  void begin_state(double time) override;
  void end_state() override;
  void abandon_state() override;
  void close() override;
  // add is called before the definitions end: it may define more.
  void define(const Model& model, const std::function<void(NetcdfFile&)>& add);
  // In place of define: the file, path.writing, with its definitions and what is not a field. For a caller who writes the fields himself.
  NetcdfFile make_file(const Model& model, const std::function<void(NetcdfFile&)>& add = {});
  const Place& place(Slot slot) const { return places_.at(slot.entity).at(slot.field); }
  // For add: whole numbers, which are written when the definitions end. None: neither variable nor dimension. No dimension: one number.
  void add_integers(const std::string& name, const std::string& dimension, std::vector<std::int64_t> values);

 private:
  void check_records() const;
  void choose_format();
  void define_head();
  bool define_frames();
  void write_frames();
  void define_nodes();
  void define_entities(const ExodusNames& names);
  void define_lists(const ExodusNames& names, const std::vector<std::size_t>& entities);
  std::size_t place_of_entity(std::size_t entity, std::size_t n) const;
  void define_block(const ExodusNames& names, std::size_t entity, std::size_t place);
  std::string element_type(std::size_t e);
  void define_set(const ExodusNames& names, std::size_t entity, std::size_t place);
  void define_assembly(const ExodusNames& names, std::size_t entity, std::size_t place);
  void define_blob(const ExodusNames& names, std::size_t entity, std::size_t place);
  void put_id_and_name(int variable, const Entity& entity);
  void define_attributes(const ExodusNames& names, std::size_t entity, const std::string& rows, std::size_t place);
  void define_maps(const ExodusNames& names, const std::vector<std::size_t>& entities);
  void define_properties(const ExodusNames& names, const std::vector<std::size_t>& entities);
  void define_results(const ExodusNames& names, const std::vector<std::size_t>& entities);
  void define_reductions(const ExodusNames& names, const std::vector<std::size_t>& entities);
  int define(const std::string& name, DType dtype, const std::vector<int>& dimensions);
  void define_texts(const std::string& name, const std::string& dimension, std::vector<std::string> texts);
  void define_integers(const std::string& name, const std::vector<int>& dimensions, std::vector<std::int64_t> values,
                       bool wide);
  DType integer_type() const { return wide_ ? DType::int64 : DType::int32; }
  static DType result_type(const Field& field);
  static std::vector<std::string> union_of_names(const Model& model, const std::vector<std::size_t>& entities,
                                                 Role role);
  static std::size_t index_of(const std::vector<std::string>& names, const std::string& name);
  Place& place_of(std::size_t entity, std::string_view field, Role role);

  std::string path_;
  MeshOptions options_;
  std::function<void()> before_named_;
  std::optional<NetcdfFile> file_;  // while it is defined
  bool wide_ = false;
  Model model_;
  std::vector<std::vector<Place>> places_;
  std::map<std::string, std::vector<std::string>> texts_;  // written when the definitions end
  std::map<std::string, std::vector<std::int64_t>> integers_;
  int time_dimension_ = -1;
  std::optional<ExodusStates> states_;  // after that
};

}  // namespace penstock::mesh
