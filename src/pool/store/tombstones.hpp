// What was dropped a while ago: by it a server knows what comes late for what it is. A replica of a dropped version is
// refused, a key that is put again goes on with a higher version, and a drop that is asked again because its answer was lost
// is told what its first try did.
//
// Kept for `lifetime`, which is longer than any message of the time before the drop can be under way (calls have deadlines,
// and what serves them looks at those again before it changes anything), up to max_entries; and for as long as a view that is
// not settled stands, in which other servers offer what they held. Engine thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"

namespace penstock::pool {

class Tombstones {
 public:
  using Time = base::Clock::time_point;
  static constexpr std::chrono::seconds lifetime{60};
  static constexpr std::size_t max_entries = 100'000, max_single = 1000;

  // Everything up to a version was dropped, or (only) that version. request: who asked for it, to be known again; 0: nobody.
  void note(const std::string& packed_key, std::uint64_t version, bool only, std::uint64_t request,
            Time now = base::Clock::now()) {
    forget_old(now);
    auto& entry = entries_[packed_key];
    if (!only) entry.up_to = std::max(entry.up_to, version);
    else if (!covers(packed_key, version)) entry.single.push_back(version);
    if (entry.single.size() > max_single) entry.single.erase(entry.single.begin());
    if (request != 0) {
      entry.request = request;
      entry.version = version;
    }
    entry.noted = now;
    order_.push_back({now, packed_key});
  }
  bool covers(const std::string& packed_key, std::uint64_t version) const {
    const auto found = entries_.find(packed_key);
    if (found == entries_.end()) return false;
    const auto& single = found->second.single;
    return version <= found->second.up_to || std::find(single.begin(), single.end(), version) != single.end();
  }
  // The highest version that was dropped; 0: none.
  std::uint64_t newest(const std::string& packed_key) const {
    const auto found = entries_.find(packed_key);
    if (found == entries_.end()) return 0;
    std::uint64_t highest = found->second.up_to;
    for (const auto version : found->second.single) highest = std::max(highest, version);
    return highest;
  }
  // The version that this request has dropped; 0: it has not.
  std::uint64_t dropped_by(const std::string& packed_key, std::uint64_t request) const {
    const auto found = entries_.find(packed_key);
    return request != 0 && found != entries_.end() && found->second.request == request ? found->second.version : 0;
  }
  void keep_all(bool keep) { keep_all_ = keep; }
  // Those of these keys (packed).
  template <class Predicate>
  void forget_if(Predicate predicate) {
    std::erase_if(entries_, [&](const auto& entry) { return predicate(entry.first); });
  }
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t up_to = 0, request = 0, version = 0;
    std::vector<std::uint64_t> single;
    Time noted;
  };
  void forget_old(Time now) {
    while (!keep_all_ && !order_.empty() && (now - order_.front().first > lifetime || order_.size() >= max_entries)) {
      const auto found = entries_.find(order_.front().second);
      if (found != entries_.end() && found->second.noted == order_.front().first) entries_.erase(found);
      order_.pop_front();
    }
  }

  std::unordered_map<std::string, Entry> entries_;
  std::deque<std::pair<Time, std::string>> order_;
  bool keep_all_ = false;
};

}  // namespace penstock::pool
