// Readers that leave and keep leases, the end of the stream meanwhile, and shares of the queue, message by message. (Whole
// schedules of them: schedule_test.cpp.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/error.hpp"
#include "stream/protocol/protocol_test_support.hpp"
#include "stream/protocol/reader_protocol.hpp"
#include "stream/protocol/writer_protocol.hpp"

namespace penstock::stream {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using wire::Kind;
using wire::Message;

struct LeaveRecorder : Sink {
  std::vector<std::pair<LinkId, Message>> sent;
  void send(LinkId link, const Message& message) override { sent.push_back({link, message}); }
  // What was sent on a link since the last time, "kind step" each, without descriptions.
  std::vector<std::string> take(LinkId link) {
    std::vector<std::string> texts;
    for (const auto& [to, m] : sent)
      if (to == link && m.kind != Kind::epoch)
        texts.push_back(std::string(wire::name_of(m.kind)) + " " + std::to_string(m.step));
    std::erase_if(sent, [&](const auto& s) { return s.first == link; });
    return texts;
  }
};

// One writer rank.
struct LeavableRank {
  LeaveRecorder sink;
  WriterProtocol writer;
  explicit LeavableRank(LedgerSettings settings) : writer(0, settings, sink) {}
  bool write() {
    auto grant = writer.take_grant();
    if (!grant) {
      writer.want();
      grant = writer.take_grant();
    }
    if (!grant) return false;
    if (!grant->dropped) writer.record(*grant, false, std::make_shared<const std::string>("layout"));
    return true;
  }
  void release(LinkId link, std::uint64_t step, std::uint32_t slot) {
    writer.on_message(link, Message{.kind = Kind::release, .step = step, .slot = slot});
  }
  void leave(LinkId link, std::uint64_t heard) {
    writer.on_message(link, Message{.kind = Kind::leave, .value = heard});
  }
};

TEST(Leaving, KeepsTheLeasesThatWereHeardOfAndNoOther) {
  LeavableRank w({.queue_steps = 3});
  w.writer.ledger().join(reader_a, 1, false, "a");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(w.write());
  EXPECT_THAT(w.sink.take(reader_a), ElementsAre("announce 0", "announce 1", "announce 2"));
  w.leave(reader_a, 1);  // the announcements of 1 and 2 are on their way
  EXPECT_THROW(w.leave(reader_a, 1), Error);
  EXPECT_THROW(w.release(reader_a, 1, 1), Error);
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(w.write());
  EXPECT_THAT(w.sink.take(reader_a), IsEmpty());
  EXPECT_EQ(w.writer.ledger().queue_depth(), 3u) << "two are granted";
  w.release(reader_a, 0, 0);
  EXPECT_FALSE(w.writer.ledger().has(reader_a));
}

TEST(Leaving, TheEndDoesNotWaitForLeasesThatAreKept) {
  LeavableRank w({.queue_steps = 3});
  w.writer.ledger().join(reader_a, 1, false, "a");
  w.writer.ledger().join(reader_b, 1, false, "b");
  EXPECT_TRUE(w.write());
  w.writer.closing();
  EXPECT_THAT(w.sink.take(reader_a), ElementsAre("announce 0", "goodbye 1")) << "b has still to release it";
  EXPECT_FALSE(w.writer.closed());
  w.leave(reader_a, 1);
  EXPECT_FALSE(w.writer.closed());
  EXPECT_EQ(w.writer.awaited().who, "readers to release steps: b (1 held)");
  w.release(reader_b, 0, 0);
  EXPECT_TRUE(w.writer.closed());
  w.release(reader_a, 0, 0);
}

TEST(Leaving, ARankThatLeftReleasesWhatItKept) {
  LeaveRecorder sink;
  ReaderProtocol root(0, 2, 1, 4, false, sink);
  const auto announce = [](std::uint64_t step, std::uint32_t slot) {
    return Message{.kind = Kind::announce, .step = step, .epoch = 1, .slot = slot};
  };
  root.on_message(parent_link, announce(0, 0));
  root.on_message(parent_link, announce(1, 1));
  root.on_message(1, Message{.kind = Kind::leave, .value = 1});  // it keeps step 0, and step 1 had not reached it
  root.leave();
  EXPECT_THAT(sink.take(parent_link), ElementsAre("release 1", "leave 0"));
  EXPECT_TRUE(root.holding());
  EXPECT_THROW(root.on_message(1, Message{.kind = Kind::want}), Error);
  root.on_message(1, Message{.kind = Kind::release, .step = 0, .slot = 0});
  EXPECT_THAT(sink.take(parent_link), ElementsAre("release 0"));
  EXPECT_FALSE(root.holding());
}

// Rank 1 keeps step 0, and its process ends.
std::vector<std::string> sent_when_rank_1_ends(std::uint32_t ranks, bool in_order) {
  LeaveRecorder sink;
  ReaderProtocol root(0, ranks, 1, 4, false, sink, 1);
  root.on_message(parent_link, Message{.kind = Kind::announce, .step = 0, .epoch = 1, .slot = 0});
  if (in_order) root.on_message(1, Message{.kind = Kind::leave, .value = 1});
  root.leave();
  root.on_link_lost(1, "gone");
  return sink.take(parent_link);
}

TEST(Leaving, LeasesEndWithTheProcessUnlessRanksBelowMayHoldThem) {
  EXPECT_THAT(sent_when_rank_1_ends(2, true), ElementsAre("leave 0", "release 0"));
  EXPECT_THAT(sent_when_rank_1_ends(3, true), ElementsAre("leave 0"));
  EXPECT_THAT(sent_when_rank_1_ends(2, false), ElementsAre("release 0", "leave 0"));
  EXPECT_THAT(sent_when_rank_1_ends(3, false), ElementsAre("leave 0"));
}

TEST(Leaving, ARankThatDoesNotWaitForOthersKeepsTheirLeases) {
  LeaveRecorder sink;
  ReaderProtocol root(0, 2, 1, 4, false, sink);
  const auto announce = [](std::uint64_t step, std::uint32_t slot) {
    return Message{.kind = Kind::announce, .step = step, .epoch = 1, .slot = slot};
  };
  root.on_message(parent_link, announce(0, 0));
  root.leave();
  root.stop_waiting();
  EXPECT_THAT(sink.take(1), ElementsAre("announce 0", "lost 0"));
  root.on_message(parent_link, announce(1, 1));
  EXPECT_THAT(sink.take(1), IsEmpty());
  EXPECT_TRUE(root.holding());
  root.on_message(1, Message{.kind = Kind::release, .step = 0, .slot = 0});
  EXPECT_FALSE(root.holding());
  root.on_message(1, Message{.kind = Kind::leave, .value = 1});
  EXPECT_THAT(sink.take(parent_link), ElementsAre("release 0", "leave 0"));
}

TEST(Shares, AReaderThatStopsHoldsNoMoreThanItsShare) {
  LeavableRank w({.queue_steps = 4, .when_full = WhenFull::discard_newest, .rendezvous_readers = 2});
  w.writer.ledger().join(reader_a, 1, false, "a");  // stopped
  w.writer.ledger().join(reader_b, 1, false, "b");
  for (std::uint64_t step = 0; step < 10; ++step) {
    EXPECT_TRUE(w.write());
    const auto announced = w.sink.sent.back().second;
    EXPECT_EQ(announced.kind, Kind::announce);
    EXPECT_EQ(announced.step, step);
    w.release(reader_b, step, announced.slot);
  }
  EXPECT_THAT(w.sink.take(reader_a), ElementsAre("announce 0", "announce 1"));
  const auto accounts = w.writer.ledger().readers();
  EXPECT_EQ(accounts[0].held, 2u);
  EXPECT_EQ(accounts[0].dropped + accounts[0].needed, 10u);
  EXPECT_EQ(accounts[1].dropped, 0u);
  w.release(reader_a, 0, 0);
  EXPECT_THAT(w.sink.take(reader_a), testing::SizeIs(2)) << "what was dropped, and a step that waited";
}

TEST(Shares, NobodyGivesWayWhenAllAreBehind) {
  LeavableRank w({.queue_steps = 4, .when_full = WhenFull::discard_newest, .rendezvous_readers = 2});
  w.writer.ledger().join(reader_a, 1, false, "a");
  w.writer.ledger().join(reader_b, 1, false, "b");
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(w.write());
  for (const auto& account : w.writer.ledger().readers()) EXPECT_EQ(account.dropped, 2u);
  EXPECT_EQ(w.writer.ledger().totals().dropped, 2u);
}

TEST(Shares, DivideTheQueue) {
  LeavableRank w({.queue_steps = 9, .when_full = WhenFull::discard_oldest, .rendezvous_readers = 0});
  for (const std::uint32_t share : {8u, 4u, 3u, 2u, 2u, 2u}) {
    w.writer.ledger().join(first_reader_link + static_cast<LinkId>(w.writer.ledger().readers().size()), 1, false, "r");
    EXPECT_EQ(w.writer.ledger().share(), share);
  }
}

}  // namespace
}  // namespace penstock::stream
