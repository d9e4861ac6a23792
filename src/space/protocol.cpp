#include "space/protocol.hpp"

#include "model/box.hpp"
#include "penstock/error.hpp"
#include "rpc/encoding.hpp"
#include "space/partition.hpp"

namespace penstock::space {
namespace {

constexpr std::uint16_t record_format = 1;

}  // namespace

std::vector<std::byte> encode_record(const ArrayRecord& record) {
  fb::ArrayRecordT table;
  table.format = record_format;
  table.id = record.id;
  table.dtype = static_cast<std::uint8_t>(record.dtype);
  table.shape.assign(record.shape.begin(), record.shape.end());
  table.parts = record.parts;
  table.tag_base = record.tag_base;
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
  record.dtype = static_cast<DType>(table.dtype);
  const bool ranked = !table.shape.empty() && table.shape.size() <= max_dims;
  if (!ranked || size_of(record.dtype) == 0 || record.parts == 0 || record.parts > max_parts)
    throw Error(Errc::protocol, "the record of an array contradicts itself");
  record.shape = Dims(std::span<const std::uint64_t>(table.shape));
  return record;
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
