#include "stream/file/step_header.hpp"
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "penstock/error.hpp"
#include "storage/checksum.hpp"

namespace penstock::stream {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are written as they lie in memory");

std::uint64_t checksum_of(const StepHeader& header) {
  return storage::checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(StepHeader, checksum)));
}

}  // namespace

void write_header(const storage::File& file, const StepHeader& header, std::uint64_t offset) {
  auto whole = header;
  whole.checksum = checksum_of(whole);
  file.write_at(offset, std::as_bytes(std::span(&whole, 1)));
}

PlacedHeader read_header(const storage::File& file) {
  std::vector<std::byte> head(header_within);
  head.resize(file.read_at(0, head));
  const StepHeader wanted;
  PlacedHeader found;
  for (; found.offset + sizeof(StepHeader) <= head.size(); found.offset += header_alignment) {
    if (std::memcmp(head.data() + found.offset, wanted.magic, sizeof(wanted.magic)) != 0) continue;
    std::memcpy(&found.header, head.data() + found.offset, sizeof(StepHeader));
    if (found.header.version != wanted.version)
      throw Error(Errc::protocol, file.path() + " was written by another version of Penstock");
    if (found.header.checksum == checksum_of(found.header)) return found;
  }
  throw Error(Errc::protocol, file.path() + " is not a file of a stream's step, or it is damaged");
}

std::string read_range(const storage::File& file, const FileRange& range) {
  std::string text;
  if (range.bytes == 0) return text;
  const auto size = file.size();
  if (range.bytes <= size && range.offset <= size - range.bytes) {
    text.resize(range.bytes);
    text.resize(file.read_at(range.offset, std::as_writable_bytes(std::span(text))));
  }
  if (text.size() != range.bytes || storage::checksum(std::as_bytes(std::span(text))) != range.checksum)
    throw Error(Errc::protocol, file.path() + " is damaged: it was cut off or changed after it was written");
  return text;
}

std::string join_layouts(const EpochBlobs& epoch) {
  std::string text;
  for (const auto& layout : epoch.layouts) {
    const std::uint64_t bytes = layout->size();
    text.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes)).append(*layout);
  }
  return text;
}

std::vector<std::shared_ptr<const std::string>> split_layouts(const std::string& text, std::uint32_t ranks) {
  std::vector<std::shared_ptr<const std::string>> layouts;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::uint64_t bytes = 0;
    if (rest.size() >= sizeof(bytes)) std::memcpy(&bytes, rest.data(), sizeof(bytes));
    if (rest.size() < sizeof(bytes) || rest.size() - sizeof(bytes) < bytes)
      throw Error(Errc::protocol, "the layouts of its ranks are cut off");
    layouts.push_back(std::make_shared<const std::string>(rest.substr(sizeof(bytes), bytes)));
    rest.remove_prefix(sizeof(bytes) + bytes);
  }
  if (layouts.size() != ranks) throw Error(Errc::protocol, "it does not have the layout of every rank");
  return layouts;
}

}  // namespace penstock::stream
