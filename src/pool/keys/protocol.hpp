// The parts that many messages of pool.fbs share, packed and unpacked with checks. A message that was verified is well formed,
// not sensible: everything here that reads one throws Error(protocol) for lengths, counts and sums that do not fit together,
// before anything is allocated by them. Pure; any thread.
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
#include "penstock/error.hpp"
#include "penstock/pool.hpp"
#include "pool/keys/object_key.hpp"
#include "pool/keys/pattern.hpp"
#include "pool/keys/pool_generated.h"

namespace penstock::pool {

inline constexpr std::size_t max_batch_keys = std::size_t{1} << 20;
inline constexpr std::size_t max_listed = 10'000;  // objects in one reply
inline constexpr std::size_t max_metadata_bytes = 64 << 10;
inline constexpr std::size_t max_metadata_reply = 128 << 20;  // in one reply; clients take messages of 256 MiB
inline constexpr std::size_t max_message_text = 4096;         // of an error, in bytes; longer ones are cut

// Throws Error(invalid_argument) for a key that is too long and for a batch of too many.
std::unique_ptr<fb::KeysT> pack_keys(const Namespace& ns, std::span<const Key> keys);
std::unique_ptr<fb::KeysT> pack_keys(const Namespace& ns, std::size_t count,
                                     const std::function<const Key&(std::size_t)>& key_of);
struct UnpackedKeys {
  Namespace ns;
  std::vector<Key> keys;
};
// null is refused. A batch of no keys is a batch.
UnpackedKeys unpack_keys(const fb::KeysT* keys);
// The same without copies: views into the message.
struct ViewedKey {
  std::string_view row, column;
};
struct ViewedKeys {
  Namespace ns;
  std::vector<ViewedKey> keys;
};
ViewedKeys view_keys(const fb::KeysT* keys);

std::vector<std::uint8_t> pack_namespace(const Namespace& ns);
Namespace unpack_namespace(const std::vector<std::uint8_t>& bytes);

// Binary text, as FlatBuffers carries it.
std::vector<std::uint8_t> pack_bytes(std::string_view text);
std::string_view view_bytes(const std::vector<std::uint8_t>& bytes);

// One size for each key, and together `total`, without overflow.
void check_sizes(std::size_t keys, const std::vector<std::uint64_t>& sizes, std::uint64_t total);
// A part of a reply's data. Throws Error(protocol) when it is not all there.
std::span<const std::byte> part_of(const std::vector<std::uint8_t>& data, std::uint64_t offset, std::uint64_t bytes);
// A number as the enumerator it stands for.
template <class Enum>
Enum checked_enum(std::uint64_t value, Enum last) {
  if (value > static_cast<std::uint64_t>(last)) throw Error(Errc::protocol, "a choice that does not exist");
  return static_cast<Enum>(value);
}

// All arrays have an entry for each key; what is dropped has no bytes.
void check_batch(const UnpackedKeys& keys, const fb::ReplicateRequestT& request);
// Stripes name ranges that are there, and their sizes are the sums of their ranges'.
void check_pull(const fb::PullRequestT& request);

ObjectInfo unpack_info(const fb::InfoT& info);

std::unique_ptr<fb::StatusT> pack_status(const Error& error);
// What an answer says, ready to be thrown. A code that no version of Penstock knows becomes Errc::internal.
Error unpack_status(std::uint16_t code, const std::string& message);
// A little before the caller's deadline, so that what did come in time is still told.
base::Deadline answer_in_time(base::Deadline deadline);

// The pattern text that matches this text and no other.
std::string escape_pattern(std::string_view text);
// Throws Error(invalid_argument).
KeyPattern unpack_pattern(const std::vector<std::uint8_t>& row, const std::vector<std::uint8_t>& column);

}  // namespace penstock::pool
