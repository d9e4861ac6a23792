// Co-processing: a simulation asks at each cycle whether an analysis wants to see it, lends its array when one does, and takes
// the values that the analysis sets.
#include <penstock/penstock.hpp>

#include <cstdio>
#include <exception>
#include <vector>

namespace {

constexpr std::uint64_t n = 100;

void require(bool good, const char* what) {
  if (!good) throw penstock::Error(penstock::Errc::internal, what);
}

// One step of heat conduction on the inside of `T`, which has a halo of one element, with one hot side.
void advance(std::vector<double>& T, double source) {
  const auto before = T;
  for (std::size_t i = 1; i <= n; ++i)
    for (std::size_t j = 1; j <= n; ++j) {
      const auto at = i * (n + 2) + j;
      T[at] += 0.2 * (before[at - 1] + before[at + 1] + before[at - n - 2] + before[at + n + 2] - 4 * before[at]);
      if (i == 1) T[at] = source;
    }
}

}  // namespace

int main() try {
  penstock::Context context;
  std::vector<double> T((n + 2) * (n + 2));
  double* const inside = T.data() + n + 3;
  const std::vector<std::int64_t> strides{(n + 2) * sizeof(double), sizeof(double)};
  penstock::StreamOptions options;
  options.engine = "insitu";

  penstock::Coprocessor coprocessor(context, "heat", penstock::solo(), {.every = 10}, options);
  coprocessor.set_mesh("grid", {penstock::UniformMesh{.shape = {n, n}, .axes = "yx"}});
  const auto temperature = coprocessor.field<double>("grid", "T", {.units = "K"});
  coprocessor.declare("source", 1000.0, 0.0, 2000.0);  // an analysis may set it, within these bounds

  int seen = 0;  // a small analysis in this process; any reader of the stream `heat` is one
  auto reader = context.open_stream("heat", penstock::solo(), options);
  reader.on_step([&](penstock::ReadStep& step) {
    require(step.view(step.variable("T").id).front().as<double>().data() == inside, "the array itself");
    require(step.attribute("cycle")->as<std::int64_t>() == 10 * seen, "each tenth cycle");
    ++seen;
  });

  for (int cycle = 0; cycle < 100; ++cycle) {
    advance(T, coprocessor.value<double>("source"));
    if (auto step = coprocessor.request(cycle, 0.1 * cycle)) {  // at most cycles nothing is asked for
      step->lend(temperature, penstock::whole({n, n}), inside, strides);
      step->coprocess();
    }
  }
  coprocessor.finalize();
  require(seen == 10 && coprocessor.statistics().skipped_every == 90, "each tenth cycle");
  std::puts("coprocess: as expected");
} catch (const std::exception& error) {
  std::fprintf(stderr, "coprocess: %s\n", error.what());
  return 1;
}
