#include "pool/stream_trace.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "penstock/error.hpp"

namespace penstock::pool {

namespace {

constexpr std::array<std::string_view, 4> kinds{"global_array", "local_array", "global_value", "local_value"};
constexpr std::array<std::string_view, 2> orders{"row", "column"};
constexpr std::uint64_t most_points = 1 << 16, most_elements = 1 << 20;  // made of what a trace says

[[noreturn]] void refuse_text(const char* what, std::string_view text) {
  throw Error(Errc::protocol, "'" + std::string(text.substr(0, 80)) + "' is no " + what);
}

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

std::uint64_t parse_number(const char* what, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) refuse_text(what, text);
  return value;
}

// What is before the separator, which is taken off with it; all of it when there is none.
std::string_view take(std::string_view& text, char separator) {
  const auto at = text.find(separator);
  const auto part = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return part;
}

Dims parse_dims(const char* what, std::string_view text) {
  std::array<std::uint64_t, max_dims> values{};
  std::size_t count = 0;
  while (!text.empty()) {
    if (count == max_dims || text.back() == ',') refuse_text(what, text);
    values[count++] = parse_number(what, take(text, ','));
  }
  return Dims(std::span(values).first(count));
}

template <class Enum, std::size_t count>
Enum parse_name(const char* what, std::string_view text, const std::array<std::string_view, count>& names) {
  for (std::size_t i = 0; i < count; ++i)
    if (names[i] == text) return static_cast<Enum>(i);
  refuse_text(what, text);
}

DType parse_dtype(const char* what, std::string_view text) {
  const DType dtype = dtype_from_name(text);
  if (dtype == DType::none) refuse_text(what, text);
  return dtype;
}

}  // namespace

void append_box(std::string& to, const Box& box) {
  append_dims(to, box.start);
  to.push_back('+');
  append_dims(to, box.count);
}

Box parse_box(std::string_view text) {
  const auto plus = text.find('+');
  if (plus == std::string_view::npos) refuse_text("box", text);
  Box box{parse_dims("box", text.substr(0, plus)), parse_dims("box", text.substr(plus + 1))};
  if (box.start.size() != box.count.size()) refuse_text("box", text);
  return box;
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

Selection parse_selection(std::string_view text) {
  std::string_view rest = text;
  const auto form = take(rest, ' ');
  if (form == "all" && rest.empty()) return Selection::all();
  if (form == "block") return Selection::block(parse_number("selection", rest));
  if (form == "box") {
    const auto slash = rest.find('/');
    Box box = parse_box(rest.substr(0, slash));
    if (slash == std::string_view::npos) return Selection::box(std::move(box));
    const Dims stride = parse_dims("selection", rest.substr(slash + 1));
    if (stride.size() != box.count.size()) refuse_text("selection", text);
    for (const std::uint64_t step : stride)
      if (step == 0) refuse_text("selection", text);
    return Selection::strided(box.start, box.count, stride);
  }
  if (form != "points") refuse_text("selection", text);
  const std::uint64_t points = parse_number("selection", take(rest, 'x'));
  const std::uint64_t dimensions = parse_number("selection", rest);
  if (dimensions == 0 || dimensions > max_dims) refuse_text("selection", text);
  return Selection::points(std::vector<std::uint64_t>(std::min(points, most_points) * dimensions), dimensions);
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

DescribedVariable parse_variable(std::string_view text) {
  constexpr const char* what = "variable";
  DescribedVariable variable;
  variable.dtype = parse_dtype(what, take(text, ' '));
  variable.options.kind = parse_name<Kind>(what, take(text, ' '), kinds);
  variable.options.order = parse_name<Order>(what, take(text, ' '), orders);
  variable.shape = parse_dims(what, take(text, ' '));
  if (!text.empty() && text != "min_max") refuse_text(what, text);
  variable.options.min_max = !text.empty();
  return variable;
}

std::string describe_shape(const Dims& shape) {
  std::string text;
  append_dims(text, shape);
  return text;
}

Dims parse_shape(std::string_view text) { return parse_dims("shape", text); }

std::string describe_attribute(const Attribute& attribute) {
  std::string text(name_of(attribute.dtype));
  text += ' ';
  if (!attribute.is_array) return text + "scalar";
  append_number(text, attribute.dtype == DType::none ? 0 : attribute.size());
  return text;
}

Attribute parse_attribute(std::string_view text) {
  constexpr const char* what = "attribute";
  Attribute attribute;
  attribute.dtype = parse_dtype(what, take(text, ' '));
  attribute.is_array = text != "scalar";
  const std::uint64_t count = attribute.is_array ? parse_number(what, text) : 1;
  if (count > most_elements) refuse_text(what, text);
  if (attribute.dtype == DType::string) attribute.strings.resize(count);
  else attribute.bytes.resize(count * size_of(attribute.dtype));
  return attribute;
}

}  // namespace penstock::pool
