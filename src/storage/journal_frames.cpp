#include "storage/journal_frames.hpp"

#include <algorithm>
#include <span>

#include "storage/checksum.hpp"
#include "storage/little_endian.hpp"

namespace penstock::storage {

namespace {

constexpr std::string_view magic = "PSJRNL1\n";

std::uint64_t checksum_of(std::string_view text) { return checksum(std::as_bytes(std::span(text))); }
std::uint64_t number_at(std::string_view bytes, std::size_t offset) {
  return read_little<std::uint64_t>(std::as_bytes(std::span(bytes)), offset);
}

std::uint64_t check_of(const JournalHead& head, std::uint64_t number, std::string_view body) {
  std::string all;
  append_little(all, head.seed);
  append_little(all, number);
  append_little(all, std::uint64_t{body.size()});
  append_little(all, checksum_of(body));
  return checksum_of(all);
}

}  // namespace

std::string encode_journal_head(const JournalHead& head) {
  std::string out(magic);
  append_little(out, head.file);
  append_little(out, head.first);
  append_little(out, head.seed);
  append_little(out, checksum_of(out));
  return out;
}

std::optional<JournalHead> decode_journal_head(std::string_view bytes) {
  if (bytes.size() < journal_head_bytes || !bytes.starts_with(magic)) return std::nullopt;
  if (number_at(bytes, 32) != checksum_of(bytes.substr(0, 32))) return std::nullopt;
  return JournalHead{number_at(bytes, 8), number_at(bytes, 16), number_at(bytes, 24)};
}

std::string encode_frame_head(const JournalHead& head, std::uint64_t number, std::string_view body) {
  std::string out;
  append_little(out, check_of(head, number, body));
  append_little(out, number);
  append_little(out, std::uint64_t{body.size()});
  return out;
}

FrameReader::FrameReader(std::string_view bytes) : head_(decode_journal_head(bytes)) {
  if (!head_) return;
  rest_ = bytes.substr(journal_head_bytes);
  number_ = head_->first - 1;
}

std::optional<std::string_view> FrameReader::next() {
  if (rest_.size() < frame_head_bytes || number_at(rest_, 8) != number_ + 1) return std::nullopt;
  const std::uint64_t bytes = number_at(rest_, 16);
  if (bytes > rest_.size() - frame_head_bytes) return std::nullopt;
  const auto body = rest_.substr(frame_head_bytes, bytes);
  if (number_at(rest_, 0) != check_of(*head_, number_ + 1, body)) return std::nullopt;
  rest_.remove_prefix(frame_head_bytes + bytes);
  ++number_;
  return body;
}

bool FrameReader::is_before_frames_above(std::uint64_t number) const {
  if (!head_) return false;
  const std::uint64_t least = std::max(number, number_ + 1), most = number_ + 2 + rest_.size() / frame_head_bytes;
  std::uint64_t left = 4 * rest_.size();
  for (auto rest = rest_; rest.size() >= frame_head_bytes; rest.remove_prefix(1)) {
    const std::uint64_t found = number_at(rest, 8);
    if (found <= least || found > most) continue;
    const std::uint64_t bytes = number_at(rest, 16);
    if (bytes > rest.size() - frame_head_bytes) continue;
    if (number_at(rest, 0) == check_of(*head_, found, rest.substr(frame_head_bytes, bytes))) return true;
    if (bytes + frame_head_bytes > left) return false;
    left -= bytes + frame_head_bytes;
  }
  return false;
}

}  // namespace penstock::storage
