# penstock_rpc_service(<target> <schema>...)
#
# Makes <stem>_service.hpp from each FlatBuffers schema that declares an rpc_service (penstock/rpc/channel.hpp says what is in it)
# and lets the target include it. Several targets of one folder may name the same schema: it is generated once. Link the target
# with Penstock::penstock. Schemas that a schema includes are looked for in its own folder and in Penstock's headers
# ("penstock/rpc/bulk.fbs"). The binary schema for programs in Python is ${CMAKE_CURRENT_BINARY_DIR}/penstock_rpc/<stem>.bfbs.
# Needs flatc and the headers of FlatBuffers, of one version: PENSTOCK_FLATC and PENSTOCK_FLATBUFFERS_INCLUDE say where they are.
include(${CMAKE_CURRENT_LIST_DIR}/PenstockRpcSources.cmake)

# The FlatBuffers of this build, which makes the header of bulk memory, as its own version of FlatBuffers wants it, in `root`.
function(penstock_rpc_flatbuffers root headers)
  find_program(PENSTOCK_FLATC flatc)
  find_path(PENSTOCK_FLATBUFFERS_INCLUDE flatbuffers/minireflect.h)
  if(NOT PENSTOCK_FLATC OR NOT PENSTOCK_FLATBUFFERS_INCLUDE)
    message(FATAL_ERROR "penstock_rpc_service needs FlatBuffers: the program flatc (PENSTOCK_FLATC=${PENSTOCK_FLATC}) and the header "
                        "flatbuffers/minireflect.h (PENSTOCK_FLATBUFFERS_INCLUDE=${PENSTOCK_FLATBUFFERS_INCLUDE}). Debian: "
                        "flatbuffers-compiler and libflatbuffers-dev; elsewhere give its prefix in CMAKE_PREFIX_PATH")
  endif()
  execute_process(COMMAND ${PENSTOCK_FLATC} --cpp --scoped-enums --reflect-names -o ${root}/penstock/rpc ${headers}/penstock/rpc/bulk.fbs
                  COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(penstock_rpc_service target)
  set(root ${CMAKE_CURRENT_BINARY_DIR}/penstock_rpc)
  get_target_property(headers Penstock::penstock INTERFACE_INCLUDE_DIRECTORIES)
  penstock_rpc_flatbuffers(${root} ${headers})
  foreach(schema IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH schema BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    cmake_path(GET schema STEM stem)
    string(MD5 folder ${root})
    set(made penstock_rpc_${stem}_${folder})
    if(NOT TARGET ${made})
      cmake_path(GET schema PARENT_PATH beside)
      penstock_rpc_sources(sources ${schema} ROOT ${root} ENCODING penstock/rpc/encoding.hpp INCLUDE ${beside} ${headers})
      add_custom_target(${made} DEPENDS ${sources})
    endif()
    add_dependencies(${target} ${made})
  endforeach()
  target_include_directories(${target} SYSTEM PRIVATE ${root} ${PENSTOCK_FLATBUFFERS_INCLUDE})
endfunction()
