#include "trace/stream_text.hpp"

#include <array>
#include <charconv>

namespace penstock::trace {

namespace {

constexpr std::array<std::string_view, 4> kinds{"global_array", "local_array", "global_value", "local_value"};
constexpr std::array<std::string_view, 2> orders{"row", "column"};

void append_number(std::string& to, std::uint64_t value) {
  char digits[20];
  to.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

void append_dims(std::string& to, const Dims& dims) {
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) to.push_back(',');
    append_number(to, dims[i]);
  }
}

}  // namespace

void append_box(std::string& to, const Box& box) {
  append_dims(to, box.start);
  to.push_back('+');
  append_dims(to, box.count);
}

void append_selection(std::string& to, const Selection& selection) {
  switch (selection.form()) {
    case Selection::Form::all: to += "all"; break;
    case Selection::Form::box:
      to += "box ";
      append_box(to, selection.box());
      if (selection.stride().empty()) break;
      to.push_back('/');
      append_dims(to, selection.stride());
      break;
    case Selection::Form::block:
      to += "block ";
      append_number(to, selection.block_number());
      break;
    case Selection::Form::points:
      to += "points ";
      append_number(to, selection.dimensions() == 0 ? 0 : selection.coordinates().size() / selection.dimensions());
      to.push_back('x');
      append_number(to, selection.dimensions());
      break;
  }
}

std::string describe_variable(const DescribedVariable& variable) {
  std::string text(name_of(variable.dtype));
  text += ' ';
  text += kinds[static_cast<std::size_t>(variable.options.kind)];
  text += ' ';
  text += orders[static_cast<std::size_t>(variable.options.order)];
  text += ' ';
  append_dims(text, variable.shape);
  if (variable.options.min_max) text += " min_max";
  return text;
}

std::string describe_shape(const Dims& shape) {
  std::string text;
  append_dims(text, shape);
  return text;
}

std::string describe_attribute(const Attribute& attribute) {
  std::string text(name_of(attribute.dtype));
  text += ' ';
  if (!attribute.is_array) return text + "scalar";
  append_number(text, attribute.dtype == DType::none ? 0 : attribute.size());
  return text;
}

}  // namespace penstock::trace
