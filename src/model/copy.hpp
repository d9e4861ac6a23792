// Copies of n-dimensional strided arrays: the one kernel behind put, get, pack and unpack, and behind conversions of element
// types.
//
// Strides are bytes between neighbours along a dimension, of any sign and in any order; nothing here allocates, throws
// or keeps state, so every function may be called from any thread. Source and destination must not overlap. The caller
// vouches that every address reached lies in its memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "penstock/types.hpp"

namespace penstock::model {

using Strides = std::array<std::int64_t, max_dims>;

// How elements change on their way. `run` converts `count` packed elements; it converts all of them, and returns false when
// its check refuses one. Null: elements are copied as they are. See convert.hpp.
struct Conversion {
  bool (*run)(std::byte* dst, const std::byte* src, std::uint64_t count) = nullptr;
  std::uint32_t src_size = 0;  // bytes of a source element; 1, 2, 4, 8 or 16
};

// A copy in normal form: dimensions of size 1 are gone, the others run from the largest destination stride to the
// smallest, destination strides are not negative, and neighbours that are contiguous on both sides are merged.
// "Packed" below means the elements in the row-major order of these dimensions.
struct StridedCopy {
  std::uint32_t ndims = 0;
  std::uint32_t elem_size = 0;  // at the destination
  Conversion conversion;
  std::int64_t dst_offset = 0;  // bytes from the base to the first element of the normal form
  std::int64_t src_offset = 0;
  std::array<std::uint64_t, max_dims> count{};
  Strides dst_strides{};
  Strides src_strides{};

  bool empty() const { return elem_size == 0; }  // some count was zero: nothing to do
  std::uint64_t elements() const;
  std::uint64_t bytes() const { return elements() * elem_size; }  // at the destination
  std::uint32_t src_size() const { return conversion.run ? conversion.src_size : elem_size; }
  // One run on that side, in packed order.
  bool dst_contiguous() const;
  bool src_contiguous() const;
};

// ndims at most max_dims. The product of counts and elem_size, and the reach of the strides, must fit in 63 bits. With a
// conversion, elem_size is 1, 2, 4, 8 or 16.
StridedCopy normalise(const std::int64_t* dst_strides, const std::int64_t* src_strides, const std::uint64_t* count,
                      std::size_t ndims, std::size_t elem_size, Conversion conversion = {});
// Bases are those that the offsets of the normal form refer to. Returns false when the conversion refused an element; what
// the destination then holds is unspecified. of_bytes: how many bytes this copy and others move together, if that is more than its own:
// it decides whether stores bypass the caches.
bool run(const StridedCopy& copy, void* dst_base, const void* src_base, std::uint64_t of_bytes = 0);
// One side packed, the other at its strides. For copies without a conversion.
void run_pack(const StridedCopy& copy, void* packed, const void* src_base);
void run_unpack(const StridedCopy& copy, void* dst_base, const void* packed);

// normalise and run.
void copy_nd(void* dst, const std::int64_t* dst_strides, const void* src, const std::int64_t* src_strides,
             const std::uint64_t* count, std::size_t ndims, std::size_t elem_size);

// Strides of an array that lies densely in memory; unused entries are 0.
Strides packed_strides(const Dims& count, std::size_t elem_size, Order order);
// True when the elements lie densely in the given order (strides of dimensions of size 1 do not matter).
bool is_contiguous(const Dims& count, const std::int64_t* strides, std::size_t elem_size, Order order);

}  // namespace penstock::model
