#include "space/block_key.hpp"

#include "model/box.hpp"

namespace penstock::space {
namespace {

constexpr char block_mark = 'b';
constexpr std::size_t row_bytes = 1 + 8 + 8 + 4;

void append_big_endian(std::string& out, std::uint64_t number, std::size_t bytes) {
  while (bytes-- > 0) out.push_back(static_cast<char>(number >> (8 * bytes)));
}

std::uint64_t big_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<std::uint8_t>(byte);
  return number;
}

void append_short(std::string& out, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) out.push_back(static_cast<char>(number | 0x80));
  out.push_back(static_cast<char>(number));
}

// Takes a number off the front. Nothing: there is none, it is longer than it needs to be, or beyond 64 bits.
std::optional<std::uint64_t> take_short(std::string_view& bytes) {
  std::uint64_t number = 0;
  for (unsigned shift = 0; !bytes.empty() && shift < 64; shift += 7) {
    const auto byte = static_cast<std::uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    if (shift == 63 && byte > 1) return std::nullopt;
    number |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return byte == 0 && shift > 0 ? std::nullopt : std::optional(number);
  }
  return std::nullopt;
}

}  // namespace

std::string block_row(const BlockRow& row) {
  std::string out(1, block_mark);
  append_big_endian(out, row.array, 8);
  append_big_endian(out, row.version, 8);
  append_big_endian(out, row.part, 4);
  return out;
}

std::optional<BlockRow> block_row_of(std::string_view row) {
  if (row.size() != row_bytes || row.front() != block_mark) return std::nullopt;
  return BlockRow{big_endian(row.substr(1, 8)), big_endian(row.substr(9, 8)),
                  static_cast<std::uint32_t>(big_endian(row.substr(17, 4)))};
}

std::string block_column(const Box& box) {
  std::string out(1, static_cast<char>(box.start.size()));
  for (const auto start : box.start) append_short(out, start);
  for (const auto count : box.count) append_short(out, count);
  return out;
}

std::optional<Box> block_box_of(std::string_view column) {
  if (column.empty() || static_cast<std::uint8_t>(column.front()) > max_dims) return std::nullopt;
  Box box;
  box.start = box.count = Dims::filled(static_cast<std::uint8_t>(column.front()), 0);
  column.remove_prefix(1);
  for (Dims* numbers : {&box.start, &box.count}) {
    for (auto& number : *numbers) {
      const auto taken = take_short(column);
      if (!taken) return std::nullopt;
      number = *taken;
    }
  }
  if (!column.empty() || !model::is_valid(box) || model::is_empty(box)) return std::nullopt;
  return box;
}

}  // namespace penstock::space
