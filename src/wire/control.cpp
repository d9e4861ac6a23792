#include "wire/control.hpp"

#include <algorithm>
#include <cstring>

#include "penstock/error.hpp"
#include "wire/control_generated.h"
#include "wire/verified.hpp"

namespace penstock::wire {
namespace {

constexpr std::size_t max_tables = 1u << 22;

[[noreturn]] void refuse(const std::string& what) { throw Error(Errc::protocol, "malformed message: " + what); }

void append(const flatbuffers::FlatBufferBuilder& from, std::vector<std::byte>& out) {
  const auto* begin = reinterpret_cast<const std::byte*>(from.GetBufferPointer());
  out.insert(out.end(), begin, begin + from.GetSize());
}

// FlatBuffers wants its scalars aligned; bytes from a socket buffer may not be.
template <class Table>
const Table* verified(std::span<const std::byte> bytes, std::vector<std::uint64_t>& storage, const char* what) {
  if (bytes.empty() || bytes.size() > max_message_bytes)
    refuse(std::string(what) + " of " + std::to_string(bytes.size()) + " bytes");
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  if (reinterpret_cast<std::uintptr_t>(data) % alignof(std::uint64_t) != 0) {
    storage.resize((bytes.size() + 7) / 8);
    std::memcpy(storage.data(), data, bytes.size());
    data = reinterpret_cast<const std::uint8_t*>(storage.data());
  }
  flatbuffers::Verifier verifier(data, bytes.size(), 16, max_tables);
  if (!verifier.VerifyBuffer<Table>(nullptr)) refuse(std::string(what) + " does not verify");
  return flatbuffers::GetRoot<Table>(data);
}

std::string text_of(const flatbuffers::String* text) { return text ? text->str() : std::string(); }

template <class Vector>
std::size_t length(const Vector* v) {
  return v ? v->size() : 0;
}

std::vector<std::byte> bytes_of(const flatbuffers::Vector<std::uint8_t>* v) {
  if (!v) return {};
  const auto* begin = reinterpret_cast<const std::byte*>(v->data());
  return {begin, begin + v->size()};
}

flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> write_bytes(flatbuffers::FlatBufferBuilder& fbb,
                                                                   const void* data, std::size_t size) {
  return fbb.CreateVector(static_cast<const std::uint8_t*>(data), size);
}

DType checked_dtype(std::uint8_t value) {
  if (value == 0 || value >= dtype_count) refuse("element type " + std::to_string(value));
  return static_cast<DType>(value);
}

model::VariableDefinition definition_of(const fb::VariableDef& v) {
  model::VariableDefinition definition;
  definition.name = text_of(v.name());
  definition.dtype = checked_dtype(v.dtype());
  if (v.kind() > static_cast<std::uint8_t>(penstock::Kind::local_value) || v.order() > 1)
    refuse("variable " + definition.name);
  definition.kind = static_cast<penstock::Kind>(v.kind());
  definition.order = static_cast<Order>(v.order());
  definition.min_max = v.min_max();
  if (length(v.shape()) > max_dims) refuse("shape of " + definition.name);
  if (const auto* shape = aligned(v.shape())) definition.shape = Dims(std::span(shape->data(), shape->size()));
  return definition;
}

}  // namespace

std::string_view name_of(Kind kind) {
  const auto* name = fb::EnumNameKind(static_cast<fb::Kind>(kind));
  return name && *name ? name : "unknown";
}

void encode(const Message& m, std::vector<std::byte>& out) {
  auto& fbb = thread_builder();
  flatbuffers::Offset<flatbuffers::String> text;
  if (!m.text.empty()) text = fbb.CreateString(m.text);
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::RankBlob>>> layouts;
  if (!m.layouts.empty()) {
    std::vector<flatbuffers::Offset<fb::RankBlob>> blobs;
    blobs.reserve(m.layouts.size());
    for (const auto& blob : m.layouts)
      blobs.push_back(fb::CreateRankBlob(fbb, blob.rank, write_bytes(fbb, blob.layout->data(), blob.layout->size())));
    layouts = fbb.CreateVector(blobs);
  }
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>> addresses;
  if (!m.addresses.empty()) addresses = fbb.CreateVectorOfStrings(m.addresses);
  fbb.Finish(fb::CreateControl(fbb, static_cast<fb::Kind>(m.kind), m.step, m.epoch, m.value, m.slot, m.ranks, m.flag,
                               text, layouts, addresses));
  append(fbb, out);
}

Message decode_message(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> storage;
  const auto* control = verified<fb::Control>(bytes, storage, "control message");
  Message m;
  const auto kind = static_cast<std::uint16_t>(control->kind());
  if (kind == 0 || kind >= kind_count) refuse("kind " + std::to_string(kind));
  m.kind = static_cast<Kind>(kind);
  m.step = control->step();
  m.epoch = control->epoch();
  m.value = control->value();
  m.slot = control->slot();
  m.ranks = control->ranks();
  m.flag = control->flag();
  if (m.slot > max_slots) refuse("slot " + std::to_string(m.slot));
  if (m.ranks > max_ranks) refuse(std::to_string(m.ranks) + " ranks");
  if (length(control->text()) > max_text_bytes) refuse("text of " + std::to_string(control->text()->size()) + " bytes");
  m.text = text_of(control->text());
  if (const auto* layouts = control->layouts()) {
    if (layouts->size() > max_ranks) refuse("too many layouts");
    m.layouts.reserve(layouts->size());
    for (const auto* blob : *layouts) {
      if (blob->rank() >= max_ranks || length(blob->layout()) == 0)
        refuse("layout of rank " + std::to_string(blob->rank()));
      const auto* data = reinterpret_cast<const char*>(blob->layout()->data());
      m.layouts.push_back({blob->rank(), std::make_shared<const std::string>(data, blob->layout()->size())});
    }
  }
  if (const auto* addresses = control->addresses()) {
    if (addresses->size() > max_ranks) refuse("too many addresses");
    m.addresses.reserve(addresses->size());
    for (const auto* address : *addresses) {
      m.addresses.push_back(address->str());
      if (address->size() > max_text_bytes || m.addresses.back().find('\n') != std::string::npos)
        refuse("an address of " + std::to_string(address->size()) + " bytes, or of several lines");
    }
  }
  return m;
}

std::string encode_layout(const model::RankLayout& layout, bool has_payload) {
  flatbuffers::FlatBufferBuilder fbb(1024);
  std::vector<flatbuffers::Offset<fb::VariableDef>> variables;
  for (const auto& v : layout.variables) {
    const std::vector<std::uint64_t> shape(v.shape.begin(), v.shape.end());
    variables.push_back(fb::CreateVariableDef(fbb, fbb.CreateString(v.name), static_cast<std::uint8_t>(v.dtype),
                                              static_cast<std::uint8_t>(v.kind), static_cast<std::uint8_t>(v.order),
                                              v.min_max, fbb.CreateVector(shape)));
  }
  std::vector<std::uint32_t> variable, segment;
  std::vector<std::uint8_t> dims;
  std::vector<std::uint64_t> starts, counts, offset, bytes, strides;
  const bool strided = std::ranges::any_of(layout.blocks, [](const auto& b) { return !b.strides.empty(); });
  for (const auto& b : layout.blocks) {
    variable.push_back(b.variable);
    dims.push_back(static_cast<std::uint8_t>(b.box.count.size()));
    for (std::size_t d = 0; d < b.box.count.size(); ++d) {
      starts.push_back(b.box.start.empty() ? 0 : b.box.start[d]);
      counts.push_back(b.box.count[d]);
      if (strided) strides.push_back(b.strides.empty() ? 0 : b.strides[d]);
    }
    segment.push_back(b.segment);
    offset.push_back(b.offset);
    bytes.push_back(b.bytes);
  }
  const auto variables_at = fbb.CreateVector(variables);
  const auto variable_at = fbb.CreateVector(variable);
  const auto dims_at = fbb.CreateVector(dims);
  const auto starts_at = fbb.CreateVector(starts);
  const auto counts_at = fbb.CreateVector(counts);
  const auto segment_at = fbb.CreateVector(segment);
  const auto offset_at = fbb.CreateVector(offset);
  const auto bytes_at = fbb.CreateVector(bytes);
  flatbuffers::Offset<flatbuffers::Vector<std::uint64_t>> strides_at;
  if (strided) strides_at = fbb.CreateVector(strides);
  fbb.Finish(fb::CreateLayout(fbb, variables_at, variable_at, dims_at, starts_at, counts_at, segment_at, offset_at,
                              bytes_at, has_payload, strides_at));
  return {reinterpret_cast<const char*>(fbb.GetBufferPointer()), fbb.GetSize()};
}

Layout decode_layout(std::uint32_t rank, std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> storage;
  const auto* table = verified<fb::Layout>(bytes, storage, "layout");
  Layout result;
  result.has_payload = table->has_payload();
  auto& layout = result.layout;
  layout.rank = static_cast<int>(rank);
  if (const auto* variables = table->variables())
    for (const auto* v : *variables) layout.variables.push_back(definition_of(*v));
  const std::size_t blocks = length(table->block_variable());
  if (length(table->block_dims()) != blocks || length(table->segment()) != blocks ||
      length(table->offset()) != blocks || length(table->bytes()) != blocks ||
      length(table->starts()) != length(table->counts()) ||
      (table->strides() && length(table->strides()) != length(table->counts())))
    refuse("layout arrays of different lengths");
  for (const auto* numbers : {table->starts(), table->counts(), table->offset(), table->bytes(), table->strides()})
    aligned(numbers);
  std::size_t at = 0;
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto index = static_cast<flatbuffers::uoffset_t>(i);
    const std::size_t dims = table->block_dims()->Get(index);
    if (dims > max_dims || at + dims > length(table->counts())) refuse("block " + std::to_string(i));
    model::BlockDefinition block;
    block.variable = table->block_variable()->Get(index);
    if (dims > 0) {
      block.box.start = Dims(std::span(table->starts()->data() + at, dims));
      block.box.count = Dims(std::span(table->counts()->data() + at, dims));
      if (table->strides()) {
        const std::span strides(table->strides()->data() + at, dims);
        if (std::ranges::any_of(strides, [](auto stride) { return stride != 0; }))
          block.strides.assign(strides.begin(), strides.end());
      }
    }
    at += dims;
    block.segment = table->segment()->Get(index);
    block.offset = table->offset()->Get(index);
    block.bytes = table->bytes()->Get(index);
    layout.blocks.push_back(std::move(block));
  }
  model::validate(layout);
  return result;
}

std::vector<model::VariableDefinition> decode_put_variables(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> storage;
  const auto* table = verified<fb::Layout>(bytes, storage, "layout");
  std::vector<bool> put(length(table->variables()));
  if (const auto* variables = table->block_variable())
    for (const auto variable : *variables) {
      if (variable >= put.size()) refuse("a block of variable " + std::to_string(variable));
      put[variable] = true;
    }
  std::vector<model::VariableDefinition> definitions;
  for (std::size_t i = 0; i < put.size(); ++i)
    if (put[i]) definitions.push_back(definition_of(*table->variables()->Get(static_cast<flatbuffers::uoffset_t>(i))));
  return definitions;
}

void encode(const Payload& payload, std::vector<std::byte>& out) {
  auto& fbb = thread_builder();
  std::vector<flatbuffers::Offset<fb::Attribute>> attributes;
  for (const auto& [name, a] : payload.attributes) {
    const auto name_at = fbb.CreateString(name);
    const auto bytes_at = write_bytes(fbb, a.bytes.data(), a.bytes.size());
    const auto strings_at = fbb.CreateVectorOfStrings(a.strings);
    attributes.push_back(
        fb::CreateAttribute(fbb, name_at, static_cast<std::uint8_t>(a.dtype), a.is_array, bytes_at, strings_at));
  }
  std::vector<flatbuffers::Offset<fb::StringValue>> strings;
  for (const auto& s : payload.strings)
    strings.push_back(fb::CreateStringValue(fbb, s.block, fbb.CreateString(s.text)));
  std::vector<flatbuffers::Offset<fb::Range>> ranges;
  for (const auto& r : payload.ranges) {
    const auto size = size_of(r.range.dtype);
    const auto min_at = write_bytes(fbb, r.range.min, size);
    const auto max_at = write_bytes(fbb, r.range.max, size);
    ranges.push_back(fb::CreateRange(fbb, r.block, static_cast<std::uint8_t>(r.range.dtype), min_at, max_at));
  }
  const auto attributes_at = fbb.CreateVector(attributes);
  const auto strings_at = fbb.CreateVector(strings);
  const auto ranges_at = fbb.CreateVector(ranges);
  fbb.Finish(fb::CreatePayload(fbb, attributes_at, strings_at, ranges_at));
  append(fbb, out);
}

Payload decode_payload(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> storage;
  const auto* table = verified<fb::Payload>(bytes, storage, "payload");
  Payload payload;
  if (table->attributes()) {
    for (const auto* a : *table->attributes()) {
      Attribute attribute{checked_dtype(a->dtype()), a->is_array(), bytes_of(a->bytes()), {}};
      if (a->strings())
        for (const auto* s : *a->strings()) attribute.strings.push_back(text_of(s));
      const std::size_t size = size_of(attribute.dtype);
      const bool fits =
          size == 0 ? attribute.bytes.empty() : attribute.strings.empty() && attribute.bytes.size() % size == 0;
      if (!fits || (!attribute.is_array && attribute.size() != 1)) refuse("attribute " + text_of(a->name()));
      payload.attributes.emplace_back(text_of(a->name()), std::move(attribute));
    }
  }
  if (table->strings())
    for (const auto* s : *table->strings()) payload.strings.push_back({s->block(), text_of(s->text())});
  if (table->ranges()) {
    for (const auto* r : *table->ranges()) {
      Range range{r->block(), {}};
      range.range.dtype = checked_dtype(r->dtype());
      const std::size_t size = size_of(range.range.dtype);
      if (size == 0 || length(r->min()) != size || length(r->max()) != size)
        refuse("range of block " + std::to_string(r->block()));
      std::memcpy(range.range.min, r->min()->data(), size);
      std::memcpy(range.range.max, r->max()->data(), size);
      payload.ranges.push_back(range);
    }
  }
  return payload;
}

}  // namespace penstock::wire
