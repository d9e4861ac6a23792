# libpenstock: the modules in one shared library, exported as Penstock::penstock. What only servers need is not in it
# (penstock_module's SERVER): the program penstock-server links that beside the library.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
if(SKBUILD)
  # Inside the Python package everything lies below one folder, whatever the distribution's habits.
  set(CMAKE_INSTALL_LIBDIR lib)
endif()

get_property(modules GLOBAL PROPERTY PENSTOCK_MODULES)
if(NOT modules)
  return()
endif()

# Adds the objects of a module to a library, and what the module links except for the modules in libpenstock.
function(penstock_add_module library module)
  target_sources(${library} PRIVATE $<TARGET_OBJECTS:${module}>)
  get_target_property(libraries ${module} LINK_LIBRARIES)
  list(REMOVE_ITEM libraries ${modules} penstock_warnings)
  target_link_libraries(${library} PRIVATE ${libraries})
  set_target_properties(${library} PROPERTIES LINKER_LANGUAGE CXX)
  if(NOT PENSTOCK_SANITIZE)  # their runtime comes with the program
    target_link_options(${library} PRIVATE LINKER:-z,defs)  # nothing in it needs what is in the server alone
  endif()
endfunction()

add_library(penstock SHARED)
add_library(Penstock::penstock ALIAS penstock)
foreach(module IN LISTS modules)
  penstock_add_module(penstock ${module})
endforeach()
target_link_options(penstock PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
set_target_properties(penstock PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
# One SONAME everywhere: a simulation and the Python package that its analysis imports in its process share one library.
set_target_properties(penstock PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
set(penstock_namelink NAMELINK_COMPONENT development)
if(SKBUILD)  # wheels turn symbolic links into copies
  set_target_properties(penstock PROPERTIES VERSION ${PROJECT_VERSION_MAJOR})
  set(penstock_namelink NAMELINK_SKIP)
endif()
target_compile_features(penstock PUBLIC cxx_std_20)
target_include_directories(penstock PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# Public headers use std::thread and the like; nothing else travels to users.
target_link_libraries(penstock PUBLIC Threads::Threads)

install(TARGETS penstock EXPORT PenstockTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime ${penstock_namelink})

# Parts have no version in their names: libpenstock loads the one beside it, and compares versions.
get_property(parts GLOBAL PROPERTY PENSTOCK_PARTS)
foreach(module IN LISTS parts)
  get_target_property(part ${module} PENSTOCK_PART)
  add_library(${part} MODULE)
  penstock_add_module(${part} ${module})
  target_link_libraries(${part} PRIVATE penstock)
  set_target_properties(${part} PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS ${part} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
endforeach()

install(DIRECTORY include/penstock DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
include(RpcHeaders)
install(DIRECTORY ${PENSTOCK_RPC_HEADERS}/penstock DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(TARGETS rpc_generator EXPORT PenstockTargets
        RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/penstock COMPONENT development)
set(penstock_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Penstock)
install(EXPORT PenstockTargets NAMESPACE Penstock:: DESTINATION ${penstock_cmake_dir} COMPONENT development)
configure_package_config_file(cmake/PenstockConfig.cmake.in ${PROJECT_BINARY_DIR}/PenstockConfig.cmake
                              INSTALL_DESTINATION ${penstock_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/PenstockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/PenstockConfig.cmake ${PROJECT_BINARY_DIR}/PenstockConfigVersion.cmake
              cmake/PenstockKokkos.cmake cmake/PenstockRpc.cmake cmake/PenstockRpcSources.cmake
        DESTINATION ${penstock_cmake_dir} COMPONENT development)
