// Where a process listens. Plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::fabric {

// unix_name: an abstract Unix socket (found only on the same node, in the same network namespace); tcp_hosts: addresses
// to try in turn, the most reachable first.
struct Endpoint {
  std::string unix_name = {};
  std::vector<std::string> tcp_hosts = {};
  std::uint16_t tcp_port = 0;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// Which of them a connection may use. automatic: the Unix name first, then each TCP address.
enum class Reach { automatic, unix_only, tcp_only };

// As text (JSON), to pass through a cohort's gather and broadcast.
std::string to_text(const Endpoint& endpoint);
// Throws Error(protocol).
Endpoint endpoint_from_text(std::string_view text);
// "unix @name, tcp host:port" for messages.
std::string describe(const Endpoint& endpoint);

}  // namespace penstock::fabric
