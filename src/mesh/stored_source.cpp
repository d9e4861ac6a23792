#include "mesh/stored_source.hpp"

#include <string>

#include "penstock/error.hpp"

namespace penstock::mesh {

StateOutcome StoredSource::next_state(Timeout) {
  if (next_ >= times_.size()) times_ = times();
  if (next_ >= times_.size()) return {};
  state_ = next_++;
  return {StateOutcome::Kind::state, times_[*state_], *state_};
}

void StoredSource::seek(std::uint64_t state) {
  if (const auto count = times().size(); state >= count)
    throw Error(Errc::not_found, "there is no state " + std::to_string(state) + "; there are " + std::to_string(count));
  next_ = state;
}

std::pair<const Entity&, const Field&> at(const Model& model, Slot slot) {
  if (slot.entity >= model.entities.size() || slot.field >= model.entities[slot.entity].fields.size())
    throw Error(Errc::invalid_argument, "the model has no such field");
  const auto& entity = model.entities[slot.entity];
  return {entity, entity.fields[slot.field]};
}

void check_part(std::uint32_t part, std::size_t parts) {
  if (part >= parts)
    throw Error(Errc::invalid_argument,
                "there is no part " + std::to_string(part) + "; there are " + std::to_string(parts));
}

void check_rows(const Entity& entity, const Field& field, Rows rows) {
  const auto count = rows_of(entity, field);
  if (rows.first > count || rows.count > count - rows.first)
    throw Error(Errc::invalid_argument, "field '" + field.name + "' of " + std::string(name_of(entity.type)) + " '" +
                                            entity.name + "' has " + std::to_string(count) + " rows");
}

void StoredSource::read(std::uint32_t part, Slot slot, Rows rows, void* out) {
  const auto& [entity, field] = at(model(part), slot);
  check_rows(entity, field, rows);
  if (!is_in_state(field)) return read_stored(part, slot, std::nullopt, rows, out);
  if (!state_)
    throw Error(Errc::wrong_state, "field '" + field.name + "' has values in states, and none was chosen yet");
  read_stored(part, slot, state_, rows, out);
}

}  // namespace penstock::mesh
