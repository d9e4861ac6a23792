// The process's UCX worker. Everything in this folder runs on the SocketLoop's thread, which alone calls UCX: it sleeps until
// the worker's descriptor says that something has come, and looks 10 times a second while there are links.
#pragma once

#include <ucp/api/ucp.h>

#include <sys/socket.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/clock.hpp"
#include "memory/unique_fd.hpp"
#include "penstock/error.hpp"
#include "transport/socket_loop.hpp"

namespace penstock::transport {

class UcxLink;

// Of a network, IPv4 or IPv6.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
};

class UcxWorker final : public SocketLoop::Handler, public std::enable_shared_from_this<UcxWorker> {
 public:
  // The loop's, as long as the loop lives. Its thread. Throws Error(unsupported): UCX finds no network, or was used before
  // this process was forked.
  static std::shared_ptr<UcxWorker> shared(const std::shared_ptr<SocketLoop>& loop);
  ~UcxWorker() override;

  ucp_worker_h get() const { return worker_; }
  // What bears this number is given to the link. Numbers are not to be guessed.
  std::uint64_t add(UcxLink& link);
  void remove(std::uint64_t number);

  // The port at which it waits for UCX's connections to this address, whose own port does not matter. Throws Error(unsupported).
  std::uint16_t listen(Address at);
  // Throws Error(peer_lost).
  ucp_ep_h connect(const Address& to, UcxLink& link);
  // The endpoint over which a link's first message came is the link's from now on; false: it is not there to be had.
  bool claim(ucp_ep_h endpoint, UcxLink& link);
  // At once, whatever is under way: its operations have ended when it returns, unless UCX breaks its word (false).
  bool close(ucp_ep_h endpoint, const unsigned& operations);
  // Ends all links, and what UCX has here: the process exits. Later calls do nothing.
  void end();
  // After anything was given to UCX: does what can be done, and has UCX say when there is more. Does nothing within a callback.
  void advance();

 private:
  explicit UcxWorker(std::weak_ptr<SocketLoop> loop) : loop_(std::move(loop)) {}
  void begin();
  void on_events(std::uint32_t) override;
  void look(bool now_and_then);  // whether anything has come
  void destroy();
  static ucs_status_t on_message(void* self, const void* header, std::size_t header_bytes, void* data,
                                 std::size_t bytes, const ucp_am_recv_param_t* param);
  static void on_connection(ucp_conn_request_h request, void* listener);
  static void on_error(void* self, ucp_ep_h endpoint, ucs_status_t status);
  void drop_unclaimed();
  void drop_listeners();

  const std::weak_ptr<SocketLoop> loop_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int wake_ = -1;  // UCX's
  memory::UniqueFd timer_;
  struct Listener {
    UcxWorker* worker = nullptr;
    ucp_listener_h listener = nullptr;
    std::uint16_t port = 0;
  };
  struct Endpoint {
    UcxLink* link = nullptr;  // null: accepted, and not claimed yet
    base::Deadline until{Timeout(0)};
    bool lost = false;
  };
  std::map<std::string, Listener> listeners_;  // by address, in UCX's words
  std::unordered_map<ucp_ep_h, Endpoint> endpoints_;
  std::unordered_map<std::uint64_t, UcxLink*> links_;
  bool advancing_ = false, destroyed_ = false;
};

// What UCX says went wrong.
Error error_of(ucs_status_t status, const std::string& what);

}  // namespace penstock::transport
