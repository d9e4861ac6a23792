// Arrays of the application that are part of a slot's step: they stay where they are, and peers name them by offsets, as they
// name the bytes of a segment. No address leaves the process.
//
// Offsets are given out in order of add, so the same arrays have the same offsets in every step. take_back ends all use: once
// it returns nobody touches the arrays through this object.
//
// Threads: add and take_back belong to the thread that fills the slot; the rest may be called from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace penstock::memory {

class LentMemory {
 public:
  // The offset of the first byte, a multiple of block_alignment.
  std::uint64_t add(const std::byte* data, std::uint64_t bytes);
  // Waits while touch() runs in another thread.
  void take_back();
  bool empty() const;

  // Where the bytes are that peers know by this offset. Throws Error(step_gone) after take_back, Error(protocol) when they do
  // not lie in one array.
  const std::byte* find(std::uint64_t offset, std::uint64_t bytes) const;
  // For a peer that looks and touches with the lock held: the arrays are there while it is held and empty() said false.
  std::mutex& mutex() const { return mutex_; }
  bool empty_locked() const { return arrays_.empty(); }

  // Calls body(find(offset, bytes)); take_back waits for it. Several threads may be in it.
  template <class Body>
  void touch(std::uint64_t offset, std::uint64_t bytes, Body body) {
    const struct Use {
      LentMemory& of;
      explicit Use(LentMemory& memory) : of(memory) { of.change_users(1); }
      ~Use() { of.change_users(-1); }
    } use(*this);
    body(find(offset, bytes));
  }

 private:
  struct Array {
    std::uint64_t offset;
    std::uint64_t bytes;
    const std::byte* data;
  };
  void change_users(int by);

  mutable std::mutex mutex_;  // guards what follows
  std::vector<Array> arrays_;
  std::uint64_t next_ = 0;  // offset
  int users_ = 0;
  std::condition_variable unused_;
};

}  // namespace penstock::memory
