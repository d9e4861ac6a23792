#include "fabric/connection.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <vector>

#include "base/fault.hpp"
#include "fabric/socket.hpp"

namespace penstock::fabric {
namespace {

using base::Deadline;

std::pair<UniqueFd, UniqueFd> unix_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) throw std::runtime_error("socketpair");
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::pair<UniqueFd, UniqueFd> tcp_pair() {
  std::uint16_t port = 0;
  UniqueFd listener = listen_tcp("127.0.0.1", port);
  std::string unresolved;
  const auto addresses = addresses_of({.tcp_hosts = {"127.0.0.1"}, .tcp_port = port}, Reach::tcp_only, unresolved);
  int error = 0;
  UniqueFd client = begin_connect(addresses.at(0), error);
  set_blocking(listener.get(), true);
  UniqueFd server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return {std::move(client), std::move(server)};
}

std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + seed);
  return bytes;
}

// One end of a connection and all that happened there.
struct End {
  explicit End(Progress& owner, UniqueFd fd)
      : progress(owner), connection(Connection::adopt(owner, std::move(fd), "peer")) {}
  ~End() {
    if (connection) connection->close();
    progress.call([] {});
  }
  void start() {
    connection->start(
        [this](std::uint16_t kind, std::span<const std::byte> bytes, UniqueFd fd) {
          std::lock_guard lock(mutex);
          kinds.push_back(kind);
          messages.emplace_back(bytes.begin(), bytes.end());
          fds.push_back(std::move(fd));
          progress.notify();
        },
        [this](const Error& error) {
          std::lock_guard lock(mutex);
          closed.push_back(error.code());
          messages_before_close = messages.size();
          progress.notify();
        });
  }
  bool wait_messages(std::size_t count) {
    return progress.wait_for(
        [&] {
          std::lock_guard lock(mutex);
          return messages.size() >= count;
        },
        Deadline{Timeout(30'000)});
  }
  bool wait_closed() {
    return progress.wait_for(
        [&] {
          std::lock_guard lock(mutex);
          return !closed.empty();
        },
        Deadline{Timeout(30'000)});
  }
  Progress& progress;
  std::shared_ptr<Connection> connection;
  std::mutex mutex;
  std::vector<std::uint16_t> kinds;
  std::vector<std::vector<std::byte>> messages;
  std::vector<UniqueFd> fds;
  std::vector<Errc> closed;
  std::size_t messages_before_close = 0;
};

class ConnectionTest : public ::testing::TestWithParam<bool> {
 protected:
  std::pair<UniqueFd, UniqueFd> sockets() { return GetParam() ? unix_pair() : tcp_pair(); }
  Progress progress;
};
INSTANTIATE_TEST_SUITE_P(Sockets, ConnectionTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Unix" : "Tcp"; });

TEST_P(ConnectionTest, MessagesOfAllSizesArriveWholeAndInOrder) {
  auto [one, two] = sockets();
  End a(progress, std::move(one)), b(progress, std::move(two));
  EXPECT_EQ(a.connection->local(), GetParam());
  a.start();
  b.start();
  const std::vector<std::size_t> sizes = {0, 1, 7, 8, 100, 65'528, 65'536, 65'537, 1'000'000, 16u << 20, 3};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    a.connection->send(static_cast<std::uint16_t>(i), "test", pattern(sizes[i], static_cast<unsigned>(i)));
  b.connection->send(77, "test", pattern(10, 0));
  ASSERT_TRUE(b.wait_messages(sizes.size()));
  ASSERT_TRUE(a.wait_messages(1));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(b.kinds[i], i);
    EXPECT_TRUE(b.messages[i] == pattern(sizes[i], static_cast<unsigned>(i))) << sizes[i];
  }
  EXPECT_THROW(a.connection->send(1, "test", std::vector<std::byte>(max_frame_bytes + 1)), Error);
}

TEST_P(ConnectionTest, ManyThreadsMaySend) {
  auto [one, two] = sockets();
  End a(progress, std::move(one)), b(progress, std::move(two));
  b.start();
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < 500; ++i) a.connection->send(static_cast<std::uint16_t>(t), "test", pattern(i * 7, t));
    });
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(b.wait_messages(2000));
  std::vector<unsigned> next(4, 0);
  for (std::size_t i = 0; i < 2000; ++i) {
    const unsigned t = b.kinds[i];
    ASSERT_TRUE(b.messages[i] == pattern(next.at(t)++ * 7, t));
  }
}

TEST_P(ConnectionTest, WhatWasSentBeforeTheEndIsDeliveredBeforeTheEnd) {
  auto [one, two] = sockets();
  End a(progress, std::move(one)), b(progress, std::move(two));
  for (int i = 0; i < 200; ++i) a.connection->send(1, "test", pattern(5000, 1));
  b.connection->send(2, "test", pattern(10, 0));  // never read: the end resets, and must not destroy what was sent
  a.connection->close();
  b.start();
  ASSERT_TRUE(b.wait_closed());
  EXPECT_EQ(b.messages.size(), 200u);
  EXPECT_EQ(b.messages_before_close, 200u);
  EXPECT_EQ(b.closed, std::vector{Errc::peer_lost});
  EXPECT_FALSE(b.connection->open());
}

TEST_P(ConnectionTest, APeerThatDiesMidMessageEndsTheConnectionOnce) {
  auto [one, two] = sockets();
  End b(progress, std::move(two));
  b.start();
  const FrameHeader header{100, 1, 0};
  ASSERT_EQ(::write(one.get(), &header, sizeof header), static_cast<ssize_t>(sizeof header));
  ASSERT_EQ(::write(one.get(), "half", 4), 4);
  one.reset();
  ASSERT_TRUE(b.wait_closed());
  b.connection->send(1, "test", pattern(10, 0));
  progress.call([] {});
  EXPECT_EQ(b.closed, std::vector{Errc::peer_lost});
  EXPECT_TRUE(b.messages.empty());
}

TEST_P(ConnectionTest, GarbageEndsTheConnection) {
  for (const auto& header : {FrameHeader{0xffffffff, 1, 0}, FrameHeader{4, 1, 7}, FrameHeader{4, 1, 1}}) {
    auto [one, two] = sockets();
    End b(progress, std::move(two));
    b.start();
    ASSERT_EQ(::write(one.get(), &header, sizeof header), static_cast<ssize_t>(sizeof header));
    ASSERT_TRUE(b.wait_closed());
    EXPECT_EQ(b.closed, std::vector{Errc::protocol});
  }
}

TEST_P(ConnectionTest, HandlersThatThrowEndTheConnection) {
  auto [one, two] = sockets();
  End a(progress, std::move(one));
  std::atomic<int> closed{0};
  auto b = Connection::adopt(progress, std::move(two), "peer");
  b->start([](std::uint16_t, std::span<const std::byte>, UniqueFd) { throw Error(Errc::protocol, "no"); },
           [&](const Error& error) {
             EXPECT_EQ(error.code(), Errc::protocol);
             ++closed;
             progress.notify();
           });
  a.connection->send(1, "test", pattern(3, 0));
  a.connection->send(1, "test", pattern(3, 0));
  EXPECT_TRUE(progress.wait_for([&] { return closed > 0; }, Deadline{Timeout(30'000)}));
  EXPECT_EQ(closed, 1);
}

TEST_P(ConnectionTest, APeerThatDoesNotReadNeverBlocksUsAndIsDropped) {
  auto [one, two] = sockets();
  End a(progress, std::move(one));
  a.start();
  const auto bytes = pattern(1u << 20, 0);
  for (int i = 0; i < 100 && a.connection->open(); ++i) a.connection->send(1, "test", bytes);
  ASSERT_TRUE(a.wait_closed());
  EXPECT_EQ(a.closed, std::vector{Errc::peer_lost});
}

TEST_P(ConnectionTest, WhatIsOwedToAPeerMayExceedTheQueue) {
  auto [one, two] = sockets();
  End a(progress, std::move(one));
  a.start();
  const auto bytes = pattern(8u << 20, 0);
  constexpr std::size_t count = 9;
  static_assert(count * (8u << 20) > max_queue_bytes);
  for (std::size_t i = 0; i < count; ++i) a.connection->send(1, "test", bytes, -1, true);
  a.connection->send(2, "test", pattern(1000, 1));
  progress.call([] {});
  EXPECT_TRUE(a.connection->open());
  End b(progress, std::move(two));
  b.start();
  ASSERT_TRUE(b.wait_messages(count + 1));
  EXPECT_EQ(b.messages[count - 1], bytes);
  EXPECT_EQ(b.kinds.back(), 2);
}

TEST_P(ConnectionTest, PausedMessagesWaitForTheNextHandler) {
  auto [one, two] = sockets();
  End a(progress, std::move(one)), b(progress, std::move(two));
  std::atomic<int> first{0};
  b.connection->start(
      [&](std::uint16_t, std::span<const std::byte>, UniqueFd) {
        ++first;
        b.connection->pause();
        progress.notify();
      },
      [](const Error&) {});
  for (int i = 0; i < 5; ++i) a.connection->send(static_cast<std::uint16_t>(i), "test", pattern(5, 0));
  ASSERT_TRUE(progress.wait_for([&] { return first == 1; }, Deadline{Timeout(30'000)}));
  b.start();
  ASSERT_TRUE(b.wait_messages(4));
  EXPECT_EQ(first, 1);
  EXPECT_EQ(b.kinds, (std::vector<std::uint16_t>{1, 2, 3, 4}));
}

TEST_P(ConnectionTest, ReleaseGivesTheSocketUp) {
  auto [one, two] = sockets();
  End b(progress, std::move(two));
  UniqueFd raw;
  progress.call([&] { raw = b.connection->release(); });
  EXPECT_FALSE(b.connection->open());
  ASSERT_EQ(::write(one.get(), "abc", 3), 3);
  char text[4] = "";
  EXPECT_EQ(::read(raw.get(), text, 3), 3);
  EXPECT_STREQ(text, "abc");
  b.connection->send(1, "test", {});  // nothing happens
}

TEST_P(ConnectionTest, ClosingDropsHandlersAndWhatTheyOwn) {
  auto [one, two] = sockets();
  auto owned = std::make_shared<int>(1);
  auto connection = Connection::adopt(progress, std::move(one), "peer");
  connection->start([owned](std::uint16_t, std::span<const std::byte>, UniqueFd) {},
                    [owned, connection](const Error&) { ADD_FAILURE(); });
  std::weak_ptr<Connection> watch = connection;
  connection->close();
  connection.reset();
  two.reset();
  EXPECT_TRUE(progress.wait_for([&] { return watch.expired(); }, Deadline{Timeout(200)}) || watch.expired());
  progress.call([] {});
  const Deadline deadline{Timeout(30'000)};
  while (!watch.expired() && !deadline.passed()) progress.call([] {});
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(UnixConnection, DescriptorsTravelWithTheirMessages) {
  Progress progress;
  auto [one, two] = unix_pair();
  End a(progress, std::move(one)), b(progress, std::move(two));
  // More than the socket takes at once, so that some descriptors wait in the queue.
  constexpr int count = 60;
  for (int i = 0; i < count; ++i) {
    UniqueFd file(::memfd_create("test", MFD_CLOEXEC));
    ASSERT_EQ(::write(file.get(), &i, sizeof i), static_cast<ssize_t>(sizeof i));
    a.connection->send(1, "test", pattern(20'000, static_cast<unsigned>(i)), i % 3 == 0 ? -1 : file.get());
  }
  b.start();
  ASSERT_TRUE(b.wait_messages(count));
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(static_cast<bool>(b.fds[static_cast<std::size_t>(i)]), i % 3 != 0);
    if (i % 3 == 0) continue;
    int value = -1;
    ASSERT_EQ(::pread(b.fds[static_cast<std::size_t>(i)].get(), &value, sizeof value, 0),
              static_cast<ssize_t>(sizeof value));
    EXPECT_EQ(value, i);
  }
}

TEST(TcpConnection, DescriptorsAreRefused) {
  Progress progress;
  auto [one, two] = tcp_pair();
  End a(progress, std::move(one));
  EXPECT_THROW(a.connection->send(1, "test", {}, 0), Error);
}

TEST(UnixConnection, UnclaimedDescriptorsEndTheConnection) {
  Progress progress;
  auto [one, two] = unix_pair();
  End b(progress, std::move(two));
  b.start();
  const FrameHeader header{0, 1, 0};
  for (int i = 0; i < 10; ++i) {
    const iovec part{const_cast<FrameHeader*>(&header), sizeof header};
    send_some(one.get(), std::span(&part, 1), 0);
  }
  ASSERT_TRUE(b.wait_closed());
  EXPECT_EQ(b.closed, std::vector{Errc::protocol});
}

TEST(UnixConnection, FaultPointsAreNamedAndCanSendGarbage) {
  static std::mutex mutex;
  static std::vector<std::string> seen;
  static bool garbage;
  seen.clear();
  garbage = false;
  struct Unhook {
    ~Unhook() { base::fault_hook = nullptr; }
  } unhook;
  Progress progress;
  auto [one, two] = unix_pair();
  End a(progress, std::move(one)), b(progress, std::move(two));
  b.start();
  base::fault_hook = [](std::string_view point, base::FaultPhase phase) {
    std::lock_guard lock(mutex);
    if (point == "send:hello") seen.push_back(std::to_string(static_cast<int>(phase)));
    return garbage && phase == base::FaultPhase::before;
  };
  a.connection->send(1, "hello", pattern(100, 3));
  ASSERT_TRUE(b.wait_messages(1));
  EXPECT_EQ(b.messages[0], pattern(100, 3));
  garbage = true;
  a.connection->send(1, "hello", pattern(100, 3));
  ASSERT_TRUE(b.wait_closed());
  EXPECT_EQ(b.closed, std::vector{Errc::protocol});
  EXPECT_EQ(seen, (std::vector<std::string>{"0", "1", "2", "0", "1", "2"}));
}

// Both have something to read, and one poll found that out: who closes the other before its turn comes hears no more of it.
TEST(ExplicitProgress, WhatACallHasClosedCallsNobody) {
  Progress progress(Progress::Mode::explicit_poll);
  std::vector<std::shared_ptr<Connection>> connections;
  std::vector<UniqueFd> peers;
  std::vector<int> heard(8, 0);
  for (std::size_t i = 0; i < heard.size(); ++i) {
    auto [ours, theirs] = unix_pair();
    connections.push_back(Connection::adopt(progress, std::move(ours), "peer"));
    peers.push_back(std::move(theirs));
    const auto hear = [&heard, i] { ++heard[i]; };
    connections[i]->start([hear](std::uint16_t, std::span<const std::byte>, UniqueFd) { hear(); },
                          [hear](const Error&) { hear(); });
  }
  while (progress.poll()) {
  }
  const FrameHeader header{0, 1, 0};
  for (const auto& peer : peers)
    ASSERT_EQ(::send(peer.get(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  const auto all_heard = [&] { return std::accumulate(heard.begin(), heard.end(), 0); };
  ASSERT_TRUE(progress.wait_for([&] { return all_heard() > 0; }, Deadline{Timeout(30'000)}));
  progress.call([&] {
    for (const auto& connection : connections) connection->close();
  });
  const auto before = heard;
  while (progress.poll()) {
  }
  EXPECT_EQ(heard, before);
  EXPECT_LT(all_heard(), 8);
}

}  // namespace
}  // namespace penstock::fabric
