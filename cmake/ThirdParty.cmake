# The libraries that modules name in THIRD_PARTY. The public headers need none of them, so an installed Penstock does not
# either, beyond the shared objects it was linked with.

find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json 3 REQUIRED)
find_package(Flatbuffers REQUIRED NAMES FlatBuffers Flatbuffers)
find_package(Python3 COMPONENTS Interpreter)

# Asio without Boost: headers only.
find_path(PENSTOCK_ASIO_INCLUDE asio.hpp REQUIRED)
add_library(penstock_asio INTERFACE)
add_library(asio::asio ALIAS penstock_asio)
target_include_directories(penstock_asio SYSTEM INTERFACE ${PENSTOCK_ASIO_INCLUDE})
target_compile_definitions(penstock_asio INTERFACE ASIO_STANDALONE ASIO_NO_DEPRECATED)
target_link_libraries(penstock_asio INTERFACE Threads::Threads)

# Debian's yaml-cpp exports no namespace.
if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()

# FlatBuffers: shared where the distribution has only that. flatc has a different target name across versions.
add_library(penstock_flatbuffers INTERFACE)
if(TARGET flatbuffers::flatbuffers_shared)
  target_link_libraries(penstock_flatbuffers INTERFACE flatbuffers::flatbuffers_shared)
else()
  target_link_libraries(penstock_flatbuffers INTERFACE flatbuffers::flatbuffers)
endif()
if(NOT TARGET flatbuffers::flatbuffers)
  add_library(flatbuffers::flatbuffers ALIAS penstock_flatbuffers)
endif()
find_program(PENSTOCK_FLATC flatc REQUIRED)

if(PENSTOCK_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

# Optional parts: PENSTOCK_HAVE_<PART> says whether it is in.
set(PENSTOCK_HAVE_MPI OFF)
if(PENSTOCK_MPI)
  find_package(MPI QUIET COMPONENTS CXX)
  set(PENSTOCK_HAVE_MPI ${MPI_CXX_FOUND})
endif()

# Tiers of pools (module storage); HDF5 also for the benchmarks.
find_path(PENSTOCK_XXHASH_INCLUDE xxhash.h REQUIRED)
add_library(penstock_xxhash INTERFACE)
add_library(xxhash::xxhash ALIAS penstock_xxhash)
target_include_directories(penstock_xxhash SYSTEM INTERFACE ${PENSTOCK_XXHASH_INCLUDE})

set(PENSTOCK_HAVE_ROCKSDB OFF)
find_path(PENSTOCK_ROCKSDB_INCLUDE rocksdb/db.h)
find_library(PENSTOCK_ROCKSDB_LIBRARY rocksdb)
if(PENSTOCK_ROCKSDB_INCLUDE AND PENSTOCK_ROCKSDB_LIBRARY)
  set(PENSTOCK_HAVE_ROCKSDB ON)
  add_library(penstock_rocksdb INTERFACE)
  add_library(rocksdb::rocksdb ALIAS penstock_rocksdb)
  target_include_directories(penstock_rocksdb SYSTEM INTERFACE ${PENSTOCK_ROCKSDB_INCLUDE})
  target_link_libraries(penstock_rocksdb INTERFACE ${PENSTOCK_ROCKSDB_LIBRARY})
endif()

find_package(HDF5 QUIET COMPONENTS C)
set(PENSTOCK_HAVE_HDF5 ${HDF5_FOUND})
if(PENSTOCK_HAVE_HDF5)
  add_library(penstock_hdf5 INTERFACE)
  add_library(hdf5_c::hdf5_c ALIAS penstock_hdf5)
  target_include_directories(penstock_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
  target_compile_definitions(penstock_hdf5 INTERFACE ${HDF5_C_DEFINITIONS})
  target_link_libraries(penstock_hdf5 INTERFACE ${HDF5_C_LIBRARIES})
  # Its second library, for the names of dimensions.
  find_library(PENSTOCK_HDF5_HL NAMES hdf5_serial_hl hdf5_hl)
  mark_as_advanced(PENSTOCK_HDF5_HL)
endif()

# Exodus and Nemesis files (module mesh).
set(PENSTOCK_HAVE_NETCDF OFF)
find_path(PENSTOCK_NETCDF_INCLUDE netcdf.h)
find_library(PENSTOCK_NETCDF_LIBRARY netcdf)
mark_as_advanced(PENSTOCK_NETCDF_INCLUDE PENSTOCK_NETCDF_LIBRARY)
if(PENSTOCK_NETCDF_INCLUDE AND PENSTOCK_NETCDF_LIBRARY AND PENSTOCK_HAVE_HDF5)
  set(PENSTOCK_HAVE_NETCDF ON)
  add_library(penstock_netcdf INTERFACE)
  add_library(netcdf::netcdf ALIAS penstock_netcdf)
  target_include_directories(penstock_netcdf SYSTEM INTERFACE ${PENSTOCK_NETCDF_INCLUDE})
  target_link_libraries(penstock_netcdf INTERFACE ${PENSTOCK_NETCDF_LIBRARY})
endif()

# The index of a pool's objects.
find_package(absl REQUIRED)

# The client of etcd (module directory/etcd) and the server's HTTP page. Debian's cpp-httplib is a shared library, built with
# the options that its .pc file names.
set(PENSTOCK_HAVE_HTTPLIB OFF)
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(PENSTOCK_HTTPLIB QUIET IMPORTED_TARGET cpp-httplib>=0.11)
  set(PENSTOCK_HAVE_HTTPLIB ${PENSTOCK_HTTPLIB_FOUND})
endif()

# The data plane ucx (module transport/ucx).
find_package(ucx CONFIG QUIET)
set(PENSTOCK_HAVE_UCX ${ucx_FOUND})

# penstock/kokkos.hpp: only its tests are compiled here.
include(PenstockKokkos)

set(PENSTOCK_HAVE_ZEROMQ OFF)
if(PENSTOCK_BENCH)
  find_path(PENSTOCK_ZEROMQ_INCLUDE zmq.h)
  find_library(PENSTOCK_ZEROMQ_LIBRARY zmq)
  if(PENSTOCK_ZEROMQ_INCLUDE AND PENSTOCK_ZEROMQ_LIBRARY)
    set(PENSTOCK_HAVE_ZEROMQ ON)
    add_library(penstock_zeromq INTERFACE)
    add_library(zeromq::zeromq ALIAS penstock_zeromq)
    target_include_directories(penstock_zeromq SYSTEM INTERFACE ${PENSTOCK_ZEROMQ_INCLUDE})
    target_link_libraries(penstock_zeromq INTERFACE ${PENSTOCK_ZEROMQ_LIBRARY})
  endif()
endif()

# What benchmarks of services and pools compare with. gRPC's own files for CMake and pkg-config want all that it was built with.
set(PENSTOCK_HAVE_GRPC OFF)
set(PENSTOCK_HAVE_HIREDIS OFF)
if(PENSTOCK_BENCH)
  find_path(PENSTOCK_GRPC_INCLUDE grpcpp/generic/generic_stub.h)
  find_library(PENSTOCK_GRPCPP_LIBRARY grpc++_unsecure)
  find_library(PENSTOCK_GRPC_LIBRARY grpc_unsecure)
  find_library(PENSTOCK_GPR_LIBRARY gpr)
  if(PENSTOCK_GRPC_INCLUDE AND PENSTOCK_GRPCPP_LIBRARY AND PENSTOCK_GRPC_LIBRARY AND PENSTOCK_GPR_LIBRARY)
    set(PENSTOCK_HAVE_GRPC ON)
    add_library(penstock_grpc INTERFACE)
    add_library(grpc::grpc ALIAS penstock_grpc)
    target_include_directories(penstock_grpc SYSTEM INTERFACE ${PENSTOCK_GRPC_INCLUDE})
    target_link_libraries(penstock_grpc INTERFACE ${PENSTOCK_GRPCPP_LIBRARY} ${PENSTOCK_GRPC_LIBRARY} ${PENSTOCK_GPR_LIBRARY}
                                                  absl::synchronization Threads::Threads)
  endif()
  find_path(PENSTOCK_HIREDIS_INCLUDE hiredis/hiredis.h)
  find_library(PENSTOCK_HIREDIS_LIBRARY hiredis)
  if(PENSTOCK_HIREDIS_INCLUDE AND PENSTOCK_HIREDIS_LIBRARY)
    set(PENSTOCK_HAVE_HIREDIS ON)
    add_library(penstock_hiredis INTERFACE)
    add_library(hiredis::hiredis ALIAS penstock_hiredis)
    target_include_directories(penstock_hiredis SYSTEM INTERFACE ${PENSTOCK_HIREDIS_INCLUDE})
    target_link_libraries(penstock_hiredis INTERFACE ${PENSTOCK_HIREDIS_LIBRARY})
  endif()
endif()

# Files that all ranks of a simulation write together; beside the serial HDF5, whose headers it shares the names of.
set(PENSTOCK_HAVE_HDF5_MPI OFF)
if(PENSTOCK_BENCH AND PENSTOCK_HAVE_MPI AND PkgConfig_FOUND)
  pkg_check_modules(PENSTOCK_HDF5_MPI QUIET IMPORTED_TARGET hdf5-openmpi)
  set(PENSTOCK_HAVE_HDF5_MPI ${PENSTOCK_HDF5_MPI_FOUND})
  if(PENSTOCK_HAVE_HDF5_MPI)
    add_library(penstock_hdf5_mpi INTERFACE)
    add_library(hdf5_mpi::hdf5_mpi ALIAS penstock_hdf5_mpi)
    target_include_directories(penstock_hdf5_mpi SYSTEM INTERFACE ${PENSTOCK_HDF5_MPI_INCLUDE_DIRS})
    target_link_libraries(penstock_hdf5_mpi INTERFACE PkgConfig::PENSTOCK_HDF5_MPI)
  endif()
endif()

# The Fortran module, examples, and tests of MPI. The C part of the module includes the compiler's header of array descriptors.
set(PENSTOCK_HAVE_FORTRAN OFF)
if(PENSTOCK_FORTRAN)
  include(CheckIncludeFile)
  include(CheckLanguage)
  check_language(Fortran)
  check_include_file(ISO_Fortran_binding.h PENSTOCK_HAVE_FORTRAN_BINDING)
  if(CMAKE_Fortran_COMPILER AND PENSTOCK_HAVE_FORTRAN_BINDING)
    enable_language(Fortran)
    set(PENSTOCK_HAVE_FORTRAN ON)
  endif()
endif()

if(PENSTOCK_PYTHON)  # python/ finds nanobind
  find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
  # Used at run time, where they are installed; the module builds without them.
  foreach(package mpi4py xarray vtk)
    execute_process(COMMAND ${Python_EXECUTABLE} -c "import importlib.util as u; print(u.find_spec('${package}') is not None)"
                    OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE found)
    string(TOUPPER ${package} PACKAGE)
    set(PENSTOCK_HAVE_${PACKAGE} ${found})
  endforeach()
endif()
