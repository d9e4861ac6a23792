// What a connection could not send at once: bytes in order, with the descriptors that go with some of them.
//
// Not synchronised. Its memory is kept when it runs empty, so a connection that queues now and then stops allocating.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "memory/unique_fd.hpp"

namespace penstock::fabric {

class SendQueue {
 public:
  bool empty() const { return head_ == bytes_.size(); }
  std::size_t size() const { return bytes_.size() - head_; }
  void append(std::span<const std::byte> bytes) {
    if (head_ > 0 && head_ >= bytes_.size() - head_) compact();
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  // The descriptor goes with the first of the bytes appended next.
  void append_fd(memory::UniqueFd fd) { fds_.push_back({taken_ + bytes_.size() - head_, std::move(fd)}); }

  // The next bytes to send in one call, and the descriptor to send with them (-1: none).
  struct Chunk {
    std::span<const std::byte> bytes;
    int fd = -1;
  };
  Chunk front() const {
    std::span<const std::byte> bytes(bytes_.data() + head_, size());
    if (fds_.empty()) return {bytes, -1};
    const bool now = fds_.front().position == taken_;
    const std::size_t next = now ? 1 : 0;
    if (fds_.size() > next) bytes = bytes.first(fds_[next].position - taken_);
    return {bytes, now ? fds_.front().fd.get() : -1};
  }
  // So many bytes of front() were sent.
  void pop(std::size_t count) {
    if (count == 0) return;
    if (!fds_.empty() && fds_.front().position == taken_) fds_.pop_front();
    taken_ += count;
    head_ += count;
    if (empty()) {
      bytes_.clear();
      head_ = 0;
      if (bytes_.capacity() > keep_bytes) bytes_ = {};
    }
  }
  void clear() {
    bytes_.clear();
    fds_.clear();
    head_ = 0;
  }

 private:
  static constexpr std::size_t keep_bytes = std::size_t{1} << 20;
  struct QueuedFd {
    std::size_t position;  // counted as taken_ is
    memory::UniqueFd fd;
  };
  void compact() {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }
  std::vector<std::byte> bytes_;
  std::size_t head_ = 0;
  std::size_t taken_ = 0;  // bytes popped since the beginning
  std::deque<QueuedFd> fds_;
};

}  // namespace penstock::fabric
