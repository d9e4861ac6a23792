#include "pool/keys/object_key.hpp"

#include <algorithm>
#include <cstring>

#include "fabric/registration.hpp"
#include "penstock/error.hpp"

namespace penstock {

Namespace Namespace::named(std::string_view name) {
  Namespace ns;
  if (name.empty()) return ns;
  const auto digest = fabric::Token{}.derive("namespace:" + std::string(name));
  std::copy_n(digest.bytes.begin(), ns.bytes.size(), ns.bytes.begin());
  return ns;
}

namespace pool {

namespace {

constexpr std::string_view row_end("\0\1", 2);

}  // namespace

std::string pack_key(const Namespace& ns, std::string_view row, std::string_view column) {
  std::string packed;
  packed.reserve(ns.bytes.size() + row.size() + row_end.size() + column.size());
  append_packed_key(packed, ns, row, column);
  return packed;
}

void append_packed_key(std::string& to, const Namespace& ns, std::string_view row, std::string_view column) {
  to.append(reinterpret_cast<const char*>(ns.bytes.data()), ns.bytes.size());
  for (;;) {
    const std::size_t zero = row.find('\0');
    to += row.substr(0, zero);
    if (zero == std::string_view::npos) break;
    to += std::string_view("\0\xff", 2);
    row.remove_prefix(zero + 1);
  }
  to += row_end;
  to += column;
}

UnpackedKey unpack_key(std::string_view packed) {
  UnpackedKey key;
  if (packed.size() < key.ns.bytes.size()) throw Error(Errc::protocol, "a packed key that is too short");
  std::memcpy(key.ns.bytes.data(), packed.data(), key.ns.bytes.size());
  packed.remove_prefix(key.ns.bytes.size());
  for (;;) {
    const std::size_t zero = packed.find('\0');
    if (zero == std::string_view::npos || zero + 1 == packed.size() || key.row.size() + zero > max_key_bytes)
      throw Error(Errc::protocol, "a packed key whose row does not end");
    key.row += packed.substr(0, zero);
    const char next = packed[zero + 1];
    packed.remove_prefix(zero + 2);
    if (next == '\1') break;
    if (next != '\xff') throw Error(Errc::protocol, "a packed key with a stray zero");
    key.row.push_back('\0');
  }
  if (key.row.size() > max_key_bytes || packed.size() > max_key_bytes)
    throw Error(Errc::protocol, "a packed key that is too long");
  key.column = packed;
  return key;
}

}  // namespace pool
}  // namespace penstock
