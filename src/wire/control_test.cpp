#include "wire/control.hpp"

#include <gtest/gtest.h>

#include <random>

#include "penstock/error.hpp"

namespace penstock::wire {
namespace {

std::vector<std::byte> encoded(const Message& message) {
  std::vector<std::byte> bytes;
  encode(message, bytes);
  return bytes;
}

Message full_message(Kind kind) {
  Message m{
      .kind = kind, .step = 7, .epoch = 1ull << 60, .value = 9, .slot = 3, .ranks = 12, .flag = true, .text = "host:1"};
  m.layouts = {{4, std::make_shared<const std::string>("layout")}};
  m.addresses = {"here", "", "there"};
  return m;
}

model::RankLayout sample_layout() {
  model::RankLayout layout;
  layout.rank = 2;
  layout.variables = {{"T", DType::float64, penstock::Kind::global_array, Order::column, {8, 4}, true},
                      {"label", DType::string, penstock::Kind::global_value, Order::row, {}, false}};
  layout.blocks = {{0, Box{{0, 0}, {4, 4}}, 0, 128, 128}, {0, Box{{4, 0}, {4, 4}}, 1, 64, 128}, {1, Box{}, 0, 128, 0}};
  return layout;
}

Payload sample_payload() {
  Payload payload;
  payload.attributes = {{"time", Attribute::of(0.5)}, {"names", Attribute::of(std::vector<std::string>{"a", "", "c"})}};
  payload.strings = {{2, "hello"}};
  Range range{0, {}};
  range.range.dtype = DType::float64;
  payload.ranges = {range};
  return payload;
}

TEST(Control, every_kind_round_trips) {
  for (std::uint16_t k = 1; k < kind_count; ++k) {
    const auto kind = static_cast<Kind>(k);
    EXPECT_NE(name_of(kind), "unknown");
    const auto m = decode_message(encoded(full_message(kind)));
    EXPECT_EQ(m.kind, kind);
    EXPECT_EQ(m.step, 7u);
    EXPECT_EQ(m.epoch, 1ull << 60);
    EXPECT_EQ(m.value, 9u);
    EXPECT_EQ(m.slot, 3u);
    EXPECT_EQ(m.ranks, 12u);
    EXPECT_TRUE(m.flag);
    EXPECT_EQ(m.text, "host:1");
    ASSERT_EQ(m.layouts.size(), 1u);
    EXPECT_EQ(*m.layouts[0].layout, "layout");
    EXPECT_EQ(m.addresses, full_message(kind).addresses);
  }
}

TEST(Control, strides_travel_with_blocks_that_have_them) {
  auto layout = sample_layout();
  layout.blocks[1].strides = {48, 8};
  layout.blocks[1].segment = model::max_segments - 1;
  auto text = encode_layout(layout, false);
  EXPECT_EQ(decode_layout(2, std::as_bytes(std::span(text))).layout, layout);
  layout.blocks[1].strides = {~std::uint64_t{0} / 4, 8};
  text = encode_layout(layout, false);
  EXPECT_THROW(decode_layout(2, std::as_bytes(std::span(text))), Error);
}

TEST(Control, layout_and_payload_round_trip) {
  const auto text = encode_layout(sample_layout(), true);
  const auto layout = decode_layout(2, std::as_bytes(std::span(text)));
  EXPECT_EQ(layout.layout, sample_layout());
  EXPECT_TRUE(layout.has_payload);
  std::vector<std::byte> bytes;
  encode(sample_payload(), bytes);
  const auto payload = decode_payload(bytes);
  EXPECT_EQ(payload.attributes, sample_payload().attributes);
  EXPECT_EQ(payload.strings.at(0).text, "hello");
  EXPECT_EQ(payload.ranges.at(0).range.dtype, DType::float64);
}

TEST(Control, out_of_range_is_refused) {
  const auto refused = [](const Message& m) {
    try {
      decode_message(encoded(m));
    } catch (const Error& e) {
      return e.code() == Errc::protocol;
    }
    return false;
  };
  EXPECT_TRUE(refused({.kind = static_cast<Kind>(kind_count)}));
  EXPECT_TRUE(refused({.kind = Kind::none}));
  EXPECT_TRUE(refused({.kind = Kind::announce, .slot = max_slots + 1}));
  EXPECT_TRUE(refused({.kind = Kind::join, .ranks = max_ranks + 1}));
  EXPECT_TRUE(refused({.kind = Kind::lost, .text = std::string(max_text_bytes + 1, 'x')}));
}

// Whatever arrives is either decoded or refused as a protocol error: nothing else, and no crash.
template <class Decode>
void attack(std::vector<std::byte> valid, Decode decode, std::mt19937& random) {
  const auto attempt = [&](std::span<const std::byte> bytes) {
    try {
      decode(bytes);
    } catch (const Error& e) {
      EXPECT_TRUE(e.code() == Errc::protocol || e.code() == Errc::invalid_argument) << e.what();
    }
  };
  for (std::size_t n = 0; n < valid.size(); ++n) attempt(std::span(valid).first(n));
  for (int i = 0; i < 3000; ++i) {
    auto bytes = valid;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    attempt(bytes);
  }
}

TEST(Control, mutated_messages_are_decoded_or_refused) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  attack(
      encoded(full_message(Kind::admit)), [](auto bytes) { decode_message(bytes); }, random);
  const auto layout = encode_layout(sample_layout(), true);
  const auto raw = std::as_bytes(std::span(layout));
  attack(
      {raw.begin(), raw.end()}, [](auto bytes) { decode_layout(2, bytes); }, random);
  std::vector<std::byte> payload;
  encode(sample_payload(), payload);
  attack(
      payload, [](auto bytes) { decode_payload(bytes); }, random);
}

TEST(Control, announcements_are_of_constant_size) {
  const auto small = encoded({.kind = Kind::announce, .step = 1, .epoch = 1, .slot = 1}).size();
  const auto large = encoded({.kind = Kind::announce, .step = ~0ull, .epoch = ~0ull, .slot = max_slots}).size();
  EXPECT_EQ(small, large);
}

}  // namespace
}  // namespace penstock::wire
