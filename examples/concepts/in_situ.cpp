// In situ: a function of the reader is called at the end of each step, in the simulation's thread, and sees the simulation's
// own array.
#include <penstock/penstock.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

constexpr std::uint64_t n = 100;

void require(bool good, const char* what) {
  if (!good) throw penstock::Error(penstock::Errc::internal, what);
}

// One step of heat conduction on the inside of `T`, which has a halo of one element.
void advance(std::vector<double>& T) {
  const auto before = T;
  for (std::size_t i = 1; i <= n; ++i)
    for (std::size_t j = 1; j <= n; ++j) {
      const auto at = i * (n + 2) + j;
      T[at] += 0.2 * (before[at - 1] + before[at + 1] + before[at - n - 2] + before[at + n + 2] - 4 * before[at]);
    }
}

}  // namespace

int main() try {
  penstock::Context context;
  std::vector<double> T((n + 2) * (n + 2));
  double* const inside = T.data() + n + 3;
  std::fill_n(inside, n, 1000.0);  // one hot side
  std::vector<double> hottest;
  bool same_array = true;

  penstock::StreamOptions options;
  options.engine = "insitu";
  auto writer = context.create_stream("heat", penstock::solo(), options);
  auto reader = context.open_stream("heat", penstock::solo(), options);
  reader.on_step([&](penstock::ReadStep& step) {
    const auto views = step.view(step.variable("T").id);  // the array itself, with its strides: no copy
    const auto& view = views.front();
    same_array = same_array && view.as<double>().data() == inside;
    double most = 0;
    for (std::uint64_t i = 0; i < view.box().count[0]; ++i) {
      const auto* row =
          reinterpret_cast<const double*>(view.bytes().data() + static_cast<std::int64_t>(i) * view.strides()[0]);
      most = std::max(most, *std::max_element(row, row + view.box().count[1]));
    }
    hottest.push_back(most);
  });

  const auto variable = writer.define<double>("T", {n, n});
  const std::vector<std::int64_t> strides{(n + 2) * sizeof(double), sizeof(double)};
  for (int t = 0; t < 10; ++t) {
    advance(T);
    auto step = writer.begin_step();
    step.lend(variable, penstock::whole({n, n}), inside, strides);
    step.end();  // calls the function, and returns when it has
  }
  require(same_array && hottest.size() == 10, "the function saw the array at each step");
  require(std::is_sorted(hottest.rbegin(), hottest.rend()), "heat spreads");
  writer.close();
  std::puts("in_situ: as expected");
} catch (const std::exception& error) {
  std::fprintf(stderr, "in_situ: %s\n", error.what());
  return 1;
}
