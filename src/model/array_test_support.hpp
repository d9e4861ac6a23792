// Random layouts of arrays.
#pragma once

#include <gmock/gmock.h>

#include <numeric>

#include "model/array_layout.hpp"
#include "model/random_test_support.hpp"

namespace penstock::model {

// Of the shape's rank; elements do not overlap for it. Fields keep their names, in any order; none: scalars.
inline ArrayLayout random_layout(Random& random, const Dims& shape, std::vector<Field> fields) {
  ArrayLayout layout{.fields = std::move(fields)};
  const bool scalars = layout.fields.size() == 1 && layout.fields[0].name.empty();
  std::vector<std::size_t> order(layout.fields.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  random.shuffle(order);
  if (!scalars && random.chance(60))
    for (const std::size_t i : order) {
      layout.fields[i].offset = layout.structure_bytes + (random.chance(30) ? random.from(0, 9) : 0);
      layout.structure_bytes = layout.fields[i].offset + size_of(layout.fields[i].dtype);
    }
  if (layout.structure_bytes > 0 && random.chance(50)) layout.structure_bytes += random.from(0, 9);
  const bool single = layout.structure_bytes > 0 || layout.fields.size() == 1;
  if (single && random.chance(30)) {
    const std::size_t bytes = layout.structure_bytes > 0 ? layout.structure_bytes : size_of(layout.fields[0].dtype);
    std::int64_t first = 0;
    std::size_t room = 0;
    const Strides strides = random.strides(shape, bytes, first, room);
    layout.strides.assign(strides.begin(), strides.begin() + static_cast<std::ptrdiff_t>(shape.size()));
    return layout;
  }
  layout.order = dimensions_in(Order::row, shape.size());
  if (random.chance(70)) random.shuffle(layout.order);
  if (random.chance(50)) {
    layout.padding = Dims::filled(shape.size(), 0);
    for (auto& padding : layout.padding) padding = random.chance(50) ? 0 : random.from(0, 3);
  }
  return layout;
}

inline DType random_dtype(Random& random) {
  return static_cast<DType>(random.from(1, static_cast<std::uint64_t>(DType::complex128)));
}

// Fields a, b, c, ... or scalars.
inline std::vector<Field> random_fields(Random& random) {
  if (random.chance(40)) return {{"", random_dtype(random)}};
  std::vector<Field> fields(random.from(1, 5));
  const bool alike = random.chance(30);
  for (std::size_t i = 0; i < fields.size(); ++i)
    fields[i] = {std::string(1, static_cast<char>('a' + i)), alike && i > 0 ? fields[0].dtype : random_dtype(random)};
  return fields;
}

inline ArrayLayout random_layout(Random& random, const Dims& shape) {
  return random_layout(random, shape, random_fields(random));
}

}  // namespace penstock::model
