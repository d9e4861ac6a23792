// HTTP to the members of an etcd cluster: posts JSON to whichever answers. Blocks; any thread; several at once.
//
// A member that does not answer is left for the next one; the one that answered last is asked first. Only http.cpp sees
// cpp-httplib.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"

namespace penstock::directory::etcd {

struct Member {
  std::string host;
  std::uint16_t port = 0;
};

struct Reply {
  int status = 0;
  std::string body;
  // An earlier attempt of this call may have been carried out, though its answer did not come.
  bool repeated = false;
};

// Ends a stream from another thread.
class Stop {
 public:
  Stop();
  ~Stop();
  void request();
  bool requested() const;
  // True when a stop was requested within this time.
  bool wait_for(std::chrono::milliseconds time);

 private:
  friend class Http;
  struct State;
  std::unique_ptr<State> state_;
};

class Http {
 public:
  // name: for messages. At least one member.
  Http(std::vector<Member> members, std::string name);
  ~Http();

  // Until a member answers, whatever it says, or the deadline. Answers that mean "not now" (no leader, overloaded) count as
  // none. Throws Error: timeout; peer_lost (no member could be connected to); cancelled (after stop).
  Reply post(const std::string& path, const std::string& body, base::Deadline deadline);

  // Gives each line of an endless answer to on_line until it returns false, the connection ends, nothing comes for `idle`,
  // or stop. Returns normally in each case; throws Error(peer_lost) when no answer began.
  void stream(const std::string& path, const std::string& body, const std::function<bool(std::string_view)>& on_line,
              std::chrono::milliseconds idle, Stop& stop);

  // Ends what is under way and refuses what comes.
  void stop();
  const std::string& name() const { return name_; }

 private:
  struct Impl;
  std::string name_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::directory::etcd
