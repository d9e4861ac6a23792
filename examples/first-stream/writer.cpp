// Writes the temperature of a cooling plate as the stream "heat": 50 steps.
#include <penstock/penstock.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

constexpr std::uint64_t rows = 64, columns = 96;

// One explicit time step of the heat equation; the edge stays at 0.
std::vector<double> advance(const std::vector<double>& T) {
  auto next = T;
  for (std::uint64_t i = 1; i < rows - 1; ++i)
    for (std::uint64_t j = 1; j < columns - 1; ++j) {
      const auto at = i * columns + j;
      next[at] += 0.2 * (T[at - columns] + T[at + columns] + T[at - 1] + T[at + 1] - 4 * T[at]);
    }
  return next;
}

int main() try {
  std::vector<double> T(rows * columns);
  for (std::uint64_t i = 24; i < 40; ++i)
    for (std::uint64_t j = 32; j < 64; ++j) T[i * columns + j] = 100.0;

  penstock::Context context;
  auto writer = context.create_stream("heat");
  auto temperature = writer.define<double>("T", {rows, columns});
  writer.put_attribute("T/units", penstock::Attribute::of("degC"));
  for (int number = 0; number < 50; ++number) {
    T = advance(T);
    auto step = writer.begin_step();
    step.put(temperature, T.data());
    step.put_attribute("time", 0.2 * (number + 1));
    step.end();
  }
  writer.close();
} catch (const std::exception& error) {
  std::fprintf(stderr, "writer: %s\n", error.what());
  return 1;
}
