// Requests and answers of etcd's v3 JSON gateway (keys and values in base64, 64-bit numbers as text). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "directory/directory.hpp"

namespace penstock::directory::etcd {

std::string to_base64(std::string_view bytes);
// Throws Error(protocol).
std::string from_base64(std::string_view text);

// Keys are `root` followed by the path.
std::string put_request(std::string_view root, std::string_view path, std::string_view value,
                        std::optional<std::uint64_t> expected, std::uint64_t lease);
std::string remove_request(std::string_view root, std::string_view path, std::optional<std::uint64_t> expected);
std::string get_request(std::string_view root, std::string_view path);
std::string list_request(std::string_view root, std::string_view prefix, std::string_view after, std::size_t limit);
std::string grant_request(std::int64_t ttl_seconds);
std::string lease_request(std::uint64_t lease);
std::string watch_request(std::string_view root, std::string_view prefix, std::uint64_t from_revision);

// All decoders throw Error(protocol).
struct Written {
  bool done = false;
  std::uint64_t revision = 0;             // of the tree after it
  std::optional<DirectoryEntry> current;  // what is there instead, when not done
};
Written decode_put(std::string_view root, std::string_view body, bool conditional);
struct Removed {
  bool done = false;
  std::optional<DirectoryEntry> current;
};
Removed decode_remove(std::string_view root, std::string_view body, bool conditional);
struct Range {
  std::vector<DirectoryEntry> entries;
  std::uint64_t revision = 0;
  bool more = false;
};
Range decode_range(std::string_view root, std::string_view body);
std::uint64_t decode_grant(std::string_view body);
// False when the lease has ended.
bool decode_keepalive(std::string_view body);
struct Watched {
  std::vector<DirectoryEvent> events;
  std::uint64_t revision = 0;  // all up to here has been told; 0: says nothing about that
  bool cancelled = false;
  bool compacted = false;  // events from that revision are gone
  std::string reason;
};
Watched decode_watched(std::string_view root, std::string_view line);

// The message and gRPC code of an error's body; ("", 0) when it is none.
struct Refusal {
  int code = 0;
  std::string message;
};
Refusal decode_refusal(std::string_view body);

}  // namespace penstock::directory::etcd
