#include "analysis/fragments/block_labels.hpp"

#include <algorithm>

#include "analysis/fragments/disjoint_sets.hpp"

namespace penstock::analysis {
namespace {

bool on_outside(const Index3& cells, std::int32_t x, std::int32_t y, std::int32_t z) {
  return x == 0 || y == 0 || z == 0 || x == cells[0] - 1 || y == cells[1] - 1 || z == cells[2] - 1;
}

}  // namespace

void label_block(const Index3& cells, std::span<const double> values, double threshold, BlockLabels& labels) {
  const auto [nx, ny, nz] = cells;
  DisjointSets sets(values.size());
  std::int32_t at = 0;
  for (std::int32_t z = 0; z < nz; ++z)
    for (std::int32_t y = 0; y < ny; ++y)
      for (std::int32_t x = 0; x < nx; ++x, ++at) {
        if (!(values[at] >= threshold)) continue;
        if (x > 0 && values[at - 1] >= threshold) sets.join(at, at - 1);
        if (y > 0 && values[at - nx] >= threshold) sets.join(at, at - nx);
        if (z > 0 && values[at - nx * ny] >= threshold) sets.join(at, at - nx * ny);
      }
  labels.cells.resize(values.size());
  labels.lowest.clear();
  for (std::int32_t cell = 0; cell < at; ++cell) {
    auto& label = labels.cells[cell];
    if (!(values[cell] >= threshold)) {
      label = no_label;
    } else if (const auto root = sets.root(cell); root < cell) {
      label = labels.cells[root];
    } else {
      label = static_cast<std::int32_t>(labels.size());
      labels.lowest.push_back(cell);
    }
  }
}

OuterLabels::OuterLabels(const Index3& cells, const BlockLabels& labels) {
  const auto [nx, ny, nz] = cells;
  labels_.resize(std::size_t(2 * nx * ny) + (nz - 2) * (2 * nx + 2 * (ny - 2)));
  const std::int32_t* label = labels.cells.data();
  for (std::int32_t z = 0; z < nz; ++z)
    for (std::int32_t y = 0; y < ny; ++y)
      for (std::int32_t x = 0; x < nx; ++x, ++label)
        if (on_outside(cells, x, y, z)) labels_[place(cells, x, y, z)] = *label;
  if (std::ranges::count(labels_, labels_[0]) == std::ssize(labels_))
    labels_ = std::vector<std::int32_t>(1, labels_[0]);
}

std::size_t OuterLabels::place(const Index3& cells, std::int32_t x, std::int32_t y, std::int32_t z) {
  const auto [nx, ny, nz] = cells;
  if (z == 0 || z == nz - 1) return std::size_t(z == 0 ? 0 : nx * ny) + y * nx + x;
  const std::size_t first = 2 * nx * ny + (z - 1) * (2 * nx + 2 * (ny - 2));
  if (y == 0 || y == ny - 1) return first + (y == 0 ? 0 : nx) + x;
  return first + 2 * nx + 2 * (y - 1) + (x == 0 ? 0 : 1);
}

}  // namespace penstock::analysis
