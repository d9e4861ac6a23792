// What a direct writer does when something is short, too large, or fails: the step that was granted is written or void, and
// what is committed can be read.
#include "stream/direct/direct_engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "base/test_support.hpp"
#include "penstock/penstock.hpp"

namespace penstock::stream {

std::span<const EngineEntry> engines() {
  static constexpr EngineEntry direct[] = {
      {.name = "direct", .create = &create_direct, .open = &open_direct, .finder = &find_direct}};
  return direct;
}

namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// While it lives this process gets no further descriptors, and so no memory for steps.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

class DirectWriterTest : public testing::Test {
 protected:
  ContextOptions context_options(const std::string& listen = "127.0.0.1") const {
    ContextOptions options;
    options.directory = folder_.path();
    options.listen = listen;
    return options;
  }
  static StreamOptions with(const std::function<void(StreamOptions&)>& change) {
    StreamOptions options;
    options.open_timeout_ms = options.step_timeout_ms = options.close_timeout_ms = 20'000;
    change(options);
    return options;
  }
  // Two ranks of which the second cannot listen; what each of them throws.
  template <class Open>
  std::vector<std::pair<Errc, std::string>> errors_of_two(Open open) {
    std::vector<std::pair<Errc, std::string>> errors(2);
    run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) {
      const auto rank = static_cast<std::size_t>(cohort->rank());
      Context mine(context_options(rank == 1 ? "192.0.2.1" : "127.0.0.1"));  // of a network for documents
      errors[rank] = error_of([&] { open(mine, cohort); });
    });
    return errors;
  }

  SilentLog silent_;
  TestFolder folder_;
  Context context_{context_options()};
};

TEST_F(DirectWriterTest, AStepThatBytesAreShortForIsTriedAgainUnderItsNumber) {
  const auto options = with([](auto& o) { o.queue_bytes = 64 * mib; });
  auto writer = context_.create_stream("s", solo(), options);
  auto reader = context_.open_stream("s", solo(), options);
  const std::vector<std::uint8_t> data(24 * mib, 1);
  const auto v = writer.define<std::uint8_t>("v", {data.size()});
  for (std::uint64_t t = 0; t < 2; ++t) {
    auto step = writer.begin_step();
    EXPECT_EQ(step.number(), t);
    step.put(v, data.data());
    step.end();
  }
  for (int slice = 0; slice < 3; ++slice) EXPECT_FALSE(writer.try_begin_step(1ms));
  EXPECT_THAT(error_of([&] { writer.begin_step(1ms); }).second, HasSubstr("queue_bytes"));
  EXPECT_EQ(writer.statistics().steps_voided, 0u);
  reader.begin_step().end();
  {
    auto step = writer.begin_step();
    EXPECT_EQ(step.number(), 2u);
    step.put(v, data.data());
    step.end();
  }
  EXPECT_FALSE(writer.try_begin_step(1ms));
  for (std::uint64_t t = 1; t < 3; ++t) EXPECT_EQ(reader.begin_step().number(), t);
  // What it was to try again is void once it closes instead.
  writer.close();
  EXPECT_EQ(writer.statistics().steps_voided, 1u);
  EXPECT_EQ(reader.try_begin_step(20s).outcome, Outcome::end_of_stream);
}

TEST_F(DirectWriterTest, MemoryForStepsIsMadeWhileTheApplicationComputes) {
  const auto options = with([](auto& o) {
    o.queue_steps = 3;
    o.step_bytes = 8 * mib;
    o.rendezvous_readers = 0;
  });
  auto writer = context_.create_stream("s", solo(), options);
  const std::vector<std::uint8_t> data(8 * mib, 1);
  const auto v = writer.define<std::uint8_t>("v", {data.size()});
  {
    auto step = writer.begin_step();  // its memory may not be there yet
    step.put(v, data.data());
    step.end();
  }
  const base::Deadline deadline(20s);
  while (writer.statistics().memory_bytes < 3 * options.step_bytes && !deadline.passed()) std::this_thread::yield();
  const auto all = writer.statistics().memory_bytes;
  EXPECT_GE(all, 3 * options.step_bytes);
  for (int t = 0; t < 6; ++t) {
    auto step = writer.begin_step();
    step.put(v, data.data());
    step.end();
  }
  EXPECT_EQ(writer.statistics().memory_bytes, all);
}

// Servers that pull let the writer's own copies go first.
TEST_F(DirectWriterTest, SaysThatItCopiesWhileItDoes) {
  const std::vector<std::uint8_t> data(64 * mib, 1);
  const auto options = with([&](auto& o) {
    o.rendezvous_readers = 0;
    o.queue_steps = 2;
    o.step_bytes = data.size() + mib;  // all slots' memory is there, and stays where it is
  });
  auto writer = context_.create_stream("s", solo(), options);
  const auto first = writer.define<std::uint8_t>("first", {64});
  const auto v = writer.define<std::uint8_t>("v", {data.size()});
  std::atomic<bool> seen{false};
  std::jthread watcher;
  const std::atomic<std::uint64_t>* copying = nullptr;
  const base::Deadline deadline(20s);
  while (!seen && !deadline.passed()) {
    auto step = writer.begin_step();
    if (!copying) {  // the first block of a slot follows its header
      const auto* memory = step.put_span<std::uint8_t>(first, {{0}, {64}}).data() - memory::slot_header_bytes;
      copying = &reinterpret_cast<const memory::SlotHeader*>(memory)->copying;
      watcher = std::jthread([&](const std::stop_token& stop) {
        while (!seen && !stop.stop_requested())
          if (copying->load() != 0) seen = true;
      });
    }
    EXPECT_EQ(copying->load(), 0u);
    step.put(v, data.data());
    EXPECT_EQ(copying->load(), 0u);
    step.end();
  }
  watcher = {};
  EXPECT_TRUE(seen) << "the slot that was filled first tells of copies into every slot";
}

TEST_F(DirectWriterTest, SpansOfADroppedStepAreMemoryUntilItEnds) {
  const auto options = with([](auto& o) {
    o.queue_steps = 1;
    o.when_full = WhenFull::discard_newest;
  });
  auto writer = context_.create_stream("s", solo(), options);
  auto reader = context_.open_stream("s", solo(), options);
  const auto v = writer.define<std::uint8_t>("v", {mib});
  for (int t = 0; t < 3; ++t) {
    auto step = writer.begin_step();
    ASSERT_EQ(step.dropped(), t > 0);
    std::vector<std::span<std::uint8_t>> spans;
    for (const std::uint64_t bytes : {std::uint64_t{8}, std::uint64_t{0}, mib, mib / 2}) {
      spans.push_back(step.put_span(v, {{0}, {bytes}}));
      EXPECT_EQ(spans.back().size(), bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(spans.back().data()) % 64, 0u);
      std::fill(spans.back().begin(), spans.back().end(), static_cast<std::uint8_t>(spans.size()));
    }
    for (std::size_t i = 0; i < spans.size(); ++i)
      for (const auto value : spans[i]) ASSERT_EQ(value, i + 1);
    step.end();
  }
  reader.close();
  writer.close();
}

// No library thread: the writer itself must look at what came over the socket.
TEST_F(DirectWriterTest, DropsNoStepForWantOfAReleaseThatHasArrived) {
  auto alone = context_options();
  alone.explicit_progress = true;
  Context writers(alone);
  const auto options = with([](auto& o) {
    o.queue_steps = 2;
    o.when_full = WhenFull::discard_newest;
    o.data_plane = DataPlane::tcp;
    o.rendezvous_readers = 0;
  });
  auto writer = writers.create_stream("s", solo(), options);
  std::optional<Reader> reader;
  std::atomic<bool> open{false};
  std::jthread opening([&] {
    reader = context_.open_stream("s", solo(), options);
    open = true;
  });
  while (!open) writers.progress();
  for (std::uint64_t t = 0; t < 8; t += 2) {
    for (int i = 0; i < 2; ++i) {
      auto step = writer.begin_step();
      EXPECT_FALSE(step.dropped()) << step.number();
      step.end();
    }
    for (int i = 0; i < 2; ++i) reader->begin_step().end();
  }
  reader->close();
  writer.close();
}

TEST_F(DirectWriterTest, RefusesStringsAndAttributesThatNobodyCouldRead) {
  const auto options = with([](auto&) {});
  auto writer = context_.create_stream("s", solo(), options);
  auto reader = context_.open_stream("s", solo(), options);
  const auto text = writer.define_value<std::string>("text");
  const auto more = writer.define_value<std::string>("more");
  EXPECT_EQ(code_of([&] { writer.put_attribute("a", Attribute::of(std::string(17 * mib, 'a'))); }),
            Errc::invalid_argument);
  writer.put_attribute("a", Attribute::of(std::string(7 * mib, 'a')));
  writer.put_attribute("a", Attribute::of(std::string(8 * mib, 'b')));  // in place of that
  const std::string rest(8 * mib - 1000, 'r');
  for (int t = 0; t < 2; ++t) {
    auto step = writer.begin_step();
    EXPECT_EQ(code_of([&] { step.put(text, std::string(9 * mib, 's')); }), Errc::invalid_argument);
    step.put(text, rest);
    EXPECT_EQ(code_of([&] { step.put(more, std::string(mib, 's')); }), Errc::invalid_argument);
    EXPECT_EQ(code_of([&] { step.put_attribute("b", Attribute::of(std::string(mib, 'b'))); }), Errc::invalid_argument);
    step.end();
    auto got = reader.begin_step();
    EXPECT_EQ(got.read_strings(got.variable("text").id), std::vector{rest});
    EXPECT_EQ(got.attribute("a")->strings.at(0).size(), 8 * mib);
  }
  reader.close();
  writer.close();
}

TEST_F(DirectWriterTest, AssigningToAnOpenOneClosesIt) {
  const auto options = with([](auto& o) { o.rendezvous_readers = 0; });
  auto writer = context_.create_stream("a", solo(), options);
  auto reader = context_.open_stream("a", solo(), options);
  writer = context_.create_stream("b", solo(), options);
  EXPECT_EQ(writer.name(), "b");
  EXPECT_EQ(reader.try_begin_step(20s).outcome, Outcome::end_of_stream);
  const auto v = writer.define_value<int>("v");
  reader = context_.open_stream("b", solo(), options);
  auto step = writer.begin_step();
  step.put(v, 1);
  step.end();
  auto other = context_.create_stream("c", solo(), options);
  reader = context_.open_stream("c", solo(), options);
  writer.close(20s);  // nobody holds its step any more
}

TEST_F(DirectWriterTest, RefusesWhatEveryReaderWouldRefuse) {
  const auto options = with([](auto& o) { o.rendezvous_readers = 0; });
  auto writer = context_.create_stream("s", solo(), options);
  const std::uint64_t huge = std::uint64_t{1} << 60;
  EXPECT_EQ(code_of([&] { writer.define<double>("x", {huge}); }), Errc::invalid_argument);
  writer.define<double>("y", {huge - 1});
  writer.define<double>("z", {huge, 0});
  const auto v = writer.define<double>("v", {100});
  const std::vector<double> data(100, 1);
  auto reader = context_.open_stream("s", solo(), options);
  auto step = writer.begin_step();
  EXPECT_EQ(code_of([&] { step.set_shape(v, {huge}); }), Errc::invalid_argument);
  step.put(v, {{0}, {60}}, data.data());
  EXPECT_EQ(code_of([&] { step.set_shape(v, {50}); }), Errc::invalid_argument);
  step.set_shape(v, {60});
  step.end();
  auto got = reader.begin_step();
  EXPECT_EQ(got.variable("v").shape, Dims{60});
  EXPECT_EQ(got.read<double>("v"), std::vector<double>(60, 1));
  got.end();
  // What a former step had is nothing to this one.
  step = writer.begin_step();
  step.set_shape(v, {50});
  step.put(v, {{0}, {50}}, data.data());
  step.end();
  EXPECT_EQ(reader.begin_step().variable("v").shape, Dims{50});
  reader.close();
  writer.close();
}

TEST_F(DirectWriterTest, AStepThatIsOpenIsNamed) {
  const auto options = with([](auto& o) { o.rendezvous_readers = 0; });
  auto writer = context_.create_stream("s", solo(), options);
  auto reader = context_.open_stream("s", solo(), options);
  auto step = writer.begin_step();
  EXPECT_THAT(error_of([&] { writer.begin_step(); }).second, HasSubstr("stream s: step 0 is open: end it"));
  step.end();
  auto read = reader.begin_step();
  EXPECT_THAT(error_of([&] { reader.begin_step(); }).second, HasSubstr("stream s: step 0 is open: end it"));
  read.end();
  reader.close();
  writer.close();
}

TEST_F(DirectWriterTest, AStepThatFailsIsVoidAndNobodyWaitsForIt) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "the undefined-behaviour sanitizer (built in with this one) looks at objects through a pipe of its own";
#endif
  const auto options = with([](auto& o) {
    o.queue_steps = 1;
    o.rendezvous_readers = 0;
  });
  auto writer = context_.create_stream("s", solo(), options);
  const auto text = writer.define_value<std::string>("text");
  {
    NoDescriptors limit;
    EXPECT_NE(code_of([&] { writer.begin_step(); }), Errc::ok);
  }
  auto second = writer.try_begin_step(20s);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->number(), 1u);
  second->put(text, std::string(4 * mib, 't'));
  {
    NoDescriptors limit;
    EXPECT_NE(code_of([&] { second->end(); }), Errc::ok);
  }
  auto reader = context_.open_stream("s", solo(), options);
  auto third = writer.try_begin_step(20s);
  ASSERT_TRUE(third);
  third->put(text, std::string("three"));
  third->end();
  EXPECT_EQ(writer.statistics().steps_voided, 2u);
  auto got = reader.begin_step();
  EXPECT_EQ(got.number(), 2u);
  EXPECT_EQ(got.read_strings(got.variable("text").id), std::vector<std::string>{"three"});
  got.end();
  reader.close();
  writer.close();
}

TEST_F(DirectWriterTest, EveryRankCountsAStepThatOneGaveUp) {
  const auto options = with([](auto& o) { o.rendezvous_readers = 0; });
  std::vector<std::uint64_t> voided(3);
  std::string log;  // of rank 0's thread, or of its engine's, which waits for the lock that this one does
  base::set_log_sink([&](base::Level level, std::string_view line) {
    if (level == base::Level::warn) log += line;
  });
  run_thread_cohort(3, [&](std::shared_ptr<Cohort> cohort) {
    Context mine(context_options());
    auto writer = mine.create_stream("s", cohort, options);
    const auto v = writer.define<double>("v", {4});
    const double value = 0;
    for (int t = 0; t < 3; ++t) {
      auto step = writer.begin_step();
      if (t == 1) step.set_shape(v, {8});  // it stays: ranks that go on have no part in giving the step up
      step.put(v, Box{{static_cast<std::uint64_t>(cohort->rank())}, {1}}, &value);
      if (t == 1 && cohort->rank() == 1) step.abandon();
      else step.end();
    }
    writer.close();
    voided[static_cast<std::size_t>(cohort->rank())] = writer.statistics().steps_voided;
  });
  base::set_log_sink([](base::Level, std::string_view) {});
  EXPECT_THAT(voided, testing::ElementsAre(1, 1, 1));
  EXPECT_THAT(log, HasSubstr("step=1"));
  EXPECT_THAT(log, HasSubstr("rank=1"));
}

TEST_F(DirectWriterTest, AReaderIsToldThatItHoldsTheStepsItself) {
  const auto options = with([](auto& o) {
    o.queue_steps = 1;
    o.when_full = WhenFull::discard_newest;
  });
  auto writer = context_.create_stream("s", solo(), options);
  auto reader = context_.open_stream("s", solo(), options);
  const std::int64_t data = 7;
  const auto v = writer.define<std::int64_t>("v", {1});
  auto step = writer.begin_step();
  step.put(v, &data);
  step.end();
  auto got = reader.begin_step();
  auto views = got.view(got.variable("v").id);
  got.end();
  EXPECT_THAT(error_of([&] { reader.begin_step(1ms); }).second,
              HasSubstr("this reader holds 1 step; release their views or raise queue_steps"));
  views = {};
  EXPECT_THAT(error_of([&] { reader.begin_step(1ms); }).second, testing::Not(HasSubstr("holds")));
  reader.close();
  writer.close();
}

TEST_F(DirectWriterTest, AViewOfARankStaysWhenRank0HasStoppedWaitingForIt) {
  for (const bool explicit_progress : {false, true}) {
    SCOPED_TRACE(explicit_progress);
    auto writer = context_.create_stream("s", solo(), with([](auto& o) { o.queue_steps = 1; }));
    const auto v = writer.define<std::int64_t>("v", {1});
    std::atomic<bool> closed{false}, over{false};
    run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) {
      const bool first = cohort->rank() == 0;
      auto options = context_options();
      options.explicit_progress = first && explicit_progress;
      Context mine(options);
      std::optional reader(mine.open_stream("s", cohort, with([&](auto& o) {
                                              if (first) o.close_timeout_ms = 50;
                                            })));
      if (!first) {
        const std::int64_t data = 7;
        auto step = writer.begin_step();
        step.put(v, &data);
        step.end();
      }
      auto got = reader->begin_step();
      if (first) {
        got.end();
        reader.reset();
        closed = true;
        closed.notify_all();
        while (!over) {
          mine.progress();
          std::this_thread::yield();
        }
        return;
      }
      auto views = got.view(got.variable("v").id);
      got.end();
      closed.wait(false);
      EXPECT_FALSE(writer.try_begin_step(200ms));
      views = {};
      reader->close();  // a rank of a lost cohort releases when it has left
      writer.begin_step().end();
      over = true;
    });
    writer.close();
  }
}

TEST_F(DirectWriterTest, EveryRankHearsThatOneCouldNotOpen) {
  const auto options = with([](auto& o) { o.rendezvous_readers = 0; });
  const auto writing = errors_of_two(
      [&](Context& mine, std::shared_ptr<Cohort> cohort) { mine.create_stream("s", std::move(cohort), options); });
  auto writer = context_.create_stream("s", solo(), options);
  const auto reading = errors_of_two(
      [&](Context& mine, std::shared_ptr<Cohort> cohort) { mine.open_stream("s", std::move(cohort), options); });
  for (const auto& errors : {writing, reading}) {
    for (const auto& [code, what] : errors) {
      EXPECT_EQ(code, Errc::invalid_argument) << what;  // an address that no interface has
      EXPECT_THAT(what, HasSubstr("rank 1"));
    }
  }
  // The name is taken: found out when the ranks are connected already.
  run_thread_cohort(3, [&](std::shared_ptr<Cohort> cohort) {
    EXPECT_EQ(code_of([&] { context_.create_stream("s", cohort, options); }), Errc::wrong_state);
  });
  writer.close();
}

TEST_F(DirectWriterTest, ClosesWhenItsRegistrationCannotBeRemoved) {
  const auto options = with([](auto& o) { o.rendezvous_readers = 0; });
  auto closed = context_.create_stream("closed", solo(), options);
  {
    auto destroyed = context_.create_stream("destroyed", solo(), options);
    std::filesystem::remove_all(folder_.path());
    std::ofstream(folder_.path()) << "no folder";
  }
  EXPECT_EQ(code_of([&] { closed.close(); }), Errc::ok);
}

}  // namespace
}  // namespace penstock::stream
