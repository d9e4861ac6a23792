#include "base/uri.hpp"

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::base {
namespace {

constexpr std::string_view scheme = "tcp://";
constexpr std::string_view token_key = "token=";

[[noreturn]] void invalid_address(const std::string& what) { throw Error(Errc::invalid_argument, "address: " + what); }

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

std::string percent_encode(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (is_unreserved(c)) out.push_back(c);
    else out.append("%").append(to_hex({&c, 1}));
  }
  return out;
}

std::string percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    const auto byte = from_hex(text.substr(i + 1, 2));
    if (!byte || byte->size() != 1) invalid_address("'%' is not followed by two hexadecimal digits");
    out.append(*byte);
    i += 2;
  }
  return out;
}

}  // namespace

bool is_uri(std::string_view text) { return text.find("://") != std::string_view::npos; }

std::string format_endpoint(std::string_view host, std::uint16_t port) {
  const bool brackets = host.find(':') != std::string_view::npos;
  std::string out = brackets ? "[" + std::string(host) + "]" : std::string(host);
  return out + ":" + std::to_string(port);
}

void parse_endpoint(std::string_view text, std::string& host, std::uint16_t& port) {
  std::string_view host_text;
  std::string_view port_text;
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos || text.substr(close + 1, 1) != ":")
      invalid_address("an IPv6 host is written [host]:port");
    host_text = text.substr(1, close - 1);
    port_text = text.substr(close + 2);
  } else {
    const auto colon = text.find(':');
    if (colon == std::string_view::npos) invalid_address("the port is missing");
    if (text.find(':', colon + 1) != std::string_view::npos) invalid_address("an IPv6 host needs brackets");
    host_text = text.substr(0, colon);
    port_text = text.substr(colon + 1);
  }
  if (host_text.empty()) invalid_address("the host is missing");
  if (host_text.find_first_of("[]") != std::string_view::npos) invalid_address("a host has no brackets in it");
  try {
    port = static_cast<std::uint16_t>(parse_integer(port_text, 1, 65535));
  } catch (const Error& error) {
    throw error.in("address: port");
  }
  host = host_text;
}

StreamUri parse_uri(std::string_view text) {
  if (!text.starts_with(scheme)) invalid_address("it must start with tcp://");
  text.remove_prefix(scheme.size());
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) invalid_address("the stream's name is missing");

  StreamUri uri;
  parse_endpoint(text.substr(0, slash), uri.host, uri.port);
  std::string_view path = text.substr(slash + 1);
  const auto question = path.find('?');
  if (question != std::string_view::npos) {
    const std::string_view query = path.substr(question + 1);
    path = path.substr(0, question);
    if (!query.starts_with(token_key)) invalid_address("only ?token=... may follow the stream's name");
    auto token = from_hex(query.substr(token_key.size()));
    if (!token || token->empty()) invalid_address("the token is not hexadecimal");
    uri.token = std::move(*token);
  }
  uri.stream = percent_decode(path);
  if (uri.stream.empty()) invalid_address("the stream's name is missing");
  return uri;
}

std::string format_uri(const StreamUri& uri) {
  std::string out(scheme);
  out += format_endpoint(uri.host, uri.port) + "/" + percent_encode(uri.stream);
  if (!uri.token.empty()) out.append("?").append(token_key).append(to_hex(uri.token));
  return out;
}

}  // namespace penstock::base
