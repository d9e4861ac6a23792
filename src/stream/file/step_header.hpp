// What every file of a step says of itself and where its parts are: a dataset of fixed size among the first bytes of the file,
// found by its magic number. So readers need no HDF5 to find blocks, and what is damaged is noticed before it is used.
//
// The layouts of all ranks are in the master alone, the payload of each rank in its own file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "storage/file.hpp"
#include "stream/protocol/ledger.hpp"

namespace penstock::stream {

inline constexpr std::uint64_t header_within = 64 << 10;  // bytes of the file
inline constexpr std::uint64_t header_alignment = 64;

struct FileRange {
  std::uint64_t offset = 0, bytes = 0, checksum = 0;
};

struct StepHeader {  // as it lies in the file, little-endian
  std::uint64_t magic[2] = {0x5045'4e53'544f'434bull, 0x6865'6164'6572'0a1aull};
  std::uint32_t version = 1;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
  std::uint32_t reserved = 0;
  std::uint64_t step = 0;
  std::uint64_t incarnation = 0;  // of the stream
  FileRange payload;              // bytes == 0: none
  FileRange layouts;
  std::uint64_t checksum = 0;  // of what is before it
};
static_assert(sizeof(StepHeader) == 104);

struct PlacedHeader {
  StepHeader header;
  std::uint64_t offset = 0;
};

// At the offset of the file. path: for messages.
void write_header(const storage::File& file, const StepHeader& header, std::uint64_t offset);
// Throws Error(protocol) where the file has none, or one of another version.
PlacedHeader read_header(const storage::File& file);
// Throws Error(protocol) where the file does not have the bytes that the header says.
std::string read_range(const storage::File& file, const FileRange& range);

// The layouts of all ranks as one text, and back. Throws Error(protocol).
std::string join_layouts(const EpochBlobs& epoch);
std::vector<std::shared_ptr<const std::string>> split_layouts(const std::string& text, std::uint32_t ranks);

}  // namespace penstock::stream
