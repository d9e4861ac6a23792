// The places that one endpoint has for connections that have not proved the token yet. No I/O; not thread-safe.
//
// Guests of the endpoint's own user (and of root) over a Unix socket have places of their own, so that other users and
// other hosts cannot take them. All other guests share a second set, by source: a user over a Unix socket, an address
// over TCP (of IPv6: its network of 64 bits). When a set is full, the source with the most guests gives up one: the oldest
// that has sent nothing, else the oldest that has had more than `answer_time`, or any of them for a newcomer of another
// source; else the newcomer itself. So a source that floods displaces its own guests, and silent ones first.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.hpp"

namespace penstock::fabric {

struct Source {
  bool own = false;  // this process's user or root, over a Unix socket
  std::string name;
};
// Of a connected socket: by SO_PEERCRED or getpeername.
Source source_of(int socket);

class GuestTable {
 public:
  using Id = std::uint64_t;  // ascending, in order of arrival
  static constexpr std::chrono::milliseconds answer_time{250};

  // places: of each of the two sets.
  explicit GuestTable(std::size_t places) : places_(places) {}

  // Enters a guest, which has sent nothing yet. Returns who must leave for it (remove it), perhaps the newcomer itself.
  std::optional<Id> add(Id id, Source source, base::Clock::time_point now);
  // Whether the guest answers; those that do not are displaced first. They do not to begin with.
  void set_answering(Id id, bool answering);
  void remove(Id id) { guests_.erase(id); }
  // Who must leave when the process has no descriptors left; nobody when all guests may still answer.
  std::optional<Id> expendable(base::Clock::time_point now) const;
  std::size_t size() const { return guests_.size(); }

 private:
  struct Guest {
    Source source;
    base::Clock::time_point since;
    bool answering = false;
  };
  std::optional<Id> choose(bool own, base::Clock::time_point now, std::optional<Id> newcomer) const;

  const std::size_t places_;
  std::map<Id, Guest> guests_;
};

}  // namespace penstock::fabric
