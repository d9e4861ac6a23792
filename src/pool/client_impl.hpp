// The library's part of penstock::Pool: coroutines over PoolClient.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/pool.hpp"
#include "pool/client_core.hpp"
#include "pool/recorder.hpp"
#include "rpc/bulk.hpp"
#include "storage/tier.hpp"

namespace penstock {

struct Pool::Impl : std::enable_shared_from_this<Pool::Impl> {
  template <class T>
  using Task = fabric::Task<T>;
  using Deadline = base::Deadline;
  using Channel = std::shared_ptr<rpc::Channel>;
  using Attempt = pool::PoolClient::Attempt;
  using Keys = std::unique_ptr<pool::fb::KeysT>;
  template <class R>
  using Send = std::function<Task<std::vector<Result<R>>>(Channel, std::uint64_t view, Keys,
                                                          std::vector<std::size_t> indices, Attempt)>;

  std::shared_ptr<fabric::Progress> progress;
  std::shared_ptr<pool::PoolClient> client;
  std::unique_ptr<fabric::Workers> workers;
  PoolOptions options;
  Namespace ns;
  std::shared_ptr<pool::Recorder> recorder;  // null: no trace

  Timeout resolved(Timeout timeout) const { return timeout == configured ? Timeout(options.timeout_ms) : timeout; }
  Deadline deadline(Timeout timeout) const { return Deadline(resolved(timeout)); }
  static void check_key(const Key& key);
  static std::string item_text(const Key& key);

  Task<std::vector<Result<std::uint64_t>>> put(std::vector<PutItem> items, PutOptions put_options, Deadline deadline);
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

 private:
  // Sends to each owner its keys; again where a server is gone or the view has changed, until the deadline.
  template <class R>
  Task<std::vector<Result<R>>> scatter(std::vector<Key> keys, std::optional<std::uint64_t> tag, bool replicas,
                                       Deadline deadline, std::function<std::uint64_t(std::size_t)> bytes_of,
                                       Send<R> send);
  template <class R>
  Task<std::vector<Result<R>>> send_to(pool::Member member, std::uint64_t view, const std::vector<Key>& keys,
                                       std::vector<std::size_t> indices, Attempt attempt, bool replicas,
                                       Deadline deadline, Send<R> send);
  Task<std::vector<Result<std::uint64_t>>> send_put(Channel channel, std::uint64_t view, Keys packed,
                                                    std::vector<std::size_t> indices, Attempt attempt,
                                                    std::shared_ptr<const std::vector<PutItem>> items,
                                                    std::shared_ptr<const PutOptions> put_options, Deadline deadline);
  Task<std::optional<std::uint64_t>> same_object(Channel channel, std::uint64_t view, PutItem item,
                                                 std::optional<std::uint64_t> tag, Deadline deadline);
  Task<std::vector<Result<Object>>> send_get(Channel channel, std::uint64_t view, Keys packed,
                                             std::shared_ptr<const std::vector<Key>> keys_sent,
                                             std::shared_ptr<const GetOptions> get_options, bool wait, bool info_only,
                                             Deadline deadline);
  static std::size_t take_simple(const std::shared_ptr<pool::fb::GetReplyT>& reply, const std::vector<Key>& keys,
                                 std::vector<Result<Object>>& results);
  Task<void> fetch_bytes(Channel channel, std::shared_ptr<pool::fb::GetReplyT> reply, const pool::fb::GotT& got,
                         Object& object, Deadline deadline);
  Task<std::optional<rpc::BulkSpace::Mapped>> map(Channel channel, rpc::BulkDescriptor from, Deadline deadline);
  Task<std::vector<Result<bool>>> send_drop(Channel channel, std::uint64_t view, Keys packed, std::size_t count,
                                            Attempt attempt, std::shared_ptr<const GetOptions> get_options,
                                            Deadline deadline);
  Task<pool::fb::ListReplyT> list_one(pool::Member member, std::uint64_t view, Pattern pattern, std::size_t limit,
                                      std::string next, Deadline deadline);
  Task<pool::fb::ListReplyT> send_wait_row(Channel channel, std::uint64_t view, std::string row, std::size_t count,
                                           std::string column, Deadline deadline);
  Task<Object> send_compute(Channel channel, std::uint64_t view, std::string function, std::vector<Key> keys,
                            ComputeOptions compute_options, Deadline deadline);
};

}  // namespace penstock
