// Messages of the direct engine's control path, and the descriptions that writers send of their steps.
//
// decode_* verify the bytes (FlatBuffers verifier, bounded depth and table count), check every field's range, and return
// owned values; nothing points into the message afterwards. They throw Error(protocol). encode_* append to `out`, whose
// capacity is reused: the steady state does not allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/layout.hpp"
#include "penstock/stream.hpp"

namespace penstock::wire {

inline constexpr std::size_t max_message_bytes = std::size_t{16} << 20;
inline constexpr std::uint32_t max_ranks = 1u << 20;
inline constexpr std::uint32_t max_slots = 1024;
inline constexpr std::size_t max_text_bytes = std::size_t{1} << 20;

// Which fields each kind uses, besides `kind`.
//   within a writer cohort's tree:
//   record    step, slot, flag (void), ranks (which rank gave it up, if it is void), layouts (of ranks whose layout changed),
//             value (1: more of them follow)
//                                                                          up: this subtree's records are all in
//   want      step                                                         up: a rank waits to begin this step
//   grant     step, slot, flag (dropped by policy)                         down
//   voided    step, ranks (which rank gave it up)                          down: every record of the step was in
//   closing   -                                                            up: this subtree has ended its last step
//   closed    -                                                            down: nobody needs our memory any more
//   lost      text, value (the error's code; 0: peer_lost)                 both ways, and to readers: the cohort is broken
//   between a reader cohort's root and the writer's root:
//   join      ranks, flag (latest only), text (host:pid)                   reader -> writer
//   mailbox, doorbell  -  (with a descriptor)                              both ways, same host only
//   admit     ranks, slot (number of slots), value (cohort), flag (steps on demand), text (host:pid), endpoints by rank
//   announce  step, slot, epoch                                            the step is complete; the cohort holds a lease
//   epoch     epoch, value (base, 0: none), layouts (ranks that differ from the base), flag (more of them follow)
//   want      step (how many announcements were taken)                     up: on-demand delivery
//   release   step, slot                                                   the lease is given back
//   dropped   value (how many), step (the last of them)                    policy dropped steps this cohort never saw
//   goodbye   step (number of steps announced to this cohort)              the stream ended
//   leave     -                                                            the cohort goes
//   poke      -                                                            look into the ring
//   statistics text (JSON)                                                 the answer to a connection that inspects
//   within a reader cohort's tree: announce, epoch, dropped, goodbye, lost down; want, release, leave up.
enum class Kind : std::uint16_t {
  none = 0,
  record,
  want,
  grant,
  closing,
  closed,
  lost,
  join,
  admit,
  mailbox,
  doorbell,
  announce,
  epoch,
  release,
  dropped,
  goodbye,
  leave,
  poke,
  statistics,
  voided,
};
inline constexpr std::uint16_t kind_count = 20;
std::string_view name_of(Kind);

// One rank's encoded layout (encode_layout); shared because epochs, deltas and forwards repeat it.
struct RankBlob {
  std::uint32_t rank = 0;
  std::shared_ptr<const std::string> layout;
};

struct Message {
  Kind kind = Kind::none;
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::uint64_t value = 0;
  std::uint32_t slot = 0;
  std::uint32_t ranks = 0;
  bool flag = false;
  std::string text = {};
  std::vector<RankBlob> layouts = {};
  std::vector<std::string> addresses = {};
};

void encode(const Message& message, std::vector<std::byte>& out);
Message decode_message(std::span<const std::byte> bytes);

// The layout of one rank and whether its slot carries a payload.
struct Layout {
  model::RankLayout layout;
  bool has_payload = false;
};
std::string encode_layout(const model::RankLayout& layout, bool has_payload);
Layout decode_layout(std::uint32_t rank, std::span<const std::byte> bytes);
// Of a layout only the definitions of the variables that have a block.
std::vector<model::VariableDefinition> decode_put_variables(std::span<const std::byte> bytes);

// What varies from step to step: attributes in force, string values, ranges of blocks (by the rank's block index).
struct StringValue {
  std::uint32_t block = 0;
  std::string text;
};
struct Range {
  std::uint32_t block = 0;
  MinMax range;
};
struct Payload {
  std::vector<std::pair<std::string, Attribute>> attributes;
  std::vector<StringValue> strings;
  std::vector<Range> ranges;
  bool empty() const { return attributes.empty() && strings.empty() && ranges.empty(); }
};
void encode(const Payload& payload, std::vector<std::byte>& out);
Payload decode_payload(std::span<const std::byte> bytes);

}  // namespace penstock::wire
