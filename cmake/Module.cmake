# Modules: one folder under src/, one CMake target, one test program.
#
#   penstock_module(model SOURCES box.cpp USES base THIRD_PARTY fmt::fmt TESTS box_test.cpp [SERVER] [PART penstock_x])
#
# makes the object library penstock_model, which becomes part of libpenstock, and the GoogleTest program test_model. A
# test program links the objects of its module and of the modules below it, not the whole library: a module can be built and
# tested while the ones above it are broken, and an upward call does not link.
# The folder of a module is its name; a module inside another is named with a slash (fabric/ucx -> penstock_fabric_ucx).
#
# SERVER: what only servers of pools need. It becomes part of the program penstock-server instead of the library, so that
# its third-party libraries are not loaded by every simulation and every analysis. A module of which this is one part has a
# second target for it in the same folder (storage: storage_tiers).
#
# PART penstock_x: what libpenstock loads when it is asked for. It becomes lib<penstock_x>.so beside libpenstock, so that its
# third-party libraries are loaded only by programs that use it.
#
# The sources of a target are compiled several at a time (penstock_unity), so the names in their unnamed namespaces must
# not clash. Configure with PENSTOCK_UNITY=OFF to see that each source includes what it uses.

include(PenstockRpcSources)

set_property(GLOBAL PROPERTY PENSTOCK_MODULES "")
set_property(GLOBAL PROPERTY PENSTOCK_SERVER_MODULES "")
set_property(GLOBAL PROPERTY PENSTOCK_PARTS "")

function(penstock_module name)
  cmake_parse_arguments(PARSE_ARGV 1 module "SERVER" "PART" "SOURCES;USES;THIRD_PARTY;TESTS")
  if(module_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "penstock_module(${name}): unknown arguments ${module_UNPARSED_ARGUMENTS}")
  endif()
  string(REPLACE "/" "_" id ${name})
  set(target penstock_${id})

  add_library(${target} OBJECT ${module_SOURCES})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE penstock_warnings PUBLIC Threads::Threads ${module_THIRD_PARTY})
  penstock_unity(${target})

  # Everything below, each once.
  set(below "")
  foreach(used IN LISTS module_USES)
    string(REPLACE "/" "_" used_id ${used})
    if(NOT TARGET penstock_${used_id})
      message(FATAL_ERROR "module ${name} uses ${used}, which is not there")
    endif()
    get_target_property(used_below penstock_${used_id} PENSTOCK_BELOW)
    list(APPEND below ${used_below} penstock_${used_id})
  endforeach()
  list(REMOVE_ITEM below "")
  list(REMOVE_DUPLICATES below)
  set_target_properties(${target} PROPERTIES PENSTOCK_BELOW "${below}")
  target_link_libraries(${target} PUBLIC ${below})
  set(where PENSTOCK_MODULES)
  if(module_SERVER)
    set(where PENSTOCK_SERVER_MODULES)
  elseif(module_PART)
    set(where PENSTOCK_PARTS)
    set_target_properties(${target} PROPERTIES PENSTOCK_PART ${module_PART})
  endif()
  set_property(GLOBAL APPEND PROPERTY ${where} ${target})

  if(PENSTOCK_TESTS AND module_TESTS)
    penstock_test_program(test_${id} MODULE ${name} SOURCES ${module_TESTS})
  endif()
endfunction()

# Compiles a target's C++ sources in batches, which is how most of the time that headers and templates take is saved. A
# batch is small enough that a change of one source is compiled quickly, and that all processors have work.
function(penstock_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${PENSTOCK_UNITY} UNITY_BUILD_MODE BATCH
                                             UNITY_BUILD_BATCH_SIZE ${PENSTOCK_UNITY_BATCH})
  # g++ takes the sources of a batch for headers, in which a type must not use an unnamed namespace.
  if(PENSTOCK_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# Tests are compiled for the compiler's time, not their own: -O1 takes a quarter less than -O2.
function(penstock_test_options target)
  if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    target_compile_options(${target} PRIVATE -O1 -g1)
  endif()
endfunction()

# A test program that links a module and those below it, and of PARTS those that are built.
function(penstock_test_program target)
  cmake_parse_arguments(PARSE_ARGV 1 test "" "MODULE" "SOURCES;PARTS")
  string(REPLACE "/" "_" id ${test_MODULE})
  get_target_property(below penstock_${id} PENSTOCK_BELOW)
  foreach(part IN LISTS test_PARTS)
    string(REPLACE "/" "_" part penstock_${part})
    if(TARGET ${part})
      list(APPEND below ${part})
    endif()
  endforeach()
  add_executable(${target} ${test_SOURCES})
  target_link_libraries(${target} PRIVATE penstock_warnings penstock_${id} ${below} GTest::gmock GTest::gtest_main)
  penstock_unity(${target})
  penstock_test_options(${target})
  penstock_device_double(${target})
  penstock_discover_tests(${target})
endfunction()

# What memory/device_fixture.hpp loads in place of CUDA's driver.
function(penstock_device_double target)
  add_dependencies(${target} penstock_cuda_double)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(${target} PRIVATE PENSTOCK_CUDA_DOUBLE="$<TARGET_FILE:penstock_cuda_double>")
endfunction()

# After so many seconds a test case has hung. Sanitizers make programs up to 15 times slower.
set(penstock_case_limit 120)
set(penstock_long_limit 300)
if(PENSTOCK_SANITIZE)
  set(penstock_case_limit 600)
  set(penstock_long_limit 1500)
endif()

# Registers each case of a GoogleTest program with ctest, as program.Suite.Case.
function(penstock_discover_tests target)
  gtest_discover_tests(${target} TEST_PREFIX ${target}. DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${penstock_case_limit} ${ARGN})
endfunction()

# Generates <schema>_generated.h from a FlatBuffers schema for the module's own sources. A module src/wire includes it as
# "wire/<schema>_generated.h".
function(penstock_flatbuffers target schema)
  cmake_path(GET schema STEM stem)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/src OUTPUT_VARIABLE folder)
  set(root ${PROJECT_BINARY_DIR}/generated)
  set(header ${root}/${folder}/${stem}_generated.h)
  add_custom_command(
    OUTPUT ${header}
    COMMAND ${PENSTOCK_FLATC} --cpp --cpp-std c++17 --scoped-enums --reflect-names -o ${root}/${folder}
            ${CMAKE_CURRENT_SOURCE_DIR}/${schema}
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${schema}
    COMMENT "flatc ${folder}/${schema}"
    VERBATIM)
  target_sources(${target} PRIVATE ${header})
  target_include_directories(${target} SYSTEM PUBLIC ${root})
endfunction()

# The folder of generated headers of the current source folder, relative to where they are included from: "wire" for
# src/wire, "examples/rpc" for examples/rpc.
function(penstock_generated_folder out)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
  string(REGEX REPLACE "^src/" "" folder "${folder}")
  set(${out} ${folder} PARENT_SCOPE)
endfunction()

# Generates <folder>/<schema>_generated.h (with owned structs) and <folder>/<schema>_service.hpp from a schema that declares
# rpc_services: src/rpc/channel.hpp says what is in it. Schemas include others by their place under src ("transport/bulk.fbs"),
# which are given to penstock_flatbuffers or to this function too. Projects of users have PenstockRpc.cmake's function instead.
function(penstock_rpc_service target schema)
  penstock_generated_folder(folder)
  set(root ${PROJECT_BINARY_DIR}/generated)
  # Any schema that might be included: a change makes all of them again, which is cheap.
  file(GLOB_RECURSE schemas CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/transport/*.fbs)
  penstock_rpc_sources(sources ${CMAKE_CURRENT_SOURCE_DIR}/${schema} ROOT ${root} FOLDER ${folder} ENCODING rpc/encoding.hpp
                       INCLUDE ${PROJECT_SOURCE_DIR}/src DEPENDS ${schemas})
  target_sources(${target} PRIVATE ${sources})
  target_include_directories(${target} SYSTEM PUBLIC ${root})
endfunction()

function(penstock_add_if_present folder)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt)
    add_subdirectory(${folder})
  endif()
endfunction()
