// JSON as text in one line. Names of hosts, keys and the like may be any bytes: what is no UTF-8 is replaced.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace penstock::pool {

inline std::string json_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace penstock::pool
