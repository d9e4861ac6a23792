// How a writer rank's step is cut into objects: a pure function of its layout and stripe_bytes, so that the writer's home,
// the owners of the stripes and every reader find the same without telling each other.
//
// A block larger than stripe_bytes is cut along its slowest dimension (in its order) into chunks of whole rows that fit; where
// one row alone does not fit, along the next dimension within each row. Chunks, in order, fill stripes up to stripe_bytes;
// a chunk that is larger still (its elements could not be cut further) has a stripe of its own. Each begins at a multiple of 64.
// The step's payload (attributes, strings, ranges) lies at the end of stripe 0, which is there even if nothing else is.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "model/layout.hpp"
#include "model/plan.hpp"

namespace penstock::pool {

inline constexpr std::uint64_t stripe_alignment = 64;
inline constexpr std::uint64_t least_stripe_bytes = 4096;

// Bytes of the writer's slot that a stripe takes over. One range lies after the other, each from a multiple of 64 on.
struct StripeRange {
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const StripeRange&, const StripeRange&) = default;
};

struct Stripe {
  std::uint64_t bytes = 0;  // without the payload
  std::vector<StripeRange> ranges;
};

// At least one when there is a payload. The layout must be valid (model::validate). stripe_bytes below least_stripe_bytes counts
// as that.
std::vector<Stripe> stripes_of(const model::RankLayout& layout, std::uint64_t stripe_bytes, bool has_payload);

// Where the bytes of a rank's slot are in its stripes.
class StripeMap {
 public:
  StripeMap() = default;
  explicit StripeMap(const std::vector<Stripe>& stripes);
  // Appends a piece of the slot as pieces of stripes: segment is the stripe's number, source offsets count from its start.
  // moves: holds their points. Throws Error(protocol): no stripe has it.
  void place(const model::Piece& piece, std::vector<model::Piece>& placed,
             std::deque<std::vector<model::PointMove>>& moves) const;

 private:
  struct Run {
    StripeRange slot;
    std::uint32_t stripe = 0;
    std::uint64_t at = 0;  // in the stripe
  };
  std::vector<Run> runs_;  // by segment and offset
};

inline std::uint64_t aligned(std::uint64_t bytes) { return (bytes + stripe_alignment - 1) & ~(stripe_alignment - 1); }

}  // namespace penstock::pool
