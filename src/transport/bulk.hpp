// Bulk memory: what one side of a channel exposes and the other moves, in either direction, without a call.
//
// A descriptor names memory of the side that exposed it; it means something on that channel only. No pointer crosses the
// wire. Three ways, chosen by where the peer is and how the memory was got:
//   shared   the memory is a BulkBuffer and the peer is on this node: mapped once, then copied by the moving side's worker
//            thread (one copy), atomics in place. Memory that is exposed for reading only is mapped read-only. The peer sees
//            the whole of a buffer of which a part is exposed.
//   socket   any other memory: a second connection of the channel (opened when first needed), whose far end is a worker
//            thread of the exposing process, which checks bounds and rights. No intermediate copy on either side.
// Atomics on memory that is not shared are done by the exposing side's engine.
// Transfers of one call are not ordered among each other. When a transfer's task is dropped or its deadline passes, it ends
// only once nothing can touch the caller's memory any more (the transfer is completed or its connection closed), unless the caller
// has given the memory's owner: then it ends at once, and the owner is let go when nothing can touch the memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "fabric/task.hpp"
#include "transport/bulk_generated.h"  // table-free struct penstock::transport::fb::Bulk, for use in services' schemas (include "transport/bulk.fbs")

namespace penstock::transport {

using fabric::Task;
struct Plane;

enum class Access : std::uint8_t { read = 1, write = 2, read_write = 3 };

// Plain value; goes into requests and replies. bytes == 0: names nothing.
using BulkDescriptor = fb::Bulk;  // struct { id:ulong; bytes:ulong; offset:ulong; segment:uint; access:ubyte; }

// Memory of this process that can be shared with peers on this node: whole pages of a memory file, pre-faulted, reused
// (released buffers of a size are kept, up to 256 MiB, and handed out again). Copies are the same memory; any thread.
class BulkBuffer {
 public:
  BulkBuffer() = default;
  // keep: false for memory that its owner keeps as long as it may be used again; then it goes back to the system.
  static BulkBuffer allocate(std::uint64_t bytes, bool keep = true);
  std::span<std::byte> span() const;
  std::uint64_t size() const { return span().size(); }
  explicit operator bool() const { return state_ != nullptr; }
  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// Exposed as long as it lives. The destructor waits until no transfer uses the memory (or the channel is closed), unless the
// memory's owner was given: on the socket one system call at most, in shared memory what the peer's copy takes. A peer that holds
// a lease two seconds longer is disconnected. Move-only; any thread.
class Exposure {
 public:
  Exposure() = default;
  Exposure(Exposure&&) noexcept;
  Exposure& operator=(Exposure&&) noexcept;
  ~Exposure();
  BulkDescriptor descriptor() const;
  // Bytes of a shared buffer: give offset and length within it.
  struct State;

 private:
  friend class BulkSpace;
  std::shared_ptr<State> state_;
};

class BulkSpace {
 public:
  virtual ~BulkSpace() = default;

  // Any of the host's memory, by the socket; or a part of a BulkBuffer (recognised by its address), shared when the peer is local.
  // Throws Error(unsupported) for memory on a device. Any thread.
  virtual Exposure expose(std::span<std::byte> memory, Access access) = 0;
  // For reading. owner: keeps the memory, for as long as anybody uses it; then the exposure's destructor waits for nobody.
  virtual Exposure expose(std::span<const std::byte> memory, std::shared_ptr<const void> owner = nullptr) = 0;

  // The peer's memory. What is here may be of any kind (memory/kind.hpp). owner: keeps `into`; then a pull that ends early waits
  // for nobody. Throws Error: invalid_argument (out of bounds, not allowed), peer_lost, timeout.
  virtual Task<void> pull(BulkDescriptor from, std::uint64_t offset, std::span<std::byte> into, base::Deadline deadline,
                          std::shared_ptr<const void> owner = nullptr) = 0;
  virtual Task<void> push(BulkDescriptor to, std::uint64_t offset, std::span<const std::byte> bytes,
                          base::Deadline deadline) = 0;
  // Several parts of the peer's memory, one after the other, packed into `into`: one request on the socket.
  struct Range {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  virtual Task<void> gather(BulkDescriptor from, std::vector<Range> ranges, std::span<std::byte> into,
                            base::Deadline deadline, std::shared_ptr<const void> owner = nullptr) = 0;
  // The peer's memory read in place, where it is shared: valid while the result's owner lives, and meaningful as long as the
  // peer keeps it exposed. Empty when it is not shared. Any thread; waits for nothing.
  struct Mapped {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
  };
  virtual std::optional<Mapped> map(BulkDescriptor from, base::Deadline deadline) = 0;
  // 64-bit atomics at an offset that is a multiple of 8, on memory exposed for both; each returns the value before.
  virtual Task<std::uint64_t> fetch_add(BulkDescriptor on, std::uint64_t offset, std::uint64_t value,
                                        base::Deadline deadline) = 0;
  virtual Task<std::uint64_t> compare_swap(BulkDescriptor on, std::uint64_t offset, std::uint64_t expected,
                                           std::uint64_t desired, base::Deadline deadline) = 0;
  virtual std::string_view plane()
      const = 0;  // "shm" when memory can be shared with the peer, else that of the link: "tcp" or "ucx"
  virtual std::uint64_t bytes_pulled() const = 0;
  virtual std::uint64_t bytes_pushed() const = 0;

 protected:
  static Exposure exposure_of(std::shared_ptr<Exposure::State> state);
};

}  // namespace penstock::transport
