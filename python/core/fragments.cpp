// Fragments on adaptive grids: the extension's part. python/penstock/analysis reads the blocks and joins what ranks found.
#include <nanobind/ndarray.h>

#include <limits>

#include "analysis/fragments/amr_blocks.hpp"
#include "analysis/fragments/bricks.hpp"
#include "analysis/fragments/fragments.hpp"
#include "analysis/fragments/hull.hpp"
#include "analysis/fragments/merge.hpp"
#include "core.hpp"

namespace penstock::python {
namespace {

using analysis::BlockKey;
using analysis::Point3;
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

// ------------------------------------------------------------------------------------------------------------- fields

// Blocks of a domain: row, z, y, x (and component).
using Blocks = nb::ndarray<nb::ro, nb::device::cpu>;
using Rows = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

DType type_of(const Blocks& blocks) {
  const auto type = blocks.dtype();
  if (type == nb::dtype<double>()) return DType::float64;
  if (type == nb::dtype<float>()) return DType::float32;
  if (type == nb::dtype<std::uint8_t>()) return DType::uint8;
  throw Error(Errc::invalid_argument, "fields of fragments are float64, float32 or uint8");
}

// A field as a list of arrays, each with the rows that count, in the order of the blocks.
class FieldRows {
 public:
  FieldRows(const analysis::AmrGrid& grid, std::size_t dimensions) : grid_(grid), dimensions_(dimensions) {}

  analysis::BlockField take(const nb::list& chunks, std::size_t rows, std::vector<Blocks>& kept, double byte_unit) {
    for (nb::handle chunk : chunks) {
      const auto pair = nb::cast<nb::tuple>(chunk);
      kept.push_back(nb::cast<Blocks>(pair[0]));
      add(kept.back(), nb::cast<Rows>(pair[1]));
    }
    if (arrays_.size() != rows)
      throw Error(Errc::invalid_argument,
                  "a field has " + std::to_string(arrays_.size()) + " blocks of " + std::to_string(rows));
    return {type_, std::move(arrays_), component_stride_, byte_unit};
  }

 private:
  void add(const Blocks& blocks, const Rows& rows) {
    check_shape(blocks);
    const auto bytes = static_cast<std::ptrdiff_t>(blocks.itemsize());
    const auto stride = [&](std::size_t axis) { return blocks.stride(axis) * bytes; };
    if (arrays_.empty()) {
      type_ = type_of(blocks);
      component_stride_ = dimensions_ == 5 ? stride(4) : 0;
    } else if (type_of(blocks) != type_ || (dimensions_ == 5 && stride(4) != component_stride_)) {
      throw Error(Errc::invalid_argument, "the arrays of a field have different types or layouts");
    }
    for (std::size_t i = 0; i < rows.shape(0); ++i) {
      const auto row = rows(i);
      if (row < 0 || static_cast<std::size_t>(row) >= blocks.shape(0))
        throw Error(Errc::invalid_argument,
                    "an array of " + std::to_string(blocks.shape(0)) + " blocks has no row " + std::to_string(row));
      const auto* first = static_cast<const std::byte*>(blocks.data()) + row * stride(0);
      arrays_.push_back({first, {stride(3), stride(2), stride(1)}});
    }
  }

  void check_shape(const Blocks& blocks) const {
    bool right = blocks.ndim() == dimensions_ && (dimensions_ == 4 || blocks.shape(4) == 3);
    for (std::size_t axis = 0; axis < 3 && right; ++axis)
      right = blocks.shape(3 - axis) == static_cast<std::size_t>(grid_.cells[axis]);
    if (!right)
      throw Error(Errc::invalid_argument, dimensions_ == 5 ? "a velocity has the shape blocks, z, y, x, 3"
                                                           : "a field of cells has the shape blocks, z, y, x");
  }

  const analysis::AmrGrid& grid_;
  std::size_t dimensions_;
  DType type_ = DType::none;
  std::ptrdiff_t component_stride_ = 0;
  std::vector<analysis::BlockArray> arrays_;
};

// -------------------------------------------------------------------------------------------------------------- parts

template <class T, std::size_t n>
nb::ndarray<nb::numpy, T> rows_of(const std::vector<std::array<T, n>>& values) {
  auto* kept = new std::vector<std::array<T, n>>(values);
  nb::capsule owner(kept, [](void* all) noexcept { delete static_cast<std::vector<std::array<T, n>>*>(all); });
  return nb::ndarray<nb::numpy, T>(kept->data()->data(), {kept->size(), n}, owner);
}

// A batch of blocks, and their arrays.
struct Batch {
  Batch(const Levels& levels, const Indices& indices, std::size_t own, const analysis::AmrGrid& grid,
        const nb::dict& given, const analysis::FragmentOptions& options)
      : blocks(grid, blocks_of(levels, indices), own),
        fields{take(given["fraction"], 4, analysis::fraction_byte_unit), {}, {}, {}} {
    if (given.contains("mass")) fields.mass_density = take(given["mass"], 4);
    if (given.contains("velocity")) fields.velocity = take(given["velocity"], 5);
    for (nb::handle mean : nb::cast<nb::list>(given["means"])) fields.averages.push_back(take(mean, 4));
    const nb::gil_scoped_release released;
    finder.emplace(blocks, fields, options);
  }

  analysis::BlockField take(nb::handle chunks, std::size_t dimensions, double byte_unit = 1) {
    return FieldRows(blocks.grid(), dimensions).take(nb::cast<nb::list>(chunks), blocks.size(), kept, byte_unit);
  }

  std::vector<Blocks> kept;
  analysis::AmrBlocks blocks;
  analysis::FragmentFields fields;
  std::optional<analysis::FragmentFinder> finder;
};

// What was found in one batch, which it keeps until release().
class PyFragmentPart {
 public:
  PyFragmentPart(const Levels& levels, const Indices& indices, std::size_t own, const analysis::AmrGrid& grid,
                 const nb::dict& fields, const analysis::FragmentOptions& options)
      : batch_(std::make_unique<Batch>(levels, indices, own, grid, fields, options)) {
    const nb::gil_scoped_release released;
    part_ = batch_->finder->find(options.extremes ? &surface_ : nullptr);
  }

  std::size_t components() const { return part_.size(); }

  nb::bytes encode() const {
    batch();
    const auto bytes = analysis::encode(part_);
    return nb::bytes(bytes.data(), bytes.size());
  }

  // Points, their numbers, triangles, and of each triangle the component.
  nb::tuple surface() const {
    return nb::make_tuple(rows_of(surface_.points), array_of(surface_.ids), rows_of(surface_.triangles),
                          array_of(surface_.components));
  }

  // Component, place (n, 3) and volume.
  nb::tuple bricks() const {
    std::vector<std::int32_t> component;
    std::vector<analysis::Index3> place;
    std::vector<double> volume;
    std::vector<analysis::Brick> bricks;
    const Batch& from = batch();
    {
      const nb::gil_scoped_release released;
      bricks = analysis::bricks_of(from.blocks, from.fields.fraction, *from.finder);
    }
    for (const auto& brick : bricks) {
      component.push_back(brick.component);
      place.push_back(brick.place);
      volume.push_back(brick.volume);
    }
    return nb::make_tuple(array_of(std::move(component)), rows_of(place), array_of(std::move(volume)));
  }

  // Of all cells of the own blocks, x fastest: what `numbers` has for their component, -1 where there is none.
  nb::ndarray<nb::numpy, std::int32_t> labels(
      const nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig>& numbers) {
    std::vector<std::int32_t> all, row;
    const Batch& from = batch();
    for (std::size_t block = 0; block < from.blocks.own(); ++block) {
      from.finder->cells(block, row);
      for (auto& label : row) {
        if (label >= 0 && static_cast<std::size_t>(label) >= numbers.shape(0))
          throw Error(Errc::invalid_argument, "the numbers are not those of this part's components");
        label = label < 0 ? -1 : numbers(static_cast<std::size_t>(label));
      }
      all.insert(all.end(), row.begin(), row.end());
    }
    return array_of(std::move(all));
  }

  // Keeps the surface alone: encode(), bricks() and labels() throw afterwards.
  void release() {
    batch_.reset();
    part_ = analysis::Part();
  }

 private:
  const Batch& batch() const {
    if (!batch_) throw Error(Errc::wrong_state, "the blocks of these fragments were released");
    return *batch_;
  }

  std::unique_ptr<Batch> batch_;
  analysis::Surface surface_;
  analysis::Part part_;
};

nb::dict totals_of(const analysis::RegionTotals& totals) {
  nb::dict out;
  out["cells"] = totals.cells;
  out["volume"] = totals.volume;
  out["mass"] = totals.mass;
  out["momentum"] = nb::make_tuple(totals.momentum[0], totals.momentum[1], totals.momentum[2]);
  return out;
}

nb::dict merged_of(const std::vector<nb::bytes>& encoded) {
  std::vector<analysis::Part> parts;
  for (const auto& bytes : encoded)
    parts.push_back(analysis::decode({reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size()}));
  analysis::Merged merged;
  {
    const nb::gil_scoped_release released;
    merged = analysis::merge(parts);
  }
  nb::dict out;
  out["lowest"] = array_of(merged.lowest);
  out["cells"] = array_of(merged.cells);
  out["volume"] = array_of(merged.volume);
  out["mass"] = array_of(merged.mass);
  out["centre"] = rows_of(merged.centre);
  out["velocity"] = rows_of(merged.velocity);
  out["moments"] = rows_of(merged.second);
  out["means"] = array_of(merged.averages);
  std::vector<std::int32_t> fragment;
  std::vector<Point3> at;
  for (const auto& point : merged.extremes) {
    fragment.push_back(point.component);
    at.push_back(point.at);
  }
  out["extremes"] = nb::make_tuple(array_of(std::move(fragment)), rows_of(at));
  out["above"] = totals_of(merged.above);
  out["below"] = totals_of(merged.below);
  nb::list maps;
  for (const auto& map : merged.fragment_of) maps.append(array_of(map));
  out["maps"] = maps;
  return out;
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
  nb::class_<PyFragmentPart>(m, "FragmentPart")
      .def_prop_ro("components", &PyFragmentPart::components)
      .def("encode", &PyFragmentPart::encode)
      .def("surface", &PyFragmentPart::surface)
      .def("bricks", &PyFragmentPart::bricks)
      .def("labels", &PyFragmentPart::labels, "numbers"_a)
      .def("release", &PyFragmentPart::release);
  m.def(
      "find_fragments",
      [](const Levels& levels, const Indices& indices, std::size_t own, const std::vector<std::int32_t>& cells,
         const std::vector<double>& origin, const std::vector<double>& spacing, std::int32_t depth,
         const nb::dict& fields, double threshold, bool surface) {
        analysis::AmrGrid grid;
        if (cells.size() != 3 || origin.size() != 3 || spacing.size() != 3)
          throw Error(Errc::invalid_argument, "fragments are found in blocks of three dimensions");
        for (std::size_t axis = 0; axis < 3; ++axis) {
          grid.cells[axis] = cells[axis];
          grid.origin[axis] = origin[axis];
          grid.spacing[axis] = spacing[axis];
        }
        grid.depth = depth;
        return std::make_unique<PyFragmentPart>(levels, indices, own, grid, fields,
                                                analysis::FragmentOptions{threshold, surface});
      },
      "levels"_a, "indices"_a, "own"_a, "cells"_a, "origin"_a, "spacing"_a, "depth"_a, "fields"_a, "threshold"_a,
      "surface"_a);
  m.def("merge_fragments", &merged_of, "parts"_a);
  m.def(
      "hull_volume",
      [](const nb::ndarray<const double, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>& points) {
        const auto* first = reinterpret_cast<const Point3*>(points.data());
        return analysis::hull_volume({first, points.shape(0)});
      },
      "points"_a);
}

}  // namespace penstock::python
