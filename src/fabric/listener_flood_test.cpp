// Peers that have no token, in numbers: they take places from each other, and not from those that have one.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "base/test_support.hpp"
#include "fabric/connect.hpp"
#include "fabric/handshake.hpp"
#include "fabric/listener.hpp"
#include "fabric/socket.hpp"

namespace penstock::fabric {
namespace {

using base::Deadline;

// Less than a listener gives a handshake: who waits for silent guests to be dropped is late.
Deadline before_guests_are_dropped() { return Deadline{Timeout(8'000)}; }

class ListenerFlood : public ::testing::TestWithParam<Reach> {
 protected:
  ~ListenerFlood() override {
    listener.reset();
    for (auto& peer : peers) peer->close();
  }
  wire::Hello hello() const { return {.purpose = wire::Purpose::join, .stream = "heat"}; }
  SocketAddress address(Reach reach) const {
    std::string unresolved;
    return addresses_of(listener->endpoint(), reach, unresolved).at(0);
  }
  // A connection that says nothing; from: a local address of IPv4, or "".
  UniqueFd silent(Reach reach, const char* from = "") const {
    const SocketAddress to = address(reach);
    UniqueFd fd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (*from != '\0') {
      sockaddr_in in{};
      in.sin_family = AF_INET;
      ::inet_pton(AF_INET, from, &in.sin_addr);
      EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&in), sizeof in), 0);
    }
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size), 0) << errno_text(errno);
    return fd;
  }
  // As a client begins that knows this token.
  void say_hello(const UniqueFd& fd, const Token& with, wire::Hello as) const {
    ClientHandshake handshake(with, std::move(as));
    const auto frame = handshake.start();
    const FrameHeader header{static_cast<std::uint32_t>(frame.bytes.size()), static_cast<std::uint16_t>(frame.kind), 0};
    ::send(fd.get(), &header, sizeof header, MSG_NOSIGNAL);
    ::send(fd.get(), frame.bytes.data(), frame.bytes.size(), MSG_NOSIGNAL);
  }
  std::vector<UniqueFd> silent_many(int count, Reach reach, const char* from = "") const {
    std::vector<UniqueFd> out;
    for (int i = 0; i < count; ++i) out.push_back(silent(reach, from));
    return out;
  }
  Error error_of_connecting(Reach reach, Deadline deadline, const Token& with) const {
    try {
      connect_blocking(listener->endpoint(), with, hello(), reach, deadline);
    } catch (const Error& error) {
      return error;
    }
    return Error(Errc::ok, "");
  }
  void expect_welcome(Reach reach) const {
    const Error error = error_of_connecting(reach, before_guests_are_dropped(), token);
    EXPECT_EQ(error.code(), Errc::ok) << error.what();
  }
  // Whether the listener has ended the connection. Waits for what it has to do first.
  bool ended(const UniqueFd& fd) {
    expect_welcome(Reach::unix_only);
    char byte;
    return ::recv(fd.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0 || errno == ECONNRESET;
  }

  SilentLog nothing_logged;
  const Token token = Token::random();
  Progress progress;
  std::mutex mutex;
  std::vector<std::shared_ptr<Connection>> peers;
  std::optional<Listener> listener{std::in_place,
                                   progress,
                                   token,
                                   "heat",
                                   "127.0.0.1",
                                   [this](std::shared_ptr<Connection> peer, const wire::Hello&) {
                                     std::lock_guard lock(mutex);
                                     peers.push_back(std::move(peer));
                                   }};
};

INSTANTIATE_TEST_SUITE_P(Reaches, ListenerFlood, ::testing::Values(Reach::unix_only, Reach::tcp_only),
                         [](const auto& info) { return info.param == Reach::unix_only ? "unix" : "tcp"; });

TEST_P(ListenerFlood, SilentConnectionsKeepNobodyOut) {
  const auto standing = silent_many(300, GetParam());
  for (int i = 0; i < 3; ++i) expect_welcome(GetParam());
}

TEST_P(ListenerFlood, WhoSaysHelloAndNoMoreKeepsNobodyOut) {
  std::vector<UniqueFd> standing;
  for (int i = 0; i < 300; ++i) {
    standing.push_back(silent(GetParam()));
    say_hello(standing.back(), Token::random(), hello());
  }
  for (int i = 0; i < 3; ++i) expect_welcome(GetParam());
}

TEST_P(ListenerFlood, RenewedConnectionsKeepNobodyOut) {
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    const SocketAddress to = address(GetParam());
    std::deque<UniqueFd> standing;
    while (!stop) {
      int error = 0;
      UniqueFd fd = begin_connect(to, error);
      if (fd) standing.push_back(std::move(fd));
      if (standing.size() <= 400) continue;
      // As fast as the listener, which has told the oldest to go: what it has not accepted yet only fills the kernel's queue.
      pollfd oldest{standing.front().get(), POLLIN, 0};
      ::poll(&oldest, 1, 1'000);
      standing.pop_front();
    }
  });
  for (int i = 0; i < 5; ++i) expect_welcome(GetParam());
  stop = true;
  flood.join();
}

TEST_P(ListenerFlood, WhoIsDisplacedIsToldToTryAgain) {
  const UniqueFd oldest = silent(GetParam());
  const auto standing = silent_many(300, GetParam());
  pollfd entry{oldest.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 8'000), 1) << "the oldest keeps its place";
  FrameHeader header{};
  ASSERT_EQ(::recv(oldest.get(), &header, sizeof header, MSG_WAITALL), static_cast<ssize_t>(sizeof header));
  ASSERT_EQ(header.kind, static_cast<std::uint16_t>(wire::HandshakeKind::refused));
  std::vector<std::byte> bytes(header.length);
  ASSERT_EQ(::recv(oldest.get(), bytes.data(), bytes.size(), MSG_WAITALL), static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(wire::decode_refused(bytes).code, Errc::overloaded);
}

TEST_P(ListenerFlood, RefusedConnectionsAreBoundedToo) {
  const auto open_descriptors = [] {
    int count = 0;
    DIR* folder = ::opendir("/proc/self/fd");
    while (::readdir(folder) != nullptr) ++count;
    ::closedir(folder);
    return count;
  };
  const int before = open_descriptors();
  std::vector<UniqueFd> refused;
  for (int i = 0; i < 400; ++i) {
    refused.push_back(silent(GetParam()));
    say_hello(refused.back(), Token::random(), {.purpose = wire::Purpose::join, .stream = "another"});
  }
  expect_welcome(GetParam());
  EXPECT_LE(open_descriptors(), before + 400 + 2 * 128 + 8);
}

TEST_P(ListenerFlood, WithoutDescriptorsThePeerIsToldSo) {
  expect_welcome(GetParam());  // what is opened once is open
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  rlimit small = usual;
  small.rlim_cur = 200;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &small), 0);
  std::vector<UniqueFd> all;
  for (;;) {
    UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd) break;
    all.push_back(std::move(fd));
  }
  all.pop_back();  // for the client's socket
  const Error error = error_of_connecting(GetParam(), Deadline{Timeout(300)}, token);
  EXPECT_EQ(error.code(), Errc::timeout);
  EXPECT_NE(std::string(error.what()).find("no file descriptors left"), std::string::npos) << error.what();
  all.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  expect_welcome(GetParam());
}

TEST_F(ListenerFlood, AnotherAddressKeepsItsPlace) {
  const UniqueFd other = silent(Reach::tcp_only, "127.0.0.2");
  const UniqueFd oldest = silent(Reach::tcp_only);
  const auto standing = silent_many(300, Reach::tcp_only);
  expect_welcome(Reach::tcp_only);
  EXPECT_TRUE(ended(oldest));
  EXPECT_FALSE(ended(other));
}

// Needs root, to be two users.
TEST_F(ListenerFlood, AnotherUserTakesNoPlaceOfOurs) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const UniqueFd ours = silent(Reach::unix_only);
  const SocketAddress to = address(Reach::unix_only);
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t stranger = ::fork();
  if (stranger == 0) {  // system calls only
    if (::setuid(12345) != 0) ::_exit(1);
    for (int i = 0; i < 400; ++i) {
      const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
      if (::connect(fd, reinterpret_cast<const sockaddr*>(&to.storage), to.size) != 0) ::_exit(2);
    }
    if (::write(ready[1], "x", 1) != 1) ::_exit(3);
    for (;;) ::pause();
  }
  UniqueFd from(ready[0]);
  ::close(ready[1]);
  char byte = 0;
  EXPECT_EQ(::read(from.get(), &byte, 1), 1);
  expect_welcome(Reach::unix_only);
  expect_welcome(Reach::tcp_only);
  EXPECT_FALSE(ended(ours));
  ::kill(stranger, SIGKILL);
  EXPECT_EQ(::waitpid(stranger, nullptr, 0), stranger);
}

TEST_F(ListenerFlood, DescriptorsOfUnprovedPeersAreNotKept) {
  const UniqueFd peer = silent(Reach::unix_only);
  std::byte half{1};
  const iovec part{&half, 1};
  ASSERT_EQ(send_some(peer.get(), std::span(&part, 1), STDERR_FILENO), 1);
  pollfd entry{peer.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 8'000), 1) << "the listener keeps the connection and the descriptor";
}

}  // namespace
}  // namespace penstock::fabric
