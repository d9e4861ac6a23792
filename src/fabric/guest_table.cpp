#include "fabric/guest_table.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace penstock::fabric {

namespace {

Source source_of_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {false, "an unknown user"};
  return {peer.uid == ::geteuid() || peer.uid == 0, "user " + std::to_string(peer.uid)};
}

}  // namespace

Source source_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {false, "an unknown address"};
  if (address.ss_family == AF_UNIX) return source_of_user(socket);
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in&>(address).sin_addr, text, sizeof text);
    return {false, text};
  }
  in6_addr host = reinterpret_cast<sockaddr_in6&>(address).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&host)) {
    ::inet_ntop(AF_INET, host.s6_addr + 12, text, sizeof text);
    return {false, text};
  }
  std::memset(host.s6_addr + 8, 0, 8);  // a host may have any address of its network of 64 bits
  ::inet_ntop(AF_INET6, &host, text, sizeof text);
  return {false, std::string(text) + "/64"};
}

std::optional<GuestTable::Id> GuestTable::add(Id id, Source source, base::Clock::time_point now) {
  const bool own = source.own;
  guests_.emplace(id, Guest{std::move(source), now});
  const auto count = std::count_if(guests_.begin(), guests_.end(),
                                   [own](const auto& guest) { return guest.second.source.own == own; });
  if (static_cast<std::size_t>(count) <= places_) return std::nullopt;
  const auto leaves = choose(own, now, id);
  return leaves ? leaves : id;
}

void GuestTable::set_answering(Id id, bool answering) {
  const auto found = guests_.find(id);
  if (found != guests_.end()) found->second.answering = answering;
}

std::optional<GuestTable::Id> GuestTable::expendable(base::Clock::time_point now) const {
  const auto other = choose(false, now, std::nullopt);
  return other ? other : choose(true, now, std::nullopt);
}

std::optional<GuestTable::Id> GuestTable::choose(bool own, base::Clock::time_point now,
                                                 std::optional<Id> newcomer) const {
  std::map<std::string_view, std::size_t> counts;
  std::size_t most = 0;
  for (const auto& [id, guest] : guests_)
    if (guest.source.own == own) most = std::max(most, ++counts[guest.source.name]);
  const auto is_candidate = [&](Id id, const Guest& guest) {
    return guest.source.own == own && counts[guest.source.name] == most && id != newcomer;
  };
  for (const auto& [id, guest] : guests_)
    if (is_candidate(id, guest) && !guest.answering) return id;
  for (const auto& [id, guest] : guests_) {
    if (!is_candidate(id, guest)) continue;
    const bool of_another = newcomer && guests_.at(*newcomer).source.name != guest.source.name;
    if (of_another || now - guest.since >= answer_time) return id;
  }
  return std::nullopt;
}

}  // namespace penstock::fabric
