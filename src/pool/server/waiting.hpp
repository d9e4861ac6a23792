// Who waits at this server: so many calls of each client at once, and no more.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "penstock/error.hpp"
#include "rpc/channel.hpp"

namespace penstock::pool {

using Waits = std::map<const rpc::Channel*, std::uint32_t>;  // how many calls wait, by channel

// Counts one call that waits, as long as it lives. Throws Error(overloaded) when `most` of this channel wait.
class Waiting {
 public:
  Waiting(std::shared_ptr<Waits> waits, const rpc::Channel& channel, std::uint32_t most)
      : waits_(std::move(waits)), channel_(&channel) {
    if (++(*waits_)[channel_] <= most) return;
    leave();
    throw Error(Errc::overloaded,
                "a client may have " + std::to_string(most) + " waiting calls at a server (its max_waits)");
  }
  Waiting(const Waiting&) = delete;
  ~Waiting() { leave(); }

 private:
  void leave() {
    if (--(*waits_)[channel_] == 0) waits_->erase(channel_);
  }

  const std::shared_ptr<Waits> waits_;
  const rpc::Channel* const channel_;
};

}  // namespace penstock::pool
