#include "fabric/reach.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "memory/unique_fd.hpp"

namespace penstock::fabric {

bool reachable_locally(const Endpoint& endpoint) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto& name = endpoint.unix_name;
  if (name.empty() || name.size() > sizeof(address.sun_path) - 1) return false;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // a leading zero byte: the abstract namespace
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const memory::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return false;
  // A full backlog (EAGAIN) is somebody's too.
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 || errno == EAGAIN;
}

}  // namespace penstock::fabric
