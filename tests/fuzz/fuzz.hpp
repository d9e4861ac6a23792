// What the fuzz targets share. Each target defines seeds() and LLVMFuzzerTestOneInput: anything that escapes it, or that
// a sanitizer sees, is a defect.
//
//   fuzz_control --write-seeds=FOLDER     writes a small corpus and ends
//   fuzz_control FOLDER -runs=20000       libFuzzer's own options
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/error.hpp"

namespace fuzz {

using Bytes = std::vector<std::byte>;

// Inputs from which mutation starts.
std::vector<Bytes> seeds();

// The first byte of an input chooses what the rest is given to.
inline Bytes choose(std::uint8_t target, const Bytes& rest) {
  Bytes input{static_cast<std::byte>(target)};
  input.insert(input.end(), rest.begin(), rest.end());
  return input;
}
inline Bytes choose(std::uint8_t target, std::string_view rest) {
  const auto* begin = reinterpret_cast<const std::byte*>(rest.data());
  return choose(target, Bytes(begin, begin + rest.size()));
}

inline std::string_view text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Runs what may throw Error with one of these codes and nothing else. True when it did not throw.
template <class Action>
bool refuses_with(std::initializer_list<penstock::Errc> allowed, Action action) {
  try {
    action();
    return true;
  } catch (const penstock::Error& error) {
    for (const auto code : allowed)
      if (error.code() == code) return false;
    throw;
  }
}

inline void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace fuzz

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr std::string_view option = "--write-seeds=";
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = (*argv)[i];
    if (!argument.starts_with(option)) continue;
    const std::filesystem::path folder(argument.substr(option.size()));
    std::filesystem::create_directories(folder);
    int number = 0;
    for (const auto& seed : fuzz::seeds())
      std::ofstream(folder / ("seed-" + std::to_string(number++)), std::ios::binary) << fuzz::text(seed);
    std::exit(0);
  }
  return 0;
}
