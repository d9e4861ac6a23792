// Namespace, row, column as one string whose order (of unsigned bytes) is (namespace, row, column) and that splits again: 16
// bytes; the row with each 0 written as 00 FF; 00 01; the column. Tiers and listings use it. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "penstock/pool.hpp"

namespace penstock::pool {

std::string pack_key(const Namespace& ns, std::string_view row, std::string_view column);
void append_packed_key(std::string& to, const Namespace& ns, std::string_view row, std::string_view column);
struct UnpackedKey {
  Namespace ns;
  std::string row, column;
};
// Throws Error(protocol).
UnpackedKey unpack_key(std::string_view packed);

}  // namespace penstock::pool
