// Fragments on adaptive grids: the extension's part. python/penstock/analysis reads the blocks and joins what ranks found.
#include <nanobind/ndarray.h>

#include <limits>

#include "analysis/fragments/amr_blocks.hpp"
#include "core.hpp"

namespace penstock::python {
namespace {

using analysis::BlockKey;
using Levels = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const std::int64_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;
using Splits = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
nb::ndarray<nb::numpy, T> array_of(std::vector<T> values) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* all) noexcept { delete static_cast<std::vector<T>*>(all); });
  return nb::ndarray<nb::numpy, T>(kept->data(), {kept->size()}, owner);
}

std::int32_t small(std::int64_t number) {
  if (number < 0 || number > std::numeric_limits<std::int32_t>::max())
    throw Error(Errc::invalid_argument, "a level or index of a block is " + std::to_string(number));
  return static_cast<std::int32_t>(number);
}

std::vector<BlockKey> blocks_of(const Levels& levels, const Indices& indices) {
  if (levels.shape(0) != indices.shape(0))
    throw Error(Errc::invalid_argument, std::to_string(levels.shape(0)) + " levels of blocks, and " +
                                            std::to_string(indices.shape(0)) + " indices");
  std::vector<BlockKey> blocks(levels.shape(0));
  for (std::size_t row = 0; row < blocks.size(); ++row) {
    blocks[row].level = small(levels(row));
    for (std::size_t axis = 0; axis < 3; ++axis) blocks[row].index[axis] = small(indices(row, axis));
  }
  return blocks;
}

template <class Found>
nb::ndarray<nb::numpy, std::int64_t> numbers_of(const std::vector<Found>& found) {
  return array_of(std::vector<std::int64_t>(found.begin(), found.end()));
}

}  // namespace

void bind_fragments(nb::module_& m) {
  m.def(
      "amr_touching",
      [](const Levels& levels, const Indices& indices, const Levels& other_levels, const Indices& other_indices,
         std::int32_t depth) {
        return numbers_of(
            analysis::touching(blocks_of(levels, indices), blocks_of(other_levels, other_indices), depth));
      },
      "levels"_a, "indices"_a, "other_levels"_a, "other_indices"_a, "depth"_a);
  m.def(
      "amr_touching_domains",
      [](const Levels& levels, const Indices& indices, const Splits& splits, std::int32_t depth) {
        const std::span<const std::uint64_t> numbers(splits.data(), splits.shape(0));
        return numbers_of(analysis::touching_ranks(blocks_of(levels, indices), numbers, depth));
      },
      "levels"_a, "indices"_a, "splits"_a, "depth"_a);
}

}  // namespace penstock::python
