#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "penstock/error.hpp"
#include "stream/protocol/protocol_test_support.hpp"
#include "stream/protocol/reader_protocol.hpp"
#include "stream/protocol/ring_queue.hpp"
#include "stream/protocol/writer_protocol.hpp"

namespace penstock::stream {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using wire::Kind;
using wire::Message;

// Keeps what was sent, by link.
struct Recorder : Sink {
  struct Sent {
    LinkId link;
    Message message;
  };
  std::vector<Sent> sent;
  void send(LinkId link, const Message& message) override { sent.push_back({link, message}); }

  // What was sent on a link since the last time, "kind step" each.
  std::vector<std::string> take(LinkId link) {
    std::vector<std::string> texts;
    for (const auto& s : sent)
      if (s.link == link)
        texts.push_back(std::string(wire::name_of(s.message.kind)) + " " + std::to_string(s.message.step));
    std::erase_if(sent, [&](const auto& s) { return s.link == link; });
    return texts;
  }
  const Message& last(Kind kind) const {
    for (std::size_t i = sent.size(); i-- > 0;)
      if (sent[i].message.kind == kind) return sent[i].message;
    throw std::runtime_error("nothing of this kind was sent");
  }
};

std::shared_ptr<const std::string> layout(const std::string& text) { return std::make_shared<const std::string>(text); }

// One writer rank and its readers' messages.
struct OneRank {
  Recorder sink;
  WriterProtocol writer;
  bool first = true;

  explicit OneRank(LedgerSettings settings) : writer(0, settings, sink) {}
  Ledger& ledger() { return writer.ledger(); }
  // Writes the next step if it is granted.
  bool write(bool voided = false) {
    auto grant = writer.take_grant();
    if (!grant) {
      writer.want();
      grant = writer.take_grant();
    }
    if (!grant) return false;
    if (!grant->dropped) writer.record(*grant, voided, first ? layout("first") : nullptr);
    first = false;
    return true;
  }
  void release(LinkId link, std::uint64_t step, std::uint32_t slot) {
    writer.on_message(link, Message{.kind = Kind::release, .step = step, .slot = slot});
  }
  void want(LinkId link, std::uint64_t index) { writer.on_message(link, Message{.kind = Kind::want, .step = index}); }
};

// ------------------------------------------------------------------------------------------------------------ ledger

TEST(Ledger, BlocksWhenTheQueueIsFull) {
  OneRank w({.queue_steps = 2});
  EXPECT_FALSE(w.write()) << "no reader is there";
  w.ledger().join(reader_a, 1, false, "a");
  EXPECT_TRUE(w.write());
  EXPECT_TRUE(w.write());
  EXPECT_FALSE(w.write());
  EXPECT_THAT(w.sink.take(reader_a), ElementsAre("epoch 0", "announce 0", "announce 1"));
  w.release(reader_a, 0, 0);
  EXPECT_TRUE(w.write());
  EXPECT_FALSE(w.write());
  EXPECT_EQ(w.writer.awaited().who, "readers to release steps: a (2 held)");
}

TEST(Ledger, DiscardsTheNewest) {
  OneRank w({.queue_steps = 1, .when_full = WhenFull::discard_newest});
  w.ledger().join(reader_a, 1, false, "a");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(w.write());
  EXPECT_THAT(w.sink.take(reader_a), ElementsAre("epoch 0", "announce 0"));
  EXPECT_EQ(w.ledger().totals().dropped, 2u);
  w.release(reader_a, 0, 0);
  EXPECT_TRUE(w.write());
  EXPECT_EQ(w.sink.last(Kind::dropped).value, 2u);
  EXPECT_THAT(w.sink.take(reader_a), ElementsAre("dropped 2", "announce 3"));
}

TEST(Ledger, DiscardsTheOldestThatNobodyReads) {
  OneRank w({.queue_steps = 2, .when_full = WhenFull::discard_oldest});
  w.ledger().join(reader_a, 1, false, "a");
  w.want(reader_a, 0);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(w.write());
  EXPECT_THAT(w.sink.take(reader_a), ElementsAre("epoch 0", "announce 0"));
  w.want(reader_a, 1);
  EXPECT_THAT(w.sink.take(reader_a), ElementsAre("dropped 2", "announce 3"));
}

TEST(Ledger, TheLatestSkips) {
  OneRank w({.queue_steps = 3});
  w.ledger().join(reader_a, 1, true, "a");
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(w.write()) << i;
  w.want(reader_a, 0);
  EXPECT_THAT(w.sink.take(reader_a), ElementsAre("epoch 0", "announce 5"));
  EXPECT_EQ(w.ledger().totals().dropped, 0u);
}

TEST(Ledger, LateJoinersSeeTheReserveAndTheFirst) {
  OneRank w({.queue_steps = 2, .reserve_steps = 2, .keep_first_step = true, .rendezvous_readers = 0});
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(w.write());
  EXPECT_EQ(w.ledger().retained_steps(), 3u);
  w.ledger().join(reader_a, 1, false, "a");
  EXPECT_THAT(w.sink.take(reader_a), ElementsAre("epoch 0", "announce 0", "announce 4", "announce 5"));
  EXPECT_TRUE(w.write() && w.write()) << "granted before";
  EXPECT_FALSE(w.write()) << "the reserve counts while it is read";
}

// The marks of a late joiner on the reserve come on top of a full queue: one drop is not enough to go on.
TEST(Ledger, DiscardingGoesOnUntilAStepCanBegin) {
  OneRank w({.queue_steps = 1, .reserve_steps = 3, .when_full = WhenFull::discard_oldest, .rendezvous_readers = 0});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(w.write());
  w.ledger().join(reader_a, 1, false, "a");
  EXPECT_TRUE(w.write());
  EXPECT_TRUE(w.write());
}

TEST(Ledger, LayoutsOfAVoidedStepAreThoseOfTheNext) {
  OneRank w({.queue_steps = 4});
  w.ledger().join(reader_a, 1, false, "a");
  EXPECT_TRUE(w.write());
  auto grant = *w.writer.take_grant();
  w.writer.record(grant, true, layout("second"));
  EXPECT_TRUE(w.write());
  EXPECT_THAT(w.sink.take(reader_a), ElementsAre("epoch 0", "announce 0", "epoch 0", "announce 2"));
  EXPECT_EQ(w.ledger().totals().epochs, 2u);
}

TEST(Ledger, AVoidedStepLetsTheWaitingBeJudgedAgain) {
  OneRank w({.ranks = 2,
             .queue_steps = 1,
             .reserve_steps = 1,
             .when_full = WhenFull::discard_newest,
             .rendezvous_readers = 0});
  const auto record_of_1 = [&](std::uint64_t step, std::uint32_t slot) {
    w.writer.on_message(1, Message{.kind = Kind::record, .step = step, .slot = slot, .layouts = {{1, layout("1")}}});
  };
  EXPECT_TRUE(w.write());
  record_of_1(0, 0);
  const auto grant = *w.writer.take_grant();  // step 1; step 0 is the reserve
  record_of_1(1, grant.slot);
  w.writer.on_message(1, Message{.kind = Kind::want, .step = 2});
  w.ledger().join(reader_a, 1, false, "a");
  w.sink.sent.clear();
  w.writer.record(grant, true, nullptr);
  EXPECT_THAT(w.sink.take(1), ElementsAre("voided 1", "grant 2"));
}

TEST(Ledger, NothingIsAnnouncedAfterTheEnd) {
  OneRank w({.queue_steps = 3, .keep_first_step = true, .when_full = WhenFull::discard_oldest});
  w.ledger().join(reader_a, 1, false, "a");
  EXPECT_TRUE(w.write());
  EXPECT_TRUE(w.write());
  const auto late = *w.writer.take_grant();
  w.writer.close_now();
  EXPECT_EQ(w.sink.last(Kind::dropped).value, 2u);
  EXPECT_THAT(w.sink.take(reader_a), ElementsAre("dropped 1", "goodbye 0"));
  w.writer.record(late, false, nullptr);
  w.want(reader_a, 0);
  w.ledger().join(reader_b, 1, false, "b");
  EXPECT_THAT(w.sink.take(reader_a), IsEmpty());
  EXPECT_THAT(w.sink.take(reader_b), ElementsAre("goodbye 0"));
}

TEST(Ledger, ABrokenStreamAnnouncesNoMore) {
  OneRank w({.queue_steps = 3, .when_full = WhenFull::discard_oldest});
  w.ledger().join(reader_a, 1, false, "a");
  EXPECT_TRUE(w.write());
  w.writer.fail("the disk is on fire");
  w.want(reader_a, 0);
  EXPECT_THAT(w.sink.take(reader_a), ElementsAre("lost 0"));
  w.ledger().join(reader_b, 1, false, "b");
  EXPECT_EQ(w.sink.last(Kind::lost).text, "the disk is on fire");
  EXPECT_THAT(w.sink.take(reader_b), ElementsAre("lost 0"));
}

TEST(Ledger, RefusesWhatAReaderDoesNotHave) {
  OneRank w({.queue_steps = 2});
  w.ledger().join(reader_a, 1, false, "a");
  w.ledger().join(reader_b, 1, true, "b");
  EXPECT_TRUE(w.write());
  EXPECT_THROW(w.release(reader_a, 1, 0), Error);
  EXPECT_THROW(w.release(reader_a, 0, 1), Error);
  EXPECT_THROW(w.release(reader_a, 0, wire::max_slots), Error);
  EXPECT_THROW(w.release(reader_b, 0, 0), Error) << "was not announced to b";
  EXPECT_THROW(w.want(reader_a, 0), Error) << "a gets every step without asking";
  EXPECT_THROW(w.want(reader_b, 1), Error);
  EXPECT_THROW(w.release(reader_b + 1, 0, 0), Error);
  EXPECT_THROW(w.writer.on_message(reader_a, Message{.kind = Kind::grant}), Error);
  w.release(reader_a, 0, 0);
  EXPECT_THROW(w.release(reader_a, 0, 0), Error);
}

TEST(Ledger, AnAnnouncementIsSmallWhateverTheStepHolds) {
  std::vector<std::size_t> sizes;
  for (const std::uint32_t ranks : {1u, 4096u}) {
    const std::uint32_t variables = ranks == 1 ? 1 : 500;
    model::RankLayout l;
    for (std::uint32_t v = 0; v < variables; ++v) {
      l.variables.push_back({"variable" + std::to_string(v), DType::float64, penstock::Kind::global_array, Order::row,
                             Dims{1u << 20, 64}, false});
      l.blocks.push_back({v, Box{Dims{0, 0}, Dims{256, 64}}, 0, std::uint64_t{v} << 17, 1u << 17});
    }
    const auto blob = layout(wire::encode_layout(l, true));
    Recorder sink;
    Ledger ledger({.ranks = ranks, .queue_steps = 4}, sink, [](const auto&) {});
    ledger.join(reader_a, 1, false, "a");
    std::vector<wire::RankBlob> all;
    for (std::uint32_t r = 0; r < ranks; ++r) all.push_back({r, blob});
    ledger.commit(0, false, all);
    std::size_t pieces = 0;
    for (const auto& s : sink.sent) pieces += s.message.kind == Kind::epoch;
    sink.sent.clear();
    ledger.commit(1, false, {});
    ASSERT_EQ(sink.sent.size(), 1u);
    std::vector<std::byte> bytes;
    wire::encode(sink.sent[0].message, bytes);
    sizes.push_back(bytes.size());
    std::printf(
        "%u ranks, %u variables: a step of a known epoch is announced in %zu bytes (the epoch is %zu bytes in %zu "
        "messages)\n",
        ranks, variables, bytes.size(), blob->size() * ranks, pieces);
  }
  EXPECT_EQ(sizes[0], sizes[1]);
}

// ------------------------------------------------------------------------------------------------------------ writer

TEST(WriterProtocol, JoinsRecordsOnTheWayUp) {
  Recorder sink;
  WriterProtocol middle(1, {.ranks = 7, .queue_steps = 2}, sink, 2);  // its children are 3 and 4
  middle.on_message(parent_link, Message{.kind = Kind::grant, .step = 0, .slot = 0});
  EXPECT_THAT(sink.take(3), ElementsAre("grant 0"));
  EXPECT_THAT(sink.take(4), ElementsAre("grant 0"));
  const Message from_3{.kind = Kind::record, .step = 0, .slot = 0, .layouts = {{3, layout("3")}}};
  middle.on_message(3, from_3);
  EXPECT_THROW(middle.on_message(3, from_3), Error) << "one child does not speak for the other";
  middle.record(*middle.take_grant(), false, layout("1"));
  EXPECT_THAT(sink.take(parent_link), IsEmpty());
  middle.on_message(4, Message{.kind = Kind::record, .step = 0, .slot = 0, .flag = true});
  EXPECT_EQ(sink.last(Kind::record).layouts.size(), 2u);
  EXPECT_TRUE(sink.last(Kind::record).flag);
  EXPECT_THAT(sink.take(parent_link), ElementsAre("record 0"));
  EXPECT_THROW(middle.on_message(4, Message{.kind = Kind::record, .step = 9, .slot = 0}), Error);
  EXPECT_THROW(middle.on_message(4, Message{.kind = Kind::release}), Error);
  EXPECT_THROW(middle.on_message(parent_link, Message{.kind = Kind::record}), Error);
  EXPECT_THROW(middle.on_message(parent_link, Message{.kind = Kind::grant, .step = 1, .slot = 99}), Error);
}

TEST(WriterProtocol, EveryRankHearsOfAStepThatOneGaveUp) {
  Recorder sink;
  WriterProtocol root(0, {.ranks = 7, .queue_steps = 2, .rendezvous_readers = 0}, sink, 2);  // its children are 1 and 2
  const auto step = root.take_grant();
  sink.sent.clear();
  const auto record_of = [](bool voided, std::uint32_t by) {
    return Message{.kind = Kind::record, .step = 0, .slot = 0, .ranks = by, .flag = voided};
  };
  EXPECT_THROW(root.on_message(2, record_of(true, 7)), Error) << "there is no such rank";
  root.on_message(2, record_of(true, 5));
  root.record(*step, false, nullptr);
  EXPECT_THAT(sink.take(1), IsEmpty()) << "not before every record is in";
  root.on_message(1, record_of(true, 3));
  EXPECT_EQ(root.voided().count, 1u);
  EXPECT_EQ(root.voided().by, 3u);
  EXPECT_EQ(sink.last(Kind::voided).ranks, 3u);
  EXPECT_THAT(sink.take(2), ElementsAre("voided 0", "grant 2"));

  WriterProtocol middle(1, {.ranks = 7, .queue_steps = 2}, sink, 2);  // its children are 3 and 4
  const Message voided{.kind = Kind::voided, .step = 0, .ranks = 3};
  EXPECT_THROW(middle.on_message(parent_link, voided), Error) << "it was not granted";
  middle.on_message(parent_link, Message{.kind = Kind::grant, .step = 0, .slot = 0});
  middle.on_message(parent_link, voided);
  EXPECT_EQ(middle.voided().count, 1u);
  EXPECT_THAT(sink.take(4), ElementsAre("grant 0", "voided 0"));
  EXPECT_THROW(middle.on_message(parent_link, voided), Error) << "once";
}

TEST(WriterProtocol, SplitsWhatDoesNotFitAMessage) {
  Recorder up, down;
  WriterProtocol child(1, {.ranks = 2, .queue_steps = 1}, up);
  WriterProtocol root(0, {.ranks = 2, .queue_steps = 1}, down);
  root.ledger().join(reader_a, 1, false, "a");
  child.on_message(parent_link, down.last(Kind::grant));
  child.record(*child.take_grant(), false, layout(std::string(max_layout_bytes, 'a')));
  root.record(*root.take_grant(), false, layout(std::string(1000, 'b')));
  for (const auto& s : up.sent) root.on_message(1, s.message);
  EXPECT_EQ(down.take(reader_a), (std::vector<std::string>{"epoch 0", "epoch 0", "announce 0"}));
}

TEST(WriterProtocol, ALostRankBreaksTheCohortUnlessItIsClosed) {
  Recorder sink;
  WriterProtocol root(0, {.ranks = 3, .queue_steps = 1}, sink);
  root.ledger().join(reader_a, 1, false, "a");
  root.on_link_lost(2, "connection reset");
  EXPECT_TRUE(root.broken());
  EXPECT_THAT(sink.take(reader_a), ElementsAre("lost 0"));
  EXPECT_EQ(sink.take(1).back(), "lost 0");

  WriterProtocol closed(1, {.ranks = 3, .queue_steps = 1}, sink);
  closed.on_message(parent_link, Message{.kind = Kind::closed});
  closed.on_message(parent_link, Message{.kind = Kind::lost, .text = "too late"});
  closed.on_link_lost(parent_link, "closed");
  EXPECT_FALSE(closed.broken());
}

TEST(WriterProtocol, ClosesWhenEveryStepIsRead) {
  OneRank w({.ranks = 2, .queue_steps = 2});
  w.ledger().join(reader_a, 1, false, "a");
  const Message record{.kind = Kind::record, .step = 0, .slot = 0, .layouts = {{1, layout("1")}}};
  EXPECT_TRUE(w.write());
  w.writer.on_message(1, record);
  w.writer.closing();
  EXPECT_EQ(w.writer.awaited().who, "readers to release steps: a (1 held)");
  w.writer.on_message(1, Message{.kind = Kind::closing});
  EXPECT_THROW(w.writer.on_message(1, Message{.kind = Kind::closing}), Error);
  EXPECT_FALSE(w.writer.closed());
  w.release(reader_a, 0, 0);
  EXPECT_TRUE(w.writer.closed());
  EXPECT_THAT(w.sink.take(reader_a), ElementsAre("epoch 0", "announce 0", "goodbye 1"));
}

TEST(WriterProtocol, AReaderThatGoesLetsTheWriterClose) {
  OneRank w({.queue_steps = 2});
  w.ledger().join(reader_a, 1, false, "a");
  EXPECT_TRUE(w.write());
  w.writer.closing();
  EXPECT_FALSE(w.writer.closed());
  w.writer.on_link_lost(reader_a, "killed");
  EXPECT_TRUE(w.writer.closed());
}

// ------------------------------------------------------------------------------------------------------------ reader

Message announce(std::uint64_t step, std::uint32_t slot, std::uint64_t epoch = 1) {
  return Message{.kind = Kind::announce, .step = step, .epoch = epoch, .slot = slot};
}
Message epoch(std::uint64_t number, std::uint64_t base = 0) {
  return Message{.kind = Kind::epoch,
                 .epoch = number,
                 .value = base,
                 .layouts = {{0, layout("layout " + std::to_string(number))}}};
}

TEST(ReaderProtocol, ReleasesOnceEveryRankHas) {
  Recorder sink;
  ReaderProtocol root(0, 3, 1, 4, false, sink);
  root.on_message(parent_link, epoch(1));
  root.on_message(parent_link, announce(0, 0));
  EXPECT_EQ(*root.take()->epoch->layouts[0], "layout 1");
  root.release(0, 0);
  root.on_message(1, Message{.kind = Kind::release, .step = 0, .slot = 0});
  EXPECT_THROW(root.on_message(1, Message{.kind = Kind::release, .step = 0, .slot = 0}), Error)
      << "one does not speak for the other";
  EXPECT_THAT(sink.take(parent_link), IsEmpty());
  root.on_message(2, Message{.kind = Kind::release, .step = 0, .slot = 0});
  EXPECT_THAT(sink.take(parent_link), ElementsAre("release 0"));
}

TEST(ReaderProtocol, AnAnnouncementMayOvertakeItsEpoch) {
  Recorder sink;
  ReaderProtocol reader(0, 1, 1, 4, false, sink);
  reader.on_message(parent_link, announce(0, 0));
  EXPECT_FALSE(reader.take());
  reader.on_message(parent_link, epoch(1));
  EXPECT_TRUE(reader.take());
}

TEST(ReaderProtocol, AnEpochMayComeInPieces) {
  Recorder sink;
  ReaderProtocol reader(0, 1, 2, 4, false, sink);
  reader.on_message(parent_link, announce(0, 0));
  reader.on_message(parent_link, Message{.kind = Kind::epoch, .epoch = 1, .flag = true, .layouts = {{0, layout("0")}}});
  EXPECT_FALSE(reader.take());
  reader.on_message(parent_link, Message{.kind = Kind::epoch, .epoch = 1, .layouts = {{1, layout("1")}}});
  EXPECT_EQ(*reader.take()->epoch->layouts[0], "0");
  EXPECT_THROW(reader.on_message(parent_link, Message{.kind = Kind::epoch, .epoch = 3, .value = 2}), Error);
}

TEST(ReaderProtocol, ARankThatLeftHoldsNothing) {
  Recorder sink;
  ReaderProtocol root(0, 3, 1, 4, false, sink);
  root.on_message(parent_link, epoch(1));
  root.on_message(parent_link, announce(0, 0));
  root.on_message(2, Message{.kind = Kind::leave});  // step 0 had not reached it
  sink.sent.clear();
  root.on_message(parent_link, announce(1, 1));
  EXPECT_THAT(sink.take(2), IsEmpty());
  root.on_link_lost(2, "its process ended");
  EXPECT_FALSE(root.lost());
  for (std::uint32_t step = 0; step < 2; ++step) {
    EXPECT_TRUE(root.take());
    root.release(step, step);
    root.on_message(1, Message{.kind = Kind::release, .step = step, .slot = step});
  }
  EXPECT_THAT(sink.take(parent_link), ElementsAre("release 0", "release 1"));
  EXPECT_THROW(root.on_message(2, Message{.kind = Kind::leave}), Error);
  root.on_message(1, Message{.kind = Kind::leave});
  EXPECT_FALSE(root.all_left());
  root.leave();
  EXPECT_TRUE(root.all_left());
  root.on_message(parent_link, announce(2, 2));
  EXPECT_THAT(sink.take(parent_link), ElementsAre("leave 0")) << "the last thing it says";
}

TEST(ReaderProtocol, TheSurvivorsOfALostRankKeepTheirLeases) {
  Recorder sink;
  ReaderProtocol root(0, 3, 1, 4, false, sink);
  root.on_message(parent_link, epoch(1));
  root.on_message(parent_link, announce(0, 0));
  root.on_message(parent_link, announce(1, 1));
  EXPECT_TRUE(root.take());
  root.on_link_lost(1, "killed");
  EXPECT_TRUE(root.lost());
  EXPECT_EQ(sink.take(2).back(), "lost 0");
  EXPECT_TRUE(root.take()) << "what was announced can be taken";
  root.release(0, 0);
  root.release(1, 1);
  root.leave();
  EXPECT_THAT(sink.take(parent_link), IsEmpty()) << "rank 2 still reads";
  root.on_message(2, Message{.kind = Kind::leave});
  EXPECT_THAT(sink.take(parent_link), ElementsAre("release 0", "release 1", "leave 0"));
}

TEST(ReaderProtocol, TheEndWithoutTheLastDescriptionIsALoss) {
  Recorder sink;
  ReaderProtocol reader(0, 1, 1, 4, false, sink);
  reader.on_message(parent_link, announce(0, 0));
  reader.on_message(parent_link, Message{.kind = Kind::goodbye, .step = 1});
  reader.on_link_lost(parent_link, "killed");
  EXPECT_FALSE(reader.ended());
  EXPECT_TRUE(reader.lost());
}

TEST(ReaderProtocol, EndsWhenEveryStepIsTaken) {
  Recorder sink;
  ReaderProtocol reader(0, 1, 1, 4, false, sink);
  reader.on_message(parent_link, epoch(1));
  reader.on_message(parent_link, announce(0, 0));
  EXPECT_THROW(reader.on_message(parent_link, Message{.kind = Kind::goodbye, .step = 2}), Error);
  reader.on_message(parent_link, Message{.kind = Kind::goodbye, .step = 1});
  EXPECT_FALSE(reader.ended());
  EXPECT_TRUE(reader.take());
  EXPECT_TRUE(reader.ended());
  reader.on_link_lost(parent_link, "closed");
  EXPECT_FALSE(reader.lost());
}

TEST(ReaderProtocol, RefusesWhatTheWriterMayNotSay) {
  Recorder sink;
  ReaderProtocol reader(0, 1, 1, 4, false, sink);
  reader.on_message(parent_link, epoch(1));
  reader.on_message(parent_link, announce(5, 1));
  EXPECT_THROW(reader.on_message(parent_link, announce(6, 1)), Error) << "the slot is held";
  EXPECT_THROW(reader.on_message(parent_link, announce(6, 4)), Error) << "no such slot";
  EXPECT_THROW(reader.on_message(parent_link, announce(5, 2)), Error) << "steps come in order";
  EXPECT_THROW(reader.on_message(parent_link, Message{.kind = Kind::want}), Error);
  EXPECT_THROW(reader.on_message(parent_link, epoch(3, 2)), Error) << "a base that was not sent";
  auto bad = epoch(2);
  bad.layouts[0].rank = 1;
  EXPECT_THROW(reader.on_message(parent_link, bad), Error) << "no such rank";
  EXPECT_THROW(reader.release(5, 0), Error);
}

TEST(ReaderProtocol, AsksOnceForEachStepOnDemand) {
  Recorder sink;
  ReaderProtocol root(0, 2, 1, 4, true, sink);
  root.want();
  root.want();
  root.on_message(1, Message{.kind = Kind::want, .step = 0});
  EXPECT_THAT(sink.take(parent_link), ElementsAre("want 0"));
  root.on_message(parent_link, epoch(1));
  root.on_message(parent_link, announce(3, 0));
  root.want();
  EXPECT_THAT(sink.take(parent_link), IsEmpty());
  EXPECT_TRUE(root.take());
  root.want();
  EXPECT_THAT(sink.take(parent_link), ElementsAre("want 1"));
}

TEST(RingQueue, KeepsOrderAsItGrows) {
  RingQueue<int> queue(2);
  int in = 0, out = 0;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i <= round; ++i) queue.push(in++);
    for (int i = 0; i < round; ++i) ASSERT_EQ(queue.pop(), out++);
  }
  EXPECT_EQ(queue.size(), 50u);
  EXPECT_EQ(queue.front(), out);
  EXPECT_EQ(queue.back(), in - 1);
}

}  // namespace
}  // namespace penstock::stream
