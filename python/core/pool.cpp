// Pools: the extension's part. Keys are bytes, results are tuples; python/penstock/pool.py makes of them what users see.
#include "pool/client/client_impl.hpp"
#include "pool_pending.hpp"

namespace penstock::python {
namespace {

std::string text_of(nb::handle bytes) {
  auto b = nb::cast<nb::bytes>(bytes);
  return {b.c_str(), b.size()};
}

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

// (memory, info), or (code's name, message).
nb::tuple to_tuple(Result<Object>& result, bool info_only) {
  if (!result) return nb::make_tuple(std::string(name_of(result.code)), result.message);
  if (info_only) return nb::make_tuple(nb::none(), info_dict(result.value->info));
  return nb::make_tuple(nb::cast(object_memory(*result.value)), info_dict(result.value->info));
}

class PyPool {
  // The call, without the interpreter lock; another thread may close this meanwhile.
  template <class Call>
  auto unlocked(Call&& call) {
    return open_->run_with(pool_, std::forward<Call>(call));
  }

 public:
  PyPool(const Context& context, PoolOptions options) {
    Unlocked unlocked;
    pool_ = std::make_shared<Pool>(context, std::move(options));
  }
  ~PyPool() { release(); }
  // Ends its subscriptions, which otherwise outlive it, and the calls that other threads are in.
  void close() {
    open_->close();
    while (!subscriptions_->empty()) (*subscriptions_->begin())->close();
    if (auto pool = std::exchange(pool_, nullptr)) {
      Unlocked unlocked;
      pool->impl().close();
      pool.reset();
    }
  }
  void forget() {
    open_->close();
    static_cast<void>(new std::shared_ptr<Pool>(std::move(pool_)));
  }
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
    nb::list out;
    for (auto& r : put_batch(pool_, *open_, std::move(buffers), std::move(put), options)) {
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
    return std::make_unique<PyPendingPut>(std::move(pending), std::move(buffer), open_);
  }

  nb::list get(const nb::list& keys, bool wait, bool info_only, std::optional<std::uint64_t> version,
               std::optional<std::uint64_t> tag, std::uint64_t offset, std::optional<std::uint64_t> bytes,
               std::int64_t timeout_ms) {
    const auto wanted = keys_of(keys);
    const auto options = get_options(version, tag, offset, bytes, timeout_ms);
    auto results = unlocked([&](Pool& pool) {
      if (!info_only) return wait ? pool.need(wanted, options) : pool.get(wanted, options);
      std::vector<Result<Object>> infos;
      for (auto& info : pool.info(wanted, options)) {
        Result<Object> result;
        result.code = info.code;
        result.message = std::move(info.message);
        if (info.value) {
          result.value.emplace();
          result.value->info = std::move(*info.value);
        }
        infos.push_back(std::move(result));
      }
      return infos;
    });
    nb::list out;
    for (auto& r : results) out.append(to_tuple(r, info_only));
    return out;
  }

  std::unique_ptr<PyWant> want(nb::handle key, std::optional<std::uint64_t> version, std::optional<std::uint64_t> tag,
                               std::uint64_t offset, std::optional<std::uint64_t> bytes, std::int64_t timeout_ms) {
    return std::make_unique<PyWant>(pool().want(key_of(key), get_options(version, tag, offset, bytes, timeout_ms)),
                                    open_);
  }

  nb::tuple list(nb::bytes row, nb::bytes column, std::size_t limit, nb::bytes next) {
    Pattern pattern{text_of(row), text_of(column)};
    const auto from = text_of(next);
    const auto listing = unlocked([&](Pool& pool) { return pool.list(pattern, limit, from); });
    nb::list objects;
    for (const auto& info : listing.objects) objects.append(info_dict(info));
    return nb::make_tuple(objects, nb::bytes(listing.next.data(), listing.next.size()));
  }

  nb::list drop(const nb::list& keys, std::optional<std::uint64_t> version, std::optional<std::uint64_t> tag,
                std::int64_t timeout_ms) {
    const auto wanted = keys_of(keys);
    const auto options = get_options(version, tag, 0, {}, timeout_ms);
    auto results = unlocked([&](Pool& pool) { return pool.drop(wanted, options); });
    nb::list out;
    for (auto& r : results) {
      if (r) out.append(*r.value);
      else out.append(nb::make_tuple(std::string(name_of(r.code)), r.message));
    }
    return out;
  }

  std::uint64_t drop_pattern(nb::bytes row, nb::bytes column) {
    Pattern pattern{text_of(row), text_of(column)};
    return unlocked([&](Pool& pool) { return pool.drop_matching(pattern); });
  }

  nb::list wait_row(nb::bytes row, std::size_t count, nb::bytes column, std::int64_t timeout_ms) {
    const auto wanted_row = text_of(row), wanted_column = text_of(column);
    const auto infos =
        unlocked([&](Pool& pool) { return pool.wait_row(wanted_row, count, wanted_column, timeout_of(timeout_ms)); });
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
    auto object = unlocked([&](Pool& pool) { return pool.compute(function, wanted, options); });
    return nb::make_tuple(nb::cast(object_memory(object)), object.info.metadata);
  }

  nb::dict status() {
    return status_dict(unlocked([](Pool& pool) { return pool.status(); }));
  }
  std::string administer(const std::string& server, const std::string& command) {
    return unlocked([&](Pool& pool) { return pool.administer(server, command); });
  }
  std::string token(const std::string& role) {
    return unlocked([&](Pool& pool) { return pool.token(role); });
  }
  std::string directory_for_roles() {
    return unlocked([&](Pool& pool) { return pool.directory_for_roles(); });
  }
  void drop_stream(const std::string& stream) {
    unlocked([&](Pool& pool) { return pool.drop_stream(stream); });
  }
  std::string stream_info(const std::string& stream) {
    return unlocked([&](Pool& pool) { return pool.stream_info(stream); });
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
  Pool& pool() {
    open_->check();
    return *pool_;
  }
  void release() {
    if (pool_) drop_unlocked(pool_);
  }
  const std::shared_ptr<OpenState> open_ = std::make_shared<OpenState>("the pool");
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
  bind_pool_pending(m);
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
