// Control messages, layouts (as far as the epoch that readers make of them), and payloads.
#include "fuzz.hpp"
#include "model/layout.hpp"
#include "wire/control.hpp"

using namespace penstock;
using fuzz::Bytes;

namespace {

enum Target : std::uint8_t { message, layout, payload, targets };

Bytes encoded(const wire::Message& m) {
  Bytes out;
  wire::encode(m, out);
  return out;
}

model::RankLayout some_layout(int rank, std::uint64_t width) {
  model::RankLayout l;
  l.rank = rank;
  l.variables.push_back({"T", DType::float64, Kind::global_array, Order::row, Dims{64, width}, true});
  l.variables.push_back({"particles", DType::float32, Kind::local_array, Order::column, {}, false});
  l.variables.push_back({"time", DType::float64, Kind::global_value, Order::row, {}, false});
  l.variables.push_back({"name", DType::string, Kind::local_value, Order::row, {}, false});
  l.blocks.push_back({0, Box{Dims{0, 0}, Dims{8, 8}}, 0, 0, 512});
  l.blocks.push_back({0, Box{Dims{8, 8}, Dims{8, 8}}, 0, 512, 512});
  l.blocks.push_back({0, Box{Dims{16, 0}, Dims{8, 8}}, model::max_segments - 1, 0, 512, {640, 8}});  // lent
  l.blocks.push_back({1, Box{Dims{0}, Dims{16}}, 0, 1024, 64});
  l.blocks.push_back({2, {}, 0, 1088, 8});
  l.blocks.push_back({3, {}, 0, 0, 0});
  return l;
}

// What is decoded is what was meant: encoded again it decodes to the same.
void check_message(std::span<const std::byte> bytes) {
  wire::Message m;
  if (!fuzz::refuses_with({Errc::protocol}, [&] { m = wire::decode_message(bytes); })) return;
  const auto again = wire::decode_message(encoded(m));
  fuzz::check(again.kind == m.kind && again.step == m.step && again.epoch == m.epoch && again.value == m.value &&
              again.slot == m.slot && again.ranks == m.ranks && again.flag == m.flag && again.text == m.text &&
              again.addresses == m.addresses && again.layouts.size() == m.layouts.size());
  for (std::size_t i = 0; i < m.layouts.size(); ++i)
    fuzz::check(*again.layouts[i].layout == *m.layouts[i].layout && again.layouts[i].rank == m.layouts[i].rank);
}

void check_layout(std::span<const std::byte> bytes) {
  wire::Layout decoded;
  if (!fuzz::refuses_with({Errc::protocol}, [&] { decoded = wire::decode_layout(1, bytes); })) return;
  const auto blob = wire::encode_layout(decoded.layout, decoded.has_payload);
  fuzz::check(wire::decode_layout(1, std::as_bytes(std::span(blob))).layout == decoded.layout);
  auto layouts = std::vector{std::make_shared<const model::RankLayout>(some_layout(0, 32)),
                             std::make_shared<const model::RankLayout>(decoded.layout)};
  fuzz::refuses_with({Errc::protocol}, [&] {
    const auto epoch = model::Epoch::build(1, layouts);
    std::vector<std::uint32_t> found;
    for (const auto& info : epoch->variables())
      if (info.kind == Kind::global_array) epoch->variable(info.name).query(whole(info.shape), found);
  });
}

void check_payload(std::span<const std::byte> bytes) {
  wire::Payload p;
  if (!fuzz::refuses_with({Errc::protocol}, [&] { p = wire::decode_payload(bytes); })) return;
  Bytes again;
  wire::encode(p, again);
  const auto second = wire::decode_payload(again);
  fuzz::check(second.attributes.size() == p.attributes.size() && second.strings.size() == p.strings.size() &&
              second.ranges.size() == p.ranges.size());
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  std::vector<Bytes> all;
  for (std::uint16_t k = 1; k < wire::kind_count; ++k)
    all.push_back(choose(message, encoded({.kind = static_cast<wire::Kind>(k), .step = k, .slot = 1, .ranks = 4})));
  all.push_back(choose(
      message,
      encoded({.kind = wire::Kind::admit, .slot = 4, .ranks = 2, .text = "node:17", .addresses = {"tcp {}", ""}})));
  const auto blob = std::make_shared<const std::string>(wire::encode_layout(some_layout(1, 32), true));
  all.push_back(
      choose(message, encoded({.kind = wire::Kind::epoch, .epoch = 2, .value = 1, .layouts = {{0, blob}, {1, blob}}})));
  for (const std::uint64_t width : {8, 32})
    all.push_back(choose(layout, wire::encode_layout(some_layout(1, width), width == 8)));
  wire::Payload p;
  p.attributes.emplace_back("time", Attribute::of(0.5));
  p.attributes.emplace_back("title", Attribute::of(std::string("heat")));
  p.strings.push_back({4, "name"});
  p.ranges.push_back({0, {}});
  p.ranges.back().range.dtype = DType::float64;
  Bytes encoded_payload;
  wire::encode(p, encoded_payload);
  all.push_back(choose(payload, encoded_payload));
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % targets) {
    case message: check_message(bytes); break;
    case layout: check_layout(bytes); break;
    case payload: check_payload(bytes); break;
  }
  return 0;
}
