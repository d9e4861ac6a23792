// Planes, epochs and accounts, scenario by scenario, over every plane (C++ API). Names are those of the scenario table.
#include <gmock/gmock.h>

#include "scenario.hpp"

namespace penstock {
namespace {

using scenario::code_of;
using scenario::numbered;

class PlaneScenario : public scenario::Scenario {
 protected:
  static void write_step(Writer& writer, Variable<double> v, std::uint64_t t) {
    auto step = writer.begin_step();
    step.put(v, {{0}, {8}}, numbered(8, t).data());
    step.end();
  }
  static void expect_next(Reader& reader, std::uint64_t t) {
    auto step = reader.begin_step();
    EXPECT_EQ(step.number(), t);
    EXPECT_EQ(step.read<double>("v"), numbered(8, t));
  }
};
PENSTOCK_SCENARIOS(PlaneScenario);

// Of engines that have planes.
class ChosenPlaneScenario : public PlaneScenario {};
PENSTOCK_SCENARIOS(ChosenPlaneScenario, "direct", "pool", "insitu");

class LivePlaneScenario : public PlaneScenario {};
PENSTOCK_SCENARIOS(LivePlaneScenario, "direct", "insitu");

TEST_P(ChosenPlaneScenario, plane_chosen_reported_and_forced) {
  Context context(context_options());
  const std::string own = on("insitu") ? "insitu" : "";  // what an engine without planes reports
  const auto forced = own.empty() ? scenario::plane_name(plane()) : own;
  const std::pair<DataPlane, std::string> cases[] = {{DataPlane::automatic, own.empty() ? "shm" : own},
                                                     {plane(), forced}};  // on one host
  for (const auto& [asked, got] : cases) {
    auto writer_options = options(), reader_options = options();
    writer_options.data_plane =
        asked == DataPlane::ucx ? asked : DataPlane::automatic;  // it is offered to nobody unasked
    reader_options.data_plane = asked;
    auto writer = context.create_stream("s", solo(), writer_options);
    auto reader = context.open_stream("s", solo(), reader_options);
    write_step(writer, writer.define<double>("v", {8}), 0);
    expect_next(reader, 0);
    EXPECT_EQ(reader.statistics().data_plane, got);
    // Of its peers a writer knows where they are; a pool's writer knows the pool only.
    EXPECT_EQ(writer.statistics().peers.at(0).data_plane, on("pool") && got != "ucx" ? "shm" : got);
    reader.close();
    writer.close();
  }
}

// What a step in a known epoch is announced with does not grow with its blocks, and a plan serves all such steps.
TEST_P(PlaneScenario, epochs_and_plans) {
  std::vector<std::uint64_t> per_step;
  for (const std::uint64_t blocks : {1, 64}) {
    Context context(context_options());
    auto writer = context.create_stream("s", solo(), options());
    auto reader = context.open_stream("s", solo(), options());
    const auto v = writer.define<double>("v", {64});
    std::uint64_t before = 0;
    for (int t = 0; t < 24; ++t) {
      if (t == 4) before = reader.statistics().announcement_bytes;
      auto step = writer.begin_step();
      for (std::uint64_t b = 0; b < blocks; ++b) step.put(v, {{b}, {1}}, numbered(1, b).data());
      step.end();
      auto received = reader.begin_step();
      std::vector<double> out(64);
      received.get("v", Selection::all(), out.data());
      received.end();
      EXPECT_EQ(out[blocks - 1], 1000.0 * static_cast<double>(blocks - 1));
    }
    EXPECT_EQ(writer.statistics().epochs, 1u);
    EXPECT_EQ(reader.statistics().epochs, 1u);
    EXPECT_LE(reader.statistics().plans_built, 2u);
    EXPECT_GE(reader.statistics().plans_reused, 22u);
    per_step.push_back((reader.statistics().announcement_bytes - before) / 20);
    reader.close();
    writer.close();
  }
  EXPECT_EQ(per_step[0] == 0, on("file"));  // its readers are told nothing: they look
  EXPECT_LE(per_step[0], 256u);
  EXPECT_EQ(per_step[0], per_step[1]);
}

// Each reader is charged with what it did not get, and the writer knows both accounts.
TEST_P(LivePlaneScenario, dropped_steps_are_counted_on_both_sides) {
  Context context(context_options());
  auto writer_options = options();
  writer_options.queue_steps = 2;
  writer_options.when_full = WhenFull::discard_newest;
  writer_options.rendezvous_readers = 2;
  auto writer = context.create_stream("s", solo(), writer_options);
  const auto v = writer.define<double>("v", {8});
  auto one = context.open_stream("s", solo(), options());
  auto two = context.open_stream("s", solo(), options());
  for (std::uint64_t t = 0; t < 5; ++t) write_step(writer, v, t);
  for (std::uint64_t t = 0; t < 2; ++t) {
    expect_next(one, t);
    expect_next(two, t);
  }
  EXPECT_EQ(writer.statistics().steps, 2u);
  EXPECT_EQ(writer.statistics().steps_dropped, 3u);
  for (const auto& peer : writer.statistics().peers) EXPECT_EQ(peer.steps_dropped, 3u);
  writer.close();
  for (auto* reader : {&one, &two}) {
    EXPECT_EQ(reader->try_begin_step(Timeout(10'000)).outcome, Outcome::end_of_stream);
    EXPECT_EQ(reader->statistics().steps, 2u);
    EXPECT_EQ(reader->statistics().steps_dropped, 3u);
  }
}

template <class T>
void put_both(WriteStep& step, std::vector<T> values) {
  const std::string name(name_of(dtype_of<T>()));
  step.put_attribute(name, values[0]);
  step.put_attribute(name + "[]", Attribute::of(std::span<const T>(values)));
}
template <class T>
void expect_both(ReadStep& step, std::vector<T> values) {
  const std::string name(name_of(dtype_of<T>()));
  EXPECT_EQ(step.attribute(name), Attribute::of(values[0])) << name;
  EXPECT_EQ(step.attribute(name + "[]"), Attribute::of(std::span<const T>(values))) << name;
}

// Applies do_both to values of every type that has a fixed size, but bool, of which std::vector has no elements.
#define PENSTOCK_FOR_EVERY_TYPE(do_both, step)                                                 \
  do_both<std::int8_t>(step, {-128, 0, 127}), do_both<std::int16_t>(step, {-32768, 5}),        \
      do_both<std::int32_t>(step, {-7, 8}), do_both<std::int64_t>(step, {INT64_MIN, 1}),       \
      do_both<std::uint8_t>(step, {255, 0}), do_both<std::uint16_t>(step, {65535, 3}),         \
      do_both<std::uint32_t>(step, {4000000000u}), do_both<std::uint64_t>(step, {UINT64_MAX}), \
      do_both<float16>(step, {{0x3c00}, {0xbc00}}), do_both<bfloat16>(step, {{0x3f80}}),       \
      do_both<float>(step, {0.1f, -2}), do_both<double>(step, {0.1, 1e300}),                   \
      do_both<std::complex<float>>(step, {{1, -1}, {0, 2}}), do_both<std::complex<double>>(step, {{0.5, 3}})

TEST_P(PlaneScenario, attributes_of_every_type) {
  const bool flags[] = {true, false, true};
  const std::vector<std::string> words{"z", "", "grüße"};
  pair(
      [&](Writer& writer) {
        for (int t = 0; t < 2; ++t) {
          auto step = writer.begin_step();
          if (t == 0) PENSTOCK_FOR_EVERY_TYPE(put_both, step);
          step.put_attribute("bool", t == 1);
          step.put_attribute("bool[]", Attribute::of(std::span<const bool>(flags)));
          step.put_attribute("string", "grüße");
          step.put_attribute("string[]", Attribute::of(words));
          step.end();
        }
      },
      [&](Reader& reader) {
        for (int t = 0; t < 2; ++t) {
          auto step = reader.begin_step();
          PENSTOCK_FOR_EVERY_TYPE(expect_both, step);
          EXPECT_EQ(step.attribute("bool")->as<bool>(), t == 1);
          EXPECT_EQ(step.attribute("bool[]"), Attribute::of(std::span<const bool>(flags)));
          EXPECT_EQ(step.attribute("string")->as<std::string>(), "grüße");
          EXPECT_EQ(step.attribute("string[]"), Attribute::of(words));
          EXPECT_EQ(code_of([&] { step.attribute("string")->as<double>(); }), Errc::invalid_argument);
        }
      });
}

}  // namespace
}  // namespace penstock
