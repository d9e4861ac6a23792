// Which objects may be evicted, least recently used first: exact, and cheap for those that are used often.
//
// A heap of (last use, key, version) as it was when the entry was made. An object that was used since is found out when its
// entry comes up and goes back to its place; so a use costs nothing here. Entries whose object is gone are dropped when they
// come up. Pure; engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock::pool {

class EvictionHeap {
 public:
  struct Entry {
    std::uint64_t last_used = 0, version = 0;
    std::string packed_key;
  };

  void add(Entry entry) {
    bytes_ += entry.packed_key.size();
    heap_.push_back(std::move(entry));
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  Entry take() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Entry entry = std::move(heap_.back());
    heap_.pop_back();
    bytes_ -= entry.packed_key.size();
    return entry;
  }
  // Drops what is not wanted any more: for heaps of which little comes up.
  void keep_only(const std::function<bool(const Entry&)>& wanted) {
    std::erase_if(heap_, [&](const Entry& entry) {
      if (wanted(entry)) return false;
      bytes_ -= entry.packed_key.size();
      return true;
    });
    std::make_heap(heap_.begin(), heap_.end(), later);
  }
  std::uint64_t bytes() const { return heap_.capacity() * sizeof(Entry) + bytes_; }

 private:
  static bool later(const Entry& a, const Entry& b) { return a.last_used > b.last_used; }
  std::vector<Entry> heap_;
  std::uint64_t bytes_ = 0;
};

}  // namespace penstock::pool
