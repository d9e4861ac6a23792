// One server's objects: the table, their bytes in memory, and the tiers below. Knows nothing of other servers or clients.
//
// Memory is bounded: every byte of an object that is in memory was reserved first. When a reservation would pass the high
// watermark, objects that a tier holds and nobody uses are evicted, least recently used first, down to the low watermark;
// what no tier holds yet is written behind. A reservation waits for that up to its deadline, then fails with pool_full (the
// message says why nothing could go: leased, not yet written, disk full). Accounting is exact: reserved, used, index.
//
// Durable means: every byte and the key's entry are in the first tier and synced. Objects put without it are written behind
// (when there is a tier), in batches, never in a caller's path. A full or failing disk makes durable puts fail with
// Error(system) and stops eviction of what it does not hold; memory goes on. Recovery finds what the tiers hold.
//
// Engine thread, except where tasks say that they use the workers. Tiers: the first that takes an object; `demote` moves old
// objects of a full tier to the next. Checksums are computed on arrival (or given) and verified on every read from a tier.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/task.hpp"
#include "pool/object_memory.hpp"
#include "pool/object_table.hpp"
#include "storage/tier.hpp"

namespace penstock::pool {

struct StoreOptions {
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  double high_watermark = 0.9, low_watermark = 0.75;  // of memory_bytes
  std::vector<storage::TierOptions> tiers;            // from fast to slow; none: memory only
  bool write_behind = true;                           // of objects that were not put as durable
  std::uint32_t writers = 2;                          // threads that write to tiers
};

struct StoreStatistics {
  std::uint64_t objects = 0, bytes = 0;           // all versions, wherever they are
  std::uint64_t memory_used = 0, memory_peak = 0, memory_limit = 0;  // bytes of objects in memory, reservations included
  std::uint64_t segment_bytes = 0;                // of shared segments mapped, free parts included
  std::uint64_t index_bytes = 0;
  std::uint64_t unwritten_bytes = 0;              // in memory only, to be written behind
  std::uint64_t evictions = 0, recalls = 0, waiting = 0;
  std::string disk_error;                         // the last, "" when the last write went well
  std::vector<storage::TierStatistics> tiers;
};

class ObjectStore {
 public:
  template <class T>
  using Task = fabric::Task<T>;
  using Deadline = base::Deadline;

  ObjectStore(std::shared_ptr<fabric::Progress> progress, StoreOptions options);
  ~ObjectStore();

  // Reads what the tiers hold into the table (objects stay on disk). Call once, before use.
  Task<void> recover();

  ObjectTable& table();

  // Memory for incoming bytes, to be filled before put. Throws pool_full, invalid_argument (larger than the whole memory).
  Task<std::shared_ptr<Blob>> reserve(std::uint64_t bytes, Deadline deadline);

  struct Write {
    Namespace ns;
    std::string row, column;
    StoredObject object;      // version, checksum, blob and the rest filled in
    bool keep_older = false;
  };
  // Makes a batch present and, if durable, returns when it is. The table has them (and waiters are told) before the disk does
  // unless `after_disk` is set: then only once they are durable. When the disk fails, an error is thrown and after_disk
  // objects are not there. Versions that are not newer than what is there are skipped.
  Task<void> put(std::vector<Write> writes, bool durable, bool after_disk, Deadline deadline);

  // The object with its bytes in memory (recalled from a tier if need be). Empty when there is none.
  struct Loaded {
    StoredObject object;  // object.blob is set; holding it keeps the bytes
  };
  Task<std::optional<Loaded>> load(Namespace ns, std::string row, std::string column, std::optional<std::uint64_t> version,
                                   Deadline deadline);
  // From memory and tiers. False when there was none. durable: returns when it is synced.
  Task<bool> drop(Namespace ns, std::string row, std::string column, std::optional<std::uint64_t> version, bool durable,
                  Deadline deadline);
  // Everything that is in memory only is written and synced (clean stop, drain).
  Task<void> flush(Deadline deadline);

  StoreStatistics statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::pool
