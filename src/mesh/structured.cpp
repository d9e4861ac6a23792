#include "mesh/structured.hpp"

#include <cstdlib>

#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

constexpr const char* axis_names = "ijk";

[[noreturn]] void refuse_block(const Entity& block, const std::string& why) {
  throw Error(Errc::invalid_argument, std::string(name_of(block.type)) + " '" + block.name + "': " + why);
}

std::string ijk_text(const Ijk& at) {
  return std::to_string(at[0]) + " " + std::to_string(at[1]) + " " + std::to_string(at[2]);
}

bool is_inside(const Ijk& at, const Ijk& first, const Ijk& last) {
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (at[axis] < first[axis] || at[axis] > last[axis]) return false;
  return true;
}

void check_cells(const Entity& block) {
  const auto& its = *block.structured;
  if (its.whole[0] < 1 || its.whole[1] < 0 || its.whole[2] < 0 || (its.whole[1] == 0 && its.whole[2] > 0))
    refuse_block(block, "the whole has " + ijk_text(its.whole) +
                            " cells: at least one along i; 0 along k, or j and k, that are not there");
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const auto cells = its.cells[axis], offset = its.offset[axis], whole = its.whole[axis];
    if (cells < 0 || offset < 0 || cells > whole || offset > whole - cells)
      refuse_block(block, "cells " + ijk_text(its.cells) + " from " + ijk_text(its.offset) +
                              " on are not inside of the whole, " + ijk_text(its.whole));
    if (whole > 0 && (cells == 0) != (its.cells[0] == 0))
      refuse_block(block, "a part has cells along all axes or along none, not " + ijk_text(its.cells));
  }
  const auto nodes = [&](std::size_t axis) { return static_cast<std::uint64_t>(its.whole[axis]) + 1; };
  try {
    static_cast<void>(element_count({nodes(0), nodes(1), nodes(2)}));
  } catch (const Error& e) {
    refuse_block(block, e.what());
  }
  if (block.count != its.cell_count())
    refuse_block(block, "count is " + std::to_string(block.count) + ", and there are " +
                            std::to_string(its.cell_count()) + " cells, " + ijk_text(its.cells));
}

void check_nodes(const Model& model, const Entity& block) {
  const auto nodes = block.structured->node_count();
  const auto* found = model.find(EntityType::node_block, block.name);
  if (found == nullptr && nodes != 0) refuse_block(block, "there is no node block of this name, with its nodes");
  if (found != nullptr && found->count != nodes)
    refuse_block(block, "the node block of this name has " + std::to_string(found->count) +
                            " nodes, and the cells have " + std::to_string(nodes));
}

// What the part has of the block.
void check_range(const Entity& block, const std::string& where, const NodeRange& range) {
  const auto& its = *block.structured;
  auto last = its.offset;
  for (std::size_t axis = 0; axis < 3; ++axis) last[axis] += its.cells[axis];
  if (block.count == 0) refuse_block(block, where + ": the part has no nodes of the block");
  if (!is_inside(range.first, its.offset, last) || !is_inside(range.last, its.offset, last))
    refuse_block(block, where + ": nodes " + ijk_text(range.first) + " to " + ijk_text(range.last) +
                            " are not inside of the part's, " + ijk_text(its.offset) + " to " + ijk_text(last));
}

void check_transform(const Entity& block, const std::string& where, const ZoneConnectivity& its) {
  std::array<bool, 3> seen{};
  for (const auto axis : its.transform) {
    if (axis == 0 || axis < -3 || axis > 3 || seen[static_cast<std::size_t>(std::abs(axis)) - 1])
      refuse_block(block, where + ": the transform names each of the axes 1, 2, 3 of the donor once, with its sign");
    seen[static_cast<std::size_t>(std::abs(axis)) - 1] = true;
  }
}

void check_connectivity(const Model& model, const Entity& block, const ZoneConnectivity& its) {
  const auto where = "connectivity '" + its.name + "'";
  if (its.name.empty()) refuse_block(block, "a connectivity has no name");
  const auto* donor = model.find(EntityType::structured_block, its.donor);
  if (donor == nullptr || !donor->structured)
    refuse_block(block,
                 where + ": there is no structured block '" + its.donor +
                     "'; a part has all that its blocks are connected to, with 0 cells where it has none of them");
  check_transform(block, where, its);
  check_range(block, where, its.owner_range);
  const auto& whole = donor->structured->whole;
  if (!is_inside(its.donor_range.first, {}, whole) || !is_inside(its.donor_range.last, {}, whole))
    refuse_block(block, where + ": nodes " + ijk_text(its.donor_range.first) + " to " + ijk_text(its.donor_range.last) +
                            " are not inside of the donor's, 0 0 0 to " + ijk_text(whole));
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const auto other = static_cast<std::size_t>(std::abs(its.transform[axis])) - 1;
    const auto ours = its.owner_range.last[axis] - its.owner_range.first[axis];
    const auto theirs = its.donor_range.last[other] - its.donor_range.first[other];
    if (ours != (its.transform[axis] < 0 ? -theirs : theirs))
      refuse_block(block, where + ": axis " + axis_names[axis] + " goes " + std::to_string(ours) +
                              " nodes on, and axis " + axis_names[other] + " of the donor " + std::to_string(theirs) +
                              ": the transform says otherwise");
  }
  const bool continues = its.donor == block.name && its.owner_range == its.donor_range;
  if (its.decomposition && !continues)
    refuse_block(block, where + ": where a block continues in another part it is its own donor, with the same nodes");
}

void check_boundary(const Entity& block, const BoundaryCondition& its) {
  const auto where = "boundary condition '" + its.name + "'";
  if (its.name.empty()) refuse_block(block, "a boundary condition has no name");
  if (its.face < 0 || its.face > 5)
    refuse_block(block, where + ": face " + std::to_string(its.face) + " is none of 0 to 5");
  check_range(block, where, its.range);
  const auto axis = static_cast<std::size_t>(its.face % 3);
  const auto whole = block.structured->whole[axis];
  const auto place = its.face < 3 ? 0 : whole;
  if (whole == 0) refuse_block(block, where + ": the block has no axis " + axis_names[axis]);
  if (its.range.first[axis] != place || its.range.last[axis] != place)
    refuse_block(block, where + ": nodes " + ijk_text(its.range.first) + " to " + ijk_text(its.range.last) +
                            " are not on face " + std::to_string(its.face) + ", which has " + axis_names[axis] + " " +
                            std::to_string(place));
}

}  // namespace

std::uint64_t Structured::cell_count() const {
  std::uint64_t count = 1;
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (whole[axis] > 0) count *= static_cast<std::uint64_t>(cells[axis]);
  return count;
}

std::uint64_t Structured::node_count() const {
  if (cells[0] == 0) return 0;
  std::uint64_t count = 1;
  for (const auto each : cells) count *= static_cast<std::uint64_t>(each) + 1;
  return count;
}

void check_structured(const Model& model, const Entity& entity) {
  const bool is_block = entity.type == EntityType::structured_block;
  if (is_block != entity.structured.has_value())
    refuse_block(
        entity, is_block ? "its cells along i, j, k are not given" : "only a structured block has cells along i, j, k");
  if (!is_block) return;
  check_cells(entity);
  check_nodes(model, entity);
  for (const auto& each : entity.structured->connectivities) check_connectivity(model, entity, each);
  for (const auto& each : entity.structured->boundaries) check_boundary(entity, each);
}

void refuse_structured(const Model& model, const std::string& why) {
  for (const auto& entity : model.entities)
    if (entity.type == EntityType::structured_block)
      throw Error(Errc::unsupported, "structured_block '" + entity.name + "': " + why);
}

}  // namespace penstock::mesh
