#include "analysis/fragments/quantities.hpp"

namespace penstock::analysis {
namespace {

// The moments of a cell filled evenly. at: its centre.
void add_moments(double mass, const Point3& at, const Point3& width, double* sums) {
  double* second = sums + Sum::second_moment;
  for (int i = 0; i < 3; ++i) {
    sums[Sum::first_moment + i] += mass * at[i];
    *second++ += mass * (at[i] * at[i] + width[i] * width[i] / 12);
    for (int j = i + 1; j < 3; ++j) *second++ += mass * at[i] * at[j];
  }
}

}  // namespace

void RegionSums::add(std::uint64_t more_cells, std::span<const double> more) {
  cells += more_cells;
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i].add(more[i]);
}

void RegionSums::add(const RegionSums& other) {
  cells += other.cells;
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i].add(other.sums[i]);
}

void BlockSums::compute(std::size_t row, std::span<const double> fraction, const BlockLabels& labels) {
  const AmrGrid& grid = blocks_.grid();
  if (fields_.mass_density) fields_.mass_density->read(grid, row, mass_density_);
  for (int axis = 0; axis < 3; ++axis)
    if (fields_.velocity) fields_.velocity->read(grid, row, velocity_[axis], axis);
  averages_.resize(fields_.averages.size());
  for (std::size_t i = 0; i < averages_.size(); ++i) fields_.averages[i].read(grid, row, averages_[i]);

  cells_.assign(labels.size() + 1, 0);
  sums_.assign((labels.size() + 1) * width(), 0.0);
  const BlockKey& block = blocks_.blocks()[row];
  const Point3 width = grid.width(block.level);
  const double cell_volume = width[0] * width[1] * width[2];
  const auto [nx, ny, nz] = grid.cells;
  const auto centre = [&](int axis, std::int32_t place) {
    return (block.index[axis] * grid.cells[axis] + place + 0.5) * width[axis];
  };
  std::size_t cell = 0;
  for (std::int32_t z = 0; z < nz; ++z)
    for (std::int32_t y = 0; y < ny; ++y)
      for (std::int32_t x = 0; x < nx; ++x, ++cell) {
        const std::size_t label = labels.cells[cell] + 1;
        double* sums = &sums_[label * this->width()];
        const double volume = fraction[cell] * cell_volume;
        const double mass = fields_.mass_density ? mass_density_[cell] * cell_volume : volume;
        ++cells_[label];
        sums[Sum::volume] += volume;
        sums[Sum::mass] += mass;
        add_moments(mass, {centre(0, x), centre(1, y), centre(2, z)}, width, sums);
        // Where there is no material, its velocity and properties may be anything.
        for (int axis = 0; fields_.velocity && mass != 0 && axis < 3; ++axis)
          sums[Sum::momentum + axis] += mass * velocity_[axis][cell];
        for (std::size_t i = 0; volume != 0 && i < averages_.size(); ++i)
          sums[Sum::averages + i] += volume * averages_[i][cell];
      }
}

}  // namespace penstock::analysis
