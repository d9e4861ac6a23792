#include <algorithm>
#include <string>

#include "penstock/error.hpp"
#include "penstock/stream.hpp"

namespace penstock {

Selection Selection::strided(Dims start, Dims count, Dims stride) {
  if (stride.size() != start.size() || count.size() != start.size())
    throw Error(Errc::invalid_argument, "a strided selection needs start, count and stride of the same length");
  if (std::find(stride.begin(), stride.end(), 0u) != stride.end())
    throw Error(Errc::invalid_argument, "the strides of a selection are at least 1");
  Selection selection(Form::box, Box{start, count});
  // Strides of 1 are a plain box, so that equal selections compare equal.
  if (std::any_of(stride.begin(), stride.end(), [](auto s) { return s != 1; })) selection.stride_ = stride;
  return selection;
}

Selection Selection::block(std::uint64_t number) {
  Selection selection(Form::block, Box{});
  selection.block_ = number;
  return selection;
}

Selection Selection::points(std::vector<std::uint64_t> coordinates, std::size_t dimensions) {
  if (dimensions == 0 || dimensions > max_dims)
    throw Error(Errc::invalid_argument, "points have 1 to " + std::to_string(max_dims) + " dimensions");
  if (coordinates.size() % dimensions != 0)
    throw Error(Errc::invalid_argument, std::to_string(coordinates.size()) + " coordinates are not a whole number of " +
                                            std::to_string(dimensions) + "-dimensional points");
  Selection selection(Form::points, Box{});
  selection.points_ = std::move(coordinates);
  selection.dimensions_ = dimensions;
  return selection;
}

}  // namespace penstock
