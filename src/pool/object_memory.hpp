// The bytes of objects in memory: small ones on the heap, large ones in a slab of shared segments (rpc::BulkBuffer), so that
// peers on this node can read them in place.
//
// A Blob is one object's bytes; filled once, then immutable and shared. Its last owner (on any thread) gives the memory back.
// The slab hands out parts of segments (page-aligned from 64 KiB up, else 64-byte aligned), joins free neighbours, keeps a
// few empty segments and gives others back to the system. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "rpc/bulk.hpp"

namespace penstock::pool {

inline constexpr std::uint64_t slab_object_bytes = 32 << 10;     // from here on objects lie in the slab
inline constexpr std::uint64_t slab_segment_bytes = 64ull << 20;  // larger objects get a segment of their own

class ObjectMemory;

class Blob {
 public:
  ~Blob();
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // While it is filled, before it is shared.
  std::span<std::byte> writable() { return {data_, size_}; }
  std::uint64_t size() const { return size_; }
  // Whether peers on this node can map it.
  bool shareable() const { return segment_ != nullptr; }

 private:
  friend class ObjectMemory;
  Blob() = default;
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t charged_ = 0;                  // what it counts against the limit
  std::shared_ptr<ObjectMemory> memory_;
  std::shared_ptr<rpc::BulkBuffer> segment_;   // null: on the heap
};

class ObjectMemory : public std::enable_shared_from_this<ObjectMemory> {
 public:
  // freed is called (any thread) whenever memory was given back.
  static std::shared_ptr<ObjectMemory> create(std::uint64_t limit_bytes, std::function<void()> freed);
  ~ObjectMemory();
  // Null when it does not fit now. Throws Error(memory) when the system has none.
  std::shared_ptr<Blob> try_allocate(std::uint64_t bytes);
  std::uint64_t used() const;           // charged: sizes as allocated
  std::uint64_t peak() const;
  std::uint64_t limit() const;
  std::uint64_t segment_bytes() const;  // mapped

 private:
  friend class Blob;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::pool
