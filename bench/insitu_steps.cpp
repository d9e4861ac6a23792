// What a step costs in situ, in one thread: begin, lend one strided array, end, in which a function takes a view of it. The
// array is not touched, so that is the library's own cost.
//
//   insitu_steps [--steps N] [--side N] [--plain 1]    --plain 1: nobody reads; the step is written all the same
#include <cstdlib>
#include <filesystem>

#include "arguments.hpp"
#include "penstock/penstock.hpp"

namespace penstock::bench {
namespace {

void run(const Arguments& arguments) {
  const auto steps = arguments.number("steps", 20'000), side = arguments.number("side", 64);
  const bool plain = arguments.number("plain", 0) != 0;
  arguments.check();
  std::string folder = (std::filesystem::temp_directory_path() / "insitu-steps-XXXXXX").string();
  require(mkdtemp(folder.data()) != nullptr, "a folder");
  {
    ContextOptions places;
    places.directory = folder;
    places.listen = "127.0.0.1";
    const Context context(places);
    StreamOptions options;
    options.engine = "insitu";
    options.rendezvous_readers = plain ? 0 : 1;
    Writer writer = context.create_stream("insitu-steps", solo(), options);
    std::optional<Reader> reader;
    const auto row = static_cast<std::int64_t>((side + 2) * sizeof(double)),
               plane = row * static_cast<std::int64_t>(side + 2);
    const std::int64_t strides[] = {plane, row, sizeof(double)};
    std::vector<double> array((side + 2) * (side + 2) * (side + 2));
    const double* inside = array.data() + (side + 2) * (side + 2) + side + 3;
    const auto v = writer.define<double>("v", {side, side, side});
    std::uint64_t seen = 0;
    if (!plain) {
      reader.emplace(context.open_stream("insitu-steps", solo(), options));
      reader->on_step([&](ReadStep& step) {
        const auto views = step.view(step.variable("v").id);
        seen += views[0].bytes().data() == reinterpret_cast<const std::byte*>(inside);
      });
    }
    std::vector<double> took;
    took.reserve(steps);
    for (std::uint64_t t = 0; t < steps; ++t) {
      const double start = now();
      auto step = writer.begin_step();
      step.lend(v, whole({side, side, side}), inside, strides);
      step.end();
      took.push_back(1e6 * (now() - start));
    }
    require(plain || seen == steps, "a view of each step's own array");
    writer.close();
    took.erase(took.begin(), took.begin() + static_cast<std::ptrdiff_t>(steps / 10));  // start-up
    std::ranges::sort(took);
    FigureLine line;
    line.add("median_us", median(took));
    line.add("p99_us", took[took.size() * 99 / 100]);
    line.print();
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_with_arguments(argc, argv, penstock::bench::run); }
