#include "fabric/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/bytes.hpp"
#include "base/fork.hpp"
#include "base/uri.hpp"
#include "penstock/error.hpp"

namespace penstock::fabric {

namespace {

constexpr int backlog = 1024;
constexpr auto listen_advice = "give an IPv4 or IPv6 address of this host, or '::' for every interface";
constexpr std::size_t most_fds_at_once = 4;

[[noreturn]] void fail(const std::string& what) { throw Error(Errc::system, what + " failed: " + errno_text(errno)); }

void set_option(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

SocketAddress unix_address(const std::string& name) {
  SocketAddress address;
  auto& un = reinterpret_cast<sockaddr_un&>(address.storage);
  un.sun_family = AF_UNIX;
  const std::size_t size = std::min(name.size(), sizeof un.sun_path - 1);
  std::memcpy(un.sun_path + 1, name.data(), size);  // a leading zero byte makes the name abstract
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  address.text = "unix @" + name;
  return address;
}

void append_tcp_addresses(const std::string& host, std::uint16_t port, std::vector<SocketAddress>& out,
                          std::string& unresolved) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  const std::string text = base::format_endpoint(host, port);
  if (code != 0) {
    unresolved += (unresolved.empty() ? "" : "; ") + text + ": " + ::gai_strerror(code);
    return;
  }
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
    address.size = info->ai_addrlen;
    address.text = "tcp " + text;
    out.push_back(std::move(address));
  }
  ::freeaddrinfo(found);
}

UniqueFd new_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  base::leave_to_parent(fd.get());
  return fd;
}

// reuse: although connections of an earlier listener have not died down. The kernel allows it only when that one allowed it,
// too: so all do, once they have their port (before, port 0 could get one that such connections use).
UniqueFd try_listen(const SocketAddress& address, bool reuse = false) {
  UniqueFd fd = new_socket(address.storage.ss_family);
  if (!fd) return fd;
  if (address.storage.ss_family == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (reuse) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  const bool bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0;
  if (bound) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (!bound || ::listen(fd.get(), backlog) != 0) {
    const int code = errno;
    fd.reset();
    errno = code;
  }
  return fd;
}

// Descriptors that came with a message. False when the kernel had to drop some.
bool take_fds(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return (message.msg_flags & MSG_CTRUNC) == 0;
}

}  // namespace

std::string errno_text(int code) { return std::generic_category().message(code); }

std::vector<SocketAddress> addresses_of(const Endpoint& endpoint, Reach reach, std::string& unresolved) {
  std::vector<SocketAddress> out;
  if (reach != Reach::tcp_only && !endpoint.unix_name.empty()) out.push_back(unix_address(endpoint.unix_name));
  if (reach != Reach::unix_only && endpoint.tcp_port != 0)
    for (const std::string& host : endpoint.tcp_hosts) append_tcp_addresses(host, endpoint.tcp_port, out, unresolved);
  return out;
}

UniqueFd listen_unix(std::string& name) {
  name = "penstock-" + base::to_hex(base::random_bytes(12));
  UniqueFd fd = try_listen(unix_address(name));
  if (!fd) fail("listening on a Unix socket");
  return fd;
}

UniqueFd listen_tcp(const std::string& address, std::uint16_t& port, std::uint16_t wanted) {
  std::vector<std::string> hosts{address};
  if (address.empty()) hosts = {"::", "0.0.0.0"};  // both families where IPv6 is there
  UniqueFd fd;
  for (const std::uint16_t number : {wanted, std::uint16_t{0}}) {
    std::vector<SocketAddress> candidates;
    std::string unresolved;
    for (const std::string& host : hosts) append_tcp_addresses(host, number, candidates, unresolved);
    if (candidates.empty())
      throw Error(Errc::invalid_argument, "cannot listen on '" + address + "' (" + unresolved + "): " + listen_advice);
    for (const SocketAddress& candidate : candidates)
      if (fd = try_listen(candidate, number != 0); fd) break;
    if (fd || number == 0) break;
  }
  if (!fd && errno == EADDRNOTAVAIL)
    throw Error(Errc::invalid_argument,
                "cannot listen on '" + address + "', as no interface of this host has it: " + listen_advice);
  if (!fd) fail("listening on TCP address '" + address + "'");
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) fail("getsockname");
  port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  return fd;
}

std::vector<std::string> interface_addresses() {
  std::vector<std::string> out;
  std::vector<std::string> v6;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) == 0) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0)
        continue;
      char text[INET6_ADDRSTRLEN] = "";
      if (entry->ifa_addr->sa_family == AF_INET) {
        const auto& in = *reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
        if (::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text) != nullptr) out.emplace_back(text);
      } else if (entry->ifa_addr->sa_family == AF_INET6) {
        const auto& in = *reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
        if (IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr)) continue;  // useless without a scope
        if (::inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text) != nullptr) v6.emplace_back(text);
      }
    }
    ::freeifaddrs(list);
  }
  out.insert(out.end(), v6.begin(), v6.end());
  out.emplace_back("127.0.0.1");
  return out;
}

UniqueFd begin_connect(const SocketAddress& address, int& error) {
  UniqueFd fd = new_socket(address.storage.ss_family);
  if (!fd) {
    error = errno;
    return fd;
  }
  set_stream_options(fd.get());
  const int code = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size);
  error = code == 0 ? 0 : errno;
  if (error != 0 && error != EINPROGRESS) fd.reset();
  return fd;
}

int connect_result(int socket) {
  int code = 0;
  socklen_t size = sizeof code;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &size) != 0) return errno;
  return code;
}

void set_stream_options(int socket) {
  if (is_local(socket)) return;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  // A node that lost its power sends no farewell.
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

void set_blocking(int socket, bool blocking) {
  const int flags = ::fcntl(socket, F_GETFL);
  if (flags >= 0) ::fcntl(socket, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

bool is_local(int socket) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

bool is_loopback(int socket) {
  sockaddr_storage ours{}, theirs{};
  socklen_t our_size = sizeof ours, their_size = sizeof theirs;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&ours), &our_size) != 0 ||
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&theirs), &their_size) != 0 ||
      ours.ss_family != theirs.ss_family)
    return false;
  if (ours.ss_family == AF_INET)
    return reinterpret_cast<const sockaddr_in&>(ours).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(theirs).sin_addr.s_addr;
  if (ours.ss_family != AF_INET6) return false;
  return IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6&>(ours).sin6_addr,
                            &reinterpret_cast<const sockaddr_in6&>(theirs).sin6_addr);
}

std::ptrdiff_t send_some(int socket, std::span<const iovec> parts, int fd) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
  }
  for (;;) {
    const auto sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return sent;
    if (errno != EINTR) return -errno;
  }
}

std::ptrdiff_t receive_parts(int socket, std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  for (;;) {
    const auto received = ::recvmsg(socket, &message, MSG_DONTWAIT);
    if (received >= 0) return received;
    if (errno != EINTR) return -errno;
  }
}

std::ptrdiff_t receive_some(int socket, std::span<std::byte> into, std::vector<UniqueFd>& fds) {
  iovec part{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(most_fds_at_once * sizeof(int))];
  for (;;) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const auto received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0) return -errno;
    return take_fds(message, fds) ? received : -EPROTO;
  }
}

}  // namespace penstock::fabric
