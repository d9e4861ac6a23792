// Where a stream's sockets listen when nobody has named an address: on loopback while everything that is known of the stream
// lies on this host, else on every interface.
#pragma once

#include <string>

#include "penstock/cohort.hpp"
#include "stream/api/engine.hpp"

namespace penstock::stream {

// Who connects there.
enum class Callers {
  ranks,      // of this cohort
  directory,  // and readers that find the stream in the directory
  anyone,     // and others, wherever they are
};

// Collective. As fabric::Listener takes it: "" for every interface. The log of rank 0 says which address, and why.
std::string listening_address(const EngineContext& context, const std::string& stream, Cohort& cohort, Callers callers);

// Whether programs of other hosts cannot use this directory: a folder of a file system that is this host's own, or a service at
// a loopback address. The token is no part of an answer.
bool is_of_this_host(const std::string& directory);

}  // namespace penstock::stream
