#include "fabric/listener.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "base/test_support.hpp"
#include "fabric/connect.hpp"
#include "fabric/socket.hpp"
#include "penstock/interrupt.hpp"
#include "wire/versions.hpp"

namespace penstock::fabric {
namespace {

using base::Deadline;
using wire::Purpose;

class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() {
    listener.emplace(progress, token, "heat", "127.0.0.1",
                     [this](std::shared_ptr<Connection> peer, const wire::Hello& hello) {
                       std::lock_guard lock(mutex);
                       peers.push_back(peer);
                       hellos.push_back(hello);
                       progress.notify();
                     });
  }
  ~ListenerTest() override {
    listener.reset();
    for (auto& peer : peers) peer->close();
  }
  bool wait_peers(std::size_t count) {
    return progress.wait_for(
        [&] {
          std::lock_guard lock(mutex);
          return peers.size() >= count;
        },
        soon());
  }
  std::pair<std::shared_ptr<Connection>, std::optional<Error>> connect(const Token& with, Reach reach,
                                                                       const Endpoint& endpoint,
                                                                       Deadline deadline = soon(),
                                                                       wire::Hello as = hello()) {
    std::pair<std::shared_ptr<Connection>, std::optional<Error>> result;
    std::atomic<int> calls{0};
    connect_async(progress, endpoint, with, as, reach, deadline,
                  [&](std::shared_ptr<Connection> connection, std::optional<Error> error) {
                    result = {std::move(connection), std::move(error)};
                    ++calls;
                    progress.notify();
                  });
    EXPECT_TRUE(progress.wait_for([&] { return calls > 0; }, soon()));
    EXPECT_EQ(calls, 1);
    return result;
  }
  static wire::Hello hello() { return {.purpose = Purpose::join, .rank = 4, .stream = "heat", .name = "host:1"}; }

  SilentLog silent;  // refusals are the point of these tests
  const Token token = Token::random();
  Progress progress;
  std::mutex mutex;
  std::vector<std::shared_ptr<Connection>> peers;
  std::vector<wire::Hello> hellos;
  std::optional<Listener> listener;
};

TEST_F(ListenerTest, PeersComeInOverBothSocketsAndTalk) {
  for (const Reach reach : {Reach::automatic, Reach::unix_only, Reach::tcp_only}) {
    auto [connection, error] = connect(token, reach, listener->endpoint());
    ASSERT_TRUE(connection) << error->what();
    EXPECT_EQ(connection->local(), reach != Reach::tcp_only);
    ASSERT_TRUE(wait_peers(1));
    EXPECT_EQ(hellos[0].rank, 4u);
    EXPECT_EQ(peers[0]->peer_name(), "host:1");
    std::atomic<int> got{0};
    const auto count = [&](std::uint16_t kind, std::span<const std::byte>, UniqueFd) {
      EXPECT_EQ(kind, 9);
      ++got;
      progress.notify();
    };
    connection->start(count, [](const Error&) {});
    peers[0]->send(9, "test", {});
    connection->send(9, "test", {});
    peers[0]->start(count, [](const Error&) {});
    EXPECT_TRUE(progress.wait_for([&] { return got == 2; }, soon()));
    connection->close();
    peers[0]->close();
    progress.call([] {});
    peers.clear();
    hellos.clear();
  }
}

TEST_F(ListenerTest, BlockingConnectLeavesWhatFollowsToTheCaller) {
  for (const Reach reach : {Reach::unix_only, Reach::tcp_only}) {
    UniqueFd socket = connect_blocking(listener->endpoint(), token, hello(), reach, soon());
    ASSERT_TRUE(wait_peers(1));
    peers[0]->send(7, "test", std::as_bytes(std::span("abc", 3)));
    FrameHeader header{};
    ASSERT_EQ(::recv(socket.get(), &header, sizeof header, MSG_WAITALL), static_cast<ssize_t>(sizeof header));
    EXPECT_EQ(header.kind, 7);
    EXPECT_EQ(header.length, 3u);
    peers[0]->close();
    peers.clear();
  }
}

TEST_F(ListenerTest, WrongTokenIsAnAuthenticationErrorAtTheClientOnly) {
  for (const Reach reach : {Reach::automatic, Reach::tcp_only}) {
    auto [connection, error] = connect(Token::random(), reach, listener->endpoint());
    EXPECT_FALSE(connection);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::authentication) << error->what();
    EXPECT_EQ(code_of([&] { connect_blocking(listener->endpoint(), Token::random(), hello(), reach, soon()); }),
              Errc::authentication);
  }
  EXPECT_TRUE(peers.empty());
  EXPECT_TRUE(connect(token, Reach::automatic, listener->endpoint()).first);
}

TEST_F(ListenerTest, AnotherVersionIsToldAtOnce) {
  auto newer = hello();
  newer.version = wire::stream_protocol + 1;
  for (const Reach reach : {Reach::automatic, Reach::unix_only, Reach::tcp_only}) {
    const auto [connection, error] = connect(token, reach, listener->endpoint(), soon(), newer);
    EXPECT_FALSE(connection);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::unsupported) << error->what();
    EXPECT_EQ(code_of([&] { connect_blocking(listener->endpoint(), token, newer, reach, soon()); }), Errc::unsupported);
  }
  EXPECT_TRUE(peers.empty());
}

TEST_F(ListenerTest, NobodyThereIsSaidAtOnce) {
  Endpoint endpoint = listener->endpoint();
  endpoint.unix_name = "penstock-nobody-listens-here";
  EXPECT_TRUE(connect(token, Reach::automatic, endpoint).first);  // by TCP
  EXPECT_EQ(connect(token, Reach::unix_only, endpoint).second->code(), Errc::peer_lost);
  EXPECT_EQ(connect(token, Reach::tcp_only, {.unix_name = "x"}).second->code(), Errc::peer_lost);
  const Endpoint gone = listener->endpoint();
  listener.reset();
  const auto [connection, error] = connect(token, Reach::automatic, gone);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Errc::peer_lost);
  EXPECT_NE(std::string(error->what()).find("127.0.0.1"), std::string::npos) << error->what();
  EXPECT_EQ(code_of([&] { connect_blocking(gone, token, hello(), Reach::automatic, soon()); }), Errc::peer_lost);
  EXPECT_FALSE(answers(gone, token, "heat", soon()));
}

TEST_F(ListenerTest, ASilentServerTimesOut) {
  std::uint16_t port = 0;
  const UniqueFd silent = listen_tcp("127.0.0.1", port);
  const Endpoint endpoint{.tcp_hosts = {"127.0.0.1"}, .tcp_port = port};
  EXPECT_EQ(connect(token, Reach::automatic, endpoint, Deadline{Timeout(50)}).second->code(), Errc::timeout);
  EXPECT_EQ(code_of([&] { connect_blocking(endpoint, token, hello(), Reach::automatic, Deadline{Timeout(50)}); }),
            Errc::timeout);
  const InterruptHandler handler([](void*) { return true; }, nullptr);
  EXPECT_EQ(code_of([&] { connect_blocking(endpoint, token, hello(), Reach::automatic, Deadline::never()); }),
            Errc::timeout);
  EXPECT_FALSE(answers(endpoint, token, "heat", Deadline{Timeout(50)}));
}

TEST_F(ListenerTest, GarbageAndSilentGuestsHarmNobody) {
  std::string unresolved;
  const auto addresses = addresses_of(listener->endpoint(), Reach::automatic, unresolved);
  std::vector<UniqueFd> guests;
  for (int i = 0; i < 40; ++i) {
    int error = 0;
    UniqueFd fd = begin_connect(addresses.at(static_cast<std::size_t>(i) % addresses.size()), error);
    set_blocking(fd.get(), true);
    const char* text = i % 3 == 0 ? "GET / HTTP/1.1\r\n\r\n" : i % 3 == 1 ? "\x40\0\0\0\x01\x80\0\0garbage" : "";
    const std::size_t size = i % 3 == 0 ? 18 : i % 3 == 1 ? 15 : 0;
    EXPECT_EQ(::send(fd.get(), text, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
    guests.push_back(std::move(fd));
  }
  EXPECT_TRUE(connect(token, Reach::unix_only, listener->endpoint()).first);
  EXPECT_TRUE(connect(token, Reach::tcp_only, listener->endpoint()).first);
  EXPECT_EQ(peers.size(), 2u);
}

TEST_F(ListenerTest, AnswersNeedsTheTokenOverTcp) {
  Endpoint endpoint = listener->endpoint();
  EXPECT_TRUE(answers(endpoint, token, "heat", soon()));
  endpoint.unix_name.clear();
  EXPECT_TRUE(answers(endpoint, token, "heat", soon()));
  EXPECT_FALSE(answers(endpoint, Token::random(), "heat", soon()));
  EXPECT_FALSE(answers(endpoint, token, "other", soon()));
  EXPECT_TRUE(peers.empty());
}

TEST_F(ListenerTest, EndpointsRoundTripAsText) {
  const Endpoint endpoint = listener->endpoint();
  EXPECT_EQ(endpoint_from_text(to_text(endpoint)), endpoint);
  EXPECT_THROW(endpoint_from_text("{}"), Error);
  EXPECT_THROW(endpoint_from_text("nonsense"), Error);
  Listener everywhere(progress, token, "heat", "", [](std::shared_ptr<Connection>, const wire::Hello&) {});
  EXPECT_EQ(everywhere.endpoint().tcp_hosts.back(), "127.0.0.1");
  EXPECT_TRUE(
      connect(token, Reach::tcp_only, {.tcp_hosts = {"127.0.0.1"}, .tcp_port = everywhere.endpoint().tcp_port}).first);
  EXPECT_THROW(Listener(progress, token, "heat", "not an address", {}), Error);
}

TEST(Listener, WorksWithExplicitProgress) {
  Progress progress(Progress::Mode::explicit_poll);
  const Token token = Token::random();
  std::shared_ptr<Connection> server, client;
  Listener listener(progress, token, "heat", "127.0.0.1",
                    [&](std::shared_ptr<Connection> peer, const wire::Hello&) { server = std::move(peer); });
  connect_async(progress, listener.endpoint(), token, {.stream = "heat"}, Reach::automatic, soon(),
                [&](std::shared_ptr<Connection> peer, std::optional<Error>) { client = std::move(peer); });
  EXPECT_TRUE(progress.wait_for([&] { return server && client; }, soon()));
}

}  // namespace
}  // namespace penstock::fabric
