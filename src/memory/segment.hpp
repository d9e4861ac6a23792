// Shared memory files. The side that creates one writes it; peers that receive its descriptor can only read it, and
// nobody can shrink it under a reader (seals), so no peer can bring this process down by a page fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/mapping.hpp"
#include "memory/unique_fd.hpp"

namespace penstock::memory {

// bytes rounded up to whole pages: the size that a segment gets.
std::uint64_t whole_pages(std::uint64_t bytes);

// The writer's side of a memory file. Immutable handle; the bytes are the owner's to synchronise.
class Segment {
 public:
  // Allocated (not merely promised), mapped for writing, pre-faulted, then sealed against resizing and against any
  // further writable mapping. bytes is rounded up to whole pages. Large memory is pre-faulted by as many threads, this one
  // among them, as far as it may use so many cores. Throws Error(memory) when there is no room.
  static Segment create(std::uint64_t bytes, unsigned threads = 1);

  int fd() const { return fd_.get(); }
  std::byte* data() const { return mapping_.data(); }
  std::uint64_t size() const { return mapping_.size(); }

 private:
  Segment(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  UniqueFd fd_;
  Mapping mapping_;
};

// The reader's side: a read-only, pre-faulted mapping of a peer's segment. The descriptor stays the caller's.
// Throws Error(protocol) when the file is not `expected_bytes` long or lacks the seals; Error(memory, system).
Mapping map_segment(int fd, std::uint64_t expected_bytes);

// A memory file that peers may write too, sealed against resizing only (doorbells). Nothing in it can be trusted.
Mapping create_shared_page(UniqueFd& fd);
// Throws Error(protocol) when the file is not one page sealed against shrinking.
Mapping map_shared_page(int fd);

// The same of any size (bulk memory). A descriptor for peers that may only read: read_only_descriptor.
Mapping create_shared(UniqueFd& fd, std::uint64_t bytes);
// Pages of large files, and those that are only read, are mapped as they are touched. Throws Error(protocol, memory, system).
Mapping map_shared(int fd, std::uint64_t expected_bytes, bool writable);
// Of a shared mapping: its whole pages no longer count as this process's memory. They stay in the file, and are mapped again
// when they are touched.
void unmap_pages(std::span<const std::byte> bytes);
// Of the same file; cannot be mapped for writing. Throws Error(system).
UniqueFd read_only_descriptor(int fd);

}  // namespace penstock::memory
