#include "http_front.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/log.hpp"
#include "penstock/error.hpp"

namespace penstock::server {

namespace {

constexpr std::size_t places = 128;
constexpr std::size_t max_request_bytes = 8192;
constexpr std::chrono::seconds request_time{5}, answer_time{5};
constexpr std::chrono::milliseconds accept_pause{100};  // while there are no descriptors left
constexpr int accepts_per_turn = 16;                    // then requests are read, so that who sends one is known

}  // namespace

HttpFront::HttpFront(memory::UniqueFd listening, Answer answer)
    : listening_(std::move(listening)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      answer_(std::move(answer)),
      table_(places) {
  if (!wake_) throw Error(Errc::system, std::string("http: eventfd: ") + std::strerror(errno));
  thread_ = std::thread([this] { run(); });
}

HttpFront::~HttpFront() {
  const std::uint64_t one = 1;
  while (::write(wake_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
}

void HttpFront::run() {
  std::vector<pollfd> entries;
  std::vector<Id> ids;
  for (;;) {
    const Time now = base::Clock::now();
    const Time until = drop_late(now);
    entries = {{wake_.get(), POLLIN, 0}, {now < accept_after_ ? -1 : listening_.get(), POLLIN, 0}};
    ids.clear();
    for (const auto& [id, guest] : guests_) {
      const bool sending = guest.sent < guest.answer.size();
      entries.push_back({guest.socket.get(), static_cast<short>(sending ? POLLOUT : POLLIN), 0});
      ids.push_back(id);
    }
    const auto wait = base::Deadline::at(until).remaining().count();
    const int limit = until == Time::max() ? -1 : static_cast<int>(std::min<decltype(wait)>(wait, 1 << 20));
    if (::poll(entries.data(), entries.size(), limit) < 0) continue;
    if (entries[0].revents != 0) return;
    const Time ready = base::Clock::now();  // poll may have waited for hours
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (entries[i + 2].revents != 0 && !serve(ids[i], guests_.at(ids[i]), ready)) drop(ids[i]);
    if (entries[1].revents != 0) accept_some(ready);
  }
}

// Until when there is nothing to do unless a socket is ready.
HttpFront::Time HttpFront::drop_late(Time now) {
  Time until = now < accept_after_ ? accept_after_ : Time::max();
  std::vector<Id> late;
  for (const auto& [id, guest] : guests_) {
    if (guest.limit <= now) late.push_back(id);
    else until = std::min(until, guest.limit);
  }
  for (const Id id : late) drop(id);
  return until;
}

void HttpFront::accept_some(Time now) {
  for (int i = 0; i < accepts_per_turn; ++i) {
    memory::UniqueFd socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      const int code = errno;
      if (code == EINTR || code == ECONNABORTED) continue;
      if (code == EAGAIN || code == EWOULDBLOCK) return;
      if ((code == EMFILE || code == ENFILE) && make_room(now)) continue;
      base::log(base::Level::warn, "cannot accept connections", {{"of", "http"}, {"error", std::strerror(code)}});
      accept_after_ = now + accept_pause;
      return;
    }
    const Id id = next_++;
    const auto leaves = table_.add(id, fabric::source_of(socket.get()), now);
    guests_.emplace(id, Guest{std::move(socket), now + request_time, {}, {}});
    if (leaves) drop(*leaves);
  }
}

bool HttpFront::make_room(Time now) {
  const auto leaves = table_.expendable(now);
  if (leaves) drop(*leaves);
  return leaves.has_value();
}

bool HttpFront::serve(Id id, Guest& guest, Time now) {
  if (guest.sent < guest.answer.size()) return send_answer(id, guest);
  char bytes[4096];
  const auto count = ::recv(guest.socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  if (guest.answered) return true;  // a body, say: read, so that closing does not destroy the answer on its way
  guest.received.append(bytes, static_cast<std::size_t>(count));
  const auto end = guest.received.find("\r\n\r\n");
  if (end == std::string::npos) return guest.received.size() <= max_request_bytes;
  table_.set_answering(id, true);
  guest.answer = answer_(std::string_view(guest.received).substr(0, end + 4));
  guest.answered = true;
  guest.received = {};
  guest.limit = now + answer_time;
  return send_answer(id, guest);
}

// When all is sent the peer sees the end, and its end is awaited.
bool HttpFront::send_answer(Id id, Guest& guest) {
  while (guest.sent < guest.answer.size()) {
    const auto count = ::send(guest.socket.get(), guest.answer.data() + guest.sent, guest.answer.size() - guest.sent,
                              MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    guest.sent += static_cast<std::size_t>(count);
  }
  ::shutdown(guest.socket.get(), SHUT_WR);
  table_.set_answering(id, false);
  return true;
}

void HttpFront::drop(Id id) {
  table_.remove(id);
  guests_.erase(id);
}

}  // namespace penstock::server
