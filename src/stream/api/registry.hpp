// Where streams register and are found: a folder of private files (fabric/registration.hpp), or a directory service
// (directory/directory.hpp), which programs without a common folder can ask.
//
// In a service a stream is the entry /streams/<name> under a lease of its writer: a writer that dies, or that cannot reach
// the service for longer than the lease, disappears; the latter comes back by itself. Who may read the service may read the
// streams, as with the folder: the entries hold their tokens.
//
// For application threads; functions that take a deadline throw Error timeout or peer_lost when a service does not answer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "fabric/progress.hpp"
#include "fabric/registration.hpp"

namespace penstock::stream {

class Registry {
 public:
  virtual ~Registry() = default;
  virtual std::string describe() const = 0;  // no secrets
  // How long to wait before looking again for a stream that is not there.
  virtual Timeout patience() const = 0;

  // Throws Error: wrong_state (a live writer has the name), system, authentication (a folder that is not ours alone).
  virtual void write(const fabric::Registration& registration, base::Deadline deadline) = 0;
  // Empty when there is none. Throws Error: authentication, protocol (not a registration).
  virtual std::optional<fabric::Registration> read(std::string_view stream, base::Deadline deadline) = 0;
  // Removes it if it still is this registration (same token). A service that does not answer is logged: the lease ends.
  virtual void remove(const fabric::Registration& registration) = 0;
  // All that can be read, by name; others are left out with a warning in the log.
  virtual std::vector<fabric::Registration> list(base::Deadline deadline) = 0;
};

// where: a folder, or a service as directory::open_directory takes it. Nothing is touched yet. Throws Error: invalid_argument,
// unsupported.
std::unique_ptr<Registry> open_registry(std::shared_ptr<fabric::Progress> progress, const std::string& where);

}  // namespace penstock::stream
