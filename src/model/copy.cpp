#include "model/copy.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "model/convert.hpp"
#include "model/element.hpp"
#include "model/stream_store.hpp"
#include "model/transpose.hpp"

namespace penstock::model {

namespace {

// From these sizes on, stores bypass the caches (see stream_store.hpp).
constexpr std::uint64_t stream_copy_bytes = std::uint64_t{16} << 20;
constexpr std::uint64_t stream_transpose_bytes = std::uint64_t{1} << 20;
constexpr std::uint64_t stream_run_bytes = 512;  // shorter runs leave too many partial lines

bool is_typed(std::size_t elem_size) {
  return elem_size == 1 || elem_size == 2 || elem_size == 4 || elem_size == 8 || elem_size == 16;
}

// Row-major strides of the packed form at the destination.
Strides packed_strides_of(const StridedCopy& copy) {
  Strides strides{};
  std::int64_t next = copy.elem_size;
  for (std::size_t d = copy.ndims; d-- > 0;) {
    strides[d] = next;
    next *= static_cast<std::int64_t>(copy.count[d]);
  }
  return strides;
}

bool is_packed(const StridedCopy& copy, const Strides& strides, std::uint32_t elem_size) {
  std::int64_t next = elem_size;
  for (std::size_t d = copy.ndims; d-- > 0;) {
    if (strides[d] != next) return false;
    next *= static_cast<std::int64_t>(copy.count[d]);
  }
  return true;
}

// A loop nest, to be run around an inner kernel that does the remaining dimensions.
struct Loop {
  std::uint64_t count;
  std::int64_t dst;
  std::int64_t src;
};
struct LoopNest {
  std::array<Loop, max_dims> loops;
  std::size_t size = 0;
};

LoopNest loops_without(const StridedCopy& copy, std::size_t first, std::size_t second) {
  LoopNest nest;
  for (std::size_t d = 0; d < copy.ndims; ++d)
    if (d != first && d != second) nest.loops[nest.size++] = {copy.count[d], copy.dst_strides[d], copy.src_strides[d]};
  return nest;
}

template <class Kernel>
void run_nest(const LoopNest& nest, std::byte* dst, const std::byte* src, const Kernel& kernel) {
  if (nest.size == 0) return kernel(dst, src);
  std::array<std::uint64_t, max_dims> at{};
  const Loop inner = nest.loops[nest.size - 1];
  for (;;) {
    std::byte* to = dst;
    const std::byte* from = src;
    for (std::uint64_t i = 0; i < inner.count; ++i, to += inner.dst, from += inner.src) kernel(to, from);
    std::size_t d = nest.size - 1;
    for (;;) {
      if (d == 0) return;
      const Loop& loop = nest.loops[--d];
      dst += loop.dst;
      src += loop.src;
      if (++at[d] < loop.count) break;
      at[d] = 0;
      dst -= static_cast<std::int64_t>(loop.count) * loop.dst;
      src -= static_cast<std::int64_t>(loop.count) * loop.src;
    }
  }
}

bool run_converted(const StridedCopy& copy, std::byte* dst, const std::byte* src, std::uint64_t of_bytes) {
  const std::size_t last = copy.ndims - 1;
  const bool stream = copy.count[last] * copy.elem_size >= stream_run_bytes && of_bytes >= stream_copy_bytes;
  bool accepted = true;
  run_nest(loops_without(copy, last, last), dst, src, [&](std::byte* to, const std::byte* from) {
    accepted &= convert_strided(copy.conversion, to, copy.dst_strides[last], copy.elem_size, from,
                                copy.src_strides[last], copy.count[last], stream);
  });
  if (stream) stream_fence();
  return accepted;
}

template <class T>
void run_strided(const StridedCopy& copy, std::byte* dst, const std::byte* src) {
  const std::size_t last = copy.ndims - 1;
  const std::uint64_t count = copy.count[last];
  const std::int64_t dst_step = copy.dst_strides[last];
  const std::int64_t src_step = copy.src_strides[last];
  const auto general = [=](std::byte* to, const std::byte* from) {
    for (std::uint64_t i = 0; i < count; ++i, to += dst_step, from += src_step) std::memcpy(to, from, sizeof(T));
  };
  const auto gather = [=](std::byte* to, const std::byte* from) {
    for (std::uint64_t i = 0; i < count; ++i, from += src_step) std::memcpy(to + i * sizeof(T), from, sizeof(T));
  };
  if (dst_step == sizeof(T)) run_nest(loops_without(copy, last, last), dst, src, gather);
  else run_nest(loops_without(copy, last, last), dst, src, general);
}

// The last dimension is contiguous on both sides.
void run_runs(const StridedCopy& copy, std::byte* dst, const std::byte* src, std::uint64_t of_bytes) {
  const std::size_t last = copy.ndims - 1;
  const std::size_t bytes = copy.count[last] * copy.elem_size;
  const LoopNest outer = loops_without(copy, last, last);
  if (bytes < stream_run_bytes || of_bytes < stream_copy_bytes) {
    run_nest(outer, dst, src, [bytes](std::byte* to, const std::byte* from) { std::memcpy(to, from, bytes); });
    return;
  }
  run_nest(outer, dst, src, [bytes](std::byte* to, const std::byte* from) { stream_copy(to, from, bytes); });
  stream_fence();
}

// Rows are the source's dense dimension, columns the destination's. Where one of them is short, a dimension that continues it
// joins it, so that runs of both sides are whole lines.
bool run_transposed(const StridedCopy& copy, std::size_t dense, std::byte* dst, const std::byte* src) {
  const std::size_t last = copy.ndims - 1;
  std::size_t next_rows = last, next_columns = last;  // last: none
  for (std::size_t d = 0; d < last; ++d) {
    if (d == dense) continue;
    if (copy.src_strides[d] == static_cast<std::int64_t>(copy.count[dense]) * copy.src_strides[dense]) next_rows = d;
    if (copy.dst_strides[d] == static_cast<std::int64_t>(copy.count[last]) * copy.dst_strides[last]) next_columns = d;
  }
  if (next_rows == next_columns) (copy.count[dense] < copy.count[last] ? next_columns : next_rows) = last;
  Plane plane{.rows = copy.count[dense],
              .row_run = copy.count[dense],
              .src_row = copy.src_strides[dense],
              .dst_row = copy.dst_strides[dense],
              .columns = copy.count[last],
              .column_run = copy.count[last],
              .dst_column = copy.dst_strides[last],
              .src_column = copy.src_strides[last],
              .stream = copy.bytes() >= stream_transpose_bytes,
              .conversion = copy.conversion};
  if (next_rows != last) plane.rows *= copy.count[next_rows], plane.dst_row_run = copy.dst_strides[next_rows];
  if (next_columns != last)
    plane.columns *= copy.count[next_columns], plane.src_column_run = copy.src_strides[next_columns];
  LoopNest nest;
  for (std::size_t d = 0; d < last; ++d)
    if (d != dense && d != next_rows && d != next_columns)
      nest.loops[nest.size++] = {copy.count[d], copy.dst_strides[d], copy.src_strides[d]};
  bool accepted = true;
  run_nest(nest, dst, src, [&](std::byte* to, const std::byte* from) {
    plane.dst = to;
    plane.src = from;
    accepted &= transpose_2d(plane, copy.elem_size);
  });
  if (plane.stream) stream_fence();
  return accepted;
}

void run_untyped(const StridedCopy& copy, std::byte* dst, const std::byte* src) {
  const std::size_t none = max_dims;
  run_nest(loops_without(copy, none, none), dst, src,
           [size = copy.elem_size](std::byte* to, const std::byte* from) { std::memcpy(to, from, size); });
}

// The dimension other than the last along which the source is denser than along the last; the last when there is none.
std::size_t dense_source_dimension(const StridedCopy& copy) {
  std::size_t best = copy.ndims - 1;
  for (std::size_t d = 0; d + 1 < copy.ndims; ++d)
    if (copy.src_strides[d] != 0 && std::abs(copy.src_strides[d]) < std::abs(copy.src_strides[best])) best = d;
  return best;
}

}  // namespace

std::uint64_t StridedCopy::elements() const {
  if (empty()) return 0;
  std::uint64_t product = 1;
  for (std::size_t d = 0; d < ndims; ++d) product *= count[d];
  return product;
}

bool StridedCopy::dst_contiguous() const { return is_packed(*this, dst_strides, elem_size); }
bool StridedCopy::src_contiguous() const { return is_packed(*this, src_strides, src_size()); }

StridedCopy normalise(const std::int64_t* dst_strides, const std::int64_t* src_strides, const std::uint64_t* count,
                      std::size_t ndims, std::size_t elem_size, Conversion conversion) {
  StridedCopy copy;
  std::size_t n = 0;
  for (std::size_t d = 0; d < ndims; ++d) {
    if (count[d] == 0) return {};
    if (count[d] == 1) continue;
    std::int64_t dst = dst_strides[d];
    std::int64_t src = src_strides[d];
    if (dst < 0) {  // walk the dimension from its other end
      const auto steps = static_cast<std::int64_t>(count[d] - 1);
      copy.dst_offset += steps * dst;
      copy.src_offset += steps * src;
      dst = -dst;
      src = -src;
    }
    std::size_t at = n++;
    for (; at > 0 && copy.dst_strides[at - 1] < dst; --at) {
      copy.count[at] = copy.count[at - 1];
      copy.dst_strides[at] = copy.dst_strides[at - 1];
      copy.src_strides[at] = copy.src_strides[at - 1];
    }
    copy.count[at] = count[d];
    copy.dst_strides[at] = dst;
    copy.src_strides[at] = src;
  }
  std::size_t kept = 0;
  for (std::size_t d = 0; d < n; ++d) {
    const auto size = static_cast<std::int64_t>(copy.count[d]);
    const bool merges = kept > 0 && copy.dst_strides[kept - 1] == copy.dst_strides[d] * size &&
                        copy.src_strides[kept - 1] == copy.src_strides[d] * size;
    const std::size_t to = merges ? kept - 1 : kept++;
    copy.count[to] = merges ? copy.count[to] * copy.count[d] : copy.count[d];
    copy.dst_strides[to] = copy.dst_strides[d];
    copy.src_strides[to] = copy.src_strides[d];
  }
  const auto elem = static_cast<std::int64_t>(elem_size);
  // A short contiguous run is one larger element: (x, y) pairs move as one.
  if (!conversion.run && kept > 0 && copy.dst_strides[kept - 1] == elem && copy.src_strides[kept - 1] == elem &&
      copy.count[kept - 1] <= 16 && is_typed(copy.count[kept - 1] * elem_size)) {
    elem_size *= copy.count[kept - 1];
    --kept;
  }
  for (std::size_t d = kept; d < n; ++d) copy.count[d] = 0, copy.dst_strides[d] = 0, copy.src_strides[d] = 0;
  copy.ndims = static_cast<std::uint32_t>(kept);
  copy.elem_size = static_cast<std::uint32_t>(elem_size);
  copy.conversion = conversion;
  return copy;
}

bool run(const StridedCopy& copy, void* dst_base, const void* src_base, std::uint64_t of_bytes) {
  if (copy.empty()) return true;
  of_bytes = std::max(of_bytes, copy.bytes());
  auto* dst = static_cast<std::byte*>(dst_base) + copy.dst_offset;
  const auto* src = static_cast<const std::byte*>(src_base) + copy.src_offset;
  if (copy.ndims == 0) {
    if (copy.conversion.run) return copy.conversion.run(dst, src, 1);
    std::memcpy(dst, src, copy.elem_size);
    return true;
  }
  const std::size_t last = copy.ndims - 1;
  const std::size_t dense = dense_source_dimension(copy);
  if (dense != last && is_typed(copy.elem_size)) return run_transposed(copy, dense, dst, src);
  if (copy.conversion.run) return run_converted(copy, dst, src, of_bytes);
  if (copy.dst_strides[last] == copy.elem_size && copy.src_strides[last] == copy.elem_size)
    run_runs(copy, dst, src, of_bytes);
  else if (!is_typed(copy.elem_size)) run_untyped(copy, dst, src);
  else with_element(copy.elem_size, [&](auto element) { run_strided<decltype(element)>(copy, dst, src); });
  return true;
}

void run_pack(const StridedCopy& copy, void* packed, const void* src_base) {
  if (copy.empty()) return;
  const Strides strides = packed_strides_of(copy);
  const auto side = normalise(strides.data(), copy.src_strides.data(), copy.count.data(), copy.ndims, copy.elem_size);
  run(side, packed, static_cast<const std::byte*>(src_base) + copy.src_offset);
}

void run_unpack(const StridedCopy& copy, void* dst_base, const void* packed) {
  if (copy.empty()) return;
  const Strides strides = packed_strides_of(copy);
  const auto side = normalise(copy.dst_strides.data(), strides.data(), copy.count.data(), copy.ndims, copy.elem_size);
  run(side, static_cast<std::byte*>(dst_base) + copy.dst_offset, packed);
}

void copy_nd(void* dst, const std::int64_t* dst_strides, const void* src, const std::int64_t* src_strides,
             const std::uint64_t* count, std::size_t ndims, std::size_t elem_size) {
  run(normalise(dst_strides, src_strides, count, ndims, elem_size), dst, src);
}

Strides packed_strides(const Dims& count, std::size_t elem_size, Order order) {
  Strides strides{};
  auto next = static_cast<std::int64_t>(elem_size);
  const std::size_t n = count.size();
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t d = order == Order::row ? n - 1 - i : i;
    strides[d] = next;
    next *= static_cast<std::int64_t>(count[d]);
  }
  return strides;
}

bool is_contiguous(const Dims& count, const std::int64_t* strides, std::size_t elem_size, Order order) {
  const Strides packed = packed_strides(count, elem_size, order);
  for (std::size_t d = 0; d < count.size(); ++d)
    if (count[d] != 1 && strides[d] != packed[d]) return false;
  return true;
}

}  // namespace penstock::model
