// The store's inside, in parts: memory (store_memory.cpp), writing and dropping (store_write.cpp), loading
// (store_load.cpp), recovery and demotion (store_recover.cpp). Engine thread.
#pragma once

#include <absl/container/inlined_vector.h>
#include <absl/container/node_hash_map.h>

#include <chrono>
#include <deque>
#include <unordered_map>

#include "pool/store/credit.hpp"
#include "pool/store/disk_queue.hpp"
#include "pool/store/eviction.hpp"
#include "pool/store/object_record.hpp"
#include "pool/store/object_store.hpp"
#include "pool/store/shared_texts.hpp"

namespace penstock::pool {

// "row/column" for messages: what is not printable as \xNN, long names cut.
std::string describe_key(std::string_view row, std::string_view column);

struct ObjectStore::Impl : std::enable_shared_from_this<ObjectStore::Impl> {
  using Done = std::shared_ptr<fabric::Promise<void>>;

  // A version that no tier holds yet.
  struct Pending {
    std::uint64_t id = 0, version = 0, bytes = 0, checksum = 0;
    bool in_flight = false;  // in a job
    bool hidden = false;     // not in the table until it is on disk
    bool gone = false;       // in flight, and dropped or replaced since
    bool given_up = false;   // gone, and its put fails
    bool keep_older = false;
    std::vector<std::uint64_t> obsolete;  // versions to be erased once this one is on disk
  };
  // Of keys that have something of it; others have no entry.
  struct KeyState {
    absl::InlinedVector<Pending, 1> pending;
    std::vector<std::uint64_t> older;  // versions in the table below the newest, ascending
    std::uint64_t batch = 0;           // that touched it last
    bool empty() const { return pending.empty() && older.empty(); }
  };
  struct Place {  // of a version, in lists of work
    std::string packed_key;
    std::uint64_t id_or_version = 0;
  };
  // One read of a tier, and who waits for it.
  struct Recall {
    UnpackedKey key;
    std::string tier_key;
    StoredObject object;                      // as it was when the read began; without bytes
    std::shared_ptr<Credit::Request> memory;  // while it waits for it
    std::vector<std::shared_ptr<fabric::Promise<std::shared_ptr<const Blob>>>> waiters;  // null: it is gone, look again
  };

  Impl(fabric::Progress& progress, StoreOptions options);
  void start(Tiers tiers);
  void stop();

  // Memory (store_memory.cpp)
  void map_aside(std::function<void()> job, std::function<void(std::exception_ptr)> done);
  void make_memory_ahead(std::uint64_t bytes);
  void keep_memory_ahead();
  void make_room(std::uint64_t charge);
  bool evict_one();
  std::function<bool()> give_up_first;  // before an object; may be empty
  void review_leased();
  void add_evictable(const std::string& packed_key, const StoredObject& object);
  bool memory_is_short() const;
  std::string why_full(std::uint64_t charge) const;
  void trim_heap(EvictionHeap& heap, bool in_memory);

  // Writing (store_write.cpp)
  Done start_put(std::span<Write> writes, bool durable, bool after_disk, std::size_t& taken);
  bool start_drop(const Namespace& ns, std::string_view row, std::string_view column,
                  std::optional<std::uint64_t> version, bool durable, Done& done);
  void give_up_hidden();
  void replace_older(const UnpackedKey& key, KeyState& state, bool keep_older, std::vector<std::uint64_t>& obsolete);
  void take_below(const UnpackedKey& key, KeyState& state, std::uint64_t version, bool keep_older,
                  std::vector<std::uint64_t>& obsolete);
  void void_version(KeyState& state, std::uint64_t version, bool on_disk, std::vector<std::uint64_t>& obsolete);
  void write_behind();
  void submit_writes(std::shared_ptr<DiskJob> job, Done done, bool behind);
  bool written(DiskJob& job, std::exception_ptr error);  // whether all that it wrote counts
  bool written_one(const DiskWrite& write, const std::exception_ptr& error, std::vector<Place>& erases);
  bool is_wanted(const std::string& packed_key, std::uint64_t version);
  void stored(const DiskWrite& write, const Pending& pending, std::vector<Place>& erases);
  void submit_erases(const std::string& packed_key, const std::vector<std::uint64_t>& versions, std::uint64_t floor,
                     bool sync, Done done);
  void submit_erases(std::shared_ptr<DiskJob> job, std::vector<Place> erases, std::uint64_t floor, bool sync,
                     Done done);
  void retry_failed();
  void note_disk(std::exception_ptr error, bool retry_later);
  void forget_if_empty(const std::string& packed_key);

  // Loading (store_load.cpp)
  std::shared_ptr<Recall> recall(const UnpackedKey& key, const StoredObject& object);
  void read(const std::shared_ptr<Recall>& recall, std::shared_ptr<Blob> blob);
  void recalled(const std::shared_ptr<Recall>& recall, std::shared_ptr<Blob> blob, std::exception_ptr error);
  void leave_recall(const std::shared_ptr<Recall>& recall,
                    const std::shared_ptr<fabric::Promise<std::shared_ptr<const Blob>>>& waiter);

  // Recovery and demotion (store_recover.cpp)
  struct Found {
    UnpackedKey key;
    StoredObject object;
    bool keep_older = false, in_first = false;
  };
  struct Recovered {
    std::vector<Found> objects;  // by key, then version
    std::uint64_t floor = 0;
  };
  struct Demotion {
    struct Move {
      EvictionHeap::Entry entry;
      std::shared_ptr<const Blob> blob;  // null: to be read
      std::uint64_t bytes = 0;
    };
    std::vector<Move> moves;
    std::uint64_t moved = 0;
  };
  static void read_tiers(const Tiers& tiers, SharedTexts& texts, Recovered& out);
  void make_memory_for(std::span<const Found> objects);
  void take_over(Found& found, std::vector<Place>& obsolete);
  void demote_if_full();
  void demote(const std::shared_ptr<Demotion>& demotion, Credit::Blobs blobs);
  static void move_down(const Tiers& tiers, Demotion& demotion, const Credit::Blobs& blobs);
  void demoted(Demotion& demotion, std::exception_ptr error);
  bool demotes() const { return !limits.empty() && limits[0] != 0 && disk && disk->tiers().size() > 1; }

  fabric::Progress& progress;
  StoreOptions options;
  std::vector<std::uint64_t> limits;  // of the tiers
  ObjectTable table;
  std::shared_ptr<ObjectMemory> memory;
  std::shared_ptr<Credit> credit;
  const std::shared_ptr<SharedTexts> metadata = std::make_shared<SharedTexts>();
  std::unique_ptr<fabric::Workers> mapper;  // maps segments
  bool mapping_ahead = false;
  std::shared_ptr<DiskQueue> disk;  // null: memory only
  struct Wake;
  std::shared_ptr<Wake> wake;

  absl::node_hash_map<std::string, KeyState> keys;  // by packed key
  std::deque<Place> behind;                         // pending, oldest first
  std::uint64_t next_id = 1, batch = 0, uses = 1;
  std::uint64_t unwritten_bytes = 0, unwritten_objects = 0;
  std::uint32_t behind_jobs = 0, writing_jobs = 0;
  std::size_t behind_objects = DiskQueue::max_group_writes;  // in one job; fewer after a failure
  std::uint32_t flushing = 0;
  fabric::Signal settled;  // a writing job has ended

  std::string disk_error;
  std::uint64_t failures = 0, submitted = 0, last_failed = 0;  // the latter two: of writing jobs, in their order
  std::chrono::milliseconds backoff{0};
  fabric::Timer retry;
  bool retry_pending = false;
  base::Clock::time_point logged;
  std::vector<Place> failed_erases;
  std::size_t erasing = 0;  // places of jobs under way
  std::uint64_t floor_written = 0, floor_recovered = 0;

  EvictionHeap evictable, demotable;
  std::deque<EvictionHeap::Entry> leased;                            // evictable but for somebody who uses them
  std::unordered_map<std::string, std::shared_ptr<Recall>> recalls;  // by tier key
  std::uint64_t evictions = 0, recall_count = 0, demotions = 0;
  bool demoting = false, demoting_on = false, stopped = false;
};

}  // namespace penstock::pool
