// A link that the thread of the SocketLoop serves. This module's own.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "transport/tcp/link.hpp"
#include "transport/tcp/socket_loop.hpp"

namespace penstock::transport {

class LoopedLink : public SocketLoop::Handler, public std::enable_shared_from_this<LoopedLink> {
 public:
  // on_end: once, on the loop's thread, unless close() came first.
  LoopedLink(std::shared_ptr<SocketLoop> loop, memory::UniqueFd socket, std::shared_ptr<Source> source,
             std::string peer_name, std::function<void(const Error&)> on_end);
  // Any thread.
  void start();
  void submit(TransferPtr transfer);  // after the end it fails
  void close();
  // The loop's thread.
  void end(const Error& error);

 private:
  void on_events(std::uint32_t events) override;
  void advance(bool readable);

  const std::shared_ptr<SocketLoop> loop_;
  const std::string peer_name_;
  Link link_;
  std::function<void(const Error&)> on_end_;
  bool ended_ = false;
  bool watches_writes_ = false;
};

}  // namespace penstock::transport
