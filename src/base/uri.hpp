// Explicit stream addresses: tcp://host:port/stream?token=hex
//
// The host is a name, an IPv4 address, or an IPv6 address in brackets. The stream's name is percent-encoded. The token
// is what a peer must know to be let in; an address with a token is a secret.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::base {

struct StreamUri {
  std::string host;  // IPv6 without brackets
  std::uint16_t port = 0;
  std::string stream;
  std::string token;  // bytes, not hexadecimal; "" when absent
  friend bool operator==(const StreamUri&, const StreamUri&) = default;
};

// Whether a name given to open_stream is an address instead.
bool is_uri(std::string_view text);
// Throws Error(invalid_argument) that says which part is wrong, without repeating the token.
StreamUri parse_uri(std::string_view text);
std::string format_uri(const StreamUri&);
// "host:port", with brackets around IPv6.
std::string format_endpoint(std::string_view host, std::uint16_t port);
// The inverse of format_endpoint. Throws Error(invalid_argument).
void parse_endpoint(std::string_view text, std::string& host, std::uint16_t& port);

}  // namespace penstock::base
