// Who waits for keys and rows of an object table, and who is subscribed to its changes. The table says what has changed, and
// its waiters and subscribers are called by the rules of object_table.hpp. Engine thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "pool/keys/pattern.hpp"
#include "pool/store/object_table.hpp"

namespace penstock::pool {

class ObjectWaiters {
 public:
  using WaiterId = ObjectTable::WaiterId;
  using Event = ObjectTable::Event;
  // The table outlives it.
  explicit ObjectWaiters(ObjectTable& table) : table_(table) {}

  // For a key that the table does not hold.
  WaiterId wait(const Namespace& ns, std::string_view row, std::string_view column, std::function<void()> present);
  // For a row with `have` objects whose columns match, fewer than `count`.
  WaiterId wait_row(const Namespace& ns, std::string_view row, TextPattern column, std::size_t count, std::size_t have,
                    std::function<void()> reached);
  WaiterId subscribe(const Namespace& ns, KeyPattern pattern, Event event);
  void cancel(WaiterId id);  // a waiter or a subscription
  std::uint32_t of_key(const Namespace& ns, std::string_view row, std::string_view column) const;
  std::size_t size() const { return waiters_.size(); }  // without subscriptions

  // A key was added or removed, not only a version of it. Calls nobody.
  void count_row(const Namespace& ns, std::string_view row, std::string_view column, bool added);
  // Calls those whom the change concerns; one that a callback makes is told after those before it. The row, the column and the
  // object need not outlive the first callback.
  void change(bool dropped, const Namespace& ns, std::string_view row, std::string_view column,
              const StoredObject& object);

 private:
  // A key's waiter, a row's, or a subscription, in one numbering: their order is the order in which they are told.
  struct Waiter {
    std::string key;                // packed; of a row: with an empty column
    std::function<void()> present;  // taken out when it is called
    TextPattern column;             // of a row
    std::size_t count = 0;          // of a row; 0: the waiter of one key
    std::size_t have = 0;
  };
  struct Watcher {
    Namespace ns;
    KeyPattern pattern;
    Event event;
  };
  struct Change {
    bool dropped;
    Namespace ns;
    std::string row, column;
    StoredObject object;
    WaiterId before;  // who came later was told by the call that made the waiter
  };
  using Waiters = std::unordered_map<WaiterId, Waiter>;
  using Index = std::unordered_map<std::string, std::set<WaiterId>>;

  void tell();
  void tell(const Change& change);
  void tell(WaiterId id, const Change& change);
  void forget(Waiters::iterator waiter);

  ObjectTable& table_;
  Waiters waiters_;
  Index by_key_, by_row_;
  std::map<WaiterId, std::shared_ptr<Watcher>> watchers_;
  WaiterId next_id_ = 1;
  std::deque<Change> changes_;
  bool telling_ = false;
};

}  // namespace penstock::pool
