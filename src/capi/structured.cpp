// The C API: structured blocks of a mesh region's model.
#include "capi/region.hpp"

using namespace penstock;
using namespace penstock::capi;

namespace penstock::capi {
namespace {

mesh::NodeRange range_of(const std::int64_t (&first)[3], const std::int64_t (&last)[3]) {
  return {std::to_array(first), std::to_array(last)};
}

template <class T, std::size_t count>
void put(const std::array<T, count>& from, T (&to)[count]) {
  std::copy(from.begin(), from.end(), to);
}

mesh::Structured structured_from(const penstock_structured* from) {
  penstock_structured known{};
  const auto& given = need(from, "structured");
  copy_grown(given, &known, std::min(given.struct_size, sizeof known));
  mesh::Structured out{
      .cells = std::to_array(known.cells), .whole = std::to_array(known.whole), .offset = std::to_array(known.offset)};
  for (std::size_t i = 0; i < known.num_connectivities; ++i) {
    const auto& each = (&need(known.connectivities, "connectivities"))[i];
    out.connectivities.push_back({text_of(each.name), text_of(each.donor), std::to_array(each.transform),
                                  range_of(each.owner_first, each.owner_last),
                                  range_of(each.donor_first, each.donor_last), each.decomposition != 0});
  }
  for (std::size_t i = 0; i < known.num_boundaries; ++i) {
    const auto& each = (&need(known.boundaries, "boundaries"))[i];
    out.boundaries.push_back({text_of(each.name), text_of(each.family), range_of(each.first, each.last), each.face});
  }
  return out;
}

penstock_zone_connectivity to_c(const mesh::ZoneConnectivity& from) {
  penstock_zone_connectivity out{};
  out.name = from.name.c_str();
  out.donor = from.donor.c_str();
  put(from.transform, out.transform);
  put(from.owner_range.first, out.owner_first);
  put(from.owner_range.last, out.owner_last);
  put(from.donor_range.first, out.donor_first);
  put(from.donor_range.last, out.donor_last);
  out.decomposition = from.decomposition;
  return out;
}

penstock_boundary_condition to_c(const mesh::BoundaryCondition& from) {
  penstock_boundary_condition out{};
  out.name = from.name.c_str();
  out.family = from.family.c_str();
  put(from.range.first, out.first);
  put(from.range.last, out.last);
  out.face = from.face;
  return out;
}

}  // namespace
}  // namespace penstock::capi

penstock_structured penstock_model::structured(std::size_t entity) {
  const auto& from = *model.entities.at(entity).structured;
  auto& connectivities = connectivities_[entity];
  auto& boundaries = boundaries_[entity];
  connectivities.clear();
  boundaries.clear();
  for (const auto& each : from.connectivities) connectivities.push_back(to_c(each));
  for (const auto& each : from.boundaries) boundaries.push_back(to_c(each));
  penstock_structured out{};
  put(from.cells, out.cells);
  put(from.whole, out.whole);
  put(from.offset, out.offset);
  out.num_connectivities = connectivities.size();
  out.connectivities = connectivities.data();
  out.num_boundaries = boundaries.size();
  out.boundaries = boundaries.data();
  return out;
}

extern "C" {

int penstock_model_put_structured(penstock_model* model, size_t entity, const penstock_structured* structured,
                                  penstock_error* error) {
  return guarded(error, [&] {
    auto& its = entity_of(model, entity);
    its.structured = structured_from(structured);  // may be of the model itself: read before that changes
    model->change();
  });
}

int penstock_model_structured(penstock_model* model, size_t entity, penstock_structured* structured,
                              penstock_error* error) {
  return guarded(error, [&] {
    const auto& its = entity_of(model, entity);
    if (!its.structured) throw Error(Errc::not_found, describe(its) + " has no cells along i, j, k");
    copy_grown(model->structured(entity), structured, need(structured, "structured").struct_size);
  });
}

}  // extern "C"
