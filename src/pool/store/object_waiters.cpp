#include "pool/store/object_waiters.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "pool/keys/object_key.hpp"

namespace penstock::pool {

ObjectWaiters::WaiterId ObjectWaiters::wait(const Namespace& ns, std::string_view row, std::string_view column,
                                            std::function<void()> present) {
  const WaiterId id = next_id_++;
  std::string key = pack_key(ns, row, column);
  by_key_[key].insert(id);
  waiters_.emplace(id, Waiter{std::move(key), std::move(present), {}});
  return id;
}

ObjectWaiters::WaiterId ObjectWaiters::wait_row(const Namespace& ns, std::string_view row, TextPattern column,
                                                std::size_t count, std::size_t have, std::function<void()> reached) {
  const WaiterId id = next_id_++;
  std::string key = pack_key(ns, row, {});
  by_row_[key].insert(id);
  waiters_.emplace(id, Waiter{std::move(key), std::move(reached), std::move(column), count, have});
  return id;
}

ObjectWaiters::WaiterId ObjectWaiters::subscribe(const Namespace& ns, KeyPattern pattern, Event event) {
  const WaiterId id = next_id_++;
  watchers_.emplace(id, std::make_shared<Watcher>(Watcher{ns, std::move(pattern), std::move(event)}));
  return id;
}

void ObjectWaiters::cancel(WaiterId id) {
  if (const auto waiter = waiters_.find(id); waiter != waiters_.end()) forget(waiter);
  else watchers_.erase(id);
}

std::uint32_t ObjectWaiters::of_key(const Namespace& ns, std::string_view row, std::string_view column) const {
  if (by_key_.empty()) return 0;
  const auto found = by_key_.find(pack_key(ns, row, column));
  return found == by_key_.end() ? 0 : static_cast<std::uint32_t>(found->second.size());
}

void ObjectWaiters::forget(Waiters::iterator waiter) {
  Index& index = waiter->second.count > 0 ? by_row_ : by_key_;
  const auto entry = index.find(waiter->second.key);
  entry->second.erase(waiter->first);
  if (entry->second.empty()) index.erase(entry);
  waiters_.erase(waiter);
}

// ------------------------------------------------------------------------------------------------------------- changes

void ObjectWaiters::count_row(const Namespace& ns, std::string_view row, std::string_view column, bool added) {
  if (by_row_.empty()) return;
  const auto found = by_row_.find(pack_key(ns, row, {}));
  if (found == by_row_.end()) return;
  for (const WaiterId id : found->second) {
    Waiter& waiter = waiters_.at(id);
    if (waiter.column.matches(column)) waiter.have += added ? 1 : std::size_t{0} - 1;
  }
}

// Copies what has to be told only if anybody wants to know.
void ObjectWaiters::change(bool dropped, const Namespace& ns, std::string_view row, std::string_view column,
                           const StoredObject& object) {
  const bool awaited = !dropped && ((!by_key_.empty() && by_key_.contains(pack_key(ns, row, column))) ||
                                    (!by_row_.empty() && by_row_.contains(pack_key(ns, row, {}))));
  const auto wants = [&](const auto& watcher) {
    return watcher.second->ns == ns && watcher.second->pattern.matches(row, column);
  };
  if (!awaited && std::ranges::none_of(watchers_, wants)) return;
  changes_.push_back({dropped, ns, std::string(row), std::string(column), object, next_id_});
  if (!telling_) tell();
}

void ObjectWaiters::tell() {
  struct Telling {
    explicit Telling(bool& flag) : flag(flag) { flag = true; }
    ~Telling() { flag = false; }
    bool& flag;
  } guard(telling_);
  while (!changes_.empty()) {
    const Change change = std::move(changes_.front());
    changes_.pop_front();
    tell(change);
  }
}

void ObjectWaiters::tell(const Change& change) {
  std::vector<WaiterId> ids;
  if (!change.dropped) {
    for (const auto& [index, column] :
         {std::pair{&by_key_, std::string_view(change.column)}, {&by_row_, std::string_view()}}) {
      const auto found = index->find(pack_key(change.ns, change.row, column));
      if (found != index->end()) ids.insert(ids.end(), found->second.begin(), found->second.end());
    }
  }
  for (const auto& [id, watcher] : watchers_)
    if (id < change.before && watcher->ns == change.ns && watcher->pattern.matches(change.row, change.column))
      ids.push_back(id);
  std::ranges::sort(ids);
  // A column that is empty names a key as well as its row; nobody is called twice, as ids differ.
  for (const WaiterId id : ids) tell(id, change);
}

// Calls it, unless one that was called before has cancelled it or taken away what it waits for.
void ObjectWaiters::tell(WaiterId id, const Change& change) {
  if (const auto watcher = watchers_.find(id); watcher != watchers_.end()) {
    const auto alive = watcher->second;  // it may cancel itself
    alive->event(change.dropped, change.ns, change.row, change.column, change.object);
    return;
  }
  const auto waiter = waiters_.find(id);
  if (waiter == waiters_.end()) return;
  const bool satisfied = waiter->second.count > 0 ? waiter->second.have >= waiter->second.count
                                                  : table_.find(change.ns, change.row, change.column) != nullptr;
  if (!satisfied) return;
  const auto present = std::move(waiter->second.present);
  forget(waiter);
  present();
}

}  // namespace penstock::pool
