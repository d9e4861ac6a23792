// Integers as little-endian bytes. Pure; the caller has checked that the bytes are there.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>

namespace penstock::storage {

template <std::unsigned_integral T>
void write_little(char* to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) to[i] = static_cast<char>(value >> (8 * i));
}

template <std::unsigned_integral T>
void append_little(std::string& out, T value) {
  char bytes[sizeof(T)];
  write_little(bytes, value);
  out.append(bytes, sizeof bytes);
}

template <std::unsigned_integral T>
T read_little(std::span<const std::byte> bytes, std::size_t offset) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<T>(static_cast<T>(std::to_integer<T>(bytes[offset + i])) << (8 * i));
  return value;
}

}  // namespace penstock::storage
