// Cutting and packing blocks into stripes, against what must hold of any layout; and reading cut blocks through StepReader.
#include "pool/keys/stripes.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "model/plan.hpp"
#include "model/random_test_support.hpp"
#include "stream/api/step_reader.hpp"

namespace penstock::pool {
namespace {

using model::BlockDefinition;
using model::Random;
using model::RankLayout;
using model::VariableDefinition;

struct Written {
  RankLayout layout;
  std::vector<std::byte> slot;  // segment 0
};

// A rank with random blocks, placed one after the other as an arena does.
Written random_rank(Random& random, int rank, const Dims& shape) {
  Written w;
  w.layout.rank = rank;
  w.layout.variables.push_back(
      {"a", DType::float64, Kind::global_array, random.chance(50) ? Order::row : Order::column, shape});
  w.layout.variables.push_back({"l", DType::int16, Kind::local_array, random.chance(50) ? Order::row : Order::column});
  w.layout.variables.push_back({"v", DType::int32, Kind::local_value});
  std::uint64_t at = 128;
  const auto add = [&](std::uint32_t variable, Box box) {
    const auto bytes = element_count(box.count) * size_of(w.layout.variables[variable].dtype);
    w.layout.blocks.push_back({variable, box, 0, at, bytes});
    at = aligned(at + bytes) + (random.chance(20) ? 64 : 0);
  };
  for (auto n = random.from(1, 4); n > 0; --n) add(0, random.box_in(shape, 5));
  if (random.chance(70)) {
    auto count = random.shape();
    add(1, Box{Dims::filled(count.size(), 0), count});
  }
  add(2, Box{});
  w.slot.resize(at);
  random.fill(w.slot);
  return w;
}

// What an owner does with a pull.
std::vector<std::byte> pulled(const Written& w, const Stripe& stripe) {
  std::vector<std::byte> out;
  for (const auto& r : stripe.ranges) {
    out.resize(aligned(out.size()));
    out.insert(out.end(), w.slot.begin() + static_cast<std::ptrdiff_t>(r.offset),
               w.slot.begin() + static_cast<std::ptrdiff_t>(r.offset + r.bytes));
  }
  return out;
}

TEST(Stripes, HoldEveryByteOfEveryBlock) {
  for (std::uint64_t round = 0; round < 200; ++round) {
    SCOPED_TRACE(model::seed_text(round));
    Random random(round);
    const Dims shape = {random.from(1, 40), random.from(1, 60), random.from(1, 20)};
    const auto w = random_rank(random, 0, shape);
    const std::uint64_t limit = random.one_of<std::uint64_t>({4096, 5000, 16384, 1 << 20});
    const auto stripes = stripes_of(w.layout, limit, true);
    const StripeMap map(stripes);
    std::vector<std::vector<std::byte>> bytes;
    for (const auto& s : stripes) {
      bytes.push_back(pulled(w, s));
      EXPECT_EQ(bytes.back().size(), s.bytes);
    }
    for (const auto& block : w.layout.blocks) {
      if (block.bytes == 0) continue;
      std::vector<model::Piece> parts;
      std::deque<std::vector<model::PointMove>> moves;
      map.place(model::byte_piece(0, 0, block.offset, block.bytes), parts, moves);
      std::uint64_t at = 0;
      for (const auto& part : parts) {
        EXPECT_EQ(part.copy.src_offset % static_cast<std::int64_t>(stripe_alignment), 0);
        ASSERT_EQ(part.copy.dst_offset, static_cast<std::int64_t>(at));
        const auto from = std::span(bytes.at(part.segment)).subspan(static_cast<std::size_t>(part.copy.src_offset));
        ASSERT_LE(part.bytes(), from.size());
        EXPECT_EQ(0, std::memcmp(from.data(), w.slot.data() + block.offset + at, part.bytes()));
        at += part.bytes();
      }
      EXPECT_EQ(at, block.bytes);
    }
  }
}

TEST(Stripes, AStepOfSmallBlocksIsOneObject) {
  RankLayout layout;
  layout.variables.push_back({"x", DType::float64, Kind::global_array, Order::row, {64}});
  std::uint64_t at = 128;
  for (std::uint64_t i = 0; i < 8; ++i, at += 64) layout.blocks.push_back({0, {{i * 8}, {8}}, 0, at, 64});
  const auto stripes = stripes_of(layout, 4 << 20, false);
  ASSERT_EQ(stripes.size(), 1u);
  EXPECT_EQ(stripes[0].ranges, (std::vector<StripeRange>{{0, 128, 512}})) << "one range for neighbours";
}

TEST(Stripes, LargeBlocksAreCutAlongTheSlowestDimension) {
  RankLayout layout;
  layout.variables.push_back({"x", DType::float64, Kind::global_array, Order::row, {10, 1024}});
  layout.variables.push_back({"y", DType::float64, Kind::global_array, Order::column, {1024, 10}});
  layout.blocks.push_back({0, {{0, 0}, {10, 1024}}, 0, 128, 81920});
  layout.blocks.push_back({1, {{0, 0}, {1024, 10}}, 0, 128 + 81920, 81920});
  const auto stripes = stripes_of(layout, 32 << 10, false);
  ASSERT_EQ(stripes.size(), 6u) << "no two parts fit together";
  EXPECT_EQ(stripes[1].ranges, (std::vector<StripeRange>{{0, 128 + 4 * 8192, 4 * 8192}}));
  EXPECT_EQ(stripes[5].ranges, (std::vector<StripeRange>{{0, 128 + 81920 + 8 * 8192, 2 * 8192}}));
}

TEST(Stripes, NothingWrittenIsNoObjectUnlessThereIsAPayload) {
  RankLayout layout;
  layout.variables.push_back({"x", DType::float64, Kind::global_array, Order::row, {4}});
  layout.blocks.push_back({0, {{0}, {0}}, 0, 128, 0});
  EXPECT_TRUE(stripes_of(layout, 4096, false).empty());
  EXPECT_EQ(stripes_of(layout, 4096, true).size(), 1u);
}

// ------------------------------------------------------------------------------------------- read through the step reader

// Stripes in this process's memory.
class MemoryPlane final : public transport::DataPlane {
 public:
  struct Rank {
    StripeMap map;
    std::vector<std::vector<std::byte>> stripes;
  };
  std::vector<Rank> ranks;
  std::string_view name() const override { return "memory"; }
  void fetch(std::uint64_t, std::uint32_t, std::span<const Item> items, bool, base::Deadline) override {
    for (const auto& [piece, out] : items) {
      const auto& rank = ranks.at(static_cast<std::size_t>(piece->writer_rank));
      std::vector<model::Piece> parts;
      std::deque<std::vector<model::PointMove>> moves;
      rank.map.place(*piece, parts, moves);
      for (const auto& part : parts) model::execute(part, rank.stripes.at(part.segment).data(), out);
    }
  }
  Mapped map(std::uint64_t step, std::uint32_t slot, int rank, std::uint32_t segment, std::uint64_t offset,
             std::uint64_t bytes, base::Deadline deadline) override {
    const auto piece = model::byte_piece(rank, segment, offset, bytes);
    std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
    const Item item{&piece, memory.get()};
    fetch(step, slot, {&item, 1}, false, deadline);
    return {{memory.get(), bytes}, memory};
  }
  memory::SlotInfo header(std::uint64_t, std::uint32_t, int, base::Deadline) override { return {}; }
  void read_payload(std::uint64_t, std::uint32_t, int, std::vector<std::byte>&, base::Deadline) override {}
};

class MemorySource final : public stream::StepSource {
 public:
  MemorySource(const std::vector<Written>& ranks, std::uint64_t limit) {
    auto blobs = std::make_shared<stream::EpochBlobs>();
    blobs->number = 1;
    for (const auto& w : ranks) {
      blobs->layouts.push_back(std::make_shared<const std::string>(wire::encode_layout(w.layout, false)));
      const auto stripes = stripes_of(w.layout, limit, false);
      plane_.ranks.push_back({StripeMap(stripes), {}});
      for (const auto& s : stripes) plane_.ranks.back().stripes.push_back(pulled(w, s));
    }
    blobs_ = blobs;
  }
  const std::string& stream() const override { return name_; }
  std::uint64_t cohort_number() const override { return 1; }
  transport::DataPlane& plane() override { return plane_; }
  Outcome wait_step(Step& step, base::Deadline) override {
    step = {0, 0, blobs_, nullptr};
    return Outcome::ready;
  }
  std::string why(Outcome) const override { return ""; }
  void close() override {}
  void add_statistics(StreamStatistics&) const override {}

 private:
  std::string name_ = "memory";
  MemoryPlane plane_;
  std::shared_ptr<const stream::EpochBlobs> blobs_;
};

std::vector<std::byte> viewed(const penstock::View& view, std::size_t elem_size) {
  std::vector<std::byte> out;
  model::for_each_index(view.box().count, [&](const Dims& index) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) at += static_cast<std::int64_t>(index[d]) * view.strides()[d];
    out.insert(out.end(), view.bytes().begin() + at, view.bytes().begin() + at + static_cast<std::int64_t>(elem_size));
  });
  return out;
}

// What is read of cut blocks is what is read of whole ones.
TEST(Stripes, CutBlocksReadAsTheyWerePut) {
  for (std::uint64_t round = 0; round < 100; ++round) {
    SCOPED_TRACE(model::seed_text(round));
    Random random(1000 + round);
    const Dims shape = {random.from(1, 40), random.from(1, 60), random.from(1, 20)};
    std::vector<Written> ranks;
    const auto order = random.chance(50) ? Order::row : Order::column;
    const auto local_order = random.chance(50) ? Order::row : Order::column;
    for (int r = 0; r < 3; ++r) {
      ranks.push_back(random_rank(random, r, shape));
      ranks.back().layout.variables[0].order = order;
      ranks.back().layout.variables[1].order = local_order;
    }
    stream::StepReader cut(std::make_unique<MemorySource>(ranks, 4096), {}, 0);
    stream::StepReader plain(std::make_unique<MemorySource>(ranks, 1 << 30), {}, 0);
    ASSERT_EQ(cut.begin_step(Timeout(0)), Outcome::ready);
    ASSERT_EQ(plain.begin_step(Timeout(0)), Outcome::ready);
    for (const auto& info : plain.variables()) {
      ASSERT_EQ(cut.blocks(info.id).size(), info.blocks);
      std::vector<Selection> selections;
      if (info.kind != Kind::local_array) selections.push_back(Selection::all());
      if (info.kind == Kind::global_array) {
        const auto box = random.box_in(shape);
        selections.push_back(Selection::box(box));
        Dims stride = {2, 3, 1}, count = box.count;
        for (std::size_t d = 0; d < 3; ++d) count[d] = (box.count[d] + stride[d] - 1) / stride[d];
        selections.push_back(Selection::strided(box.start, count, stride));
        std::vector<std::uint64_t> points;
        for (int i = 0; i < 20; ++i)
          for (std::size_t d = 0; d < 3; ++d) points.push_back(random.from(0, shape[d] - 1));
        selections.push_back(Selection::points(points, 3));
      }
      for (std::uint64_t b = 0; b < info.blocks; ++b) selections.push_back(Selection::block(b));
      for (const auto& selection : selections) {
        const auto bytes = element_count(plain.shape_of(info.id, selection)) * size_of(info.dtype);
        const auto to = random.chance(50) ? Order::row : Order::column;
        std::vector<std::byte> a(bytes), b(bytes);
        cut.get(info.id, selection, a.data(), to, {});
        plain.get(info.id, selection, b.data(), to, {});
        cut.wait(Timeout(0));
        plain.wait(Timeout(0));
        EXPECT_EQ(a, b) << info.name;
        if (selection.form() == Selection::Form::points || !selection.stride().empty()) continue;
        const auto va = cut.view(info.id, selection), vb = plain.view(info.id, selection);
        ASSERT_EQ(va.size(), vb.size());
        for (std::size_t i = 0; i < va.size(); ++i) {
          EXPECT_EQ(va[i].box(), vb[i].box());
          EXPECT_EQ(viewed(va[i], size_of(info.dtype)), viewed(vb[i], size_of(info.dtype)));
        }
      }
      EXPECT_THROW(cut.get(info.id, Selection::block(info.blocks), nullptr, Order::row, {}), Error);
    }
  }
}

}  // namespace
}  // namespace penstock::pool
