// The convex hull of the extreme points of a fragment.
#pragma once

#include <span>

#include "analysis/fragments/amr_blocks.hpp"

namespace penstock::analysis {

// The volume of the convex hull, to about 1e-7 of it. 0 where the points have an extent along one of the axes of at most 1e-10 of
// their longest: give flat points in their principal axes. Takes time by the square of their number. Any thread.
double hull_volume(std::span<const Point3> points);

}  // namespace penstock::analysis
