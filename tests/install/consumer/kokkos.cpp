// A program that uses Penstock from Kokkos; there is no pool, and it is told so.
#include <cstdio>
#include <penstock/kokkos.hpp>

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Kokkos::View<double**, Kokkos::StagingSpace> staged("T", 2, 3);
  const Kokkos::View<double**, Kokkos::HostSpace> host("host", 2, 3);
  try {
    Kokkos::deep_copy(staged, host);
  } catch (const penstock::Error& error) {
    std::puts(error.what());
    return error.code() == penstock::Errc::wrong_state ? 0 : 1;
  }
  return 1;
}
