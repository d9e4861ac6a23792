// Kokkos lives as long as the program; the pool's servers are processes of their own.
#include "staging_support.hpp"

namespace penstock::kokkos_test {

namespace {
std::unique_ptr<Pool> the_pool;
}

Pool& pool() { return *the_pool; }

}  // namespace penstock::kokkos_test

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  Kokkos::initialize(argc, argv);
  penstock::kokkos_test::the_pool = std::make_unique<penstock::kokkos_test::Pool>();
  const int failed = RUN_ALL_TESTS();
  penstock::kokkos_test::the_pool.reset();
  Kokkos::finalize();
  return failed;
}
