// Reads the stream "heat" while it is written, and prints two figures of each step.
#include <penstock/penstock.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <numeric>

int main() try {
  penstock::Context context;
  auto reader = context.open_stream("heat");
  for (auto& step : reader) {
    // Only this row is read.
    const auto row = step.read<double>("T", penstock::Selection::box({24, 0}, {1, 96}));
    const auto mean = std::accumulate(row.begin(), row.end(), 0.0) / static_cast<double>(row.size());
    std::printf("step %llu  time %.1f  row 24: mean %.3f  max %.3f\n", static_cast<unsigned long long>(step.number()),
                step.attribute("time")->as<double>(), mean, *std::max_element(row.begin(), row.end()));
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "reader: %s\n", error.what());
  return 1;
}
