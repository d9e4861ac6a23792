// Where streams are found: one small file each, in a directory that only its owner may use.
//
// Files are written whole or not at all (temporary file and rename), readable by their owner only, and refused when
// someone else owns or may open them: they hold the stream's token. A file says where a stream was; alive() asks.
// All functions may be called from any thread and do file I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/endpoint.hpp"
#include "fabric/launch.hpp"
#include "fabric/token.hpp"

namespace penstock::fabric {

struct Registration {
  std::string stream;
  Endpoint endpoint;
  Token token;
  std::int64_t pid = 0;
  std::string host;
  std::uint32_t ranks = 0;
  std::int64_t started = 0;  // seconds since 1970
  Launch launch;             // of rank 0
};

// Of two writers of one stream that are each alone, and ranks of one launch: what is wrong. Else "".
std::string forgotten_communicator(const Registration& one, const Registration& other);
// Throws Error(wrong_state): the stream is being written by another.
[[noreturn]] void refuse_taken(const Registration& mine, const Registration& other);

// Throws Error(invalid_argument) unless the name is 1 to 128 of A-Z a-z 0-9 . _ - and neither "." nor "..".
void check_stream_name(std::string_view stream);

class Directory {
 public:
  // path: as ContextOptions::directory after resolve_directory. Nothing is touched yet.
  explicit Directory(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }

  // Makes the directory (mode 0700) if need be. Throws Error: wrong_state (a live writer has the name), system,
  // authentication (the directory or file is not ours alone).
  void write(const Registration& registration) const;
  // Empty when there is none. Throws Error: authentication (not ours alone), protocol (not a registration).
  std::optional<Registration> read(std::string_view stream) const;
  // Removes the file if it still is this registration's (same token).
  void remove(const Registration& registration) const;
  // All that can be read; others are left out with a warning in the log.
  std::vector<Registration> list() const;

 private:
  std::string file_of(std::string_view stream) const;
  std::string path_;
};

// A registration as text (JSON), and back. Secret: holds the token. Throws Error(protocol), naming `where` it was found.
std::string registration_text(const Registration& registration);
Registration registration_from_text(const std::string& text, const std::string& where);

// The folder: "": $PENSTOCK_DIRECTORY unless that is a directory service, else $XDG_RUNTIME_DIR/penstock, else
// /tmp/penstock-<uid>.
std::string resolve_directory(const std::string& configured);
// Whether streams register with a service (tcp://..., etcd://...; stream/api/registry.hpp) and not in a folder.
bool is_directory_service(std::string_view where);

// Its writer answers at its Unix name or, knowing its token, at one of its TCP addresses (fabric/connect.hpp), within
// half a second.
bool alive(const Registration& registration);

// "tcp://host:port/stream?token=hex" (the first TCP host). Secret: holds the token.
std::string to_address(const Registration& registration);
// Throws Error(invalid_argument) saying what is wrong.
Registration parse_address(std::string_view address);
bool is_address(std::string_view text);

}  // namespace penstock::fabric
