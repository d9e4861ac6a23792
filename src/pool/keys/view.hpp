// A pool's membership: a numbered list of servers. Plain value; lives in the directory as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/endpoint.hpp"
#include "wire/versions.hpp"

namespace penstock::pool {

inline constexpr std::size_t max_members = 1024;
inline constexpr std::uint32_t max_weight = 1024;

enum class ServerState : std::uint8_t {
  active,    // owns keys
  draining,  // owns nothing any more, still serves what it holds until others have it
};

struct Member {
  std::uint64_t id = 0;  // random, for one life of a server process (kept over restarts with its data)
  std::string name;      // "host:pid", for messages
  fabric::Endpoint endpoint;
  std::uint32_t weight = 1;  // relative capacity, up to max_weight
  ServerState state = ServerState::active;
  // The view in which this life of the process came to the pool, or came back to it: a view in between did not name it.
  std::uint64_t since = 0;
  friend bool operator==(const Member&, const Member&) = default;
};

struct View {
  std::uint64_t number = 0;  // 0: none yet
  bool settled = true;       // every owner holds what it owns
  std::uint32_t replication = 1;
  std::uint64_t losses = 0;     // server processes that were lost without draining, since the pool began
  std::vector<Member> members;  // by id, ascending

  const Member* find(std::uint64_t id) const;
  friend bool operator==(const View&, const View&) = default;
};

std::string to_json(const View& view);
// Throws Error(protocol).
View view_from_json(std::string_view text);

// What a server says of itself: /pools/<pool>/servers/<id>.
struct Announcement {
  Member member;
  bool leaving = false;
  std::uint64_t finished_view = 0;  // the newest view whose objects it has passed on completely
  // Of the service protocol (wire/versions). Those before version 3 did not say theirs: 2 stands for all of them.
  std::uint32_t protocol = wire::service_protocol;
};
std::string to_json(const Announcement& announcement);
Announcement announcement_from_json(std::string_view text);

// The next view, if the announcements call for one (else the present one): servers that came (active), leave (draining) or
// are gone (left out), a server that is back in a new process (what it had in memory is lost), another replication: a view
// that is not settled. All have finished: the same, settled. Draining servers are left out of the view after that, which
// stays settled. Pure; whoever writes it first wins. No announcements at all mean that the directory lost them: the present
// view stays. Nobody drains who could hand on to nobody: when every server leaves, one stays active (an active one if there is
// any, of these the one with the highest id), the others drain; it may end once it is alone.
View next_view(const View& present, const std::vector<Announcement>& announced, std::uint32_t replication);

}  // namespace penstock::pool
