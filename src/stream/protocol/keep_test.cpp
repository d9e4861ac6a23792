// keep_undelivered under random schedules: one consumer at a time takes steps, makes them safe, releases them, dies at any
// moment and comes back. No committed step may be lost, and none be delivered again that the writer knows to be released.
//
//   PENSTOCK_SCHEDULES=n  how many schedules (3000)    PENSTOCK_SEED=s  only this one
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "base/test_support.hpp"
#include "penstock/error.hpp"
#include "stream/protocol/reader_protocol.hpp"
#include "stream/protocol/writer_protocol.hpp"

namespace penstock::stream {
namespace {

using wire::Kind;
using wire::Message;

enum class Planted { nothing, not_kept, no_takeover, released_before_safe };

// One writer rank, a wire that can be cut, and a line of consumers of which one lives.
class Schedule {
 public:
  Schedule(std::uint64_t seed, Planted bug) : random_(seed), bug_(bug) {
    settings_.queue_steps = static_cast<std::uint32_t>(below(4) + 1);
    settings_.when_full = static_cast<WhenFull>(below(4) < 2 ? 0 : 1 + below(2));
    settings_.rendezvous_readers = 0;
    settings_.keep_undelivered = bug != Planted::not_kept;
    steps_ = 5 + below(30);
    crash_chance_ = below(3) == 0 ? 0.0 : 0.01 + 0.1 * static_cast<double>(below(3));
    writer_ = std::make_unique<WriterProtocol>(0, settings_, to_consumer_);
  }

  // The first thing that must not be; empty when all was well.
  std::string run() {
    for (int turn = 0; turn < 200'000 && failure_.empty(); ++turn) {
      if (closing_ && writer_->closed() && (!consumer_ || consumer_->ended())) return check_end();
      switch (below(6)) {
        case 0: write(); break;
        case 1: deliver_to_consumer(); break;
        case 2: deliver_to_writer(); break;
        case 3: consume(); break;
        case 4: settle_one(); break;
        case 5:
          if (!consumer_) come_back();
          else if (crashes_ < 20 && chance(crash_chance_)) crash();
          break;
      }
    }
    return failure_.empty() ? "it does not end" : failure_;
  }

 private:
  struct ToConsumer : Sink {
    std::map<LinkId, std::deque<Message>> wires;
    void send(LinkId link, const Message& message) override {
      if (link >= first_reader_link) wires[link].push_back(message);
    }
  };
  struct ToWriter : Sink {
    std::deque<Message>* wire = nullptr;
    void send(LinkId, const Message& message) override { wire->push_back(message); }
  };

  std::uint64_t below(std::uint64_t n) { return std::uniform_int_distribution<std::uint64_t>(0, n - 1)(random_); }
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }
  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

  void write() {
    if (closing_) return;
    if (written_ == steps_) {
      closing_ = true;
      writer_->closing();
      return;
    }
    auto grant = writer_->take_grant();
    if (!grant) {
      writer_->want();
      grant = writer_->take_grant();
    }
    if (!grant) return;
    ++written_;
    if (grant->dropped) return;
    for (const auto& held : held_)
      if (held.slot == grant->slot) fail("slot of step " + std::to_string(held.step) + " granted while it is read");
    const bool voided = chance(0.05);
    std::shared_ptr<const std::string> layout;
    if (written_ == 1 || chance(0.1)) layout = std::make_shared<const std::string>(std::to_string(written_));
    if (!voided) committed_.insert(grant->step);
    writer_->record(*grant, voided, layout);
  }

  void come_back() {
    const auto link = next_link_++;
    // The writer may not have noticed yet that the one before is gone: the new one takes over.
    if (link_ != no_link && bug_ != Planted::no_takeover) writer_->on_link_lost(link_, "another took over");
    unnoticed_ = bug_ == Planted::no_takeover ? link_ : no_link;
    link_ = link;
    to_writer_wire_.clear();
    to_writer_.wire = &to_writer_wire_;
    consumer_ = std::make_unique<ReaderProtocol>(0, 1, 1, settings_.slots(), writer_->ledger().on_demand(false),
                                                 static_cast<Sink&>(to_writer_));
    writer_->ledger().join(link, 1, false, "consumer");
  }

  // What it had said may still arrive, in part; what it was told is gone.
  void crash() {
    ++crashes_;
    for (auto n = below(to_writer_wire_.size() + 1); n > 0; --n) deliver_to_writer();
    to_writer_wire_.clear();
    consumer_.reset();
    held_.clear();
    to_consumer_.wires.erase(link_);
    if (chance(0.5)) lose(link_);
  }
  void lose(LinkId& link) {
    if (link != no_link) writer_->on_link_lost(link, "died");
    link = no_link;
  }

  void deliver_to_consumer() {
    if (unnoticed_ != no_link) lose(unnoticed_);
    if (!consumer_) return;
    auto& wire = to_consumer_.wires[link_];
    if (wire.empty()) return;
    const auto message = wire.front();
    wire.pop_front();
    consumer_->on_message(parent_link, message);
  }
  void deliver_to_writer() {
    if (!consumer_ || to_writer_wire_.empty()) return;
    const auto message = to_writer_wire_.front();
    to_writer_wire_.pop_front();
    if (message.kind == Kind::release) released_.insert(message.step);
    writer_->on_message(link_, message);
  }

  void consume() {
    if (!consumer_) return;
    if (auto step = consumer_->take()) {
      if (released_.contains(step->step)) fail("step " + std::to_string(step->step) + " comes again after its release");
      held_.push_back({step->step, step->slot});
      if (bug_ == Planted::released_before_safe) consumer_->release(step->step, step->slot);
    } else {
      consumer_->want();
    }
  }
  // One held step, not always the oldest, is safe: its slot goes back.
  void settle_one() {
    if (held_.empty()) return;
    const auto i = below(held_.size());
    const auto held = held_[i];
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    safe_.insert(held.step);
    if (bug_ != Planted::released_before_safe) consumer_->release(held.step, held.slot);
  }

  std::string check_end() {
    while (!held_.empty()) settle_one();
    std::uint64_t missing = 0;
    for (const auto step : committed_) missing += !safe_.contains(step);
    const auto& totals = writer_->ledger().totals();
    if (missing > totals.dropped || (settings_.when_full == WhenFull::block && missing > 0))
      return std::to_string(missing) + " committed steps are lost; " + std::to_string(totals.dropped) + " were dropped";
    if (settings_.when_full == WhenFull::block && committed_ != safe_) return "steps that were not committed";
    return failure_;
  }

  struct Held {
    std::uint64_t step;
    std::uint32_t slot;
  };
  std::mt19937_64 random_;
  const Planted bug_;
  LedgerSettings settings_;
  std::uint64_t steps_ = 0, written_ = 0;
  double crash_chance_ = 0;
  int crashes_ = 0;
  ToConsumer to_consumer_;
  ToWriter to_writer_;
  std::deque<Message> to_writer_wire_;
  std::unique_ptr<WriterProtocol> writer_;
  std::unique_ptr<ReaderProtocol> consumer_;
  LinkId link_ = no_link, unnoticed_ = no_link, next_link_ = first_reader_link;
  std::vector<Held> held_;
  std::set<std::uint64_t> committed_, safe_, released_;
  bool closing_ = false;
  std::string failure_;
};

TEST(KeepUndelivered, NoStepIsLostOrComesTwice) {
  if (const auto seed = number_from("PENSTOCK_SEED", 0); seed != 0) {
    EXPECT_EQ(Schedule(seed, Planted::nothing).run(), "");
    return;
  }
  const auto schedules = number_from("PENSTOCK_SCHEDULES", 3000);
  for (std::uint64_t seed = 1; seed <= schedules; ++seed) {
    const auto failure = Schedule(seed, Planted::nothing).run();
    ASSERT_EQ(failure, "") << "again with PENSTOCK_SEED=" << seed;
  }
}

class PlantedFault : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFault, IsFound) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed)
    if (!Schedule(seed, GetParam()).run().empty()) return;
  ADD_FAILURE() << "500 schedules did not find it";
}

INSTANTIATE_TEST_SUITE_P(All, PlantedFault,
                         testing::Values(Planted::not_kept, Planted::no_takeover, Planted::released_before_safe),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

// ------------------------------------------------------------------------------------------------------- single cases

struct Wire : Sink {
  std::vector<std::string> sent;
  void send(LinkId link, const Message& message) override {
    if (link >= first_reader_link)
      sent.push_back(std::string(wire::name_of(message.kind)) + " " + std::to_string(message.step));
  }
};

struct Kept {
  Wire wire;
  WriterProtocol writer;
  bool first = true;
  explicit Kept(LedgerSettings settings) : writer(0, settings, wire) {}
  bool write() {
    auto grant = writer.take_grant();
    if (!grant) {
      writer.want();
      grant = writer.take_grant();
    }
    if (!grant) return false;
    if (!grant->dropped) writer.record(*grant, false, first ? std::make_shared<const std::string>("layout") : nullptr);
    first = false;
    return true;
  }
  std::vector<std::string> take() { return std::exchange(wire.sent, {}); }
};

constexpr LinkId first_consumer = first_reader_link, second_consumer = first_reader_link + 1;

TEST(KeepUndelivered, ABlockingWriterWaitsForItsConsumer) {
  Kept w({.queue_steps = 2, .rendezvous_readers = 0, .keep_undelivered = true});
  EXPECT_TRUE(w.write() && w.write());
  EXPECT_FALSE(w.write()) << "nobody has taken anything";
  EXPECT_EQ(w.writer.awaited().who, "a reader to come for 2 steps kept for it");
  w.writer.ledger().join(first_consumer, 1, false, "home");
  EXPECT_THAT(w.take(), testing::ElementsAre("epoch 0", "announce 0", "announce 1"));
  w.writer.on_message(first_consumer, Message{.kind = Kind::release, .step = 0, .slot = 0});
  EXPECT_TRUE(w.write());
  EXPECT_THAT(w.take(), testing::ElementsAre("announce 2"));
}

TEST(KeepUndelivered, WhatWasNotReleasedWaitsForTheNext) {
  Kept w({.queue_steps = 3, .rendezvous_readers = 0, .keep_undelivered = true});
  w.writer.ledger().join(first_consumer, 1, false, "home");
  EXPECT_TRUE(w.write() && w.write());
  w.writer.on_message(first_consumer, Message{.kind = Kind::release, .step = 0, .slot = 0});
  w.writer.on_link_lost(first_consumer, "died");
  EXPECT_TRUE(w.write() && w.write());
  EXPECT_FALSE(w.write());
  w.take();
  w.writer.ledger().join(second_consumer, 1, false, "home");
  EXPECT_THAT(w.take(), testing::ElementsAre("epoch 0", "announce 1", "announce 2", "announce 3"));
}

TEST(KeepUndelivered, ClosingWaitsForAConsumer) {
  Kept w({.queue_steps = 2, .rendezvous_readers = 0, .keep_undelivered = true});
  EXPECT_TRUE(w.write());
  w.writer.closing();
  EXPECT_FALSE(w.writer.closed());
  w.writer.ledger().join(first_consumer, 1, false, "home");
  w.writer.on_message(first_consumer, Message{.kind = Kind::release, .step = 0, .slot = 0});
  EXPECT_TRUE(w.writer.closed());
  EXPECT_THAT(w.take(), testing::ElementsAre("epoch 0", "announce 0", "goodbye 1"));
}

TEST(KeepUndelivered, ClosedTooEarlyIsNotComplete) {
  Kept w({.queue_steps = 2, .rendezvous_readers = 0, .keep_undelivered = true});
  w.writer.ledger().join(first_consumer, 1, false, "home");
  EXPECT_TRUE(w.write());
  w.writer.closing();
  w.writer.close_now();
  EXPECT_TRUE(w.writer.closed());
  w.writer.ledger().join(second_consumer, 1, false, "home");
  EXPECT_THAT(w.take(), testing::ElementsAre("epoch 0", "announce 0", "lost 0", "lost 0"));
}

TEST(KeepUndelivered, PolicyDropsWhatIsKeptToo) {
  Kept w({.queue_steps = 2, .when_full = WhenFull::discard_oldest, .rendezvous_readers = 0, .keep_undelivered = true});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(w.write());
  EXPECT_EQ(w.writer.ledger().totals().dropped, 3u);
  EXPECT_EQ(w.writer.ledger().steps_kept(), 2u);
}

}  // namespace
}  // namespace penstock::stream
