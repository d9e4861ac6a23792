// The library's part of penstock::Pool: coroutines over PoolClient.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fork.hpp"
#include "penstock/pool.hpp"
#include "pool/client/client_core.hpp"
#include "storage/tier.hpp"
#include "trace/recorder.hpp"
#include "transport/bulk.hpp"

namespace penstock {

// Callbacks of Pool::want that have not been called: each is called once, on the engine thread.
class WantedObjects {
 public:
  using Callback = std::function<void(Result<Object>)>;
  // Its number. Throws Error(wrong_state) after end().
  std::uint64_t add(Callback callback);
  // Calls it, unless end() has.
  void give(std::uint64_t number, Result<Object> result);
  // Calls all with wrong_state.
  void end();

 private:
  std::mutex mutex_;  // guards what follows; not held in callbacks
  bool ended_ = false;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, Callback> callbacks_;
};

struct Pool::Impl : std::enable_shared_from_this<Pool::Impl> {
  template <class T>
  using Task = fabric::Task<T>;
  using Deadline = base::Deadline;
  using Channel = std::shared_ptr<rpc::Channel>;
  using Attempt = pool::PoolClient::Attempt;
  using Indices = std::vector<std::size_t>;

  // For the library's own use: over a client that others use, too, and that stays open.
  static Pool over(std::shared_ptr<pool::PoolClient> client, PoolOptions options);
  bool shares_client = false;
  // Ends subscriptions, callbacks (with wrong_state) and, unless the client is shared, the calls that are under way (with
  // stream_closed). Any thread; again is fine.
  void close();

  std::string registration;  // where streams and directories register, as configured

  // A call on many keys, shared by its requests: what was asked (kept as long as anybody uses it) and what came of each key.
  template <class R>
  struct Batch {
    std::function<const Key&(std::size_t)> key;
    std::vector<Result<R>> results;
  };
  // Asks one server for the keys with these numbers, and fills in their results.
  template <class R>
  using Send = std::function<Task<void>(Channel, std::uint64_t view, std::shared_ptr<Batch<R>>,
                                        std::shared_ptr<const Indices>, Attempt)>;

  const base::Origin origin;
  std::shared_ptr<fabric::Progress> progress;
  std::shared_ptr<pool::PoolClient> client;
  std::unique_ptr<fabric::Workers> workers;
  PoolOptions options;
  Namespace ns;
  std::shared_ptr<trace::Recorder> recorder;    // null: no trace
  std::map<std::string, Channel> administered;  // by server: they outlast its membership. Engine thread
  WantedObjects wanted;
  std::map<const void*, std::function<void()>> subscriptions;  // what ends each. Engine thread

  Timeout resolved(Timeout timeout) const { return timeout == configured ? Timeout(options.timeout_ms) : timeout; }
  Deadline deadline(Timeout timeout) const { return Deadline(resolved(timeout)); }
  static void check_key(const Key& key);
  static std::string item_text(const Key& key);

  // fill: puts the bytes of an item, by number, where they are to lie, again in each try and on any thread; then the items say only
  // how many there are. What it reads lives until the task has ended.
  using Fill = std::function<void(std::size_t, std::byte*)>;
  Task<std::vector<Result<std::uint64_t>>> put(std::vector<PutItem> items, PutOptions put_options, Deadline deadline,
                                               Fill fill = {});
  Task<std::vector<Result<Object>>> get(std::vector<Key> keys, GetOptions get_options, bool wait, bool info_only,
                                        Deadline deadline);
  Task<std::vector<Result<bool>>> drop(std::vector<Key> keys, GetOptions get_options, Deadline deadline);
  Task<Listing> list(Pattern pattern, std::size_t limit, std::string next, Deadline deadline);
  Task<std::uint64_t> drop_pattern(Pattern pattern, Deadline deadline);
  Task<std::vector<ObjectInfo>> wait_row(std::string row, std::size_t count, std::string column, Deadline deadline);
  Task<Object> compute(std::string function, std::vector<Key> keys, ComputeOptions compute_options, Deadline deadline);
  Task<PoolStatus> status(Deadline deadline);
  std::unique_ptr<Subscription> subscribe(const Pattern& pattern, std::function<void(const ObjectEvent&)> callback,
                                          bool existing);
  // The bytes that a reply says are there: in it, mapped, or pulled.
  Task<void> fetch_bytes(Channel channel, std::shared_ptr<pool::fb::GetReplyT> reply, const pool::fb::GotT& got,
                         Object& object, Deadline deadline);

 private:
  struct Puts {
    std::vector<PutItem> items;
    PutOptions options;
    Fill fill;
    void copy(std::size_t item, std::byte* to) const;
  };
  // Sends to each owner its keys; again where a server is gone or the view has changed, until the deadline.
  template <class R>
  Task<std::vector<Result<R>>> scatter(std::shared_ptr<Batch<R>> batch, std::optional<std::uint64_t> tag, bool replicas,
                                       Deadline deadline, std::function<std::uint64_t(std::size_t)> bytes_of,
                                       Send<R> send);
  template <class R>
  Task<void> send_to(pool::Member member, std::uint64_t view, std::shared_ptr<Batch<R>> batch,
                     std::shared_ptr<const Indices> indices, Attempt attempt, bool replicas, Deadline deadline,
                     Send<R> send);
  template <class R>
  std::map<std::uint32_t, Indices> by_server(const pool::Placement& placement, const Batch<R>& batch,
                                             const Indices& wanted, std::optional<std::uint64_t> tag,
                                             Attempt turn) const;
  template <class R>
  std::unique_ptr<pool::fb::KeysT> packed_keys(const Batch<R>& batch, const Indices& indices) const;
  Task<void> send_put(Channel channel, std::uint64_t view, std::shared_ptr<Batch<std::uint64_t>> batch,
                      std::shared_ptr<const Indices> indices, Attempt attempt, std::shared_ptr<const Puts> puts,
                      Deadline deadline);
  Task<void> send_get(Channel channel, std::uint64_t view, std::shared_ptr<Batch<Object>> batch,
                      std::shared_ptr<const Indices> indices, std::shared_ptr<const GetOptions> get_options, bool wait,
                      bool info_only, Deadline deadline);
  static std::size_t take_simple(const std::shared_ptr<pool::fb::GetReplyT>& reply, Batch<Object>& batch,
                                 const Indices& indices);
  Task<std::optional<transport::BulkSpace::Mapped>> map(Channel channel, transport::BulkDescriptor from,
                                                        Deadline deadline);
  Task<void> send_drop(Channel channel, std::uint64_t view, std::shared_ptr<Batch<bool>> batch,
                       std::shared_ptr<const Indices> indices, std::shared_ptr<const GetOptions> get_options,
                       std::uint64_t request_id, Deadline deadline);
  Task<pool::fb::ListReplyT> list_one(pool::Member member, std::uint64_t view, Pattern pattern, std::size_t limit,
                                      std::string next, Deadline deadline);
  static Task<pool::fb::ListReplyT> send_wait_row(Channel channel, std::uint64_t view,
                                                  std::shared_ptr<const pool::fb::WaitRowRequestT> row,
                                                  Deadline deadline);
  Task<Object> send_compute(Channel channel, std::uint64_t view, std::string function, std::vector<Key> keys,
                            ComputeOptions compute_options, Deadline deadline);
};

}  // namespace penstock
