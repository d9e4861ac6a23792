// What one server knows of its objects: keys, versions, where their bytes are, and who waits for them. Pure: no I/O, no
// threads, no clock of its own; used on the engine thread.
//
// Keys are kept in one ordered index (namespace, row, column), so a prefix is a range and a listing is bounded by what it
// visits. An object has versions, ascending; all but the newest are kept only where they were put with add_version.
//
// Waiters, group waits and subscriptions are told when an object becomes present, in the order in which they came, after the
// change is complete. They may call back into the table (insert, erase, wait, cancel), and they must not throw. Changes made
// from within a callback are told after the present one has been told to all: everyone hears of changes in their order.
// A waiter that is called finds its key present: one that is still to be called when another drops the key goes on waiting,
// as after every drop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/pool.hpp"
#include "pool/keys/object_key.hpp"
#include "pool/keys/pattern.hpp"

namespace penstock::pool {

// Bytes in memory; the last owner gives them back (object_memory.hpp).
class Blob;

struct StoredObject {
  std::uint64_t version = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
  std::int64_t put_us = 0;
  std::optional<std::uint64_t> tag;
  std::shared_ptr<const std::string> metadata;  // shared by all that have the same
  std::shared_ptr<const Blob> blob;             // null: not in memory
  bool on_disk = false;                         // a tier holds it, synced
  bool keeps_older = false;                     // versions before it stay beside it (add_version)
  std::uint64_t last_used = 0;                  // for eviction: a count that ascends
  std::uint64_t metadata_bytes() const { return metadata ? metadata->size() : 0; }
};

class ObjectTable {
 public:
  using WaiterId = std::uint64_t;
  class Node;  // an object with its key
  // The newest version, or the one named; null when absent. Valid until the next change of that key.
  StoredObject* find(const Namespace& ns, std::string_view row, std::string_view column,
                     std::optional<std::uint64_t> version = {});
  // Makes it present and tells those who wait. keep_older: older versions stay (add_version). A version that is not newer than
  // the newest there is kept beside it when it is not there and all newer ones keep older ones (nobody is told: the key was
  // there); else nothing happens and false is returned. Throws Error(invalid_argument): a key that is too long.
  bool insert(const Namespace& ns, std::string_view row, std::string_view column, StoredObject object, bool keep_older);
  // All versions, ascending.
  std::vector<StoredObject> versions(const Namespace& ns, std::string_view row, std::string_view column) const;
  // Whether insert would take it.
  bool takes(const Namespace& ns, std::string_view row, std::string_view column, std::uint64_t version);
  // All versions, or one. False when there was none. The version that the key had is remembered by the caller (tombstones).
  bool erase(const Namespace& ns, std::string_view row, std::string_view column,
             std::optional<std::uint64_t> version = {});

  struct Entry {
    const Namespace& ns;
    std::string_view row, column;
    StoredObject& object;                 // the newest
    std::span<const StoredObject> older;  // ascending
  };
  // Visits entries matching the pattern after the packed key `after` ("": from the first), in order, until visit returns false
  // or max_visits index entries (at least one) were looked at, matching or not; only those that begin with the row pattern's
  // prefix are looked at, and if that is a whole row, with the column's. Returns the packed key to go on after, which need not
  // be there any more then; "" at the end. The entry for which visit returned false counts as visited. Visiting must not
  // change the table. Throws Error(protocol) for an `after` that is no key of the namespace.
  std::string scan(const Namespace& ns, const KeyPattern& pattern, std::string_view after, std::size_t max_visits,
                   const std::function<bool(const Entry&)>& visit);
  // The same over all namespaces (rebalancing, recovery).
  std::string scan_all(std::string_view after, std::size_t max_visits, const std::function<bool(const Entry&)>& visit);

  // Called (once) when the key becomes present; at once when it is. 0: it was called at once.
  WaiterId wait(const Namespace& ns, std::string_view row, std::string_view column, std::function<void()> present);
  // Called (once) when the row holds `count` objects whose columns match (the pattern's row is not looked at); at once when it
  // does. To begin costs a visit of the row.
  WaiterId wait_row(const Namespace& ns, std::string_view row, const KeyPattern& pattern, std::size_t count,
                    std::function<void()> reached);
  void cancel(WaiterId id);
  std::uint32_t waiters(const Namespace& ns, std::string_view row, std::string_view column) const;
  std::size_t waiting() const;

  // Called for every insert and erase that matches, from now on, until cancelled. An erase of all versions is one event, with
  // the newest.
  using Event = std::function<void(bool dropped, const Namespace&, std::string_view row, std::string_view column,
                                   const StoredObject&)>;
  WaiterId subscribe(const Namespace& ns, KeyPattern pattern, Event event);

  std::size_t size() const;     // keys, of all namespaces
  std::uint64_t bytes() const;  // of all versions
  std::uint64_t index_bytes()
      const;  // what the index itself takes (keys, StoredObjects, tree), computed from its parts

  ObjectTable();
  ~ObjectTable();

 private:
  struct DestroyNode {
    void operator()(Node* node) const;
  };
  class Space;
  struct Order;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::pool
