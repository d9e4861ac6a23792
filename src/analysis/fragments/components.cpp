#include "analysis/fragments/components.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "analysis/refuse.hpp"

namespace penstock::analysis {

void Components::add(const BlockLabels& labels) {
  const AmrGrid& grid = blocks_.grid();
  const BlockKey& block = blocks_.blocks()[outer_.size()];
  const auto [nx, ny, nz] = grid.cells;
  outer_.emplace_back(grid.cells, labels);
  if (names_.size() + labels.size() > std::size_t{std::numeric_limits<std::int32_t>::max()})
    refuse("the blocks of a rank have more than " + std::to_string(std::numeric_limits<std::int32_t>::max()) +
           " components: divide them into batches");
  for (const auto place : labels.lowest)
    names_.push_back(cell_id({block.level,
                              {block.index[0] * nx + place % nx, block.index[1] * ny + place / nx % ny,
                               block.index[2] * nz + place / (nx * ny)}},
                             grid.depth));
  first_.push_back(static_cast<std::int32_t>(names_.size()));
}

void Components::join() {
  DisjointSets sets(own_labels());
  for (std::size_t row = 0; row < blocks_.own(); ++row)
    for (const int face : {direction_number(-1, 0, 0), direction_number(1, 0, 0), direction_number(0, -1, 0),
                           direction_number(0, 1, 0), direction_number(0, 0, -1), direction_number(0, 0, 1)})
      join_across(row, face, sets);

  numbers_.resize(names_.size());
  for (std::size_t label = 0; label < names_.size(); ++label) {
    const auto number = static_cast<std::int32_t>(label);
    if (label >= own_labels()) numbers_[label] = own_ + number - static_cast<std::int32_t>(own_labels());
    else if (const auto root = sets.root(number); root < number) numbers_[label] = numbers_[root];
    else numbers_[label] = own_++;
  }
  for (auto& pair : pairs_) pair = {numbers_[pair.own], numbers_[pair.foreign]};
  std::ranges::sort(pairs_);
  pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
}

// The finer of two blocks joins them; of equals, the one whose neighbour lies below it. pairs_ has labels until all are joined.
void Components::join_across(std::size_t row, int direction_number, DisjointSets& sets) {
  const AmrGrid& grid = blocks_.grid();
  const auto blocks = blocks_.blocks();
  const auto from = blocks_.neighbours(row)[direction_number];
  if (from < 0 || outer_[row].none() || outer_[from].none()) return;
  const Index3 towards = direction(direction_number);
  if (blocks[from].level == blocks[row].level && towards[0] + towards[1] + towards[2] > 0) return;
  const CellPlaces places(grid, blocks[row], blocks[from]);
  Pair last{no_label, no_label};
  for_padded_cells(grid, towards, [&](auto x, auto y, auto z) {
    const auto own = outer_[row].at(grid.cells, x - towards[0], y - towards[1], z - towards[2]);
    const auto other = outer_[from].at(grid.cells, places.along(0, x), places.along(1, y), places.along(2, z));
    if (own == no_label || other == no_label) return;
    const Pair pair{label_of(row, own), label_of(from, other)};
    if (pair == last) return;
    last = pair;
    if (std::size_t(from) < blocks_.own()) sets.join(pair.own, pair.foreign);
    else pairs_.push_back(pair);
  });
}

std::vector<Components::Alias> Components::aliases() const {
  const auto blocks = blocks_.blocks();
  std::vector<Alias> out;
  for (const auto row : touching(blocks.subspan(blocks_.own()), blocks.first(blocks_.own()), blocks_.grid().depth))
    for (auto label = first_[row]; label < first_[row + 1]; ++label) out.push_back({names_[label], numbers_[label]});
  return out;
}

void Components::number(std::size_t row, std::vector<std::int32_t>& labels) const {
  for (auto& label : labels)
    if (label != no_label) label = numbers_[label_of(row, label)];
}

void Components::pad(std::size_t row, const BlockLabels& labels, std::vector<std::int32_t>& padded) const {
  const AmrGrid& grid = blocks_.grid();
  const auto blocks = blocks_.blocks();
  padded.assign(grid.padded_cells(), no_label);
  for (int number = 0; number < directions; ++number) {
    const auto from = blocks_.neighbours(row)[number];
    if (from < 0) continue;
    const CellPlaces places(grid, blocks[row], blocks[from]);
    const std::int32_t* inside = labels.cells.data();
    for_padded_cells(grid, direction(number), [&](auto x, auto y, auto z) {
      const auto label = std::size_t(from) == row
                             ? *inside++
                             : outer_[from].at(grid.cells, places.along(0, x), places.along(1, y), places.along(2, z));
      if (label != no_label) padded[grid.padded_place(x, y, z)] = numbers_[label_of(from, label)];
    });
  }
}

bool Components::nothing_around(std::size_t row) const {
  return first_[row] == first_[row + 1] &&
         std::ranges::all_of(blocks_.neighbours(row), [&](auto from) { return from < 0 || outer_[from].none(); });
}

}  // namespace penstock::analysis
