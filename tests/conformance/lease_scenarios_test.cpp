// Leases that outlive a step, a reader or a stream, scenario by scenario, over every plane (C++ API).
#include <gmock/gmock.h>

#include "scenario.hpp"

namespace penstock {
namespace {

using scenario::numbered;
using namespace std::chrono_literals;

class LeaseScenario : public scenario::Scenario {
 protected:
  static void write_step(Writer& writer, Variable<double> v) {
    auto step = writer.begin_step();
    step.put(v, {{0}, {8}}, numbered(8, step.number()).data());
    step.end();
  }
  // Reads the next step, which is this one, and returns its view.
  static Views keep(Reader& reader, std::uint64_t number) {
    auto step = reader.begin_step();
    EXPECT_EQ(step.number(), number);
    auto views = step.view(step.variable("v").id);
    step.end();
    return views;
  }
  static void expect_view(const Views& views, std::uint64_t number) {
    ASSERT_EQ(views.size(), 1u);
    const auto values = views[0].as<double>();
    EXPECT_EQ(std::vector<double>(values.begin(), values.end()), numbered(8, number));
  }
  StreamOptions with(const std::function<void(StreamOptions&)>& change) const {
    auto o = options();
    change(o);
    return o;
  }
};
PENSTOCK_SCENARIOS(LeaseScenario);

class QueueLeaseScenario : public LeaseScenario {};
PENSTOCK_SCENARIOS(QueueLeaseScenario, "direct", "pool", "insitu");

TEST_P(LeaseScenario, closed_reader_keeps_a_view) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), with([](auto& o) { o.queue_steps = 4; }));
  const auto v = writer.define<double>("v", {8});
  auto reader = context.open_stream("s", solo(), options());
  write_step(writer, v);
  const auto kept = keep(reader, 0);
  reader.close();
  for (int t = 1; t < 20; ++t) write_step(writer, v);
  expect_view(kept, 0);
  writer.close();
  expect_view(kept, 0);
}

TEST_P(LeaseScenario, end_comes_while_views_are_kept) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), with([](auto& o) { o.queue_steps = 4; }));
  const auto v = writer.define<double>("v", {8});
  auto reader = context.open_stream("s", solo(), options());
  for (int t = 0; t < 3; ++t) write_step(writer, v);
  together({[&] { writer.close(); },  // an error if it does not end in time
            [&] {
              std::vector<Views> kept;
              for (std::uint64_t t = 0; t < 3; ++t) kept.push_back(keep(reader, t));
              EXPECT_EQ(reader.try_begin_step(10s).outcome, Outcome::end_of_stream);
              for (std::uint64_t t = 0; t < 3; ++t) expect_view(kept[t], t);
            }});
  EXPECT_EQ(reader.try_begin_step(0ms).outcome, Outcome::end_of_stream);
}

// The reader computes with its view and asks for nothing.
TEST_P(LeaseScenario, writer_closes_while_a_view_is_kept) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), options());
  const auto v = writer.define<double>("v", {8});
  auto reader = context.open_stream("s", solo(), options());
  write_step(writer, v);
  const auto kept = keep(reader, 0);
  writer.close();
  expect_view(kept, 0);
  EXPECT_EQ(reader.try_begin_step(10s).outcome, Outcome::end_of_stream);
}

TEST_P(LeaseScenario, ranks_keep_views_to_the_end) {
  cohorts(
      2, 3,
      [](Writer& writer, int rank) {
        const auto v = writer.define<double>("v", {2});
        for (int t = 0; t < 6; ++t) {
          auto step = writer.begin_step();
          const double value = static_cast<double>(step.number());
          step.put(v, {{static_cast<std::uint64_t>(rank)}, {1}}, &value);
          step.end();
        }
      },
      [](Reader& reader, int) {
        Views kept;
        for (double t = 0; t < 6; ++t) {
          auto step = reader.begin_step();
          auto views = step.view(step.variable("v").id);
          step.end();
          kept = std::move(views);
          for (const auto& part : kept) EXPECT_EQ(part.as<double>()[0], t);
        }
        EXPECT_EQ(reader.try_begin_step(10s).outcome, Outcome::end_of_stream);
        for (const auto& part : kept) EXPECT_EQ(part.as<double>()[0], 5);
      });
}

TEST_P(QueueLeaseScenario, stopped_reader_starves_nobody) {
  constexpr std::uint64_t steps = 40;
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), with([this](auto& o) {
                                        o.queue_steps = 4;
                                        o.rendezvous_readers = on("pool") ? 0 : 2;
                                        o.when_full = WhenFull::discard_newest;
                                      }));
  const auto v = writer.define<double>("v", {8});
  auto stopped = context.open_stream("s", solo(), options());
  auto reader = context.open_stream("s", solo(), options());
  for (std::uint64_t t = 0; t < steps; ++t) {
    write_step(writer, v);
    expect_view(keep(reader, t), t);
  }
  EXPECT_EQ(reader.statistics().steps_dropped, 0u);
  std::uint64_t read = 0;
  together({[&] { writer.close(); },
            [&] {
              EXPECT_EQ(reader.try_begin_step(10s).outcome, Outcome::end_of_stream);
              while (auto next = stopped.try_begin_step(10s).step) {
                EXPECT_EQ(next->read<double>("v"), numbered(8, next->number()));
                ++read;
              }
            }});
  EXPECT_GE(read, 2u);
  EXPECT_EQ(read + stopped.statistics().steps_dropped, steps);
}

TEST_P(QueueLeaseScenario, hoarding_reader_starves_nobody) {
  for (const auto when_full : {WhenFull::discard_newest, WhenFull::discard_oldest}) {
    constexpr std::uint64_t steps = 40;
    Context context(context_options());
    auto writer = context.create_stream("s", solo(), with([&](auto& o) {
                                          o.queue_steps = 4;
                                          o.rendezvous_readers = on("pool") ? 0 : 2;
                                          o.when_full = when_full;
                                        }));
    const auto v = writer.define<double>("v", {8});
    auto hoarder = context.open_stream("s", solo(), options());
    auto reader = context.open_stream("s", solo(), options());
    std::vector<Views> hoard;
    for (std::uint64_t t = 0; t < steps; ++t) {
      write_step(writer, v);
      const auto patience = t == 0 ? 10s : 0s;  // an announcement takes its time: 40 steps may be written before it
      if (auto next = hoarder.try_begin_step(patience).step) hoard.push_back(next->view(next->variable("v").id));
      expect_view(keep(reader, t), t);
    }
    EXPECT_GE(hoard.size(), 1u);
    EXPECT_EQ(reader.statistics().steps_dropped, 0u);
    hoarder.close();
    writer.close();
  }
}

}  // namespace
}  // namespace penstock
