#include "transport/bulk_messages.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "transport/shm/bulk_memory.hpp"

namespace penstock::transport {
namespace {

Errc refusal_of(const BulkMessage& message, std::string_view text = {}) {
  try {
    std::string_view back;
    decode_bulk_message(encode(message, text), back);
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::ok;
}

TEST(BulkMessages, ComeBackAsTheyWere) {
  const BulkMessage message{BulkMessageKind::compare_swap, 0, 16, 1, 8, 3, 4};
  std::string_view text;
  const auto back = decode_bulk_message(encode(message), text);
  EXPECT_EQ(back.kind, message.kind);
  EXPECT_EQ(back.id, 16u);
  EXPECT_EQ(back.a, 1u);
  EXPECT_EQ(back.b, 8u);
  EXPECT_EQ(back.c, 3u);
  EXPECT_EQ(back.d, 4u);
  EXPECT_EQ(text, "");
}

TEST(BulkMessages, FailuresCarryACodeAndAText) {
  BulkMessage failure{BulkMessageKind::atomic_failure, static_cast<std::uint32_t>(Errc::timeout), 5};
  const std::string long_text(2 * max_failure_bytes, 'x');
  auto bytes = encode(failure, long_text);
  std::string_view text;
  EXPECT_EQ(static_cast<Errc>(decode_bulk_message(bytes, text).code), Errc::timeout);
  EXPECT_EQ(text.size(), max_failure_bytes);
  failure.code = 9999;  // of a later release
  bytes = encode(failure, "why");
  EXPECT_EQ(static_cast<Errc>(decode_bulk_message(bytes, text).code), Errc::internal);
  EXPECT_EQ(text, "why");
}

TEST(BulkMessages, MalformedOnesAreRefused) {
  EXPECT_EQ(refusal_of({BulkMessageKind::segment, 1, 1, 4096}), Errc::ok);
  EXPECT_EQ(refusal_of({BulkMessageKind::segment, 1, 0, 4096}), Errc::protocol);
  EXPECT_EQ(refusal_of({BulkMessageKind::segment, 1, std::uint64_t{1} << 32, 4096}), Errc::protocol);
  EXPECT_EQ(refusal_of({BulkMessageKind::segment, 2, 1, 4096}), Errc::protocol);
  EXPECT_EQ(refusal_of({BulkMessageKind::segment, 1, 1, 0}), Errc::protocol);
  EXPECT_EQ(refusal_of({BulkMessageKind::leases, 0, 0, 12}), Errc::protocol);
  EXPECT_EQ(refusal_of({BulkMessageKind::forget, 0, 1}, "more"), Errc::protocol);
  EXPECT_EQ(refusal_of({static_cast<BulkMessageKind>(0)}), Errc::protocol);
  EXPECT_EQ(refusal_of({static_cast<BulkMessageKind>(10)}), Errc::protocol);
  std::string_view text;
  EXPECT_THROW(decode_bulk_message(std::vector<std::byte>(47), text), Error);
  EXPECT_THROW(decode_ticket(std::vector<std::byte>(15)), Error);
}

TEST(BulkSegmentTest, KeepsCallbacksOfThoseWhoLiveOnly) {
  const auto lives = std::make_shared<int>();
  const auto kept = std::make_shared<int>();  // held by each callback
  int told = 0;
  {
    BulkSegment segment(7, 1);
    segment.on_gone(lives, [&told, kept](std::uint32_t number) { told += static_cast<int>(number); });
    for (int i = 0; i < 10; ++i) {
      const auto gone = std::make_shared<int>();
      segment.on_gone(gone, [&told, kept](std::uint32_t) { told += 1000; });
      EXPECT_EQ(kept.use_count(), 3);
    }
  }
  EXPECT_EQ(told, 7);
}

}  // namespace
}  // namespace penstock::transport
