// Pools: objects kept by staging servers that outlive the programs that put them.
//
// An object has a key (a row and a column, binary-safe, at most 4 KiB each) in a namespace, and bytes. It is write-once unless
// asked otherwise. Where an object lies follows from its key and the pool's present view; programs never need to know. A pool
// may keep replicas on other servers and copies on disk; how safe a put is when it returns is the put's choice.
// Source: SAND2020-9451 (FAODEL/Kelpie), with replication, durability, deadlines and back-pressure added.
//
// Threads: a Pool may be shared by threads. Blocking calls are for application threads; callbacks run on the library's thread
// and must not block. Every call ends by its deadline (PoolOptions::timeout_ms unless given). Errors: already_exists,
// not_found, pool_full, timeout (names the servers), peer_lost (no server that has the object can be reached), forbidden,
// invalid_argument. A server that dies meanwhile is noticed and the call made again elsewhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/options.hpp"
#include "penstock/types.hpp"

namespace penstock {

class Context;

inline constexpr std::size_t max_key_bytes = 4096;  // of a row, and of a column

// Keeps users of one pool apart: 128 bits, so that names do not collide.
struct Namespace {
  std::array<std::uint8_t, 16> bytes{};
  static Namespace named(std::string_view name);  // a strong hash of the name; "" is all zeros
  friend auto operator<=>(const Namespace&, const Namespace&) = default;
};

struct Key {
  std::string row{};
  std::string column{};
  friend auto operator<=>(const Key&, const Key&) = default;
};

enum class IfExists : std::uint8_t { refuse, overwrite, add_version };

// What a put may say beyond key and bytes.
struct PutOptions {
  IfExists if_exists = IfExists::refuse;
  Acknowledge acknowledge = Acknowledge::memory;  // how safe it is when put returns (options.hpp)
  std::optional<std::uint64_t> tag{};  // placed by this number instead of the key's hash (rank, stripe, curve position)
  std::string metadata{};  // returned by info and get; at most 64 KiB. Computing expects described arrays here
                           // (describe below)
  Timeout timeout = configured;
};
// get, need, info, drop of an object that was put with a tag need the same tag.
struct GetOptions {
  std::optional<std::uint64_t> version{};  // absent: the newest
  std::optional<std::uint64_t> tag{};
  std::uint64_t offset = 0, bytes = ~std::uint64_t{0};  // a part of it
  Timeout timeout = configured;
};

struct ObjectInfo {
  Key key{};
  std::uint64_t bytes = 0;
  std::uint64_t version = 0;   // from 1, ascending; with gaps
  std::uint64_t checksum = 0;  // XXH3 of the bytes
  std::int64_t put_us = 0;     // microseconds since 1970
  bool in_memory = false, on_disk = false;
  std::uint32_t waiters = 0;
  std::string metadata;
};

// Bytes fetched, with what is known of them. The memory is the Object's own.
class Object {
 public:
  ObjectInfo info;
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes_;
};

// One result of a batch: a value, or what went wrong with that one.
template <class T>
struct Result {
  std::optional<T> value;
  Errc code = Errc::ok;
  std::string message;
  explicit operator bool() const { return value.has_value(); }
};

// A pending result: get() waits; or give a callback to the call that made it.
template <class T>
class Pending {
 public:
  struct State {
    virtual ~State() = default;
    virtual bool done() const = 0;
    virtual T get(Timeout timeout) = 0;
  };
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool done() const { return state_->done(); }
  // Throws what the call threw; Error(timeout) after the timeout (the call goes on).
  T get(Timeout timeout = forever) { return state_->get(timeout); }

 private:
  std::shared_ptr<State> state_;
};

// Which keys: a pattern matches rows and columns each by exact text, by prefix ("heat*"), or as a glob (* ? [a-z]); a
// backslash takes the next character as it is.
struct Pattern {
  std::string row = "*";
  std::string column = "*";
};

struct Listing {
  std::vector<ObjectInfo> objects;  // in key order of each server, merged: row, then column
  std::string next;                 // give it back to go on; "": the end
};

struct ObjectEvent {
  enum class What : std::uint8_t { put, dropped } what = What::put;
  ObjectInfo info;
};
// Ends when destroyed, or with its pool. The others may be called from any thread; from the callback once subscribe has returned.
class Subscription {
 public:
  virtual ~Subscription() = default;
  // Events that may have been missed: those that servers threw away because the client did not take them fast enough, and one more
  // for each server or connection that was lost: some may have been lost with it.
  virtual std::uint64_t lost() const = 0;
  // Throws the error with which a server refuses the subscription (overloaded: the client has too many; forbidden), as long as it
  // does: it is asked again each second. Servers that are gone are no error.
  virtual void check() const = 0;
};

struct ComputeOptions {
  std::string arguments = "{}";  // JSON
  std::uint32_t time_ms = 10'000;
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  bool wait = false;  // for objects that are not there yet
  Timeout timeout = configured;
};

struct ServerStatus {
  std::string id, name, state;  // "active", "draining", "lost"
  std::uint64_t objects = 0, memory_bytes = 0, memory_limit = 0, disk_bytes = 0, disk_free = 0;
  std::uint64_t journal_bytes = 0;  // of the tiers' journals, beside disk_bytes
  std::uint64_t puts = 0, gets = 0, evictions = 0, recalls = 0, waiting = 0, bytes_in = 0, bytes_out = 0;
};
struct PoolStatus {
  std::string name;
  std::uint64_t view = 0;
  bool settled = false;
  std::uint32_t replication = 1;
  std::vector<ServerStatus> servers;
};

class Pool {
 public:
  Pool(const Context& context, PoolOptions options = {});
  Pool(Pool&&) noexcept;
  Pool& operator=(Pool&&) noexcept;
  ~Pool();  // Calls pending callbacks of want (wrong_state); none runs after it, except one that destroys the Pool

  const std::string& name() const;

  // Returns the version. Bytes may be reused on return (start_put: once it is done).
  std::uint64_t put(const Key& key, std::span<const std::byte> bytes, const PutOptions& options = {});
  Pending<std::uint64_t> start_put(const Key& key, std::span<const std::byte> bytes, const PutOptions& options = {});
  // What is there. Throws not_found.
  Object get(const Key& key, const GetOptions& options = {});
  // Into the caller's memory; returns the object's size. Throws invalid_argument when it does not fit.
  std::uint64_t get_into(const Key& key, std::span<std::byte> memory, const GetOptions& options = {});
  // Waits until it is there, up to the deadline. A drop does not end the wait.
  Object need(const Key& key, const GetOptions& options = {});
  Pending<Object> want(const Key& key, const GetOptions& options = {});
  void want(const Key& key, std::function<void(Result<Object>)> callback, const GetOptions& options = {});
  ObjectInfo info(const Key& key, const GetOptions& options = {});
  Listing list(const Pattern& pattern, std::size_t limit = 1000, const std::string& next = {});
  // False when there was none. Waiters go on waiting.
  bool drop(const Key& key, const GetOptions& options = {});
  std::uint64_t drop_matching(const Pattern& pattern);  // returns how many

  // Batches: one request to each server concerned. Results are in the order of the keys.
  struct PutItem {
    Key key;
    std::span<const std::byte> bytes;
  };
  std::vector<Result<std::uint64_t>> put(std::span<const PutItem> items, const PutOptions& options = {});
  std::vector<Result<Object>> get(std::span<const Key> keys, const GetOptions& options = {});
  std::vector<Result<Object>> need(std::span<const Key> keys, const GetOptions& options = {});
  std::vector<Result<ObjectInfo>> info(std::span<const Key> keys, const GetOptions& options = {});
  std::vector<Result<bool>> drop(std::span<const Key> keys, const GetOptions& options = {});

  // Waits until the row holds at least `count` objects (below 2^32) whose columns match, and lists them. Objects with a tag may lie
  // on other servers than their row: those do not count.
  std::vector<ObjectInfo> wait_row(const std::string& row, std::size_t count, const std::string& column = "*",
                                   Timeout timeout = configured);
  // Called for each put and drop from now on (and, with `existing`, for what is there first).
  std::unique_ptr<Subscription> subscribe(const Pattern& pattern, std::function<void(const ObjectEvent&)> callback,
                                          bool existing = false);

  // Runs a registered function beside the data: each server on what it holds, combined (docs/internals/compute.md). Returns its
  // result; info.metadata describes it.
  Object compute(const std::string& function, std::span<const Key> keys, const ComputeOptions& options = {});

  PoolStatus status();

  // For operators. Tells a server (by its name or id) to do something; returns JSON. Throws forbidden (it needs the role admin),
  // not_found.
  //   "drain"         hands every object on to the other servers, however long that takes, leaves the pool and ends; returns
  //                   at once, what "drain_status" does. Throws wrong_state: no other server is active.
  //   "drain_status"  waits a moment (0.2 s) for the drain to go on: {"state", "objects", "bytes", "why", "awaits"}. state is
  //                   handing_on; handed_on, then left (nothing is lost when the server ends); failed (the server stays, and
  //                   `why` says why); or none. objects, bytes: what the other servers do not hold yet.
  //   "cancel_drain"  ends a drain: the server stays. Throws wrong_state unless it is handing objects on.
  //   "stop"          ends at once: objects that no tier and no other server holds are lost
  //   "config"        says its configuration
  std::string administer(const std::string& server, const std::string& command);
  // What lets a client have this role and none above it, as PoolOptions::token takes it. It comes from the directory: throws
  // forbidden where this client was given a token itself.
  std::string token(const std::string& role);
  // Where a client with such a token finds the pool (PoolOptions::directory): an address whose holder sees the servers and no
  // secret. Throws unsupported for etcd, which has users and roles of its own.
  std::string directory_for_roles() const;
  // Of a stream in this pool, as JSON: state, writer, ranks, steps, bytes, readers. Throws not_found.
  std::string stream_info(const std::string& stream);
  // Removes a stream, with its steps. Throws wrong_state while a writer has it open, not_found, forbidden (it needs the role
  // write). Readers that have it open are told that it is lost.
  void drop_stream(const std::string& stream);
  // The pools that a directory knows (as in PoolOptions), with their servers' names and states and no figures.
  static std::vector<PoolStatus> known(const Context& context, const std::string& directory = {},
                                       Timeout timeout = Timeout(10'000));

  struct Impl;  // the library's own
  Impl& impl() { return *impl_; }

 private:
  explicit Pool(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace penstock
