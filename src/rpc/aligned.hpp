// What FlatBuffers' verifier leaves out: that vectors of 64-bit numbers begin at multiples of 8. It checks only their lengths,
// which are 32-bit numbers, and reading the others from a crafted message would be undefined behaviour.
#pragma once

#include <flatbuffers/flatbuffers.h>
#include <flatbuffers/minireflect.h>

#include <cstddef>
#include <cstdint>

namespace penstock::rpc {

// Of a verified table and all below it, by its description (flatc --reflect-names). Unions are not used by our schemas.
inline bool numbers_are_aligned(const std::uint8_t* object, const flatbuffers::TypeTable& type) {
  using flatbuffers::ReadScalar;
  using flatbuffers::uoffset_t;
  const auto* table = reinterpret_cast<const flatbuffers::Table*>(object);
  for (std::size_t i = 0; i < type.num_elems; ++i) {
    const flatbuffers::TypeCode code = type.type_codes[i];
    const auto* at = table->GetAddressOf(flatbuffers::FieldIndexToOffset(static_cast<flatbuffers::voffset_t>(i)));
    if (at == nullptr) continue;
    const auto element = static_cast<flatbuffers::ElementaryType>(code.base_type);
    const flatbuffers::TypeTable* below = code.sequence_ref >= 0 ? type.type_refs[code.sequence_ref]() : nullptr;
    const bool tables = element == flatbuffers::ET_SEQUENCE && below != nullptr && below->st == flatbuffers::ST_TABLE;
    if (!code.is_repeating) {
      if (tables && !numbers_are_aligned(at + ReadScalar<uoffset_t>(at), *below)) return false;
      continue;
    }
    const auto* list = at + ReadScalar<uoffset_t>(at);
    const auto count = ReadScalar<uoffset_t>(list);
    const auto* first = list + sizeof(uoffset_t);
    if (tables) {
      for (uoffset_t n = 0; n < count; ++n) {
        const auto* entry = first + n * sizeof(uoffset_t);
        if (!numbers_are_aligned(entry + ReadScalar<uoffset_t>(entry), *below)) return false;
      }
    } else if (count > 0 && flatbuffers::InlineSize(element, below) % 8 == 0 &&
               reinterpret_cast<std::uintptr_t>(first) % 8 != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace penstock::rpc
