// One server's objects: the table, their bytes in memory, and the tiers below. Knows nothing of other servers or clients.
//
// Memory is bounded: every byte of an object that is in memory was reserved first. When a reservation would pass the high
// watermark, objects that a tier holds and nobody uses are evicted, least recently used first, down to the low watermark;
// what no tier holds yet is written behind. A reservation waits for that up to its deadline, in the order in which they came,
// then fails with pool_full (the message says why nothing could go: leased, not yet written, disk full). Accounting is
// exact: reserved, used, index. Who keeps a blob (a lease) keeps its memory: it counts until its last owner is gone, also
// after the object was dropped.
//
// Durable means: every byte and the key's entry are in a tier and synced; concurrent puts share syncs. Objects put without it
// are written behind (when there is a tier), in batches, never in a caller's path; until an object that replaces another is
// on disk, the other one stays there. A full or failing disk makes durable puts fail with Error(system) and stops eviction of
// what it does not hold; memory goes on, and what was to be written behind is tried again (50 ms, 100 ms, ... 2 s later).
// What is done to one key is done on disk in the same order: a drop after a put wins, whatever was under way.
//
// Tiers: the first that takes an object (a full one is passed over). When the first is filled to 90 % of its limit_bytes,
// its least recently used objects move to the second until 80 %. Recovery finds what the tiers hold; the fastest tier's
// copy counts, and versions that a newer one has replaced are removed.
//
// Engine thread, destructor included; disk and long allocations are done by the store's own threads. A task that is dropped
// or times out leaves what it began going on: a put may still become present and durable. Checksums (storage::checksum) are
// given with the object and verified on every read from a tier: Error(protocol) names the key and the path.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/task.hpp"
#include "pool/store/object_memory.hpp"
#include "pool/store/object_table.hpp"
#include "storage/tier.hpp"

namespace penstock::pool {

struct StoreOptions {
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  double high_watermark = 0.9, low_watermark = 0.75;  // of memory_bytes
  double memory_ahead = 0;  // of memory_bytes: for objects from 32 KiB on, made in the background before it is needed
  std::vector<storage::TierOptions> tiers;  // from fast to slow; none: memory only
  bool write_behind = true;                 // of objects that were not put as durable; false: only when memory is short
  std::uint32_t writers = 2;                // threads that write to tiers
  std::uint32_t readers = 4;                // and that read from them
};

struct StoreStatistics {
  std::uint64_t objects = 0, bytes = 0;  // all versions, wherever they are
  std::uint64_t memory_used = 0, memory_peak = 0,
                memory_limit = 0;   // bytes of objects in memory, reservations included
  std::uint64_t segment_bytes = 0;  // of shared segments mapped, free parts included
  double fragmentation = 0;         // share of the free parts that is not in the largest one
  std::uint64_t index_bytes = 0, metadata_bytes = 0;
  std::uint64_t unwritten_bytes = 0;  // in memory only, to be written behind
  std::uint64_t evictions = 0, recalls = 0, waiting = 0, demotions = 0;
  std::uint64_t write_groups = 0;  // write batches given to tiers, each with one sync
  std::string disk_error;          // the last, "" when the last write went well
  std::vector<storage::TierStatistics> tiers;
};

class ObjectStore {
 public:
  template <class T>
  using Task = fabric::Task<T>;
  using Deadline = base::Deadline;
  using Blobs = std::vector<std::shared_ptr<Blob>>;

  // Opens the tiers (throws what open_tier throws).
  ObjectStore(std::shared_ptr<fabric::Progress> progress, StoreOptions options);
  // With tiers that are open already (tests); options.tiers says their limits, if it names as many.
  ObjectStore(std::shared_ptr<fabric::Progress> progress, StoreOptions options,
              std::vector<std::unique_ptr<storage::Tier>> tiers);
  // Ends what writes, closes the tiers; does not flush. Tasks that wait get Error.
  ~ObjectStore();

  // Reads what the tiers hold into the table (objects stay on disk). Call once, before use. Memory for as much of it as
  // would be kept empty (max_empty_segments) is made in the background, for those who will ask for it.
  Task<void> recover();

  ObjectTable& table();

  // Memory for incoming bytes, to be filled before put. Throws pool_full, invalid_argument (larger than the whole memory).
  // own: of the server's own books, by which room may come for others: small ones do not wait behind those.
  Task<std::shared_ptr<Blob>> reserve(std::uint64_t bytes, Deadline deadline, bool own = false);
  // Several, together or not at all (so that two callers cannot wait for each other's halves).
  Task<Blobs> reserve_all(std::vector<std::uint64_t> sizes, Deadline deadline, bool own = false);
  // What needs no waiting; null otherwise, or nothing at all.
  std::shared_ptr<Blob> try_reserve(std::uint64_t bytes);
  Blobs try_reserve_all(std::span<const std::uint64_t> sizes);
  // What an object of this size counts against memory_bytes.
  static std::uint64_t charge_of(std::uint64_t bytes) { return ObjectMemory::charge_of(bytes); }
  std::uint64_t memory_limit() const;
  std::uint64_t memory_free() const;  // of that limit, in whatever pieces
  // Metadata to be put with objects. They are beside memory_bytes, for no tier can free them, and count until their last owner is
  // gone; the same text is kept once. Throws Error(pool_full) where all of them would be more than half of memory_bytes (short
  // ones: five eighths); anyway: does not (copies of what another server has taken).
  std::shared_ptr<const std::string> keep_metadata(std::string_view text, bool anyway = false);
  // Called before an object is evicted: gives memory up that was reserved for something else, or returns false.
  void spare_first(std::function<bool()> give_up);

  struct Write {
    Namespace ns;
    std::string row, column;
    StoredObject object;  // version, checksum, blob and the rest filled in
    bool keep_older = false;
  };
  // Makes a batch present and, if durable, returns when it is. The table has them (and waiters are told) before the disk does
  // unless `after_disk` is set (it means durable): then only once they are durable. When the disk fails, an error is thrown
  // and after_disk objects are not there; others are, in memory. Versions that are there already, or that
  // newer ones have replaced, are skipped (ObjectTable::insert).
  // Throws Error: system, timeout, unsupported (durable without a tier), invalid_argument (key too long, no bytes).
  Task<void> put(std::vector<Write> writes, bool durable, bool after_disk, Deadline deadline);
  // Whether there is no tier. Then put_now is all that a put needs.
  bool memory_only() const;
  // The same for one object whose bytes and key are known to be in order, without a tier. False: it was skipped.
  bool put_now(const Namespace& ns, std::string_view row, std::string_view column, StoredObject object,
               bool keep_older);

  // The newest version of a key that is on its way to disk and not in the table before it is there: its put may have timed out,
  // and it may come yet. version 0: none.
  struct OnItsWay {
    std::uint64_t version = 0, bytes = 0, checksum = 0;
  };
  OnItsWay on_its_way(const std::string& packed_key);
  // Whether other bytes are on their way under this version.
  bool is_taken_on_its_way(const std::string& packed_key, const StoredObject& object);
  // Nothing of what is on its way now comes to the table: its puts fail with Error(stale_view).
  void give_up_on_its_way();

  // The object with its bytes in memory (recalled from a tier if need be; concurrent loads share one read). Empty when there
  // is none. Throws pool_full, timeout, protocol (the bytes on disk are not those that were put), system.
  struct Loaded {
    StoredObject object;  // object.blob is set; holding it keeps the bytes
  };
  Task<std::optional<Loaded>> load(Namespace ns, std::string row, std::string column,
                                   std::optional<std::uint64_t> version, Deadline deadline);
  // From memory and tiers. False when there was none. durable: returns when it is synced, and so are earlier drops of the
  // key; if that fails, Error(system), and it is tried again in the background.
  Task<bool> drop(Namespace ns, std::string row, std::string column, std::optional<std::uint64_t> version, bool durable,
                  Deadline deadline);
  // Everything that is in memory only is written and synced (clean stop, drain). Throws Error(system) at the first failure.
  Task<void> flush(Deadline deadline);

  // The version with which a key that is absent goes on after a restart: higher than any that was durable and dropped before
  // it (one number for all keys, kept on disk). 1 without such a past.
  std::uint64_t first_version() const;

  StoreStatistics statistics() const;

 private:
  struct Impl;
  std::shared_ptr<fabric::Progress> progress_;
  std::shared_ptr<Impl> impl_;
};

// Waits for the promise, until the deadline.
fabric::Task<void> finished_by(fabric::Progress& progress, std::shared_ptr<fabric::Promise<void>> done,
                               base::Deadline deadline, std::string what);

}  // namespace penstock::pool
