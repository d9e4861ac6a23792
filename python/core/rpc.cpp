// Remote calls: the extension's part. Messages are bytes, errors are exceptions; python/penstock/rpc makes of it what users
// see. Services that Python implements are called through a queue, which Python's threads empty: the library's thread takes no
// interpreter lock.
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>

#include <condition_variable>
#include <cstring>
#include <deque>

#include "core.hpp"
#include "fabric/endpoint.hpp"
#include "rpc/channel.hpp"

namespace penstock::python {
namespace {

using Bytes = std::vector<std::byte>;
using Descriptor = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t, std::uint8_t>;

Bytes bytes_of(nb::handle object) {
  const Buffer buffer(object, false);
  const auto* from = static_cast<const std::byte*>(buffer.data());
  return {from, from + buffer.bytes()};
}

Memory memory_of(std::shared_ptr<const void> owner, void* data, std::size_t size, bool writable) {
  Memory memory;
  memory.data = data;
  memory.size = size;
  memory.writable = writable;
  memory.owner = std::move(owner);
  memory.box = {{0}, {size}};
  memory.strides = {1};
  return memory;
}
Memory memory_of(Bytes bytes) {
  auto owner = std::make_shared<Bytes>(std::move(bytes));
  return memory_of(owner, owner->data(), owner->size(), false);
}

rpc::BulkDescriptor descriptor_of(const Descriptor& d) {
  return {std::get<0>(d), std::get<1>(d), std::get<2>(d), std::get<3>(d), std::get<4>(d)};
}

base::Deadline deadline_of(std::int64_t timeout_ms) { return base::Deadline(timeout_of(timeout_ms)); }

// The library's thread for remote calls. Outlives all that was made on it.
struct Engine {
  std::shared_ptr<rpc::Progress> progress = rpc::Progress::create();
  void forget() { static_cast<void>(new std::shared_ptr<rpc::Progress>(std::move(progress))); }
  rpc::Progress& get() const {
    if (!progress) throw Error(Errc::wrong_state, "made before a fork");
    return *progress;
  }
};

// Numbers of calls that have ended, for a thread that tells asyncio.
class Notices {
 public:
  void add(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    numbers_.push_back(number);
    ready_.notify_one();
  }
  std::vector<std::uint64_t> next(std::int64_t slice_ms) {
    const Unlocked unlocked;
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, std::chrono::milliseconds(slice_ms), [&] { return !numbers_.empty(); });
    return std::exchange(numbers_, {});
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable ready_;
  std::vector<std::uint64_t> numbers_;
};

// ---------------------------------------------------------------------------------------------------------------- client

// A call under way.
class PyCall {
 public:
  PyCall(std::shared_ptr<rpc::Channel> channel, std::string service, std::uint32_t method, std::string name,
         Bytes request, base::Deadline deadline, std::shared_ptr<Notices> notices, std::uint64_t number)
      : channel_(std::move(channel)), state_(std::make_shared<State>()) {
    state_->service = std::move(service);
    state_->method = std::move(name);
    state_->notices = std::move(notices);
    state_->number = number;
    id_ = channel_->begin(state_->service, method, std::move(request), {deadline, state_->method},
                          std::make_unique<End>(state_));
  }
  ~PyCall() {
    if (!origin_.leave(channel_)) drop_unlocked(channel_);
  }
  void cancel() {
    origin_.check("the call");
    channel_->cancel(id_);
  }
  bool done() const {
    origin_.check("the call");
    const std::lock_guard lock(state_->mutex);
    return state_->done;
  }
  // Whether it has ended.
  bool wait(std::int64_t slice_ms) {
    origin_.check("the call");
    const Unlocked unlocked;
    std::unique_lock lock(state_->mutex);
    return state_->ended.wait_for(lock, std::chrono::milliseconds(slice_ms), [&] { return state_->done; });
  }
  // Once it has.
  Memory take() {
    origin_.check("the call");
    const std::lock_guard lock(state_->mutex);
    if (!state_->done) throw Error(Errc::wrong_state, "the call has not ended");
    if (state_->error) std::rethrow_exception(state_->error);
    return memory_of(std::exchange(state_->reply, {}));
  }

 private:
  struct State {
    std::string service, method;  // outlive the call
    std::shared_ptr<Notices> notices;
    std::uint64_t number = 0;
    std::mutex mutex;  // guards what follows
    std::condition_variable ended;
    bool done = false;
    Bytes reply;
    std::exception_ptr error;

    void end(Bytes bytes, std::exception_ptr failure) {
      {
        const std::lock_guard lock(mutex);
        done = true;
        reply = std::move(bytes);
        error = std::move(failure);
        ended.notify_all();
      }
      if (notices) notices->add(number);
    }
  };
  struct End final : rpc::Completion {
    explicit End(std::shared_ptr<State> state) : state(std::move(state)) {}
    void replied(Bytes reply) override { state->end(std::move(reply), nullptr); }
    void failed(std::exception_ptr error) override { state->end({}, std::move(error)); }
    std::shared_ptr<State> state;
  };
  const Origin origin_;
  std::shared_ptr<rpc::Channel> channel_;
  std::shared_ptr<State> state_;
  std::uint64_t id_ = 0;
};

// Bytes on their way between the peer's memory and Python's, which stays where it is until they have arrived.
class PyTransfer {
 public:
  PyTransfer(std::shared_ptr<rpc::Channel> channel, rpc::Future<void> future, Buffer buffer)
      : channel_(std::move(channel)), future_(std::move(future)), buffer_(std::move(buffer)) {}
  ~PyTransfer() {
    if (origin_.leave(channel_, future_, buffer_)) return;
    const Unlocked unlocked;
    const Uninterrupted whole;
    channel_->progress()->wait_for([&] { return future_.done(); }, base::Deadline::never());
    channel_ = nullptr;
  }
  bool wait(std::int64_t slice_ms) {
    const Unlocked unlocked;
    return channel_->progress()->wait_for([&] { return future_.done(); }, deadline_of(slice_ms));
  }
  void take() { future_.take(); }

 private:
  const Origin origin_;
  std::shared_ptr<rpc::Channel> channel_;
  rpc::Future<void> future_;
  Buffer buffer_;
};

// Python memory that the peer may move; it keeps the memory.
class PyExposure {
 public:
  PyExposure(rpc::Exposure exposure, Buffer buffer) : exposure_(std::move(exposure)), buffer_(std::move(buffer)) {}
  ~PyExposure() { close(); }
  Descriptor descriptor() const {
    origin_.check("the exposure");
    if (!exposure_) throw Error(Errc::wrong_state, "the memory is not exposed any more");
    const auto d = exposure_->descriptor();
    return {d.id(), d.bytes(), d.offset(), d.segment(), d.access()};
  }
  void close() {
    if (origin_.leave(exposure_, buffer_)) return;
    const Unlocked unlocked;  // it may wait for the peer
    exposure_.reset();
  }

 private:
  const Origin origin_;
  std::optional<rpc::Exposure> exposure_;
  Buffer buffer_;
};

class PyChannel {
 public:
  explicit PyChannel(std::shared_ptr<rpc::Channel> channel) : channel_(std::move(channel)) {}
  ~PyChannel() {
    if (channel_) drop_unlocked(channel_);
  }
  void forget() { static_cast<void>(new std::shared_ptr<rpc::Channel>(std::move(channel_))); }

  std::unique_ptr<PyCall> start(const std::string& service, std::uint32_t method, const std::string& name,
                                nb::handle request, std::int64_t timeout_ms, std::shared_ptr<Notices> notices,
                                std::uint64_t number) {
    return std::make_unique<PyCall>(get(), service, method, name, bytes_of(request), deadline_of(timeout_ms),
                                    std::move(notices), number);
  }
  std::unique_ptr<PyExposure> expose(nb::handle object, bool writable) {
    Buffer buffer(object, writable);
    if (!buffer.packed(Order::row)) throw Error(Errc::invalid_argument, "exposed memory is contiguous");
    const std::span memory(static_cast<std::byte*>(buffer.data()), buffer.bytes());
    const auto access = writable ? rpc::Access::read_write : rpc::Access::read;
    return std::make_unique<PyExposure>(get()->bulk().expose(memory, access), std::move(buffer));
  }
  std::unique_ptr<PyTransfer> pull(const Descriptor& from, std::uint64_t offset, nb::handle into,
                                   std::int64_t timeout_ms) {
    Buffer buffer(into, true);
    if (!buffer.packed(Order::row)) throw Error(Errc::invalid_argument, "bulk goes into contiguous memory");
    const std::span memory(static_cast<std::byte*>(buffer.data()), buffer.bytes());
    auto task = get()->bulk().pull(descriptor_of(from), offset, memory, deadline_of(timeout_ms));
    return std::make_unique<PyTransfer>(channel_, fabric::spawn(*channel_->progress(), std::move(task)),
                                        std::move(buffer));
  }
  std::unique_ptr<PyTransfer> push(const Descriptor& to, std::uint64_t offset, nb::handle from,
                                   std::int64_t timeout_ms) {
    Buffer buffer(from, false);
    if (!buffer.packed(Order::row)) throw Error(Errc::invalid_argument, "bulk comes out of contiguous memory");
    const std::span memory(static_cast<const std::byte*>(buffer.data()), buffer.bytes());
    auto task = get()->bulk().push(descriptor_of(to), offset, memory, deadline_of(timeout_ms));
    return std::make_unique<PyTransfer>(channel_, fabric::spawn(*channel_->progress(), std::move(task)),
                                        std::move(buffer));
  }
  std::uint64_t fetch_add(const Descriptor& on, std::uint64_t offset, std::uint64_t value, std::int64_t timeout_ms) {
    const auto deadline = deadline_of(timeout_ms);
    auto channel = get();
    const Unlocked unlocked;
    return fabric::run_task(*channel->progress(), channel->bulk().fetch_add(descriptor_of(on), offset, value, deadline),
                            deadline);
  }
  std::uint64_t compare_swap(const Descriptor& on, std::uint64_t offset, std::uint64_t expected, std::uint64_t desired,
                             std::int64_t timeout_ms) {
    const auto deadline = deadline_of(timeout_ms);
    auto channel = get();
    const Unlocked unlocked;
    return fabric::run_task(*channel->progress(),
                            channel->bulk().compare_swap(descriptor_of(on), offset, expected, desired, deadline),
                            deadline);
  }
  std::string plane() const { return std::string(get()->bulk().plane()); }
  std::string peer() const { return get()->peer_name(); }
  std::string realm() const { return get()->realm(); }
  std::string role() const { return get()->role(); }
  bool open() const { return channel_ && channel_->open(); }
  void close() {
    const Unlocked unlocked;
    if (channel_) channel_->close();
  }

 private:
  const std::shared_ptr<rpc::Channel>& get() const {
    if (!channel_) throw Error(Errc::wrong_state, "the channel was made before a fork");
    return channel_;
  }
  std::shared_ptr<rpc::Channel> channel_;
};

// Shared with peers on this node when it is exposed.
Memory allocate(std::uint64_t bytes) {
  const Unlocked unlocked;
  auto owner = std::make_shared<rpc::BulkBuffer>(rpc::BulkBuffer::allocate(bytes));
  const auto span = owner->span();
  return memory_of(owner, span.data(), span.size(), true);
}

// ---------------------------------------------------------------------------------------------------------------- server

// A call that Python answers.
struct Incoming {
  Incoming(const rpc::Call& call, rpc::Progress& progress)
      : channel(call.shared_channel()), deadline(call.deadline()), promise(progress) {}
  std::uint32_t service = 0, method = 0;
  Bytes request;
  std::shared_ptr<rpc::Channel> channel;
  base::Deadline deadline;
  std::atomic<bool> cancelled{false};
  std::mutex mutex;  // guards the promise
  rpc::Promise<Bytes> promise;

  void reply(Bytes bytes) {
    const std::lock_guard lock(mutex);
    promise.set(std::move(bytes));
  }
  void fail(const Error& error) {
    const std::lock_guard lock(mutex);
    promise.set_error(error);
  }
};

// Calls of all services of a server or channel, until Python takes them.
struct Incomings {
  std::mutex mutex;  // guards what follows
  std::condition_variable ready;
  std::deque<std::shared_ptr<Incoming>> waiting;
  bool closed = false;

  bool add(const std::shared_ptr<Incoming>& incoming) {
    const std::lock_guard lock(mutex);
    if (closed) return false;
    waiting.push_back(incoming);
    ready.notify_one();
    return true;
  }
  std::shared_ptr<Incoming> next(std::int64_t slice_ms) {
    std::unique_lock lock(mutex);
    ready.wait_for(lock, std::chrono::milliseconds(slice_ms), [&] { return closed || !waiting.empty(); });
    if (waiting.empty()) return nullptr;
    auto first = std::move(waiting.front());
    waiting.pop_front();
    return first;
  }
  void close() {
    std::deque<std::shared_ptr<Incoming>> left;
    {
      const std::lock_guard lock(mutex);
      closed = true;
      left.swap(waiting);
      ready.notify_all();
    }
    for (const auto& incoming : left) incoming->fail(Error(Errc::cancelled, "the server ends"));
  }
};

class QueuedService final : public rpc::Service {
 public:
  QueuedService(std::uint32_t number, std::string name, std::vector<std::string> methods,
                std::shared_ptr<Incomings> incomings)
      : number_(number), name_(std::move(name)), methods_(std::move(methods)), incomings_(std::move(incomings)) {}
  std::string_view name() const override { return name_; }
  std::vector<std::string_view> methods() const override { return {methods_.begin(), methods_.end()}; }
  rpc::Task<Bytes> dispatch(rpc::Call& call, std::uint32_t method, Bytes request) override {
    auto incoming = std::make_shared<Incoming>(call, *call.channel().progress());
    incoming->service = number_;
    incoming->method = method;
    incoming->request = std::move(request);
    auto future = incoming->promise.future();
    call.on_cancelled([incoming] {
      incoming->cancelled = true;
      incoming->fail(Error(Errc::cancelled, "the caller has gone or does not wait any more"));
    });
    if (!incomings_->add(incoming)) throw Error(Errc::cancelled, "the server ends");
    incoming = nullptr;
    co_return co_await std::move(future);
  }

 private:
  const std::uint32_t number_;
  const std::string name_;
  const std::vector<std::string> methods_;
  const std::shared_ptr<Incomings> incomings_;
};

class PyIncoming {
 public:
  explicit PyIncoming(std::shared_ptr<Incoming> incoming) : incoming_(std::move(incoming)) {}
  ~PyIncoming() {
    if (!origin_.leave(incoming_)) drop_unlocked(incoming_);
  }
  std::uint32_t service() const { return incoming_->service; }
  std::uint32_t method() const { return incoming_->method; }
  Memory request() { return memory_of(std::exchange(incoming_->request, {})); }
  bool cancelled() const { return incoming_->cancelled; }
  // Milliseconds, or None.
  nb::object remaining_ms() const {
    if (incoming_->deadline.is_never()) return nb::none();
    return nb::int_(incoming_->deadline.remaining().count());
  }
  std::unique_ptr<PyChannel> channel() const { return std::make_unique<PyChannel>(incoming_->channel); }
  void reply(nb::handle bytes) { incoming_->reply(bytes_of(bytes)); }
  void fail(const std::string& code, const std::string& message) {
    for (int number = 0; number < 100; ++number)
      if (name_of(static_cast<Errc>(number)) == code) return incoming_->fail(Error(static_cast<Errc>(number), message));
    incoming_->fail(Error(Errc::internal, message));
  }

 private:
  const Origin origin_;
  std::shared_ptr<Incoming> incoming_;
};

// What one side offers.
class PyServices {
 public:
  explicit PyServices(const std::vector<std::tuple<std::string, std::vector<std::string>>>& services) {
    std::uint32_t number = 0;
    for (const auto& [name, methods] : services)
      table_->add(std::make_shared<QueuedService>(number++, name, methods, incomings_));
  }
  ~PyServices() { close(); }
  std::unique_ptr<PyIncoming> next(std::int64_t slice_ms) {
    std::shared_ptr<Incoming> incoming;
    {
      const Unlocked unlocked;
      incoming = incomings_->next(slice_ms);
    }
    return incoming ? std::make_unique<PyIncoming>(std::move(incoming)) : nullptr;
  }
  void close() {
    const Unlocked unlocked;
    incomings_->close();
  }
  const std::shared_ptr<rpc::ServiceTable>& table() const { return table_; }

 private:
  std::shared_ptr<Incomings> incomings_ = std::make_shared<Incomings>();
  std::shared_ptr<rpc::ServiceTable> table_ = std::make_shared<rpc::ServiceTable>();
};

class PyServer {
 public:
  PyServer(const Engine& engine, const PyServices& services, const std::map<std::string, std::string>& tokens,
           const std::string& listen, std::uint64_t memory_bytes) {
    std::map<std::string, fabric::Token> known;
    for (const auto& [name, hex] : tokens) known.emplace(name, fabric::Token::from_hex(hex));
    rpc::ServerOptions options;
    options.memory_bytes = memory_bytes;
    const auto token_of = [known](const std::string& name) -> std::optional<fabric::Token> {
      const auto found = known.find(name);
      if (found == known.end()) return std::nullopt;
      return found->second;
    };
    engine.get();
    const Unlocked unlocked;
    server_ = std::make_shared<rpc::Server>(engine.progress, services.table(), token_of, listen, options);
  }
  ~PyServer() { close(); }
  std::string endpoint() const {
    if (!server_) throw Error(Errc::wrong_state, "the server is closed");
    return fabric::to_text(server_->endpoint());
  }
  void close() {
    if (server_) drop_unlocked(server_);
  }
  void forget() { static_cast<void>(new std::shared_ptr<rpc::Server>(std::move(server_))); }

 private:
  std::shared_ptr<rpc::Server> server_;
};

std::unique_ptr<PyChannel> connect(const Engine& engine, const std::string& endpoint, const std::string& token,
                                   const std::string& realm_and_role, const PyServices* services,
                                   std::int64_t timeout_ms, const std::string& over) {
  const auto where = fabric::endpoint_from_text(endpoint);
  const auto secret = fabric::Token::from_hex(token);
  const auto deadline = deadline_of(timeout_ms);
  const auto reach = over == "tcp"    ? fabric::Reach::tcp_only
                     : over == "unix" ? fabric::Reach::unix_only
                                      : fabric::Reach::automatic;
  auto table = services != nullptr ? services->table() : nullptr;
  auto& progress = engine.get();
  std::shared_ptr<rpc::Channel> channel;
  {
    const Unlocked unlocked;
    channel = fabric::run_task(
        progress, rpc::connect(engine.progress, where, secret, realm_and_role, std::move(table), deadline, reach),
        deadline, "no connection to " + endpoint);
  }
  return std::make_unique<PyChannel>(std::move(channel));
}

}  // namespace

void bind_rpc(nb::module_& m) {
  nb::class_<Engine>(m, "RpcEngine", nb::is_weak_referenceable()).def(nb::init<>()).def("forget", &Engine::forget);
  nb::class_<Notices>(m, "RpcNotices").def(nb::init<>()).def("next", &Notices::next, "slice_ms"_a);
  nb::class_<PyCall>(m, "RpcCall")
      .def("cancel", &PyCall::cancel)
      .def("done", &PyCall::done)
      .def("wait", &PyCall::wait, "slice_ms"_a)
      .def("take", &PyCall::take);
  nb::class_<PyTransfer>(m, "RpcTransfer").def("wait", &PyTransfer::wait, "slice_ms"_a).def("take", &PyTransfer::take);
  nb::class_<PyExposure>(m, "RpcExposure").def("descriptor", &PyExposure::descriptor).def("close", &PyExposure::close);
  nb::class_<PyChannel>(m, "RpcChannel", nb::is_weak_referenceable())
      .def("start", &PyChannel::start, "service"_a, "method"_a, "name"_a, "request"_a, "timeout_ms"_a,
           "notices"_a.none(), "number"_a)
      .def("expose", &PyChannel::expose, "memory"_a, "writable"_a)
      .def("pull", &PyChannel::pull, "source"_a, "offset"_a, "into"_a, "timeout_ms"_a)
      .def("push", &PyChannel::push, "to"_a, "offset"_a, "memory"_a, "timeout_ms"_a)
      .def("fetch_add", &PyChannel::fetch_add, "on"_a, "offset"_a, "value"_a, "timeout_ms"_a)
      .def("compare_swap", &PyChannel::compare_swap, "on"_a, "offset"_a, "expected"_a, "desired"_a, "timeout_ms"_a)
      .def_prop_ro("plane", &PyChannel::plane)
      .def_prop_ro("peer", &PyChannel::peer)
      .def_prop_ro("realm", &PyChannel::realm)
      .def_prop_ro("role", &PyChannel::role)
      .def_prop_ro("open", &PyChannel::open)
      .def("close", &PyChannel::close)
      .def("forget", &PyChannel::forget);
  nb::class_<PyIncoming>(m, "RpcIncoming")
      .def_prop_ro("service", &PyIncoming::service)
      .def_prop_ro("method", &PyIncoming::method)
      .def("request", &PyIncoming::request)
      .def("cancelled", &PyIncoming::cancelled)
      .def("remaining_ms", &PyIncoming::remaining_ms, nb::sig("def remaining_ms(self) -> int | None"))
      .def("channel", &PyIncoming::channel)
      .def("reply", &PyIncoming::reply, "reply"_a)
      .def("fail", &PyIncoming::fail, "code"_a, "message"_a);
  nb::class_<PyServices>(m, "RpcServices")
      .def(nb::init<const std::vector<std::tuple<std::string, std::vector<std::string>>>&>(), "services"_a)
      .def("next", &PyServices::next, "slice_ms"_a)
      .def("close", &PyServices::close);
  nb::class_<PyServer>(m, "RpcServer", nb::is_weak_referenceable())
      .def(nb::init<const Engine&, const PyServices&, const std::map<std::string, std::string>&, const std::string&,
                    std::uint64_t>(),
           "engine"_a, "services"_a, "tokens"_a, "listen"_a, "memory_bytes"_a)
      .def_prop_ro("endpoint", &PyServer::endpoint)
      .def("close", &PyServer::close)
      .def("forget", &PyServer::forget);
  m.def("rpc_connect", &connect, "engine"_a, "endpoint"_a, "token"_a, "realm_and_role"_a, "services"_a.none(),
        "timeout_ms"_a, "over"_a);
  m.def("rpc_allocate", &allocate, "bytes"_a);
  m.def("rpc_token", [] { return fabric::Token::random().hex(); });
}

}  // namespace penstock::python
