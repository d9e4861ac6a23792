#include "stream/protocol/agreement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/error.hpp"
#include "stream/protocol/writer_protocol.hpp"

namespace penstock::stream {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A rank's layout: "v" of this shape, put or only defined, beside a variable that no other rank has.
wire::RankBlob rank_layout(std::uint32_t rank, std::uint64_t rows, bool put = true) {
  model::RankLayout l;
  l.rank = static_cast<int>(rank);
  l.variables = {{"own" + std::to_string(rank), DType::int8, penstock::Kind::local_array, Order::row, {}, false},
                 {"v", DType::float64, penstock::Kind::global_array, Order::row, {rows, 8}, false}};
  if (put) l.blocks = {{1, {{0, 0}, {1, 8}}, 0, 64, 64}};
  return {rank, std::make_shared<const std::string>(wire::encode_layout(l, false))};
}

TEST(Agreement, NamesTwoRanksAndWhatTheyHave) {
  Agreement ranks(3);
  EXPECT_EQ(ranks.disagreement({rank_layout(0, 10), rank_layout(1, 10), rank_layout(2, 11, false)}), "");
  EXPECT_THAT(
      ranks.disagreement({rank_layout(2, 11)}),
      AllOf(HasSubstr("'v'"), HasSubstr("rank 0 has"), HasSubstr("10x8"), HasSubstr("rank 2 has"), HasSubstr("11x8")));
  EXPECT_NE(ranks.disagreement({}), "") << "while it stands";
  EXPECT_NE(ranks.disagreement({rank_layout(0, 11)}), "");
  EXPECT_EQ(ranks.disagreement({rank_layout(1, 11)}), "");
  EXPECT_THROW(ranks.disagreement({{0, std::make_shared<const std::string>("no layout")}}), Error);
}

struct SentMessages : Sink {
  std::vector<std::pair<LinkId, wire::Message>> sent;
  void send(LinkId link, const wire::Message& message) override { sent.emplace_back(link, message); }
  const wire::Message* find(LinkId link, wire::Kind kind) const {
    for (const auto& [to, message] : sent)
      if (to == link && message.kind == kind) return &message;
    return nullptr;
  }
};

TEST(WriterProtocol, RanksThatDisagreeBreakTheCohort) {
  constexpr LinkId reader = first_reader_link;
  SentMessages sink;
  WriterProtocol root(0, {.ranks = 2, .queue_steps = 3}, sink);
  root.require_agreement();
  root.ledger().join(reader, 1, false, "a");
  const auto write = [&](std::uint64_t rows_of_0, std::uint64_t rows_of_1, bool voided) {
    const auto grant = *root.take_grant();
    root.record(grant, false, rank_layout(0, rows_of_0).layout);
    root.on_message(1, wire::Message{.kind = wire::Kind::record,
                                     .step = grant.step,
                                     .slot = grant.slot,
                                     .ranks = 1,
                                     .flag = voided,
                                     .layouts = {rank_layout(1, rows_of_1)}});
  };
  write(10, 10, false);
  EXPECT_NE(sink.find(reader, wire::Kind::announce), nullptr);
  write(11, 10, true);
  EXPECT_FALSE(root.broken()) << "the step is void anyhow";
  write(11, 10, false);
  ASSERT_TRUE(root.broken());
  EXPECT_EQ(root.broken_code(), Errc::invalid_argument);
  EXPECT_THAT(root.broken_why(), AllOf(HasSubstr("step 2"), HasSubstr("11x8")));
  ASSERT_NE(sink.find(1, wire::Kind::lost), nullptr);
  ASSERT_NE(sink.find(reader, wire::Kind::lost), nullptr);
  EXPECT_EQ(sink.find(reader, wire::Kind::lost)->text, root.broken_why());

  WriterProtocol other(1, {.ranks = 2, .queue_steps = 3}, sink);
  other.on_message(parent_link, *sink.find(1, wire::Kind::lost));
  EXPECT_EQ(other.broken_code(), Errc::invalid_argument);
}

}  // namespace
}  // namespace penstock::stream
