// FlatBuffers helpers shared by the sources of this module; no other room includes it.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::wire {

// This thread's builder, emptied: what the call before it returned is gone. Its buffer grows to the largest message and stays.
inline flatbuffers::FlatBufferBuilder& thread_builder() {
  thread_local flatbuffers::FlatBufferBuilder builder(4096);
  builder.Clear();
  return builder;
}

// A verified message. Holds an aligned copy where the bytes come from an odd place in a socket's buffer, which
// FlatBuffers does not accept. Throws Error(protocol).
template <class Table>
class Verified {
 public:
  Verified(std::span<const std::byte> bytes, std::size_t max_bytes, const char* what) {
    if (bytes.empty() || bytes.size() > max_bytes)
      throw Error(Errc::protocol, std::string("a ") + what + " of " + std::to_string(bytes.size()) + " bytes");
    const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    if (reinterpret_cast<std::uintptr_t>(data) % alignof(std::uint64_t) != 0) {
      aligned_.resize(bytes.size() / 8 + 1);
      std::memcpy(aligned_.data(), data, bytes.size());
      data = reinterpret_cast<const std::uint8_t*>(aligned_.data());
    }
    flatbuffers::Verifier verifier(data, bytes.size(), 8, 8);
    if (!verifier.VerifyBuffer<Table>(nullptr)) throw Error(Errc::protocol, std::string("a malformed ") + what);
    table_ = flatbuffers::GetRoot<Table>(data);
  }
  Verified(const Verified&) = delete;
  Verified& operator=(const Verified&) = delete;
  const Table* operator->() const { return table_; }

 private:
  std::vector<std::uint64_t> aligned_;
  const Table* table_ = nullptr;
};

// A list of numbers. The verifier does not look at the alignment of elements larger than its own offsets; every encoder
// aligns them, unless there are none. Throws Error(protocol).
template <class T>
const flatbuffers::Vector<T>* aligned(const flatbuffers::Vector<T>* list) {
  if (list != nullptr && list->size() > 0 &&
      reinterpret_cast<std::uintptr_t>(list->Data()) % alignof(std::uint64_t) != 0)
    throw Error(Errc::protocol, "a message with a list of numbers at an odd place");
  return list;
}

template <class Table>
void append(flatbuffers::FlatBufferBuilder& builder, flatbuffers::Offset<Table> root, std::vector<std::byte>& out) {
  builder.Finish(root);
  const auto* data = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  out.insert(out.end(), data, data + builder.GetSize());
}

}  // namespace penstock::wire
