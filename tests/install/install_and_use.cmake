# The steps of the test install_and_use; CMakeLists.txt gives the variables.
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output TIMEOUT 240)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}: ${code}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${PENSTOCK_BUILD} --config ${CONFIG} --prefix ${WORK}/prefix)
# The installed tree must stand on its own: nothing in it may point back to where it was built.
file(GLOB_RECURSE packaged ${WORK}/prefix/*.cmake)
foreach(file IN LISTS packaged)
  file(READ ${file} text)
  if(text MATCHES "${PENSTOCK_BUILD}/(src|generated|libpenstock)")
    message(FATAL_ERROR "${file} points into the build tree")
  endif()
endforeach()

# The installed server finds the installed library, and starts (it prints its configuration).
run(${WORK}/prefix/bin/penstock-server --print-config)
if(NOT output MATCHES "memory: ")
  message(FATAL_ERROR "the installed server printed no configuration:\n${output}")
endif()

set(flags "")
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE}")
endif()
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${CONSUMER} -B ${WORK}/build -DCMAKE_PREFIX_PATH=${WORK}/prefix
    -DCMAKE_BUILD_TYPE=${CONFIG} -DCMAKE_C_COMPILER=${C_COMPILER} -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
    -DCMAKE_C_FLAGS=${flags} -DCMAKE_CXX_FLAGS=${flags} -DKOKKOS=${KOKKOS})
run(${CMAKE_COMMAND} --build ${WORK}/build --config ${CONFIG})
run(${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/build -C ${CONFIG} --output-on-failure --timeout 60 -V)
if(NOT output MATCHES "penstock ${VERSION}")
  message(FATAL_ERROR "the consumer did not print version ${VERSION}:\n${output}")
endif()

# Services: the schema is compiled by the generator in the prefix, and each header that they may include stands alone. tests/docs
# builds and runs the example.
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SERVICES} -B ${WORK}/services -DCMAKE_PREFIX_PATH=${WORK}/prefix
    -DCMAKE_C_COMPILER=${C_COMPILER} -DCMAKE_CXX_COMPILER=${CXX_COMPILER})
file(GLOB rpc_headers RELATIVE ${WORK}/prefix/include ${WORK}/prefix/include/penstock/rpc/*.hpp)
foreach(header IN LISTS rpc_headers)
  file(WRITE ${WORK}/services/alone.cpp "#include <${header}>\n")
  run(${CXX_COMPILER} -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I${WORK}/prefix/include -I${WORK}/services/penstock_rpc
      ${WORK}/services/alone.cpp)
endforeach()
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SERVICES} -B ${WORK}/services -DPENSTOCK_FLATC=OFF RESULT_VARIABLE code
                OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(code EQUAL 0 OR NOT output MATCHES "needs FlatBuffers: the program[ \n]+flatc")
  message(FATAL_ERROR "the missing flatc is not named:\n${output}")
endif()

# The client of etcd is loaded from beside the library; without it the error says what is missing.
if(ETCD)
  run(${WORK}/build/consumer etcd://127.0.0.1:1)
  if(NOT output MATCHES "etcd at 127.0.0.1:1")
    message(FATAL_ERROR "the client of etcd did not try to connect:\n${output}")
  endif()
  file(GLOB_RECURSE client ${WORK}/prefix/libpenstock_etcd.so)
  file(REMOVE ${client})
endif()
run(${WORK}/build/consumer etcd://127.0.0.1:1)
if(NOT output MATCHES "libpenstock_etcd.so")
  message(FATAL_ERROR "the missing client of etcd is not named:\n${output}")
endif()
