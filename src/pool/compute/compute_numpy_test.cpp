// Built-ins against NumPy: random arrays of every type, cut into blocks, given to the built-in and to NumPy in a Python
// worker.
#include <cmath>
#include <complex>
#include <cstdlib>
#include <limits>
#include <random>

#include "model/copy.hpp"
#include "pool/compute/compute_test_support.hpp"

namespace penstock::pool::compute {

namespace {

using Random = std::mt19937_64;

std::uint64_t below(Random& random, std::uint64_t end) { return random() % end; }

template <class T>
T random_value(Random& random) {
  if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    using R = typename T::value_type;
    return T(static_cast<R>(random_value<double>(random)), static_cast<R>(random_value<double>(random)));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(std::normal_distribution<double>(0, 1000)(random));
  } else if constexpr (std::is_same_v<T, bool>) {
    return (random() & 1) != 0;
  } else {
    return static_cast<T>(random());
  }
}

// Inputs that are blocks of one array, whose elements are also returned (row-major).
struct Case {
  std::vector<ComputeInput> inputs;
  Dims shape;   // of the whole
  Dims origin;  // where it begins in its global array
};

template <class T>
Case random_blocks(Random& random, bool with_nan) {
  Case made;
  const auto ndims = 1 + below(random, 3);
  made.shape = made.origin = Dims::filled(ndims, 0);
  for (std::size_t d = 0; d < ndims; ++d) {
    made.shape[d] = 1 + below(random, 12);
    made.origin[d] = below(random, 5);
  }
  const auto parts = 1 + below(random, std::min<std::uint64_t>(3, made.shape[0]));  // cut along the first dimension
  std::uint64_t begin = 0;
  for (std::uint64_t part = 0; part < parts; ++part) {
    const std::uint64_t end = made.shape[0] * (part + 1) / parts;
    Dims count = made.shape;
    count[0] = end - begin;
    const auto elements = element_count(count);
    std::unique_ptr<T[]> values(new T[elements]);
    for (std::uint64_t i = 0; i < elements; ++i) {
      values[i] = random_value<T>(random);
      if constexpr (std::is_floating_point_v<T>)
        if (with_nan && below(random, 4) == 0) values[i] = std::numeric_limits<T>::quiet_NaN();
    }
    const std::shared_ptr<T[]> kept = std::move(values);
    ComputeInput input;
    input.name = "b" + std::to_string(part);
    input.dtype = dtype_of<T>();
    input.shape = count;
    Dims start = made.origin;
    start[0] += begin;
    input.box = Box{start, count};
    input.bytes = {reinterpret_cast<const std::byte*>(kept.get()), elements * sizeof(T)};
    input.owner = kept;
    made.inputs.push_back(std::move(input));
    begin = end;
  }
  if (made.inputs.size() == 1 && below(random, 2) == 0)
    made.inputs[0].box.reset(), made.origin = Dims::filled(ndims, 0);
  return made;
}

std::string list(const Dims& dims) {
  std::string text = "[";
  for (const auto v : dims) text += (text.size() > 1 ? ", " : "") + std::to_string(v);
  return text + "]";
}

class ComputeNumpy : public ComputeFixture {
 protected:
  void SetUp() override {
    if (python().empty()) GTEST_SKIP() << "needs a Python with NumPy (PENSTOCK_TEST_PYTHON)";
    use_python({"numpy_min", "numpy_max", "numpy_sum", "numpy_histogram", "numpy_subset", "numpy_downsample",
                "numpy_first", "numpy_last"});
    std::random_device device;
    const char* given = std::getenv("PENSTOCK_TEST_SEED");
    seed = given != nullptr ? std::strtoull(given, nullptr, 10) : device();
    random.seed(seed);
    RecordProperty("seed", std::to_string(seed));
  }
  void same(const std::string& function, const Case& made, const std::string& arguments = "", double tolerance = 0) {
    SCOPED_TRACE(function + " " + arguments + " of " + std::string(name_of(made.inputs[0].dtype)) + " " +
                 to_string(made.shape) + " in " + std::to_string(made.inputs.size()) + ", seed " +
                 std::to_string(seed));
    const auto ours = run(function, made.inputs, arguments);
    const auto numpys = run("py_numpy_" + function, made.inputs, arguments);
    ASSERT_EQ(name_of(ours.dtype), name_of(numpys.dtype));
    ASSERT_EQ(ours.shape, numpys.shape);
    ++compared;
    if (tolerance == 0) {
      ASSERT_EQ(ours.bytes, numpys.bytes);
      return;
    }
    const auto a = doubles(ours), b = doubles(numpys);
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(a[i]) || std::isnan(b[i])) ASSERT_EQ(std::isnan(a[i]), std::isnan(b[i]));
      else ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i])));
    }
  }
  static std::vector<double> doubles(const ComputeResult& result) {
    std::vector<double> values(result.bytes.size() / sizeof(double));
    std::memcpy(values.data(), result.bytes.data(), values.size() * sizeof(double));
    return values;
  }

  template <class T>
  void reductions(bool nan) {
    const auto made = random_blocks<T>(random, nan);
    constexpr bool real = !std::is_same_v<T, std::complex<float>> && !std::is_same_v<T, std::complex<double>>;
    const bool floating = size_of(dtype_of<T>()) >= 4 && (!real || std::is_floating_point_v<T>);
    if constexpr (real) {
      const bool only_nan = nan && std::is_floating_point_v<T> && element_count(made.shape) < 20;
      if (!only_nan) {
        same("min", made);
        same("max", made);
        // A single large integer has no range of doubles around it, in NumPy neither.
        if (element_count(made.shape) > 1) same("histogram", made);
        if (element_count(made.shape) > 1)
          same("histogram", made, R"({"bins": )" + std::to_string(1 + below(random, 50)) + "}");
        same("histogram", made, R"({"bins": 7, "range": [-500.25, 1000]})");
      }
    }
    same("sum", made, "", floating ? 1e-9 : 0);
  }
  template <class T>
  void selections() {
    const auto made = random_blocks<T>(random, false);
    Dims start = made.origin, count = made.shape;
    for (std::size_t d = 0; d < start.size(); ++d) {
      const auto skip = below(random, made.shape[d]);
      start[d] += skip;
      count[d] = 1 + below(random, made.shape[d] - skip);
    }
    same("subset", made, R"({"box": {"start": )" + list(start) + R"(, "count": )" + list(count) + "}}");
    same("downsample", made);
    same("downsample", made, R"({"factor": )" + std::to_string(1 + below(random, 5)) + "}");
    Dims factor = made.shape;
    for (auto& f : factor) f = 1 + below(random, 4);
    same("downsample", made, R"({"factor": )" + list(factor) + "}");
    same("first", made);
    same("last", made);
  }
  template <class... T>
  void all_types(int rounds) {
    for (int round = 0; round < rounds && !HasFailure(); ++round) {
      (reductions<T>(round % 2 == 1), ...);
      (selections<T>(), ...);
    }
  }
  void everything(const std::string& where) {
    all_types<bool, std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t, std::uint32_t,
              std::uint64_t, float, double, std::complex<float>, std::complex<double>>(6);
    record("every built-in against NumPy, " + where,
           std::to_string(compared) +
               " comparisons (13 types, random shapes, blocks, NaN): equal; sums of floats to 1e-9");
  }

  std::uint64_t seed = 0;
  Random random;
  int compared = 0;
};

// What a call costs, by where it runs; figures for the table, no limits.
TEST_F(ComputeNumpy, Cost) {
  const std::vector<double> small(1, 1.0), large(8u << 20, 1.0);
  const auto large_slab = slab_input(std::string("x"), large, {large.size()});
  const auto large_heap = heap_input("x", large, {large.size()});
  const auto small_slab = slab_input(std::string("x"), small, {1});
  const auto measure = [&](const std::string& what, const std::string& function, const ComputeInput& input, int calls) {
    run(function, std::vector{input});  // the worker is there, and the memory
    const auto begin = base::Clock::now();
    for (int i = 0; i < calls; ++i) run(function, std::vector{input});
    const auto each = std::chrono::duration<double, std::micro>(base::Clock::now() - begin).count() / calls;
    record("cost of a call: " + what, std::to_string(static_cast<long>(each)) + " us");
  };
  const auto both = [&](const std::string& where, const std::string& function) {
    measure("sum of 8 B, " + where, function, small_slab, 300);
    measure("sum of 64 MiB, " + where, function, large_slab, 5);
  };
  both("built-in in the server", "sum");
  both("Python worker", "py_numpy_sum");
  options.builtins_in_server = false;
  workers.reset();
  both("built-in in a worker process, slab mapped", "sum");
  measure("sum of 64 MiB, built-in in a worker process, copied from the heap", "sum", large_heap, 5);
  for (const std::string function : {"pid", "py_numpy_sum"}) {
    workers.reset();
    const auto begin = base::Clock::now();
    run(function, std::vector{small_slab});
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(base::Clock::now() - begin);
    record("first call, " + std::string(function == "pid" ? "worker process" : "Python worker") + " started for it",
           std::to_string(took.count()) + " ms");
  }
}

TEST_F(ComputeNumpy, InTheServer) {
  everything("in the server");
  EXPECT_EQ(statistics().in_server, static_cast<std::uint64_t>(compared));
}

TEST_F(ComputeNumpy, InWorkerProcesses) {
  options.builtins_in_server = false;
  everything("in worker processes");
  EXPECT_EQ(statistics().in_server, 0u);
}

}  // namespace
}  // namespace penstock::pool::compute
