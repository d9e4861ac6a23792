#include "model/array_conversion.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/text.hpp"
#include "model/box.hpp"
#include "penstock/error.hpp"

namespace penstock::model {

namespace {

constexpr std::uint64_t chunk_bytes = 64 << 10;  // of structures; with the fields' arrays, most of a cache
constexpr std::size_t largest_element = 16;
constexpr std::uint64_t part_bytes = 1 << 20;  // the least for which a thread of its own is worth it

std::int64_t offset_of_start(const Dims& start, const Strides& strides) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < start.size(); ++d) offset += static_cast<std::int64_t>(start[d]) * strides[d];
  return offset;
}

const PlacedField& find_field(const PlacedArray& array, const std::string& name) {
  const auto found = std::ranges::find(array.fields, name, &PlacedField::name);
  if (found != array.fields.end()) return *found;
  std::vector<std::string_view> names;
  for (const PlacedField& field : array.fields) names.push_back(field.name);
  throw Error(Errc::invalid_argument, base::unknown_name("field", name, names));
}

// The dimensions longer than 1, from the smallest stride on.
std::vector<std::size_t> fastest_first(const Strides& strides, const Dims& count) {
  std::vector<std::size_t> dims;
  for (std::size_t d = 0; d < count.size(); ++d)
    if (count[d] > 1) dims.push_back(d);
  std::ranges::stable_sort(dims, {}, [&](std::size_t d) { return std::abs(strides[d]); });
  return dims;
}

// Calls f with the chunks of a box, in row-major order, until it returns false.
template <class F>
void for_each_chunk(const Box& box, const Dims& chunk, F&& f) {
  Box at{box.start, Dims::filled(box.start.size(), 0)};
  for (;;) {
    for (std::size_t d = 0; d < chunk.size(); ++d)
      at.count[d] = std::min(chunk[d], box.start[d] + box.count[d] - at.start[d]);
    if (!f(at)) return;
    std::size_t d = chunk.size();
    for (;;) {
      if (d-- == 0) return;
      at.start[d] += at.count[d];
      if (at.start[d] < box.start[d] + box.count[d]) break;
      at.start[d] = box.start[d];
    }
  }
}

std::string index_text(const Dims& index) {
  std::string text = "(";
  for (std::size_t d = 0; d < index.size(); ++d) text += (d ? ", " : "") + std::to_string(index[d]);
  return text + ")";
}

template <class T>
std::string number_text(DType dtype, const std::byte* element) {
  T value;
  const Conversion conversion = conversion_between(dtype_of<T>(), dtype);
  if (conversion.run) conversion.run(reinterpret_cast<std::byte*>(&value), element, 1);
  else std::memcpy(&value, element, sizeof value);
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string value_text(DType dtype, const std::byte* element) {
  switch (dtype) {
    case DType::complex128: {
      const std::string imaginary = number_text<double>(DType::float64, element + sizeof(double));
      return "(" + number_text<double>(DType::float64, element) + ", " + imaginary + ")";
    }
    case DType::uint64: return number_text<std::uint64_t>(dtype, element);
    case DType::float16:
    case DType::bfloat16:
    case DType::float32: return number_text<float>(dtype, element);
    case DType::float64: return number_text<double>(dtype, element);
    default: return number_text<std::int64_t>(dtype, element);
  }
}

}  // namespace

ArrayConversion::ArrayConversion(const PlacedArray& dst, const PlacedArray& src, const Box& box, Check check)
    : box_(box) {
  for (const PlacedArray* array : {&dst, &src})
    if (!is_valid(box) || !contains(array->box, box))
      throw Error(Errc::invalid_argument,
                  "the box " + to_string(box) + " is outside the array " + to_string(array->box));
  if (dst.overlapping) throw Error(Errc::invalid_argument, "elements of the destination share bytes");
  for (const PlacedField& to : dst.fields) {
    const PlacedField& from = find_field(src, to.name);
    FieldCopy field{.name = to.name,
                    .dst_type = to.dtype,
                    .src_type = from.dtype,
                    .dst_size = static_cast<std::uint32_t>(size_of(to.dtype)),
                    .conversion = conversion_between(to.dtype, from.dtype, check),
                    .dst_offset = to.offset,
                    .src_offset = from.offset,
                    .dst_strides = to.strides,
                    .src_strides = from.strides};
    for (std::size_t d = 0; d < box.start.size(); ++d) {
      field.dst_offset += static_cast<std::int64_t>(box.start[d] - dst.box.start[d]) * to.strides[d];
      field.src_offset += static_cast<std::int64_t>(box.start[d] - src.box.start[d]) * from.strides[d];
    }
    fields_.push_back(std::move(field));
  }
  merge_fields();
  const std::uint64_t structure = std::max(dst.structure_bytes, src.structure_bytes);
  if (fields_.size() > 1 && structure > 0) choose_chunk(structure);
}

// Fields that are neighbours on both sides and do not change move as one.
void ArrayConversion::merge_fields() {
  std::ranges::sort(fields_, {}, &FieldCopy::dst_offset);
  std::vector<FieldCopy> merged;
  for (FieldCopy& field : fields_) {
    FieldCopy* last = merged.empty() ? nullptr : &merged.back();
    if (last && !last->conversion.run && !field.conversion.run &&
        last->dst_offset + last->dst_size == field.dst_offset &&
        last->src_offset + last->dst_size == field.src_offset && last->dst_strides == field.dst_strides &&
        last->src_strides == field.src_strides)
      last->dst_size += field.dst_size;
    else merged.push_back(std::move(field));
  }
  fields_ = std::move(merged);
}

// A chunk grows in turns along the dimensions in which the two sides are dense.
void ArrayConversion::choose_chunk(std::uint64_t structure_bytes) {
  chunk_ = Dims::filled(box_.count.size(), 1);
  const std::vector<std::size_t> dense[] = {fastest_first(fields_[0].dst_strides, box_.count),
                                            fastest_first(fields_[0].src_strides, box_.count)};
  for (std::uint64_t elements = 1; elements * structure_bytes < chunk_bytes;) {
    std::size_t best = chunk_.size();
    for (const auto& dims : dense) {
      const auto open = std::ranges::find_if(dims, [&](std::size_t d) { return chunk_[d] < box_.count[d]; });
      if (open != dims.end() && (best == chunk_.size() || chunk_[*open] < chunk_[best])) best = *open;
    }
    if (best == chunk_.size()) break;
    chunk_[best] = std::min(2 * chunk_[best], box_.count[best]);
    elements = element_count(chunk_);
  }
}

std::uint64_t ArrayConversion::bytes() const {
  std::uint64_t bytes = 0;
  for (const FieldCopy& field : fields_) bytes += field.dst_size;
  return bytes * element_count(box_.count);
}

bool ArrayConversion::FieldCopy::run(std::byte* dst, const std::byte* src, const Box& part,
                                     std::uint64_t of_bytes) const {
  const auto copy =
      normalise(dst_strides.data(), src_strides.data(), part.count.begin(), part.count.size(), dst_size, conversion);
  return model::run(copy, dst + dst_offset + offset_of_start(part.start, dst_strides),
                    src + src_offset + offset_of_start(part.start, src_strides), of_bytes);
}

// part: within the box, from its start.
bool ArrayConversion::run_part(std::byte* dst, const std::byte* src, const Box& part, std::uint64_t of_bytes) const {
  bool accepted = true;
  for_each_chunk(part, chunk_.empty() ? part.count : chunk_, [&](const Box& chunk) {
    for (const FieldCopy& field : fields_) accepted &= field.run(dst, src, chunk, of_bytes);
    return true;
  });
  return accepted;
}

void ArrayConversion::run(void* dst, const void* src, const Executor& executor, std::uint64_t of_bytes) const {
  if (const auto refusal = try_run(dst, src, executor, of_bytes)) throw Error(Errc::invalid_argument, refusal->text);
}

void ArrayConversion::verify(const void* src_base) const {
  if (is_empty(box_)) return;
  const auto* src = static_cast<const std::byte*>(src_base);
  Dims chunk = Dims::filled(box_.count.size(), 1);
  std::uint64_t elements = 1;
  for (const std::size_t d : fastest_first(fields_[0].src_strides, box_.count)) {
    chunk[d] = std::clamp<std::uint64_t>(chunk_bytes / (elements * largest_element), 1, box_.count[d]);
    elements *= chunk[d];
  }
  std::vector<std::byte> converted(elements * largest_element);
  for_each_chunk({Dims::filled(box_.count.size(), 0), box_.count}, chunk, [&](const Box& part) {
    for (const FieldCopy& field : fields_) {
      if (!field.conversion.run) continue;
      const Strides packed = packed_strides(part.count, field.dst_size, Order::row);
      const auto copy = normalise(packed.data(), field.src_strides.data(), part.count.begin(), part.count.size(),
                                  field.dst_size, field.conversion);
      if (!model::run(copy, converted.data(), src + field.src_offset + offset_of_start(part.start, field.src_strides)))
        throw Error(Errc::invalid_argument, first_refused(src).text);
    }
    return true;
  });
}

std::optional<ArrayConversion::Refusal> ArrayConversion::try_run(void* dst_base, const void* src_base,
                                                                 const Executor& executor,
                                                                 std::uint64_t of_bytes) const {
  if (is_empty(box_)) return std::nullopt;
  of_bytes = std::max(of_bytes, bytes());
  auto* dst = static_cast<std::byte*>(dst_base);
  const auto* src = static_cast<const std::byte*>(src_base);
  const Box all{Dims::filled(box_.count.size(), 0), box_.count};
  std::uint64_t parts = executor.run ? std::min<std::uint64_t>(executor.parts, bytes() / part_bytes) : 1;
  // The destination's slowest dimension that is long enough, else its longest; if it can be, not the one whose runs are those
  // of the source.
  const auto dense_dst = fastest_first(fields_[0].dst_strides, box_.count);
  const auto dense_src = fastest_first(fields_[0].src_strides, box_.count);
  std::size_t split = dense_dst.empty() ? 0 : dense_dst.front();
  for (const std::size_t d : dense_dst)
    if (box_.count[d] >= std::min(parts, box_.count[split]) && (d != dense_src.front() || split == dense_dst.front()))
      split = d;
  if (parts > 1) parts = std::min(parts, box_.count[split]);
  std::atomic<bool> accepted{true};
  const auto run_one = [&](std::size_t i) {
    Box part = all;
    const std::uint64_t length = box_.count[split] / parts, longer = box_.count[split] % parts;
    part.start[split] = length * i + std::min<std::uint64_t>(i, longer);
    part.count[split] = length + (i < longer ? 1 : 0);
    if (!run_part(dst, src, part, of_bytes)) accepted = false;
  };
  if (parts > 1) executor.run(parts, run_one);
  else if (!run_part(dst, src, all, of_bytes)) accepted = false;
  if (accepted) return std::nullopt;
  return first_refused(src);
}

ArrayConversion::Refusal ArrayConversion::first_refused(const std::byte* src) const {
  std::byte converted[largest_element];
  const FieldCopy* refused = nullptr;
  const std::byte* element = nullptr;
  Dims index;
  for_each_chunk({Dims::filled(box_.count.size(), 0), box_.count}, Dims::filled(box_.count.size(), 1),
                 [&](const Box& at) {
                   for (const FieldCopy& field : fields_) {
                     element = src + field.src_offset + offset_of_start(at.start, field.src_strides);
                     if (!field.conversion.run || field.conversion.run(converted, element, 1)) continue;
                     refused = &field;
                     index = at.start;
                     return false;
                   }
                   return true;
                 });
  if (!refused) throw Error(Errc::internal, "the source changed during its conversion");
  const bool in_range =
      conversion_between(refused->dst_type, refused->src_type, Check::range).run(converted, element, 1);
  const std::string type(name_of(refused->dst_type));
  const std::string field = refused->name.empty() ? "" : " of field '" + refused->name + "'";
  const std::string why = in_range ? ", which " + type + " does not hold exactly" : ", outside the range of " + type;
  for (std::size_t d = 0; d < index.size(); ++d) index[d] += box_.start[d];
  return {index, "element " + index_text(index) + field + " is " + value_text(refused->src_type, element) + why};
}

}  // namespace penstock::model
