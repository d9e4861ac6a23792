// A stream's secret: who knows it may join. Plain value; never logged.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::fabric {

struct Token {
  std::array<std::uint8_t, 32> bytes{};

  static Token random();
  // 64 hexadecimal digits. Throws Error(invalid_argument).
  static Token from_hex(std::string_view text);
  std::string hex() const;
  friend bool operator==(const Token&, const Token&) = default;
};

}  // namespace penstock::fabric
