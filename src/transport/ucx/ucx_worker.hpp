// The process's UCX worker. Everything in this folder runs on the SocketLoop's thread, which alone calls UCX: it sleeps until
// the worker's descriptor says that something has come.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "penstock/error.hpp"
#include "transport/socket_loop.hpp"

namespace penstock::transport {

class UcxLink;

class UcxWorker final : public SocketLoop::Handler, public std::enable_shared_from_this<UcxWorker> {
 public:
  // The process's, which lives as long as its SocketLoop. Throws Error(unsupported): UCX finds no network, or was used before
  // this process was forked.
  static std::shared_ptr<UcxWorker> shared(const std::shared_ptr<SocketLoop>& loop);
  ~UcxWorker() override;

  ucp_worker_h get() const { return worker_; }
  std::span<const std::byte> address() const { return address_; }
  // What bears this number is given to the link. Numbers are not to be guessed.
  std::uint64_t add(UcxLink& link);
  void remove(std::uint64_t number) { links_.erase(number); }

  // Throws Error(peer_lost).
  ucp_ep_h connect(std::span<const std::byte> peer, UcxLink& link);
  // At once, whatever is under way: its operations have ended when it returns, unless UCX breaks its word (false).
  bool close(ucp_ep_h endpoint, const unsigned& operations);
  // Ends all links, and what UCX has here: the process exits. Later calls do nothing.
  void end();
  // After anything was given to UCX: does what can be done, and has UCX say when there is more. Does nothing within a callback.
  void advance();

 private:
  explicit UcxWorker(std::weak_ptr<SocketLoop> loop) : loop_(std::move(loop)) {}
  void begin();
  void on_events(std::uint32_t) override { advance(); }
  void destroy();
  static ucs_status_t on_message(void* self, const void* header, std::size_t header_bytes, void* data,
                                 std::size_t bytes, const ucp_am_recv_param_t* param);
  static void on_error(void* link, ucp_ep_h endpoint, ucs_status_t status);

  const std::weak_ptr<SocketLoop> loop_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int wake_ = -1;
  std::vector<std::byte> address_;
  std::unordered_map<std::uint64_t, UcxLink*> links_;
  bool advancing_ = false;
};

// What UCX says went wrong.
Error error_of(ucs_status_t status, const std::string& what);

}  // namespace penstock::transport
