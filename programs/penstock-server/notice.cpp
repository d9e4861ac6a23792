#include "notice.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/log.hpp"
#include "memory/unique_fd.hpp"
#include "penstock/error.hpp"

namespace penstock::server {

void notify_manager(std::string_view state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || *path == '\0') return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::strlen(path);
  if ((path[0] != '/' && path[0] != '@') || length >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // an abstract name
  const memory::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length + (path[0] == '/' ? 1 : 0));
  if (socket.get() < 0 || ::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
                                   reinterpret_cast<const sockaddr*>(&address), size) < 0)
    base::log(base::Level::warn, "the service manager could not be told", {{"why", std::strerror(errno)}});
}

void write_ready_line(int fd, const std::string& json) {
  const std::string line = "ready " + json + "\n";
  for (std::size_t done = 0; done < line.size();) {
    const auto written = ::write(fd, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      throw Error(Errc::system, "the ready line could not be written: " + std::string(std::strerror(errno)));
    done += static_cast<std::size_t>(written);
  }
  if (fd != STDOUT_FILENO) ::close(fd);
}

}  // namespace penstock::server
