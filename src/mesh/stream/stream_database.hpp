// A region on a stream (docs/internals/mesh.md): the first step holds the model, each later one a state.
#pragma once

#include "mesh/database.hpp"

namespace penstock::mesh {

// Collective. States are read in order, not sought.
std::unique_ptr<Source> open_stream_database(const DatabaseRequest& request);
std::unique_ptr<Sink> create_stream_database(const DatabaseRequest& request);

}  // namespace penstock::mesh
