// The conversion of arrays: a box of an array in one layout and type into an array in another, in a single pass.
//
// A subset, a permutation of dimensions, a conversion of element types, and arrays of structures <-> structures of arrays are
// all strided copies (copy.hpp), one for each field. Where structures are read or written field by field, the copies run
// over chunks that stay in the cache, so that memory sees each line of the structures once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/array_layout.hpp"
#include "model/convert.hpp"
#include "model/copy.hpp"
#include "penstock/types.hpp"

namespace penstock::model {

// run(n, part) calls part(0) .. part(n - 1), each once, in any order and on any threads, and returns when all have returned.
// part does not throw.
struct Executor {
  std::size_t parts = 1;
  std::function<void(std::size_t, const std::function<void(std::size_t)>&)> run;
};

class ArrayConversion {
 public:
  struct Refusal {
    Dims index;  // in the array
    std::string text;
  };

  // Converts the elements of `box`, which both arrays hold. Every field of the destination is looked up by name in the source.
  // Throws Error(invalid_argument): box outside an array, no such field, elements of the destination that share bytes;
  // Error(unsupported): types that do not convert.
  ArrayConversion(const PlacedArray& dst, const PlacedArray& src, const Box& box, Check check = Check::none);

  std::uint64_t bytes() const;  // written

  // Bases as those of the placed arrays, which must not overlap in memory. Bytes of the destination that belong to no element
  // of the box and to no field stay as they are. Any thread. Throws Error(invalid_argument) when the check refuses an element:
  // the message names the first one in row-major order; what the destination then holds is unspecified.
  // The executor's parts are ranges of one dimension, a slow one of the destination.
  // of_bytes: how many bytes this conversion and others move together, if that is more than its own (StridedCopy's run).
  void run(void* dst, const void* src, const Executor& executor = {}, std::uint64_t of_bytes = 0) const;
  // As run, but returns the element that the check refuses.
  std::optional<Refusal> try_run(void* dst, const void* src, const Executor& executor = {},
                                 std::uint64_t of_bytes = 0) const;
  // Throws as run, and writes nothing.
  void verify(const void* src) const;

 private:
  struct FieldCopy {
    std::string name;
    DType dst_type, src_type;
    std::uint32_t dst_size;
    Conversion conversion;
    std::int64_t dst_offset, src_offset;  // of the box's first element
    Strides dst_strides, src_strides;
    bool run(std::byte* dst, const std::byte* src, const Box& part, std::uint64_t of_bytes) const;
  };
  void merge_fields();
  void choose_chunk(std::uint64_t structure_bytes);
  bool run_part(std::byte* dst, const std::byte* src, const Box& part, std::uint64_t of_bytes) const;
  Refusal first_refused(const std::byte* src) const;

  Box box_;
  std::vector<FieldCopy> fields_;  // all with the same dimensions
  Dims chunk_;                     // none: each field's copy runs over the whole box
};

}  // namespace penstock::model
