// Streams in a pool recorded, shown, and written and read again on a real server, with the same outcomes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <latch>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <thread>

#include "base/test_support.hpp"
#include "penstock/trace.hpp"
#include "pool/pool_engine.hpp"
#include "pool/recording.hpp"
#include "pool/replay.hpp"
#include "pool/replay_pool_test_support.hpp"
#include "pool/trace_writer.hpp"

namespace penstock {
namespace {

using nlohmann::json;

// The engines' room is above this one.
[[maybe_unused]] const bool pool_engine = [] {
  stream::add_engine({"pool", &pool::create_pool_writer, &pool::open_pool_reader});
  return true;
}();

class ReplayOfStreams : public OnePoolServer {
 protected:
  void SetUp() override {
    OnePoolServer::SetUp();
    context = std::make_unique<Context>(new_context());
  }
  void TearDown() override {
    context.reset();
    OnePoolServer::TearDown();
  }
  std::string traces() const { return folder / "traces"; }
  StreamOptions recorded() const {
    StreamOptions options;
    options.engine = "pool";
    options.trace = traces();
    return options;
  }
  StreamOptions unrecorded() const {
    StreamOptions options = recorded();
    options.trace = "off";
    return options;
  }
  Recording recording() const { return Recording::read({traces()}); }
  std::uint64_t objects() {
    PoolOptions options;
    options.trace = "off";
    return Pool(*context, options).status().servers.at(0).objects;
  }
  // What the replay says, which must be what was recorded.
  json replayed(double speed, std::uint32_t clients = 1, bool keep = false) {
    ReplayOptions how;
    how.speed = speed;
    how.clients = clients;
    how.keep = keep;
    Replay replay(*context, recording(), how);
    EXPECT_TRUE(replay.wait(Timeout(120'000)));
    auto report = json::parse(replay.report());
    EXPECT_EQ(report["different"], 0) << report.dump(1);
    EXPECT_EQ(report["operations"], recording().operations() * clients);
    return report;
  }
  std::map<std::string, json> verbs() const {
    const auto summary = json::parse(recording().summary());
    std::map<std::string, json> verbs;
    for (const auto& verb : summary["verbs"]) verbs[verb["verb"]] = verb;
    return verbs;
  }

  std::unique_ptr<Context> context;
};

constexpr std::uint64_t rows = 64, columns = 32, steps = 5;

void write_rank(Context& context, std::shared_ptr<Cohort> cohort, const StreamOptions& options, std::latch& looked) {
  const auto rank = static_cast<std::uint64_t>(cohort->rank());
  auto writer = context.create_stream("heat", cohort, options);
  auto T = writer.define<double>("T", {rows, columns});
  auto U = writer.define<float>("U", {rows, columns}, {.min_max = true});
  auto particles = writer.define_local<int>("particles");
  auto value = writer.define_value<double>("value");
  auto name = writer.define_value<std::string>("name");
  EXPECT_THROW(writer.define<int>("T", {1}), Error);
  writer.put_attribute("title", Attribute::of(std::string("a run")));
  looked.wait();
  const Box half{{rank * rows / 2, 0}, {rows / 2, columns}};
  std::vector<double> data(rows / 2 * columns);
  std::iota(data.begin(), data.end(), static_cast<double>(rank));
  for (std::uint64_t number = 0; number < steps; ++number) {
    auto step = writer.begin_step();
    if (number == 3) step.set_shape(U, {rows, columns / 2});
    step.put(T, half, data.data());
    const Box part{{rank * rows / 2, 0}, {rows / 2, number < 3 ? columns : columns / 2}};
    for (auto& element : step.put_span(U, part)) element = 1;
    const std::vector<int> some(number + rank, 7);
    step.lend(particles, Box{{0}, {some.size()}}, some.data());
    if (rank == 0) step.put(value, 2.5), step.put(name, std::string("step ") + std::to_string(number));
    step.put_attribute("t", 0.1 * static_cast<double>(number));
    step.end();
  }
  writer.close();
}

// Looks before there is anything; reads in every way; sees the end.
void read_all(Reader& reader, std::latch& looked) {
  // Two looks at once are one; what else is done ends it.
  for (int look = 0; look < 2; ++look) {
    EXPECT_EQ(reader.try_begin_step(Timeout(0)).outcome, Outcome::not_ready);
  }
  EXPECT_TRUE(reader.steps().empty());
  looked.count_down();
  std::vector<double> all(rows * columns), part(4 * columns);
  for (std::uint64_t number = 0;; ++number) {
    auto begun = reader.try_begin_step(patience);
    if (begun.outcome == Outcome::end_of_stream) break;
    ASSERT_EQ(begun.outcome, Outcome::ready);
    ReadStep& step = *begun.step;
    const auto id = step.variable("T").id;
    step.get(id, Selection::all(), all.data());
    step.get(id, Selection::box({30, 0}, {4, columns}), part.data());
    step.wait();
    EXPECT_EQ(all[rows / 2 * columns], 1.0);
    std::vector<double> points(3);
    step.get(id, Selection::points({0, 0, 1, 1, 63, 31}, 2), points.data());
    step.get(id, Selection::strided({0, 0}, {rows / 2, columns}, {2, 1}), all.data());
    const auto block = step.view(step.variable("U").id, Selection::block(1));
    EXPECT_EQ(block.size(), 1u);
    EXPECT_EQ(step.read_strings(step.variable("name").id).size(), 1u);
    EXPECT_THROW(step.get(id, Selection::box({0, 0}, {rows + 1, 1}), all.data()), Error);
    step.end();
  }
  EXPECT_EQ(reader.steps().size(), steps);
  reader.seek(2);
  auto again = reader.begin_step();
  EXPECT_EQ(again.number(), 2u);
  again.end();
  reader.close();
}

TEST_F(ReplayOfStreams, WritersAndReaders) {
  {
    std::latch looked(1);
    std::jthread writer([&] {
      run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) { write_rank(*context, cohort, recorded(), looked); });
    });
    auto reader = context->open_stream("heat", solo(), recorded());
    read_all(reader, looked);
  }
  const auto seen = verbs();
  EXPECT_EQ(seen.at("write_put").at("operations"), 2 * 3 * steps + 2 * steps);
  EXPECT_EQ(seen.at("write_end").at("operations"), 2 * steps);
  EXPECT_EQ(seen.at("write_define").at("errors").at("invalid_argument"), 2);
  EXPECT_EQ(seen.at("read_get").at("errors").at("invalid_argument"), steps);
  EXPECT_EQ(seen.at("read_begin").at("errors").at("end_of_stream"), 1);
  EXPECT_EQ(seen.at("read_begin").at("errors").at("timeout"), 1);
  EXPECT_EQ(seen.at("read_end").at("operations"), steps + 1);
  const auto before = objects();
  for (const double speed : {0.0, 1.0}) replayed(speed);
  replayed(0, 3);
  EXPECT_EQ(objects(), before);  // it leaves nothing
  const auto kept = replayed(0, 1, true);
  ASSERT_EQ(kept["streams"].size(), 1u);
  auto again = context->open_stream(kept["streams"][0].get<std::string>(), solo(), unrecorded());
  EXPECT_EQ(again.steps().size(), steps);
}

void write_steps(Writer& writer, std::uint64_t count) {
  auto x = writer.define<double>("x", {1000});
  const std::vector<double> data(1000);
  for (std::uint64_t number = 0; number < count; ++number) {
    auto step = writer.begin_step();
    step.put(x, data.data());
    step.end();
  }
}

Outcome read_steps(Reader& reader) {
  for (;;) {
    auto begun = reader.try_begin_step(patience);
    if (begun.outcome != Outcome::ready) return begun.outcome;
    EXPECT_EQ(begun.step->read<double>("x").size(), 1000u);
    begun.step->end();
  }
}

TEST_F(ReplayOfStreams, AWriterThatIsLost) {
  try {
    auto writer = context->create_stream("heat", solo(), recorded());
    write_steps(writer, 2);
    throw std::runtime_error("the simulation fails");
  } catch (const std::runtime_error&) {
  }
  auto reader = context->open_stream("heat", solo(), recorded());
  EXPECT_EQ(read_steps(reader), Outcome::writer_lost);
  reader.close();
  EXPECT_EQ(verbs().at("read_begin").at("errors").at("writer_lost"), 1);
  replayed(0);
}

// What an analysis read of a stream that nobody recorded the writing of is written first.
TEST_F(ReplayOfStreams, AStreamThatWasThereBefore) {
  {
    auto writer = context->create_stream("heat", solo(), unrecorded());
    write_steps(writer, 4);
  }
  {
    StreamOptions later = recorded();
    later.start = "1";
    auto reader = context->open_stream("heat", solo(), later);
    EXPECT_EQ(read_steps(reader), Outcome::end_of_stream);
  }
  replayed(0);
}

// Says when its first collective call is under way.
class Telling final : public Cohort {
 public:
  Telling(std::shared_ptr<Cohort> cohort, std::latch& began) : cohort_(std::move(cohort)), began_(began) {}
  int rank() const override { return cohort_->rank(); }
  int size() const override { return cohort_->size(); }
  std::string broadcast(const std::string& bytes, int root) override {
    tell();
    return cohort_->broadcast(bytes, root);
  }
  std::vector<std::string> gather(const std::string& bytes, int root) override {
    tell();
    return cohort_->gather(bytes, root);
  }

 private:
  void tell() {
    if (!std::exchange(told_, true)) began_.count_down();
  }
  const std::shared_ptr<Cohort> cohort_;
  std::latch& began_;
  bool told_ = false;
};

// Of two cohorts of equal size: rank 0 of the first opens, then both of the second, then rank 1 of the first.
TEST_F(ReplayOfStreams, CohortsThatOpenAtOnceAreNotMixed) {
  {
    auto writer = context->create_stream("heat", solo(), recorded());
    write_steps(writer, 5);
  }
  StreamOptions later = recorded();
  later.start = "3";
  {
    std::latch first_began(1), second_is_open(2);
    std::jthread first([&] {
      run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) {
        if (cohort->rank() == 1) second_is_open.wait();
        else cohort = std::make_shared<Telling>(cohort, first_began);
        auto reader = context->open_stream("heat", cohort, recorded());
        EXPECT_EQ(read_steps(reader), Outcome::end_of_stream);
        reader.close();
      });
    });
    first_began.wait();
    run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) {
      auto reader = context->open_stream("heat", cohort, later);
      second_is_open.count_down();
      EXPECT_EQ(read_steps(reader), Outcome::end_of_stream);
      reader.close();
    });
  }
  EXPECT_EQ(verbs().at("read_end").at("operations"), 2 * 5 + 2 * 2);
  replayed(0);
}

// A recording of one who read these steps of a stream that is not there.
void record_reader(const std::string& path, std::initializer_list<std::uint64_t> seen) {
  const auto writer = pool::TraceWriter::open(path);
  writer->client("stage");
  const Key key{"heat", ""};
  pool::TraceEvent event;
  event.keys = {&key, 1};
  const auto record = [&](pool::Verb verb) {
    event.verb = verb;
    event.start_ns = pool::TraceWriter::now_ns();
    writer->record(event);
  };
  event.count = 1;
  record(pool::Verb::read_open);
  for (const auto step : seen) {
    event.version = step;
    record(pool::Verb::read_begin);
    record(pool::Verb::read_end);
  }
  record(pool::Verb::read_close);
}

TEST_F(ReplayOfStreams, WhatIsWrittenFirstHasABound) {
  record_reader(traces(), {0, 1'000'000'000});
  Replay replay(*context, recording(), {});
  ASSERT_TRUE(replay.wait(patience));
  EXPECT_EQ(code_of([&] { replay.report(); }), Errc::invalid_argument);
}

TEST_F(ReplayOfStreams, WhatIsWrittenFirstEndsWithTheDeadlineOrWhenStopped) {
  record_reader(traces(), {0, 99'999});
  for (const bool stop : {false, true}) {
    ReplayOptions how;
    if (!stop) how.timeout = Timeout(200);
    Replay replay(*context, recording(), how);
    if (stop) replay.stop();
    ASSERT_TRUE(replay.wait(Timeout(10'000)));
    EXPECT_EQ(json::parse(replay.report())["stopped"], true);
  }
}

// Names of streams have a bound, and so have those of their copies.
TEST_F(ReplayOfStreams, LongNamesAreKeptApart) {
  const std::string name(127, 'n');
  for (const char* last : {"a", "b"}) {
    auto writer = context->create_stream(name + last, solo(), recorded());
    write_steps(writer, 2);
    writer.close();
  }
  const auto kept = replayed(0, 1, true);
  EXPECT_EQ(kept["streams"].size(), 2u);
}

TEST_F(ReplayOfStreams, WhatIsLentStaysUntilTheStepEnds) {
  const std::vector<std::byte> few(16 << 20), many(32 << 20);
  {
    auto writer = context->create_stream("heat", solo(), recorded());
    auto lent = writer.define_local<std::uint8_t>("lent"), put = writer.define_local<std::uint8_t>("put");
    auto step = writer.begin_step();
    step.lend(lent, Box{{0}, {few.size()}}, reinterpret_cast<const std::uint8_t*>(few.data()));
    step.put(put, Box{{0}, {many.size()}}, reinterpret_cast<const std::uint8_t*>(many.data()));
    step.end();
    writer.close();
  }
  const auto kept = replayed(0, 1, true);
  auto reader = context->open_stream(kept["streams"].at(0).get<std::string>(), solo(), unrecorded());
  auto step = reader.begin_step();
  std::vector<std::byte> seen(few.size()), expected(few.size());
  step.get(step.variable("lent").id, Selection::block(0), seen.data());
  step.wait();
  pool::fill_replayed({"stream", ""}, expected);
  EXPECT_TRUE(seen == expected);
}

TEST_F(ReplayOfStreams, NothingIsRecordedUnlessAskedFor) {
  auto writer = context->create_stream("heat", solo(), unrecorded());
  write_steps(writer, 1);
  writer.close();
  EXPECT_FALSE(std::filesystem::exists(traces()));
  StreamOptions nowhere = recorded();
  nowhere.trace = folder / "no/such/one.trace";  // logged; the stream goes on
  auto other = context->create_stream("other", solo(), nowhere);
  write_steps(other, 1);
  other.close();
}

TEST_F(ReplayOfStreams, AsChromeShowsThem) {
  {
    auto writer = context->create_stream("heat", solo(), recorded());
    write_steps(writer, 2);
  }
  std::ostringstream out;
  write_chrome_trace(recording().impl().timeline, out);
  const auto chrome = json::parse(out.str());
  std::size_t puts = 0;
  for (const auto& event : chrome["traceEvents"]) {
    if (event["name"] != "write_put") continue;
    ++puts;
    EXPECT_EQ(event["cat"], "stream");
    EXPECT_EQ(event["ph"], "X");
    EXPECT_EQ(event["args"]["row"], "heat");
    EXPECT_EQ(event["args"]["column"], "x");
    EXPECT_EQ(event["args"]["bytes"], 8000);
  }
  EXPECT_EQ(puts, 2u);
}

}  // namespace
}  // namespace penstock
