// Elements in the caller's memory: structures, and layouts of plug-ins.
#include <gtest/gtest.h>

#include <cstring>

#include "space/server/space_test_support.hpp"

namespace penstock {
namespace {

struct Particle {
  double x;
  std::int8_t id;
  float mass;
};
const std::vector<ArrayField> particle_fields{{"x", DType::float64}, {"id", DType::int8}, {"mass", DType::float32}};
const ArrayMemory particles_in_rows{.fields = {{"x", DType::none, offsetof(Particle, x)},
                                               {"id", DType::none, offsetof(Particle, id)},
                                               {"mass", DType::none, offsetof(Particle, mass)}},
                                    .structure_bytes = sizeof(Particle)};

TEST_F(SpaceTest, StructuresAreGotAsStructuresAndAsArrays) {
  start(2);
  auto s = space();
  const std::uint64_t count = 300'000;  // in several parts
  const auto info = s.define("p", particle_fields, {count});
  EXPECT_EQ(info.dtype, DType::none);
  EXPECT_EQ(s.info("p").fields, particle_fields);
  EXPECT_GT(info.parts, 1u);
  std::vector<Particle> particles(count);
  for (std::uint64_t i = 0; i < count; ++i)
    particles[i] = {0.5 * static_cast<double>(i), static_cast<std::int8_t>(i), -static_cast<float>(i)};
  s.put("p", 1, {{0}, {1000}}, particles.data(), particles_in_rows);
  std::vector<double> x;
  std::vector<std::int8_t> id;
  std::vector<double> mass;  // put as another type
  for (const auto& one : std::span(particles).subspan(1000)) {
    x.push_back(one.x);
    id.push_back(one.id);
    mass.push_back(one.mass);
  }
  const auto from_x = [&](const auto& other) {
    return reinterpret_cast<std::intptr_t>(other.data()) - reinterpret_cast<std::intptr_t>(x.data());
  };
  ArrayMemory arrays;
  arrays.fields = {{"mass", DType::float64, from_x(mass)}, {"x"}, {"id", DType::none, from_x(id)}};
  s.put("p", 1, {{1000}, {count - 1000}}, x.data(), arrays);

  std::vector<Particle> found(count);
  s.get("p", 1, {{0}, {count}}, found.data(), particles_in_rows);
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(found[i].x, particles[i].x) << i;
    ASSERT_EQ(found[i].id, particles[i].id) << i;
    ASSERT_EQ(found[i].mass, particles[i].mass) << i;
  }
  std::vector<std::int64_t> ids(500);
  ArrayMemory one;
  one.fields = {{"id", DType::int64}};
  s.get("p", 1, {{900}, {500}}, ids.data(), one);
  for (std::uint64_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], particles[900 + i].id);
  std::vector<std::byte> packed(10 * 13);  // as they are kept
  s.get("p", 1, {{7}, {10}}, packed.data());
  EXPECT_EQ(std::memcmp(packed.data() + 13, &particles[8].x, 8), 0);
  EXPECT_EQ(static_cast<std::int8_t>(packed[13 + 8]), particles[8].id);

  s.put("p", 1, {{0}, {1000}}, particles.data(), particles_in_rows);  // the same
  particles[10].id = -1;
  EXPECT_EQ(code_of([&] { s.put("p", 1, {{0}, {1000}}, particles.data(), particles_in_rows); }), Errc::already_exists);
  one.fields[0].dtype = DType::uint8;
  one.check = ConversionCheck::range;
  EXPECT_NE(message_of([&] {
              s.get("p", 1, {{100}, {200}}, ids.data(), one);
            }).find("(128) of field 'id' is -128"),
            std::string::npos);
  EXPECT_EQ(s.explain("p", 1, {{0}, {10}}, one).size(), 1u);
}

TEST_F(SpaceTest, WhatIsWrongWithStructuresIsSaid) {
  start(1);
  auto s = space();
  s.define("p", particle_fields, {8});
  s.define("p", particle_fields, {8});
  const auto of_fields = [&](std::vector<ArrayField> fields, ArrayOptions options = {}) {
    return code_of([&] { s.define("q", std::move(fields), {8}, options); });
  };
  EXPECT_EQ(of_fields({}), Errc::invalid_argument);
  EXPECT_EQ(of_fields({{"", DType::int8}}), Errc::invalid_argument);
  EXPECT_EQ(of_fields({{"x", DType::string}}), Errc::invalid_argument);
  EXPECT_EQ(of_fields({{"x", DType::int8}, {"x", DType::int8}}), Errc::invalid_argument);
  EXPECT_EQ(of_fields({{std::string(65, 'x'), DType::int8}}), Errc::invalid_argument);
  std::vector<ArrayField> many;
  for (int i = 0; i < 65; ++i) many.push_back({std::to_string(i), DType::int8});
  EXPECT_EQ(of_fields(many), Errc::invalid_argument);
  EXPECT_EQ(of_fields({{"x", DType::int8}}, {.convert = ConvertAt::on_request}), Errc::unsupported);
  EXPECT_NE(message_of([&] {
              s.define("p", {{"x", DType::float64}}, {8});
            }).find("{x: float64, id: int8, mass: float32}"),
            std::string::npos);
  EXPECT_EQ(code_of([&] { s.define("p", DType::float64, {8}); }), Errc::already_exists);

  std::vector<Particle> particles(8);
  const auto got = [&](ArrayMemory memory) {
    return message_of([&] { s.get("p", 1, {{0}, {8}}, particles.data(), memory); });
  };
  EXPECT_NE(got({.dtype = DType::float64}).find("each of their fields has a type"), std::string::npos);
  EXPECT_NE(got({.fields = {{"idd"}}}).find("id"), std::string::npos);
  EXPECT_NE(got({.fields = {{"id"}, {"id"}}}).find("twice"), std::string::npos);
  EXPECT_NE(got({.fields = {{"x"}, {"id"}}, .structure_bytes = 16}).find("overlaps"), std::string::npos);
  EXPECT_NE(got({.fields = {{"x", DType::none, -8}}, .structure_bytes = 16}).find("end of the structure"),
            std::string::npos);
  EXPECT_NE(got({.fields = {{"x", DType::complex64}}}).find("complex64"), std::string::npos);
  const auto put = [&](ArrayMemory memory) {
    return message_of([&] { s.put("p", 1, {{0}, {8}}, particles.data(), memory); });
  };
  EXPECT_NE(put({.fields = {{"x"}, {"id", DType::none, 64}}}).find("'mass' is missing"), std::string::npos);
  EXPECT_TRUE(s.versions("p").empty());
  s.define("T", DType::float64, {8});
  EXPECT_EQ(code_of([&] { s.get("T", 1, {{0}, {8}}, particles.data(), particles_in_rows); }), Errc::invalid_argument);
}

// The index of each element of a box in tiles, in the order in which they lie.
std::vector<std::size_t> in_tiles(const Dims& count, std::uint64_t edge) {
  std::vector<std::pair<std::vector<std::uint64_t>, std::size_t>> keys;
  for (std::size_t i = 0; i < element_count(count); ++i) {
    std::vector<std::uint64_t> tile, within;
    std::size_t rest = i;
    for (std::size_t d = count.size(); d-- > 0; rest /= count[d]) {
      tile.insert(tile.begin(), rest % count[d] / edge);
      within.insert(within.begin(), rest % count[d] % edge);
    }
    tile.insert(tile.end(), within.begin(), within.end());
    keys.emplace_back(tile, i);
  }
  std::ranges::sort(keys);
  std::vector<std::size_t> order;
  for (const auto& [key, i] : keys) order.push_back(i);
  return order;
}

TEST_F(SpaceTest, APlugInSuppliesLayouts) {
  const std::vector<std::string> both{"tiled16", "tiled4"};
  EXPECT_EQ(load_layouts(LAYOUT_TILED), both);
  EXPECT_EQ(load_layouts(LAYOUT_TILED), both);  // again
  EXPECT_EQ(layout_bytes("tiled4", {5, 6, 7}, 8), 5u * 6 * 7 * 8);
  EXPECT_EQ(layout_bytes("tiled4", {5, 0}, 8), 0u);
  start(2);
  auto s = space();
  const Dims shape{40, 21, 35};
  s.define("T", DType::float64, shape);
  const auto values = numbers(element_count(shape));
  ArrayMemory tiles;
  tiles.layout = "tiled4";
  {
    std::vector<double> lower;
    for (const auto i : in_tiles({20, 21, 35}, 4)) lower.push_back(values[i]);
    s.put("T", 1, {{0, 0, 0}, {20, 21, 35}}, lower.data(), tiles);
    std::vector<std::int32_t> upper;  // converted, too
    for (const auto i : in_tiles({20, 21, 35}, 16))
      upper.push_back(static_cast<std::int32_t>(values[20 * 21 * 35 + i]));
    tiles.layout = "tiled16";
    tiles.dtype = DType::int32;
    auto put = s.start_put("T", 1, {{20, 0, 0}, {20, 21, 35}}, upper.data(), tiles);
    upper.assign(upper.size(), 0);  // rows are read
    put.wait();
  }
  std::vector<double> rows(values.size());
  s.get("T", 1, whole(shape), rows.data());
  EXPECT_EQ(rows, values);
  tiles.dtype = DType::float32;
  std::vector<float> found(33 * 17 * 18);
  s.get("T", 1, {{5, 3, 8}, {33, 17, 18}}, found.data(), tiles);
  const auto order = in_tiles({33, 17, 18}, 16);
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto i = order[k];
    const std::size_t at = ((5 + i / (17 * 18)) * 21 + 3 + i / 18 % 17) * 35 + 8 + i % 18;
    ASSERT_EQ(found[k], static_cast<float>(values[at])) << k;
  }

  s.define("p", particle_fields, {10});
  std::vector<Particle> particles(10);
  for (std::size_t i = 0; i < 10; ++i) particles[i] = {0.5 * static_cast<double>(i), static_cast<std::int8_t>(i), 0};
  s.put("p", 1, {{0}, {10}}, particles.data(), particles_in_rows);
  std::vector<std::byte> structures(layout_bytes("tiled4", {10}, 13)), plain(structures.size());
  ArrayMemory packed;
  s.get("p", 1, {{0}, {10}}, plain.data(), packed);
  packed.layout = "tiled4";
  s.get("p", 1, {{0}, {10}}, structures.data(), packed);
  EXPECT_EQ(structures, plain);  // tiles of one dimension are rows
}

TEST_F(SpaceTest, WhatIsWrongWithPlugInsIsSaid) {
  const auto loading = [](const char* path) { return message_of([&] { load_layouts(path); }); };
  EXPECT_NE(loading("no/such.so").find("no/such.so"), std::string::npos);
  EXPECT_EQ(code_of([] { load_layouts("no/such.so"); }), Errc::not_found);
  EXPECT_NE(loading(LAYOUTS_NONE).find("exports no function penstock_layouts"), std::string::npos);
  EXPECT_NE(loading(LAYOUTS_OTHER).find("version 2"), std::string::npos);
  EXPECT_NE(loading(LAYOUTS_INCOMPLETE).find("without a function"), std::string::npos);
  EXPECT_EQ(code_of([] { load_layouts(LAYOUTS_OTHER); }), Errc::unsupported);
  load_layouts(LAYOUT_TILED);
  EXPECT_EQ(code_of([] { load_layouts(LAYOUTS_SAME); }), Errc::already_exists);
  EXPECT_NE(message_of([] { layout_bytes("first", {4}, 8); }).find("'first'"), std::string::npos)
      << "of an object that was refused";
  load_layouts(LAYOUTS_FAILING);

  start(1);
  auto s = space();
  s.define("T", DType::float64, {4, 4});
  std::vector<double> values(16);
  ArrayMemory memory;
  memory.layout = "failing";
  const auto put = [&] { s.put("T", 1, whole({4, 4}), values.data(), memory); };
  EXPECT_NE(message_of(put).find("layout 'failing' of " LAYOUTS_FAILING ": it gave no reason"), std::string::npos);
  EXPECT_TRUE(s.versions("T").empty());
  s.put("T", 1, whole({4, 4}), values.data());
  const auto get = [&](const Box& box) { return message_of([&] { s.get("T", 1, box, values.data(), memory); }); };
  EXPECT_NE(get(whole({4, 4})).find(std::string(255, '!')), std::string::npos);
  EXPECT_NE(get(whole({3, 4})).find("only squares"), std::string::npos);
  EXPECT_EQ(get({{0, 0}, {0, 4}}), "");
  memory.layout = "tiled";
  EXPECT_NE(get(whole({4, 4})).find("tiled4"), std::string::npos) << "names the nearest";
  memory.layout = "tiled4";
  memory.order = Order::column;
  EXPECT_NE(get(whole({4, 4})).find("leaves no order"), std::string::npos);
}

}  // namespace
}  // namespace penstock
