# The headers that services of users need, and the schema of bulk memory. They lie in several modules; users find them in one folder,
# penstock/rpc, so each is written under its name there. They stand in the build tree, in PENSTOCK_RPC_HEADERS, and are installed
# from there.
set(PENSTOCK_RPC_HEADERS ${PROJECT_BINARY_DIR}/rpc_headers)
set(rpc_headers base/clock.hpp fabric/endpoint.hpp fabric/progress.hpp fabric/task.hpp fabric/token.hpp transport/bulk.hpp
                transport/bulk.fbs rpc/aligned.hpp rpc/budget.hpp rpc/channel.hpp rpc/encoding.hpp)
foreach(header IN LISTS rpc_headers)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS src/${header})
  file(READ src/${header} text)
  foreach(other IN LISTS rpc_headers ITEMS transport/bulk_generated.h)  # the last is made by the user's flatc: PenstockRpc.cmake
    cmake_path(GET other FILENAME name)
    string(REPLACE ${other} penstock/rpc/${name} text "${text}")
  endforeach()
  string(REGEX MATCHALL "#include \"[^\"]+" included "${text}")
  list(FILTER included EXCLUDE REGEX "\"penstock/")
  if(included)
    message(FATAL_ERROR "src/${header} is a header for users and includes one that is not: ${included}")
  endif()
  cmake_path(GET header FILENAME name)
  file(WRITE ${PENSTOCK_RPC_HEADERS}/penstock/rpc/${name} "${text}")
endforeach()
