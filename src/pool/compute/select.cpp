// subset, downsample, first and last: elements of the inputs, unchanged, in a new array.
#include <algorithm>
#include <cstring>

#include "model/box.hpp"
#include "model/copy.hpp"
#include "penstock/error.hpp"
#include "pool/compute/arguments.hpp"
#include "pool/compute/function.hpp"

namespace penstock::pool::compute {

namespace {

// Where the input lies; one without a box is the whole of its own array.
Box box_of(const Input& input) { return input.box ? *input.box : whole(input.shape); }

// All inputs lie in one array, or there is only one.
void check_space(std::span<const Input> inputs) {
  for (const auto& input : inputs) {
    if (inputs.size() > 1 && !input.box)
      throw Error(Errc::invalid_argument,
                  "several inputs are joined by their boxes, and '" + input.name + "' has none");
    if (input.shape.size() != inputs.front().shape.size())
      throw Error(Errc::invalid_argument, "the inputs have different numbers of dimensions");
  }
}

// Multiples of factor in [start, start + count): the first index, and how many.
struct Picks {
  std::uint64_t first, count;
};
Picks picks(std::uint64_t start, std::uint64_t count, std::uint64_t factor) {
  const std::uint64_t skip = (factor - start % factor) % factor;
  if (skip >= count) return {0, 0};
  return {start + skip, (count - skip - 1) / factor + 1};
}

// Copies the elements of `region` whose indices are multiples of factor into an array that holds those of `all`. Returns
// how many.
std::uint64_t copy_picks(const Input& input, const Box& region, const Box& all, const Dims& factor, const Dims& shape,
                         std::byte* into) {
  const auto size = size_of(input.dtype);
  const auto ndims = shape.size();
  const Box own = box_of(input);
  auto from = model::packed_strides(own.count, size, Order::row);
  const auto to = model::packed_strides(shape, size, Order::row);
  const std::byte* source = input.bytes.data();
  std::uint64_t elements = 1;
  Dims count = Dims::filled(ndims, 0);
  for (std::size_t d = 0; d < ndims; ++d) {
    const auto here = picks(region.start[d], region.count[d], factor[d]);
    const auto whole_first = picks(all.start[d], all.count[d], factor[d]).first;
    count[d] = here.count;
    elements *= here.count;
    if (here.count == 0) return 0;
    source += static_cast<std::int64_t>(here.first - own.start[d]) * from[d];
    into += static_cast<std::int64_t>((here.first - whole_first) / factor[d]) * to[d];
    from[d] *= static_cast<std::int64_t>(here.count > 1 ? factor[d] : 1);
  }
  model::copy_nd(into, to.data(), source, from.data(), count.begin(), ndims, size);
  return elements;
}

// The elements of `all` whose indices are multiples of factor, from whichever inputs hold them.
void gather(std::span<const Input> inputs, const Box& all, const Dims& factor, Output& output, Stop stop) {
  Dims shape = all.count;
  for (std::size_t d = 0; d < shape.size(); ++d) shape[d] = picks(all.start[d], all.count[d], factor[d]).count;
  const auto wanted = element_count(shape);
  std::byte* into = output.array(inputs.front().dtype, shape);
  std::uint64_t copied = 0;
  for (const auto& input : inputs) {
    stop.check();
    if (wanted == 0) break;
    if (all.start.empty()) {  // a single value
      std::memcpy(into, input.bytes.data(), size_of(input.dtype));
      copied = 1;
    } else if (const auto region = model::intersect(box_of(input), all)) {
      copied += copy_picks(input, *region, all, factor, shape, into);
    }
  }
  // Blocks of one variable do not overlap, so the count says whether all of it was there.
  if (copied != wanted)
    throw Error(Errc::invalid_argument, "the inputs hold " + std::to_string(copied) + " of the " +
                                            std::to_string(wanted) + " elements asked for in " + model::to_string(all));
}

void put_one(const Input& input, Output& output) {
  std::byte* into = size_of(input.dtype) == 0 ? output.raw(input.bytes.size()) : output.array(input.dtype, input.shape);
  if (!input.bytes.empty()) std::memcpy(into, input.bytes.data(), input.bytes.size());
}

}  // namespace

void run_subset(std::span<const Input> inputs, std::string_view text, Output& output, Stop stop) {
  static constexpr std::string_view allowed[] = {"box"};
  const auto arguments = parse_arguments(text, allowed);
  common_dtype(inputs);
  check_space(inputs);
  if (!arguments.box) throw Error(Errc::invalid_argument, "subset needs a box");
  if (arguments.box->start.size() != inputs.front().shape.size())
    throw Error(Errc::invalid_argument, "the box has " + std::to_string(arguments.box->start.size()) +
                                            " dimensions, the inputs " + std::to_string(inputs.front().shape.size()));
  gather(inputs, *arguments.box, Dims::filled(arguments.box->start.size(), 1), output, stop);
}

void run_downsample(std::span<const Input> inputs, std::string_view text, Output& output, Stop stop) {
  static constexpr std::string_view allowed[] = {"factor"};
  const auto arguments = parse_arguments(text, allowed);
  common_dtype(inputs);
  check_space(inputs);
  const auto ndims = inputs.front().shape.size();
  Dims factor = Dims::filled(ndims, arguments.factor.size() == 1 ? arguments.factor[0] : 2);
  if (arguments.factor.size() > 1 && arguments.factor.size() != ndims)
    throw Error(Errc::invalid_argument, "factor has " + std::to_string(arguments.factor.size()) + " numbers for " +
                                            std::to_string(ndims) + " dimensions");
  for (std::size_t d = 0; arguments.factor.size() > 1 && d < ndims; ++d) factor[d] = arguments.factor[d];
  // The smallest box around the blocks.
  Box all = box_of(inputs.front());
  for (const auto& input : inputs) {
    const Box box = box_of(input);
    for (std::size_t d = 0; d < ndims; ++d) {
      const auto end = std::max(all.start[d] + all.count[d], box.start[d] + box.count[d]);
      all.start[d] = std::min(all.start[d], box.start[d]);
      all.count[d] = end - all.start[d];
    }
  }
  gather(inputs, all, factor, output, stop);
}

void run_first(std::span<const Input> inputs, std::string_view text, Output& output, Stop) {
  parse_arguments(text, {});
  if (inputs.empty()) throw Error(Errc::invalid_argument, "there is no input");
  put_one(inputs.front(), output);
}

void run_last(std::span<const Input> inputs, std::string_view text, Output& output, Stop) {
  parse_arguments(text, {});
  if (inputs.empty()) throw Error(Errc::invalid_argument, "there is no input");
  put_one(inputs.back(), output);
}

}  // namespace penstock::pool::compute
