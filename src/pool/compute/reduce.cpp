// min, max, sum and histogram: one pass over each input, results of the inputs combined.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstring>
#include <limits>

#include "model/minmax.hpp"
#include "penstock/error.hpp"
#include "pool/compute/arguments.hpp"
#include "pool/compute/function.hpp"

namespace penstock::pool::compute {

namespace {

constexpr std::uint64_t chunk_bytes = 1u << 20;  // between two looks at whether anybody still waits
constexpr std::uint64_t most_bins = 1u << 20;

[[noreturn]] void unsupported(std::string_view what, DType dtype) {
  const bool half = dtype == DType::float16 || dtype == DType::bfloat16;
  throw Error(Errc::unsupported, std::string(what) + " of " + std::string(name_of(dtype)) +
                                     (half ? ": 16-bit floats have no arithmetic here" : " is not defined"));
}

// Calls f(pointer, count) for parts of the elements, whose memory may be unaligned.
template <class T, class F>
void for_chunks(std::span<const std::byte> bytes, Stop stop, F f) {
  constexpr std::size_t step = chunk_bytes / sizeof(T) * sizeof(T);
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    stop.check();
    const auto part = bytes.subspan(at, std::min(step, bytes.size() - at));
    f(part.data(), part.size() / sizeof(T));
  }
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Calls f with a value of the element type: f(float{}).
template <class F>
void with_real(std::string_view what, DType dtype, F f) {
  switch (dtype) {
    case DType::boolean: return f(std::uint8_t{});
    case DType::int8: return f(std::int8_t{});
    case DType::int16: return f(std::int16_t{});
    case DType::int32: return f(std::int32_t{});
    case DType::int64: return f(std::int64_t{});
    case DType::uint8: return f(std::uint8_t{});
    case DType::uint16: return f(std::uint16_t{});
    case DType::uint32: return f(std::uint32_t{});
    case DType::uint64: return f(std::uint64_t{});
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    default: unsupported(what, dtype);
  }
}

// ---------------------------------------------------------------------------------------------------------- min and max

std::optional<MinMax> range_of(std::string_view what, std::span<const Input> inputs, Stop stop, std::uint64_t& count) {
  const DType dtype = common_dtype(inputs);
  with_real(what, dtype, [](auto) {});
  std::optional<MinMax> range;
  count = 0;
  const std::size_t step = chunk_bytes / size_of(dtype) * size_of(dtype);
  for (const auto& input : inputs) {
    for (std::size_t at = 0; at < input.bytes.size(); at += step) {
      stop.check();
      const auto part = input.bytes.subspan(at, std::min(step, input.bytes.size() - at));
      model::merge(range, model::compute_min_max(dtype, part.data(), part.size() / size_of(dtype)));
    }
    count += input.bytes.size() / size_of(dtype);
  }
  return range;
}

void put_extreme(std::string_view what, bool least, std::span<const Input> inputs, std::string_view arguments,
                 Output& output, Stop stop) {
  parse_arguments(arguments, {});
  std::uint64_t count = 0;
  const auto range = range_of(what, inputs, stop, count);
  if (count == 0) throw Error(Errc::invalid_argument, std::string(what) + " of no elements");
  const DType dtype = inputs.front().dtype;
  std::byte* into = output.array(dtype, {});
  if (range) {
    std::memcpy(into, least ? range->min : range->max, size_of(dtype));
  } else if (dtype == DType::float32) {
    const auto nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(into, &nan, sizeof nan);
  } else {
    const auto nan = std::numeric_limits<double>::quiet_NaN();
    std::memcpy(into, &nan, sizeof nan);
  }
}

// ------------------------------------------------------------------------------------------------------------------ sum

// Sixteen running sums over short stretches, which are then added with compensation (Neumaier): as good as pairwise, at
// the speed of memory.
class FloatSum {
 public:
  void add(double value) {
    const double next = sum_ + value;
    // An infinite sum must stay infinite, not become NaN by its own correction.
    if (std::isfinite(next))
      correction_ += std::abs(sum_) >= std::abs(value) ? sum_ - next + value : value - next + sum_;
    sum_ = next;
  }
  double value() const { return std::isfinite(sum_) ? sum_ + correction_ : sum_; }

  template <class T>
  void add_all(const std::byte* data, std::uint64_t count, std::size_t stride, std::size_t offset) {
    constexpr std::uint64_t lanes = 16, stretch = 1024;
    for (std::uint64_t at = 0; at < count; at += stretch) {
      const std::uint64_t end = std::min(count, at + stretch);
      double part[lanes] = {};
      std::uint64_t i = at;
      for (; i + lanes <= end; i += lanes)
        for (std::uint64_t lane = 0; lane < lanes; ++lane)
          part[lane] += static_cast<double>(load<T>(data + (i + lane) * stride + offset));
      for (; i < end; ++i) part[0] += static_cast<double>(load<T>(data + i * stride + offset));
      for (std::uint64_t half = lanes / 2; half > 0; half /= 2)
        for (std::uint64_t lane = 0; lane < half; ++lane) part[lane] += part[lane + half];
      add(part[0]);
    }
  }

 private:
  double sum_ = 0, correction_ = 0;
};

template <class T>
std::uint64_t wrapping_sum(const std::byte* data, std::uint64_t count) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) sum += static_cast<std::uint64_t>(load<T>(data + i * sizeof(T)));
  return sum;
}

template <class T>
void sum_complex(std::span<const Input> inputs, Output& output, Stop stop) {
  FloatSum real, imaginary;
  for (const auto& input : inputs)
    for_chunks<std::complex<T>>(input.bytes, stop, [&](const std::byte* data, std::uint64_t count) {
      real.add_all<T>(data, count, 2 * sizeof(T), 0);
      imaginary.add_all<T>(data, count, 2 * sizeof(T), sizeof(T));
    });
  output.value(std::complex<double>(real.value(), imaginary.value()));
}

template <class T>
void sum_real(std::span<const Input> inputs, bool boolean, Output& output, Stop stop) {
  if constexpr (std::is_floating_point_v<T>) {
    FloatSum sum;
    for (const auto& input : inputs)
      for_chunks<T>(input.bytes, stop,
                    [&](const std::byte* data, std::uint64_t count) { sum.add_all<T>(data, count, sizeof(T), 0); });
    output.value(sum.value());
  } else {
    std::uint64_t sum = 0;
    for (const auto& input : inputs)
      for_chunks<T>(input.bytes, stop,
                    [&](const std::byte* data, std::uint64_t count) { sum += wrapping_sum<T>(data, count); });
    if (std::is_signed_v<T> || boolean) output.value(static_cast<std::int64_t>(sum));
    else output.value(sum);
  }
}

// ------------------------------------------------------------------------------------------------------------ histogram

struct Bins {
  double low = 0, high = 1;
  std::vector<double> edges;
  std::vector<std::int64_t> counts;
  std::int64_t left_out = 0;

  Bins(double from, double to, std::uint64_t count) : low(from), high(to), edges(count + 1), counts(count) {
    const double step = (high - low) / static_cast<double>(count);
    for (std::uint64_t i = 0; i < count; ++i) edges[i] = static_cast<double>(i) * step + low;
    edges[count] = high;
    scale_ = static_cast<double>(count);
    width_ = high - low;
  }
  // The guess may be one off by rounding; the edges decide.
  void add(double value) {
    if (!(value >= low && value <= high)) {
      ++left_out;
      return;
    }
    auto bin = std::min<std::uint64_t>(static_cast<std::uint64_t>((value - low) / width_ * scale_), counts.size() - 1);
    while (bin > 0 && value < edges[bin]) --bin;
    while (bin + 1 < counts.size() && value >= edges[bin + 1]) ++bin;
    ++counts[bin];
  }

 private:
  double scale_ = 1, width_ = 1;
};

// The least and the greatest finite value; 0 and 1 without any, and a little room around a single one, as NumPy has it.
std::array<double, 2> finite_range(std::span<const Input> inputs, Stop stop) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  with_real("histogram", common_dtype(inputs), [&](auto zero) {
    using T = decltype(zero);
    for (const auto& input : inputs)
      for_chunks<T>(input.bytes, stop, [&](const std::byte* data, std::uint64_t count) {
        for (std::uint64_t i = 0; i < count; ++i) {
          const auto value = static_cast<double>(load<T>(data + i * sizeof(T)));
          if (!std::isfinite(value)) continue;
          low = std::min(low, value);
          high = std::max(high, value);
        }
      });
  });
  if (low > high) return {0, 1};
  return {low, high};
}

}  // namespace

void run_min(std::span<const Input> inputs, std::string_view arguments, Output& output, Stop stop) {
  put_extreme("min", true, inputs, arguments, output, stop);
}

void run_max(std::span<const Input> inputs, std::string_view arguments, Output& output, Stop stop) {
  put_extreme("max", false, inputs, arguments, output, stop);
}

void run_sum(std::span<const Input> inputs, std::string_view arguments, Output& output, Stop stop) {
  parse_arguments(arguments, {});
  const DType dtype = common_dtype(inputs);
  if (dtype == DType::complex64) return sum_complex<float>(inputs, output, stop);
  if (dtype == DType::complex128) return sum_complex<double>(inputs, output, stop);
  with_real("sum", dtype, [&](auto zero) { sum_real<decltype(zero)>(inputs, dtype == DType::boolean, output, stop); });
}

void run_histogram(std::span<const Input> inputs, std::string_view text, Output& output, Stop stop) {
  static constexpr std::string_view allowed[] = {"bins", "range"};
  const auto arguments = parse_arguments(text, allowed);
  const std::uint64_t count = arguments.bins.value_or(10);
  if (count == 0 || count > most_bins)
    throw Error(Errc::invalid_argument, "bins must be from 1 to " + std::to_string(most_bins));
  const DType dtype = common_dtype(inputs);
  with_real("histogram", dtype, [](auto) {});
  auto range = arguments.range ? *arguments.range : finite_range(inputs, stop);
  if (range[0] == range[1]) range = {range[0] - 0.5, range[1] + 0.5};
  if (!std::isfinite(range[1] - range[0]) || !(range[1] > range[0]))
    throw Error(Errc::invalid_argument, "the values' range is too wide or too narrow for bins; give a range");
  Bins bins(range[0], range[1], count);
  with_real("histogram", dtype, [&](auto zero) {
    using T = decltype(zero);
    for (const auto& input : inputs)
      for_chunks<T>(input.bytes, stop, [&](const std::byte* data, std::uint64_t n) {
        for (std::uint64_t i = 0; i < n; ++i) bins.add(static_cast<double>(load<T>(data + i * sizeof(T))));
      });
  });
  std::memcpy(output.array(DType::int64, {count}), bins.counts.data(), count * sizeof(std::int64_t));
  std::int64_t counted = 0;
  for (const auto bin : bins.counts) counted += bin;
  char info[160];
  std::snprintf(info, sizeof info, R"({"range": [%.17g, %.17g], "counted": %lld, "left_out": %lld})", range[0],
                range[1], static_cast<long long>(counted), static_cast<long long>(bins.left_out));
  output.info = info;
}

}  // namespace penstock::pool::compute
