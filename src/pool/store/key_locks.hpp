// One holder a key at a time: changes of one object happen one after the other, in the order in which they came. Engine thread.
//
// Keys are known by a strong hash of 64 bits: two that share one wait for each other, which does no harm.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/task.hpp"
#include "storage/tier.hpp"

namespace penstock::pool {

class KeyLocks {
 public:
  using Keys = std::vector<std::uint64_t>;
  explicit KeyLocks(fabric::Progress& progress) : progress_(progress) {}

  class Held {
   public:
    Held() = default;
    Held(KeyLocks* locks, std::shared_ptr<const Keys> keys) : locks_(locks), keys_(std::move(keys)) {}
    Held(Held&& other) noexcept : locks_(std::exchange(other.locks_, nullptr)), keys_(std::move(other.keys_)) {}
    Held& operator=(Held&&) = delete;
    std::size_t size() const { return keys_ ? keys_->size() : 0; }  // keys, each counted once
    ~Held() {
      if (locks_) locks_->release(*keys_);
    }

   private:
    KeyLocks* locks_ = nullptr;
    std::shared_ptr<const Keys> keys_;
  };

  // All of them, taken in ascending order so that no two callers wait for each other. Throws Error(timeout).
  fabric::Task<Held> acquire(std::span<const std::string> packed_keys, base::Deadline deadline) {
    Keys keys;
    keys.reserve(packed_keys.size());
    for (const auto& key : packed_keys) keys.push_back(storage::checksum(std::as_bytes(std::span(key))));
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    return take(std::move(keys), deadline);
  }

  std::size_t held() const { return held_.size(); }

 private:
  struct Partial {  // gives back what was taken when the caller goes away half-way
    KeyLocks* locks;
    const std::vector<std::uint64_t>& keys;
    const std::size_t& taken;
    ~Partial() {
      if (locks)
        for (std::size_t i = 0; i < taken; ++i) locks->release(keys[i]);
    }
  };
  // The common case takes everything at once, without a suspension.
  fabric::Task<Held> take(Keys keys, base::Deadline deadline) {
    std::size_t taken = 0;
    Partial partial{this, keys, taken};
    for (; taken < keys.size(); ++taken) {
      for (;;) {
        auto [it, fresh] = held_.try_emplace(keys[taken]);
        if (fresh) break;
        if (!it->second) it->second = std::make_shared<fabric::Signal>(progress_);
        auto released = it->second;
        const bool notified = co_await released->wait(deadline);
        if (!notified) throw Error(Errc::timeout, "an earlier change of the same object did not end");
      }
    }
    partial.locks = nullptr;
    co_return Held(this, std::make_shared<const Keys>(std::move(keys)));
  }
  void release(const Keys& keys) {
    for (const auto key : keys) release(key);
  }
  void release(std::uint64_t key) {
    auto it = held_.find(key);
    if (it == held_.end()) return;
    auto released = std::move(it->second);
    held_.erase(it);
    if (released) released->notify_all();
  }

  fabric::Progress& progress_;
  struct AsIs {
    std::size_t operator()(std::uint64_t hash) const { return hash; }
  };
  absl::flat_hash_map<std::uint64_t, std::shared_ptr<fabric::Signal>, AsIs> held_;
};

}  // namespace penstock::pool
