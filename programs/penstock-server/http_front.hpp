// The connections of the status page: takes requests without a body, sends the answers, one request a connection.
//
// One thread that never waits for a peer. A connection has five seconds to send its request and five to read the answer. At
// most 128 are open at once: beyond that they displace each other by address, those that have sent no request first
// (fabric/guest_table.hpp), so idle connections keep nobody out and do not take the process's descriptors.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "base/clock.hpp"
#include "fabric/guest_table.hpp"
#include "memory/unique_fd.hpp"

namespace penstock::server {

class HttpFront {
 public:
  // The response to a request's bytes up to the empty line. Called on the front's thread; must not throw.
  using Answer = std::function<std::string(std::string_view request)>;

  // listening: a non-blocking socket. Throws Error(system).
  HttpFront(memory::UniqueFd listening, Answer answer);
  ~HttpFront();  // ends what is under way

 private:
  using Id = fabric::GuestTable::Id;
  using Time = base::Clock::time_point;
  struct Guest {
    memory::UniqueFd socket;
    Time limit;
    std::string received, answer;
    std::size_t sent = 0;
    bool answered = false;
  };
  void run();
  Time drop_late(Time now);
  void accept_some(Time now);
  bool make_room(Time now);
  // Each: false when the connection has ended.
  bool serve(Id id, Guest& guest, Time now);
  bool send_answer(Id id, Guest& guest);
  void drop(Id id);

  const memory::UniqueFd listening_, wake_;
  const Answer answer_;
  fabric::GuestTable table_;
  std::unordered_map<Id, Guest> guests_;
  Id next_ = 1;
  Time accept_after_{};  // later while there are no descriptors
  std::thread thread_;
};

}  // namespace penstock::server
