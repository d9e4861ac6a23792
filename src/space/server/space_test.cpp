// Arrays in pools of real servers, through penstock::Space, against plain arrays in memory.
#include "penstock/space.hpp"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "model/array_conversion.hpp"
#include "model/box.hpp"
#include "space/block_key.hpp"
#include "space/names.hpp"
#include "space/server/space_test_support.hpp"

namespace penstock {
namespace {

TEST_F(SpaceTest, ABoxIsThereWhenItsElementsAre) {
  start(3);
  auto a = space();
  auto b = space();
  a.define("T", DType::float64, {64, 64, 64});
  EXPECT_EQ(b.info("T").shape, (Dims{64, 64, 64}));
  const auto half = numbers(32 * 64 * 64);
  a.put("T", 7, {{0, 0, 0}, {32, 64, 64}}, half.data());
  std::vector<double> out(16 * 64 * 64);
  b.get("T", 7, {{16, 0, 0}, {16, 64, 64}}, out.data());
  EXPECT_EQ(out, std::vector<double>(half.begin() + 16 * 64 * 64, half.end()));

  const auto why = message_of([&] { b.get("T", 7, {{31, 0, 0}, {2, 64, 64}}, out.data(), {}, Timeout(200)); });
  EXPECT_NE(why.find("[32, 33)"), std::string::npos) << why;
  std::thread later([&] { a.put("T", 7, {{32, 0, 0}, {32, 64, 64}}, half.data()); });
  b.get("T", 7, {{31, 0, 0}, {2, 64, 64}}, out.data());
  later.join();
  EXPECT_EQ(out[64 * 64 - 1], half.back());
  EXPECT_EQ(out[64 * 64], 0.0);
  EXPECT_EQ(a.versions("T"), std::vector<std::uint64_t>{7});
  EXPECT_EQ(a.latest("T"), 7u);
}

TEST_F(SpaceTest, ElementsAreWrittenOnce) {
  start(2);
  auto s = space();
  s.define("T", DType::float64, {100});
  const auto values = numbers(100);
  s.put("T", 1, {{10}, {30}}, values.data() + 10);
  s.put("T", 1, {{10}, {30}}, values.data() + 10);  // the same
  s.put("T", 1, {{0}, {60}}, values.data());        // the same, and more
  auto other = values;
  other[59] = -1;
  EXPECT_EQ(code_of([&] { s.put("T", 1, {{50}, {50}}, other.data() + 50); }), Errc::already_exists);
  s.put("T", 1, {{60}, {40}}, values.data() + 60);
  std::vector<double> out(100);
  s.get("T", 1, {{0}, {100}}, out.data());
  EXPECT_EQ(out, values);
  std::uint64_t elements = 0;
  for (const auto& block : s.blocks("T", 1)) elements += element_count(block.box.count);
  EXPECT_EQ(elements, 100u) << "each element is held once";
}

TEST_F(SpaceTest, WhatIsWrongIsSaid) {
  start(1);
  auto s = space();
  std::vector<double> out(8);
  EXPECT_EQ(code_of([&] { s.info("T"); }), Errc::not_found);
  EXPECT_NE(message_of([&] {
              s.get("T", 1, {{0}, {8}}, out.data(), {}, Timeout(50));
            }).find("not defined"),
            std::string::npos);
  s.define("T", DType::float64, {8});
  s.define("T", DType::float64, {8});
  EXPECT_EQ(code_of([&] { s.define("T", DType::float32, {8}); }), Errc::already_exists);
  EXPECT_EQ(code_of([&] { s.define("U", DType::string, {8}); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { s.define("U", DType::int8, {}); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { s.put("T", 1, {{4}, {5}}, out.data()); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { s.get("T", 1, {{0}, {8}}, out.data(), {DType::complex64}); }), Errc::unsupported);
  PoolOptions named = client();
  named.ns = "mine";
  EXPECT_EQ(code_of([&] { Space(context(), named); }), Errc::invalid_argument);
  PoolOptions raw = client();
  raw.ns = space::namespace_name;
  Pool pool(context(), raw);
  EXPECT_EQ(code_of([&] { pool.put({"row", "column"}, bytes_of("x")); }), Errc::invalid_argument);
}

TEST_F(SpaceTest, ADroppedVersionIsGone) {
  start(3);
  auto s = space();
  s.define("T", DType::int32, {256, 256});
  std::vector<std::int32_t> values(256 * 256, 3);
  for (std::uint64_t version : {1, 2}) s.put("T", version, whole({256, 256}), values.data());
  EXPECT_TRUE(s.drop("T", 1));
  EXPECT_FALSE(s.drop("T", 1));
  EXPECT_TRUE(s.blocks("T", 1).empty());
  EXPECT_EQ(s.versions("T"), std::vector<std::uint64_t>{2});
  EXPECT_EQ(code_of([&] { s.get("T", 1, {{0, 0}, {1, 1}}, values.data(), {}, Timeout(50)); }), Errc::timeout);
  std::thread drops([&] {
    auto other = space();
    EXPECT_TRUE(other.drop("T", 2));
  });
  auto reader = space();
  const auto gone = code_of([&] {
    for (;;) reader.get("T", 2, whole({256, 256}), values.data(), {}, Timeout(100));
  });
  EXPECT_TRUE(gone == Errc::timeout || gone == Errc::not_found) << "asked after the drop, or before";
  drops.join();
  // Another program's space does not know yet that the version is gone.
  EXPECT_EQ(code_of([&] { s.put("T", 2, {{0, 0}, {1, 1}}, values.data()); }), Errc::not_found);
  EXPECT_TRUE(s.drop("T"));
  EXPECT_FALSE(s.drop("T"));
  EXPECT_TRUE(s.list().empty());
}

TEST_F(SpaceTest, ASubscriptionGivesVersionsInOrder) {
  start(3);
  auto s = space();
  s.define("T", DType::float64, {64, 64, 64});
  const auto values = numbers(64 * 64 * 64);
  auto versions = s.subscribe("T", {{32, 0, 0}, {8, 64, 64}}, {.start = 1, .step = 2, .stop = 8});
  for (const std::uint64_t version : {0, 2, 5, 1}) s.put("T", version, whole({64, 64, 64}), values.data());
  EXPECT_EQ(versions.next(), 1u);
  EXPECT_EQ(versions.next(), 5u);
  EXPECT_NE(message_of([&] { versions.next(Timeout(50)); }).find("no version after 5, in steps of 2, began"),
            std::string::npos);
  std::thread later([&] { s.put("T", 7, whole({64, 64, 64}), values.data()); });
  EXPECT_EQ(versions.next(), 7u);
  later.join();
  EXPECT_EQ(versions.next(Timeout(0)), std::nullopt);
  EXPECT_EQ(versions.skipped(), 0u);
  EXPECT_EQ(code_of([&] { s.subscribe("T", {{60, 0, 0}, {8, 1, 1}}); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { s.subscribe("T", whole({64, 64, 64}), {.step = 0}); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { s.subscribe("U", {{0}, {1}}, {}, Timeout(50)); }), Errc::timeout);
  auto nothing = s.subscribe("T", {{0, 0, 0}, {0, 1, 1}});  // every version has it
  EXPECT_EQ(nothing.next(), 0u);
  EXPECT_EQ(nothing.next(), 1u);
}

TEST_F(SpaceTest, PutsOfTheSameElementsAtOnce) {
  start(3);
  space().define("T", DType::float64, {128, 96});
  const auto values = numbers(128 * 96);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      auto s = space();
      std::mt19937 random(static_cast<unsigned>(t));
      const std::vector<std::int64_t> strides{96 * 8, 8};
      for (int n = 0; n < 25; ++n) {
        Box box{{random() % 128, random() % 96}, {0, 0}};
        box.count = {1 + random() % (128 - box.start[0]), 1 + random() % (96 - box.start[1])};
        s.put("T", 1, box, values.data() + box.start[0] * 96 + box.start[1], {DType::none, Order::row, strides});
      }
      s.put("T", 1, whole({128, 96}), values.data());
    });
  for (auto& thread : threads) thread.join();
  std::vector<double> out(values.size());
  auto s = space();
  s.get("T", 1, whole({128, 96}), out.data());
  EXPECT_EQ(out, values);
  std::uint64_t elements = 0;
  for (const auto& block : s.blocks("T", 1)) elements += element_count(block.box.count);
  EXPECT_EQ(elements, values.size());
}

struct Total {
  std::uint64_t conversions = 0, converted_bytes = 0, given_bytes = 0, shared_bytes = 0, left_to_readers = 0,
                replica_bytes = 0;
  explicit Total(Space& s) {
    for (const auto& one : s.status()) {
      conversions += one.conversions;
      converted_bytes += one.converted_bytes;
      given_bytes += one.given_bytes;
      shared_bytes += one.shared_bytes;
      left_to_readers += one.left_to_readers;
      replica_bytes += one.replica_bytes;
    }
  }
};

const Dims cube{96, 80, 64};
constexpr std::uint64_t cube_bytes = 96 * 80 * 64 * 8;
const ArrayMemory columns{DType::none, Order::column, {}};

// The elements of a box in columns, as the plain array has them.
std::vector<double> in_columns(const std::vector<double>& values, const Box& box) {
  const auto layout = [](Order order, const Box& of) {
    return model::place(model::scalar_layout(DType::float64, model::dimensions_in(order, 3)), of);
  };
  std::vector<double> out(element_count(box.count));
  model::ArrayConversion(layout(Order::column, box), layout(Order::row, whole(cube)), box)
      .run(out.data(), values.data());
  return out;
}

TEST_F(SpaceTest, ReadersAtOnceShareEveryConversion) {
  start_settled(2);
  auto s = space();
  ArrayOptions options;
  options.convert = ConvertAt::on_request;
  s.define("T", DType::float64, cube, options);
  const auto values = numbers(96 * 80 * 64);
  for (std::uint64_t version : {1, 2}) s.put("T", version, whole(cube), values.data());
  const auto all_get = [&](std::uint64_t version, const std::function<Box(std::uint64_t)>& box_of) {
    std::vector<std::thread> readers;
    for (std::uint64_t reader = 0; reader < 8; ++reader)
      readers.emplace_back([&, reader] {
        auto mine = space();
        const auto box = box_of(reader);
        std::vector<double> out(element_count(box.count));
        mine.get("T", version, box, out.data(), columns);
        EXPECT_EQ(out, in_columns(values, box)) << "reader " << reader;
      });
    for (auto& reader : readers) reader.join();
  };
  all_get(1, [](std::uint64_t) { return whole(cube); });
  const Total same(s);
  EXPECT_EQ(same.converted_bytes, cube_bytes);
  EXPECT_EQ(same.given_bytes, 8 * cube_bytes);
  EXPECT_EQ(same.shared_bytes, 7 * cube_bytes);
  // Slabs that overlap: each but the last 24 rows high, 8 after the one before. Their union is rows 0 to 80.
  all_get(2, [](std::uint64_t reader) { return Box{{8 * reader, 0, 0}, {24, 80, 64}}; });
  const Total overlapping(s);
  EXPECT_EQ(overlapping.converted_bytes - same.converted_bytes, 80 * 80 * 64 * 8u);
  EXPECT_EQ(overlapping.left_to_readers, 0u);
  s.drop("T", 1);
  EXPECT_EQ(Total(s).replica_bytes, 80 * 80 * 64 * 8u) << "replicas go with their version";
  s.drop("T");
  EXPECT_EQ(Total(s).replica_bytes, 0u);
}

TEST_F(SpaceTest, ConvertsWhereTheArrayWasDefinedTo) {
  start(2);
  auto s = space();
  const auto values = numbers(96 * 80 * 64);
  const auto expected = in_columns(values, whole(cube));
  std::vector<double> out(expected.size());
  const auto get = [&](const std::string& name, ConvertAt convert) {
    const Total before(s);
    s.define(name, DType::float64, cube, {convert, {{DType::none, Order::column}}});
    s.put(name, 1, whole(cube), values.data());
    for (int n = 0; n < 2; ++n) {
      std::fill(out.begin(), out.end(), -1.0);
      s.get(name, 1, whole(cube), out.data(), columns);
      EXPECT_EQ(out, expected) << name;
    }
    s.get(name, 1, whole(cube), out.data());  // as the array has it: nothing is converted
    return Total(s).converted_bytes - before.converted_bytes;
  };
  EXPECT_EQ(get("reader", ConvertAt::at_reader), 0u);
  EXPECT_EQ(get("request", ConvertAt::on_request), cube_bytes);
  EXPECT_EQ(get("advance", ConvertAt::in_advance), cube_bytes);
  EXPECT_EQ(get("auto", ConvertAt::automatic), 0u) << "one reader on this machine converts for itself";
  EXPECT_EQ(code_of([&] {
              s.define("auto", DType::float64, cube, {ConvertAt::on_request, {}});
            }),
            Errc::already_exists);
  EXPECT_EQ(s.define("request", DType::float64, cube).options.convert, ConvertAt::on_request);
  for (const auto& line : s.explain("auto", 1, whole(cube), columns))
    EXPECT_NE(line.find("expected request"), std::string::npos) << line;
  for (const auto& line : s.explain("request", 1, whole(cube), columns))
    EXPECT_NE(line.find("converted already"), std::string::npos) << line;
}

// Several readers of each version: the server converts from the second version on, and not for a layout that nobody wants.
TEST_F(SpaceTest, AutomaticLearnsFromTheVersionsBefore) {
  start(1);
  auto s = space();
  s.define("T", DType::float64, cube);
  const auto values = numbers(96 * 80 * 64);
  const auto expected = in_columns(values, whole(cube));
  std::vector<double> out(expected.size());
  for (std::uint64_t version = 0; version < 6; ++version) {
    s.put("T", version, whole(cube), values.data());
    for (int reader = 0; reader < 16; ++reader) {
      s.get("T", version, whole(cube), out.data(), columns);
      ASSERT_EQ(out, expected);
    }
  }
  const Total total(s);
  EXPECT_GT(total.conversions, 0u);
  EXPECT_LE(total.converted_bytes, 5 * cube_bytes);
}

TEST_F(SpaceTest, ReplicasMakeWayForObjects) {
  servers.clear();
  auto o = options(0, 1, 1);
  o.server.store.memory_bytes = 24 << 20;
  add(o);
  start_one(servers.back());
  auto s = space();
  s.define("T", DType::float64, cube, {ConvertAt::on_request, {}});
  const auto values = numbers(96 * 80 * 64);
  const auto expected = in_columns(values, whole(cube));
  std::vector<double> out(expected.size());
  s.put("T", 0, whole(cube), values.data());
  s.get("T", 0, whole(cube), out.data(), columns);
  EXPECT_EQ(out, expected);
  EXPECT_EQ(s.status().at(0).replica_bytes, cube_bytes);
  // Versions fill the memory: the replica goes, and no put fails before they alone do.
  std::uint64_t version = 1;
  const auto fill = [&] {
    for (;; ++version) s.put("T", version, whole(cube), values.data(), {}, Timeout(300));
  };
  EXPECT_EQ(code_of(fill), Errc::pool_full);
  EXPECT_EQ(s.status().at(0).replica_bytes, 0u);
  EXPECT_GT(s.status().at(0).evictions, 0u);
  s.get("T", 0, whole(cube), out.data(), columns);
  EXPECT_EQ(out, expected) << "no room for a replica: the reader converts";
}

// Replicas of some of the elements fill the budget, and so does the rest of what is asked for then.
TEST_F(SpaceTest, RequestsEndWhereTheBudgetIsSmall) {
  servers.clear();
  auto o = options(0, 1, 1);
  o.extend = [](auto core) { return space::extend_server(std::move(core), std::uint64_t{1} << 20); };
  add(o);
  start_one(servers.back());
  auto s = space();
  s.define("T", DType::float64, {96, 1024}, {ConvertAt::on_request, {}});  // 768 KiB
  const auto values = numbers(96 * 1024);
  std::vector<double> out(values.size());
  const auto turned = [&](const Box& box) {
    const auto rows = box.count[0];
    for (std::uint64_t i = 0; i < rows; ++i)
      for (std::uint64_t k = 0; k < 1024; ++k)
        if (out[k * rows + i] != values[(box.start[0] + i) * 1024 + k]) return false;
    return true;
  };
  for (std::uint64_t version = 0; version < 20; ++version) {
    s.put("T", version, whole({96, 1024}), values.data());
    for (const auto& box : {Box{{0, 0}, {40, 1024}}, Box{{60, 0}, {30, 1024}}, whole({96, 1024})}) {
      s.get("T", version, box, out.data(), columns);
      ASSERT_TRUE(turned(box)) << version;
    }
  }
  const auto status = s.status().at(0);
  EXPECT_LE(status.replica_peak, status.replica_limit);
  EXPECT_EQ(status.converted_bytes, 20 * 96 * 1024 * 8u) << "the union of what was asked for, once";
  // What does not fit is left to the reader, without a try.
  s.define("U", DType::float32, {190, 1024}, {ConvertAt::on_request, {}});
  ASSERT_EQ(s.info("U").parts, 1u);
  const std::vector<float> narrow(190 * 1024, 0.5f);
  s.put("U", 0, whole({190, 1024}), narrow.data());
  out.resize(narrow.size());
  s.get("U", 0, whole({190, 1024}), out.data(), {DType::float64, Order::column, {}});  // 1.5 MiB
  EXPECT_EQ(out.back(), 0.5);
  EXPECT_EQ(s.status().at(0).conversions, status.conversions);
  EXPECT_EQ(s.status().at(0).left_to_readers, status.left_to_readers + 1);
}

TEST_F(SpaceTest, PartsAreConvertedInAdvanceOnce) {
  start(1);
  auto s = space();
  ArrayOptions options{ConvertAt::in_advance, {{DType::none, Order::column}, {DType::float32, Order::row}}};
  s.define("T", DType::float64, cube, options);
  const auto values = numbers(96 * 80 * 64);
  const std::vector<std::int64_t> strides{80 * 64 * 8, 64 * 8, 8};
  for (std::uint64_t x = 0; x < 96; x += 8)
    for (std::uint64_t y = 0; y < 80; y += 8) {
      const auto* data = values.data() + (x * 80 + y) * 64;
      s.put("T", 1, {{x, y, 0}, {8, 8, 64}}, data, {DType::none, Order::row, strides});
    }
  std::vector<double> out(values.size());
  s.get("T", 1, whole(cube), out.data(), columns);
  EXPECT_EQ(out, in_columns(values, whole(cube)));
  std::vector<float> narrow(values.size());
  s.get("T", 1, whole(cube), narrow.data(), {DType::float32, Order::row, {}});
  EXPECT_EQ(narrow.back(), static_cast<float>(values.back()));
  const Total total(s);
  EXPECT_EQ(total.converted_bytes, cube_bytes + cube_bytes / 2);
  EXPECT_EQ(total.conversions, 2 * s.info("T").parts) << "120 blocks";
}

TEST_F(SpaceTest, SteadyPutsDoNotHoldBackConversionsInAdvance) {
  start(1);
  auto s = space();
  s.define("T", DType::float64, cube, {ConvertAt::in_advance, {{DType::none, Order::column}}});
  s.define("small", DType::float64, {64});
  s.put("T", 1, whole(cube), numbers(96 * 80 * 64).data());
  const auto little = numbers(64);
  const base::Deadline deadline(patience);
  for (std::uint64_t version = 0; Total(s).converted_bytes < cube_bytes && !deadline.passed(); ++version)
    for (std::uint64_t i = 0; i < 20; ++i) s.put("small", 20 * version + i, {{0}, {64}}, little.data());
  EXPECT_EQ(Total(s).converted_bytes, cube_bytes);
}

// A part of which a plane is wanted is not converted whole.
TEST_F(SpaceTest, AutomaticConvertsNoMoreThanIsWanted) {
  start(1);
  auto s = space();
  s.define("T", DType::float64, cube);
  const auto values = numbers(96 * 80 * 64);
  const Box plane{{0, 40, 0}, {96, 1, 64}};
  std::vector<double> out(96 * 64);
  for (std::uint64_t version = 0; version < 8; ++version) {
    s.put("T", version, whole(cube), values.data());
    for (int reader = 0; reader < 16; ++reader) {
      s.get("T", version, plane, out.data(), columns);
      ASSERT_EQ(out, in_columns(values, plane));
    }
  }
  EXPECT_LE(Total(s).converted_bytes, 8 * out.size() * sizeof(double));
}

// Random shapes, cuts, orders and types; servers come and die meanwhile (two copies of everything).
TEST_F(SpaceTest, GetsAreWhatAPlainArrayGives) {
  start(3, 2);
  auto s = space();
  std::mt19937_64 random(5);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  constexpr DType types[] = {DType::float64, DType::float32, DType::int32, DType::int64, DType::uint16};
  for (int round = 0; round < 30; ++round) {
    if (round == 10) add(options(3, 3, 2)), start_one(servers.back());
    if (round == 20) {
      servers[1].server->stop(Timeout(2000));
      servers.erase(servers.begin() + 1);
    }
    Dims shape = Dims::filled(1 + below(4), 1);
    for (auto& n : shape) n = 1 + below(shape.size() < 3 ? 60 : 14);
    const auto name = "a" + std::to_string(round);
    const DType type = types[below(5)];
    ArrayOptions options{static_cast<ConvertAt>(round % 4), {{DType::float64, Order::column}}};
    s.define(name, type, shape, options);
    const auto count = element_count(shape);
    std::vector<double> values(count);
    for (auto& value : values) value = static_cast<double>(below(60'000));
    const auto layout = [](DType dtype, Order order, const Box& box) {
      return model::place(model::scalar_layout(dtype, model::dimensions_in(order, box.start.size())), box);
    };
    const auto all = layout(DType::float64, Order::row, whole(shape));
    // Cut into slabs along one dimension, each put in an order and a type of its own.
    const auto along = below(shape.size());
    for (std::uint64_t from = 0; from < shape[along];) {
      Box box = whole(shape);
      box.start[along] = from;
      box.count[along] = 1 + below(shape[along] - from);
      from += box.count[along];
      const auto order = below(2) == 0 ? Order::row : Order::column;
      const DType given = types[below(4)];
      const auto mine = layout(given, order, box);
      std::vector<std::byte> bytes(mine.bytes);
      model::ArrayConversion(mine, all, box).run(bytes.data(), values.data());
      s.put(name, 3, box, bytes.data(), {given, order, {}});
    }
    for (int get = 0; get < 10; ++get) {
      Box box = whole(shape);
      for (std::size_t d = 0; d < shape.size(); ++d) {
        box.start[d] = below(shape[d]);
        box.count[d] = 1 + below(shape[d] - box.start[d]);
      }
      const auto order = below(2) == 0 ? Order::row : Order::column;
      const auto part = layout(DType::float64, order, box);
      std::vector<double> expected(element_count(box.count)), out(expected.size());
      model::ArrayConversion(part, all, box).run(expected.data(), values.data());
      s.get(name, 3, box, out.data(), {DType::float64, order, {}});
      ASSERT_EQ(out, expected) << name << " " << model::to_string(box);
    }
  }
}

}  // namespace
}  // namespace penstock
