#include "space/protocol.hpp"

#include <algorithm>
#include <set>

#include "model/array_layout.hpp"
#include "model/box.hpp"
#include "penstock/error.hpp"
#include "rpc/encoding.hpp"
#include "space/names.hpp"
#include "space/partition.hpp"

namespace penstock::space {
namespace {

constexpr std::uint16_t record_format = 2;
constexpr std::size_t max_layouts = 16, max_readers = 64, max_fields = 64, max_field_name = 64;

bool are_valid(const std::vector<std::string>& readers) {
  const std::set<std::string> distinct(readers.begin(), readers.end());
  return distinct.size() == readers.size() && readers.size() <= max_readers &&
         std::all_of(readers.begin(), readers.end(),
                     [](const std::string& name) { return !name.empty() && name.size() <= max_reader_name; });
}

bool are_valid(const std::vector<ArrayField>& fields) {
  std::set<std::string_view> names;
  return fields.size() <= max_fields && std::all_of(fields.begin(), fields.end(), [&](const ArrayField& field) {
           return !field.name.empty() && field.name.size() <= max_field_name && size_of(field.dtype) > 0 &&
                  names.insert(field.name).second;
         });
}

bool servers_convert(const ArrayOptions& options) {
  return options.convert == ConvertAt::on_request || options.convert == ConvertAt::in_advance ||
         !options.layouts.empty();
}

// Throws as Dims does.
Dims dims_of(std::span<const std::uint8_t> numbers) {
  const std::vector<std::uint64_t> wide(numbers.begin(), numbers.end());
  return Dims(std::span<const std::uint64_t>(wide));
}

bool is_valid(const ArrayForm& layout) {
  return (layout.dtype == DType::none || size_of(layout.dtype) > 0) &&
         (layout.order == Order::row || layout.order == Order::column);
}

}  // namespace

bool are_bounded(const ArrayOptions& options) { return options.keep > 0 || options.keep_ms > 0; }

std::vector<std::byte> encode_record(const ArrayRecord& record) {
  const auto& layouts = record.options.layouts;
  if (layouts.size() > max_layouts || !std::all_of(layouts.begin(), layouts.end(), is_valid))
    throw Error(Errc::invalid_argument,
                "at most " + std::to_string(max_layouts) + " layouts, of elements in rows or columns");
  if (!are_valid(record.options.readers))
    throw Error(Errc::invalid_argument, "at most " + std::to_string(max_readers) +
                                            " readers, with distinct names of 1 to " + std::to_string(max_reader_name) +
                                            " bytes");
  if (!are_bounded(record.options) && !record.options.readers.empty())
    throw Error(Errc::invalid_argument,
                "readers hold back versions that would go: set keep, keep_bytes or keep_ms too");
  if (!are_valid(record.fields))
    throw Error(Errc::invalid_argument, "at most " + std::to_string(max_fields) + " fields, with names of 1 to " +
                                            std::to_string(max_field_name) +
                                            " bytes that differ, and elements of a fixed size");
  if (!record.fields.empty() && servers_convert(record.options))
    throw Error(
        Errc::unsupported,
        "servers do not convert structures: define the array with convert at_reader or automatic, and no layouts");
  fb::ArrayRecordT table;
  table.format = record_format;
  table.id = record.id;
  table.dtype = static_cast<std::uint8_t>(record.dtype);
  table.shape.assign(record.shape.begin(), record.shape.end());
  table.parts = record.parts;
  table.tag_base = record.tag_base;
  table.stream = record.stream;
  table.keep = record.options.keep;
  table.keep_ms = record.options.keep_ms;
  table.readers = record.options.readers;
  for (const auto& field : record.fields) {
    auto& one = *table.fields.emplace_back(std::make_unique<fb::FieldT>());
    one.name = field.name;
    one.dtype = static_cast<std::uint8_t>(field.dtype);
  }
  table.convert = static_cast<std::uint8_t>(record.options.convert);
  for (const auto& layout : layouts) {
    table.layouts.push_back(static_cast<std::uint8_t>(layout.dtype));
    table.layouts.push_back(static_cast<std::uint8_t>(layout.order));
  }
  return rpc::encode<fb::ArrayRecord>(table);
}

ArrayRecord decode_record(std::span<const std::byte> bytes) {
  const std::vector<std::byte> aligned(bytes.begin(), bytes.end());
  const auto table = rpc::decode<fb::ArrayRecord>(aligned, "record of an array");
  if (table.format != record_format)
    throw Error(Errc::unsupported, "the array was defined by another version of Penstock");
  ArrayRecord record;
  record.id = table.id;
  record.parts = table.parts;
  record.tag_base = table.tag_base;
  record.stream = table.stream;
  record.dtype = static_cast<DType>(table.dtype);
  record.options.convert = static_cast<ConvertAt>(table.convert);
  bool known = record.options.convert <= ConvertAt::automatic && table.layouts.size() % 2 == 0 &&
               table.layouts.size() <= 2 * max_layouts;
  for (std::size_t i = 0; known && i < table.layouts.size(); i += 2) {
    const ArrayForm layout{static_cast<DType>(table.layouts[i]), static_cast<Order>(table.layouts[i + 1])};
    known = is_valid(layout);
    record.options.layouts.push_back(layout);
  }
  record.options.keep = table.keep;
  record.options.keep_ms = table.keep_ms;
  record.options.readers = table.readers;
  known = known && are_valid(table.readers) && (are_bounded(record.options) || table.readers.empty());
  for (const auto& field : table.fields) record.fields.push_back({field->name, static_cast<DType>(field->dtype)});
  known = known && are_valid(record.fields) &&
          (record.fields.empty() ? size_of(record.dtype) > 0
                                 : record.dtype == DType::none && !servers_convert(record.options));
  const bool ranked = !table.shape.empty() && table.shape.size() <= max_dims;
  if (!known || !ranked || record.parts == 0 || record.parts > max_parts)
    throw Error(Errc::protocol, "the record of an array contradicts itself");
  record.shape = Dims(std::span<const std::uint64_t>(table.shape));
  return record;
}

std::uint64_t element_bytes(const ArrayRecord& record) {
  std::uint64_t bytes = size_of(record.dtype);
  for (const auto& field : record.fields) bytes += size_of(field.dtype);
  return bytes;
}

model::ArrayLayout stored_layout(const ArrayRecord& record) {
  const auto rows = model::dimensions_in(Order::row, record.shape.size());
  if (record.fields.empty()) return model::scalar_layout(record.dtype, rows);
  model::ArrayLayout layout;
  layout.order = rows;
  for (const auto& field : record.fields) {
    layout.fields.push_back({field.name, field.dtype, layout.structure_bytes});
    layout.structure_bytes += size_of(field.dtype);
  }
  return layout;
}

Layout layout_of(const ArrayForm& form, const ArrayRecord& of) {
  return {form.dtype == DType::none ? of.dtype : form.dtype, model::dimensions_in(form.order, of.shape.size())};
}

Layout unpack_layout(std::uint8_t dtype, std::span<const std::uint8_t> order, std::size_t dimensions) {
  if (order.size() != dimensions || dimensions > max_dims)
    throw Error(Errc::protocol, "a layout of another number of dimensions");
  const Layout layout{static_cast<DType>(dtype), dims_of(order)};
  std::uint64_t seen = 0;
  for (const auto dimension : order) seen |= dimension < dimensions ? std::uint64_t{1} << dimension : 0;
  if (size_of(layout.dtype) == 0 || seen != (std::uint64_t{1} << dimensions) - 1)
    throw Error(Errc::protocol, "a layout of elements that contradicts itself");
  return layout;
}

void append_box(std::vector<std::uint64_t>& to, const Box& box) {
  to.insert(to.end(), box.start.begin(), box.start.end());
  to.insert(to.end(), box.count.begin(), box.count.end());
}

std::vector<Box> unpack_boxes(std::span<const std::uint64_t> numbers, std::size_t dimensions) {
  if (dimensions == 0 || dimensions > max_dims || numbers.size() % (2 * dimensions) != 0)
    throw Error(Errc::protocol, "boxes of a number of dimensions that is not theirs");
  std::vector<Box> boxes;
  boxes.reserve(numbers.size() / (2 * dimensions));
  for (; !numbers.empty(); numbers = numbers.subspan(2 * dimensions)) {
    Box box{Dims(numbers.first(dimensions)), Dims(numbers.subspan(dimensions, dimensions))};
    if (!model::is_valid(box) || model::is_empty(box)) throw Error(Errc::protocol, "a box that is none");
    boxes.push_back(std::move(box));
  }
  return boxes;
}

}  // namespace penstock::space
