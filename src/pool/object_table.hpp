// What one server knows of its objects: keys, versions, where their bytes are, and who waits for them. Pure: no I/O, no
// threads, no clock of its own; used on the engine thread.
//
// Keys are kept in one ordered index (namespace, row, column), so a prefix is a range and a listing is bounded by what it
// visits. An object has versions, ascending; all but the newest are kept only where they were put with add_version.
// Waiters, group waits and subscriptions are told when an object becomes present, in the order in which they came, after the
// change is complete; they may call back into the table. A drop leaves waiters waiting.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/pool.hpp"
#include "pool/pattern.hpp"

namespace penstock::pool {

// Bytes in memory; the last owner gives them back (pool/object_memory.hpp).
class Blob;

struct StoredObject {
  std::uint64_t version = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
  std::int64_t put_us = 0;
  std::optional<std::uint64_t> tag;
  std::shared_ptr<const std::string> metadata;  // shared by the objects of a batch
  std::shared_ptr<const Blob> blob;             // null: not in memory
  bool on_disk = false;                         // a tier holds it, synced
  std::uint64_t last_used = 0;                  // for eviction: a count that ascends
};

class ObjectTable {
 public:
  using WaiterId = std::uint64_t;

  // The newest version, or the one named; null when absent. Valid until the next change of that key.
  StoredObject* find(const Namespace& ns, std::string_view row, std::string_view column,
                     std::optional<std::uint64_t> version = {});
  // Makes it present and tells those who wait. keep_older: older versions stay (add_version). The version given must be newer
  // than the newest there; else nothing happens and false is returned.
  bool insert(const Namespace& ns, std::string_view row, std::string_view column, StoredObject object, bool keep_older);
  // All versions, or one. False when there was none. The version that the key had is remembered by the caller (tombstones).
  bool erase(const Namespace& ns, std::string_view row, std::string_view column, std::optional<std::uint64_t> version = {});

  struct Entry {
    const Namespace& ns;
    std::string_view row, column;
    StoredObject& object;  // the newest
  };
  // Visits entries matching the pattern after the packed key `after`, in order, until visit returns false or max_visits index
  // entries were looked at. Returns the packed key to go on after; "" at the end. Visiting must not change the table.
  std::string scan(const Namespace& ns, const KeyPattern& pattern, std::string_view after, std::size_t max_visits,
                   const std::function<bool(const Entry&)>& visit);
  // The same over all namespaces (rebalancing, recovery).
  std::string scan_all(std::string_view after, std::size_t max_visits, const std::function<bool(const Entry&)>& visit);

  // Called (once) when the key becomes present; at once when it is. 0: it was called at once.
  WaiterId wait(const Namespace& ns, std::string_view row, std::string_view column, std::function<void()> present);
  // Called (once) when the row holds `count` objects whose columns match; at once when it does.
  WaiterId wait_row(const Namespace& ns, std::string_view row, const KeyPattern& pattern, std::size_t count,
                    std::function<void()> reached);
  void cancel(WaiterId id);
  std::uint32_t waiters(const Namespace& ns, std::string_view row, std::string_view column) const;
  std::size_t waiting() const;

  // Called for every insert and erase that matches, until cancelled.
  WaiterId subscribe(const Namespace& ns, KeyPattern pattern,
                     std::function<void(bool dropped, const Namespace&, std::string_view row, std::string_view column,
                                        const StoredObject&)>
                         event);

  std::size_t size() const;           // keys
  std::uint64_t bytes() const;        // of all versions
  std::uint64_t index_bytes() const;  // what the index itself takes, estimated from its parts

  ObjectTable();
  ~ObjectTable();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// namespace, row, column as one string whose order is (namespace, row, column) and that splits again.
std::string pack_key(const Namespace& ns, std::string_view row, std::string_view column);
struct UnpackedKey {
  Namespace ns;
  std::string row, column;
};
// Throws Error(protocol).
UnpackedKey unpack_key(std::string_view packed);

}  // namespace penstock::pool
