// What tiers read back from the disk: headers of object files, entries of the index.
#include "fuzz.hpp"
#include "storage/index_entry.hpp"
#include "storage/object_header.hpp"
#include "storage/tier.hpp"

using namespace penstock;
using fuzz::Bytes;

namespace {

enum Target : std::uint8_t { header, repaired_header, entry, targets };

storage::ObjectHeader some_header() {
  storage::ObjectHeader out;
  out.number = 17;
  out.synced = true;
  out.data_bytes = 4711;
  out.checksum = 0x1122334455667788;
  out.key = std::string("row\0column", 10);
  out.metadata = R"({"dtype": "float64", "shape": [3, 4]})";
  return out;
}

// Checksums refuse nearly everything; here they are made right, so that what lies behind them is reached.
Bytes with_checksum(std::span<const std::byte> bytes) {
  Bytes out(bytes.begin(), bytes.end());
  if (out.size() < storage::fixed_header_bytes) return out;
  std::uint64_t sum = storage::checksum(std::span(out).first(56));
  for (std::size_t i = 0; i < 8; ++i, sum >>= 8) out[56 + i] = static_cast<std::byte>(sum & 255);
  return out;
}

void check_header(std::span<const std::byte> bytes) {
  storage::FixedHeader fixed;
  if (!fuzz::refuses_with({Errc::protocol}, [&] { fixed = storage::decode_fixed_header(bytes); })) return;
  fuzz::check(fixed.data_offset() % 64 == 0 && fixed.data_offset() >= storage::fixed_header_bytes);
  fuzz::check(fixed.file_bytes() >= fixed.data_bytes);
  storage::ObjectHeader decoded;
  if (!fuzz::refuses_with({Errc::protocol}, [&] { decoded = storage::decode_header(bytes); })) return;
  const std::string again = storage::encode_header(decoded);
  const auto back = storage::decode_header(std::as_bytes(std::span(again)));
  fuzz::check(back.key == decoded.key && back.metadata == decoded.metadata && back.data_bytes == decoded.data_bytes &&
              back.checksum == decoded.checksum && back.number == decoded.number && back.synced == decoded.synced);
}

std::string head_of(const storage::IndexEntry& entry) {
  const auto head = storage::encode_index_head(entry);
  return {head.data(), head.size()};
}

void check_entry(std::string_view text) {
  storage::IndexEntry decoded;
  if (!fuzz::refuses_with({Errc::protocol}, [&] { decoded = storage::decode_index_entry(text); })) return;
  const std::string again = head_of(decoded) + std::string(decoded.metadata) + std::string(decoded.data);
  const auto back = storage::decode_index_entry(again);
  fuzz::check(back.metadata == decoded.metadata && back.data == decoded.data && back.where == decoded.where &&
              back.data_bytes == decoded.data_bytes && back.number == decoded.number);
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  storage::IndexEntry small;
  small.data_bytes = 4;
  storage::IndexEntry large;
  large.where = storage::IndexEntry::Where::file;
  large.data_bytes = std::uint64_t{5} << 30;
  large.number = 18;
  return {choose(header, storage::encode_header(some_header())),
          choose(repaired_header, storage::encode_header(some_header())), choose(entry, head_of(small) + "data"),
          choose(entry, head_of(large))};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % targets) {
    case header: check_header(bytes); break;
    case repaired_header: check_header(with_checksum(bytes)); break;
    case entry: check_entry(fuzz::text(bytes)); break;
  }
  return 0;
}
