// Programs that the compiler is to refuse, and a part of what it says; CMakeLists.txt makes a test of each line.
// BETWEEN_STAGING_VIEWS: deep_copy between two staging views
// ONE_VALUE: deep_copy of one value to a staging view
// OTHER_RANK: the views are to have the same rank
// OTHER_TYPE: the views are to have the same element type
// BOUNDS_OF_ANOTHER_RANK: give one number for each dimension
// BIND_ANOTHER_RANK: view_bind_layout: the views are to have the same rank
// RANK_ZERO: staging views have 1 to 8 dimensions
#include "penstock/kokkos.hpp"

void refused(const Kokkos::View<double**, Kokkos::StagingSpace>& staged,
             [[maybe_unused]] const Kokkos::View<double*, Kokkos::StagingSpace>& row,
             [[maybe_unused]] const Kokkos::View<float**, Kokkos::HostSpace>& floats,
             [[maybe_unused]] const Kokkos::View<double, Kokkos::StagingSpace>& number,
             [[maybe_unused]] const Kokkos::View<double, Kokkos::HostSpace>& host) {
#if defined(BETWEEN_STAGING_VIEWS)
  Kokkos::deep_copy(staged, staged);
#elif defined(ONE_VALUE)
  Kokkos::deep_copy(staged, 0.0);
#elif defined(OTHER_RANK)
  Kokkos::deep_copy(row, Kokkos::View<double**, Kokkos::HostSpace>());
#elif defined(OTHER_TYPE)
  Kokkos::deep_copy(staged, floats);
#elif defined(BOUNDS_OF_ANOTHER_RANK)
  Kokkos::Staging::set_lower_bound(staged, 1, 2, 3);
#elif defined(BIND_ANOTHER_RANK)
  Kokkos::Staging::view_bind_layout(row, staged);
#elif defined(RANK_ZERO)
  Kokkos::deep_copy(number, host);
#endif
}
