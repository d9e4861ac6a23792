// What a reader can ask for, and what it gets where blocks overlap or leave holes. Writer and reader are one program here
// so that the example is one file; usually they are two.
#include <penstock/penstock.hpp>

#include <cstdio>
#include <exception>
#include <vector>

namespace {

using penstock::Selection;

void require(bool good, const char* what) {
  if (!good) throw penstock::Error(penstock::Errc::internal, what);
}

// A 4 x 6 array of three blocks. The second overlaps the first in column 2; the last row belongs to nobody.
void write_blocks(penstock::Writer& writer, penstock::Variable<double> T) {
  const std::vector<double> ones(9, 1), twos(12, 2);
  auto step = writer.begin_step();
  step.put(T, {.start = {0, 0}, .count = {3, 3}}, ones.data());
  step.put(T, {.start = {0, 2}, .count = {3, 4}}, twos.data());
  step.put(T, {.start = {0, 0}, .count = {0, 6}}, ones.data());  // empty blocks are legal
  step.end();
}

void read_blocks(penstock::Reader& reader) {
  auto step = reader.begin_step();
  const auto& T = step.variable("T");

  std::vector<double> all(24, -1);
  std::vector<double> corner(4);
  std::vector<double> every_other(3);
  std::vector<double> points(2);
  std::vector<double> first_block(9);
  step.get(T, Selection::all(), all.data());
  step.get(T, Selection::box({0, 2}, {2, 2}), corner.data());
  step.get(T, Selection::strided({1, 0}, {1, 3}, {1, 2}), every_other.data());
  step.get(T, Selection::points({0, 0, 2, 5}, 2), points.data());  // elements (0, 0) and (2, 5)
  step.get(T, Selection::block(0), first_block.data());
  step.wait();  // performs all five at once

  require(all[1] == 1 && all[2] == 2, "where blocks overlap, the one with the highest number wins");
  require(all[18] == -1, "elements that no block covers are left as they were");
  require(corner == std::vector<double>({2, 2, 2, 2}), "the box");
  require(every_other == std::vector<double>({1, 2, 2}), "the strided box");
  require(points == std::vector<double>({1, 2}), "the points");
  require(first_block == std::vector<double>(9, 1), "a block is as its writer put it");
  step.end();
}

}  // namespace

int main() try {
  penstock::Context context;
  auto writer = context.create_stream("selections");
  auto T = writer.define<double>("T", {4, 6});
  auto reader = context.open_stream("selections");
  write_blocks(writer, T);
  read_blocks(reader);
  reader.close();
  writer.close();
  std::puts("selections: as expected");
} catch (const std::exception& error) {
  std::fprintf(stderr, "selections: %s\n", error.what());
  return 1;
}
