// Space of a file system that a file holds for the moment when there is no other: on a disk that others have filled, RocksDB
// needs it to open. Not safe from several threads.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace penstock::storage {

class SpareSpace {
 public:
  // The file `path` of up to `bytes`.
  SpareSpace(std::string path, std::uint64_t bytes) : path_(std::move(path)), bytes_(bytes) {}
  // Whether the disk has the space for all of it. Cheap.
  bool fits() const noexcept;
  // Allocates all of it; false where the disk has no space for that.
  bool hold_all() noexcept;
  // Gives the space free.
  void release();
  // Holds the space again, as far as there is some; what is missing is logged, and left for the next time.
  void hold() noexcept;

 private:
  const std::string path_;
  const std::uint64_t bytes_;
};

}  // namespace penstock::storage
