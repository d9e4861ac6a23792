// A source whose states are kept and can be read in any order: files, what is generated.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "mesh/database.hpp"

namespace penstock::mesh {

// Of a state, from 0; none for fields of the model.
using StateNumber = std::optional<std::uint64_t>;

inline bool is_in_state(const Field& field) { return field.role == Role::transient || field.role == Role::reduction; }

// Throws Error(invalid_argument) for a slot that is not there.
std::pair<const Entity&, const Field&> at(const Model& model, Slot slot);
// Throw Error(invalid_argument): for a part that is not there, for rows that the field has not.
void check_part(std::uint32_t part, std::size_t parts);
void check_rows(const Entity& entity, const Field& field, Rows rows);

class StoredSource : public Source {
 public:
  StateOutcome next_state(Timeout deadline) final;
  void seek(std::uint64_t state) final;
  void read(std::uint32_t part, Slot slot, Rows rows, void* out) final;
  virtual void read_stored(std::uint32_t part, Slot slot, StateNumber state, Rows rows, void* out) = 0;

 private:
  StateNumber state_;
  std::vector<double> times_;  // as far as they were looked at
  std::uint64_t next_ = 0;
};

}  // namespace penstock::mesh
