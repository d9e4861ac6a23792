#include <sys/socket.h>
#include <unistd.h>

#include <set>

#include "fabric/connect.hpp"
#include "fabric/socket.hpp"
#include "rpc/completion_queue.hpp"
#include "rpc/envelope.hpp"
#include "rpc/rpc_test_support.hpp"

namespace penstock::rpc::test {
namespace {

using fabric::Reach;

EchoRequestT text(std::string t) {
  EchoRequestT request;
  request.text = std::move(t);
  return request;
}

Task<std::string> echo_twice(std::shared_ptr<Channel> channel) {
  TesterClient client(channel);
  CallOptions options = patient();
  EchoRequestT request = text("one");
  const auto first = co_await client.echo(std::move(request), options);
  EchoRequestT next = text(first.text + " two");
  const auto second = co_await client.echo(std::move(next), options);
  co_return second.text;
}

TEST_F(RpcTest, CallsAreAnsweredOverBothSockets) {
  serve();
  for (const auto reach : {Reach::unix_only, Reach::tcp_only}) {
    auto channel = connect(reach);
    EXPECT_EQ(channel->shares_memory(), reach == Reach::unix_only);
    TesterClient client(channel);
    EXPECT_EQ(client.start_echo(text("hello"), patient()).get(soon()).text, "hello");
    EXPECT_EQ(run(echo_twice(channel)), "one two");
  }
}

TEST_F(RpcTest, ManyCallsAtOnceShareFrames) {
  serve();
  auto channel = connect();
  TesterClient client(channel);
  std::vector<Future<EchoReplyT>> replies;
  for (int i = 0; i < 10'000; ++i) replies.push_back(client.start_echo(text(std::to_string(i)), patient()));
  for (int i = 0; i < 10'000; ++i) EXPECT_EQ(replies[i].get(soon()).text, std::to_string(i));
  EXPECT_EQ(channel->statistics().calls_made, 10'000u);
  EXPECT_LT(channel->statistics().frames_sent, 5'000u);
}

TEST_F(RpcTest, RepliesComeInAnyOrder) {
  serve();
  auto channel = connect();
  TesterClient client(channel);
  WaitRequestT first;
  first.number = 1;
  auto slow = client.start_wait(first, patient());
  for (int i = 0; i < 100; ++i) client.start_echo(text("x"), patient()).get(soon());
  EXPECT_FALSE(slow.done());
  client.start_release(NothingT{}, patient()).get(soon());
  EXPECT_EQ(slow.get(soon()).number, 1);
}

TEST_F(RpcTest, ErrorsCrossAsValues) {
  serve();
  auto channel = connect();
  TesterClient client(channel);
  FailRequestT request;
  request.code = static_cast<int>(Errc::already_exists);
  request.message = "it is there";
  const auto [code, what] = error_of([&] { client.start_fail(request, patient()).get(soon()); });
  EXPECT_EQ(code, Errc::already_exists);
  EXPECT_NE(what.find("it is there"), std::string::npos) << what;
  EXPECT_NE(what.find("penstock.rpc.test.Tester.fail"), std::string::npos) << what;
  EXPECT_NE(what.find(":" + std::to_string(::getpid())), std::string::npos) << what;
  request.code = -1;
  EXPECT_EQ(code_of([&] { client.start_fail(request, patient()).get(soon()); }), Errc::internal);
  const auto refused = [&](std::string_view service, std::uint32_t method, std::string_view name) {
    const CallOptions options{.deadline = patient().deadline, .method_name = name};
    return error_of([&] { channel->start(service, method, std::vector<std::byte>(16), options).get(soon()); });
  };
  const auto service = refused("no.such.Service", 0, "Add");
  EXPECT_EQ(service.first, Errc::not_found);
  EXPECT_NE(service.second.find(" no.such.Service.Add: no such service is offered"), std::string::npos)
      << service.second;
  const auto method = refused(TesterService::service_name, 99, "newer");
  EXPECT_EQ(method.first, Errc::not_found);
  EXPECT_NE(method.second.find(".Tester.newer: no such method is offered"), std::string::npos) << method.second;
  // A malformed request harms nobody else.
  EXPECT_EQ(code_of([&] {
              channel->start(TesterService::service_name, 0, std::vector<std::byte>(64, std::byte{0xa5}), patient())
                  .get(soon());
            }),
            Errc::protocol);
  EXPECT_EQ(client.start_echo(text("fine"), patient()).get(soon()).text, "fine");
}

TEST_F(RpcTest, DeadlinesEndCallsAtBothSides) {
  serve();
  auto channel = connect();
  TesterClient client(channel);
  const auto [code, what] =
      error_of([&] { client.start_wait(WaitRequestT{}, {base::Deadline(Timeout(30))}).get(soon()); });
  EXPECT_EQ(code, Errc::timeout);
  EXPECT_NE(what.find("Tester.Wait: no answer in time"), std::string::npos) << what;
  EXPECT_TRUE(server_progress->wait_for([&] { return tester->cancelled == 1 && tester->waiting == 0; }, soon()));
  EXPECT_EQ(client.start_echo(text("on"), patient()).get(soon()).text, "on");
}

TEST_F(RpcTest, CancellationIsSeenByTheServer) {
  serve();
  auto channel = connect();
  struct Never final : Completion {
    explicit Never(std::atomic<int>& c) : code(c) {}
    void replied(std::vector<std::byte>) override { code = -1; }
    void failed(std::exception_ptr error) override {
      code = static_cast<int>(code_of([&] { std::rethrow_exception(error); }));
    }
    std::atomic<int>& code;
  };
  std::atomic<int> code{0};
  const auto body = encode<WaitRequest>(WaitRequestT{});
  const auto id = channel->begin(TesterService::service_name, 1, body, patient(), std::make_unique<Never>(code));
  ASSERT_TRUE(server_progress->wait_for([&] { return tester->waiting == 1; }, soon()));
  channel->cancel(id);
  EXPECT_EQ(code, static_cast<int>(Errc::cancelled));
  EXPECT_TRUE(server_progress->wait_for([&] { return tester->cancelled == 1; }, soon()));
}

TEST_F(RpcTest, RolesArePassedAndTokensChecked) {
  serve();
  for (const std::string name : {"pool/write", "pool/read"}) {
    auto channel = connect_as(name, tokens.at(name));
    EXPECT_EQ(TesterClient(channel).start_who_am_i(NothingT{}, patient()).get(soon()).text, "pool|" + name.substr(5));
  }
  for (const auto reach : {Reach::automatic, Reach::tcp_only}) {
    EXPECT_EQ(code_of([&] { connect_as("pool/write", tokens.at("pool/read"), reach); }), Errc::authentication);
    EXPECT_EQ(code_of([&] { connect_as("pool/admin", fabric::Token::random(), reach); }), Errc::authentication);
  }
}

TEST_F(RpcTest, EitherSideCalls) {
  serve();
  auto channel = connect();
  EXPECT_EQ(TesterClient(channel).start_call_back(text("there"), patient()).get(soon()).text, "there and back");
  EXPECT_EQ(client_tester->echoes, 1);
}

TEST_F(RpcTest, APeerThatGoesEndsWhatIsUnderWay) {
  serve();
  auto channel = connect();
  std::atomic<int> closed{0};
  channel->on_closed([&](const Error&) {
    ++closed;
    progress->notify();
  });
  auto call = TesterClient(channel).start_wait(WaitRequestT{}, patient());
  ASSERT_TRUE(server_progress->wait_for([&] { return tester->waiting == 1; }, soon()));
  server.reset();
  EXPECT_EQ(code_of([&] { call.get(soon()); }), Errc::peer_lost);
  EXPECT_TRUE(progress->wait_for([&] { return closed == 1; }, soon()));
  EXPECT_FALSE(channel->open());
  EXPECT_EQ(code_of([&] { TesterClient(channel).start_echo(text("x"), patient()).get(soon()); }), Errc::peer_lost);
  channel->on_closed([&](const Error&) {
    ++closed;
    progress->notify();
  });
  EXPECT_TRUE(progress->wait_for([&] { return closed == 2; }, soon()));
  EXPECT_TRUE(server_progress->wait_for([&] { return tester->cancelled == 1; }, soon()));
}

TEST_F(RpcTest, GarbageEndsOneChannelOnly) {
  serve();
  auto good = connect();
  for (int kind : {0x0101, 0x0102, 0x0103, 0x7777}) {
    wire::Hello hello;
    hello.purpose = wire::Purpose::rpc;
    hello.stream = "pool/write";
    memory::UniqueFd socket =
        fabric::connect_blocking(server->endpoint(), tokens.at("pool/write"), hello, Reach::unix_only, soon());
    const fabric::FrameHeader header{64, static_cast<std::uint16_t>(kind), 0};
    std::vector<std::byte> bytes(sizeof header + 64, std::byte{0x5a});
    std::memcpy(bytes.data(), &header, sizeof header);
    ASSERT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    // It says welcome, and then goodbye.
    std::byte waste[512];
    while (::recv(socket.get(), waste, sizeof waste, 0) > 0) {
    }
    EXPECT_EQ(TesterClient(good).start_echo(text("fine"), patient()).get(soon()).text, "fine");
  }
}

TEST_F(RpcTest, CompletionsAreQueued) {
  serve();
  auto channel = connect();
  TesterClient client(channel);
  CompletionQueue queue;
  auto slow = client.start_wait(WaitRequestT{}, patient());
  queue.watch(slow, 1'000);
  std::vector<Future<EchoReplyT>> replies;
  for (std::uint64_t i = 0; i < 50; ++i) {
    replies.push_back(client.start_echo(text(std::to_string(i)), patient()));
    queue.watch(replies.back(), i);
  }
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 50; ++i) {
    const auto tag = queue.take(soon());
    ASSERT_TRUE(tag && *tag < 50);
    EXPECT_TRUE(seen.insert(*tag).second);
    EXPECT_EQ(replies[*tag].take().text, std::to_string(*tag));
  }
  EXPECT_FALSE(queue.take(base::Deadline(Timeout(5))));
  client.start_release(NothingT{}, patient()).get(soon());
  EXPECT_EQ(queue.take(soon()), 1'000u);
}

// A task that is destroyed while it waits cancels its call.
TEST_F(RpcTest, DroppedTasksCancelTheirCalls) {
  serve();
  auto channel = connect();
  struct Slot {
    static Task<void> call(std::shared_ptr<Channel> channel) {
      TesterClient client(channel);
      CallOptions options = patient();
      WaitRequestT request;
      co_await client.wait(std::move(request), options);
    }
  };
  auto task = std::make_shared<std::optional<Task<void>>>(Slot::call(channel));
  progress->call([&] { (*task)->begin(); });  // so that it can be destroyed while it is suspended
  ASSERT_TRUE(server_progress->wait_for([&] { return tester->waiting == 1; }, soon()));
  progress->call([&] { task->reset(); });
  EXPECT_TRUE(server_progress->wait_for([&] { return tester->cancelled == 1; }, soon()));
}

TEST_F(RpcTest, TooManyCallsAreRefused) {
  serve({.max_calls = 4});
  auto channel = connect();
  TesterClient client(channel);
  std::vector<Future<WaitReplyT>> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(client.start_wait(WaitRequestT{}, patient()));
  ASSERT_TRUE(server_progress->wait_for([&] { return tester->waiting == 4; }, soon()));
  EXPECT_EQ(code_of([&] { client.start_echo(text("x"), patient()).get(soon()); }), Errc::overloaded);
  server_progress->call([&] {
    for (auto& waiter : tester->waiters) waiter->set();
  });
  for (auto& call : calls) call.get(soon());
  EXPECT_EQ(client.start_echo(text("x"), patient()).get(soon()).text, "x");
}

TEST(Envelope, ItemsComeBackAsTheyWere) {
  std::vector<std::byte> out;
  const std::vector<std::byte> body(21, std::byte{7});
  append_call(out, 1, 2, 3, 4, body);
  append_long_call(out, 5, 6, 7, no_deadline, {8, 9, 10, 11, 1});
  append_reply(out, 12, body);
  append_long_reply(out, 13, {8, 9, 10, 11, 1});
  append_failure(out, 14, Errc::timeout, "here", "late");
  append_plain(out, ItemType::cancel, 15);
  append_link(out, body);
  ItemReader reader(out);
  auto item = reader.next();
  EXPECT_EQ(item->type, ItemType::call);
  EXPECT_EQ(item->service, 2u);
  EXPECT_EQ(item->method, 3u);
  EXPECT_EQ(item->deadline_ms, 4u);
  EXPECT_EQ(item->body.size(), 21u);
  EXPECT_EQ(reader.next()->long_body->segment, 11u);
  EXPECT_EQ(reader.next()->body.size(), 21u);
  EXPECT_EQ(reader.next()->long_body->bytes, 9u);
  item = reader.next();
  EXPECT_EQ(item->code, Errc::timeout);
  EXPECT_EQ(item->where, "here");
  EXPECT_EQ(item->message, "late");
  EXPECT_EQ(reader.next()->id, 15u);
  item = reader.next();
  EXPECT_EQ(item->type, ItemType::link);
  EXPECT_EQ(item->body.size(), 21u);
  EXPECT_FALSE(reader.next());
  for (std::size_t size = 1; size < 64; ++size) {
    ItemReader cut(std::span<const std::byte>(out).first(size));
    EXPECT_EQ(code_of([&] { cut.next(); }), Errc::protocol) << size;
  }
}

}  // namespace
}  // namespace penstock::rpc::test
