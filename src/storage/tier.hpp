// A tier: where a server keeps objects below its memory. Each implementation passes one conformance suite (tier_test.cpp).
//
//   files    each object is a file with a checksummed header, below 256 subfolders. Needs nothing.
//   rocksdb  everything in RocksDB: for small objects
//   disk     small objects, metadata and the index in RocksDB, large data in files. The usual local tier.
//   hdf5     each object is an HDF5 file that other tools open: dataset `data` (bytes, or an array where the metadata
//            begins with {"dtype": "float64", "shape": [..]}), dataset `metadata`, attributes `key`, `xxh3`, ...
//            One file for each object, because only a file that is written aside and renamed is whole after kill -9.
//
// Keys and metadata are opaque bytes; a key is at most 16 KiB (two parts of 4 KiB or more and a namespace), metadata at most
// 1 MiB; data up to 2^48 bytes. Every get verifies the checksum (XXH3, 64 bits) that was given with put or computed by it.
// Calls block and may come from several threads (the pool's workers); calls for one key are not made concurrently.
//
// Errors: Error(not_found); Error(invalid_argument) when a limit above is passed; TierFull, which is an Error(system), when
// the disk or the tier's limit is full (it says "no space left" and names the path; nothing of that put remains, unless the
// disk found no space only when it was to sync: then as below);
// Error(system) with errno's text: what was to be synced then is there or not, whole in any case; Error(protocol) when
// stored bytes do not match their checksum. After an error the tier goes on; after TierFull a put works as soon as there is
// space.
//
// What survives
//   kill -9             every put that returned, and all or none of one that did not
//   the loss of all     every put with sync that returned, and every put that returned before a sync() that did; all or none
//   that was not        of a put with sync that did not. Puts without sync: each object is there as it was put or is not there
//   synced              (dropped at open: one that was not synced is read through and verified); several of them, put in one
//                       call, one by one. A put without sync that replaces a synced object is made durable before it
//                       replaces it, so the key is never lost.
//   bytes that rot      the object stays, get throws Error(protocol); `files` and `hdf5` cannot tell the key of a file whose
//                       header is damaged: it goes to the folder `damaged`, is logged and counted in `errors`. In the
//                       log of `rocksdb` and `disk`, which has what was put last, damage loses what follows it: logged
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

#include "penstock/error.hpp"
#include "storage/checksum.hpp"

namespace penstock::storage {

constexpr std::uint64_t max_key_bytes = 16 << 10;
constexpr std::uint64_t max_metadata_bytes = 1 << 20;
constexpr std::uint64_t max_data_bytes = std::uint64_t{1} << 48;

// No space left on the file system, or below limit_bytes.
class TierFull : public Error {
 public:
  explicit TierFull(const std::string& message) : Error(Errc::system, message) {}
};

struct TierEntry {
  std::string key;
  std::uint64_t data_bytes = 0;
  std::uint64_t checksum = 0;  // XXH3, 64 bits, of the data
  std::string metadata;
};

// To be stored under a key.
struct TierWrite {
  std::string_view key;
  std::string_view metadata;
  std::span<const std::byte> data;
  std::optional<std::uint64_t> checksum;  // of the data, when the caller has it
  // Nothing is there under this key, to the caller's knowledge: it need not be looked for. What was there all the same is
  // replaced; the space and the counts that it took are set right when the tier is opened again.
  bool fresh = false;
  // Must be there before objects can be erased: a tier takes it also when there is less space than puts must leave.
  bool makes_room = false;
};

struct TierStatistics {
  std::uint64_t objects = 0;
  std::uint64_t bytes = 0;          // of data
  std::uint64_t free_bytes = 0;     // of the file system
  std::uint64_t journal_bytes = 0;  // of RocksDB's write-ahead log, beside the data
  // Since the tier was opened. errors: calls that threw, and damaged files found at open.
  std::uint64_t written_bytes = 0, read_bytes = 0, syncs = 0, errors = 0;
  // At open: files that are no object's (of puts that did not return), and objects that were not synced and are not whole.
  std::uint64_t dropped = 0;
};

class Tier {
 public:
  virtual ~Tier() = default;
  virtual std::string_view kind() const = 0;
  virtual const std::string& path() const = 0;

  // All of them or none; replaces what was there; of writes with one key the last counts. sync: durable on return
  // (concurrent calls share what can be shared). One write call for an object in a file, one record of its log
  // for all that is in RocksDB.
  virtual void put(std::span<const TierWrite> writes, bool sync) = 0;
  virtual std::optional<TierEntry> find(std::string_view key) = 0;
  // Reads all data into `out` (data_bytes long) and verifies it.
  virtual void get(std::string_view key, std::span<std::byte> out) = 0;
  // False when there was none; with sync that is durable, too, after an erase without.
  virtual bool erase(std::string_view key, bool sync) = 0;
  // Calls visit for each entry whose key starts with prefix, in key order (bytes, unsigned); stops when it returns false.
  // What is put or erased meanwhile may be seen or not. visit may call the tier.
  virtual void scan(std::string_view prefix, const std::function<bool(const TierEntry&)>& visit) = 0;
  // Everything put before is durable on return. The destructor does it too, and warns if it cannot.
  virtual void sync() = 0;
  virtual std::uint64_t used_bytes() = 0;  // of data, counted: asks no file system
  virtual TierStatistics statistics() = 0;
};

struct TierOptions {
  std::string kind = "disk";
  std::string path;
  std::uint64_t small_bytes = 64 << 10;  // disk: smaller objects go to RocksDB
  std::uint64_t limit_bytes = 0;         // of data; 0: what the file system has
  std::uint64_t rocksdb_cache_bytes =
      32 << 20;  // block cache and write buffers together; its log on disk: as much again
};
// Makes the directory if need be and recovers. Throws Error: unsupported (kind not built in: names those that are), system,
// wrong_state (another process, or this one, has it open), protocol (not a tier of this kind).
std::unique_ptr<Tier> open_tier(const TierOptions& options);

// The kinds that are built in.
std::vector<std::string_view> tier_kinds();

}  // namespace penstock::storage
