// A tier: where a server keeps objects below its memory. Each implementation passes one conformance suite.
//
//   files    large objects as one file each, checksummed header and trailer, below a directory of hashed subfolders
//   rocksdb  small objects in RocksDB (values in write batches; group commit when synced)
//   disk     both: small objects to rocksdb, large ones to files, with the index in rocksdb. The usual local tier.
//   hdf5     one HDF5 file per row that other tools open (a group per column; data as bytes or, with a described array, typed)
//
// Keys and metadata are opaque bytes; a key is at most 16 KiB (two parts of 4 KiB or more and a namespace), metadata at most
// 1 MiB; data up to 2^48 bytes. Every get verifies the checksum (XXH3, 64 bits) that was given with put or computed by it.
// Calls block and may come from several threads (the pool's workers); calls for one key are not made concurrently.
// Errors: Error(not_found), Error(system) with errno's text (a full disk says "no space" and names the path; nothing of that
// put remains), Error(protocol) when stored bytes do not match their checksum. After an error the tier goes on.
// What sync acknowledged survives kill -9 and the loss of what was not synced; recovery on open drops halves silently
// written, never a synced object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::storage {

struct TierEntry {
  std::string key;
  std::uint64_t data_bytes = 0;
  std::uint64_t checksum = 0;  // XXH3 of the data
  std::string metadata;
};

// To be stored under a key.
struct TierWrite {
  std::string_view key;
  std::string_view metadata;
  std::span<const std::byte> data;
  std::optional<std::uint64_t> checksum;  // of the data, when the caller has it
};

struct TierStatistics {
  std::uint64_t objects = 0;
  std::uint64_t bytes = 0;       // of data
  std::uint64_t free_bytes = 0;  // of the file system
  std::uint64_t written_bytes = 0, read_bytes = 0, syncs = 0, errors = 0;
};

class Tier {
 public:
  virtual ~Tier() = default;
  virtual std::string_view kind() const = 0;
  virtual const std::string& path() const = 0;

  // All of them or none (one write batch); replaces what was there. sync: durable on return (concurrent calls share one sync).
  virtual void put(std::span<const TierWrite> writes, bool sync) = 0;
  virtual std::optional<TierEntry> find(std::string_view key) = 0;
  // Reads all data into `out` (data_bytes long) and verifies it.
  virtual void get(std::string_view key, std::span<std::byte> out) = 0;
  // False when there was none.
  virtual bool erase(std::string_view key, bool sync) = 0;
  // Calls visit for each entry whose key starts with prefix, in key order; stops when it returns false.
  virtual void scan(std::string_view prefix, const std::function<bool(const TierEntry&)>& visit) = 0;
  // Everything put before is durable on return.
  virtual void sync() = 0;
  virtual TierStatistics statistics() = 0;
};

struct TierOptions {
  std::string kind = "disk";
  std::string path;
  std::uint64_t small_bytes = 64 << 10;     // disk: smaller objects go to RocksDB
  std::uint64_t limit_bytes = 0;            // of data; 0: what the file system has
  std::uint64_t rocksdb_cache_bytes = 32 << 20;  // block cache and write buffers together
};
// Makes the directory if need be and recovers. Throws Error: unsupported (kind not built in: names those that are), system,
// wrong_state (another process has it open), protocol (not a tier of this kind).
std::unique_ptr<Tier> open_tier(const TierOptions& options);

// XXH3, 64 bits (libxxhash): the checksum of everything that a pool keeps, end to end.
std::uint64_t checksum(std::span<const std::byte> data);

}  // namespace penstock::storage
