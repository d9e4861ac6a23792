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
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "pool/keys/pool_service.hpp"  // generated from pool.fbs
#include "pool/keys/protocol.hpp"
#include "pool/membership/members.hpp"
#include "pool/store/key_locks.hpp"
#include "pool/store/object_store.hpp"
#include "pool/store/tombstones.hpp"

namespace penstock::pool {

struct ServerOptions {
  std::string pool = "default";
  std::string name;           // for messages; "": host:pid
  std::uint64_t id = 0;       // 0: random (kept with the data by the program)
  std::string listen;         // address for TCP; "": every interface
  std::string data_plane;     // offered to those who ask for it by name; "": the automatic ones alone
  std::uint32_t servers = 1;  // the first view waits for so many
  std::uint32_t replication = 1;
  std::uint32_t lease_ms = 2000;  // without a heartbeat for so long, a server is taken for dead
  std::uint64_t rebalance_bytes_per_s = std::uint64_t{512} << 20;
  std::uint32_t workers = 2;  // threads that copy and check bytes
  // Of one client (a channel): objects whose memory it reads in place, subscriptions, and waits. More: Error(overloaded).
  std::uint32_t max_leases = 262'144, max_subscriptions = 1024, max_waits = 16'384;
  std::uint32_t max_events = 100'000;                    // kept for a subscription whose client does not come for them
  std::uint32_t max_readers = 4096;                      // reader cohorts of one stream
  std::uint32_t max_calls = 65'536;                      // of one client, under way at once
  std::uint64_t call_memory = std::uint64_t{256} << 20;  // for requests and replies that are under way, of all clients
  StoreOptions store;
};

class ServerCore : public std::enable_shared_from_this<ServerCore> {
 public:
  using Deadline = base::Deadline;
  // connect: how it reaches its peers (Members::Options).
  ServerCore(std::shared_ptr<fabric::Progress> progress, std::shared_ptr<directory::Directory> directory,
             ServerOptions options, fabric::Token secret, Members::Connect connect = {});
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
  // A put's version is at least this: above what a server that was lost may have of the key, and bring back.
  std::uint64_t first_version() const;
  bool is_primary(const Placement& placement, const Namespace& ns, std::string_view row,
                  std::optional<std::uint64_t> tag) const;
  bool is_owner(const Placement& placement, const Namespace& ns, std::string_view row,
                std::optional<std::uint64_t> tag) const;
  // Throws Error(forbidden) unless the channel's role is at least this one.
  static void require_role(const rpc::Call& call, std::string_view role);
  // Throws Error(forbidden) for an object whose bytes are not for clients.
  static void require_for_clients(const Namespace& ns, std::string_view row, std::string_view column);
  // Throws Error(forbidden) when the objects of this namespace are not for the channel's role to put or drop.
  static void require_changeable(const rpc::Call& call, const Namespace& ns);

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
  // What a batch's objects have in common.
  struct PutTerms {
    Namespace ns;
    std::optional<std::uint64_t> tag;
    std::shared_ptr<const std::string> metadata;
    IfExists if_exists = IfExists::refuse;
    Acknowledge acknowledge = Acknowledge::memory;
    bool again = false;  // as in put
  };
  // A whole put, when nothing has to be waited for: in memory only, by the one owner in a settled view, no key being changed.
  // Else empty, and nothing was done.
  std::optional<std::vector<PutResult>> try_put(const PutTerms& terms, std::span<const ViewedKey> keys,
                                                std::span<const std::shared_ptr<Blob>> blobs,
                                                std::span<const std::uint64_t> checksums);
  // Locks the keys, looks for what is there (asking others while the view is not settled), replicates, stores; returns when
  // the objects are as safe as asked. Objects of one batch (of one namespace) succeed or fail each on its own; a timeout fails
  // those not yet done. again: an earlier try may have been done; an object with the same bytes is taken for what it put.
  // Throws Error(stale_view): the membership changed, or (unsettled) a server that may hold the key does not answer.
  Task<std::vector<PutResult>> put(std::vector<Put> puts, IfExists if_exists, Acknowledge acknowledge,
                                   Deadline deadline, bool again = false);

  // The object with its bytes in memory; in a view that is not settled, fetched from whoever has it. Empty: not there.
  Task<std::optional<ObjectStore::Loaded>> load(Namespace ns, std::string row, std::string column,
                                                std::optional<std::uint64_t> tag, std::optional<std::uint64_t> version,
                                                Deadline deadline);
  // What this server has, without asking others.
  Task<std::optional<ObjectStore::Loaded>> load_here(Namespace ns, std::string row, std::string column,
                                                     std::optional<std::uint64_t> version, Deadline deadline);
  // In a view that is not settled: brings here what load would ask others for. Returns, by packed key, the objects for which
  // this server has no room: they are newer than what is here, and go when the caller lets go of them. Throws as put.
  using PassingBy = std::map<std::string, StoredObject>;
  Task<PassingBy> fetch_newer(Namespace ns, std::vector<Key> keys, std::optional<std::uint64_t> tag,
                              std::optional<std::uint64_t> version, Deadline deadline);
  // The same for objects that other servers own, for reading only; wait: until it is there. Empty: not there.
  Task<std::optional<ObjectStore::Loaded>> load_anywhere(Namespace ns, std::string row, std::string column,
                                                         std::optional<std::uint64_t> tag, bool wait,
                                                         Deadline deadline);
  // While the view is not settled, what the other servers hold of rows that match the pattern, some of it maybe twice; else nothing.
  // Throws Error: stale_view, peer_lost (a server could not be asked: it may be the only one that has something).
  Task<std::vector<Key>> list_elsewhere(Namespace ns, std::string rows, Deadline deadline);
  // Waits until the key is there (false: deadline). Throws stale_view when the view changes meanwhile.
  Task<bool> wait_present(Namespace ns, std::string row, std::string column, Deadline deadline);

  // The same for a row that is to hold so many objects.
  Task<bool> wait_count(Namespace ns, std::string row, const KeyPattern& pattern, std::size_t count, Deadline deadline);

  // Everywhere. False: it was not there. request: the caller's number for this drop, the same in each try (0: none); what an
  // earlier try has done is told again. Throws as put.
  Task<bool> drop(Namespace ns, std::string row, std::string column, std::optional<std::uint64_t> tag,
                  std::optional<std::uint64_t> version, Acknowledge acknowledge, Deadline deadline,
                  std::uint64_t request = 0);

  // Joins the pool: recovers the store, announces the server, watches the view, passes on and lets go what views ask for.
  Task<void> start(fabric::Endpoint endpoint, Deadline deadline);
  // For a server that is told to end: hands its objects on until the other servers hold everything or nobody else is left.
  // Throws Error(timeout).
  Task<void> leave(Deadline deadline);

  // An administrator's drain (server_drain.cpp).
  struct Amount {
    std::uint64_t objects = 0, bytes = 0;
  };
  enum class DrainState : std::uint8_t {
    none,
    handing_on,  // a member; objects move to the other servers
    handed_on,   // every object is at its new owners; the next view leaves this server out
    left,        // no member any more
    failed,      // an active member again; nothing was lost
  };
  struct DrainStatus {
    DrainState state = DrainState::none;
    Amount left;                      // what other servers do not hold yet
    std::string why;                  // of a drain that failed
    std::vector<std::string> awaits;  // servers that still pass objects on, when this one has finished
  };
  // Hands every object on and leaves the pool, however long that takes, then calls `left`. A drain that makes no progress, and
  // one that is cancelled, ends with this server an active member: drain_status says why. While a drain is in progress nothing
  // happens. Throws Error(wrong_state): no other server is active, or this one is ending.
  void begin_drain(std::function<void()> left);
  // Throws Error(wrong_state) unless objects are being handed on.
  void cancel_drain(const std::string& why);
  DrainStatus drain_status() const;
  // Waits until the state or the view has changed, or the deadline.
  Task<void> drain_moved(Deadline deadline);
  bool others_active() const;

  // Stops without passing anything on; what is in memory only is written if there is a tier.
  Task<void> stop(Deadline deadline);

  // Called on the engine thread after each change of view (waiters, what else depends on it).
  void on_view(std::function<void(const View&)> callback) { view_callbacks_.push_back(std::move(callback)); }

  // Served to peers.
  Task<fb::ReplicateReplyT> replicate(rpc::Call& call, fb::ReplicateRequestT request);
  Task<fb::HaveReplyT> have(rpc::Call& call, fb::HaveRequestT request);
  Task<fb::GetReplyT> fetch(rpc::Call& call, fb::FetchRequestT request);
  Task<fb::MissingReplyT> missing(rpc::Call& call, fb::MissingRequestT request);

  // Bytes of a stored object as they go to a peer: inlined, or exposed until the lease is released or the channel closes.
  fb::GotT give(rpc::Channel& channel, const Namespace& ns, const Key& key, const StoredObject& object,
                std::uint64_t offset, std::uint64_t bytes, std::uint64_t inline_bytes, std::vector<std::uint8_t>& data);
  void release(rpc::Channel& channel, std::uint64_t lease);
  std::uint64_t leases() const;

  struct Counters {
    std::uint64_t puts = 0, gets = 0, drops = 0, bytes_in = 0, bytes_out = 0, replicated_bytes = 0,
                  rebalanced_bytes = 0;
    std::uint64_t subscriptions = 0;  // that clients have now
  };
  const Counters& counters() const { return counters_; }
  Counters& counters() { return counters_; }

 private:
  Task<std::vector<Key>> list_keys(Member member, std::uint64_t view, Namespace ns, std::string rows,
                                   Deadline deadline);
  static Error already_there(std::uint64_t version);
  bool owns_alone(const PutTerms& terms, std::span<const ViewedKey> keys) const;
  struct ChannelLeases;
  // A replica has another object of a version, or a newer one: the key goes on above.
  struct VersionsTaken : Error {
    VersionsTaken() : Error(Errc::internal, "a replica has another object of this version") {}
    std::vector<std::pair<std::string, std::uint64_t>> newest;  // by packed key
  };
  struct Holding {
    std::uint64_t server = 0, version = 0, bytes = 0, checksum = 0;
    bool dropped = false;  // no object: it remembers that this version was dropped
  };
  using Elsewhere = std::unordered_map<std::string, std::vector<Holding>>;  // by packed key
  struct Wanted {
    Key key;
    std::uint64_t version = 0, bytes = 0;
  };
  struct Plan;

  // Puts (server_core.cpp)
  void check_primary(const Plan& plan) const;
  void note_failed(const Plan& plan);
  void forget_failed(const Plan& plan);
  Task<void> learn_versions(std::shared_ptr<Plan> plan, Deadline deadline);
  Task<std::shared_ptr<const Placement>> replicate_plan(std::shared_ptr<Plan> plan, bool durable, Deadline deadline);
  Task<void> store_one(std::shared_ptr<Plan> plan, bool durable, Deadline deadline);
  static std::vector<ObjectStore::Write> plan_writes(const Plan& plan);
  static void raise_plan(Plan& plan, const VersionsTaken& taken);
  static std::uint64_t plan_since(const Plan& plan);
  Task<void> drop_here(Namespace ns, std::string row, std::string column, std::uint64_t version, bool only,
                       bool durable, Deadline deadline);

  // Replication (server_replication.cpp). A batch is of one namespace, and all puts or all drops.
  std::map<std::uint64_t, std::vector<std::size_t>> receivers(const Placement& placement,
                                                              const std::vector<ObjectStore::Write>& writes,
                                                              bool dropped) const;
  Task<void> replicate_to_owners(std::vector<ObjectStore::Write> writes, bool dropped, bool durable,
                                 std::uint64_t request, Deadline deadline);
  Task<void> replicate_behind(std::shared_ptr<Plan> plan, std::shared_ptr<KeyLocks::Held> held);
  Task<void> send_replicas(Member member, std::uint64_t view, std::vector<ObjectStore::Write> writes, bool dropped,
                           bool durable, std::uint64_t request_id, bool offered, Deadline deadline);
  Task<std::vector<ObjectStore::Write>> take_replicas(rpc::Call& call, const UnpackedKeys& keys,
                                                      fb::ReplicateRequestT& request);
  std::uint64_t refused_for(const ObjectStore::Write& write);

  // Views that are not settled (server_unsettled.cpp)
  bool may_lie_elsewhere(const Placement& placement, const Namespace& ns, std::string_view row,
                         std::optional<std::uint64_t> tag) const;
  bool is_named(const View& view) const;
  void remember_view();
  void drop_what_others_kept(const Placement& present);
  Task<void> drop_behind(Namespace ns, std::string row, std::string column);
  void require_there_since(std::uint64_t since) const;
  bool has_finished(const Member& member, std::uint64_t view) const;
  Task<fb::HaveReplyT> ask(Member member, std::uint64_t view, std::shared_ptr<const std::vector<Key>> keys,
                           Namespace ns, Deadline deadline);
  // Which versions others have; finished_too: also those who have passed on all, for what they remember of drops. Throws
  // Error(stale_view) when one does not answer, or the view changes.
  Task<Elsewhere> ask_others(Namespace ns, std::vector<Key> keys, std::shared_ptr<const Placement> placement,
                             bool finished_too, Deadline deadline);
  Task<PassingBy> fetch_from(Member member, std::shared_ptr<const Placement> placement, Namespace ns,
                             std::vector<Wanted> wanted, Deadline deadline);
  Task<std::shared_ptr<Blob>> room_for_fetched(std::uint64_t bytes, bool own, bool& kept, Deadline deadline);
  Task<ObjectStore::Write> take_fetched(std::shared_ptr<rpc::Channel> channel, Namespace ns, Key key,
                                        const fb::GetReplyT& reply, const fb::GotT& got, bool& kept, Deadline deadline);

  struct Background {  // in a coroutine that nobody waits for until stop
    explicit Background(ServerCore& of) : core(of) { ++core.background_; }
    Background(const Background&) = delete;
    ~Background() {
      if (--core.background_ == 0) core.background_ended_->notify_all();
    }
    ServerCore& core;
  };
  void view_changed(const View& view);
  Error other_protocol(const Announcement& other) const;
  Task<void> require_same_protocol(std::uint64_t created, Deadline deadline);
  Task<void> announce(bool leaving, std::uint64_t finished, Deadline deadline);
  Task<void> keep_announced();
  void propose();
  Task<std::vector<Announcement>> list_announced(Deadline deadline);
  Task<void> propose_views();
  void require_not_stopping() const;
  Task<void> wait_member(bool there, Deadline deadline);
  Task<bool> left_in_order(std::uint64_t leases_lost, Deadline deadline);

  // Passing objects on (server_rebalance.cpp)
  struct Pass;
  struct Batch;
  struct Offer;
  Task<void> rebalance(std::shared_ptr<const Placement> placement);
  Task<void> pass_on(Pass& pass);
  Batch next_batch(const Placement& placement, std::string& after);
  void account(const Pass& pass, Batch& batch, std::size_t object, bool sent);
  Task<void> offer(Member member, Namespace ns, Offer& offered, Batch& batch, Pass& pass);
  Task<bool> load_offered(ObjectStore::Write& write, Pass& pass);
  Task<bool> send_offered(Member member, std::vector<ObjectStore::Write> writes, Pass& pass);
  void not_passed_on(Pass& pass, const Member& member, const Error& error);
  Task<void> let_go(std::shared_ptr<const Placement> placement);

  // Draining (server_drain.cpp)
  bool is_draining() const;
  Task<void> drain(std::uint64_t number, std::function<void()> left);
  void end_drain(DrainState state, std::string why);
  void drain_stalled(const Error& error);

  Task<std::optional<ObjectStore::Loaded>> load_from(Member member, std::uint64_t view, Namespace ns, Key key,
                                                     std::optional<std::uint64_t> tag, bool wait, Deadline deadline);
  Task<bool> wait_woken(std::function<ObjectTable::WaiterId(std::function<void()>)> park, Deadline deadline);

  std::shared_ptr<fabric::Progress> progress_;
  std::shared_ptr<directory::Directory> directory_;
  ServerOptions options_;
  fabric::Token secret_;
  std::unique_ptr<fabric::Workers> workers_;
  std::unique_ptr<ObjectStore> store_;
  std::shared_ptr<Members> members_;
  std::unique_ptr<KeyLocks> locks_;
  std::map<rpc::Channel*, std::shared_ptr<ChannelLeases>> leases_;
  std::uint64_t next_lease_ = 1;
  std::vector<std::function<void(const View&)>> view_callbacks_;
  Tombstones tombstones_;
  // Versions of puts that failed here, by packed key: another owner may have taken them, and a drop covers them too.
  std::unordered_map<std::string, std::uint64_t> failed_puts_;
  std::vector<std::shared_ptr<const Placement>> history_;  // the last settled view, and those since
  // Views that named this server, from the last settled one on, and how often it had been left out before each.
  struct TookPart {
    std::shared_ptr<const Placement> view;
    std::uint64_t absences = 0;
  };
  std::vector<TookPart> took_part_;
  std::uint64_t absences_ = 0;
  std::uint64_t member_since_ = 0;  // Member::since of the last view that named this server; 0: none did
  bool brought_objects_ = false;    // there were some when a view named it first
  fabric::Endpoint endpoint_;
  std::uint64_t lease_ = 0, leases_lost_ = 0;
  bool leaving_ = false, stopping_ = false;
  bool to_propose_ = false;  // something has changed since propose_views looked
  std::uint64_t finished_view_ = 0;
  bool announced_leaving_ = false;  // as the directory has it
  std::uint64_t announced_finished_ = 0;
  std::unique_ptr<fabric::Signal> changed_, propose_, background_ended_;
  std::size_t background_ = 0;
  std::set<std::shared_ptr<fabric::Signal>> stale_wakes_;  // of waits that a new view must end
  std::unique_ptr<directory::Directory::Watch> announcements_watch_;
  std::shared_ptr<ObjectMemory> passing_memory_;  // null until an object passes by
  std::map<std::string, Announcement> announced_;
  Amount to_pass_on_;  // in the present view, as far as known
  DrainStatus drain_;
  std::uint64_t drain_number_ = 0;  // of the drain that drain_ is about
  std::unique_ptr<fabric::Signal> drain_moved_;
  Counters counters_;
};

}  // namespace penstock::pool
