# The test client_libraries: what a client loads is what a client needs. CMakeLists.txt gives READELF, LIBRARY and SERVER.
#
# A program that writes a stream or asks a pool for an object must not load the databases of staging servers: they bring
# dozens of libraries (RocksDB, HDF5, curl, Kerberos, ...), with their constructors and their versions.
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

set(servers_only "librocksdb|libhdf5")
needed_by(${LIBRARY} needed)
foreach(line IN LISTS needed)
  if(line MATCHES "${servers_only}")
    message(FATAL_ERROR "every client loads what only servers need: ${LIBRARY} ${line}")
  endif()
endforeach()
# The same through the libraries that it needs, as the dynamic linker finds them.
execute_process(COMMAND ldd ${LIBRARY} OUTPUT_VARIABLE loaded RESULT_VARIABLE code)
if(code EQUAL 0 AND loaded MATCHES "(${servers_only})[^\n]*")
  message(FATAL_ERROR "every client loads what only servers need: ${CMAKE_MATCH_0}")
endif()

# The server has them, where they were found: else this test would look for the wrong names.
if(EXPECTED)
  needed_by(${SERVER} needed)
  foreach(name IN LISTS EXPECTED)
    if(NOT needed MATCHES "${name}")
      message(FATAL_ERROR "the server was built with ${name} and does not load it: ${needed}")
    endif()
  endforeach()
endif()
