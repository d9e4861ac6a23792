// Pools: the extension's part. Keys are bytes, results are tuples; python/penstock/pool.py makes of them what users see.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <condition_variable>
#include <deque>
#include <list>
#include <set>
#include <thread>

#include "core.hpp"
#include "penstock/pool.hpp"

namespace penstock::python {
namespace {

std::string text_of(nb::handle bytes) {
  auto b = nb::cast<nb::bytes>(bytes);
  return {b.c_str(), b.size()};
}
nb::bytes python_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

Key key_of(nb::handle pair) {
  auto parts = nb::cast<nb::tuple>(pair);
  if (parts.size() != 2) throw Error(Errc::invalid_argument, "a key is a row and a column");
  return {text_of(parts[0]), text_of(parts[1])};
}

// An object's bytes lie as they are sent: one after the other.
Buffer packed_bytes(nb::handle data) {
  Buffer buffer(data, false);
  if (!buffer.packed(Order::row))
    throw Error(Errc::invalid_argument, "the data's bytes do not lie one after the other: copy it first (bytes(data))");
  return buffer;
}

std::vector<Key> keys_of(const nb::list& list) {
  std::vector<Key> keys;
  keys.reserve(list.size());
  for (nb::handle each : list) keys.push_back(key_of(each));
  return keys;
}

template <class T>
T choice(const std::string& name, const char* what, std::initializer_list<std::pair<const char*, T>> choices) {
  std::string known;
  for (const auto& [text, value] : choices) {
    if (name == text) return value;
    known += (known.empty() ? "" : ", ") + std::string(text);
  }
  throw Error(Errc::invalid_argument, std::string(what) + " '" + name + "' is not one of " + known);
}

nb::dict info_dict(const ObjectInfo& info) {
  nb::dict out;
  out["row"] = python_bytes(info.key.row);
  out["column"] = python_bytes(info.key.column);
  out["bytes"] = info.bytes;
  out["version"] = info.version;
  out["checksum"] = info.checksum;
  out["put_us"] = info.put_us;
  out["in_memory"] = info.in_memory;
  out["on_disk"] = info.on_disk;
  out["waiters"] = info.waiters;
  out["metadata"] = info.metadata;
  return out;
}

std::unique_ptr<Memory> object_memory(Object& object) {
  auto memory = std::make_unique<Memory>();
  memory->data = const_cast<std::byte*>(object.bytes().data());
  memory->size = object.bytes().size();
  memory->owner = object.owner;
  memory->box = {{0}, {memory->size}};
  memory->strides = {1};
  return memory;
}

// (memory, info), or (code's name, message).
nb::tuple to_tuple(Result<Object>& result, bool info_only) {
  if (!result) return nb::make_tuple(std::string(name_of(result.code)), result.message);
  if (info_only) return nb::make_tuple(nb::none(), info_dict(result.value->info));
  return nb::make_tuple(nb::cast(object_memory(*result.value)), info_dict(result.value->info));
}

class PySubscription;
using OpenSubscriptions = std::set<PySubscription*>;  // of one pool; with the interpreter lock

// What subscriptions saw and Python has not yet taken. Filled on the library's thread, which takes no interpreter lock.
class PySubscription {
 public:
  PySubscription(std::shared_ptr<Pool> pool, const Pattern& pattern, bool existing,
                 std::shared_ptr<OpenSubscriptions> all)
      : pool_(std::move(pool)), all_(std::move(all)) {
    subscription_ = pool_->subscribe(
        pattern,
        [shared = shared_](const ObjectEvent& event) {
          std::lock_guard lock(shared->mutex);
          if (shared->events.size() >= max_events) {
            ++shared->lost;
            return;
          }
          shared->events.push_back(event);
          shared->ready.notify_one();
        },
        existing);
    all_->insert(this);
  }
  ~PySubscription() { close(); }
  // Also while another thread waits in next(), and from its pool's close(), which owns none.
  void close() {
    all_->erase(this);
    if (origin_.leave(subscription_, pool_)) return;
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->closed = true;
      shared_->ready.notify_all();
    }
    auto ended = std::make_pair(std::move(subscription_), std::move(pool_));  // dropped in this order
    if (ended.first) drop_unlocked(ended);
  }
  bool closed() const { return !subscription_; }
  // (dropped, info), or None after the slice, or when it is closed.
  nb::object next(std::int64_t slice_ms) {
    origin_.check("the subscription");
    std::optional<ObjectEvent> event;
    {
      Unlocked unlocked;
      std::unique_lock lock(shared_->mutex);
      const auto ready = [&] { return shared_->closed || !shared_->events.empty(); };
      shared_->ready.wait_for(lock, std::chrono::milliseconds(slice_ms), ready);
      if (!shared_->closed && !shared_->events.empty()) {
        event = std::move(shared_->events.front());
        shared_->events.pop_front();
      }
    }
    if (!event) return nb::none();
    return nb::make_tuple(event->what == ObjectEvent::What::dropped, info_dict(event->info));
  }
  std::uint64_t lost() const {
    origin_.check("the subscription");
    std::lock_guard lock(shared_->mutex);
    return shared_->lost;
  }

 private:
  static constexpr std::size_t max_events = 1'000'000;
  struct Shared {
    mutable std::mutex mutex;
    std::condition_variable ready;
    std::deque<ObjectEvent> events;
    std::uint64_t lost = 0;
    bool closed = false;
  };
  const Origin origin_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::shared_ptr<Pool> pool_;
  std::unique_ptr<Subscription> subscription_;
  std::shared_ptr<OpenSubscriptions> all_;
};

// What it came to, or nothing after the slice. An outcome of its own that is a timeout is told from the slice's.
template <class T>
std::optional<T> within_slice(Pending<T>& pending, std::int64_t slice_ms) {
  Unlocked unlocked;
  if (!pending.done()) try {
      return pending.get(Timeout(slice_ms));
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
      if (!pending.done()) return std::nullopt;
    }
  return pending.get();
}

// A put that is under way and its bytes. Those that nobody waits for any more, because a signal came or the object was dropped,
// are kept until they have ended, which their deadlines bound: the library reads the bytes until then.
class PyPendingPut {
 public:
  PyPendingPut(Pending<std::uint64_t> pending, Buffer buffer)
      : pending_(std::move(pending)), buffer_(std::move(buffer)) {}
  ~PyPendingPut() {
    if (origin_.leave(pending_, buffer_)) return;
    auto& left = left_over();
    std::erase_if(left, [](const auto& one) { return one.first.done(); });
    if (!pending_.done()) left.emplace_back(std::move(pending_), std::move(buffer_));
  }
  PyPendingPut(const PyPendingPut&) = delete;
  PyPendingPut& operator=(const PyPendingPut&) = delete;
  bool done() const {
    origin_.check("the put");
    return pending_.done();
  }
  // The version, or None after the slice.
  nb::object wait(std::int64_t slice_ms) {
    const auto version = within_slice(pending_, slice_ms);
    return version ? nb::object(nb::int_(*version)) : nb::none();
  }

 private:
  using Left = std::list<std::pair<Pending<std::uint64_t>, Buffer>>;
  // Used with the interpreter lock; never destroyed, as the interpreter may be gone by then.
  static Left& left_over() {
    static auto* left = new Left();
    return *left;
  }
  const Origin origin_;
  Pending<std::uint64_t> pending_;
  Buffer buffer_;
};

class PyWant {
 public:
  explicit PyWant(Pending<Object> pending) : pending_(std::move(pending)) {}
  bool done() const {
    origin_.check("the request");
    return pending_.done();
  }
  // (memory, info), or None after the slice.
  nb::object wait(std::int64_t slice_ms) {
    auto object = within_slice(pending_, slice_ms);
    if (!object) return nb::none();
    return nb::make_tuple(nb::cast(object_memory(*object)), info_dict(object->info));
  }

 private:
  const Origin origin_;
  Pending<Object> pending_;
};

// A batch of puts, by a thread that Python need not wait for: when a signal comes, it goes on alone until its deadline, and its
// bytes are kept as long.
struct Batch {
  Batch(std::shared_ptr<Pool> to, std::vector<Buffer> bytes, std::vector<Pool::PutItem> what, PutOptions how)
      : pool(std::move(to)), buffers(std::move(bytes)), items(std::move(what)), options(how) {}

  static std::vector<Result<std::uint64_t>> run(const std::shared_ptr<Batch>& batch) {
    if (!batch->pool) throw Error(Errc::wrong_state, "the pool is closed");
    static auto* all = new std::list<std::shared_ptr<Batch>>();  // with the interpreter lock; never destroyed
    std::erase_if(*all, [](const auto& one) { return one->ended(); });
    all->push_back(batch);
    wait(*batch);
    all->remove(batch);
    if (batch->error) std::rethrow_exception(batch->error);
    return std::move(batch->results);
  }

 private:
  static void wait(Batch& batch) {
    Unlocked unlocked;
    std::thread([&batch] { batch.put(); }).detach();
    std::unique_lock lock(batch.mutex);
    while (!batch.changed.wait_for(lock, slice, [&] { return batch.done; })) {
      lock.unlock();
      if (interrupted()) throw Error(Errc::cancelled, "interrupted by a signal");
      lock.lock();
    }
  }
  static constexpr std::chrono::milliseconds slice{50};
  void put() {
    try {
      results = pool->put(items, options);
    } catch (...) {
      error = std::current_exception();
    }
    auto last = std::exchange(pool, nullptr);
    last.reset();
    const std::lock_guard lock(mutex);  // held to the end: who has seen done may free this
    done = true;
    changed.notify_all();
  }
  bool ended() {
    const std::lock_guard lock(mutex);
    return done;
  }
  std::shared_ptr<Pool> pool;
  const std::vector<Buffer> buffers;
  const std::vector<Pool::PutItem> items;
  const PutOptions options;
  std::vector<Result<std::uint64_t>> results;
  std::exception_ptr error;
  std::mutex mutex;  // guards done
  std::condition_variable changed;
  bool done = false;
};

class PyPool {
 public:
  PyPool(const Context& context, PoolOptions options) {
    Unlocked unlocked;
    pool_ = std::make_shared<Pool>(context, std::move(options));
  }
  ~PyPool() { release(); }
  // Ends its subscriptions, which otherwise outlive it.
  void close() {
    while (!subscriptions_->empty()) (*subscriptions_->begin())->close();
    release();
  }
  void forget() { static_cast<void>(new std::shared_ptr<Pool>(std::move(pool_))); }
  std::string name() { return pool().name(); }

  static PutOptions put_options(const std::string& if_exists, const std::string& acknowledge,
                                std::optional<std::uint64_t> tag, const std::string& metadata,
                                std::int64_t timeout_ms) {
    PutOptions options;
    options.if_exists = choice<IfExists>(
        if_exists, "if_exists",
        {{"refuse", IfExists::refuse}, {"overwrite", IfExists::overwrite}, {"add_version", IfExists::add_version}});
    options.acknowledge = choice<Acknowledge>(
        acknowledge, "acknowledge",
        {{"memory", Acknowledge::memory}, {"replicated", Acknowledge::replicated}, {"durable", Acknowledge::durable}});
    options.tag = tag;
    options.metadata = metadata;
    options.timeout = timeout_of(timeout_ms);
    return options;
  }
  static GetOptions get_options(std::optional<std::uint64_t> version, std::optional<std::uint64_t> tag,
                                std::uint64_t offset, std::optional<std::uint64_t> bytes, std::int64_t timeout_ms) {
    GetOptions options;
    options.version = version;
    options.tag = tag;
    options.offset = offset;
    if (bytes) options.bytes = *bytes;
    options.timeout = timeout_of(timeout_ms);
    return options;
  }

  // For each (row, column, buffer): the version, or (code's name, message).
  nb::list put(const nb::list& items, const std::string& if_exists, const std::string& acknowledge,
               std::optional<std::uint64_t> tag, const std::string& metadata, std::int64_t timeout_ms) {
    const auto options = put_options(if_exists, acknowledge, tag, metadata, timeout_ms);
    std::vector<Buffer> buffers;
    std::vector<Pool::PutItem> put;
    buffers.reserve(items.size());
    for (nb::handle each : items) {
      auto item = nb::cast<nb::tuple>(each);
      buffers.push_back(packed_bytes(item[2]));
      put.push_back({{text_of(item[0]), text_of(item[1])},
                     {static_cast<const std::byte*>(buffers.back().data()), buffers.back().bytes()}});
    }
    auto batch = std::make_shared<Batch>(pool_, std::move(buffers), std::move(put), options);
    auto results = Batch::run(batch);
    nb::list out;
    for (auto& r : results) {
      if (r) out.append(*r.value);
      else out.append(nb::make_tuple(std::string(name_of(r.code)), r.message));
    }
    return out;
  }

  std::unique_ptr<PyPendingPut> start_put(nb::handle key, nb::handle data, const std::string& if_exists,
                                          const std::string& acknowledge, std::optional<std::uint64_t> tag,
                                          const std::string& metadata, std::int64_t timeout_ms) {
    const auto options = put_options(if_exists, acknowledge, tag, metadata, timeout_ms);
    Buffer buffer = packed_bytes(data);
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(buffer.data()), buffer.bytes());
    auto pending = pool().start_put(key_of(key), bytes, options);
    return std::make_unique<PyPendingPut>(std::move(pending), std::move(buffer));
  }

  nb::list get(const nb::list& keys, bool wait, bool info_only, std::optional<std::uint64_t> version,
               std::optional<std::uint64_t> tag, std::uint64_t offset, std::optional<std::uint64_t> bytes,
               std::int64_t timeout_ms) {
    const auto wanted = keys_of(keys);
    const auto options = get_options(version, tag, offset, bytes, timeout_ms);
    std::vector<Result<Object>> results;
    {
      auto keep = pool_;
      Unlocked unlocked;
      if (info_only) {
        for (auto& info : held(keep).info(wanted, options)) {
          Result<Object> result;
          result.code = info.code;
          result.message = std::move(info.message);
          if (info.value) {
            result.value.emplace();
            result.value->info = std::move(*info.value);
          }
          results.push_back(std::move(result));
        }
      } else {
        results = wait ? held(keep).need(wanted, options) : held(keep).get(wanted, options);
      }
    }
    nb::list out;
    for (auto& r : results) out.append(to_tuple(r, info_only));
    return out;
  }

  std::unique_ptr<PyWant> want(nb::handle key, std::optional<std::uint64_t> version, std::optional<std::uint64_t> tag,
                               std::uint64_t offset, std::optional<std::uint64_t> bytes, std::int64_t timeout_ms) {
    return std::make_unique<PyWant>(pool().want(key_of(key), get_options(version, tag, offset, bytes, timeout_ms)));
  }

  nb::tuple list(nb::bytes row, nb::bytes column, std::size_t limit, nb::bytes next) {
    Pattern pattern{text_of(row), text_of(column)};
    const auto from = text_of(next);
    Listing listing;
    {
      auto keep = pool_;
      Unlocked unlocked;
      listing = held(keep).list(pattern, limit, from);
    }
    nb::list objects;
    for (const auto& info : listing.objects) objects.append(info_dict(info));
    return nb::make_tuple(objects, python_bytes(listing.next));
  }

  nb::list drop(const nb::list& keys, std::optional<std::uint64_t> version, std::optional<std::uint64_t> tag,
                std::int64_t timeout_ms) {
    const auto wanted = keys_of(keys);
    const auto options = get_options(version, tag, 0, {}, timeout_ms);
    std::vector<Result<bool>> results;
    {
      auto keep = pool_;
      Unlocked unlocked;
      results = held(keep).drop(wanted, options);
    }
    nb::list out;
    for (auto& r : results) {
      if (r) out.append(*r.value);
      else out.append(nb::make_tuple(std::string(name_of(r.code)), r.message));
    }
    return out;
  }

  std::uint64_t drop_pattern(nb::bytes row, nb::bytes column) {
    Pattern pattern{text_of(row), text_of(column)};
    auto keep = pool_;
    Unlocked unlocked;
    return held(keep).drop_matching(pattern);
  }

  nb::list wait_row(nb::bytes row, std::size_t count, nb::bytes column, std::int64_t timeout_ms) {
    const auto wanted_row = text_of(row), wanted_column = text_of(column);
    std::vector<ObjectInfo> infos;
    {
      auto keep = pool_;
      Unlocked unlocked;
      infos = held(keep).wait_row(wanted_row, count, wanted_column, timeout_of(timeout_ms));
    }
    nb::list out;
    for (const auto& info : infos) out.append(info_dict(info));
    return out;
  }

  std::unique_ptr<PySubscription> subscribe(nb::bytes row, nb::bytes column, bool existing) {
    pool();
    return std::make_unique<PySubscription>(pool_, Pattern{text_of(row), text_of(column)}, existing, subscriptions_);
  }

  nb::tuple compute(const std::string& function, const nb::list& keys, const std::string& arguments,
                    std::uint32_t time_ms, std::uint64_t memory_bytes, bool wait, std::int64_t timeout_ms) {
    const auto wanted = keys_of(keys);
    ComputeOptions options;
    options.arguments = arguments;
    options.time_ms = time_ms;
    options.memory_bytes = memory_bytes;
    options.wait = wait;
    options.timeout = timeout_of(timeout_ms);
    Object object;
    {
      auto keep = pool_;
      Unlocked unlocked;
      object = held(keep).compute(function, wanted, options);
    }
    return nb::make_tuple(nb::cast(object_memory(object)), object.info.metadata);
  }

  nb::dict status() {
    PoolStatus status;
    {
      auto keep = pool_;
      Unlocked unlocked;
      status = held(keep).status();
    }
    return status_dict(status);
  }
  std::string administer(const std::string& server, const std::string& command) {
    auto keep = pool_;
    Unlocked unlocked;
    return held(keep).administer(server, command);
  }
  std::string token(const std::string& role) {
    auto keep = pool_;
    Unlocked unlocked;
    return held(keep).token(role);
  }
  std::string directory_for_roles() {
    auto keep = pool_;
    Unlocked unlocked;
    return held(keep).directory_for_roles();
  }
  void drop_stream(const std::string& stream) {
    auto keep = pool_;
    Unlocked unlocked;
    held(keep).drop_stream(stream);
  }
  std::string stream_info(const std::string& stream) {
    auto keep = pool_;
    Unlocked unlocked;
    return held(keep).stream_info(stream);
  }

  static nb::dict status_dict(const PoolStatus& status) {
    nb::list servers;
    for (const auto& s : status.servers) {
      nb::dict d;
      d["id"] = s.id;
      d["name"] = s.name;
      d["state"] = s.state;
      d["objects"] = s.objects;
      d["memory_bytes"] = s.memory_bytes;
      d["memory_limit"] = s.memory_limit;
      d["disk_bytes"] = s.disk_bytes;
      d["disk_free"] = s.disk_free;
      d["journal_bytes"] = s.journal_bytes;
      d["puts"] = s.puts;
      d["gets"] = s.gets;
      d["evictions"] = s.evictions;
      d["recalls"] = s.recalls;
      d["waiting"] = s.waiting;
      d["bytes_in"] = s.bytes_in;
      d["bytes_out"] = s.bytes_out;
      servers.append(d);
    }
    nb::dict out;
    out["name"] = status.name;
    out["view"] = status.view;
    out["settled"] = status.settled;
    out["replication"] = status.replication;
    out["servers"] = servers;
    return out;
  }

 private:
  static Pool& held(const std::shared_ptr<Pool>& pool) {
    if (!pool) throw Error(Errc::wrong_state, "the pool is closed");
    return *pool;
  }
  Pool& pool() { return held(pool_); }
  void release() {
    if (pool_) drop_unlocked(pool_);
  }
  std::shared_ptr<Pool> pool_;
  std::shared_ptr<OpenSubscriptions> subscriptions_ = std::make_shared<OpenSubscriptions>();
};

}  // namespace

PoolOptions pool_options_of(const nb::dict& options) {
  PoolOptions chosen;
  for (auto [key, value] : options) set_option(chosen, nb::cast<std::string>(key), nb::cast<std::string>(value));
  return chosen;
}

nb::object open_pool(const Context& context, const nb::dict& options) {
  return nb::cast(std::make_unique<PyPool>(context, pool_options_of(options)));
}

nb::list known_pools(const Context& context, const std::string& directory, std::int64_t timeout_ms) {
  std::vector<PoolStatus> known;
  {
    Unlocked unlocked;
    known = Pool::known(context, directory, timeout_of(timeout_ms));
  }
  nb::list out;
  for (const auto& status : known) out.append(PyPool::status_dict(status));
  return out;
}

void bind_pool(nb::module_& m) {
  nb::class_<PySubscription>(m, "Subscription")
      .def("next", &PySubscription::next, "slice_ms"_a,
           nb::sig("def next(self, slice_ms: int) -> tuple[bool, dict[str, typing.Any]] | None"))
      .def("lost", &PySubscription::lost)
      .def("closed", &PySubscription::closed)
      .def("close", &PySubscription::close);
  nb::class_<PyPendingPut>(m, "PendingPut")
      .def("done", &PyPendingPut::done)
      .def("wait", &PyPendingPut::wait, "slice_ms"_a, nb::sig("def wait(self, slice_ms: int) -> int | None"));
  nb::class_<PyWant>(m, "Want")
      .def("done", &PyWant::done)
      .def("wait", &PyWant::wait, "slice_ms"_a,
           nb::sig("def wait(self, slice_ms: int) -> tuple[Memory, dict[str, typing.Any]] | None"));
  nb::class_<PyPool>(m, "Pool")
      .def_prop_ro("name", &PyPool::name)
      .def("put", &PyPool::put, "items"_a, "if_exists"_a, "acknowledge"_a, "tag"_a.none(), "metadata"_a, "timeout_ms"_a)
      .def("start_put", &PyPool::start_put, "key"_a, "data"_a, "if_exists"_a, "acknowledge"_a, "tag"_a.none(),
           "metadata"_a, "timeout_ms"_a)
      .def("get", &PyPool::get, "keys"_a, "wait"_a, "info_only"_a, "version"_a.none(), "tag"_a.none(), "offset"_a,
           "bytes"_a.none(), "timeout_ms"_a)
      .def("want", &PyPool::want, "key"_a, "version"_a.none(), "tag"_a.none(), "offset"_a, "bytes"_a.none(),
           "timeout_ms"_a)
      .def("list_objects", &PyPool::list, "row"_a, "column"_a, "limit"_a, "next"_a)
      .def("drop", &PyPool::drop, "keys"_a, "version"_a.none(), "tag"_a.none(), "timeout_ms"_a)
      .def("drop_pattern", &PyPool::drop_pattern, "row"_a, "column"_a)
      .def("wait_row", &PyPool::wait_row, "row"_a, "count"_a, "column"_a, "timeout_ms"_a)
      .def("subscribe", &PyPool::subscribe, "row"_a, "column"_a, "existing"_a)
      .def("compute", &PyPool::compute, "function"_a, "keys"_a, "arguments"_a, "time_ms"_a, "memory_bytes"_a, "wait"_a,
           "timeout_ms"_a)
      .def("status", &PyPool::status)
      .def("administer", &PyPool::administer, "server"_a, "command"_a)
      .def("token", &PyPool::token, "role"_a)
      .def("directory_for_roles", &PyPool::directory_for_roles)
      .def("stream_info", &PyPool::stream_info, "stream"_a)
      .def("drop_stream", &PyPool::drop_stream, "stream"_a)
      .def("close", &PyPool::close)
      .def("forget", &PyPool::forget);
}

}  // namespace penstock::python
