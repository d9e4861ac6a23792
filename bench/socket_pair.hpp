// Two connected sockets, of a Unix socket or over TCP's loopback, for a program and its child.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "common.hpp"

namespace penstock::bench {

// Two connected sockets.
struct SocketPair {
  int ends[2] = {-1, -1};
  explicit SocketPair(const std::string& way) {
    if (way != "tcp") {
      require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
      return;
    }
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* where = reinterpret_cast<sockaddr*>(&address);
    require(
        bind(listener, where, length) == 0 && listen(listener, 1) == 0 && getsockname(listener, where, &length) == 0,
        "listening");
    ends[0] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(connect(ends[0], where, length) == 0, "connecting");
    ends[1] = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    close(listener);
    const int on = 1;
    for (const int end : ends) setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~SocketPair() {
    for (const int end : ends) close(end);
  }
  SocketPair(const SocketPair&) = delete;
  SocketPair& operator=(const SocketPair&) = delete;
};

}  // namespace penstock::bench
