#include "fabric/token.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

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

Token Token::derive(std::string_view text) const {
  Token derived;
  unsigned int length = 0;
  if (HMAC(EVP_sha256(), bytes.data(), static_cast<int>(bytes.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), derived.bytes.data(),
           &length) == nullptr ||
      length != derived.bytes.size())
    throw Error(Errc::internal, "HMAC-SHA256 is not available");
  return derived;
}

std::string Token::hex() const { return base::to_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()}); }

}  // namespace penstock::fabric
