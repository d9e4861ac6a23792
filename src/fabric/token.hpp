// A stream's secret: who knows it may join. Plain value; never logged.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::fabric {

struct Token {
  std::array<std::uint8_t, 32> bytes{};

  static Token random();
  // 64 hexadecimal digits. Throws Error(invalid_argument).
  static Token from_hex(std::string_view text);
  std::string hex() const;
  // HMAC-SHA256 of the text under this token: tokens for roles and purposes; who has it does not learn this one.
  Token derive(std::string_view text) const;
  friend bool operator==(const Token&, const Token&) = default;
};

// The token that somebody who asks for this name must know; nothing: there is no such name.
using TokenOf = std::function<std::optional<Token>(const std::string& name)>;

}  // namespace penstock::fabric
