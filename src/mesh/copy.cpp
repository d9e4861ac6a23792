#include "mesh/copy.hpp"

#include "mesh/stored_source.hpp"

namespace penstock::mesh {
namespace {

void each_field(const Model& model, const std::function<bool(const Field&)>& wanted,
                const std::function<void(Slot)>& see) {
  for (std::size_t e = 0; e < model.entities.size(); ++e)
    for (std::size_t i = 0; i < model.entities[e].fields.size(); ++i)
      if (wanted(model.entities[e].fields[i])) see({e, i});
}

}  // namespace

void each_model_field(const Model& model, const std::function<void(Slot)>& see) {
  each_field(
      model, [](const Field& field) { return field.role == Role::communication; }, see);
  each_field(
      model, [](const Field& field) { return !is_in_state(field) && field.role != Role::communication; }, see);
}
void each_state_field(const Model& model, const std::function<void(Slot)>& see) { each_field(model, is_in_state, see); }

std::vector<std::byte> read_whole(Source& source, std::uint32_t part, Slot slot) {
  const auto& entity = source.model(part).entities.at(slot.entity);
  const auto& field = entity.fields.at(slot.field);
  std::vector<std::byte> values(values_of(entity, field) * size_of(field.dtype));
  if (!values.empty()) source.read(part, slot, {0, rows_of(entity, field)}, values.data());
  return values;
}

}  // namespace penstock::mesh
