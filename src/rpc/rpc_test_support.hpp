// A server and a client of the tests' service in one process, each with an engine of its own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "base/test_support.hpp"
#include "rpc/channel.hpp"
#include "rpc/rpc_test_service.hpp"
#include "transport/bulk.hpp"
#include "transport/carrier.hpp"

namespace penstock::rpc::test {

inline CallOptions patient() { return {soon()}; }

inline std::uint64_t sum_of(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (const auto b : bytes) sum = sum * 31 + std::to_integer<std::uint64_t>(b);
  return sum;
}

class Tester final : public TesterService {
 public:
  explicit Tester(std::shared_ptr<Progress> engine) : progress(std::move(engine)), released(*progress) {}

  Task<EchoReplyT> echo(Call&, EchoRequestT request) override {
    ++echoes;
    EchoReplyT reply;
    reply.text = std::move(request.text);
    reply.bytes = std::move(request.bytes);
    co_return reply;
  }
  // Ends when its time is over, when it is released, or when the caller has gone.
  Task<WaitReplyT> wait(Call& call, WaitRequestT request) override {
    ++waiting;
    progress->notify();
    if (request.milliseconds > 0) {
      co_await fabric::pause_for(*progress, std::chrono::milliseconds(request.milliseconds));
    } else {
      auto gone = std::make_shared<Promise<void>>(*progress);
      waiters.push_back(gone);
      call.on_cancelled([gone] { gone->set(); });
      co_await gone->future();
    }
    --waiting;
    if (call.cancelled()) ++cancelled;
    progress->notify();
    WaitReplyT reply;
    reply.number = request.number;
    co_return reply;
  }
  Task<NothingT> release(Call&, NothingT) override {
    for (auto& waiter : std::exchange(waiters, {})) waiter->set();
    co_return NothingT{};
  }
  Task<NothingT> fail(Call&, FailRequestT request) override {
    if (request.code < 0) throw std::runtime_error(request.message);
    throw Error(static_cast<Errc>(request.code), request.message);
    co_return NothingT{};
  }
  Task<EchoReplyT> who_am_i(Call& call, NothingT) override {
    EchoReplyT reply;
    reply.text = call.channel().realm() + "|" + call.channel().role();
    co_return reply;
  }
  Task<EchoReplyT> call_back(Call& call, EchoRequestT request) override {
    TesterClient caller(call.shared_channel());
    auto options = patient();
    auto reply = co_await caller.echo(std::move(request), options);
    reply.text += " and back";
    co_return reply;
  }
  Task<BulkReplyT> pull(Call& call, BulkRequestT request) override {
    std::vector<std::byte> bytes(request.bytes);
    const std::span<std::byte> into(bytes);
    co_await call.channel().bulk().pull(request.memory, request.offset, into, call.deadline());
    BulkReplyT reply;
    reply.sum = sum_of(bytes);
    co_return reply;
  }
  Task<BulkReplyT> push(Call& call, BulkRequestT request) override {
    std::vector<std::byte> bytes(request.bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((request.value + i) * 7 >> 2);
    const std::span<const std::byte> from(bytes);
    co_await call.channel().bulk().push(request.memory, request.offset, from, call.deadline());
    BulkReplyT reply;
    reply.sum = sum_of(bytes);
    co_return reply;
  }
  // Exposes memory of the server; value 1: shared, else private; it stays until it is withdrawn.
  Task<BulkReplyT> offer(Call& call, BulkRequestT request) override {
    std::span<std::byte> memory;
    if ((request.value & 1) != 0) {
      buffer = BulkBuffer::allocate(request.bytes);
      memory = buffer.span().first(request.bytes);
    } else {
      plain.resize(request.bytes);
      memory = plain;
    }
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 13 >> 3);
    exposure = call.channel().bulk().expose(memory, static_cast<Access>(request.value >> 1));
    offered = memory;
    BulkReplyT reply;
    reply.memory = exposure.descriptor();
    reply.sum = sum_of(memory);
    co_return reply;
  }
  Task<NothingT> withdraw(Call&, NothingT) override {
    exposure = {};
    if (!offered.empty()) std::fill(offered.begin(), offered.end(), std::byte{0xee});
    co_return NothingT{};
  }

  // A long reply, and a callback that must not outlive the method.
  Task<EchoReplyT> long_reply(Call& call, BulkRequestT request) override {
    auto alive = std::make_unique<int>(1);
    call.on_cancelled([this, raw = alive.get()] { late_callbacks += *raw; });
    EchoReplyT reply;
    reply.bytes.resize(request.bytes);
    co_return reply;
  }

  std::atomic<int> late_callbacks{0};
  std::shared_ptr<Progress> progress;
  std::atomic<int> echoes{0}, waiting{0}, cancelled{0};
  std::vector<std::shared_ptr<Promise<void>>> waiters;  // engine
  fabric::Signal released;
  BulkBuffer buffer;
  std::vector<std::byte> plain;
  std::span<std::byte> offered;
  Exposure exposure;
};

// Over TCP the two sides share no memory, as if they were on two nodes.
class RpcTest : public ::testing::Test {
 protected:
  RpcTest() {
    auto table = std::make_shared<ServiceTable>();
    table->add(tester);
    services = table;
    auto back = std::make_shared<ServiceTable>();
    back->add(client_tester);
    client_services = back;
  }
  ~RpcTest() override {
    server_progress->call([this] { tester->exposure = {}; });
    server.reset();
  }
  void serve(ServerOptions options = {}) {
    server.emplace(
        server_progress, services,
        [this](const std::string& name) -> std::optional<fabric::Token> {
          const auto found = tokens.find(name);
          if (found == tokens.end()) return std::nullopt;
          return found->second;
        },
        "127.0.0.1", options);
  }
  std::shared_ptr<Channel> connect_as(const std::string& name, const fabric::Token& token,
                                      fabric::Reach reach = fabric::Reach::automatic, ServerOptions options = {}) {
    return fabric::run_task(
        *progress, rpc::connect(progress, server->endpoint(), token, name, client_services, soon(), reach, options),
        soon(), "no connection");
  }
  std::shared_ptr<Channel> connect(fabric::Reach reach = fabric::Reach::automatic, std::string_view plane = {}) {
    ServerOptions options;
    options.plane = transport::bulk_plane(plane);
    return connect_as("pool/write", tokens.at("pool/write"), reach, options);
  }
  template <class T>
  T run(Task<T> task) {
    return fabric::run_task(*progress, std::move(task), soon());
  }

  SilentLog silent;  // refusals are the point of some tests
  std::shared_ptr<Progress> progress = Progress::create();
  std::shared_ptr<Progress> server_progress = Progress::create();
  std::map<std::string, fabric::Token> tokens{{"pool/write", fabric::Token::random()},
                                              {"pool/read", fabric::Token::random()}};
  std::shared_ptr<Tester> tester = std::make_shared<Tester>(server_progress);
  std::shared_ptr<Tester> client_tester = std::make_shared<Tester>(progress);
  std::shared_ptr<const ServiceTable> services, client_services;
  std::optional<Server> server;
};

}  // namespace penstock::rpc::test
