#include "fabric/token.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "penstock/error.hpp"

namespace penstock::fabric {

Token Token::random() {
  Token token;
  const std::string bytes = base::random_bytes(token.bytes.size());
  std::copy(bytes.begin(), bytes.end(), token.bytes.begin());
  return token;
}

Token Token::from_hex(std::string_view text) {
  Token token;
  const auto bytes = base::from_hex(text);
  if (!bytes || bytes->size() != token.bytes.size())
    throw Error(Errc::invalid_argument, "a token is 64 hexadecimal digits");
  std::copy(bytes->begin(), bytes->end(), token.bytes.begin());
  return token;
}

std::string Token::hex() const { return base::to_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()}); }

}  // namespace penstock::fabric
