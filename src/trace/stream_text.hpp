// What traces say of streams, as text: a step's boxes and selections repeat from step to step, and a trace holds each
// text once. Pure; any thread.
//
//   box         "0,0+64,64" (start + count); of a value: "+"
//   selection   "all", "box 0,0+64,64", "box 0,0+32,32/2,2" (strided), "block 3", "points 1000x3" (not which)
//   variable    "float64 global_array row 64,64", and " min_max"
//   attribute   "float64 3", "string scalar"
//
// python/penstock/trace/describe.py reads them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "penstock/stream.hpp"

namespace penstock::trace {

void append_box(std::string& to, const Box& box);

void append_selection(std::string& to, const Selection& selection);

struct DescribedVariable {
  DType dtype = DType::none;
  Dims shape;
  VariableOptions options;
};
std::string describe_variable(const DescribedVariable& variable);

std::string describe_shape(const Dims& shape);

std::string describe_attribute(const Attribute& attribute);

}  // namespace penstock::trace
