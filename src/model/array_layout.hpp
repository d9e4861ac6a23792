// How the elements of an array lie in memory, as a value: an order of dimensions with padding, or strides; elements are scalars
// or structures with named fields, which lie as an array of structures or as one array for each field.
//
// Pure functions, any thread. A layout knows no shape: place() applies it to a box of an array. Errors are
// Error(invalid_argument).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/copy.hpp"
#include "penstock/types.hpp"

namespace penstock::model {

inline constexpr std::size_t max_fields = 1024;
inline constexpr std::size_t max_field_name = 255;          // bytes
inline constexpr std::uint64_t field_array_alignment = 64;  // bytes, of the arrays of fields after the first

struct Field {
  std::string name;  // empty: the elements are scalars, and this is the only field
  DType dtype = DType::none;
  std::uint64_t offset = 0;  // in bytes, within the structure; 0 where fields have arrays of their own
  friend bool operator==(const Field&, const Field&) = default;
};

struct ArrayLayout {
  std::vector<Field> fields;
  // Bytes from one structure to the next, padding included. 0: each field is an array of its own, one after the other (a
  // structure of arrays, and every array of scalars).
  std::uint64_t structure_bytes = 0;
  // All dimensions, the slowest first. Empty with strides.
  Dims order;
  // Unused elements behind those of each dimension; empty: none.
  Dims padding;
  // Bytes between neighbours along each dimension, of any sign, instead of order and padding; not for several arrays.
  std::vector<std::int64_t> strides;

  std::size_t rank() const { return strides.empty() ? order.size() : strides.size(); }
  friend bool operator==(const ArrayLayout&, const ArrayLayout&) = default;
};

Dims dimensions_in(Order order, std::size_t rank);
ArrayLayout scalar_layout(DType dtype, Dims order);

// Throws when the layout contradicts itself: fields overlap or reach over the structure's end, two fields have one name, the
// order is no permutation.
void validate(const ArrayLayout& layout);

// A layout applied to a box of an array.
struct PlacedField {
  std::string name;
  DType dtype = DType::none;
  std::int64_t offset = 0;  // bytes from the base to the field of the box's first element
  Strides strides{};
};
struct PlacedArray {
  Box box;
  std::vector<PlacedField> fields;
  std::uint64_t structure_bytes = 0;
  std::int64_t begin = 0;    // the first byte, from the base; not 0 with negative strides only
  std::uint64_t bytes = 0;   // from there to behind the last byte
  bool overlapping = false;  // strides may let elements share bytes
};
// Throws as validate, when the box has another number of dimensions, and when the array takes 2^63 bytes or more.
PlacedArray place(const ArrayLayout& layout, const Box& box);

}  // namespace penstock::model
