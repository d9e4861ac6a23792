# The libraries that rooms name in THIRD_PARTY. The public headers need none of them, so an installed Penstock does not
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

set(PENSTOCK_HAVE_HDF5 OFF)
set(PENSTOCK_HAVE_ZEROMQ OFF)
if(PENSTOCK_BENCH)
  find_package(HDF5 QUIET COMPONENTS C)
  set(PENSTOCK_HAVE_HDF5 ${HDF5_FOUND})
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
