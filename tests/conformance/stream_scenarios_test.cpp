// Streams, scenario by scenario, over every plane (C++ API): who comes when, queues, deadlines, ends.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <latch>

#include "scenario.hpp"

namespace penstock {
namespace {

using scenario::code_of;
using scenario::numbered;
using namespace std::chrono_literals;

class StreamScenario : public scenario::Scenario {
 protected:
  static void write_step(Writer& writer, Variable<double> v, std::uint64_t t) {
    auto step = writer.begin_step();
    step.put(v, {{0}, {8}}, numbered(8, t).data());
    step.end();
  }
  static void expect_step(ReadStep& step) { EXPECT_EQ(step.read<double>("v"), numbered(8, step.number())); }
  StreamOptions with(const std::function<void(StreamOptions&)>& change) const {
    auto o = options();
    change(o);
    return o;
  }
};
PENSTOCK_SCENARIOS(StreamScenario);

// Of engines that keep steps for readers to come, by their options.
class KeptStreamScenario : public StreamScenario {};
PENSTOCK_SCENARIOS(KeptStreamScenario, "direct", "pool");

// Of engines that describe a step in one message.
class AnnouncedScenario : public StreamScenario {};
PENSTOCK_SCENARIOS(AnnouncedScenario, "direct", "pool", "insitu");

// Of engines whose readers hold the writer.
class LiveStreamScenario : public StreamScenario {};
PENSTOCK_SCENARIOS(LiveStreamScenario, "direct", "insitu");

TEST_P(StreamScenario, reader_starts_first) {
  Context context(context_options());
  std::promise<void> opening;
  together({[&] {
              opening.set_value();
              auto reader = context.open_stream("s", solo(), options());
              for (std::uint64_t t = 0; t < 5; ++t) {
                auto step = reader.begin_step();
                EXPECT_EQ(step.number(), t);
                expect_step(step);
              }
              EXPECT_EQ(reader.try_begin_step(5s).outcome, Outcome::end_of_stream);
            },
            [&] {
              opening.get_future().wait();
              auto writer = context.create_stream("s", solo(), options());
              const auto v = writer.define<double>("v", {8});
              for (std::uint64_t t = 0; t < 5; ++t) write_step(writer, v, t);
              writer.close();
            }});
}

TEST_P(StreamScenario, several_reader_cohorts) {
  Context context(context_options());
  std::atomic<int> read = 0;
  const auto reading = [&] {
    auto reader = context.open_stream("s", solo(), options());
    while (true) {
      auto next = reader.try_begin_step(10s);
      if (next.outcome == Outcome::end_of_stream) break;
      ASSERT_EQ(next.outcome, Outcome::ready);
      expect_step(*next.step);
      ++read;
    }
  };
  together({[&] {
              auto writer = context.create_stream(
                  "s", solo(), with([this](auto& o) { o.rendezvous_readers = keeps_steps() ? 0 : 3; }));
              const auto v = writer.define<double>("v", {8});
              for (std::uint64_t t = 0; t < 20; ++t) write_step(writer, v, t);
              writer.close();
              EXPECT_EQ(writer.statistics().steps, 20u);
            },
            reading, reading, reading});
  EXPECT_EQ(read, 60);
}

// A reader that comes while the writer is busy is admitted by the engine, not by the writer's next step.
TEST_P(StreamScenario, late_joiner_is_admitted_at_once) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), with([this](auto& o) {
                                        o.rendezvous_readers = 0;
                                        o.reserve_steps = on("direct") ? 2 : 0;
                                      }));
  const auto v = writer.define<double>("v", {8});
  for (std::uint64_t t = 0; t < 5; ++t) write_step(writer, v, t);
  // From here on the writer does nothing.
  auto reader = context.open_stream("s", solo(), options());
  // A pool and files keep all, direct has the reserve, insitu keeps none.
  const std::uint64_t oldest = keeps_steps() ? 0 : on("direct") ? 3 : 5;
  for (auto t = oldest; t < 5; ++t) {
    auto step = reader.begin_step();
    EXPECT_EQ(step.number(), t);
    expect_step(step);
  }
  EXPECT_EQ(reader.try_begin_step(0ms).outcome, Outcome::not_ready);
  reader.close();
  writer.close();
}

TEST_P(StreamScenario, early_leave) {
  Context context(context_options());
  together({[&] {
              auto writer = context.create_stream("s", solo(), with([](auto& o) { o.queue_steps = 1; }));
              const auto v = writer.define<double>("v", {8});
              for (std::uint64_t t = 0; t < 20; ++t) write_step(writer, v, t);
              writer.close();
            },
            [&] {
              auto reader = context.open_stream("s", solo(), options());
              for (int t = 0; t < 3; ++t) reader.begin_step();
            }});
}

TEST_P(LiveStreamScenario, rendezvous) {
  Context context(context_options());
  auto nobody = context.create_stream("nobody", solo(), with([](auto& o) { o.rendezvous_readers = 0; }));
  const auto v = nobody.define<double>("v", {8});
  for (std::uint64_t t = 0; t < 10; ++t) write_step(nobody, v, t);
  nobody.close();

  auto writer = context.create_stream("s", solo(), with([](auto& o) { o.rendezvous_readers = 2; }));
  EXPECT_FALSE(writer.try_begin_step(0ms).has_value());
  auto one = context.open_stream("s", solo(), options());
  EXPECT_FALSE(writer.try_begin_step(10ms).has_value());
  try {
    writer.begin_step(1ms);
    FAIL() << "a step without its readers";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Errc::timeout);
    EXPECT_THAT(e.what(), testing::HasSubstr("1 reader to join"));
  }
  auto two = context.open_stream("s", solo(), options());
  auto step = writer.try_begin_step(10s);
  ASSERT_TRUE(step.has_value());
  step->end();
  one.close();
  two.close();
  writer.close();
}

TEST_P(LiveStreamScenario, queue_bounds_steps_and_names_who_holds_them) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), with([](auto& o) { o.queue_steps = 2; }));
  const auto v = writer.define<double>("v", {8});
  auto reader = context.open_stream("s", solo(), options());
  write_step(writer, v, 0);
  write_step(writer, v, 1);
  EXPECT_FALSE(writer.try_begin_step(0ms).has_value());
  try {
    writer.begin_step(1ms);
    FAIL() << "a third step in a queue of two";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Errc::timeout);
    EXPECT_THAT(e.what(), testing::HasSubstr("to release steps"));
  }
  reader.begin_step();  // read and released
  auto step = writer.try_begin_step(10s);
  ASSERT_TRUE(step.has_value());
  step->abandon();
  reader.begin_step();
  reader.close();
  writer.close();
  EXPECT_EQ(writer.statistics().steps_voided, 1u);
}

TEST_P(LiveStreamScenario, queue_bounds_bytes) {
  Context context(context_options());
  constexpr std::uint64_t mib = 1 << 20;
  auto writer = context.create_stream("s", solo(), with([](auto& o) {
                                        o.queue_bytes = 8 * mib;
                                        o.queue_steps = 4;
                                      }));
  auto reader = context.open_stream("s", solo(), options());
  const auto v = writer.define<std::uint8_t>("v", {16 * mib});
  std::vector<std::uint8_t> data(16 * mib, 1);
  {
    auto step = writer.begin_step();
    EXPECT_EQ(code_of([&] { step.put(v, {{0}, {16 * mib}}, data.data()); }), Errc::step_too_large);
    EXPECT_EQ(code_of([&] { step.put(v, {{0}, {1}}, data.data()); }), Errc::step_voided);
  }
  const auto write = [&](Timeout timeout) {
    auto step = writer.try_begin_step(timeout);
    if (!step) return false;
    step->put(v, {{0}, {3 * mib}}, data.data());
    step->end();
    return true;
  };
  EXPECT_TRUE(write(10s));
  EXPECT_TRUE(write(10s));
  EXPECT_FALSE(write(10ms));  // two steps of three MiB and a third do not fit in eight
  EXPECT_LE(writer.statistics().memory_bytes, 8 * mib);
  reader.begin_step();
  EXPECT_TRUE(write(10s));
  reader.close();
  writer.close();
}

TEST_P(LiveStreamScenario, discard_newest) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), with([](auto& o) {
                                        o.queue_steps = 2;
                                        o.when_full = WhenFull::discard_newest;
                                      }));
  const auto v = writer.define<double>("v", {8});
  auto reader = context.open_stream("s", solo(), options());
  for (std::uint64_t t = 0; t < 6; ++t) {
    auto step = writer.begin_step(0ms);
    EXPECT_EQ(step.dropped(), t >= 2);
    step.put(v, {{0}, {8}}, numbered(8, t).data());
    step.end();
  }
  EXPECT_EQ(writer.statistics().steps_dropped, 4u);
  EXPECT_EQ(writer.statistics().peers.at(0).steps_dropped, 4u);
  EXPECT_EQ(reader.begin_step().number(), 0u);
  EXPECT_EQ(reader.begin_step().number(), 1u);
  for (std::uint64_t t = 6;; ++t) {  // until the releases have arrived
    auto step = writer.begin_step(10s);
    if (step.dropped()) continue;
    step.put(v, {{0}, {8}}, numbered(8, step.number()).data());
    step.end();
    break;
  }
  auto last = reader.begin_step();
  expect_step(last);
  EXPECT_EQ(last.number(), writer.statistics().steps_dropped + 2);
  last.end();
  EXPECT_EQ(reader.statistics().steps_dropped, writer.statistics().steps_dropped);
  reader.close();
  writer.close();
}

TEST_P(LiveStreamScenario, discard_oldest) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), with([](auto& o) {
                                        o.queue_steps = 3;
                                        o.when_full = WhenFull::discard_oldest;
                                      }));
  const auto v = writer.define<double>("v", {8});
  auto reader = context.open_stream("s", solo(), options());
  write_step(writer, v, 0);
  auto held = reader.begin_step();
  EXPECT_EQ(held.number(), 0u);
  for (std::uint64_t t = 1; t < 10; ++t) {
    auto step = writer.begin_step(0ms);
    EXPECT_FALSE(step.dropped());
    step.put(v, {{0}, {8}}, numbered(8, t).data());
    step.end();
  }
  expect_step(held);  // a step being read is never dropped
  held.end();
  auto next = reader.begin_step();
  EXPECT_EQ(next.number(), 8u);  // 1 to 7 gave way
  expect_step(next);
  next.end();
  EXPECT_EQ(reader.begin_step().number(), 9u);
  EXPECT_EQ(writer.statistics().steps_dropped, 7u);
  EXPECT_EQ(reader.statistics().steps_dropped, 7u);
  reader.close();
  writer.close();
}

// A pool keeps every step: the reserve is all of them, and the options that would bound it are refused.
TEST_P(KeptStreamScenario, first_step_kept_and_reserve) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), with([this](auto& o) {
                                        o.rendezvous_readers = 0;
                                        o.keep_first_step = !on("pool");
                                        o.reserve_steps = on("pool") ? 0 : 1;
                                        o.queue_steps = 1;
                                      }));
  const auto v = writer.define<double>("v", {8});
  for (std::uint64_t t = 0; t < 7; ++t) write_step(writer, v, t);
  std::vector<std::uint64_t> kept{0, 6};
  if (on("pool")) kept = {0, 1, 2, 3, 4, 5, 6};
  for (int repeat = 0; repeat < 2; ++repeat) {
    auto reader = context.open_stream("s", solo(), options());
    for (const auto expected : kept) {
      auto step = reader.begin_step();
      EXPECT_EQ(step.number(), expected);
      expect_step(step);
    }
    reader.close();
  }
  writer.close();
}

TEST_P(StreamScenario, delivery_latest) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), with([](auto& o) { o.queue_steps = 2; }));
  const auto v = writer.define<double>("v", {8});
  auto reader = context.open_stream("s", solo(), with([](auto& o) { o.delivery = Delivery::latest; }));
  for (std::uint64_t t = 0; t < 5; ++t) write_step(writer, v, t);
  if (keeps_steps()) await_steps(reader, 5);
  auto step = reader.begin_step();
  EXPECT_EQ(step.number(), 4u);
  for (std::uint64_t t = 5; t < 9; ++t) write_step(writer, v, t);  // while the reader holds one
  if (keeps_steps()) await_steps(reader, 9);
  expect_step(step);
  step.end();
  EXPECT_EQ(reader.begin_step().number(), 8u);
  EXPECT_EQ(reader.try_begin_step(1ms).outcome, Outcome::not_ready);
  write_step(writer, v, 9);
  EXPECT_EQ(reader.begin_step().number(), 9u);
  reader.close();
  writer.close();
}

TEST_P(LiveStreamScenario, deadlines) {
  Context context(context_options());
  EXPECT_EQ(code_of([&] { context.open_stream("absent", solo(), with([](auto& o) { o.open_timeout_ms = 30; })); }),
            Errc::timeout);
  auto writer = context.create_stream("s", solo(), with([](auto& o) { o.queue_steps = 1; }));
  const auto v = writer.define<double>("v", {8});
  EXPECT_EQ(code_of([&] { writer.begin_step(1ms); }), Errc::timeout);  // no reader
  auto reader = context.open_stream("s", solo(), options());
  EXPECT_EQ(reader.try_begin_step(0ms).outcome, Outcome::not_ready);
  EXPECT_EQ(code_of([&] { reader.begin_step(1ms); }), Errc::timeout);
  write_step(writer, v, 0);
  EXPECT_EQ(code_of([&] { writer.begin_step(1ms); }), Errc::timeout);  // no room
  auto step = reader.begin_step();
  EXPECT_EQ(code_of([&] { writer.close(1ms); }), Errc::timeout);  // the reader holds the step
  expect_step(step);
  step.end();
  EXPECT_EQ(reader.try_begin_step(10s).outcome, Outcome::end_of_stream);
}

TEST_P(LiveStreamScenario, registration) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), with([](auto& o) { o.rendezvous_readers = 0; }));
  EXPECT_EQ(code_of([&] { context.create_stream("s", solo(), options()); }), Errc::wrong_state);
  EXPECT_EQ(code_of([&] { context.create_stream("../s", solo(), options()); }), Errc::invalid_argument);
  const auto file = scratch_.path() + "/s.json";
  struct stat status {};
  ASSERT_EQ(stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const auto listed = context.list_streams();
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].name, "s");
  EXPECT_TRUE(listed[0].alive);
  std::ifstream in(file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  writer.close();
  EXPECT_FALSE(std::filesystem::exists(file));
  // What a crash leaves behind is noticed, and gives way to a new writer.
  std::ofstream(file) << text;
  chmod(file.c_str(), 0600);
  { auto gone = std::move(writer); }
  EXPECT_FALSE(context.list_streams().at(0).alive);
  EXPECT_EQ(code_of([&] { context.open_stream("s", solo(), with([](auto& o) { o.open_timeout_ms = 50; })); }),
            Errc::timeout);
  auto again = context.create_stream("s", solo(), with([](auto& o) { o.rendezvous_readers = 0; }));
  again.close();
}

TEST_P(LiveStreamScenario, address_and_wrong_token) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), options());
  const auto v = writer.define<double>("v", {8});
  auto elsewhere_options = context_options();
  elsewhere_options.directory = scratch_.path() + "/elsewhere";
  Context elsewhere(elsewhere_options);
  auto address = writer.address();
  auto wrong = address;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  const auto plain = with([](auto& o) {
    if (o.data_plane != DataPlane::ucx) o.data_plane = DataPlane::automatic;
  });
  EXPECT_EQ(code_of([&] { elsewhere.open_stream(wrong, solo(), plain); }), Errc::authentication);
  auto reader = elsewhere.open_stream(address, solo(), plain);
  write_step(writer, v, 0);
  auto step = reader.begin_step();
  expect_step(step);
  step.end();
  reader.close();
  writer.close();
}

TEST_P(StreamScenario, writer_lost_is_not_the_end) {
  Context context(context_options());
  auto reader_options = options();
  std::optional<Reader> reader;
  try {
    auto writer = context.create_stream("s", solo(), options());
    const auto v = writer.define<double>("v", {8});
    reader.emplace(context.open_stream("s", solo(), reader_options));
    write_step(writer, v, 0);
    write_step(writer, v, 1);
    auto step = reader->begin_step();
    expect_step(step);
    throw std::runtime_error("the simulation diverged");
  } catch (const std::runtime_error&) {
  }
  if (plane() == DataPlane::shm) {
    auto step = reader->begin_step();  // announced, mapped: still there
    EXPECT_EQ(step.number(), 1u);
    expect_step(step);
  } else {
    reader->begin_step();
  }
  EXPECT_EQ(reader->try_begin_step(10s).outcome, Outcome::writer_lost);
  EXPECT_EQ(code_of([&] { reader->begin_step(); }), Errc::writer_lost);
}

TEST_P(StreamScenario, step_is_atomic_over_ranks) {
  cohorts(
      3, 2,
      [](Writer& writer, int rank) {
        const auto v = writer.define<double>("v", {3});
        for (std::uint64_t t = 0; t < 12; ++t) {
          auto step = writer.begin_step();
          const double value = static_cast<double>(t);
          step.put(v, {{static_cast<std::uint64_t>(rank)}, {1}}, &value);
          if (t % 4 == 1 && rank == 2) step.abandon();
          else step.end();
        }
      },
      [](Reader& reader, int) {
        for (std::uint64_t t = 0; t < 12; ++t) {
          if (t % 4 == 1) continue;  // one rank gave it up
          auto step = reader.begin_step();
          EXPECT_EQ(step.number(), t);
          EXPECT_EQ(step.read<double>("v"), std::vector<double>(3, static_cast<double>(t)));
        }
        EXPECT_EQ(reader.try_begin_step(10s).outcome, Outcome::end_of_stream);
      });
}

TEST_P(StreamScenario, statistics) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), options());
  const auto v = writer.define<double>("v", {8});
  auto reader = context.open_stream("s", solo(), options());
  for (std::uint64_t t = 0; t < 50; ++t) {
    write_step(writer, v, t);
    auto step = reader.begin_step();
    expect_step(step);
  }
  const auto w = writer.statistics();
  const auto r = reader.statistics();
  EXPECT_EQ(w.steps, 50u);
  EXPECT_EQ(w.bytes, 50u * 64);
  EXPECT_EQ(w.copies, on("file") ? 0u : 50u);  // it writes from the caller's array
  ASSERT_EQ(w.peers.size(), 1u);
  EXPECT_EQ(w.peers[0].steps_delivered, 50u);
  EXPECT_EQ(r.steps, 50u);
  EXPECT_EQ(r.bytes, 50u * 64);
  EXPECT_EQ(r.data_plane, on("insitu") || on("file") ? GetParam().engine : std::string(scenario::plane_name(plane())));
  EXPECT_LE(w.epochs, 3u);
  EXPECT_GT(r.plans_reused, r.plans_built);
  reader.close();
  writer.close();
}

TEST_P(LiveStreamScenario, inspection_joins_nothing) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), with([](auto& o) { o.rendezvous_readers = 0; }));
  const auto v = writer.define<double>("v", {8});
  for (std::uint64_t t = 0; t < 3; ++t) write_step(writer, v, t);
  EXPECT_THAT(context.inspect("s"), testing::HasSubstr("\"steps\": 3"));
  EXPECT_TRUE(writer.statistics().peers.empty());
  auto reader = context.open_stream("s", solo(), options());
  EXPECT_THAT(context.inspect("s"), testing::HasSubstr("\"ranks\": 1"));
  reader.close();
  writer.close();
  EXPECT_EQ(code_of([&] { context.inspect("s"); }), Errc::not_found);
}

TEST_P(AnnouncedScenario, too_many_blocks_void_the_step_only) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), options());
  auto reader = context.open_stream("s", solo(), options());
  constexpr std::uint64_t many = 500'000;
  const auto v = writer.define<std::uint8_t>("v", {many});
  const std::uint8_t one = 1;
  {
    auto step = writer.begin_step();
    for (std::uint64_t i = 0; i < many; ++i) step.put(v, {{i}, {1}}, &one);
    EXPECT_EQ(code_of([&] { step.end(); }), Errc::step_too_large);
  }
  auto step = writer.begin_step();
  step.put(v, {{0}, {1}}, &one);
  step.end();
  EXPECT_EQ(reader.begin_step().number(), 1u);
  reader.close();
  writer.close();
}

TEST_P(StreamScenario, explicit_progress) {
  auto explicit_options = context_options();
  explicit_options.explicit_progress = true;
  Context writing(explicit_options), reading(explicit_options);
  together({[&] {
              auto writer = writing.create_stream("s", solo(), options());
              const auto v = writer.define<double>("v", {8});
              for (std::uint64_t t = 0; t < 10; ++t) write_step(writer, v, t);
              writer.close();
            },
            [&] {
              auto reader = reading.open_stream("s", solo(), options());
              for (std::uint64_t t = 0; t < 10; ++t) {
                auto step = reader.begin_step();
                expect_step(step);
              }
              EXPECT_EQ(reader.try_begin_step(10s).outcome, Outcome::end_of_stream);
            }});
}

TEST_P(StreamScenario, misuse_is_an_error_and_harms_nothing) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), options());
  auto reader = context.open_stream("s", solo(), options());
  const auto v = writer.define<double>("v", {8});
  EXPECT_EQ(code_of([&] { writer.define<double>("v", {8}); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { writer.define<std::string>("names", {8}); }), Errc::unsupported);
  {
    auto step = writer.begin_step();
    EXPECT_EQ(code_of([&] { writer.begin_step(); }), Errc::wrong_state);
    EXPECT_EQ(code_of([&] { step.put(v, {{4}, {5}}, numbered(8).data()); }), Errc::invalid_argument);
    EXPECT_EQ(code_of([&] { step.put(v, {{0, 0}, {1, 1}}, numbered(8).data()); }), Errc::invalid_argument);
    EXPECT_EQ(code_of([&] { step.put(99, {{0}, {1}}, numbered(8).data(), {}); }), Errc::not_found);
    step.put(v, {{0}, {8}}, numbered(8).data());
    step.end();
    EXPECT_EQ(code_of([&] { step.end(); }), Errc::wrong_state);
  }
  auto step = reader.begin_step();
  EXPECT_EQ(code_of([&] { reader.begin_step(); }), Errc::wrong_state);
  expect_step(step);
  step.end();
  EXPECT_EQ(code_of([&] { step.number(); }), Errc::wrong_state);
  reader.close();
  EXPECT_EQ(code_of([&] { reader.begin_step(); }), Errc::stream_closed);
  writer.close();
  EXPECT_EQ(code_of([&] { writer.begin_step(); }), Errc::stream_closed);
  EXPECT_EQ(code_of([&] {
              auto o = options();
              o.engine = "dirct";
              context.create_stream("x", solo(), o);
            }),
            Errc::unsupported);
}

}  // namespace
}  // namespace penstock
