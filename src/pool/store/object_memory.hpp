// The bytes of objects in memory: small ones on the heap, large ones in a slab of shared segments (transport::BulkBuffer), so that
// peers on this node can read them in place.
//
// A Blob is one object's bytes; filled once, then immutable and shared. Its last owner (on any thread) gives the memory back.
// A small blob is one allocation: counts, header and bytes. The slab hands out whole pages (best fit, lower addresses first;
// O(log n) in the number of its free parts), joins free neighbours, and keeps at most max_empty_segments empty segments, or as
// many as make `ahead_bytes`; it gives others back to the system, and also these before they and what is used pass the limit.
//
// Exact: what a blob is charged is what it takes (charge_of), and the sum of charges never passes the limit. What the slab
// takes from the system (segment_bytes) is bounded too: the limit and one segment more. So memory that is free but in parts
// too small for an object can refuse it although the limit would allow it; usage() says how much and in what parts.
//
// Pages: segments are pre-faulted when they are mapped and never given back in parts (no madvise), so that memory that is
// used again costs no page fault; they go back as a whole. Mapping one takes about 15 ms for 64 MiB: the engine thread
// allocates with try_allocate_mapped and lets a worker call grow, or grow_ahead before anybody has asked. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "transport/bulk.hpp"

namespace penstock::pool {

inline constexpr std::uint64_t slab_object_bytes = 32 << 10;  // from here on objects lie in the slab
inline constexpr std::uint64_t slab_segment_bytes =
    64ull << 20;  // for limits of 1 GiB or more; smaller limits have smaller ones
inline constexpr std::size_t max_empty_segments = 4;

class ObjectMemory;

class Blob {
  struct Token {};

 public:
  explicit Blob(Token) {}  // for ObjectMemory only
  Blob(const Blob&) = delete;
  Blob& operator=(const Blob&) = delete;
  ~Blob();
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // While it is filled, before it is shared.
  std::span<std::byte> writable() { return {data_, size_}; }
  std::uint64_t size() const { return size_; }
  std::uint64_t charged() const { return charged_; }  // what it counts against the limit
  // Whether peers on this node can map it.
  bool shareable() const { return segment_ != nullptr; }

 private:
  friend class ObjectMemory;
  std::byte* data_ = nullptr;  // page-aligned in the slab, 16-byte aligned on the heap
  std::uint64_t size_ = 0;
  std::uint64_t charged_ = 0;
  std::shared_ptr<ObjectMemory> memory_;
  std::shared_ptr<transport::BulkBuffer> segment_;  // null: on the heap
};

class ObjectMemory : public std::enable_shared_from_this<ObjectMemory> {
 public:
  // freed is called (any thread, no lock held) whenever memory was given back; it must not throw.
  // ahead_bytes: of the slab's memory, to be free and mapped before it is asked for, if somebody calls grow_ahead.
  static std::shared_ptr<ObjectMemory> create(std::uint64_t limit_bytes, std::function<void()> freed,
                                              std::uint64_t ahead_bytes = 0);
  ~ObjectMemory();
  // Null when it does not fit now; may map a segment. Throws Error(memory) when the system has none.
  std::shared_ptr<Blob> try_allocate(std::uint64_t bytes);
  // The same, but null also when a segment would have to be mapped.
  std::shared_ptr<Blob> try_allocate_mapped(std::uint64_t bytes);
  // Many small objects (below slab_object_bytes), all or none of them; false: they do not fit now, with so much beyond the limit.
  bool try_allocate_small(std::span<const std::uint64_t> sizes, std::vector<std::shared_ptr<Blob>>& out,
                          std::uint64_t beyond = 0);
  // Whether only a new segment is missing for an object of this size. beside: for it and others that are to have what is free
  // now.
  bool could_grow(std::uint64_t bytes, bool beside = false) const;
  // Maps one if could_grow. Blocks for a while. Throws Error(memory).
  void grow(std::uint64_t bytes, bool beside = false);
  // Whether less than ahead_bytes is free, and one more segment would keep within the limit. Two loads.
  bool lacks_ahead() const;
  // Maps that segment. Blocks for a while. Throws Error(memory).
  void grow_ahead();

  // What an object of this size is charged: rounded as it is allocated.
  static std::uint64_t charge_of(std::uint64_t bytes);
  std::uint64_t used() const;  // the sum of charges
  std::uint64_t peak() const;  // the highest that it was
  std::uint64_t limit() const;
  std::uint64_t segment_bytes() const;      // mapped, free parts included
  std::uint64_t new_segment_bytes() const;  // of one that is shared by objects

  struct Usage {
    std::uint64_t used = 0, slab_used = 0, segment_bytes = 0;
    std::uint64_t largest_free = 0;  // of the slab's free parts
    std::size_t free_parts = 0, segments = 0, empty_segments = 0;
    // Of the slab's free memory, the share that is not in its largest part.
    double fragmentation() const;
  };
  Usage usage() const;

 private:
  friend class Blob;
  struct Impl;
  explicit ObjectMemory(std::unique_ptr<Impl> impl);
  std::shared_ptr<Blob> allocate(std::uint64_t bytes, bool may_map);
  std::shared_ptr<Blob> allocate_heap(std::uint64_t bytes);
  void release(Blob& blob);
  void make_way();
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::pool
