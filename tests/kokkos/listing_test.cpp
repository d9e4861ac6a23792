// The paper's use of its staging space (SAND2021-10271, section 2.3): its calls, in its order, with nothing of Penstock but the include.
#include <gtest/gtest.h>

#include <cstdlib>

#include "penstock/kokkos.hpp"
#include "staging_support.hpp"

namespace {

TEST(Listing, OfThePaper) {
  setenv("PENSTOCK_DIRECTORY", penstock::kokkos_test::pool().directory().c_str(),
         1);  // initialize() finds the pool there
  const int i1 = 6, i2 = 9;
  const int version = 3, lb0 = 10, lb1 = 20, ub0 = lb0 + i1 - 1, ub1 = lb1 + i2 - 1;

  Kokkos::Staging::initialize();
  {
    using HostRight = Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace>;
    using HostLeft = Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::HostSpace>;
    using StagingRight = Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::StagingSpace>;
    using StagingLeft = Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::StagingSpace>;

    HostRight put("put", i1, i2);
    Kokkos::parallel_for(
        i1, KOKKOS_LAMBDA(const int i) {
          for (int j = 0; j < i2; ++j) put(i, j) = 100 * i + j;
        });
    StagingRight staged_rows("rows", i1, i2);
    Kokkos::Staging::set_version(staged_rows, version);
    Kokkos::Staging::set_lower_bound(staged_rows, lb0, lb1);
    Kokkos::Staging::set_upper_bound(staged_rows, ub0, ub1);
    Kokkos::deep_copy(staged_rows, put);

    StagingLeft staged_columns("columns", i1, i2);
    HostLeft get("get", i1, i2);
    Kokkos::Staging::set_version(staged_columns, version);
    Kokkos::Staging::set_lower_bound(staged_columns, lb0, lb1);
    Kokkos::Staging::set_upper_bound(staged_columns, ub0, ub1);
    Kokkos::Staging::view_bind_layout(staged_columns, staged_rows);
    Kokkos::deep_copy(get, staged_columns);

    for (int i = 0; i < i1; ++i)
      for (int j = 0; j < i2; ++j) EXPECT_EQ(get(i, j), 100 * i + j);
  }
  Kokkos::Staging::finalize();
  unsetenv("PENSTOCK_DIRECTORY");
}

}  // namespace
