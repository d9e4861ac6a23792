// Conversions of layouts in one thread: 64 MiB arrays from rows to columns and back, and between arrays of structures and
// structures of arrays, beside memcpy of the same bytes and a loop over the elements. Each row runs once a round, so that
// drift of the machine meets all rows; rates are medians over the rounds, ratios medians of the ratios within each round.
// [--repeat 9] [--parts 1]: parts > 1 splits each conversion over so many threads, and the clock is the wall's.
#include <ctime>
#include <functional>
#include <thread>

#include "arguments.hpp"
#include "model/array_conversion.hpp"

namespace {

using namespace penstock;
using namespace penstock::model;

constexpr std::size_t array_bytes = std::size_t{64} << 20;

struct Row {
  std::string name;
  std::function<void()> run;
  double goal = 0;  // of memcpy's rate; 0: none
  std::vector<double> seconds;
};

// Of one thread its processor time, which other work on the machine disturbs less.
double seconds_now(std::size_t parts) {
  timespec time{};
  clock_gettime(parts > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

Executor threads(std::size_t parts) {
  if (parts < 2) return {};
  return {parts, [](std::size_t n, const std::function<void(std::size_t)>& part) {
            std::vector<std::jthread> others;
            for (std::size_t i = 1; i < n; ++i) others.emplace_back([&part, i] { part(i); });
            part(0);
          }};
}

ArrayLayout particles(bool structures) {
  ArrayLayout layout{.structure_bytes = structures ? 32u : 0u, .order = Dims{0}};
  for (const char* name : {"x", "y", "z", "w"})
    layout.fields.push_back({name, DType::float64, structures ? layout.fields.size() * 8 : 0});
  return layout;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Arguments arguments(argc, argv);
  const std::uint64_t repeat = arguments.number("repeat", 9);
  const Executor executor = threads(arguments.number("parts", 1));
  arguments.check();
  std::vector<std::byte> src(array_bytes), dst(array_bytes);
  for (std::size_t i = 0; i < array_bytes; ++i) src[i] = static_cast<std::byte>(i * 7 + i / 4099);

  std::vector<Row> rows;
  rows.push_back({"memcpy", [&] { std::memcpy(dst.data(), src.data(), array_bytes); }});
  const auto add = [&](const std::string& name, const ArrayLayout& to, const ArrayLayout& from, const Dims& shape,
                       double goal) {
    const Box box = whole(shape);
    const ArrayConversion conversion(place(to, box), place(from, box), box);
    rows.push_back({name, [&, conversion] { conversion.run(dst.data(), src.data(), executor); }, goal});
  };
  for (const DType dtype : {DType::float32, DType::float64})
    for (const Dims& shape : {Dims{256, 256, dtype == DType::float32 ? 256u : 128u},
                              Dims{dtype == DType::float32 ? 128u : 64u, 64, 64, 32}}) {
      const auto row = scalar_layout(dtype, dimensions_in(Order::row, shape.size()));
      const auto column = scalar_layout(dtype, dimensions_in(Order::column, shape.size()));
      const std::string what = std::string(name_of(dtype)) + " " + to_string(shape);
      add(what + " row to column", column, row, shape, 0.6);
      add(what + " column to row", row, column, shape, 0.6);
    }
  const std::uint64_t count = array_bytes / 32;
  add("float64 x 4 structures to arrays", particles(false), particles(true), Dims{count}, 0.5);
  add("float64 x 4 arrays to structures", particles(true), particles(false), Dims{count}, 0.5);
  rows.push_back({"loop over elements, structures to arrays", [&] {
                    const auto* from = reinterpret_cast<const double*>(src.data());
                    auto* to = reinterpret_cast<double*>(dst.data());
                    for (std::uint64_t i = 0; i < count; ++i)
                      for (std::uint64_t f = 0; f < 4; ++f) to[f * count + i] = from[i * 4 + f];
                  }});
  rows.push_back({"loop over elements, arrays to structures", [&] {
                    const auto* from = reinterpret_cast<const double*>(src.data());
                    auto* to = reinterpret_cast<double*>(dst.data());
                    for (std::uint64_t i = 0; i < count; ++i)
                      for (std::uint64_t f = 0; f < 4; ++f) to[i * 4 + f] = from[f * count + i];
                  }});
  rows.push_back({"loop over elements, float64 256x256x128 row to column", [&] {
                    const auto* from = reinterpret_cast<const double*>(src.data());
                    auto* to = reinterpret_cast<double*>(dst.data());
                    for (std::uint64_t i = 0; i < 256; ++i)
                      for (std::uint64_t j = 0; j < 256; ++j)
                        for (std::uint64_t k = 0; k < 128; ++k)
                          to[(k * 256 + j) * 256 + i] = from[(i * 256 + j) * 128 + k];
                  }});

  for (std::uint64_t round = 0; round <= repeat; ++round)
    for (Row& row : rows) {
      const double start = seconds_now(executor.parts);
      row.run();
      const double took = seconds_now(executor.parts) - start;
      if (round > 0) row.seconds.push_back(took);  // the first touches the memory
    }
  for (const Row& row : rows) {
    std::vector<double> ratios;
    for (std::uint64_t i = 0; i < repeat; ++i) ratios.push_back(rows[0].seconds[i] / row.seconds[i]);
    std::printf("%-56s %6.2f GB/s %5.2f of memcpy", row.name.c_str(), array_bytes / median(row.seconds) / 1e9,
                median(ratios));
    if (row.goal > 0) std::printf(" (goal %.1f)", row.goal);
    std::printf("\n");
  }
}
