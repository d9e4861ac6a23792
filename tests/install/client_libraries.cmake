# The test client_libraries: what a client loads is what a client needs. CMakeLists.txt gives READELF, NM, the LIBRARY, the CLIENTS
# (libpenstock and, where it is built, the Python extension), SERVER with the libraries EXPECTED in it, and the parts that are
# built: ETCD, the client of etcd, UCX, the data plane, and FILES, the engine `file`.
#
# A program that writes a stream or asks a pool for an object must not load the databases of staging servers: they bring
# dozens of libraries (RocksDB, HDF5, curl, Kerberos, ...), with their constructors and their versions. Nor must it load
# the client of etcd, which brings HTTP, TLS and compression, or UCX.
function(needed_by file out)
  execute_process(COMMAND ${READELF} -d ${file} OUTPUT_VARIABLE text ERROR_VARIABLE error RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${READELF} -d ${file}: ${code}\n${error}")
  endif()
  string(REGEX MATCHALL "\\(NEEDED\\)[^\n]*" lines "${text}")
  if(NOT lines)
    message(FATAL_ERROR "${file} needs no library at all, which cannot be:\n${text}")
  endif()
  set(${out} "${lines}" PARENT_SCOPE)
endfunction()

set(not_for_clients "librocksdb|libhdf5|libpenstock_etcd|libpenstock_ucx|libpenstock_file|libuc[mpst]\\.|libcpp-httplib|libssl|libbrotli")
foreach(client IN LISTS CLIENTS)
  needed_by(${client} needed)
  foreach(line IN LISTS needed)
    if(line MATCHES "${not_for_clients}|libz\\.")  # elsewhere than in Debian libcrypto itself may need zlib
      message(FATAL_ERROR "every client loads what only some programs need: ${client} ${line}")
    endif()
  endforeach()
  # The same through the libraries that it needs, as the dynamic linker finds them.
  execute_process(COMMAND ldd ${client} OUTPUT_VARIABLE loaded RESULT_VARIABLE code)
  if(code EQUAL 0 AND loaded MATCHES "(${not_for_clients})[^\n]*")
    message(FATAL_ERROR "every client loads what only some programs need: ${client} ${CMAKE_MATCH_0}")
  endif()
endforeach()

# The server and the client of etcd have them, where they were found: else this test would look for the wrong names.
function(expect_needed file)
  needed_by(${file} needed)
  foreach(name IN LISTS ARGN)
    if(NOT needed MATCHES "${name}")
      message(FATAL_ERROR "${file} was built with ${name} and does not load it: ${needed}")
    endif()
  endforeach()
endfunction()
expect_needed(${SERVER} ${EXPECTED})
if(ETCD)
  expect_needed(${ETCD} libcpp-httplib)
endif()
if(UCX)
  expect_needed(${UCX} libucp)
endif()
if(FILES)
  expect_needed(${FILES} libhdf5)
endif()

# Functions of the standard library that libpenstock exported would serve libraries of another ABI (VTK's wheel crashed in ours);
# those of other libraries would serve a program that has another version of them. Names begin with the namespace, behind what says
# which kind of symbol it is.
execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
if(NOT symbols MATCHES "penstock")
  message(FATAL_ERROR "${LIBRARY} exports nothing of its own:\n${symbols}")
endif()
set(not_ours "St|Sa|4asio|8nlohmann|3fmt|6spdlog|4YAML|11flatbuffers|9__gnu_cxx")
if(symbols MATCHES " (_Z(Th[n0-9_]+)?[NTKVIGZS]*(${not_ours})[^\n]*|asio_[^\n]*)")
  message(FATAL_ERROR "${LIBRARY} exports ${CMAKE_MATCH_1}: see cmake/exports.map")
endif()
