// A first-in first-out queue that keeps its memory: no allocation once it has grown to its largest length.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace penstock::stream {

template <class T>
class RingQueue {
 public:
  explicit RingQueue(std::size_t capacity = 8) : items_(capacity) {}
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  T& front() { return items_[head_]; }
  const T& front() const { return items_[head_]; }
  T& back() { return (*this)[size_ - 1]; }
  T& operator[](std::size_t i) { return items_[(head_ + i) % items_.size()]; }
  const T& operator[](std::size_t i) const { return items_[(head_ + i) % items_.size()]; }
  void push(T item) {
    if (size_ == items_.size()) grow();
    items_[(head_ + size_++) % items_.size()] = std::move(item);
  }
  T pop() {
    T item = std::move(items_[head_]);
    head_ = (head_ + 1) % items_.size();
    --size_;
    return item;
  }

 private:
  void grow() {
    std::vector<T> larger(items_.size() * 2 + 1);
    for (std::size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
    items_ = std::move(larger);
    head_ = 0;
  }
  std::vector<T> items_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace penstock::stream
