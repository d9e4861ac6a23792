// An Exodus II file as a region of one part (docs/internals/mesh.md). Readable while another process writes it, in the classic formats.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mesh/database.hpp"
#include "mesh/exodus/exodus_layout.hpp"
#include "mesh/exodus/exodus_names.hpp"

namespace penstock::mesh {

class ExodusSource final : public StoredSource {
 public:
  // Throws Error: not_found, invalid_argument (no Exodus file, or one that contradicts itself), system.
  explicit ExodusSource(const std::string& path);
  std::uint32_t parts() const override { return 1; }
  const Model& model(std::uint32_t part) override;
  std::vector<double> times() override;
  void read_stored(std::uint32_t part, Slot slot, StateNumber state, Rows rows, void* out) override;
  const NetcdfFile& file() const { return file_; }
  // Where the values are of each entity's fields, as in the model.
  const std::vector<std::vector<Place>>& places() const { return places_; }

 private:
  struct Results;
  struct Listed {
    std::size_t place;
    std::int64_t id;
    std::string name;
  };
  std::vector<Listed> list(const ExodusNames& names) const;
  std::string text_of_file(const char* attribute, const char* otherwise) const;
  void read_head();
  void read_frames();
  void read_region();
  void read_nodes();
  void read_entities(const ExodusNames& names);
  void read_block(const ExodusNames& names, Entity& entity, std::size_t place, std::size_t first);
  void read_set(const ExodusNames& names, Entity& entity, std::size_t place);
  void read_assembly(const ExodusNames& names, Entity& entity, std::size_t place);
  void read_attributes(Entity& entity, const std::string& count, const std::string& values, const std::string& labels);
  void read_maps(const ExodusNames& names, Entity& entity, std::size_t first);
  Results results_of(const std::string& kind, std::size_t entities) const;
  void read_results(const ExodusNames& names, const Results& results, Entity& entity, std::size_t place);
  void read_reductions(const ExodusNames& names, Entity& entity, std::size_t place);
  void add_field(Entity& entity, Field field, Place place);
  std::vector<std::string> texts(const std::string& variable) const;
  void resolve_assemblies();

  NetcdfFile file_;
  Model model_;
  std::vector<std::vector<Place>> places_;  // as model_.entities and their fields
  std::vector<Place> pending_;              // of the entity that is being read
  std::vector<std::vector<std::int64_t>> assembly_members_;
};

}  // namespace penstock::mesh
