// Sockets as this module's sources use them: non-blocking, close-on-exec, TCP_NODELAY on both ends.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fabric/connect.hpp"
#include "fabric/endpoint.hpp"
#include "memory/unique_fd.hpp"

namespace penstock::fabric {

using memory::UniqueFd;

std::string errno_text(int code);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  std::string text;  // for messages
};

// What to try, in order. Host names are resolved in this call, which may block; those that cannot be are left out and
// named in `unresolved`.
std::vector<SocketAddress> addresses_of(const Endpoint& endpoint, Reach reach, std::string& unresolved);

// Listens on a fresh abstract name. Throws Error(system).
UniqueFd listen_unix(std::string& name);
// Listens on a port of the address ("": every interface): the wanted one (0: none is) when it is free. Throws Error(system,
// invalid_argument).
UniqueFd listen_tcp(const std::string& address, std::uint16_t& port, std::uint16_t wanted = 0);
// The addresses of this node's interfaces, loopback last.
std::vector<std::string> interface_addresses();

// Begins to connect; error is 0 (connected), EINPROGRESS, or why it failed.
UniqueFd begin_connect(const SocketAddress& address, int& error);
// After the socket became writable: 0, or why it failed.
int connect_result(int socket);

void set_stream_options(int socket);
void set_blocking(int socket, bool blocking);
bool is_local(int socket);
// A TCP connection whose ends have one address: two programs of a host.
bool is_loopback(int socket);

// One sendmsg (never a signal); fd -1: none. Bytes sent, or -errno.
std::ptrdiff_t send_some(int socket, std::span<const iovec> parts, int fd);
// One recvmsg into several places. Bytes received, 0 at the end of the stream, or -errno.
std::ptrdiff_t receive_parts(int socket, std::span<const iovec> parts);

// One recvmsg. Descriptors received are appended to fds. Bytes received, 0 at the end of the stream, or -errno
// (-EPROTO when descriptors were lost).
std::ptrdiff_t receive_some(int socket, std::span<std::byte> into, std::vector<UniqueFd>& fds);

}  // namespace penstock::fabric
