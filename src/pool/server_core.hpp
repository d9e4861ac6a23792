// What the parts of a pool server share: its store, its peers, the view, and the one way in which objects are put, read and
// dropped by their owner (with replication and acknowledgement). Engine thread.
//
// A key is served by its owners in the present view. Whoever is asked checks the caller's view first (check_view): an older
// one is refused with stale_view, a newer one is taken over before anything is answered, so a former owner never accepts a
// change that the present owner does not see.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "pool/key_locks.hpp"
#include "pool/members.hpp"
#include "pool/object_store.hpp"
#include "pool/pool_service.hpp"  // generated from pool.fbs

namespace penstock::pool {

struct ServerOptions {
  std::string pool = "default";
  std::string name;                    // for messages; "": host:pid
  std::uint64_t id = 0;                // 0: random (kept with the data by the program)
  std::string listen;                  // address for TCP; "": every interface
  std::uint32_t servers = 1;           // the first view waits for so many
  std::uint32_t replication = 1;
  std::uint32_t lease_ms = 2000;       // without a heartbeat for so long, a server is taken for dead
  std::uint64_t rebalance_bytes_per_s = std::uint64_t{512} << 20;
  std::uint32_t workers = 2;           // threads that copy and check bytes
  StoreOptions store;
};

class ServerCore : public std::enable_shared_from_this<ServerCore> {
 public:
  using Deadline = base::Deadline;
  ServerCore(std::shared_ptr<fabric::Progress> progress, std::shared_ptr<rpc::Directory> directory, ServerOptions options,
             fabric::Token secret);
  ~ServerCore();

  const ServerOptions& options() const { return options_; }
  const std::shared_ptr<fabric::Progress>& progress() const { return progress_; }
  ObjectStore& store() { return *store_; }
  Members& members() { return *members_; }
  fabric::Workers& workers() { return *workers_; }
  std::shared_ptr<const Placement> placement() const { return members_->placement(); }
  std::uint64_t self() const { return options_.id; }

  // Throws stale_view when the caller's view is older than ours; takes a newer one over first. Returns the placement.
  Task<std::shared_ptr<const Placement>> check_view(std::uint64_t callers, Deadline deadline);
  bool is_primary(const Placement& placement, const Namespace& ns, std::string_view row, std::optional<std::uint64_t> tag) const;
  bool is_owner(const Placement& placement, const Namespace& ns, std::string_view row, std::optional<std::uint64_t> tag) const;
  // Throws Error(forbidden) unless the channel's role is at least this one.
  static void require_role(const rpc::Call& call, std::string_view role);

  // One object of a put by its primary.
  struct Put {
    Namespace ns;
    std::string row, column;
    std::optional<std::uint64_t> tag;
    std::shared_ptr<const Blob> blob;
    std::uint64_t checksum = 0;
    std::shared_ptr<const std::string> metadata;
  };
  struct PutResult {
    std::uint64_t version = 0;
    std::optional<Error> error;
  };
  // Locks the keys, looks for what is there (asking others while the view is not settled), replicates, stores; returns when
  // the objects are as safe as asked. Objects of one batch succeed or fail each on its own; a timeout fails those not yet done.
  Task<std::vector<PutResult>> put(std::vector<Put> puts, IfExists if_exists, Acknowledge acknowledge, Deadline deadline);

  // The object with its bytes in memory; in a view that is not settled, fetched from whoever has it. Empty: not there.
  Task<std::optional<ObjectStore::Loaded>> load(Namespace ns, std::string row, std::string column,
                                                std::optional<std::uint64_t> tag, std::optional<std::uint64_t> version,
                                                Deadline deadline);
  // The same for objects that other servers own, for reading only; wait: until it is there. Empty: not there.
  Task<std::optional<ObjectStore::Loaded>> load_anywhere(Namespace ns, std::string row, std::string column,
                                                         std::optional<std::uint64_t> tag, bool wait, Deadline deadline);
  // Waits until the key is there (false: deadline). Throws stale_view when the view changes meanwhile.
  Task<bool> wait_present(Namespace ns, std::string row, std::string column, Deadline deadline);

  // The same for a row that is to hold so many objects.
  Task<bool> wait_count(Namespace ns, std::string row, const KeyPattern& pattern, std::size_t count, Deadline deadline);

  Task<bool> drop(Namespace ns, std::string row, std::string column, std::optional<std::uint64_t> tag,
                  std::optional<std::uint64_t> version, Acknowledge acknowledge, Deadline deadline);

  // Joins the pool: recovers the store, announces the server, watches the view, passes on and lets go what views ask for.
  Task<void> start(fabric::Endpoint endpoint, Deadline deadline);
  // Leaves: draining, until others hold everything; then gone from the directory. Throws Error(timeout).
  Task<void> leave(Deadline deadline);
  // Stops without passing anything on; what is in memory only is written if there is a tier.
  Task<void> stop(Deadline deadline);

  // Called on the engine thread after each change of view (stream homes, waiters).
  void on_view(std::function<void(const View&)> callback) { view_callbacks_.push_back(std::move(callback)); }

  // Served to peers.
  Task<fb::ReplicateReplyT> replicate(rpc::Call& call, fb::ReplicateRequestT request);
  Task<fb::GetReplyT> fetch(rpc::Call& call, fb::FetchRequestT request);
  Task<fb::MissingReplyT> missing(rpc::Call& call, fb::MissingRequestT request);

  // Bytes of a stored object as they go to a peer: inlined, or exposed until the lease is released or the channel closes.
  fb::GotT give(rpc::Channel& channel, const Namespace& ns, const Key& key, const StoredObject& object, std::uint64_t offset, std::uint64_t bytes,
                std::uint64_t inline_bytes, std::vector<std::uint8_t>& data);
  void release(rpc::Channel& channel, std::uint64_t lease);
  std::uint64_t leases() const;

  struct Counters {
    std::uint64_t puts = 0, gets = 0, drops = 0, bytes_in = 0, bytes_out = 0, replicated_bytes = 0, rebalanced_bytes = 0;
  };
  const Counters& counters() const { return counters_; }
  Counters& counters() { return counters_; }

 private:
  struct ChannelLeases;
  Task<bool> fetch_from_others(Namespace ns, std::string row, std::string column, std::optional<std::uint64_t> tag,
                               std::shared_ptr<const Placement> placement, Deadline deadline);
  Task<void> replicate_to_owners(const std::vector<ObjectStore::Write>& writes, const std::vector<bool>& dropped, bool wait,
                                 bool durable, Deadline deadline);
  Task<void> send_replicas(Member member, std::vector<ObjectStore::Write> writes, std::vector<bool> dropped, bool durable,
                           Deadline deadline);
  void view_changed(const View& view);
  Task<void> announce(bool leaving, std::uint64_t finished, Deadline deadline);
  Task<void> keep_announced();
  Task<void> propose_views();
  Task<void> rebalance(std::shared_ptr<const Placement> placement);
  Task<std::optional<ObjectStore::Loaded>> load_from(Member member, std::uint64_t view, Namespace ns, Key key,
                                                     std::optional<std::uint64_t> tag, bool wait, Deadline deadline);
  Task<bool> wait_woken(std::function<ObjectTable::WaiterId(std::function<void()>)> park, Deadline deadline);
  Task<std::uint64_t> offer(Member member, Namespace ns, std::vector<ObjectStore::Write> writes,
                            std::shared_ptr<const Placement> placement);
  Task<void> let_go(std::shared_ptr<const Placement> placement);

  std::shared_ptr<fabric::Progress> progress_;
  std::shared_ptr<rpc::Directory> directory_;
  ServerOptions options_;
  fabric::Token secret_;
  std::unique_ptr<fabric::Workers> workers_;
  std::unique_ptr<ObjectStore> store_;
  std::shared_ptr<Members> members_;
  std::unique_ptr<KeyLocks> locks_;
  std::map<rpc::Channel*, std::shared_ptr<ChannelLeases>> leases_;
  std::uint64_t next_lease_ = 1;
  std::vector<std::function<void(const View&)>> view_callbacks_;
  std::unordered_map<std::string, std::uint64_t> dropped_;  // packed key -> version, while a view is not settled
  fabric::Endpoint endpoint_;
  std::uint64_t lease_ = 0;
  bool leaving_ = false, stopping_ = false;
  std::uint64_t finished_view_ = 0;
  std::unique_ptr<fabric::Signal> changed_, propose_;
  std::set<std::shared_ptr<fabric::Signal>> stale_wakes_;  // of waits that a new view must end
  std::unique_ptr<rpc::Directory::Watch> announcements_watch_;
  std::map<std::string, Announcement> announced_;
  Counters counters_;
};

}  // namespace penstock::pool
