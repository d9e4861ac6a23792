// Parts of large segments: which are free and which are in use. Pure bookkeeping over addresses (it never touches the memory),
// best fit by size, then by address, so that the higher segments empty out. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace penstock::pool {

inline constexpr std::uint64_t slab_page_bytes = 4096;  // every size and address is a multiple of it

template <class Buffer>
class Slab {
 public:
  struct Part {
    std::byte* data = nullptr;  // null: there was none
    std::shared_ptr<Buffer> segment;
  };

  // A whole segment of free memory.
  void add(std::shared_ptr<Buffer> buffer, std::byte* base, std::uint64_t bytes) {
    segments_.emplace(base, Segment{std::move(buffer), bytes, 0, {}});
    mapped_ += bytes;
    ++empty_;
    empty_bytes_ += bytes;
    insert_free(segments_.find(base)->second, base, bytes);
  }

  Part take(std::uint64_t bytes) {
    const auto best = by_size_.lower_bound({bytes, nullptr});
    if (best == by_size_.end()) return {};
    const auto [size, base] = *best;
    auto& segment = segment_of(base);
    erase_free(segment, base, size);
    if (size > bytes) insert_free(segment, base + bytes, size - bytes);
    if (segment.used == 0) {
      --empty_;
      empty_bytes_ -= segment.bytes;
    }
    segment.used += bytes;
    used_ += bytes;
    return {base, segment.buffer};
  }

  void give_back(std::byte* base, std::uint64_t bytes) {
    auto& segment = segment_of(base);
    segment.used -= bytes;
    used_ -= bytes;
    const auto after = segment.free.lower_bound(base);
    if (after != segment.free.end() && after->first == base + bytes) {
      const auto size = after->second;
      erase_free(segment, base + bytes, size);
      bytes += size;
    }
    auto before = segment.free.lower_bound(base);
    if (before != segment.free.begin()) {
      --before;
      if (const auto [start, size] = *before; start + size == base) {
        erase_free(segment, start, size);
        base = start;
        bytes += size;
      }
    }
    insert_free(segment, base, bytes);
    if (segment.used == 0) {
      ++empty_;
      empty_bytes_ += segment.bytes;
    }
  }

  // Takes empty segments out (the largest first) until at most `keep` are left and at most `bytes` are mapped; the caller
  // lets go of them without its lock.
  std::vector<std::shared_ptr<Buffer>> trim(std::size_t keep, std::uint64_t bytes) {
    std::vector<std::shared_ptr<Buffer>> out;
    while (empty_ > 0 && (empty_ > keep || mapped_ > bytes)) {
      auto chosen = segments_.end();
      for (auto it = segments_.begin(); it != segments_.end(); ++it)
        if (it->second.used == 0 && (chosen == segments_.end() || it->second.bytes >= chosen->second.bytes))
          chosen = it;
      erase_free(chosen->second, chosen->first, chosen->second.bytes);
      mapped_ -= chosen->second.bytes;
      --empty_;
      empty_bytes_ -= chosen->second.bytes;
      out.push_back(std::move(chosen->second.buffer));
      segments_.erase(chosen);
    }
    return out;
  }

  bool fits(std::uint64_t bytes) const { return by_size_.lower_bound({bytes, nullptr}) != by_size_.end(); }
  std::uint64_t mapped() const { return mapped_; }
  std::uint64_t used() const { return used_; }
  std::uint64_t empty_bytes() const { return empty_bytes_; }
  std::uint64_t largest_free() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
  std::size_t free_parts() const { return by_size_.size(); }
  std::size_t segments() const { return segments_.size(); }
  std::size_t empty_segments() const { return empty_; }

 private:
  struct Segment {
    std::shared_ptr<Buffer> buffer;
    std::uint64_t bytes = 0, used = 0;
    std::map<std::byte*, std::uint64_t> free;
  };
  Segment& segment_of(std::byte* address) { return std::prev(segments_.upper_bound(address))->second; }
  void insert_free(Segment& segment, std::byte* base, std::uint64_t bytes) {
    segment.free.emplace(base, bytes);
    by_size_.emplace(bytes, base);
  }
  void erase_free(Segment& segment, std::byte* base, std::uint64_t bytes) {
    segment.free.erase(base);
    by_size_.erase({bytes, base});
  }

  std::map<std::byte*, Segment> segments_;  // by first address
  std::set<std::pair<std::uint64_t, std::byte*>> by_size_;
  std::uint64_t mapped_ = 0, used_ = 0;
  std::size_t empty_ = 0;
  std::uint64_t empty_bytes_ = 0;
};

}  // namespace penstock::pool
