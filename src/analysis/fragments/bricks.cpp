#include "analysis/fragments/bricks.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace penstock::analysis {
namespace {

using Place = std::pair<std::int32_t, Index3>;

Place place_of(const Brick& brick) { return {brick.component, brick.place}; }

void add_block(const AmrBlocks& blocks, std::size_t row, const std::vector<double>& fraction,
               const std::vector<std::int32_t>& components, std::vector<Brick>& out) {
  const auto& [level, index] = blocks.blocks()[row];
  const Index3& cells = blocks.grid().cells;
  const Point3 width = blocks.grid().width(level);
  std::map<Place, double> found;
  std::size_t at = 0;
  for (std::int32_t z = 0; z < cells[2]; ++z)
    for (std::int32_t y = 0; y < cells[1]; ++y)
      for (std::int32_t x = 0; x < cells[0]; ++x, ++at) {
        if (components[at] < 0) continue;
        const Index3 place{(index[0] * cells[0] + x) >> level, (index[1] * cells[1] + y) >> level,
                           (index[2] * cells[2] + z) >> level};
        found[{components[at], place}] += fraction[at];
      }
  for (const auto& [place, sum] : found)
    out.push_back({place.first, place.second, sum * width[0] * width[1] * width[2]});
}

}  // namespace

std::vector<Brick> bricks_of(const AmrBlocks& blocks, const BlockField& fraction, const FragmentFinder& finder) {
  std::vector<Brick> all;
  std::vector<double> values;
  std::vector<std::int32_t> components;
  for (std::size_t row = 0; row < blocks.own(); ++row) {
    finder.cells(row, components);
    if (std::ranges::all_of(components, [](auto component) { return component < 0; })) continue;
    fraction.read(blocks.grid(), row, values);
    add_block(blocks, row, values, components, all);
  }
  std::ranges::stable_sort(all, {}, place_of);
  std::size_t end = 0;
  for (const Brick& brick : all) {
    if (end > 0 && place_of(all[end - 1]) == place_of(brick)) all[end - 1].volume += brick.volume;
    else all[end++] = brick;
  }
  all.resize(end);
  return all;
}

}  // namespace penstock::analysis
