// The data model, scenario by scenario, over every plane (C++ API). Names are those of the scenario table.
#include <gmock/gmock.h>

#include <cmath>

#include "memory/device_fixture.hpp"
#include "penstock/pool.hpp"
#include "scenario.hpp"

namespace penstock {
namespace {

using scenario::code_of;
using scenario::numbered;

class DataScenario : public scenario::Scenario {};
PENSTOCK_SCENARIOS(DataScenario);

template <class T>
std::vector<T> sample() {
  if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) return {T{0x3c00}, T{0x4000}, T{0xbc00}};
  else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
    return {T(1, 2), T(-3, 4), T(0, -1)};
  else return {T(1), T(0), std::numeric_limits<T>::max()};
}

template <class... T>
struct Types {};
using AllTypes =
    Types<std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t, std::uint32_t,
          std::uint64_t, float16, bfloat16, float, double, std::complex<float>, std::complex<double>>;

template <class... T>
void define_all(Writer& writer, std::vector<std::uint32_t>& ids, Types<T...>) {
  (ids.push_back(writer.define<T>(std::string(name_of(dtype_of<T>())), {3}).id), ...);
}
template <class... T>
void put_all(WriteStep& step, const std::vector<std::uint32_t>& ids, Types<T...>) {
  std::size_t i = 0;
  (step.put(ids[i++], Box{{0}, {3}}, sample<T>().data()), ...);
}
template <class T>
void check_one(ReadStep& step) {
  EXPECT_EQ(step.read<T>(name_of(dtype_of<T>())), sample<T>()) << name_of(dtype_of<T>());
}
template <class... T>
void check_all(ReadStep& step, Types<T...>) {
  (check_one<T>(step), ...);
}

TEST_P(DataScenario, element_types) {
  pair(
      [](Writer& writer) {
        std::vector<std::uint32_t> ids;
        define_all(writer, ids, AllTypes{});
        const auto flag = writer.define<bool>("bool", {3});
        const bool flags[] = {true, false, true};
        for (int t = 0; t < 3; ++t) {
          auto step = writer.begin_step();
          put_all(step, ids, AllTypes{});
          step.put(flag, {{0}, {3}}, flags);
          step.end();
        }
      },
      [](Reader& reader) {
        for (int t = 0; t < 3; ++t) {
          auto step = reader.begin_step();
          check_all(step, AllTypes{});
          bool flags[3] = {};
          step.get("bool", Selection::all(), flags);
          step.wait();
          EXPECT_TRUE(flags[0] && !flags[1] && flags[2]);
          EXPECT_EQ(code_of([&] { step.read<float>("float64"); }), Errc::invalid_argument);
        }
        EXPECT_EQ(code_of([&] { reader.begin_step(); }), Errc::end_of_stream);
      });
}

// Objects whose bytes lie in memory of any kind, small enough to travel inside of messages and larger.
void check_objects(const Context& context, DataPlane plane, const std::vector<std::string>& kinds) {
  PoolOptions options{.pool = "scenarios"};
  if (plane != DataPlane::shm) options.data_plane = plane;
  Pool pool(context, options);
  for (const auto bytes : {std::size_t{100}, std::size_t{3} << 20}) {
    std::vector<std::byte> values(bytes);
    for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(i * 7 + i / 251);
    for (const auto& kind : kinds) {
      const memory::DeviceMemory from(bytes, kind), into(bytes, kind);
      from.write(values);
      pool.put({std::to_string(bytes), kind}, from.span());
      EXPECT_EQ(pool.get_into({std::to_string(bytes), kind}, into.span()), bytes);
      EXPECT_EQ(into.read(), values) << kind;
    }
  }
}

// Arrays of every kind, put and read: whole, strided on both sides, lent, and small enough to travel inside of messages.
TEST_P(DataScenario, memory_kinds) {
  using memory::DeviceMemory;
  constexpr std::uint64_t rows = 300, columns = 500, elements = rows * columns;
  constexpr std::int64_t column_step = 2 * sizeof(double), row_step = columns * column_step;
  memory::Device::get();  // as a program does before its first step
  const std::vector<std::string> kinds{"cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocManaged", "cuMemHostAlloc"};
  const auto bytes_of = [](const std::vector<double>& values) { return std::as_bytes(std::span(values)); };
  const auto in_memory = [&](const std::string& kind, const std::vector<double>& values) {
    auto memory = std::make_unique<DeviceMemory>(values.size() * sizeof(double), kind);
    memory->write(bytes_of(values));
    return memory;
  };
  pair(
      [&](Writer& writer) {
        const auto plain = writer.define<double>("plain", {rows, columns});
        const auto strided = writer.define<double>("strided", {rows, columns});
        const auto lent = writer.define<double>("lent", {rows, columns});
        const auto value = writer.define_value<double>("value");
        for (std::uint64_t t = 0; t < kinds.size(); ++t) {
          auto step = writer.begin_step();
          const Box all{{0, 0}, {rows, columns}};
          auto values = numbered(elements, t);
          const auto array = in_memory(kinds[t], values);
          step.put(plain, all, reinterpret_cast<const double*>(array->data()));
          step.lend(lent, all, reinterpret_cast<const double*>(array->data()));
          std::vector<double> wide(2 * elements);
          for (std::uint64_t i = 0; i < elements; ++i) wide[2 * i] = values[i];
          const auto spread = in_memory(kinds[t], wide);
          const std::int64_t strides[] = {row_step, column_step};
          step.put(strided.id, all, spread->data(), strides);
          step.put(value.id, {}, array->data() + 8 * t);
          step.end();
        }
      },
      [&](Reader& reader) {
        for (std::uint64_t t = 0; t < kinds.size(); ++t) {
          auto step = reader.begin_step();
          const auto expected = numbered(elements, t);
          for (const char* name : {"plain", "strided", "lent"}) {
            const DeviceMemory whole(elements * sizeof(double), kinds[t]);
            step.get(name, Selection::all(), reinterpret_cast<double*>(whole.data()));
            // Every second element is the caller's, and stays as it is.
            std::vector<double> around(2 * elements, -1);
            const auto spread = in_memory(kinds[t], around);
            const std::int64_t strides[] = {row_step, column_step};
            step.get(step.variable(name).id, Selection::all(), spread->data(), Order::row, strides);
            step.wait();
            EXPECT_TRUE(std::ranges::equal(whole.read(), bytes_of(expected))) << name << " in " << kinds[t];
            for (std::uint64_t i = 0; i < elements; ++i) around[2 * i] = expected[i];
            EXPECT_TRUE(std::ranges::equal(spread->read(), bytes_of(around))) << name << " in " << kinds[t];
          }
          EXPECT_EQ(step.read_value<double>("value"), expected[t]);
        }
      });
  if (on("pool")) check_objects(Context(context_options()), plane(), kinds);
}

TEST_P(DataScenario, up_to_eight_dimensions) {
  pair(
      [](Writer& writer) {
        auto step = writer.begin_step();
        for (std::size_t d = 1; d <= max_dims; ++d) {
          const auto v = writer.define<std::int32_t>("v" + std::to_string(d), Dims::filled(d, 2));
          step.put(v, whole(Dims::filled(d, 2)), numbered<std::int32_t>(1u << d).data());
        }
        step.end();
      },
      [](Reader& reader) {
        auto step = reader.begin_step();
        for (std::size_t d = 1; d <= max_dims; ++d)
          EXPECT_EQ(step.read<std::int32_t>("v" + std::to_string(d)), numbered<std::int32_t>(1u << d));
      });
}

TEST_P(DataScenario, changing_shape) {
  pair(
      [](Writer& writer) {
        const auto v = writer.define<double>("v", {4, 1});
        for (std::uint64_t t = 0; t < 6; ++t) {
          auto step = writer.begin_step();
          step.set_shape(v, {4, t + 1});
          step.put(v, whole({4, t + 1}), numbered(4 * (t + 1), t).data());
          step.end();
        }
      },
      [](Reader& reader) {
        for (std::uint64_t t = 0; t < 6; ++t) {
          auto step = reader.begin_step();
          EXPECT_EQ(step.variable("v").shape, (Dims{4, t + 1}));
          EXPECT_EQ(step.read<double>("v"), numbered(4 * (t + 1), t));
        }
      });
}

// Rows of a 12 x 5 array, cut differently each step.
TEST_P(DataScenario, changing_decomposition) {
  cohorts(
      3, 2,
      [](Writer& writer, int rank) {
        const auto v = writer.define<double>("v", {12, 5});
        for (std::uint64_t t = 0; t < 6; ++t) {
          auto step = writer.begin_step();
          const std::uint64_t cut[] = {0, 1 + t, 7 + (t % 3), 12};
          const Box box{{cut[rank], 0}, {cut[rank + 1] - cut[rank], 5}};
          const auto all = numbered(60, t);
          step.put(v, box, all.data() + box.start[0] * 5);
          step.end();
        }
      },
      [](Reader& reader, int rank) {
        for (std::uint64_t t = 0; t < 6; ++t) {
          auto step = reader.begin_step();
          const auto all = numbered(60, t);
          const std::uint64_t first = rank == 0 ? 0 : 5;
          const std::uint64_t count = rank == 0 ? 5 : 7;
          EXPECT_EQ(step.read<double>("v", Selection::box({first, 0}, {count, 5})),
                    std::vector<double>(all.begin() + static_cast<long>(first) * 5,
                                        all.begin() + static_cast<long>(first + count) * 5));
        }
      });
}

TEST_P(DataScenario, several_blocks_and_empty_contributions) {
  cohorts(
      3, 1,
      [](Writer& writer, int rank) {
        const auto v = writer.define<std::int64_t>("v", {8});
        for (int t = 0; t < 3; ++t) {
          auto step = writer.begin_step();
          const auto all = numbered<std::int64_t>(8);
          if (rank == 0)
            for (std::uint64_t i = 0; i < 4; ++i) step.put(v, {{i * 2}, {1}}, all.data() + i * 2);
          if (rank == 1) step.put(v, {{4}, {0}}, all.data());
          if (rank == 2)
            for (std::uint64_t i = 4; i-- > 0;) step.put(v, {{i * 2 + 1}, {1}}, all.data() + i * 2 + 1);
          step.end();
        }
      },
      [](Reader& reader, int) {
        for (int t = 0; t < 3; ++t) {
          auto step = reader.begin_step();
          EXPECT_EQ(step.variable("v").blocks, 9u);
          EXPECT_EQ(step.read<std::int64_t>("v"), numbered<std::int64_t>(8));
          EXPECT_TRUE(step.read<std::int64_t>("v", Selection::block(4)).empty());
          EXPECT_EQ(step.read<std::int64_t>("v", Selection::block(5)), std::vector<std::int64_t>{7});
        }
      });
}

TEST_P(DataScenario, values) {
  cohorts(
      2, 2,
      [](Writer& writer, int rank) {
        const auto time = writer.define_value<double>("time");
        const auto load = writer.define_value<std::int32_t>("load", Kind::local_value);
        const auto label = writer.define_value<std::string>("label");
        const auto host = writer.define_value<std::string>("host", Kind::local_value);
        for (int t = 0; t < 4; ++t) {
          auto step = writer.begin_step();
          if (rank == 0) step.put(time, 0.5 * t);
          if (rank == 0) step.put(label, std::string("step ") + std::string(static_cast<std::size_t>(t * 100), 'x'));
          step.put(load, 10 * rank + t);
          step.put(host, "rank" + std::to_string(rank));
          step.end();
        }
      },
      [](Reader& reader, int) {
        for (int t = 0; t < 4; ++t) {
          auto step = reader.begin_step();
          EXPECT_EQ(step.read_value<double>("time"), 0.5 * t);
          EXPECT_EQ(step.read<std::int32_t>("load"), (std::vector<std::int32_t>{t, 10 + t}));
          EXPECT_EQ(step.read_strings(step.variable("label").id).at(0).size(), 5 + 100 * static_cast<std::size_t>(t));
          EXPECT_EQ(step.read_strings(step.variable("host").id), (std::vector<std::string>{"rank0", "rank1"}));
        }
      });
}

TEST_P(DataScenario, local_arrays) {
  cohorts(
      3, 1,
      [](Writer& writer, int rank) {
        const auto particles = writer.define_local<float>("particles");
        for (std::uint64_t t = 0; t < 3; ++t) {
          auto step = writer.begin_step();
          const auto n = 2 + static_cast<std::uint64_t>(rank) + t;
          step.put(particles, {{0, 0}, {n, 3}}, numbered<float>(n * 3, static_cast<std::uint64_t>(rank)).data());
          step.end();
        }
      },
      [](Reader& reader, int) {
        for (std::uint64_t t = 0; t < 3; ++t) {
          auto step = reader.begin_step();
          for (std::uint64_t rank = 0; rank < 3; ++rank) {
            const auto n = 2 + rank + t;
            EXPECT_EQ(step.blocks(step.variable("particles").id).at(rank).box.count, (Dims{n, 3}));
            EXPECT_EQ(step.read<float>("particles", Selection::block(rank)), numbered<float>(n * 3, rank));
          }
        }
      });
}

TEST_P(DataScenario, attributes) {
  pair(
      [](Writer& writer) {
        writer.put_attribute("program", Attribute::of("heat"));
        writer.put_attribute("dims", Attribute::of(std::vector<std::string>{"z", "", "a long name with \"quotes\""}));
        const auto v = writer.define<double>("T", {1});
        for (int t = 0; t < 4; ++t) {
          auto step = writer.begin_step();
          step.put(v, {{0}, {1}}, numbered(1).data());
          step.put_attribute("time", 0.1 * t);
          const std::vector<std::int16_t> growing(static_cast<std::size_t>(t), 7);
          step.put_attribute("growing", Attribute::of(std::span<const std::int16_t>(growing)));
          if (t == 1) step.put_attribute("T/units", "K");
          const std::complex<float> z(1, -1);
          step.put_attribute("z", z);
          step.put_attribute("flag", true);
          step.end();
        }
      },
      [](Reader& reader) {
        for (int t = 0; t < 4; ++t) {
          auto step = reader.begin_step();
          EXPECT_EQ(step.attribute("program")->as<std::string>(), "heat");
          EXPECT_EQ(step.attribute("dims")->strings,
                    (std::vector<std::string>{"z", "", "a long name with \"quotes\""}));
          EXPECT_TRUE(step.attribute("dims")->is_array);
          EXPECT_DOUBLE_EQ(step.attribute("time")->as<double>(), 0.1 * t);
          EXPECT_EQ(step.attribute("growing")->size(), static_cast<std::size_t>(t));
          EXPECT_EQ(step.attribute("T/units").has_value(), t >= 1);
          EXPECT_EQ(step.attribute("z")->as<std::complex<float>>(), std::complex<float>(1, -1));
          EXPECT_TRUE(step.attribute("flag")->as<bool>());
          EXPECT_FALSE(step.attribute("nothing").has_value());
          EXPECT_THAT(step.attribute_names(), testing::Contains("growing"));
        }
      });
}

TEST_P(DataScenario, min_max) {
  cohorts(
      2, 1,
      [](Writer& writer, int rank) {
        const auto v = writer.define<double>("v", {6}, {.min_max = true});
        const auto plain = writer.define<double>("plain", {6});
        for (int t = 0; t < 2; ++t) {
          auto step = writer.begin_step();
          const double low[] = {3.0 + t, -1, std::nan("")};
          const double high[] = {8, 9.5, 7};
          step.put(v, {{3 * static_cast<std::uint64_t>(rank)}, {3}}, rank == 0 ? low : high);
          step.put(plain, {{3 * static_cast<std::uint64_t>(rank)}, {3}}, low);
          step.end();
        }
      },
      [](Reader& reader, int) {
        for (int t = 0; t < 2; ++t) {
          auto step = reader.begin_step();
          const auto id = step.variable("v").id;
          EXPECT_EQ(step.min_max(id)->as<double>(), (std::pair<double, double>(-1, 9.5)));
          EXPECT_EQ(step.min_max(id, 1)->as<double>(), (std::pair<double, double>(7, 9.5)));
          EXPECT_FALSE(step.min_max(step.variable("plain").id).has_value());
        }
      });
}

TEST_P(DataScenario, row_and_column_major) {
  pair(
      [](Writer& writer) {
        const auto v = writer.define<std::int32_t>("v", {2, 3}, {.order = Order::column});
        auto step = writer.begin_step();
        const std::int32_t columns[] = {0, 10, 1, 11, 2, 12};  // element (i, j) is 10 i + j
        step.put(v, whole({2, 3}), columns);
        step.end();
      },
      [](Reader& reader) {
        auto step = reader.begin_step();
        EXPECT_EQ(step.variable("v").order, Order::column);
        EXPECT_EQ(step.read<std::int32_t>("v"), (std::vector<std::int32_t>{0, 1, 2, 10, 11, 12}));
        std::vector<std::int32_t> columns(6);
        step.get(step.variable("v").id, Selection::all(), columns.data(), Order::column);
        step.wait();
        EXPECT_EQ(columns, (std::vector<std::int32_t>{0, 10, 1, 11, 2, 12}));
      });
}

TEST_P(DataScenario, put_span_lend_and_strided_put) {
  pair(
      [](Writer& writer) {
        const auto filled = writer.define<double>("filled", {1000});
        const auto lent = writer.define<double>("lent", {1000});
        const auto strided = writer.define<double>("strided", {3});
        const auto inside = writer.define<double>("inside", {2, 3});
        for (std::uint64_t t = 0; t < 5; ++t) {
          auto step = writer.begin_step();
          auto span = step.put_span(filled, {{0}, {1000}});
          ASSERT_EQ(span.size(), 1000u);
          EXPECT_EQ(reinterpret_cast<std::uintptr_t>(span.data()) % 64, 0u);
          auto array = numbered(1000, t + 1);
          step.lend(lent, {{0}, {1000}}, array.data());
          array[0] = -1;  // still ours to change until end
          for (std::uint64_t i = 0; i < 1000; ++i) span[i] = static_cast<double>(i + 1000 * t);
          const double backwards[] = {3, 0, 2, 0, 1, 0};
          const std::int64_t stride[] = {-16};
          step.put(strided.id, {{0}, {3}}, backwards + 4, stride);
          std::array<double, 20> halos{};  // 4 x 5, of which the inside is lent
          const std::int64_t rows[] = {40, 8};
          step.lend(inside, {{0, 0}, {2, 3}}, halos.data() + 6, rows);
          for (std::size_t i = 0; i < halos.size(); ++i) halos[i] = static_cast<double>(i + t);
          step.end();
        }
      },
      [](Reader& reader) {
        for (std::uint64_t t = 0; t < 5; ++t) {
          auto step = reader.begin_step();
          EXPECT_EQ(step.read<double>("filled"), numbered(1000, t));
          auto expected = numbered(1000, t + 1);
          expected[0] = -1;
          EXPECT_EQ(step.read<double>("lent"), expected);
          EXPECT_EQ(step.read<double>("strided"), (std::vector<double>{1, 2, 3}));
          std::vector<double> inner{6, 7, 8, 11, 12, 13};
          for (auto& value : inner) value += static_cast<double>(t);
          EXPECT_EQ(step.read<double>("inside"), inner);
        }
      });
}

TEST_P(DataScenario, views) {
  std::vector<View> kept;
  pair(
      [](Writer& writer) {
        const auto v = writer.define<double>("v", {4, 3});
        for (std::uint64_t t = 0; t < 4; ++t) {
          auto step = writer.begin_step();
          const auto all = numbered(12, t);
          step.put(v, {{0, 0}, {2, 3}}, all.data());
          step.put(v, {{2, 0}, {2, 3}}, all.data() + 6);
          step.end();
        }
      },
      [&](Reader& reader) {
        for (std::uint64_t t = 0; t < 4; ++t) {
          auto step = reader.begin_step();
          const auto views = step.view(step.variable("v").id);
          ASSERT_EQ(views.size(), 2u);
          EXPECT_EQ(views[1].box(), (Box{{2, 0}, {2, 3}}));
          EXPECT_EQ(views[1].as<double>()[0], 6.0 + 1000.0 * static_cast<double>(t));
          const auto part = step.view(step.variable("v").id, Selection::box({1, 1}, {1, 2}));
          ASSERT_EQ(part.size(), 1u);
          EXPECT_EQ(part[0].as<double>()[0], 4.0 + 1000.0 * static_cast<double>(t));
          if (t < 2) kept.push_back(views[0]);
        }
        reader.close();
        EXPECT_EQ(kept[1].as<double>()[5], 1005.0);
        kept.clear();  // the writer's close waits for this
      });
}

TEST_P(DataScenario, selections) {
  pair(
      [](Writer& writer) {
        const auto v = writer.define<std::int32_t>("v", {4, 6});
        for (int t = 0; t < 2; ++t) {
          auto step = writer.begin_step();
          const auto all = numbered<std::int32_t>(24);
          std::int32_t halves[2][12];
          for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 6; ++j) halves[j / 3][i * 3 + j % 3] = all[static_cast<std::size_t>(i * 6 + j)];
          step.put(v, {{0, 0}, {4, 3}}, halves[0]);
          step.put(v, {{0, 3}, {4, 3}}, halves[1]);
          step.end();
        }
      },
      [](Reader& reader) {
        for (int t = 0; t < 2; ++t) {
          auto step = reader.begin_step();
          EXPECT_EQ(step.read<std::int32_t>("v", Selection::box({1, 2}, {2, 2})),
                    (std::vector<std::int32_t>{8, 9, 14, 15}));
          EXPECT_EQ(step.read<std::int32_t>("v", Selection::strided({0, 1}, {2, 3}, {3, 2})),
                    (std::vector<std::int32_t>{1, 3, 5, 19, 21, 23}));
          EXPECT_EQ(step.read<std::int32_t>("v", Selection::block(1)).front(), 3);
          EXPECT_EQ(step.read<std::int32_t>("v", Selection::points({3, 5, 0, 0, 1, 3, 0, 0}, 2)),
                    (std::vector<std::int32_t>{23, 0, 9, 0}));
          EXPECT_EQ(code_of([&] {
                      step.read<std::int32_t>("v", Selection::box({1, 2}, {2, 5}));
                    }),
                    Errc::invalid_argument);
          EXPECT_EQ(code_of([&] { step.read<std::int32_t>("w"); }), Errc::not_found);
        }
        EXPECT_GT(reader.statistics().plans_reused, 0u);
      });
}

TEST_P(DataScenario, overlaps_and_holes) {
  pair(
      [](Writer& writer) {
        const auto v = writer.define<std::int32_t>("v", {6});
        auto step = writer.begin_step();
        const std::int32_t first[] = {1, 1, 1}, second[] = {2, 2};
        step.put(v, {{0}, {3}}, first);
        step.put(v, {{2}, {2}}, second);
        step.end();
      },
      [](Reader& reader) {
        auto step = reader.begin_step();
        std::vector<std::int32_t> out(6, -9);
        step.get("v", Selection::all(), out.data());
        step.wait();
        EXPECT_EQ(out, (std::vector<std::int32_t>{1, 1, 2, 2, -9, -9}));
      });
}

// Every decomposition of a 3-D array over M x N ranks, in all three directions.
TEST_P(DataScenario, redistribution_m_to_n) {
  const std::vector<std::pair<int, int>> shapes{{1, 1}, {2, 1}, {1, 2}, {3, 5}, {5, 3}};
  constexpr std::uint64_t n = 15;
  for (const auto& [m, r] : shapes) {
    cohorts(
        m, r,
        [m = m](Writer& writer, int rank) {
          const auto v = writer.define<double>("v", {n, n, n});
          const auto low = n * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(m);
          const auto high = n * static_cast<std::uint64_t>(rank + 1) / static_cast<std::uint64_t>(m);
          for (std::uint64_t t = 0; t < 4; ++t) {
            auto step = writer.begin_step();
            step.put(v, {{low, 0, 0}, {high - low, n, n}}, numbered(n * n * n, t).data() + low * n * n);
            step.end();
          }
        },
        [r = r](Reader& reader, int rank) {
          const auto low = n * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(r);
          const auto high = n * static_cast<std::uint64_t>(rank + 1) / static_cast<std::uint64_t>(r);
          for (std::uint64_t t = 0; t < 4; ++t) {
            auto step = reader.begin_step();
            const auto got = step.read<double>("v", Selection::box({0, 0, low}, {n, n, high - low}));
            bool same = true;
            for (std::uint64_t i = 0, at = 0; i < n * n; ++i)
              for (std::uint64_t k = low; k < high; ++k, ++at)
                same &= got[at] == static_cast<double>(i * n + k + 1000 * t);
            EXPECT_TRUE(same) << "step " << t << " rank " << rank;
          }
        });
  }
}

}  // namespace
}  // namespace penstock
