// Random epochs of several writer ranks, random selections, every data plane: the bytes against brute force.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <random>

#include "memory/device_fixture.hpp"
#include "model/layout.hpp"
#include "transport/data_plane_fixture.hpp"

namespace penstock::transport {
namespace {

// A variable cut into blocks at random, each put by a random rank; every element's value is its index in the array.
struct RandomVariable {
  Dims shape;
  Order order;
  std::vector<Box> boxes;
  std::vector<std::size_t> rank_of;
};

std::uint64_t flat_index(const Dims& shape, const std::uint64_t* at) {
  std::uint64_t index = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) index = index * shape[d] + at[d];
  return index;
}

// Calls visit(coordinates) for each element of a box, in row-major order.
template <class Visit>
void for_each_element(const Dims& count, Visit&& visit) {
  const std::uint64_t total = element_count(count);
  std::array<std::uint64_t, max_dims> at{};
  for (std::uint64_t i = 0; i < total; ++i) {
    visit(at.data(), i);
    for (std::size_t d = count.size(); d-- > 0;) {
      if (++at[d] < count[d]) break;
      at[d] = 0;
    }
  }
}

std::uint64_t packed_index(const Dims& count, const std::uint64_t* at, Order order) {
  std::uint64_t index = 0;
  for (std::size_t i = 0; i < count.size(); ++i) {
    const std::size_t d = order == Order::row ? i : count.size() - 1 - i;
    index = index * count[d] + at[d];
  }
  return index;
}

RandomVariable random_variable(std::mt19937& random, std::size_t ranks) {
  RandomVariable variable;
  const std::size_t ndims = 1 + random() % 3;
  const std::uint64_t largest = ndims == 1 ? 60'000 : ndims == 2 ? 300 : 50;
  variable.shape = Dims::filled(ndims, 0);
  for (std::size_t d = 0; d < ndims; ++d) variable.shape[d] = 1 + random() % largest;
  variable.order = random() % 2 == 0 ? Order::row : Order::column;
  // A grid of cuts.
  std::vector<std::vector<std::uint64_t>> cuts(ndims);
  Dims grid = Dims::filled(ndims, 0);
  for (std::size_t d = 0; d < ndims; ++d) {
    cuts[d] = {0, variable.shape[d]};
    for (std::size_t i = random() % 3; i > 0; --i) cuts[d].push_back(random() % variable.shape[d]);
    std::sort(cuts[d].begin(), cuts[d].end());
    cuts[d].erase(std::unique(cuts[d].begin(), cuts[d].end()), cuts[d].end());
    grid[d] = cuts[d].size() - 1;
  }
  for_each_element(grid, [&](const std::uint64_t* at, std::uint64_t) {
    Box box{Dims::filled(ndims, 0), Dims::filled(ndims, 0)};
    for (std::size_t d = 0; d < ndims; ++d) {
      box.start[d] = cuts[d][at[d]];
      box.count[d] = cuts[d][at[d] + 1] - cuts[d][at[d]];
    }
    variable.boxes.push_back(box);
    variable.rank_of.push_back(random() % ranks);
  });
  return variable;
}

Selection random_selection(std::mt19937& random, const Dims& shape) {
  Dims start = shape, count = shape, stride = shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    start[d] = random() % shape[d];
    count[d] = 1 + random() % (shape[d] - start[d]);
    stride[d] = 1 + random() % 3;
  }
  switch (random() % 4) {
    case 0: return Selection::all();
    case 1: return Selection::box(start, count);
    case 2:
      for (std::size_t d = 0; d < shape.size(); ++d) count[d] = (count[d] + stride[d] - 1) / stride[d];
      return Selection::strided(start, count, stride);
    default: {
      std::vector<std::uint64_t> points;
      for (std::size_t i = 1 + random() % 200; i > 0; --i)
        for (std::size_t d = 0; d < shape.size(); ++d) points.push_back(random() % shape[d]);
      return Selection::points(points, shape.size());
    }
  }
}

template <class T>
void put_blocks(const RandomVariable& variable, DType dtype, std::vector<std::unique_ptr<WriterRank>>& ranks,
                std::uint32_t slot, std::vector<model::RankLayout>& layouts) {
  std::vector<std::uint32_t> ids;
  for (auto& layout : layouts) {
    ids.push_back(static_cast<std::uint32_t>(layout.variables.size()));
    layout.variables.push_back({"v" + std::to_string(layout.variables.size()), dtype, Kind::global_array,
                                variable.order, variable.shape, false});
  }
  for (std::size_t b = 0; b < variable.boxes.size(); ++b) {
    const Box& box = variable.boxes[b];
    const std::size_t rank = variable.rank_of[b];
    const std::uint64_t bytes = element_count(box.count) * sizeof(T);
    const Place place = ranks[rank]->arena->allocate(slot, bytes);
    auto* data = reinterpret_cast<T*>(place.data);
    for_each_element(box.count, [&](const std::uint64_t* at, std::uint64_t) {
      std::array<std::uint64_t, max_dims> global{};
      for (std::size_t d = 0; d < box.count.size(); ++d) global[d] = box.start[d] + at[d];
      data[packed_index(box.count, at, variable.order)] = static_cast<T>(flat_index(variable.shape, global.data()));
    });
    layouts[rank].blocks.push_back({ids[rank], box, place.segment, place.offset, bytes});
  }
}

template <class T>
std::vector<T> expected(const Dims& shape, const Selection& selection, const Dims& out_shape, Order order) {
  std::vector<T> values(element_count(out_shape));
  if (selection.form() == Selection::Form::points) {
    const auto coordinates = selection.coordinates();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<T>(flat_index(shape, coordinates.data() + i * shape.size()));
    return values;
  }
  for_each_element(out_shape, [&](const std::uint64_t* at, std::uint64_t) {
    std::array<std::uint64_t, max_dims> global{};
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const std::uint64_t stride = selection.stride().empty() ? 1 : selection.stride()[d];
      const std::uint64_t start = selection.form() == Selection::Form::all ? 0 : selection.box().start[d];
      global[d] = start + at[d] * stride;
    }
    values[packed_index(out_shape, at, order)] = static_cast<T>(flat_index(shape, global.data()));
  });
  return values;
}

class DataPlanePropertyTest : public DataPlaneTest {};

TEST_P(DataPlanePropertyTest, RandomEpochsAgainstBruteForce) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr std::size_t writers = 3;
  start(writers);
  for (std::uint64_t step = 0; step < 25; ++step) {
    const auto slot = static_cast<std::uint32_t>(step % 3);
    for (auto& rank : ranks) rank->arena->begin(slot, step, random() % 2 * mib);
    std::vector<model::RankLayout> layouts(writers);
    std::vector<RandomVariable> variables;
    for (std::size_t r = 0; r < writers; ++r) layouts[r].rank = static_cast<int>(r);
    for (int v = 0; v < 4; ++v) {
      variables.push_back(random_variable(random, writers));
      if (v % 2 == 0) put_blocks<double>(variables.back(), DType::float64, ranks, slot, layouts);
      else put_blocks<std::uint16_t>(variables.back(), DType::uint16, ranks, slot, layouts);
    }
    for (auto& rank : ranks) rank->arena->publish(slot, step);
    std::vector<std::shared_ptr<const model::RankLayout>> shared;
    for (auto& layout : layouts) shared.push_back(std::make_shared<const model::RankLayout>(std::move(layout)));
    const auto epoch = model::Epoch::build(step, shared);

    // All selections of a step in one fetch.
    std::vector<model::Plan> plans;
    std::vector<std::vector<double>> doubles;
    std::vector<std::vector<std::uint16_t>> shorts;
    std::vector<std::function<void()>> checks;
    std::vector<std::pair<std::size_t, std::byte*>> outs;
    doubles.reserve(8);
    shorts.reserve(8);
    for (int v = 0; v < 4; ++v) {
      for (int i = 0; i < 2; ++i) {
        const auto& layout = epoch->variable("v" + std::to_string(v));
        const Dims shape = variables[static_cast<std::size_t>(v)].shape;
        const Selection selection = random_selection(random, shape);
        const Order order = random() % 2 == 0 ? Order::row : Order::column;
        const Dims out_shape = model::shape_of(layout, selection);
        plans.push_back(model::make_plan(layout, selection, {.order = order}));
        if (v % 2 == 0) {
          auto& out = doubles.emplace_back(element_count(out_shape));
          outs.emplace_back(plans.size() - 1, reinterpret_cast<std::byte*>(out.data()));
          checks.push_back([=, &out] { EXPECT_EQ(out, expected<double>(shape, selection, out_shape, order)); });
        } else {
          auto& out = shorts.emplace_back(element_count(out_shape));
          outs.emplace_back(plans.size() - 1, reinterpret_cast<std::byte*>(out.data()));
          checks.push_back([=, &out] { EXPECT_EQ(out, expected<std::uint16_t>(shape, selection, out_shape, order)); });
        }
      }
    }
    std::vector<DataPlane::Item> items;
    // Some of the arrays lie on a device while they are read.
    std::vector<std::function<void()>> bring_back;
    for (auto& [plan, out] : outs) {
      const auto bytes = plans[plan].bytes();
      if (bytes == 0 || random() % 3 != 0) continue;
      auto device =
          std::make_shared<memory::DeviceMemory>(bytes, random() % 2 == 0 ? "cuMemAlloc_v2" : "cuMemHostAlloc");
      bring_back.push_back([device, host = out] { std::ranges::copy(device->read(), host); });
      out = device->data();
    }
    for (const auto& [plan, out] : outs)
      for (const auto& piece : plans[plan].pieces()) items.push_back({&piece, out});
    plane->fetch_to_any(step, slot, items, random() % 2 == 0, soon());
    for (const auto& bring : bring_back) bring();
    for (const auto& check : checks) check();
    if (HasFailure()) return;
    for (auto& rank : ranks) rank->arena->recycle(slot);
  }
}

// Reads into one array whose extents overlap: columns of a table, a second read over the first, gaps that nobody reads.
TEST_P(DataPlanePropertyTest, ReadsThatInterleaveInOneArrayOfADevice) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr std::size_t writers = 2;
  start(writers);
  const RandomVariable variable{{1000}, Order::row, {Box{{0}, {400}}, Box{{400}, {600}}}, {0, 1}};
  for (auto& rank : ranks) rank->arena->begin(0, 0, mib);
  std::vector<model::RankLayout> layouts(writers);
  for (std::size_t r = 0; r < writers; ++r) layouts[r].rank = static_cast<int>(r);
  put_blocks<double>(variable, DType::float64, ranks, 0, layouts);
  for (auto& rank : ranks) rank->arena->publish(0, 0);
  std::vector<std::shared_ptr<const model::RankLayout>> shared;
  for (auto& layout : layouts) shared.push_back(std::make_shared<const model::RankLayout>(std::move(layout)));
  const auto epoch = model::Epoch::build(0, shared);

  for (int round = 0; round < 40; ++round) {
    std::vector<double> host(8000, -1);
    memory::DeviceMemory device(host.size() * sizeof(double));
    device.write(std::as_bytes(std::span(host)));
    std::vector<model::Plan> plans;
    std::vector<std::size_t> at;
    for (std::size_t i = 2 + random() % 4; i > 0; --i) {
      const std::uint64_t start = random() % 900, count = 1 + random() % (1000 - start);
      const std::int64_t stride = static_cast<std::int64_t>((1 + random() % 4) * sizeof(double));
      plans.push_back(model::make_plan(epoch->variable("v0"), Selection::box({start}, {count}),
                                       {.order = Order::row, .strides = std::span(&stride, 1)}));
      at.push_back(random() % 2 == 0 ? random() % 4 : random() % 4000);
    }
    const auto items_at = [&](std::byte* base) {
      std::vector<DataPlane::Item> items;
      for (std::size_t i = 0; i < plans.size(); ++i)
        for (const auto& piece : plans[i].pieces()) items.push_back({&piece, base + at[i] * sizeof(double)});
      return items;
    };
    plane->fetch(0, 0, items_at(reinterpret_cast<std::byte*>(host.data())), true, soon());
    plane->fetch_to_any(0, 0, items_at(device.data()), true, soon());
    const auto bytes = device.read();
    ASSERT_EQ(std::memcmp(bytes.data(), host.data(), bytes.size()), 0) << "round " << round;
  }
}

// More than passes through the host's memory at a time: blocks that follow one another, and rows of a part of an array.
TEST_P(DataPlanePropertyTest, ReadsLargeArraysIntoADevice) {
  constexpr std::uint64_t rows = 1301, columns = 1001;
  start(2);
  const RandomVariable variable{
      {rows, columns}, Order::row, {Box{{0, 0}, {700, columns}}, Box{{700, 0}, {601, columns}}}, {0, 1}};
  for (auto& rank : ranks) rank->arena->begin(0, 0, 16 * mib);
  std::vector<model::RankLayout> layouts(2);
  for (std::size_t r = 0; r < layouts.size(); ++r) layouts[r].rank = static_cast<int>(r);
  put_blocks<double>(variable, DType::float64, ranks, 0, layouts);
  for (auto& rank : ranks) rank->arena->publish(0, 0);
  std::vector<std::shared_ptr<const model::RankLayout>> shared;
  for (auto& layout : layouts) shared.push_back(std::make_shared<const model::RankLayout>(std::move(layout)));
  const auto epoch = model::Epoch::build(0, shared);
  for (const auto& selection :
       {Selection::all(), Selection::box({3, 0}, {1290, columns}), Selection::box({1, 1}, {1300, 999})}) {
    const auto plan = model::make_plan(epoch->variable("v0"), selection, {});
    std::vector<double> host(plan.bytes() / sizeof(double));
    const memory::DeviceMemory device(plan.bytes());
    std::vector<DataPlane::Item> to_host, to_device;
    for (const auto& piece : plan.pieces()) {
      to_host.push_back({&piece, reinterpret_cast<std::byte*>(host.data())});
      to_device.push_back({&piece, device.data()});
    }
    plane->fetch(0, 0, to_host, false, soon());
    plane->fetch_to_any(0, 0, to_device, false, soon());
    const auto bytes = device.read();
    ASSERT_EQ(std::memcmp(bytes.data(), host.data(), bytes.size()), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Planes, DataPlanePropertyTest, ::testing::ValuesIn(planes_here()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace penstock::transport
