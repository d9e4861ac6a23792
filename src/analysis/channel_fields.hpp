// The meshes of a channel and the variables that carry their fields: definitions, shapes, and which of them a rule asks for.
//
// One thread at a time. Errors leave it as it was.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/demand.hpp"
#include "analysis/mesh_description.hpp"
#include "penstock/stream.hpp"

namespace penstock::analysis {

class ChannelFields {
 public:
  explicit ChannelFields(std::uint64_t ranks = 1) : ranks_(ranks) {}  // of the simulation

  struct Variable {
    std::string mesh;
    std::string field;     // "": of the mesh's structure
    std::string name;      // on the stream
    std::uint32_t id = 0;  // of the writer
    bool global = false;
    Dims shape;             // of a global array, as the mesh describes it now
    Dims shape_now;         // as the stream has it
    bool reshaped = false;  // in the open step
    std::size_t rank = 0;   // of a field's blocks, without interleaved components
    std::uint32_t components = 1;
  };

  void set_mesh(std::string_view name, Mesh mesh);
  // Handles are numbered from 0 in the order of these calls.
  std::uint32_t add_field(Writer& writer, std::string_view mesh, std::string_view name, DType dtype,
                          const FieldOptions& options);
  std::uint32_t add_structure(Writer& writer, std::string_view mesh, std::string_view variable, DType dtype,
                              Order order);

  std::size_t size() const { return variables_.size(); }
  // Throws Error(not_found).
  Variable& variable(std::uint32_t handle);
  // By handle, 1 for what a rule asks for: fields by name ("U" or "grid/U") or variable, with the ghosts and structure of their
  // meshes; a mesh by its name, for its structure alone.
  std::vector<std::uint8_t> wanted(const Rule& rule) const;
  // The attribute `meshes`; "" without meshes. Throws where the meshes do not fit together.
  const std::string& json();
  std::uint64_t version() const { return version_; }  // grows with every change

  // The box of a variable that a caller's box means (penstock/coprocessor.hpp).
  static Box box_of(const Variable& variable, const Box& box);

 private:
  const MeshDescription& mesh_named(std::string_view name) const;
  Placed place_of(const Variable& variable, const Mesh& mesh) const;

  const std::uint64_t ranks_;
  MeshDescriptions meshes_;
  std::vector<Variable> variables_;
  std::string json_;
  std::uint64_t version_ = 1, json_version_ = 0;
};

}  // namespace penstock::analysis
