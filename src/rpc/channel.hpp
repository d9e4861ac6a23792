// Remote calls: a channel joins two processes; each may call the services that the other offers, and move the other's
// exposed memory. Control and data are apart: arguments and results travel on a control connection, memory through bulk
// descriptors (transport/bulk.hpp). Source: Nessie (Lofstead et al., Trios I/O Support, SAND2013-1122).
//
// A service is declared in a FlatBuffers schema:
//
//   table AddRequest { a:long; b:long; }
//   table AddReply { sum:long; }
//   rpc_service Calculator { Add(AddRequest):AddReply; }
//
// and penstock_rpc_service(<target> calculator.fbs) in CMake makes calculator_service.hpp (in Penstock's own sources:
// <folder>/calculator_service.hpp) with (namespace of the schema; requests and replies are flatc's owned structs AddRequestT,
// AddReplyT, verified on arrival)
//
//   class CalculatorService : public rpc::Service {            // implement it
//     virtual Task<AddReplyT> add(rpc::Call& call, AddRequestT request) = 0;
//   };
//   class CalculatorClient {                                    // call it
//     explicit CalculatorClient(std::shared_ptr<rpc::Channel> channel);
//     Task<AddReplyT> add(AddRequestT request, rpc::CallOptions options);             // on the engine thread
//     Future<AddReplyT> start_add(const AddRequestT& request, rpc::CallOptions);      // from any thread: get(), then()
//   };
//
// Calls are asynchronous, answered in any order, and cancelled when the caller's deadline passes or it drops its task (the
// server's Call says so). Errors cross as values: code, message, and where they arose ("host:pid service.method"; not those of
// Penstock's own services, whose callers say what they were doing). Small calls
// made in one turn of the engine travel in one frame. A request or reply longer than max_inline_bytes is sent in two phases:
// its header says how long it is, and the receiver pulls it when it has memory to spare (ServerOptions::memory_bytes); so are
// shorter ones while the peer is behind with reading. A FlatBuffer is at most 2 GiB long; longer bodies (to max_body_bytes)
// go by start and call with bytes of another encoding, or better as bulk.
// Nothing here waits without a deadline. A peer that breaks the protocol loses its channel, and only that; what was under
// way ends with Error(peer_lost) or Error(protocol).
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "fabric/endpoint.hpp"
#include "fabric/task.hpp"
#include "fabric/token.hpp"
#include "rpc/budget.hpp"
#include "transport/bulk.hpp"

namespace penstock::fabric {
class Connection;
}

namespace penstock::rpc {

using base::Deadline;
using fabric::Endpoint;
using fabric::endpoint_from_text;
using fabric::Future;
using fabric::Progress;
using fabric::Promise;
using fabric::Reach;
using fabric::run_task;
using fabric::spawn;
using fabric::Task;
using fabric::to_text;
using fabric::Token;
using transport::Access;
using transport::BulkBuffer;
using transport::BulkDescriptor;
using transport::BulkSpace;
using transport::Exposure;

class Budget;
class Channel;
class Service;

inline constexpr std::size_t max_inline_bytes = std::size_t{1} << 20;
inline constexpr std::uint64_t max_body_bytes = std::uint64_t{4} << 30;

// How a service is named in a call: FNV-1a of its fully qualified name (a table refuses two with one number).
constexpr std::uint64_t service_id(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

struct CallOptions {
  base::Deadline deadline{std::chrono::milliseconds(10'000)};
  std::string_view method_name = {};  // a literal, for errors; else they say the number
};

// What a method knows of the call that it serves. Lives until the method's task has ended.
class Call {
 public:
  Channel& channel() const { return *channel_; }
  std::shared_ptr<Channel> shared_channel() const { return channel_; }
  base::Deadline deadline() const { return deadline_; }  // the caller's, on this process's clock
  bool cancelled() const { return cancelled_; }          // the caller has gone, cancelled, or its deadline has passed
  // Called once on the engine thread when that happens, at once when it has; not any more once the method has ended.
  void on_cancelled(std::function<void()> callback);

  // rpc's own.
  Call(std::shared_ptr<Channel> channel, base::Deadline deadline) : channel_(std::move(channel)), deadline_(deadline) {}
  void cancel();
  void forget_callbacks() { callbacks_.clear(); }  // the method has ended: what they refer to is gone

 private:
  std::shared_ptr<Channel> channel_;
  base::Deadline deadline_;
  bool cancelled_ = false;
  std::vector<std::function<void()>> callbacks_;
};

// The server's side of one service; generated classes implement it. dispatch decodes (throws Error(protocol)), runs the
// method, and returns the encoded reply.
class Service {
 public:
  virtual ~Service() = default;
  virtual std::string_view name() const = 0;                  // fully qualified, as in the schema
  virtual std::vector<std::string_view> methods() const = 0;  // by number
  virtual Task<std::vector<std::byte>> dispatch(Call& call, std::uint32_t method, std::vector<std::byte> request) = 0;
};

// A fixed set of services, offered on channels; shared by all of them. Immutable once in use.
class ServiceTable {
 public:
  // Throws Error(invalid_argument) when the name is taken.
  void add(std::shared_ptr<Service> service);
  std::shared_ptr<Service> find(std::string_view name) const { return find(service_id(name)); }
  std::shared_ptr<Service> find(std::uint64_t id) const;

 private:
  std::unordered_map<std::uint64_t, std::shared_ptr<Service>> services_;
};

// What bounds one side. Credits: requests whose bodies (inline, or pulled in the second phase) exceed memory_bytes together
// wait, smaller ones first within bounds of fairness; more than max_calls of one channel are refused (Error(overloaded)).
struct ServerOptions {
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  std::uint32_t max_calls = 65'536;
  std::uint16_t port = 0;  // of a Server, for TCP: taken when it is free; 0: any
  // Of a channel's bulk memory. The side that connects chooses it; null: the best. A Server offers it beside the automatic ones.
  const transport::Plane* plane = nullptr;
};

// What is told how a call ended: exactly one of the two is called, once, on the engine thread (or, when the channel is closed
// already, in begin).
class Completion {
 public:
  virtual ~Completion() = default;
  virtual void replied(std::vector<std::byte> reply) = 0;
  virtual void failed(std::exception_ptr error) = 0;
};

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  // Takes an authenticated connection that is not started. realm_and_role ("realm/role"): what the peer may do, as the listener
  // decided ("" when it does not matter); services look at it. budget: shared by several channels; null: the channel's own.
  // Bulk goes by shared memory only, unless the channel was made by a Server or by connect. Channels live as long as somebody
  // holds them; dropping the last reference closes (any thread; on the engine best).
  static std::shared_ptr<Channel> adopt(std::shared_ptr<Progress> progress,
                                        std::shared_ptr<fabric::Connection> connection,
                                        std::shared_ptr<const ServiceTable> services, std::string realm_and_role,
                                        ServerOptions options = {}, std::shared_ptr<Budget> budget = nullptr);
  ~Channel();

  // Calls by name; generated clients use these. Any thread. The body is an encoded FlatBuffer. service outlives the call (a
  // literal). From an application thread a call is sent at once when few are under way; many share frames.
  Future<std::vector<std::byte>> start(std::string_view service, std::uint32_t method, std::vector<std::byte> body,
                                       CallOptions options);
  // Engine thread. Dropping the task cancels the call.
  Task<std::vector<std::byte>> call(std::string_view service, std::uint32_t method, std::vector<std::byte> body,
                                    CallOptions options);
  // What both are made of. Returns the call's number, for cancel.
  std::uint64_t begin(std::string_view service, std::uint32_t method, std::vector<std::byte> body, CallOptions options,
                      std::unique_ptr<Completion> completion);
  // Ends a call with Error(cancelled), unless it has ended. Any thread.
  void cancel(std::uint64_t call);

  // Memory that this side exposes to the peer, and the way to the peer's.
  BulkSpace& bulk();

  // The peer is gone, or close() was called. Several callbacks may be set; engine thread; each called once, at once if closed.
  void on_closed(std::function<void(const Error&)> callback);
  void close();
  // Ends for this side as close does, but the peer sees it only when nobody holds the channel any more: what it keeps for us
  // (exposed memory that is mapped here) stays until then, as far as it is still there.
  void retire();
  bool open() const;
  bool shares_memory() const;  // the peer is on this node, and the channel's plane is not another
  const std::string& peer_name() const;
  const std::string& realm() const;  // of the peer: before the last slash of realm_and_role
  const std::string& role() const;   // after it
  Budget& budget();
  const std::shared_ptr<Progress>& progress() const;

  struct Statistics {
    std::uint64_t calls_made = 0, calls_served = 0, frames_sent = 0, bytes_sent = 0, bytes_pulled = 0, bytes_pushed = 0;
  };
  Statistics statistics() const;

  struct Impl;  // rpc's own
  Impl& impl() { return *impl_; }

 private:
  explicit Channel(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// Where services are offered: listens, authenticates, and makes channels. Tokens are by realm and role: a peer says
// "realm/role" when it connects (fabric Hello::stream) and proves that it knows that role's token.
class Server {
 public:
  // token_of: the token for "realm/role", or nothing to refuse it. Throws Error(system, invalid_argument).
  using TokenOf = fabric::TokenOf;  // called on the engine thread
  Server(std::shared_ptr<Progress> progress, std::shared_ptr<const ServiceTable> services, TokenOf token_of,
         const std::string& listen, ServerOptions options = {});
  // Closes all channels.
  ~Server();
  const fabric::Endpoint& endpoint() const;
  std::vector<std::shared_ptr<Channel>> channels() const;
  const std::shared_ptr<Budget>& budget() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Connects to a Server. services: what this side offers to the server (may be null). Throws Error: timeout, peer_lost,
// authentication, protocol.
Task<std::shared_ptr<Channel>> connect(std::shared_ptr<Progress> progress, fabric::Endpoint endpoint,
                                       fabric::Token token, std::string realm_and_role,
                                       std::shared_ptr<const ServiceTable> services, base::Deadline deadline,
                                       fabric::Reach reach = fabric::Reach::automatic, ServerOptions options = {});

}  // namespace penstock::rpc
