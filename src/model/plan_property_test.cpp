// Random decompositions and selections, checked element by element against a reader that knows every element's place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "model/box.hpp"
#include "model/plan.hpp"
#include "model/random_test_support.hpp"

namespace penstock::model {
namespace {

constexpr DType fixed_size_dtypes[] = {DType::int8,    DType::boolean, DType::uint16,    DType::float16,   DType::int32,
                                       DType::float32, DType::float64, DType::complex64, DType::complex128};

// Writers, and what each of their elements ought to read as.
struct Writers {
  VariableDefinition definition;
  std::size_t elem_size = 0;
  std::vector<std::vector<std::vector<std::byte>>> memory;  // by rank and segment
  std::shared_ptr<const Epoch> epoch;
  struct Put {
    Box box;
    int rank;
    std::uint32_t segment;
    std::uint64_t offset;
    Strides strides;
    bool packed;
  };
  std::vector<Put> puts;  // by block number

  Writers(Random& random, Kind kind) {
    definition = {"v",  fixed_size_dtypes[random.from(0, std::size(fixed_size_dtypes) - 1)],
                  kind, random.chance(50) ? Order::row : Order::column,
                  {},   false};
    if (kind == Kind::global_array) definition.shape = random.chance(3) ? Dims{} : random.shape();
    elem_size = size_of(definition.dtype);
    const int ranks = static_cast<int>(random.from(1, 6));
    std::vector<std::shared_ptr<const RankLayout>> layouts;
    for (int rank = 0; rank < ranks; ++rank) layouts.push_back(add_rank(random, rank));
    epoch = Epoch::build(1, layouts);
  }

  std::shared_ptr<const RankLayout> add_rank(Random& random, int rank) {
    auto layout = std::make_shared<RankLayout>();
    layout->rank = rank;
    const bool other_first = random.chance(30);  // ids and indices then differ
    if (other_first) layout->variables.push_back({"other", DType::int8, Kind::local_value, Order::row, {}, false});
    layout->variables.push_back(definition);
    std::vector<std::uint64_t> used(3, 0);
    const bool is_value = definition.kind == Kind::global_value || definition.kind == Kind::local_value;
    const std::uint64_t blocks = is_value ? random.from(0, 1) : random.from(0, 4);
    for (std::uint64_t i = 0; i < blocks; ++i) {
      BlockDefinition block;
      block.variable = other_first ? 1 : 0;
      block.segment = static_cast<std::uint32_t>(random.from(0, used.size() - 1));
      if (definition.kind == Kind::global_array) block.box = random.box_in(definition.shape, 10);
      if (definition.kind == Kind::local_array) block.box = whole(random.shape());
      block.bytes = element_count(block.box.count) * elem_size;
      block.offset = (used[block.segment] + random.from(0, 40) + 15) / 16 * 16;
      const bool packed = is_value || random.chance(60) || block.bytes == 0;
      auto strides = packed_strides(block.box.count, elem_size, definition.order);
      if (!packed) {  // an array that is lent where it lies
        std::int64_t first = 0;
        std::size_t room = 0;
        strides = random.strides(block.box.count, elem_size, first, room, 0);
        std::array<std::uint64_t, max_dims> forward{};
        std::ranges::copy(strides, forward.begin());
        block.strides.assign(forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(block.box.count.size()));
      }
      used[block.segment] = block.offset + *extent_bytes(block.box.count, block.strides, elem_size);
      layout->blocks.push_back(block);
      puts.push_back({block.box, rank, block.segment, block.offset, strides, packed});
    }
    auto& segments = memory.emplace_back();
    for (const auto bytes : used) random.fill(segments.emplace_back(bytes));
    return layout;
  }

  const VariableLayout& variable() const {  // also when nothing of it was put
    const auto& all = epoch->defined();
    return *std::ranges::find_if(all, [](const auto& each) { return each.info.name == "v"; });
  }
  const std::byte* segment(int rank, std::uint32_t number) const {
    return memory[static_cast<std::size_t>(rank)][number].data();
  }
  const std::byte* element(const Put& put, const Dims& index_in_block) const {
    return segment(put.rank, put.segment) + put.offset + offset_of(index_in_block, put.strides);
  }
  // Null where no block is.
  const std::byte* element_of_global(const Dims& index) const {
    const std::byte* found = nullptr;
    for (const auto& put : puts) {
      if (!contains(put.box, index.begin())) continue;
      Dims inside = index;
      for (std::size_t d = 0; d < index.size(); ++d) inside[d] -= put.box.start[d];
      found = element(put, inside);
    }
    return found;
  }
};

struct Query {
  Selection selection = Selection::all();
  Dims shape;                                                 // expected
  std::function<const std::byte*(const Dims& index)> expect;  // of an index of that shape
};

Query strided_query(Random& random, const Writers& writers, const Dims& shape) {
  Box box = random.box_in(shape, 5);
  Dims stride = Dims::filled(shape.size(), 1);
  if (random.chance(50)) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      stride[d] = random.from(1, 4);
      box.count[d] = (box.count[d] + stride[d] - 1) / stride[d];
    }
  }
  return {Selection::strided(box.start, box.count, stride), box.count, [=, &writers](const Dims& index) {
            Dims at = index;
            for (std::size_t d = 0; d < at.size(); ++d) at[d] = box.start[d] + index[d] * stride[d];
            return writers.definition.kind == Kind::local_value ? writers.element(writers.puts[at[0]], {})
                                                                : writers.element_of_global(at);
          }};
}

Query points_query(Random& random, const Writers& writers, const Dims& shape) {
  std::vector<std::uint64_t> coordinates;
  const std::uint64_t points = random.from(0, 40);
  for (std::uint64_t i = 0; i < points; ++i)
    for (const auto size : shape) coordinates.push_back(random.from(0, size - 1));
  return {Selection::points(coordinates, shape.size()), {points}, [=, &writers](const Dims& index) {
            const Dims at(std::span<const std::uint64_t>(coordinates).subspan(index[0] * shape.size(), shape.size()));
            return writers.definition.kind == Kind::local_value ? writers.element(writers.puts[at[0]], {})
                                                                : writers.element_of_global(at);
          }};
}

// Empty when no selection of the kind is legal.
std::optional<Query> random_query(Random& random, const Writers& writers) {
  const auto& puts = writers.puts;
  const Kind kind = writers.definition.kind;
  if (!puts.empty() && random.chance(20)) {
    const std::uint64_t number = random.from(0, puts.size() - 1);
    return Query{Selection::block(number), puts[number].box.count,
                 [&writers, number](const Dims& index) { return writers.element(writers.puts[number], index); }};
  }
  switch (kind) {
    case Kind::local_array:
      if (puts.size() != 1) return std::nullopt;
      return Query{Selection::all(), puts[0].box.count,
                   [&writers](const Dims& index) { return writers.element(writers.puts[0], index); }};
    case Kind::global_value:
      return Query{Selection::all(), {}, [&writers](const Dims&) {
                     return writers.puts.empty() ? nullptr : writers.element(writers.puts.back(), {});
                   }};
    case Kind::local_value:
      if (puts.empty()) return std::nullopt;
      break;
    case Kind::global_array: break;
  }
  const Dims shape = kind == Kind::local_value ? Dims{puts.size()} : writers.definition.shape;
  if (random.chance(25) || shape.empty())
    return Query{Selection::all(), shape, [&writers, kind](const Dims& index) {
                   return kind == Kind::local_value ? writers.element(writers.puts[index[0]], {})
                                                    : writers.element_of_global(index);
                 }};
  return random.chance(30) ? points_query(random, writers, shape) : strided_query(random, writers, shape);
}

// As the tcp plane does: source runs where there are some, else packed by the peer; then received in place or unpacked.
void transfer(const Writers& writers, const Piece& piece, std::byte* out) {
  const std::byte* base = writers.segment(piece.writer_rank, piece.segment);
  std::vector<std::byte> packed(piece.bytes());
  pack(piece, base, packed.data());
  std::vector<SourceRun> runs;
  if (contiguous_runs(piece, 1, 1u << 20, runs)) {
    std::vector<std::byte> gathered;
    for (const auto& run : runs) gathered.insert(gathered.end(), base + run.offset, base + run.offset + run.bytes);
    ASSERT_EQ(gathered, packed);
  }
  if (packed_is_contiguous_at_destination(piece))
    std::memcpy(out + piece.copy.dst_offset, packed.data(), packed.size());
  else unpack(piece, packed.data(), out);
}

// In parts of the source, as a pool's stripes hold them. Those hold packed blocks only.
void in_parts(Random& random, const Writers& writers, const Piece& piece, std::byte* out) {
  const auto& put = writers.puts[piece.block];
  if (!put.packed) return execute(piece, writers.segment(piece.writer_rank, piece.segment), out);
  const auto elements = element_count(put.box.count);
  std::vector<std::uint64_t> cuts;
  for (auto n = random.from(0, 5); n > 0; --n)
    cuts.push_back(put.offset + random.from(0, elements) * writers.elem_size);
  std::ranges::sort(cuts);
  std::vector<Piece> parts;
  cut_at_source(piece, cuts, parts);
  std::uint64_t bytes = 0;
  for (const auto& part : parts) {
    const auto extent = source_extent(part);
    for (const auto at : cuts) ASSERT_TRUE(extent.last <= at || extent.first >= at) << at;
    ASSERT_EQ(part.segment, piece.segment);
    bytes += part.bytes();
    execute(part, writers.segment(part.writer_rank, part.segment), out);
  }
  ASSERT_EQ(bytes, piece.bytes());
}

void check_query(Random& random, const Writers& writers, const Query& query) {
  const auto& variable = writers.variable();
  ASSERT_EQ(shape_of(variable, query.selection), query.shape);
  Destination destination{random.chance(50) ? Order::row : Order::column, {}};
  std::int64_t first = 0;
  std::size_t bytes = element_count(query.shape) * writers.elem_size;
  Strides strides = packed_strides(query.shape, writers.elem_size, destination.order);
  if (!query.shape.empty() && random.chance(60)) {
    strides = random.strides(query.shape, writers.elem_size, first, bytes);
    destination.strides = std::span(strides).first(query.shape.size());
  }
  std::vector<std::byte> out(bytes + 32);
  random.fill(out);
  auto expected = out;
  auto transferred = out;
  auto parted = out;
  std::uint64_t covered = 0;
  for_each_index(query.shape, [&](const Dims& index) {
    const std::byte* element = query.expect(index);
    if (!element) return;
    ++covered;
    std::memcpy(expected.data() + first + offset_of(index, strides), element, writers.elem_size);
  });
  const auto plan = make_plan(variable, query.selection, destination);
  if (!plan.overlapping()) {
    ASSERT_EQ(plan.bytes(), covered * writers.elem_size);
  }
  std::int64_t last_block = -1;
  for (const auto& piece : plan.pieces()) {
    ASSERT_LT(last_block, std::int64_t{piece.block});
    last_block = piece.block;
    execute(piece, writers.segment(piece.writer_rank, piece.segment), out.data() + first);
    transfer(writers, piece, transferred.data() + first);
    in_parts(random, writers, piece, parted.data() + first);
  }
  ASSERT_EQ(out, expected);
  ASSERT_EQ(transferred, expected);
  ASSERT_EQ(parted, expected);
}

void run_rounds(Kind kind, std::uint64_t rounds) {
  for (std::uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE(seed_text(round));
    Random random(50'000 + 10'000 * static_cast<std::uint64_t>(kind) + round);
    const Writers writers(random, kind);
    ASSERT_EQ(writers.variable().blocks.size(), writers.puts.size());
    for (int i = 0; i < 4; ++i) {
      const auto query = random_query(random, writers);
      if (query) check_query(random, writers, *query);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(PlanProperty, global_arrays) { run_rounds(Kind::global_array, 3000); }
TEST(PlanProperty, local_arrays) { run_rounds(Kind::local_array, 500); }
TEST(PlanProperty, global_values) { run_rounds(Kind::global_value, 200); }
TEST(PlanProperty, local_values) { run_rounds(Kind::local_value, 500); }

TEST(PlanProperty, views_show_the_block_in_place) {
  for (std::uint64_t round = 0; round < 500; ++round) {
    SCOPED_TRACE(seed_text(round));
    Random random(90'000 + round);
    const Writers writers(random, Kind::global_array);
    const Dims& shape = writers.definition.shape;
    const Selection selection = random.chance(50) ? Selection::all() : Selection::box(random.box_in(shape));
    const Box asked = selection.form() == Selection::Form::all ? whole(shape) : selection.box();
    std::size_t parts = 0;
    for (const auto& put : writers.puts) parts += intersect(put.box, asked).has_value();
    const auto views = view_parts(writers.variable(), selection);
    ASSERT_EQ(views.size(), parts);
    for (const auto& view : views) {
      const auto& put = writers.puts[view.block];
      ASSERT_EQ(view.box, *intersect(put.box, asked));
      const std::byte* base = writers.segment(view.writer_rank, view.segment) + view.offset;
      for_each_index(view.box.count, [&](const Dims& index) {
        Dims inside = index;
        for (std::size_t d = 0; d < index.size(); ++d) inside[d] += view.box.start[d] - put.box.start[d];
        const std::int64_t offset = offset_of(index, view.strides);
        ASSERT_EQ(base + offset, writers.element(put, inside));
        ASSERT_LE(static_cast<std::uint64_t>(offset) + writers.elem_size, view.bytes);
      });
    }
  }
}

}  // namespace
}  // namespace penstock::model
