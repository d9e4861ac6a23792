# Penstock::kokkos: Penstock and Kokkos, for programs that include penstock/kokkos.hpp. PENSTOCK_HAVE_KOKKOS says whether it is there.
# Penstock's own build includes this file, and so does find_package(Penstock COMPONENTS kokkos) of an installed Penstock.
set(PENSTOCK_HAVE_KOKKOS OFF)
find_package(Kokkos 3.4...<3.5 QUIET CONFIG)
if(Kokkos_FOUND)
  set(PENSTOCK_HAVE_KOKKOS ON)
  if(Kokkos_INCLUDE_DIRS)  # Debian's target names a folder that does not exist
    set_target_properties(Kokkos::kokkos PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${Kokkos_INCLUDE_DIRS}")
  endif()
  if(NOT TARGET Penstock::kokkos)
    add_library(Penstock::kokkos INTERFACE IMPORTED)
    target_link_libraries(Penstock::kokkos INTERFACE Penstock::penstock Kokkos::kokkos)
  endif()
endif()
