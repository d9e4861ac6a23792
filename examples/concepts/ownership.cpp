// Whose memory holds what, and for how long. Writer and reader are one program here so that the example is one file.
#include <penstock/penstock.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <numeric>
#include <vector>

namespace {

constexpr std::uint64_t n = 1000;

void require(bool good, const char* what) {
  if (!good) throw penstock::Error(penstock::Errc::internal, what);
}

void write_three_ways(penstock::Writer& writer) {
  auto copied = writer.define<double>("copied", {n});
  auto filled = writer.define<double>("filled", {n});
  auto lent = writer.define<double>("lent", {n});
  const penstock::Box box{.start = {0}, .count = {n}};

  std::vector<double> scratch(n, 1);
  const std::vector<double> constant(n, 3);
  auto step = writer.begin_step();
  step.put(copied, box, scratch.data());  // copied now: scratch is ours again at once
  std::fill(scratch.begin(), scratch.end(), 0.0);
  auto span = step.put_span(filled, box);  // the stream's memory: no copy at all
  std::iota(span.begin(), span.end(), 0.0);
  step.lend(lent, box, constant.data());  // constant must stay as it is until end() returns
  step.end();
}

double read_in_place(penstock::Reader& reader) {
  auto step = reader.begin_step();
  require(step.read<double>("copied") == std::vector<double>(n, 1), "put copies before it returns");
  const auto views = step.view("filled");
  step.end();
  // The step has ended, but the view keeps its memory leased: the writer cannot reuse it yet.
  const auto values = views.front().as<double>();
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

int main() try {
  penstock::Context context;
  auto writer = context.create_stream("ownership");
  auto reader = context.open_stream("ownership");
  write_three_ways(writer);
  require(read_in_place(reader) == n * (n - 1) / 2.0, "the view shows what was filled in");
  reader.close();
  writer.close();
  std::puts("ownership: as expected");
} catch (const std::exception& error) {
  std::fprintf(stderr, "ownership: %s\n", error.what());
  return 1;
}
