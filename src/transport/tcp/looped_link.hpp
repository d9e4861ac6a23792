// A link that the thread of the SocketLoop serves. This module's own.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "transport/served_link.hpp"
#include "transport/socket_loop.hpp"
#include "transport/tcp/link.hpp"

namespace penstock::transport {

class LoopedLink final : public ServedLink,
                         public SocketLoop::Handler,
                         public std::enable_shared_from_this<LoopedLink> {
 public:
  LoopedLink(std::shared_ptr<SocketLoop> loop, LinkSide side);
  void start() override;
  void submit(TransferPtr transfer) override;
  void close() override;
  void end(const Error& error) override;

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
