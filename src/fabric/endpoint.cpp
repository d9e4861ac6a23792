#include "fabric/endpoint.hpp"

#include "base/uri.hpp"
#include "fabric/endpoint_json.hpp"
#include "fabric/json_integer.hpp"
#include "penstock/error.hpp"

namespace penstock::fabric {

nlohmann::json to_json(const Endpoint& endpoint) {
  return {{"unix", endpoint.unix_name}, {"tcp_hosts", endpoint.tcp_hosts}, {"tcp_port", endpoint.tcp_port}};
}

Endpoint endpoint_from_json(const nlohmann::json& json) {
  Endpoint endpoint;
  endpoint.unix_name = json.at("unix").get<std::string>();
  endpoint.tcp_hosts = json.at("tcp_hosts").get<std::vector<std::string>>();
  endpoint.tcp_port = json_integer<std::uint16_t>(json, "tcp_port");
  if (endpoint.unix_name.size() > 100 || endpoint.tcp_hosts.size() > 64)
    throw Error(Errc::protocol, "an endpoint with impossible fields");
  return endpoint;
}

std::string to_text(const Endpoint& endpoint) { return to_json(endpoint).dump(); }

Endpoint endpoint_from_text(std::string_view text) {
  try {
    return endpoint_from_json(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw Error(Errc::protocol, "not an endpoint: " + problem_of(error));
  }
}

std::string describe(const Endpoint& endpoint) {
  std::string text;
  if (!endpoint.unix_name.empty()) text = "unix @" + endpoint.unix_name;
  for (const std::string& host : endpoint.tcp_hosts)
    text += (text.empty() ? "tcp " : ", tcp ") + base::format_endpoint(host, endpoint.tcp_port);
  return text.empty() ? "nowhere" : text;
}

}  // namespace penstock::fabric
