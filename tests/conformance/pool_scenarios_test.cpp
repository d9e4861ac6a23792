// Scenarios whose contract differs in a pool (C++ API): the writer's queue is towards the pool, which readers do not hold.
// A stopped server is a pool that takes nothing. Names are those of the scenario table.
#include <gmock/gmock.h>

#include <filesystem>

#include "penstock/pool.hpp"
#include "scenario.hpp"

namespace penstock {
namespace {

using scenario::code_of;
using scenario::numbered;
using namespace std::chrono_literals;

class PoolScenario : public scenario::Scenario {
 protected:
  static void write_step(Writer& writer, Variable<double> v) {
    auto step = writer.begin_step();
    step.put(v, {{0}, {8}}, numbered(8, step.number()).data());
    step.end();
  }
  // Writes a step without waiting. False: it was dropped.
  static bool try_write(Writer& writer, Variable<double> v) {
    auto step = writer.begin_step(0ms);
    const bool kept = !step.dropped();
    step.put(v, {{0}, {8}}, numbered(8, step.number()).data());
    step.end();
    return kept;
  }
  static void expect_next(Reader& reader, std::uint64_t t) {
    auto step = reader.begin_step();
    EXPECT_EQ(step.number(), t);
    EXPECT_EQ(step.read<double>("v"), numbered(8, step.number()));
  }
  Writer create(const std::function<void(StreamOptions&)>& change = [](auto&) {}) {
    auto o = options();
    o.rendezvous_readers = 0;
    change(o);
    return context_.create_stream("s", solo(), o);
  }
  Reader open() { return context_.open_stream("s", solo(), options()); }
  std::string timeout_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Errc::timeout) << e.what();
      return e.what();
    }
    ADD_FAILURE() << "no timeout";
    return "";
  }

  Context context_{context_options()};
};
PENSTOCK_SCENARIOS(PoolScenario, "pool");

TEST_P(PoolScenario, rendezvous) {
  auto o = options();
  o.rendezvous_readers = 2;
  EXPECT_EQ(code_of([&] { context_.create_stream("s", solo(), o); }), Errc::invalid_argument);
  auto writer = create();
  const auto v = writer.define<double>("v", {8});
  for (int t = 0; t < 10; ++t) write_step(writer, v);
  writer.close();
  auto reader = open();  // after the writer
  for (std::uint64_t t = 0; t < 10; ++t) expect_next(reader, t);
  EXPECT_EQ(reader.try_begin_step(10s).outcome, Outcome::end_of_stream);
}

TEST_P(PoolScenario, queue_bounds_steps_and_names_who_holds_them) {
  auto writer = create([](auto& o) { o.queue_steps = 2; });
  const auto v = writer.define<double>("v", {8});
  server_->stop();
  write_step(writer, v);
  write_step(writer, v);
  EXPECT_FALSE(writer.try_begin_step(0ms).has_value());
  EXPECT_THAT(timeout_of([&] { writer.begin_step(1ms); }), testing::HasSubstr("pool scenarios"));
  server_->resume();
  auto step = writer.try_begin_step(10s);
  ASSERT_TRUE(step.has_value());
  step->abandon();
  auto reader = open();
  expect_next(reader, 0);
  expect_next(reader, 1);
  writer.close();
  EXPECT_EQ(writer.statistics().steps_voided, 1u);
}

TEST_P(PoolScenario, queue_bounds_bytes) {
  constexpr std::uint64_t mib = 1 << 20;
  auto writer = create([](auto& o) {
    o.queue_bytes = 8 * mib;
    o.queue_steps = 4;
  });
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
  server_->stop();
  EXPECT_TRUE(write(10s));
  EXPECT_TRUE(write(10s));
  EXPECT_FALSE(write(10ms));  // two steps of three MiB and a third do not fit in eight
  EXPECT_LE(writer.statistics().memory_bytes, 8 * mib);
  server_->resume();
  EXPECT_TRUE(write(10s));
  writer.close();
}

TEST_P(PoolScenario, discard_newest) {
  auto writer = create([](auto& o) {
    o.queue_steps = 2;
    o.when_full = WhenFull::discard_newest;
  });
  const auto v = writer.define<double>("v", {8});
  server_->stop();
  for (int t = 0; t < 6; ++t) EXPECT_EQ(try_write(writer, v), t < 2);
  EXPECT_EQ(writer.statistics().steps_dropped, 4u);
  EXPECT_EQ(writer.statistics().peers.at(0).steps_dropped, 4u);  // the pool
  server_->resume();
  auto reader = open();
  expect_next(reader, 0);
  expect_next(reader, 1);
  while (!try_write(writer, v)) {  // until the pool has released them
  }
  expect_next(reader, writer.statistics().steps_dropped + 2);
  writer.close();
}

TEST_P(PoolScenario, discard_oldest) {
  auto writer = create([](auto& o) {
    o.queue_steps = 3;
    o.when_full = WhenFull::discard_oldest;
  });
  const auto v = writer.define<double>("v", {8});
  server_->stop();
  for (int t = 0; t < 10; ++t) EXPECT_TRUE(try_write(writer, v));
  EXPECT_EQ(writer.statistics().steps_dropped, 7u);
  server_->resume();
  auto reader = open();
  for (const std::uint64_t t : {0u, 8u, 9u}) expect_next(reader, t);  // 0 was announced to the pool, which may read it
  writer.close();
}

TEST_P(PoolScenario, deadlines) {
  auto absent = options();
  absent.open_timeout_ms = 30;
  EXPECT_EQ(code_of([&] { context_.open_stream("absent", solo(), absent); }), Errc::timeout);
  auto writer = create([](auto& o) { o.queue_steps = 1; });
  const auto v = writer.define<double>("v", {8});
  auto reader = open();
  EXPECT_EQ(reader.try_begin_step(0ms).outcome, Outcome::not_ready);
  EXPECT_EQ(code_of([&] { reader.begin_step(1ms); }), Errc::timeout);
  server_->stop();
  write_step(writer, v);  // nobody is waited for
  EXPECT_THAT(timeout_of([&] { writer.begin_step(1ms); }), testing::HasSubstr("pool scenarios"));
  EXPECT_EQ(code_of([&] { reader.begin_step(1ms); }), Errc::timeout);
  EXPECT_EQ(code_of([&] { context_.create_stream("other", solo(), absent); }), Errc::timeout);
  EXPECT_THAT(timeout_of([&] { writer.close(1ms); }), testing::HasSubstr("before every step was in pool scenarios"));
  server_->resume();
  auto next = reader.try_begin_step(20s);
  if (next.outcome == Outcome::ready) {  // the pool had its memory when the writer left
    EXPECT_EQ(next.step->read<double>("v"), numbered(8, 0));
    next.step->end();
    next = reader.try_begin_step(20s);
  }
  EXPECT_EQ(next.outcome, Outcome::writer_lost);
}

// The pool's record of a stream is its registration: no file says who writes it.
TEST_P(PoolScenario, registration) {
  auto writer = create();
  EXPECT_EQ(code_of([&] { context_.create_stream("s", solo(), options()); }), Errc::wrong_state);
  EXPECT_EQ(code_of([&] { context_.create_stream("../s", solo(), options()); }), Errc::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(scratch_.path() + "/s.json"));
  PoolOptions inside;
  inside.ns = "penstock.streams";
  EXPECT_EQ(code_of([&] { Pool(context_, inside).get(Key{"stream/s", "stream"}); }), Errc::forbidden);
  const auto state = [&] { return context_.inspect("s", 10s, options()); };
  EXPECT_THAT(state(), testing::HasSubstr("\"state\":\"open\""));
  writer.lose();
  EXPECT_THAT(state(), testing::HasSubstr("\"state\":\"lost\""));
  auto again = create();
  EXPECT_THAT(state(), testing::HasSubstr("\"state\":\"open\""));
  again.close();
  EXPECT_THAT(state(), testing::HasSubstr("\"state\":\"ended\""));
}

// The address is that of the pool's directory: with it a stream is opened from anywhere.
TEST_P(PoolScenario, address_and_wrong_token) {
  auto writer = create();
  const auto v = writer.define<double>("v", {8});
  auto elsewhere_options = context_options();
  elsewhere_options.directory = server_->directory();
  auto wrong_options = elsewhere_options;
  auto& last = wrong_options.directory.back();
  last = last == '0' ? '1' : '0';
  EXPECT_EQ(code_of([&] { Context(wrong_options).open_stream("s", solo(), options()); }), Errc::authentication);
  Context elsewhere(elsewhere_options);
  auto reader = elsewhere.open_stream("s", solo(), options());
  write_step(writer, v);
  expect_next(reader, 0);
  reader.close();
  writer.close();
}

TEST_P(PoolScenario, inspection_joins_nothing) {
  auto writer = create();
  const auto v = writer.define<double>("v", {8});
  for (int t = 0; t < 3; ++t) write_step(writer, v);
  auto reader = open();
  await_steps(reader, 3);
  const auto found = [&] { return context_.inspect("s", 10s, options()); };
  EXPECT_THAT(found(), testing::HasSubstr("\"steps\":3"));
  EXPECT_THAT(found(), testing::HasSubstr("\"readers\":0"));  // none has asked for a step
  expect_next(reader, 0);
  EXPECT_THAT(found(), testing::HasSubstr("\"readers\":1"));
  reader.close();
  writer.close();
  EXPECT_EQ(code_of([&] { context_.inspect("absent", 10s, options()); }), Errc::not_found);
}

}  // namespace
}  // namespace penstock
