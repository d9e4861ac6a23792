// The C API: pools.
#include "penstock/pool.h"

#include "capi/capi.hpp"
#include "penstock/pool.hpp"

using namespace penstock;
using namespace penstock::capi;

static_assert(static_cast<int>(PENSTOCK_IF_EXISTS_ADD_VERSION) == static_cast<int>(IfExists::add_version));
static_assert(static_cast<int>(PENSTOCK_ACKNOWLEDGE_DURABLE) == static_cast<int>(Acknowledge::durable));
static_assert(static_cast<int>(PENSTOCK_OBJECT_DROPPED) == static_cast<int>(ObjectEvent::What::dropped));

struct penstock_pool {
  Pool pool;
};

struct penstock_subscription {
  std::unique_ptr<Subscription> subscription;
};

namespace penstock::capi {
namespace {

Pool& of(penstock_pool* pool) { return need(pool, "pool").pool; }

std::string part_of(const char* bytes, std::size_t size, const char* what) {
  if (size > max_key_bytes)
    throw Error(Errc::invalid_argument, std::string(what) + " has " + std::to_string(size) + " bytes; at most " +
                                            std::to_string(max_key_bytes) + " are allowed");
  return size == 0 ? std::string() : std::string(&need(bytes, what), size);
}

Key key_of(const penstock_key& key) {
  return {part_of(key.row, key.row_bytes, "the key's row"), part_of(key.column, key.column_bytes, "the key's column")};
}

Pattern pattern_of(const char* row, const char* column) { return {row ? row : "*", column ? column : "*"}; }

// The caller's options, or zeros, in the struct as this library knows it.
template <class Options>
Options known(const Options* options) {
  Options known{};
  if (options) copy_grown(*options, &known, std::min(options->struct_size, sizeof known));
  return known;
}

std::optional<std::uint64_t> tag_of(int tagged, std::uint64_t tag) {
  return tagged ? std::optional(tag) : std::nullopt;
}

PutOptions put_options(const penstock_put_options* options, std::int64_t timeout_ms) {
  const auto given = known(options);
  PutOptions chosen;
  chosen.if_exists = enum_of(given.if_exists, IfExists::add_version, "if_exists");
  chosen.acknowledge = enum_of(given.acknowledge, Acknowledge::durable, "acknowledge");
  chosen.tag = tag_of(given.tagged, given.tag);
  chosen.metadata = text_of(given.metadata);
  chosen.timeout = timeout_of(timeout_ms);
  return chosen;
}

GetOptions get_options(const penstock_get_options* options, std::int64_t timeout_ms) {
  const auto given = known(options);
  GetOptions chosen;
  if (given.version > 0) chosen.version = given.version;
  chosen.tag = tag_of(given.tagged, given.tag);
  chosen.offset = given.offset;
  if (given.bytes > 0) chosen.bytes = given.bytes;
  chosen.timeout = timeout_of(timeout_ms);
  return chosen;
}

penstock_object_info to_c(const ObjectInfo& info) {
  const auto& [row, column] = info.key;
  return {{row.c_str(), row.size(), column.c_str(), column.size()},
          info.bytes,
          info.version,
          info.checksum,
          info.put_us,
          info.in_memory,
          info.on_disk,
          info.waiters,
          info.metadata.c_str()};
}

struct HeldObject : penstock_object {
  explicit HeldObject(Object its) : penstock_object{}, object(std::move(its)) {
    data = object.bytes().data();
    bytes = object.bytes().size();
    info = to_c(object.info);
  }
  Object object;
};

void give(std::vector<ObjectInfo> found, penstock_object_info** infos, size_t* count) {
  const auto size = found.size();
  *infos = array_for_c<penstock_object_info>(std::move(found), [](const ObjectInfo& info) { return to_c(info); });
  if (count) *count = size;
}

std::vector<ObjectInfo> list(Pool& pool, const Pattern& pattern, std::size_t limit) {
  constexpr std::size_t page = 1000;
  std::vector<ObjectInfo> all;
  Listing listing;
  do {
    listing = pool.list(pattern, limit == 0 ? page : std::min(page, limit - all.size()), listing.next);
    std::ranges::move(listing.objects, std::back_inserter(all));
  } while (!listing.next.empty() && (limit == 0 || all.size() < limit));
  return all;
}

penstock_server_status to_c(const ServerStatus& its) {
  return {its.id.c_str(), its.name.c_str(), its.state.c_str(), its.objects,  its.memory_bytes, its.memory_limit,
          its.disk_bytes, its.disk_free,    its.journal_bytes, its.puts,     its.gets,         its.evictions,
          its.recalls,    its.waiting,      its.bytes_in,      its.bytes_out};
}

}  // namespace
}  // namespace penstock::capi

extern "C" {

int penstock_pool_create(penstock_context* context, const char* options, penstock_pool** pool, penstock_error* error) {
  return guarded(error, [&] {
    need(pool, "pool");
    auto chosen = pool_options(options);
    *pool = new penstock_pool{Pool(need(context, "context").context, std::move(chosen))};
  });
}

void penstock_pool_destroy(penstock_pool* pool) { delete pool; }

const char* penstock_pool_name(const penstock_pool* pool) { return pool ? pool->pool.name().c_str() : ""; }

void penstock_object_destroy(penstock_object* object) { delete static_cast<HeldObject*>(object); }

void penstock_object_infos_free(penstock_object_info* infos) { free_array<ObjectInfo>(infos); }

int penstock_pool_put(penstock_pool* pool, penstock_key key, const void* data, size_t bytes,
                      const penstock_put_options* options, int64_t timeout_ms, uint64_t* version,
                      penstock_error* error) {
  return guarded(error, [&] {
    const auto* first = bytes == 0 ? nullptr : &need(static_cast<const std::byte*>(data), "data");
    const auto put = of(pool).put(key_of(key), std::span(first, bytes), put_options(options, timeout_ms));
    if (version) *version = put;
  });
}

int penstock_pool_get(penstock_pool* pool, penstock_key key, const penstock_get_options* options, int64_t timeout_ms,
                      penstock_object** object, penstock_error* error) {
  return guarded(error, [&] {
    need(object, "object");
    *object = new HeldObject(of(pool).get(key_of(key), get_options(options, timeout_ms)));
  });
}

int penstock_pool_get_into(penstock_pool* pool, penstock_key key, void* memory, size_t capacity,
                           const penstock_get_options* options, int64_t timeout_ms, uint64_t* bytes,
                           penstock_error* error) {
  return guarded(error, [&] {
    need(bytes, "bytes");
    auto* first = capacity == 0 ? nullptr : &need(static_cast<std::byte*>(memory), "memory");
    *bytes = of(pool).get_into(key_of(key), std::span(first, capacity), get_options(options, timeout_ms));
  });
}

int penstock_pool_need(penstock_pool* pool, penstock_key key, const penstock_get_options* options, int64_t timeout_ms,
                       penstock_object** object, penstock_error* error) {
  return guarded(error, [&] {
    capi::need(object, "object");
    *object = new HeldObject(of(pool).need(key_of(key), get_options(options, timeout_ms)));
  });
}

int penstock_pool_info(penstock_pool* pool, penstock_key key, const penstock_get_options* options, int64_t timeout_ms,
                       penstock_object_info** info, penstock_error* error) {
  return guarded(error, [&] {
    need(info, "info");
    std::vector<ObjectInfo> found;
    found.push_back(of(pool).info(key_of(key), get_options(options, timeout_ms)));
    give(std::move(found), info, nullptr);
  });
}

int penstock_pool_drop(penstock_pool* pool, penstock_key key, const penstock_get_options* options, int64_t timeout_ms,
                       int* dropped, penstock_error* error) {
  return guarded(error, [&] {
    const bool there = of(pool).drop(key_of(key), get_options(options, timeout_ms));
    if (dropped) *dropped = there;
  });
}

int penstock_pool_list(penstock_pool* pool, const char* row, const char* column, size_t limit,
                       penstock_object_info** infos, size_t* count, penstock_error* error) {
  return guarded(error, [&] {
    need(infos, "infos");
    need(count, "count");
    give(list(of(pool), pattern_of(row, column), limit), infos, count);
  });
}

int penstock_pool_drop_matching(penstock_pool* pool, const char* row, const char* column, uint64_t* dropped,
                                penstock_error* error) {
  return guarded(error, [&] {
    const auto many = of(pool).drop_matching(pattern_of(row, column));
    if (dropped) *dropped = many;
  });
}

int penstock_pool_wait_row(penstock_pool* pool, const char* row, size_t least, const char* column, int64_t timeout_ms,
                           penstock_object_info** infos, size_t* count, penstock_error* error) {
  return guarded(error, [&] {
    need(infos, "infos");
    need(count, "count");
    give(of(pool).wait_row(&need(row, "row"), least, column ? column : "*", timeout_of(timeout_ms)), infos, count);
  });
}

int penstock_pool_subscribe(penstock_pool* pool, const char* row, const char* column, penstock_object_function function,
                            void* user, int existing, penstock_subscription** subscription, penstock_error* error) {
  return guarded(error, [&] {
    need(subscription, "subscription");
    if (!function) throw Error(Errc::invalid_argument, "function is NULL");
    const auto call = [function, user](const ObjectEvent& event) {
      const auto info = to_c(event.info);
      function(static_cast<int>(event.what), &info, user);
    };
    *subscription = new penstock_subscription{of(pool).subscribe(pattern_of(row, column), call, existing != 0)};
  });
}

int penstock_subscription_lost(const penstock_subscription* subscription, uint64_t* lost, penstock_error* error) {
  return guarded(error, [&] {
    auto& out = need(lost, "lost");
    out = need(subscription, "subscription").subscription->lost();
  });
}

int penstock_subscription_check(const penstock_subscription* subscription, penstock_error* error) {
  return guarded(error, [&] { need(subscription, "subscription").subscription->check(); });
}

void penstock_subscription_destroy(penstock_subscription* subscription) { delete subscription; }

int penstock_pool_compute(penstock_pool* pool, const char* function, size_t num_keys, const penstock_key* keys,
                          const penstock_compute_options* options, int64_t timeout_ms, penstock_object** object,
                          penstock_error* error) {
  return guarded(error, [&] {
    need(object, "object");
    const auto given = known(options);
    ComputeOptions chosen;
    if (given.arguments) chosen.arguments = given.arguments;
    if (given.time_ms > 0) chosen.time_ms = given.time_ms;
    if (given.memory_bytes > 0) chosen.memory_bytes = given.memory_bytes;
    chosen.wait = given.wait != 0;
    chosen.timeout = timeout_of(timeout_ms);
    std::vector<Key> all;
    for (std::size_t i = 0; i < num_keys; ++i) all.push_back(key_of((&need(keys, "keys"))[i]));
    *object = new HeldObject(of(pool).compute(&need(function, "function"), all, chosen));
  });
}

int penstock_pool_stream_info(penstock_pool* pool, const char* stream, char** text, penstock_error* error) {
  return guarded(error, [&] {
    auto& out = need(text, "text");  // before anything is done
    out = new_text(of(pool).stream_info(&need(stream, "stream")));
  });
}

int penstock_pool_drop_stream(penstock_pool* pool, const char* stream, penstock_error* error) {
  return guarded(error, [&] { of(pool).drop_stream(&need(stream, "stream")); });
}

int penstock_pool_status(penstock_pool* pool, penstock_server_status** servers, size_t* count, penstock_error* error) {
  return guarded(error, [&] {
    need(servers, "servers");
    need(count, "count");
    auto found = of(pool).status().servers;
    const auto size = found.size();
    *servers = array_for_c<penstock_server_status>(std::move(found), [](const ServerStatus& its) { return to_c(its); });
    *count = size;
  });
}

void penstock_server_status_free(penstock_server_status* servers) { free_array<ServerStatus>(servers); }

int penstock_pool_administer(penstock_pool* pool, const char* server, const char* command, char** text,
                             penstock_error* error) {
  return guarded(error, [&] {
    auto& out = need(text, "text");
    out = new_text(of(pool).administer(&need(server, "server"), &need(command, "command")));
  });
}

int penstock_pool_token(penstock_pool* pool, const char* role, char** text, penstock_error* error) {
  return guarded(error, [&] {
    auto& out = need(text, "text");
    out = new_text(of(pool).token(&need(role, "role")));
  });
}

int penstock_pool_directory_for_roles(penstock_pool* pool, char** text, penstock_error* error) {
  return guarded(error, [&] {
    auto& out = need(text, "text");
    out = new_text(of(pool).directory_for_roles());
  });
}

}  // extern "C"
