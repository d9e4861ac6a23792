#include "rpc/channel.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "fabric/handshake.hpp"
#include "rpc/channel_impl.hpp"

namespace penstock::rpc {

namespace {

constexpr std::size_t batch_bytes = std::size_t{256} << 10;  // a frame that is this long goes
constexpr std::uint32_t direct_calls = 4;                    // fewer under way: latency counts; more: they share frames
// Of what the connection holds back before it gives the peer up (fabric::max_queue_bytes); behind it, bodies are pulled.
constexpr std::uint64_t behind_bytes = std::uint64_t{8} << 20;
constexpr std::size_t behind_inline_bytes = 256;

std::string split_realm(const std::string& realm_and_role, std::string& role) {
  const auto slash = realm_and_role.rfind('/');
  role = slash == std::string::npos ? "" : realm_and_role.substr(slash + 1);
  return realm_and_role.substr(0, slash);
}

std::uint32_t wire_deadline(base::Deadline deadline) {
  if (deadline.is_never()) return no_deadline;
  return static_cast<std::uint32_t>(std::min<std::int64_t>(deadline.remaining().count(), no_deadline - 1));
}

}  // namespace

// --------------------------------------------------------------------------------------------------- calls and services

void Call::on_cancelled(std::function<void()> callback) {
  if (cancelled_) callback();
  else callbacks_.push_back(std::move(callback));
}

void Call::cancel() {
  if (std::exchange(cancelled_, true)) return;
  for (auto& callback : std::exchange(callbacks_, {})) callback();
}

void ServiceTable::add(std::shared_ptr<Service> service) {
  const auto id = service_id(service->name());
  const auto [at, added] = services_.emplace(id, service);
  if (!added)
    throw Error(Errc::invalid_argument, "service '" + std::string(service->name()) + "' and '" +
                                            std::string(at->second->name()) + "' cannot be offered together");
}

std::shared_ptr<Service> ServiceTable::find(std::uint64_t id) const {
  const auto found = services_.find(id);
  return found == services_.end() ? nullptr : found->second;
}

// ------------------------------------------------------------------------------------------------------------ sending

Channel::Impl::Impl(std::shared_ptr<Progress> progress_, std::shared_ptr<fabric::Connection> connection_,
                    std::shared_ptr<const ServiceTable> services_, ServerOptions options_)
    : progress(std::move(progress_)),
      connection(std::move(connection_)),
      services(std::move(services_)),
      options(options_) {}

Channel::Impl::~Impl() = default;

void Channel::Impl::send_soon() {
  if (out.size() >= batch_bytes) {
    flush_locked();
    return;
  }
  const bool engine = progress->on_engine_thread();
  if (engine && delivering) return;  // sent when the frame that is being delivered has been
  if (!engine && in_flight.load(std::memory_order_relaxed) <= direct_calls) {
    flush_locked();
    return;
  }
  if (std::exchange(flush_posted, true)) return;
  progress->post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->flush();
  });
}

void Channel::Impl::flush() {
  std::lock_guard lock(out_mutex);
  flush_posted = false;
  flush_locked();
}

void Channel::Impl::flush_locked() {
  if (out.empty()) return;
  connection->send(static_cast<std::uint16_t>(FrameKind::items), "rpc-items", out);
  counters.frames_sent.fetch_add(1, std::memory_order_relaxed);
  out.clear();
  if (out.capacity() > 2 * batch_bytes) out = {};
}

void Channel::Impl::pass(std::string_view name, std::span<const std::byte> message, int fd) {
  if (fd < 0) {
    send_item([&](auto& to) { append_link(to, message); });
    return;
  }
  std::lock_guard lock(out_mutex);
  flush_locked();
  connection->send(static_cast<std::uint16_t>(FrameKind::link), name, message, fd);
  counters.frames_sent.fetch_add(1, std::memory_order_relaxed);
}

bool Channel::Impl::behind() const { return connection->queued_bytes() > behind_bytes; }

std::unique_ptr<Channel::Impl::LongBody> Channel::Impl::expose_body(std::vector<std::byte> bytes) {
  if (bytes.size() > max_body_bytes) throw Error(Errc::invalid_argument, "a body of more than 4 GiB; use bulk memory");
  auto body = std::make_unique<LongBody>();
  body->bytes = std::move(bytes);
  body->exposure = bulk->expose(std::span<const std::byte>(body->bytes));
  return body;
}

// --------------------------------------------------------------------------------------------------------- calls made

std::uint64_t Channel::Impl::begin(std::string_view service, std::uint32_t method, std::vector<std::byte> body,
                                   CallOptions options, std::unique_ptr<Completion> completion) {
  origin.check("the channel to " + connection->peer_name());
  Pending call{std::move(completion), service, method, options.method_name, options.deadline, nullptr};
  const auto id_of_service = service_id(service);
  const auto deadline_ms = wire_deadline(options.deadline);
  try {
    if (body.size() > max_inline_bytes || (body.size() > behind_inline_bytes && behind()))
      call.request = expose_body(std::move(body));
  } catch (...) {
    call.completion->failed(std::current_exception());
    return 0;
  }
  const LongBody* const long_body = call.request.get();
  std::uint64_t id = 0;
  {
    std::lock_guard lock(calls_mutex);
    if (!has_ended) {
      id = next_call++;
      pending.emplace(id, std::move(call));
      in_flight.store(static_cast<std::uint32_t>(pending.size()), std::memory_order_relaxed);
      call_deadlines.add(
          *progress, options.deadline, id, pending.size(),
          [this](std::uint64_t each) { return pending.contains(each); },
          [weak = weak_from_this()] {
            if (const auto self = weak.lock()) self->on_due_calls();
          });
    }
  }
  if (id == 0) {
    std::optional<Error> why;
    {
      std::lock_guard lock(end_mutex);
      why = end_error;
    }
    call.completion->failed(std::make_exception_ptr(
        why ? *why : Error(Errc::peer_lost, connection->peer_name() + ": the channel is closed")));
    return 0;
  }
  counters.calls_made.fetch_add(1, std::memory_order_relaxed);
  if (long_body != nullptr) {
    // Its owner is in the table; only our answer or our deadline ends it, and neither touches the descriptor.
    const WireBulk where = long_request_of(id);
    if (where.bytes != 0)
      send_item([&](auto& to) { append_long_call(to, id, id_of_service, method, deadline_ms, where); });
  } else {
    send_item([&](auto& to) { append_call(to, id, id_of_service, method, deadline_ms, body); });
  }
  return id;
}

// Nothing when the call has ended meanwhile.
WireBulk Channel::Impl::long_request_of(std::uint64_t id) {
  std::lock_guard lock(calls_mutex);
  const auto found = pending.find(id);
  return found == pending.end() ? WireBulk{} : transport::to_wire(found->second.request->exposure.descriptor());
}

std::optional<Channel::Impl::Pending> Channel::Impl::take_pending(std::uint64_t id) {
  std::lock_guard lock(calls_mutex);
  const auto found = pending.find(id);
  if (found == pending.end()) return std::nullopt;
  std::optional<Pending> out(std::move(found->second));
  pending.erase(found);
  in_flight.store(static_cast<std::uint32_t>(pending.size()), std::memory_order_relaxed);
  return out;
}

void Channel::Impl::cancel(std::uint64_t id) {
  auto call = take_pending(id);
  if (!call) return;
  send_item([&](auto& to) { append_plain(to, ItemType::cancel, id); });
  call->completion->failed(std::make_exception_ptr(Error(Errc::cancelled, "the call was cancelled")));
}

void Channel::Impl::on_due_calls() {
  std::vector<std::uint64_t> due;
  {
    std::lock_guard lock(calls_mutex);
    due = call_deadlines.take_due(*progress, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->on_due_calls();
    });
  }
  for (const auto id : due) {
    auto call = take_pending(id);
    if (!call) continue;
    send_item([&](auto& to) { append_plain(to, ItemType::cancel, id); });
    const std::string what = call->what();
    call->completion->failed(std::make_exception_ptr(
        Error(Errc::timeout, connection->peer_name() + (what.empty() ? "" : " ") + what + ": no answer in time")));
  }
}

void Channel::Impl::on_reply(const Item& item) {
  if (item.long_body) {
    base::Deadline deadline = base::Deadline::never();
    {
      std::lock_guard lock(calls_mutex);
      const auto found = pending.find(item.id);
      if (found == pending.end()) return;  // the cancellation that is under way releases the body
      deadline = found->second.deadline;
      found->second.request.reset();
    }
    if (const auto channel = owner.lock()) fetch(channel, item.id, *item.long_body, deadline);
    return;
  }
  if (auto call = take_pending(item.id)) call->completion->replied({item.body.begin(), item.body.end()});
}

// Pulls a long reply.
fabric::detail::Detached Channel::Impl::fetch(std::shared_ptr<Channel> channel, std::uint64_t id, WireBulk body,
                                              base::Deadline deadline) {
  Impl& impl = channel->impl();
  std::exception_ptr failure;
  std::vector<std::byte> bytes;
  try {
    if (body.bytes > max_body_bytes) throw Error(Errc::protocol, impl.connection->peer_name() + ": too long a reply");
    const Budget::Credit credit = co_await impl.budget->acquire(body.bytes, deadline);
    bytes.resize(body.bytes);
    const BulkDescriptor from = transport::to_descriptor(body);
    const std::span<std::byte> into(bytes);
    co_await impl.bulk->pull(from, 0, into, deadline);
  } catch (...) {
    failure = std::current_exception();
  }
  impl.send_item([&](auto& to) { append_plain(to, ItemType::release, id); });
  auto call = impl.take_pending(id);
  if (!call) co_return;
  if (failure) call->completion->failed(failure);
  else call->completion->replied(std::move(bytes));
}

void Channel::Impl::on_failure(const Item& item) {
  auto call = take_pending(item.id);
  if (!call) return;
  std::string text(item.where);
  const std::string what = call->what();
  if (!what.empty() && text.find(' ') == std::string::npos) text += " " + what;  // the peer did not know the method
  if (!text.empty()) text += ": ";
  call->completion->failed(std::make_exception_ptr(Error(item.code, text.append(item.message))));
}

// ------------------------------------------------------------------------------------------------------- calls served

void Channel::Impl::on_call(const Item& item) {
  const auto channel = owner.lock();
  if (!channel) return;
  const auto deadline = item.deadline_ms == no_deadline
                            ? base::Deadline::never()
                            : base::Deadline(Timeout(static_cast<std::int64_t>(item.deadline_ms)));
  if (serving.contains(item.id)) throw Error(Errc::protocol, "two calls of one number");
  const auto record = std::make_shared<Serving>(channel, deadline);
  serving.emplace(item.id, record);
  if (serving.size() > options.max_calls) {
    fail(item.id, record, fabric::process_name(), Errc::overloaded,
         "more than " + std::to_string(options.max_calls) + " calls at once (max_calls)");
    return;
  }
  const auto service = services ? services->find(item.service) : nullptr;
  if (!service || item.method >= service->methods().size()) {
    fail(item.id, record, fabric::process_name(), Errc::not_found,
         service ? "no such method is offered here" : "no such service is offered here");
    return;
  }
  serving_deadlines.add(
      *progress, deadline, item.id, serving.size(), [this](std::uint64_t id) { return serving.contains(id); },
      [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->on_due_serving();
      });
  serve(channel, item.id, record, service, item.method, {item.body.begin(), item.body.end()}, item.long_body);
}

fabric::detail::Detached Channel::Impl::serve(std::shared_ptr<Channel> channel, std::uint64_t id,
                                              std::shared_ptr<Serving> serving, std::shared_ptr<Service> service,
                                              std::uint32_t method, std::vector<std::byte> body,
                                              std::optional<WireBulk> long_body) {
  Impl& impl = channel->impl();
  const base::Deadline deadline = serving->call.deadline();
  Errc code = Errc::ok;
  std::string message;
  std::vector<std::byte> answer;
  try {
    const std::uint64_t bytes = long_body ? long_body->bytes : body.size();
    if (bytes > max_body_bytes) throw Error(Errc::invalid_argument, "too long a request");
    std::optional<Budget::Credit> credit = impl.budget->try_acquire(bytes);
    if (!credit) credit = co_await impl.budget->acquire(bytes, deadline);
    if (long_body) {
      body.resize(bytes);
      const BulkDescriptor from = transport::to_descriptor(*long_body);
      const std::span<std::byte> into(body);
      co_await impl.bulk->pull(from, 0, into, deadline);
    }
    if (!serving->call.cancelled()) answer = co_await service->dispatch(serving->call, method, std::move(body));
  } catch (const Error& error) {
    code = error.code();
    message = error.what();
  } catch (const std::exception& error) {
    code = Errc::internal;
    message = error.what();
  }
  serving->call.forget_callbacks();
  impl.counters.calls_served.fetch_add(1, std::memory_order_relaxed);
  if (code == Errc::ok) {
    impl.reply(id, serving, std::move(answer));
    co_return;
  }
  const std::string where = is_own(service->name()) ? ""
                                                    : fabric::process_name() + " " + std::string(service->name()) +
                                                          "." + std::string(service->methods()[method]);
  impl.fail(id, serving, where, code, message);
}

void Channel::Impl::reply(std::uint64_t id, const std::shared_ptr<Serving>& record, std::vector<std::byte> body) {
  const bool gone = record->call.cancelled();
  if (gone || body.size() <= behind_inline_bytes || (body.size() <= max_inline_bytes && !behind())) {
    serving.erase(id);
    if (!gone) send_item([&](auto& to) { append_reply(to, id, body); });
    return;
  }
  try {
    record->reply = expose_body(std::move(body));
  } catch (const Error& error) {
    fail(id, record, fabric::process_name(), error.code(), error.what());
    return;
  }
  const WireBulk where = transport::to_wire(record->reply->exposure.descriptor());
  send_item([&](auto& to) { append_long_reply(to, id, where); });
}

void Channel::Impl::fail(std::uint64_t id, const std::shared_ptr<Serving>& record, const std::string& where, Errc code,
                         std::string_view message) {
  serving.erase(id);
  if (record->call.cancelled()) return;
  send_item([&](auto& to) { append_failure(to, id, code, where, message); });
}

// The caller has gone, or has what it wanted.
void Channel::Impl::cancel_serving(std::uint64_t id) {
  const auto found = serving.find(id);
  if (found == serving.end()) return;
  const auto record = found->second;
  record->call.cancel();
  // Without a body to pull, its method ends it.
  if (record->reply) serving.erase(id);
}

void Channel::Impl::on_due_serving() {
  for (const auto id : serving_deadlines.take_due(*progress, [weak = weak_from_this()] {
         if (const auto self = weak.lock()) self->on_due_serving();
       }))
    cancel_serving(id);
}

// ---------------------------------------------------------------------------------------------------------- receiving

void Channel::Impl::start(std::weak_ptr<Channel> owner_) {
  owner = std::move(owner_);
  connection->start(
      [weak = weak_from_this()](std::uint16_t kind, std::span<const std::byte> bytes, memory::UniqueFd fd) {
        if (const auto self = weak.lock()) self->on_frame(kind, bytes, std::move(fd));
      },
      [weak = weak_from_this()](const Error& error) {
        if (const auto self = weak.lock()) self->end(error);
      });
}

void Channel::Impl::on_frame(std::uint16_t kind, std::span<const std::byte> bytes, memory::UniqueFd fd) {
  if (has_ended) return;  // retired
  switch (static_cast<FrameKind>(kind)) {
    case FrameKind::items: {
      struct Delivering {
        bool& flag;
        explicit Delivering(bool& f) : flag(f) { flag = true; }
        ~Delivering() { flag = false; }
      };
      {
        Delivering now(delivering);
        ItemReader reader(bytes);
        while (auto item = reader.next()) {
          on_item(*item);
          if (has_ended) return;
        }
      }
      flush();
      return;
    }
    case FrameKind::link: bulk->on_message(bytes, std::move(fd)); return;
    default: throw Error(Errc::protocol, "a message of unknown kind " + std::to_string(kind));
  }
}

void Channel::Impl::on_item(Item& item) {
  switch (item.type) {
    case ItemType::call: on_call(item); return;
    case ItemType::reply: on_reply(item); return;
    case ItemType::failure: on_failure(item); return;
    case ItemType::cancel:
    case ItemType::release: cancel_serving(item.id); return;
    case ItemType::link: bulk->on_message(item.body, {}); return;
  }
}

// The first end counts. Everything that is under way ends with it.
void Channel::Impl::end(const Error& error, bool hang_up) {
  const auto self = shared_from_this();
  if (has_ended) {
    if (hang_up) connection->close();  // after retire
    return;
  }
  std::vector<std::function<void(const Error&)>> callbacks;
  decltype(pending) calls;
  {
    std::lock_guard lock(calls_mutex);
    if (has_ended.exchange(true)) return;
    calls.swap(pending);
    call_deadlines.clear();
  }
  {
    std::lock_guard lock(end_mutex);
    end_error = error;
    callbacks.swap(on_closed);
  }
  const auto failure = std::make_exception_ptr(error);
  for (auto& [id, call] : calls) call.completion->failed(failure);
  serving_deadlines.clear();
  std::vector<std::uint64_t> served;
  for (const auto& [id, record] : serving) served.push_back(id);
  for (const auto id : served) cancel_serving(id);
  bulk->end(error);
  for (const auto& callback : callbacks) callback(error);
  if (hang_up) connection->close();
}

// ------------------------------------------------------------------------------------------------------------ Channel

namespace {

class PromiseOfBytes final : public Completion {
 public:
  explicit PromiseOfBytes(Progress& progress) : promise_(progress) {}
  Future<std::vector<std::byte>> future() { return promise_.future(); }
  void replied(std::vector<std::byte> reply) override { promise_.set(std::move(reply)); }
  void failed(std::exception_ptr error) override { promise_.set_error(std::move(error)); }

 private:
  Promise<std::vector<std::byte>> promise_;
};

// Cancels a call whose task is dropped.
struct CancelOnDrop {
  std::shared_ptr<Channel> channel;
  std::uint64_t call = 0;
  ~CancelOnDrop() {
    if (call != 0) channel->cancel(call);
  }
};

}  // namespace

Channel::Channel(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

// Nothing of the channel runs afterwards.
Channel::~Channel() {
  impl_->flush();
  impl_->progress->call(
      [this] { impl_->end(Error(Errc::peer_lost, impl_->connection->peer_name() + ": the channel was closed")); });
}

std::shared_ptr<Channel> Channel::adopt(std::shared_ptr<Progress> progress,
                                        std::shared_ptr<fabric::Connection> connection,
                                        std::shared_ptr<const ServiceTable> services, std::string realm_and_role,
                                        ServerOptions options, std::shared_ptr<Budget> budget) {
  auto impl = std::make_shared<Impl>(progress, std::move(connection), std::move(services), options);
  impl->realm = split_realm(realm_and_role, impl->role);
  impl->budget = budget ? std::move(budget) : std::make_shared<Budget>(*progress, options.memory_bytes);
  impl->bulk = transport::make_link_end(*impl);
  const std::shared_ptr<Channel> channel(new Channel(impl));
  impl->start(channel);
  return channel;
}

std::uint64_t Channel::begin(std::string_view service, std::uint32_t method, std::vector<std::byte> body,
                             CallOptions options, std::unique_ptr<Completion> completion) {
  return impl_->begin(service, method, std::move(body), options, std::move(completion));
}

void Channel::cancel(std::uint64_t call) { impl_->cancel(call); }

Future<std::vector<std::byte>> Channel::start(std::string_view service, std::uint32_t method,
                                              std::vector<std::byte> body, CallOptions options) {
  auto promise = std::make_unique<PromiseOfBytes>(*impl_->progress);
  auto future = promise->future();
  impl_->begin(service, method, std::move(body), options, std::move(promise));
  return future;
}

Task<std::vector<std::byte>> Channel::call(std::string_view service, std::uint32_t method, std::vector<std::byte> body,
                                           CallOptions options) {
  auto promise = std::make_unique<PromiseOfBytes>(*impl_->progress);
  auto future = promise->future();
  CancelOnDrop guard{shared_from_this(), 0};
  guard.call = impl_->begin(service, method, std::move(body), options, std::move(promise));
  auto reply = co_await std::move(future);
  guard.call = 0;
  co_return reply;
}

BulkSpace& Channel::bulk() { return *impl_->bulk; }
Budget& Channel::budget() { return *impl_->budget; }

void Channel::on_closed(std::function<void(const Error&)> callback) {
  std::optional<Error> why;
  {
    std::lock_guard lock(impl_->end_mutex);
    if (!impl_->end_error) {
      impl_->on_closed.push_back(std::move(callback));
      return;
    }
    why = impl_->end_error;
  }
  if (impl_->progress->on_engine_thread()) callback(*why);
  else impl_->progress->post([callback = std::move(callback), why] { callback(*why); });
}

void Channel::close() { impl_->finish(true); }
void Channel::retire() { impl_->finish(false); }

void Channel::Impl::finish(bool hang_up) {
  flush();
  if (has_ended && !(hang_up && connection->open())) return;
  const auto now = [self = shared_from_this(), hang_up] {
    self->end(Error(Errc::peer_lost, self->connection->peer_name() + ": the channel was closed"), hang_up);
  };
  if (progress->on_engine_thread() || !progress->threaded()) now();
  else progress->post(now);
}

bool Channel::open() const { return !impl_->origin.inherited() && !impl_->has_ended && impl_->connection->open(); }
bool Channel::shares_memory() const { return impl_->bulk->plane() == "shm"; }
const std::string& Channel::peer_name() const { return impl_->connection->peer_name(); }
const std::string& Channel::realm() const { return impl_->realm; }
const std::string& Channel::role() const { return impl_->role; }
const std::shared_ptr<Progress>& Channel::progress() const { return impl_->progress; }

Channel::Statistics Channel::statistics() const {
  const auto& c = impl_->counters;
  return {c.calls_made,
          c.calls_served,
          c.frames_sent,
          impl_->connection->bytes_sent(),
          impl_->bulk->bytes_pulled(),
          impl_->bulk->bytes_pushed()};
}

}  // namespace penstock::rpc
