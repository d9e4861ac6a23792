// Elements that are copied as whole words, whatever their type.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::model {

struct Element16 {
  std::uint64_t parts[2];
};

// Calls f with a value of a type of elem_size bytes (1, 2, 4, 8 or 16), so that the loops in f move whole words.
template <class F>
auto with_element(std::size_t elem_size, F&& f) {
  switch (elem_size) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    case 8: return f(std::uint64_t{});
    default: return f(Element16{});
  }
}

}  // namespace penstock::model
