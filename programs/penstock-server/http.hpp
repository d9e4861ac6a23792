// The server's page for people and monitoring:
//
//   GET  /         a small page
//   GET  /status   the server's state as JSON
//   GET  /metrics  the same for Prometheus (text format 0.0.4)
//   POST /drain    begins a drain (202; "drain" in /status shows how it goes, and why it failed), or says why it cannot (409);
//                  needs "Authorization: Bearer <admin token in hex>"
//
// What changes nothing needs no token, so it listens on loopback unless told otherwise. Every answer is made on the engine
// thread in one go, so its figures belong together.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace penstock::server {

struct HttpSource {
  std::function<std::string()> status;  // JSON; any thread; may throw
  std::function<void()> drain;          // begins it; any thread; throws when it cannot
  std::string admin_token;              // hex
};

class HttpServer {
 public:
  // address: "host:port", port 0 for any. Throws Error: invalid_argument, system (cannot listen), unsupported (not built in).
  HttpServer(const std::string& address, HttpSource source);
  ~HttpServer();                       // ends what is under way
  const std::string& address() const;  // "host:port" as it listens

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The state as Prometheus reads it. Throws Error(internal) when a figure is missing.
std::string metrics_of(const std::string& status_json);

}  // namespace penstock::server
