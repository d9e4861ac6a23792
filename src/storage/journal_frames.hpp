// What a journal's files hold (journal.hpp): a head, and behind it frames whose numbers ascend by one. Pure; any bytes may be
// given.
//
//   head   "PSJRNL1\n" [file u64] [first frame u64] [seed u64] [checksum of these 32 bytes u64]
//   frame  [check u64] [number u64] [bytes u64] [the bytes]; check: the checksum of seed, number, bytes and their checksum
//
// Integers are little-endian. The seed is random for every use of a file: neither what an earlier use has left behind the last
// frame nor bytes that somebody puts can be taken for a frame.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::storage {

inline constexpr std::size_t journal_head_bytes = 40, frame_head_bytes = 24;

struct JournalHead {
  std::uint64_t file = 0;   // counts the uses of files
  std::uint64_t first = 0;  // number of the first frame
  std::uint64_t seed = 0;
};
std::string encode_journal_head(const JournalHead& head);
// Empty: these are not the bytes of one.
std::optional<JournalHead> decode_journal_head(std::string_view bytes);

std::string encode_frame_head(const JournalHead& head, std::uint64_t number, std::string_view body);

// The whole frames of a file, in order; ends at the first that is not whole.
class FrameReader {
 public:
  // `bytes` (the file's) must outlive it.
  explicit FrameReader(std::string_view bytes);
  // The body of frame number(); empty at the end.
  std::optional<std::string_view> next();
  std::uint64_t number() const { return number_; }
  // At the end: whether a whole frame with a number above this one lies behind it all the same. Looks no further than a few
  // times the file's size: bodies may be made to look like frames.
  bool is_before_frames_above(std::uint64_t number) const;

 private:
  std::optional<JournalHead> head_;
  std::string_view rest_;
  std::uint64_t number_ = 0;
};

}  // namespace penstock::storage
