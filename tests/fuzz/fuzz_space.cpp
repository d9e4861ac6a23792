// Array spaces and layouts: keys of blocks, records of arrays, boxes in messages. The first byte chooses.
#include "fuzz.hpp"
#include "model/array_layout.hpp"
#include "model/box.hpp"
#include "space/block_key.hpp"
#include "space/protocol.hpp"

using namespace penstock;

namespace {

enum Kind : std::uint8_t { row, column, record, boxes, form, kinds };

void check_record(std::span<const std::byte> bytes) {
  space::ArrayRecord record;
  if (!fuzz::refuses_with({Errc::protocol, Errc::unsupported}, [&] { record = space::decode_record(bytes); })) return;
  fuzz::check(!record.shape.empty() && record.shape.size() <= max_dims && space::element_bytes(record) > 0);
  const auto layout = space::stored_layout(record);
  model::validate(layout);
  const auto placed = model::place(layout, {Dims::filled(layout.rank(), 1), Dims::filled(layout.rank(), 3)});
  fuzz::check(placed.fields.size() == layout.fields.size());
  fuzz::check(space::decode_record(space::encode_record(record)) == record);
}

void check_boxes(std::span<const std::byte> bytes) {
  if (bytes.size() < 9) return;
  const auto dimensions = static_cast<std::size_t>(bytes[0]);
  std::vector<std::uint64_t> numbers((bytes.size() - 1) / 8);
  std::memcpy(numbers.data(), bytes.data() + 1, 8 * numbers.size());
  std::vector<Box> found;
  if (!fuzz::refuses_with({Errc::protocol}, [&] { found = space::unpack_boxes(numbers, dimensions); })) return;
  std::vector<std::uint64_t> again;
  for (const auto& box : found) {
    fuzz::check(model::is_valid(box) && !model::is_empty(box));
    space::append_box(again, box);
  }
  fuzz::check(again == numbers);
}

void check_form(std::span<const std::byte> bytes) {
  if (bytes.size() < 2) return;
  const auto* numbers = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const std::span order(numbers + 2, bytes.size() - 2);
  space::Layout found;
  if (!fuzz::refuses_with({Errc::protocol}, [&] { found = space::unpack_layout(numbers[0], order, numbers[1]); }))
    return;
  model::validate(model::scalar_layout(found.dtype, found.order));
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  space::ArrayRecord particle_record{7, DType::none, {64}, 1, 3};
  particle_record.fields = {{"x", DType::float64}, {"id", DType::int8}};
  const std::uint64_t numbers[] = {0, 4, 8, 12};
  fuzz::Bytes two = fuzz::choose(boxes, "\2");
  const auto* first = reinterpret_cast<const std::byte*>(numbers);
  two.insert(two.end(), first, first + sizeof numbers);
  return {
      fuzz::choose(row, space::block_row({7, 3, 15})),
      fuzz::choose(column, space::block_column({{0, 128, 5}, {300, 1, 70'000}})),
      fuzz::choose(record,
                   space::encode_record(
                       {7, DType::float32, {64, 32}, 16, 3, {ConvertAt::in_advance, {{DType::int8, Order::column}}}})),
      fuzz::choose(record, space::encode_record(particle_record)),
      two,
      fuzz::choose(form, std::string_view("\x09\x03\x02\x00\x01", 5))};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  if (bytes == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  const std::span rest(reinterpret_cast<const std::byte*>(data) + 1, bytes - 1);
  switch (data[0] % kinds) {
    case row:
      if (const auto found = space::block_row_of(text)) fuzz::check(space::block_row(*found) == text);
      break;
    case column:
      if (const auto found = space::block_box_of(text)) fuzz::check(space::block_column(*found) == text);
      break;
    case record: check_record(rest); break;
    case form: check_form(rest); break;
    default: check_boxes(rest);
  }
  return 0;
}
