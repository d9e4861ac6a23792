# penstock_rpc_sources(<variable> <schema> ROOT <folder> [FOLDER <name>] ENCODING <header> INCLUDE <folders>... [DEPENDS <files>...])
#
# Adds the command that makes, below ROOT/FOLDER, <stem>_generated.h (flatc, with owned structs), <stem>.bfbs (the binary schema,
# which Python reads) and <stem>_service.hpp (clients and services) from a FlatBuffers schema, and sets the variable to the two
# headers. They are included from ROOT. ENCODING: how the service's header includes rpc/encoding.hpp. INCLUDE: where included
# schemas are looked for. PENSTOCK_FLATC is the program flatc.
function(penstock_rpc_sources variable schema)
  cmake_parse_arguments(PARSE_ARGV 2 rpc "" "ROOT;FOLDER;ENCODING" "INCLUDE;DEPENDS")
  cmake_path(GET schema STEM stem)
  cmake_path(GET schema FILENAME name)
  cmake_path(APPEND rpc_FOLDER ${stem} OUTPUT_VARIABLE include)
  cmake_path(APPEND rpc_ROOT ${include} OUTPUT_VARIABLE made)
  cmake_path(GET made PARENT_PATH folder)
  list(TRANSFORM rpc_INCLUDE PREPEND "-I;")
  add_custom_command(
    OUTPUT ${made}_generated.h ${made}_service.hpp
    COMMAND ${PENSTOCK_FLATC} --cpp --cpp-std c++17 --scoped-enums --gen-object-api --reflect-names --keep-prefix
            ${rpc_INCLUDE} -o ${folder} ${schema}
    COMMAND ${PENSTOCK_FLATC} -b --schema ${rpc_INCLUDE} -o ${folder} ${schema}
    COMMAND Penstock::rpc_generator ${made}.bfbs ${made}_service.hpp ${include} ${name} ${rpc_ENCODING}
    BYPRODUCTS ${made}.bfbs
    DEPENDS ${schema} ${rpc_DEPENDS} Penstock::rpc_generator
    COMMENT "flatc and rpc_generator ${include}.fbs"
    VERBATIM)
  set(${variable} ${made}_generated.h ${made}_service.hpp PARENT_SCOPE)
endfunction()
