// What traces say of streams in pools, as text: a step's boxes and selections repeat from step to step, and a trace holds each
// text once. Pure; any thread.
//
//   box         "0,0+64,64" (start + count); of a value: "+"
//   selection   "all", "box 0,0+64,64", "box 0,0+32,32/2,2" (strided), "block 3", "points 1000x3" (not which)
//   variable    "float64 global_array row 64,64", and " min_max"
//   attribute   "float64 3", "string scalar"
//
// Everything that reads one takes any bytes and throws Error(protocol) for what is none.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "penstock/stream.hpp"

namespace penstock::pool {

void append_box(std::string& to, const Box& box);
Box parse_box(std::string_view text);

void append_selection(std::string& to, const Selection& selection);
// Points come back as so many (at most 65536) of the array's first element.
Selection parse_selection(std::string_view text);

struct DescribedVariable {
  DType dtype = DType::none;
  Dims shape;
  VariableOptions options;
  friend bool operator==(const DescribedVariable& a, const DescribedVariable& b) {
    return a.dtype == b.dtype && a.shape == b.shape && a.options.kind == b.options.kind &&
           a.options.order == b.options.order && a.options.min_max == b.options.min_max;
  }
};
std::string describe_variable(const DescribedVariable& variable);
DescribedVariable parse_variable(std::string_view text);

std::string describe_shape(const Dims& shape);
Dims parse_shape(std::string_view text);

std::string describe_attribute(const Attribute& attribute);
// One of that type and size, of zeros or empty strings.
Attribute parse_attribute(std::string_view text);

}  // namespace penstock::pool
