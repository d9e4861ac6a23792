#include "model/array_conversion.hpp"

#include <complex>
#include <cstring>
#include <functional>
#include <thread>

#include "model/array_test_support.hpp"
#include "model/box.hpp"
#include "model/convert_test_support.hpp"
#include "penstock/error.hpp"

namespace penstock::model {
namespace {

using testing::HasSubstr;

// Memory of a placed array, with room around it that nothing may touch.
struct Memory {
  PlacedArray array;
  std::vector<std::byte> bytes;
  static constexpr std::size_t margin = 64;
  Memory(Random& random, PlacedArray placed) : array(std::move(placed)), bytes(array.bytes + 2 * margin) {
    random.fill(bytes);
  }
  std::byte* base() { return bytes.data() + margin - array.begin; }
  std::byte* at(const PlacedField& field, const Dims& index) {  // of the box
    return base() + field.offset + offset_of(index, field.strides);
  }
};

bool is_complex(DType dtype) { return dtype == DType::complex64 || dtype == DType::complex128; }

const PlacedField& named(const PlacedArray& array, const std::string& name) {
  return *std::ranges::find(array.fields, name, &PlacedField::name);
}

Dims minus(Dims a, const Dims& b) {
  for (std::size_t d = 0; d < a.size(); ++d) a[d] -= b[d];
  return a;
}

Executor in_threads(std::size_t parts) {
  return {parts, [](std::size_t n, const std::function<void(std::size_t)>& part) {
            std::vector<std::jthread> threads;
            for (std::size_t i = 0; i < n; ++i) threads.emplace_back([&part, i] { part(i); });
          }};
}

// One element by the definition; which checks it passes.
struct Passed {
  bool in_range, exact;
};
Passed convert_element(DType to, std::byte* dst, DType from, const std::byte* src) {
  if (to == from) {
    std::memcpy(dst, src, size_of(to));
    return {true, true};
  }
  if (is_complex(to)) {
    const DType to_part = to == DType::complex64 ? DType::float32 : DType::float64;
    const DType from_part = from == DType::complex64 ? DType::float32 : DType::float64;
    const Passed real = convert_element(to_part, dst, from_part, src);
    const Passed imaginary = convert_element(to_part, dst + size_of(to_part), from_part, src + size_of(from_part));
    return {real.in_range && imaginary.in_range, real.exact && imaginary.exact};
  }
  const Reference reference = reference_of(to, from, src);
  std::memcpy(dst, reference.element.data(), reference.element.size());
  return {reference.in_range, reference.exact};
}

// The same bytes, but for the bits of a NaN that was converted.
void expect_same(Memory& actual, Memory& expected) {
  for (const PlacedField& field : actual.array.fields) {
    const DType part = field.dtype == DType::complex64    ? DType::float32
                       : field.dtype == DType::complex128 ? DType::float64
                                                          : field.dtype;
    for_each_index(actual.array.box.count, [&](const Dims& index) {
      for (std::size_t i = 0; i < size_of(field.dtype); i += size_of(part))
        if (same_number(part, actual.at(field, index) + i, expected.at(field, index) + i))
          std::memcpy(actual.at(field, index) + i, expected.at(field, index) + i, size_of(part));
    });
  }
  ASSERT_EQ(actual.bytes, expected.bytes);
}

struct Case {
  Box box;
  Memory src, dst;
};

Case random_case(Random& random, bool same_types) {
  const Dims shape = random.shape();
  std::vector<Field> from = random_fields(random), to = from;
  if (to.size() > 1 && random.chance(40)) to.resize(random.from(1, to.size()));
  random.shuffle(to);
  for (Field& field : to)
    if (!same_types && is_complex(field.dtype)) field.dtype = random.one_of({DType::complex64, DType::complex128});
    else if (!same_types && random.chance(80)) field.dtype = numbers[random.from(0, std::size(numbers) - 1)];
  // Both arrays are boxes of one array around the box that is converted.
  const Box whole_box{Dims::filled(shape.size(), random.from(0, 5)), shape};
  Box box = random.box_in(shape, 3);
  for (std::size_t d = 0; d < shape.size(); ++d) box.start[d] += whole_box.start[d];
  const auto around = [&](Box around_box) {
    if (random.chance(40)) return whole_box;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const std::uint64_t before = random.from(0, box.start[d] - whole_box.start[d]);
      const std::uint64_t end = whole_box.start[d] + shape[d];
      around_box.start[d] -= before;
      around_box.count[d] += before + random.from(0, end - box.start[d] - box.count[d]);
    }
    return around_box;
  };
  const Box src_box = around(box), dst_box = around(box);
  Case made{box, Memory(random, place(random_layout(random, src_box.count, from), src_box)),
            Memory(random, place(random_layout(random, dst_box.count, to), dst_box))};
  for (const PlacedField& field : made.src.array.fields)
    if (!is_complex(field.dtype) && random.chance(70))
      for_each_index(src_box.count, [&](const Dims& index) {
        if (field.dtype != DType::boolean) random_number(random, field.dtype, made.src.at(field, index));
      });
  return made;
}

TEST(ArrayConversion, equals_a_conversion_element_by_element) {
  for (std::uint64_t round = 0; round < 3000; ++round) {
    SCOPED_TRACE(seed_text(round));
    Random random(60'000 + round);
    Case c = random_case(random, random.chance(30));
    SCOPED_TRACE(to_string(c.box));
    Memory expected = c.dst;
    Dims first_refused;
    const Check check = random.one_of({Check::none, Check::none, Check::range, Check::exact});
    for_each_index(c.box.count, [&](const Dims& index) {
      Dims global = index;
      for (std::size_t d = 0; d < index.size(); ++d) global[d] += c.box.start[d];
      for (const PlacedField& to : expected.array.fields) {
        const PlacedField& from = named(c.src.array, to.name);
        const auto* element = c.src.at(from, minus(global, c.src.array.box.start));
        const Passed passed =
            convert_element(to.dtype, expected.at(to, minus(global, expected.array.box.start)), from.dtype, element);
        const bool refused = check == Check::range ? !passed.in_range : check == Check::exact && !passed.exact;
        if (refused && first_refused.empty()) first_refused = global;
      }
    });
    const ArrayConversion conversion(c.dst.array, c.src.array, c.box, check);
    std::string error;
    try {
      conversion.run(c.dst.base(), c.src.base());
    } catch (const Error& refusal) {
      EXPECT_EQ(refusal.code(), Errc::invalid_argument);
      error = refusal.what();
    }
    std::string verified;
    try {
      conversion.verify(c.src.base());
    } catch (const Error& refusal) {
      verified = refusal.what();
    }
    ASSERT_EQ(verified, error);
    if (first_refused.empty()) {
      ASSERT_EQ(error, "");
      expect_same(c.dst, expected);
    } else {
      std::string index;
      for (const auto i : first_refused) index += (index.empty() ? "element (" : ", ") + std::to_string(i);
      ASSERT_THAT(error, testing::StartsWith(index + ")"));
    }
  }
}

struct Particle {
  std::int32_t id;
  double x;
  float mass;
};

ArrayLayout particle_structures(Dims order) {
  return {.fields = {{"id", DType::int32, offsetof(Particle, id)},
                     {"x", DType::float64, offsetof(Particle, x)},
                     {"mass", DType::float32, offsetof(Particle, mass)}},
          .structure_bytes = sizeof(Particle),
          .order = order};
}

ArrayLayout particle_arrays(Dims order) {
  return {.fields = {{"id", DType::int64}, {"x", DType::float64}, {"mass", DType::float64}}, .order = order};
}

// Large enough for chunks that end within every dimension, for threads and for stores that bypass the caches.
TEST(ArrayConversion, converts_large_arrays_in_chunks_and_parts) {
  for (const Dims& shape : {Dims{300'001}, Dims{3, 100'003}, Dims{71, 67, 65}, Dims{2, 3, 50'021}})
    for (const std::size_t parts : {1, 3, 8}) {
      SCOPED_TRACE(to_string(shape) + " in " + std::to_string(parts));
      const Box box = whole(shape);
      const Dims row = dimensions_in(Order::row, shape.size()), column = dimensions_in(Order::column, shape.size());
      const PlacedArray structures = place(particle_structures(row), box);
      const PlacedArray arrays = place(particle_arrays(column), box);
      std::vector<Particle> particles(element_count(shape)), back(particles.size());
      for (std::size_t i = 0; i < particles.size(); ++i)
        particles[i] = {static_cast<std::int32_t>(i), 0.5 * static_cast<double>(i), static_cast<float>(i % 1000)};
      std::vector<std::byte> memory(arrays.bytes);
      ArrayConversion(arrays, structures, box, Check::exact).run(memory.data(), particles.data(), in_threads(parts));
      std::uint64_t wrong = 0, number = 0;
      for_each_index(shape, [&](const Dims& index) {
        const Particle& particle = particles[number++];
        const auto* at = memory.data() + offset_of(index, arrays.fields[0].strides);
        std::int64_t id;
        double x, mass;
        std::memcpy(&id, at + arrays.fields[0].offset, 8);
        std::memcpy(&x, at + arrays.fields[1].offset, 8);
        std::memcpy(&mass, at + arrays.fields[2].offset, 8);
        wrong += id != particle.id || x != particle.x || mass != particle.mass;
      });
      EXPECT_EQ(wrong, 0u);
      ArrayConversion(structures, arrays, box, Check::exact).run(back.data(), memory.data(), in_threads(parts));
      for (std::size_t i = 0; i < back.size(); ++i)
        wrong += back[i].id != particles[i].id || back[i].x != particles[i].x || back[i].mass != particles[i].mass;
      EXPECT_EQ(wrong, 0u);
      // Scalars: large runs of a type, and a permutation of dimensions with it.
      for (const Dims& order : {row, column}) {
        const auto from = place(scalar_layout(DType::int64, row), box),
                   to = place(scalar_layout(DType::float64, order), box);
        std::vector<std::int64_t> numbers_in(particles.size());
        std::iota(numbers_in.begin(), numbers_in.end(), -1000);
        std::vector<double> numbers_out(particles.size());
        ArrayConversion(to, from, box, Check::exact).run(numbers_out.data(), numbers_in.data(), in_threads(parts));
        number = 0;
        for_each_index(shape, [&](const Dims& index) {
          const auto at = static_cast<std::size_t>(offset_of(index, to.fields[0].strides)) / sizeof(double);
          wrong += numbers_out[at] != static_cast<double>(numbers_in[number++]);
        });
        EXPECT_EQ(wrong, 0u);
      }
    }
}

TEST(ArrayConversion, parts_cover_the_box_once) {
  const Dims shape{5, 1 << 20};
  const Box box = whole(shape);
  const auto layout = place(scalar_layout(DType::float32, Dims{0, 1}), box);
  std::vector<float> src(element_count(shape), 1), dst(src.size());
  std::size_t asked = 0;
  const Executor executor{4, [&](std::size_t parts, const std::function<void(std::size_t)>& part) {
                            asked = parts;
                            for (std::size_t i = 0; i < parts; ++i) {
                              part(i);
                              EXPECT_EQ(std::ranges::count(dst, 1.0f), std::ranges::find(dst, 0.0f) - dst.begin());
                            }
                          }};
  ArrayConversion(layout, layout, box).run(dst.data(), src.data(), executor);
  EXPECT_EQ(asked, 4u);
  EXPECT_EQ(dst, src);
}

TEST(ArrayConversion, names_the_first_element_that_a_check_refuses) {
  const Box box{{10, 20, 30}, {64, 64, 64}};
  const auto from = place(scalar_layout(DType::float64, Dims{0, 1, 2}), box);
  const auto to = place(scalar_layout(DType::int16, Dims{2, 1, 0}), box);
  std::vector<double> src(element_count(box.count), 7);
  std::vector<std::int16_t> dst(src.size());
  src[63] = 40000;
  src[64] = -32769;
  src[9] = 0.25;
  const auto error = [&](Check check, std::size_t parts) {
    try {
      ArrayConversion(to, from, box, check).run(dst.data(), src.data(), in_threads(parts));
      return std::string();
    } catch (const Error& refusal) {
      return std::string(refusal.what());
    }
  };
  EXPECT_EQ(error(Check::none, 1), "");
  for (const std::size_t parts : {1, 4}) {
    EXPECT_EQ(error(Check::range, parts), "element (10, 20, 93) is 40000, outside the range of int16");
    EXPECT_EQ(error(Check::exact, parts), "element (10, 20, 39) is 0.25, which int16 does not hold exactly");
  }
  EXPECT_THROW(ArrayConversion(to, from, box, Check::range).verify(src.data()), Error);
  std::ranges::fill(src, 7);
  ArrayConversion(to, from, box, Check::exact).verify(src.data());
}

TEST(ArrayConversion, names_field_and_value_of_every_type) {
  const auto error = [](DType to, auto value) {
    const DType from = dtype_of<decltype(value)>();
    const ArrayLayout source{.fields = {{"v", from}}}, target{.fields = {{"v", to}}};
    std::byte out[16];
    try {
      ArrayConversion(place(target, {}), place(source, {}), {}, Check::exact).run(out, &value);
      return std::string();
    } catch (const Error& refusal) {
      return std::string(refusal.what());
    }
  };
  EXPECT_EQ(error(DType::int64, ~std::uint64_t{0}),
            "element () of field 'v' is 18446744073709551615, outside the range of int64");
  EXPECT_EQ(error(DType::uint8, std::int8_t{-1}), "element () of field 'v' is -1, outside the range of uint8");
  EXPECT_EQ(error(DType::boolean, std::int32_t{2}), "element () of field 'v' is 2, outside the range of bool");
  EXPECT_EQ(error(DType::float32, 0.1), "element () of field 'v' is 0.1, which float32 does not hold exactly");
  EXPECT_EQ(error(DType::float16, 65536.0f), "element () of field 'v' is 65536, outside the range of float16");
  EXPECT_EQ(error(DType::int8, float16{0x7e00}), "element () of field 'v' is nan, outside the range of int8");
  EXPECT_EQ(error(DType::complex64, std::complex<double>{1, 0.1}),
            "element () of field 'v' is (1, 0.1), which complex64 does not hold exactly");
  EXPECT_EQ(error(DType::int64, 1e18), "");
}

TEST(ArrayConversion, refuses_what_does_not_fit_together) {
  const auto array = [](DType dtype, const Box& box) {
    return place(scalar_layout(dtype, dimensions_in(Order::row, box.count.size())), box);
  };
  const auto error = [](const PlacedArray& to, const PlacedArray& from, const Box& box) {
    try {
      ArrayConversion(to, from, box);
      return std::string();
    } catch (const Error& refusal) {
      return std::string(refusal.what());
    }
  };
  const Box box{{2}, {4}}, larger{{2}, {5}}, plane{{2, 0}, {4, 1}};
  const PlacedArray ints = array(DType::int32, box);
  EXPECT_EQ(error(ints, ints, box), "");
  EXPECT_THAT(error(ints, array(DType::int32, larger), larger), HasSubstr("[2, 7) is outside the array [2, 6)"));
  EXPECT_THAT(error(array(DType::int32, larger), ints, larger), HasSubstr("[2, 7) is outside the array [2, 6)"));
  EXPECT_THAT(error(ints, ints, plane), HasSubstr("is outside the array"));
  EXPECT_THAT(error(array(DType::int32, plane), ints, box), HasSubstr("is outside the array"));
  EXPECT_THAT(error(ints, ints, {{~std::uint64_t{0}}, {2}}), HasSubstr("is outside the array"));
  EXPECT_THAT(error(array(DType::complex64, box), ints, box), HasSubstr("int32 does not convert to complex64"));
  const auto particles = place(particle_structures(Dims{0}), box);
  EXPECT_THAT(error(ints, particles, box), HasSubstr("unknown field ''"));
  EXPECT_THAT(error(place({.fields = {{"mas", DType::int8}}, .order = Dims{0}}, box), particles, box),
              HasSubstr("unknown field 'mas'; did you mean 'mass'?"));
  const ArrayLayout overlapping{.fields = {{"", DType::int32}}, .strides = {2}};
  EXPECT_THAT(error(place(overlapping, box), ints, box), HasSubstr("elements of the destination share bytes"));
  EXPECT_EQ(error(ints, place(overlapping, box), box), "");
}

}  // namespace
}  // namespace penstock::model
