// Endpoints as JSON, for the sources of this module that write it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "fabric/endpoint.hpp"

namespace penstock::fabric {

nlohmann::json to_json(const Endpoint& endpoint);
// Throws nlohmann's exceptions, and Error(protocol).
Endpoint endpoint_from_json(const nlohmann::json& json);

}  // namespace penstock::fabric
