// One Exodus file, in a classic format, that all ranks of a cohort write together (docs/internals/mesh.md). Rank 0 makes it with netCDF;
// then each rank writes the rows that are its own to their places.
//
// Collective: the first state or the close after define, which make the file; end_state and abandon_state; close. A rank that cannot write
// reports it in the next of these calls, in which all ranks throw. Ranks that do not end the same states are told so, and can only close.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mesh/exodus/classic_file.hpp"
#include "mesh/exodus/exodus_sink.hpp"
#include "mesh/exodus/shared_rows.hpp"
#include "mesh/numbering.hpp"

namespace penstock::mesh {

// Throws Error(invalid_argument or unsupported).
void check_shared_options(const std::string& name, const MeshOptions& options);

class SharedSink final : public Sink {
 public:
  SharedSink(std::string path, const MeshOptions& options, std::shared_ptr<Cohort> cohort,
             std::function<void()> before_named);
  ~SharedSink() override;
  void define(const Model& model) override;
  void write(Slot slot, const void* values) override;
  void begin_state(double time) override;
  void end_state() override;
  void abandon_state() override;
  void close() override;

 private:
  class Held;  // the model's fields, until the file is made
  using Columns = std::vector<ClassicColumn>;

  void make_file();
  void merge_models();
  void share_owners();
  void number_blocks();
  void number_sets();
  void number_entries();
  SharedRows own_entries(std::size_t entity, std::size_t field) const;
  RankRows rows_of_block(std::size_t entity, bool by_comm_set) const;
  RankRows rows_of_set(std::size_t entity) const;
  std::string write_head();
  void take_columns(const std::string& text);
  void put(Slot slot, const void* values);
  void put_rows(const Columns& columns, const Entity& entity, const Field& field, Rows rows, const void* values);
  void agree(const std::string& on);
  void require_agreed() const;
  std::string present() const;

  std::string path_;
  MeshOptions options_;
  std::shared_ptr<Cohort> cohort_;
  std::function<void()> before_named_;
  Model model_;                       // this rank's part
  Model whole_;                       // what the file has
  std::vector<std::size_t> in_file_;  // by entity of the part: its number in the file; comm sets have none
  std::vector<std::vector<std::uint32_t>>
      owners_;  // by entity and field of the file: the rank whose value counts, where there is one for all
  std::vector<SharedRows> rows_;  // by entity of the part
  std::map<std::pair<std::size_t, std::size_t>, SharedRows>
      entries_;  // of fields whose rows differ in length, by place in the file
  std::array<std::vector<std::uint64_t>, numbered_type_count> numbers_;  // by number in the part: in the file
  std::array<std::vector<bool>, numbered_type_count> shared_;
  std::vector<std::vector<Columns>> columns_;  // by entity and field of the file
  ClassicColumn times_;
  std::unique_ptr<Held> held_;
  std::optional<ClassicFile> file_;
  std::uint64_t states_ = 0;
  std::uint64_t begun_ = 0;
  std::optional<double> time_;
  std::optional<Error> failure_;
  std::optional<Error> broken_;  // which all ranks have been told
};

}  // namespace penstock::mesh
