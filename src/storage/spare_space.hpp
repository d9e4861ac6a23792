// Space of a file system that a file holds for the moment when there is no other: RocksDB cannot be opened, nor write down what
// it has in memory, on a disk that somebody has filled. Not safe from several threads.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::storage {

class SpareSpace {
 public:
  // The file `path` of up to `bytes`. Gives it up at once where less than `bytes` are free: now is the moment.
  SpareSpace(std::string path, std::uint64_t bytes);
  // Holds the space again, as far as there is some; what is missing is logged, and left for the next time.
  void hold() noexcept;

 private:
  const std::string path_;
  const std::uint64_t bytes_;
};

}  // namespace penstock::storage
