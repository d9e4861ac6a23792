// The public face: blocking calls and pending results over the coroutines of client.cpp and pool_patterns.cpp.
#include "penstock/pool.hpp"

#include <limits>

#include "base/config.hpp"
#include "base/log.hpp"
#include "memory/kind.hpp"
#include "penstock/interrupt.hpp"
#include "penstock/stream.hpp"
#include "pool/client/client_impl.hpp"
#include "pool/keys/protocol.hpp"
#include "stream/api/context.hpp"

namespace penstock {

namespace fb = pool::fb;
using fabric::Task;

namespace {

template <class T>
T unwrap(Result<T> result) {
  if (!result) throw Error(result.code, result.message);
  return std::move(*result.value);
}

// The single result of a batch of one.
template <class T>
Task<T> single(Task<std::vector<Result<T>>> batch) {
  auto results = co_await std::move(batch);
  co_return unwrap(std::move(results.at(0)));
}

template <class T>
struct PendingState final : Pending<T>::State {
  std::shared_ptr<fabric::Progress> progress;
  fabric::Future<T> future;
  bool done() const override { return future.done(); }
  T get(Timeout timeout) override { return future.get(base::Deadline(timeout), "the call has not ended"); }
};

template <class T>
Pending<T> pending(const std::shared_ptr<fabric::Progress>& progress, Task<T> task) {
  auto state = std::make_shared<PendingState<T>>();
  state->progress = progress;
  state->future = fabric::spawn(*progress, std::move(task));
  return Pending<T>(std::move(state));
}

}  // namespace

Pool::Pool(const Context& context, PoolOptions options) : impl_(std::make_shared<Impl>()) {
  impl_->progress = context.impl_->engines.progress;
  base::check_pool(options);
  impl_->options = base::options_for_pool(std::move(options), context.impl_->options.config_file);
  impl_->ns = Namespace::named(impl_->options.ns);
  const auto deadline = impl_->deadline(configured);
  const auto settings = base::settings(context.impl_->options);
  impl_->registration = settings.directory;
  impl_->client = pool::PoolClient::open(impl_->progress, impl_->options, settings.directory, deadline);
  const std::string& folder = impl_->options.trace.empty() ? settings.trace : impl_->options.trace;
  if (folder != "off") impl_->recorder = trace::Recorder::open(folder, impl_->client->pool(), impl_->ns);
  impl_->workers = std::make_unique<fabric::Workers>(*impl_->progress, 2, "pool-client");
}

Pool::Pool(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Pool Pool::Impl::over(std::shared_ptr<pool::PoolClient> client, PoolOptions options) {
  auto impl = std::make_shared<Impl>();
  impl->progress = client->progress();
  impl->ns = Namespace::named(options.ns);
  impl->options = std::move(options);
  impl->client = std::move(client);
  impl->shares_client = true;
  impl->workers = std::make_unique<fabric::Workers>(*impl->progress, 2, "pool-client");
  return Pool(std::move(impl));
}

void Pool::Impl::close() {
  progress->call([this] {
    wanted.end();
    for (const auto& [key, end] : std::exchange(subscriptions, {})) end();
  });
  if (client && !shares_client) client->close();
}

Pool::Pool(Pool&&) noexcept = default;
Pool& Pool::operator=(Pool&& other) noexcept {
  Pool taken(std::move(other));
  impl_.swap(taken.impl_);  // what this had ends as by ~Pool
  return *this;
}
Pool::~Pool() {
  if (!impl_) return;
  if (impl_->origin.leave(impl_)) return;
  impl_->close();
  if (impl_->recorder) impl_->recorder->flush();
}

std::uint64_t WantedObjects::add(Callback callback) {
  const std::lock_guard lock(mutex_);
  if (ended_) throw Error(Errc::wrong_state, "the pool is closed");
  callbacks_.emplace(++last_, std::move(callback));
  return last_;
}

void WantedObjects::give(std::uint64_t number, Result<Object> result) {
  std::unique_lock lock(mutex_);
  const auto one = callbacks_.extract(number);
  lock.unlock();
  if (one) one.mapped()(std::move(result));
}

void WantedObjects::end() {
  std::map<std::uint64_t, Callback> callbacks;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    callbacks.swap(callbacks_);
  }
  for (const auto& [number, callback] : callbacks) {
    Result<Object> closed;
    closed.code = Errc::wrong_state;
    closed.message = "the pool is closed";
    try {
      callback(std::move(closed));
    } catch (const std::exception& error) {
      base::log(base::Level::error, "a callback for a wanted object failed", {{"why", error.what()}});
    } catch (...) {
      base::log(base::Level::error, "a callback for a wanted object failed");
    }
  }
}

const std::string& Pool::name() const { return impl_->client->pool(); }

namespace {

using trace::Operation;
using trace::Verb;

Operation put_of(Pool::Impl& impl, std::span<const Pool::PutItem> items, const PutOptions& options) {
  std::vector<Key> keys;
  for (const auto& item : items) keys.push_back(item.key);
  Operation operation = Operation::on(Verb::put, std::move(keys)).with(options, impl.resolved(options.timeout));
  for (const auto& item : items) operation.sizes.push_back(item.bytes.size());
  return operation;
}

// Makes the record of a call on keys.
auto on_keys(Pool::Impl& impl, Verb verb, std::span<const Key> keys, const GetOptions& options) {
  return [&impl, verb, keys, &options] {
    return Operation::on(verb, {keys.begin(), keys.end()}).with(options, impl.resolved(options.timeout));
  };
}

auto on_pattern(Pool::Impl& impl, Verb verb, const Pattern& pattern, std::uint64_t count = 0) {
  return [&impl, verb, &pattern, count] {
    Operation operation = Operation::on(verb, {{pattern.row, pattern.column}});
    operation.fields.count = count;
    operation.fields.timeout = impl.resolved(configured);
    return operation;
  };
}

}  // namespace

// A blocking call ends with its task, whose own deadline is the call's. It may be interrupted: then the task goes on alone, and
// has all that it needs.
template <class T>
static T wait(Pool::Impl& impl, Task<T> task) {
  impl.progress->require_may_wait();
  auto future = fabric::spawn(*impl.progress, std::move(task));
  if (!impl.progress->wait_for([&] { return future.done(); }, base::Deadline::never()))
    throw Error(Errc::cancelled, "interrupted by a signal");
  return future.take();
}

// The same for one that uses the caller's memory: only its own deadline ends it.
template <class T>
static T wait_whole(Pool::Impl& impl, Task<T> task) {
  const Uninterrupted whole;
  return fabric::run_task(*impl.progress, std::move(task), base::Deadline::never());
}

std::uint64_t Pool::put(const Key& key, std::span<const std::byte> bytes, const PutOptions& options) {
  Impl::check_key(key);
  std::vector<PutItem> items{{key, bytes}};
  return trace::recorded(
      impl_->recorder, [&] { return put_of(*impl_, items, options); },
      [&] { return wait_whole(*impl_, single(impl_->put(items, options, impl_->deadline(options.timeout)))); });
}

Pending<std::uint64_t> Pool::start_put(const Key& key, std::span<const std::byte> bytes, const PutOptions& options) {
  Impl::check_key(key);
  std::vector<PutItem> items{{key, bytes}};
  auto task = single(impl_->put(items, options, impl_->deadline(options.timeout)));
  const auto make = [&] { return put_of(*impl_, items, options); };
  return pending(impl_->progress, trace::record_task(impl_->recorder, make, std::move(task)));
}

Object Pool::get(const Key& key, const GetOptions& options) {
  Impl::check_key(key);
  return trace::recorded(impl_->recorder, on_keys(*impl_, Verb::get, {&key, 1}, options), [&] {
    return wait(*impl_, single(impl_->get({key}, options, false, false, impl_->deadline(options.timeout))));
  });
}

std::uint64_t Pool::get_into(const Key& key, std::span<std::byte> memory, const GetOptions& options) {
  const auto object = get(key, options);
  const auto bytes = object.bytes();
  if (bytes.size() > memory.size())
    throw Error(Errc::invalid_argument, Impl::item_text(key) + " has " + std::to_string(bytes.size()) +
                                            " bytes, more than there is memory for (" + std::to_string(memory.size()) +
                                            ")");
  memory::copy_out(memory.data(), bytes.data(), bytes.size());
  return bytes.size();
}

Object Pool::need(const Key& key, const GetOptions& options) {
  Impl::check_key(key);
  return trace::recorded(impl_->recorder, on_keys(*impl_, Verb::need, {&key, 1}, options), [&] {
    return wait(*impl_, single(impl_->get({key}, options, true, false, impl_->deadline(options.timeout))));
  });
}

Pending<Object> Pool::want(const Key& key, const GetOptions& options) {
  Impl::check_key(key);
  auto task = single(impl_->get({key}, options, true, false, impl_->deadline(options.timeout)));
  const auto make = on_keys(*impl_, Verb::want, {&key, 1}, options);
  return pending(impl_->progress, trace::record_task(impl_->recorder, make, std::move(task)));
}

void Pool::want(const Key& key, std::function<void(Result<Object>)> callback, const GetOptions& options) {
  Impl::check_key(key);
  impl_->origin.check("this");
  auto task = trace::record_task(impl_->recorder, on_keys(*impl_, Verb::want, {&key, 1}, options),
                                 impl_->get({key}, options, true, false, impl_->deadline(options.timeout)));
  const auto number = impl_->wanted.add(std::move(callback));
  auto future =
      std::make_shared<fabric::Future<std::vector<Result<Object>>>>(fabric::spawn(*impl_->progress, std::move(task)));
  future->then([future, impl = impl_, number] {
    Result<Object> result;
    try {
      result = std::move(future->take().at(0));
    } catch (const Error& error) {
      result.code = error.code();
      result.message = error.what();
    }
    impl->wanted.give(number, std::move(result));
  });
}

ObjectInfo Pool::info(const Key& key, const GetOptions& options) {
  Impl::check_key(key);
  return trace::recorded(impl_->recorder, on_keys(*impl_, Verb::info, {&key, 1}, options), [&] {
    return wait(*impl_, single(impl_->get({key}, options, false, true, impl_->deadline(options.timeout)))).info;
  });
}

Listing Pool::list(const Pattern& pattern, std::size_t limit, const std::string& next) {
  pool::KeyPattern checked(pattern);
  if (limit == 0) throw Error(Errc::invalid_argument, "a listing of at most 0 objects");
  return trace::recorded(impl_->recorder, on_pattern(*impl_, Verb::list, pattern, limit),
                         [&] { return wait(*impl_, impl_->list(pattern, limit, next, impl_->deadline(configured))); });
}

bool Pool::drop(const Key& key, const GetOptions& options) {
  Impl::check_key(key);
  return trace::recorded(impl_->recorder, on_keys(*impl_, Verb::drop, {&key, 1}, options), [&] {
    return wait(*impl_, single(impl_->drop({key}, options, impl_->deadline(options.timeout))));
  });
}

std::uint64_t Pool::drop_matching(const Pattern& pattern) {
  pool::KeyPattern checked(pattern);
  return trace::recorded(impl_->recorder, on_pattern(*impl_, Verb::drop_pattern, pattern),
                         [&] { return wait(*impl_, impl_->drop_pattern(pattern, impl_->deadline(configured))); });
}

std::vector<Result<std::uint64_t>> Pool::put(std::span<const PutItem> items, const PutOptions& options) {
  for (const auto& item : items) Impl::check_key(item.key);
  std::vector<PutItem> copied(items.begin(), items.end());
  return trace::recorded(
      impl_->recorder, [&] { return put_of(*impl_, items, options); },
      [&] { return wait_whole(*impl_, impl_->put(std::move(copied), options, impl_->deadline(options.timeout))); });
}

std::vector<Result<Object>> Pool::get(std::span<const Key> keys, const GetOptions& options) {
  for (const auto& key : keys) Impl::check_key(key);
  return trace::recorded(impl_->recorder, on_keys(*impl_, Verb::get, keys, options), [&] {
    return wait(*impl_,
                impl_->get({keys.begin(), keys.end()}, options, false, false, impl_->deadline(options.timeout)));
  });
}

std::vector<Result<Object>> Pool::need(std::span<const Key> keys, const GetOptions& options) {
  for (const auto& key : keys) Impl::check_key(key);
  return trace::recorded(impl_->recorder, on_keys(*impl_, Verb::need, keys, options), [&] {
    return wait(*impl_, impl_->get({keys.begin(), keys.end()}, options, true, false, impl_->deadline(options.timeout)));
  });
}

std::vector<Result<ObjectInfo>> Pool::info(std::span<const Key> keys, const GetOptions& options) {
  for (const auto& key : keys) Impl::check_key(key);
  auto objects = trace::recorded(impl_->recorder, on_keys(*impl_, Verb::info, keys, options), [&] {
    return wait(*impl_, impl_->get({keys.begin(), keys.end()}, options, false, true, impl_->deadline(options.timeout)));
  });
  std::vector<Result<ObjectInfo>> infos(objects.size());
  for (std::size_t i = 0; i < objects.size(); ++i) {
    infos[i].code = objects[i].code;
    infos[i].message = std::move(objects[i].message);
    if (objects[i].value) infos[i].value = std::move(objects[i].value->info);
  }
  return infos;
}

std::vector<Result<bool>> Pool::drop(std::span<const Key> keys, const GetOptions& options) {
  for (const auto& key : keys) Impl::check_key(key);
  return trace::recorded(impl_->recorder, on_keys(*impl_, Verb::drop, keys, options), [&] {
    return wait(*impl_, impl_->drop({keys.begin(), keys.end()}, options, impl_->deadline(options.timeout)));
  });
}

std::vector<ObjectInfo> Pool::wait_row(const std::string& row, std::size_t count, const std::string& column,
                                       Timeout timeout) {
  Impl::check_key({row, ""});
  if (constexpr auto most = std::numeric_limits<std::uint32_t>::max(); count > most)
    throw Error(Errc::invalid_argument, "wait_row waits for at most " + std::to_string(most) + " objects");
  const auto make = [&] {
    Operation operation = Operation::on(Verb::wait_row, {{row, column}});
    operation.fields.count = count;
    operation.fields.timeout = impl_->resolved(timeout);
    return operation;
  };
  return trace::recorded(impl_->recorder, make,
                         [&] { return wait(*impl_, impl_->wait_row(row, count, column, impl_->deadline(timeout))); });
}

std::unique_ptr<Subscription> Pool::subscribe(const Pattern& pattern, std::function<void(const ObjectEvent&)> callback,
                                              bool existing) {
  pool::KeyPattern checked(pattern);
  impl_->origin.check("this");
  const auto make = [&] {
    Operation operation = on_pattern(*impl_, Verb::subscribe, pattern)();
    operation.fields.existing = existing;
    return operation;
  };
  return trace::recorded(impl_->recorder, make,
                         [&] { return impl_->subscribe(pattern, std::move(callback), existing); });
}

Object Pool::compute(const std::string& function, std::span<const Key> keys, const ComputeOptions& options) {
  for (const auto& key : keys) Impl::check_key(key);
  if (keys.empty()) throw Error(Errc::invalid_argument, "nothing to compute on");
  const auto make = [&] {
    Operation operation = Operation::on(Verb::compute, {keys.begin(), keys.end()});
    operation.with(options, impl_->resolved(options.timeout)).function = function;
    return operation;
  };
  return trace::recorded(impl_->recorder, make, [&] {
    return wait(*impl_,
                impl_->compute(function, {keys.begin(), keys.end()}, options, impl_->deadline(options.timeout)));
  });
}

PoolStatus Pool::status() {
  return trace::recorded(
      impl_->recorder, [] { return Operation::on(Verb::status); },
      [&] { return wait(*impl_, impl_->status(impl_->deadline(configured))); });
}

// ----------------------------------------------------------------------------------------------------- compute and status

Task<Object> Pool::Impl::compute(std::string function, std::vector<Key> keys, ComputeOptions compute_options,
                                 Deadline deadline) {
  auto self = shared_from_this();
  const auto row = keys.front().row;
  std::function<Task<Object>(Channel, std::uint64_t, Attempt)> call =
      [self, function, keys, compute_options, deadline](Channel channel, std::uint64_t view, Attempt) {
        return self->send_compute(std::move(channel), view, function, keys, compute_options, deadline);
      };
  co_return co_await client->at_primary<Object>(ns, row, std::nullopt, deadline, std::move(call));
}

Task<Object> Pool::Impl::send_compute(Channel channel, std::uint64_t view, std::string function, std::vector<Key> keys,
                                      ComputeOptions compute_options, Deadline deadline) {
  auto self = shared_from_this();
  fb::ComputeRequestT request;
  request.view = view;
  request.function = std::move(function);
  request.keys = pool::pack_keys(ns, keys);
  request.arguments = compute_options.arguments;
  request.time_ms = compute_options.time_ms;
  request.memory_bytes = compute_options.memory_bytes;
  request.wait = compute_options.wait;
  rpc::CallOptions call_options{deadline};
  auto reply = std::make_shared<fb::ComputeReplyT>();
  *reply = co_await fb::ObjectsClient(channel).compute(std::move(request), call_options);
  Object object;
  object.info.metadata = reply->metadata;
  object.info.bytes = reply->bytes.size();
  object.bytes_ = std::as_bytes(std::span(reply->bytes));
  object.owner = reply;
  co_return object;
}

Task<PoolStatus> Pool::Impl::status(Deadline deadline) { return client->status(deadline); }

}  // namespace penstock
