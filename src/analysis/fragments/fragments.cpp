#include "analysis/fragments/fragments.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

#include "analysis/refuse.hpp"

namespace penstock::analysis {
namespace {

void check_fields(const AmrBlocks& blocks, const FragmentFields& fields) {
  const auto check_rows = [](const char* name, const BlockField& field, std::size_t rows) {
    if (field.rows() < rows)
      refuse(std::string("the field of ") + name + " has the arrays of " + std::to_string(field.rows()) +
             " blocks; it needs those of " + std::to_string(rows));
  };
  check_rows("fractions", fields.fraction, blocks.size());
  if (fields.mass_density) check_rows("mass densities", *fields.mass_density, blocks.own());
  if (fields.velocity) check_rows("velocities", *fields.velocity, blocks.own());
  for (const auto& field : fields.averages) check_rows("values to be averaged", field, blocks.own());
  if (fields.averages.size() > max_averages)
    refuse("at most " + std::to_string(max_averages) + " fields are averaged, not " +
           std::to_string(fields.averages.size()));
}

// Solvers leave 0 to 1 by a little; a density or a pressure by more.
void check_fractions(const std::vector<double>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  if (!(least < -0.5) && !(most > 1.5)) return;
  std::ostringstream what;
  what << "field: a volume fraction is 0 to 1; this one has values from " << least << " to " << most << " in a block";
  refuse(what.str());
}

}  // namespace

FragmentFinder::FragmentFinder(const AmrBlocks& blocks, const FragmentFields& fields, const FragmentOptions& options)
    : blocks_(blocks),
      fields_(fields),
      options_(options),
      components_(blocks),
      block_sums_(blocks, fields),
      above_(fields.averages.size()),
      below_(fields.averages.size()) {
  check_fields(blocks, fields);
  if (!std::isfinite(options.threshold)) refuse("the threshold of fragments is a finite number");
  std::vector<double> fraction;
  BlockLabels labels;
  for (std::size_t row = 0; row < blocks.size(); ++row) {
    fields.fraction.read(blocks.grid(), row, fraction);
    check_fractions(fraction);
    label_block(blocks.grid().cells, fraction, options.threshold, labels);
    components_.add(labels);
    if (row < blocks.own()) add_up(row, fraction, labels);
  }
  components_.join();
}

void FragmentFinder::add_up(std::size_t row, const std::vector<double>& fraction, const BlockLabels& labels) {
  block_sums_.compute(row, fraction, labels);
  below_.add(block_sums_.cells(no_label), block_sums_.sums(no_label));
  for (std::int32_t label = 0; label < std::ssize(labels.lowest); ++label) {
    const auto sums = block_sums_.sums(label);
    above_.add(block_sums_.cells(label), sums);
    cells_.push_back(block_sums_.cells(label));
    sums_.insert(sums_.end(), sums.begin(), sums.end());
  }
}

Part FragmentFinder::find(Surface* surface) const {
  if (options_.extremes && surface == nullptr) refuse("extreme points are those of a surface: ask for it, too");
  const AmrGrid& grid = blocks_.grid();
  const std::size_t averages = fields_.averages.size(), width = Sum::averages + averages;
  Part part;
  part.common = {grid.origin,
                 grid.spacing,
                 grid.depth,
                 options_.threshold,
                 static_cast<std::uint32_t>(averages),
                 fields_.velocity.has_value()};
  part.components.resize(components_.own(), {~CellId{0}, RegionSums(averages)});
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    auto& component = part.components[components_.numbers()[i]];
    component.lowest = std::min(component.lowest, components_.names()[i]);
    component.sums.add(cells_[i], std::span(sums_).subspan(i * width, width));
  }
  part.foreign.assign(components_.foreign().begin(), components_.foreign().end());
  part.aliases = components_.aliases();
  part.pairs = components_.pairs();
  part.above = above_;
  part.below = below_;
  if (surface) contour(part, *surface);
  return part;
}

void FragmentFinder::contour(Part& part, Surface& surface) const {
  DualContour contour(blocks_, options_.threshold);
  ExtremePoints extremes;
  std::vector<double> fraction;
  std::vector<std::int32_t> labels;
  BlockLabels block_labels;
  for (std::size_t row = 0; row < blocks_.own(); ++row) {
    if (components_.nothing_around(row)) continue;
    fields_.fraction.read(blocks_.grid(), row, fraction);
    label_block(blocks_.grid().cells, fraction, options_.threshold, block_labels);
    components_.pad(row, block_labels, labels);
    fields_.fraction.read_padded(blocks_, row, fraction);
    const std::size_t first = surface.triangles.size();
    contour.add(row, fraction, labels, surface);
    for (std::size_t triangle = first; options_.extremes && triangle < surface.triangles.size(); ++triangle)
      for (const auto vertex : surface.triangles[triangle])
        extremes.add({surface.components[triangle], surface.ids[vertex], surface.points[vertex]});
  }
  part.extremes = extremes.take();
}

void FragmentFinder::cells(std::size_t row, std::vector<std::int32_t>& components) const {
  if (row >= blocks_.own())
    refuse("block " + std::to_string(row) + " is not one of the " + std::to_string(blocks_.own()) + " own blocks");
  std::vector<double> fraction;
  BlockLabels labels;
  fields_.fraction.read(blocks_.grid(), row, fraction);
  label_block(blocks_.grid().cells, fraction, options_.threshold, labels);
  components_.number(row, labels.cells);
  components = std::move(labels.cells);
}

}  // namespace penstock::analysis
