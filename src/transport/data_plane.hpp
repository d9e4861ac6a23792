// How a reader rank gets at the bytes of a writer rank's slots: the seam between streams and transports.
//
// A plane is used by one thread at a time, which does the copying or waiting. It connects to a writer rank when first
// asked for its bytes. Every call ends by its deadline. After an error nothing is written to the caller's memory any
// more. Errors: timeout (naming the rank), step_gone (the slot holds another step), peer_lost (naming the rank),
// protocol, authentication, memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "fabric/progress.hpp"
#include "fabric/token.hpp"
#include "memory/arena.hpp"
#include "model/plan.hpp"

namespace penstock::transport {

class DataPlane {
 public:
  virtual ~DataPlane() = default;

  virtual std::string_view name() const = 0;  // "shm", "tcp"

  // Reaches every writer rank ahead of need, so that what is announced from now on can be read even if they die.
  // Planes whose bytes die with the writer do nothing.
  virtual void prepare(base::Deadline) {}

  // One piece of a plan; out is the base that the piece's destination offsets count from.
  struct Item {
    const model::Piece* piece = nullptr;
    std::byte* out = nullptr;
  };
  // All pieces of all items, in the caller's memory when it returns. Pieces of one writer rank take effect in order;
  // ordered: so do those of different ranks (overlapping blocks).
  virtual void fetch(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
                     base::Deadline deadline) = 0;
  // The same for memory of any kind (memory/kind.hpp).
  void fetch_to_any(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
                    base::Deadline deadline);

  // Read-only bytes that stay valid while the owner lives: in place where the plane can, else fetched.
  struct Mapped {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
    std::uint32_t copies = 0;  // in so many pieces, of what could be read in place but does not lie together
  };
  // Whether map gives the writer's own memory, which lasts only as long as the step's lease.
  virtual bool maps_in_place() const { return false; }
  virtual Mapped map(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment,
                     std::uint64_t offset, std::uint64_t bytes, base::Deadline deadline) = 0;

  // The slot's header, and its payload appended to `out` (nothing when there is none).
  virtual memory::SlotInfo header(std::uint64_t step, std::uint32_t slot, int writer_rank, base::Deadline deadline) = 0;
  virtual void read_payload(std::uint64_t step, std::uint32_t slot, int writer_rank, std::vector<std::byte>& out,
                            base::Deadline deadline) = 0;

  std::uint64_t bytes_moved() const { return bytes_moved_; }  // by fetch, read_payload, and map where it copies

 protected:
  std::uint64_t bytes_moved_ = 0;
};

struct DataPlaneOptions {
  std::string stream;
  fabric::Token token;
  std::uint32_t rank = 0;                   // of this reader, in its cohort
  std::vector<std::string> writers;         // their addresses on this plane, by rank
  std::uint64_t in_flight_bytes = 8 << 20;  // tcp: asked for and not yet received, for each writer rank
};

}  // namespace penstock::transport
