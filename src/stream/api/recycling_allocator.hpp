// An allocator for small objects that come and go every step: freed ones are kept and handed out again, so that the
// steady state does not allocate. Thread-safe; the pool outlives its objects.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace penstock::stream {

class RecyclingPool {
 public:
  ~RecyclingPool() {
    for (void* p : free_) ::operator delete(p);
  }
  void* take(std::size_t bytes) {
    std::unique_lock lock(mutex_);
    if (bytes != size_ || free_.empty()) {
      size_ = bytes;
      return ::operator new(bytes);
    }
    void* p = free_.back();
    free_.pop_back();
    return p;
  }
  void give(void* p, std::size_t bytes) noexcept {
    std::unique_lock lock(mutex_);
    if (bytes == size_ && free_.size() < free_.capacity()) free_.push_back(p);
    else ::operator delete(p);
  }
  RecyclingPool() { free_.reserve(64); }

 private:
  std::mutex mutex_;  // guards both
  std::vector<void*> free_;
  std::size_t size_ = 0;
};

// For std::allocate_shared of one type from one pool.
template <class T>
struct RecyclingAllocator {
  using value_type = T;
  std::shared_ptr<RecyclingPool> pool;
  explicit RecyclingAllocator(std::shared_ptr<RecyclingPool> p) : pool(std::move(p)) {}
  template <class U>
  RecyclingAllocator(const RecyclingAllocator<U>& other) : pool(other.pool) {}
  T* allocate(std::size_t n) { return static_cast<T*>(pool->take(n * sizeof(T))); }
  void deallocate(T* p, std::size_t n) noexcept { pool->give(p, n * sizeof(T)); }
  template <class U>
  bool operator==(const RecyclingAllocator<U>& other) const {
    return pool == other.pool;
  }
};

}  // namespace penstock::stream
