# Language level, default build type, warnings, compiler cache, sanitizers.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
# Assertions guard invariants and stay on in release, so NDEBUG is not defined; -g1 keeps backtraces at half the size.
foreach(language C CXX)
  set(CMAKE_${language}_FLAGS_RELWITHDEBINFO "-O2 -g1")
  set(CMAKE_${language}_FLAGS_RELEASE "-O3")
endforeach()

# ccache needs to be told that the build folders of one checkout are alike.
find_program(PENSTOCK_CCACHE ccache)
if(PENSTOCK_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(penstock_launcher
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=time_macros CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      ${PENSTOCK_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${penstock_launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${penstock_launcher})
endif()

if(PENSTOCK_SANITIZE)
  add_compile_options(-fsanitize=${PENSTOCK_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${PENSTOCK_SANITIZE})
  # It opens a pipe to look at memory: false where a test has taken all descriptors.
  add_compile_options(-fno-sanitize=vptr)
  if(PENSTOCK_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=all)
  endif()
  if(PENSTOCK_SANITIZE MATCHES "thread")
    # g++ says once per file that it cannot instrument atomic_thread_fence.
    add_compile_options(-Wno-tsan)
  endif()
endif()

# Warnings for targets of this project.
add_library(penstock_warnings INTERFACE)
target_compile_options(penstock_warnings INTERFACE -Wall -Wextra $<$<BOOL:${PENSTOCK_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # In C++20 options structs are filled by naming the fields that matter; the rest have defaults.
  target_compile_options(penstock_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
endif()
