// Stands for an element of 16 bytes, of whatever type, where elements are copied as whole words.
#pragma once

#include <cstdint>

namespace penstock::model {

struct Element16 {
  std::uint64_t parts[2];
};

}  // namespace penstock::model
