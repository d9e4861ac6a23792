// Arrays that are lent stay where they are, for readers of this process and for others; a step ends when nobody uses them.
#include <atomic>
#include <fstream>
#include <random>
#include <thread>

#include "stream/api/engine.hpp"
#include "stream/direct/direct_engine.hpp"
#include "stream/insitu/insitu_engine.hpp"
#include "stream/insitu/insitu_fixture.hpp"

namespace penstock::stream {

std::span<const EngineEntry> engines() {
  static constexpr EngineEntry all[] = {
      {.name = "direct", .create = &create_direct, .open = &open_direct, .finder = &find_direct},
      {"insitu", &create_insitu, &open_insitu}};
  return all;
}

namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Reads each step with the function until the stream ends, in a thread of its own.
std::thread reading(Context& context, const StreamOptions& options, std::function<void(ReadStep&)> read) {
  return std::thread([&context, options, read = std::move(read)] {
    auto reader = context.open_stream("s", solo(), options);
    for (;;) {
      auto [outcome, step] = reader.try_begin_step(20s);
      if (outcome != Outcome::ready) {
        EXPECT_EQ(outcome, Outcome::end_of_stream);
        return;
      }
      read(*step);
    }
  });
}

TEST_F(InsituTest, AReaderOnAThreadSeesTheArraysThemselves) {
  auto writer = context_.create_stream("s", solo(), with());
  Halo halo({3, 5});
  const auto v = writer.define<double>("v", halo.inside);
  std::atomic<int> right{0};
  auto thread = reading(context_, with(), [&](ReadStep& step) {
    const auto views = step.view(0, Selection::box({1, 2}, {2, 2}));
    right += views[0].bytes().data() == reinterpret_cast<const std::byte*>(&halo.data()[halo.row() + 2]);
    right += step.read<double>("v", Selection::points({2, 4}, 2)).front() == halo.at(2, 4);
  });
  for (int t = 0; t < 5; ++t) write(writer, v, halo);
  EXPECT_EQ(right, 10);  // nobody reads an array once its step's end has returned
  writer.close();
  thread.join();
}

TEST_F(InsituTest, NobodyThereIsNoReasonToWait) {
  auto writer = context_.create_stream("s", solo(), with([](auto& o) { o.rendezvous_readers = 0; }));
  Halo halo({3, 5});
  const auto v = writer.define<double>("v", halo.inside);
  const auto start = std::chrono::steady_clock::now();
  for (int t = 0; t < 10; ++t) write(writer, v, halo);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);  // no step waited for its timeout
  EXPECT_EQ(writer.statistics().steps, 10u);
  writer.close();
}

TEST_F(InsituTest, AStepThatIsNotReleasedEndsAtItsDeadline) {
  auto writer = context_.create_stream("s", solo(), with([](auto& o) { o.step_timeout_ms = 50; }));
  auto reader = context_.open_stream("s", solo(), with());
  Halo halo({3, 5});
  const auto v = writer.define<double>("v", halo.inside);
  const auto [code, text] = error_of([&] { write(writer, v, halo); });
  EXPECT_EQ(code, Errc::timeout);
  EXPECT_THAT(text, HasSubstr("step 0 has arrays that were lent"));
  EXPECT_THAT(text, HasSubstr("1 held"));
  {
    auto step = reader.begin_step();
    std::vector<double> out(15);
    step.get("v", Selection::all(), out.data());
    EXPECT_EQ(code_of([&] { step.wait(); }), Errc::step_gone);
    EXPECT_EQ(code_of([&] { step.view(0); }), Errc::step_gone);
  }
  // The stream goes on.
  auto thread = std::thread([&] { EXPECT_EQ(reader.begin_step().read<double>("v").size(), 15u); });
  write(writer, v, halo);
  thread.join();
  EXPECT_EQ(writer.statistics().steps, 2u);
}

// Options that the engine does not take are left out where configuration chose it: here as a file has it.
TEST_F(InsituTest, NoStepIsKeptForLateJoiners) {
  const auto file = folder_ / "penstock.yaml";
  std::ofstream(file) << "streams: {s: insitu}\n";
  auto places = context_options();
  places.config_file = file;
  const Context context(places);
  StreamOptions in_code;
  in_code.reserve_steps = 1;
  in_code.keep_first_step = true;
  in_code.rendezvous_readers = 0;
  in_code.data_plane = DataPlane::shm;
  auto writer = context.create_stream("s", solo(), in_code);
  Halo halo({3, 5});
  const auto v = writer.define<double>("v", halo.inside);
  const auto start = std::chrono::steady_clock::now();
  for (int t = 0; t < 4; ++t) write(writer, v, halo);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  StreamOptions of_reader;
  of_reader.data_plane = DataPlane::tcp;
  auto reader = context.open_stream("s", solo(), of_reader);
  EXPECT_EQ(reader.statistics().data_plane, "insitu");
  EXPECT_EQ(reader.try_begin_step().outcome, Outcome::not_ready);
}

TEST_F(InsituTest, PutsAreQueuedAndPolicyHolds) {
  auto writer = context_.create_stream("s", solo(), with([](auto& o) {
                                         o.queue_steps = 2;
                                         o.when_full = WhenFull::discard_newest;
                                       }));
  auto reader = context_.open_stream("s", solo(), with());
  const std::vector<double> values{1, 2};
  const auto v = writer.define<double>("v", {2});
  std::string dropped;
  for (int t = 0; t < 4; ++t) {
    auto step = writer.begin_step();
    dropped += step.dropped() ? 'd' : '-';
    step.lend(v, whole({2}), values.data());
    step.abandon();
  }
  EXPECT_EQ(dropped, "----");  // void steps hold nothing
  dropped.clear();
  for (int t = 0; t < 4; ++t) {
    auto step = writer.begin_step();
    dropped += step.dropped() ? 'd' : '-';
    step.put(v, values.data());
    step.end();
  }
  EXPECT_EQ(dropped, "--dd");
  EXPECT_EQ(reader.begin_step().read<double>("v"), values);
}

TEST_F(InsituTest, SelectionsSpanRanks) {
  constexpr std::uint64_t rows = 4, columns = 6;
  std::atomic<std::size_t> gone{0};
  std::thread readers([&] {
    run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) {
      auto reader = context_.open_stream("s", cohort, with());
      for (;;) {
        auto [outcome, step] = reader.try_begin_step(20s);
        if (outcome != Outcome::ready) break;
        const auto half = columns / 2 * static_cast<std::uint64_t>(cohort->rank());
        const auto out = step->read<double>("v", Selection::box({1, half}, {3 * rows - 2, columns / 2}));
        for (std::uint64_t i = 0; i < 3 * rows - 2; ++i)
          for (std::uint64_t j = 0; j < columns / 2; ++j) {
            const auto row = i + 1;
            const Halo of({rows, columns}, 1000.0 * static_cast<double>(row / rows));
            ASSERT_EQ(out[i * columns / 2 + j], of.at(row % rows, half + j));
          }
        EXPECT_EQ(step->view(0).size(), 3u);
        EXPECT_TRUE(step->min_max(0));
      }
      ++gone;
    });
  });
  run_thread_cohort(3, [&](std::shared_ptr<Cohort> cohort) {
    const auto rank = static_cast<std::uint64_t>(cohort->rank());
    auto writer = context_.create_stream("s", cohort, with());
    Halo halo({rows, columns}, 1000.0 * static_cast<double>(rank));
    const auto v = writer.define<double>("v", {3 * rows, columns}, {.min_max = rank == 2});
    for (int t = 0; t < 4; ++t) write(writer, v, halo, Box{{rows * rank, 0}, halo.inside});
    writer.close();
  });
  readers.join();
  EXPECT_EQ(gone, 2u);
}

TEST_F(InsituTest, OthersReadLentMemoryOverTcp) {
  auto writer = context_.create_stream("s", solo(), with());
  Halo halo({64, 1000});
  const auto v = writer.define<double>("v", halo.inside);
  std::atomic<int> right{0};
  auto thread = reading(context_, with([](auto& o) { o.engine = "direct"; }), [&](ReadStep& step) {
    const auto all = step.read<double>("v");
    bool same = true;
    for (std::uint64_t i = 0; i < 64; ++i)
      for (std::uint64_t j = 0; j < 1000; ++j) same &= all[i * 1000 + j] == halo.at(i, j);
    right += same;
    right += step.view(0)[0].as<double>()[halo.row()] == halo.at(1, 0);
    right +=
        step.read<double>("v", Selection::points({63, 999, 0, 0}, 2)) == std::vector{halo.at(63, 999), halo.at(0, 0)};
  });
  for (int t = 0; t < 3; ++t) {
    halo.data()[0] = t;
    write(writer, v, halo);
  }
  EXPECT_EQ(right, 9);
  writer.close();
  thread.join();
  auto shm = with([](auto& o) {
    o.engine = "direct";
    o.data_plane = DataPlane::shm;
    o.open_timeout_ms = 1000;
  });
  auto again = context_.create_stream("s", solo(), with());
  EXPECT_EQ(code_of([&] { context_.open_stream("s", solo(), shm); }), Errc::unsupported);
}

// Against packed copies of the same elements: arrays of up to 8 dimensions with gaps and any order of dimensions.
TEST_F(InsituTest, AnyForwardStridesGiveWhatPackedOnesDo) {
  const auto seed = number_from("PENSTOCK_SEED", std::random_device{}());
  SCOPED_TRACE("PENSTOCK_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return std::uniform_int_distribution<std::uint64_t>(0, n - 1)(random); };
  auto writer = context_.create_stream("s", solo(), with());
  auto inside = context_.open_stream("s", solo(), with());
  auto outside = context_.open_stream("s", solo(), with([](auto& o) { o.engine = "direct"; }));
  for (int round = 0; round < 60; ++round) {
    const auto ndims = 1 + below(8);
    const std::vector<std::uint64_t> zeros(ndims);
    Dims shape{std::span(zeros)}, start = shape, count = shape;
    std::vector<std::size_t> order(ndims);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::int64_t> strides(ndims);
    std::int64_t extent = 4;
    for (const auto d : order) {
      shape[d] = 1 + below(ndims > 5 ? 3 : 5);
      strides[d] = extent + 4 * static_cast<std::int64_t>(below(3));
      if (round % 5 == 4 && shape[d] > 1) strides[d] = -strides[d];  // copied then
      extent = std::abs(strides[d]) * static_cast<std::int64_t>(shape[d]);
    }
    std::vector<std::int32_t> memory(static_cast<std::size_t>(extent) / 2 + 2);
    for (auto& value : memory) value = static_cast<std::int32_t>(random());
    const auto* first = memory.data() + (round % 5 == 4 ? memory.size() / 2 : 0);
    const std::string name = "v" + std::to_string(round);
    const auto lent = writer.define<std::int32_t>(name, shape);
    const auto put = writer.define<std::int32_t>(name + "p", shape);
    for (std::size_t d = 0; d < ndims; ++d) {
      start[d] = below(shape[d]);
      count[d] = 1 + below(shape[d] - start[d]);
    }
    const auto box = Selection::box(start, count);
    const auto compare = [&](Reader& reader) {
      auto step = reader.begin_step();
      for (const auto& selection : {Selection::all(), box})
        EXPECT_EQ(step.read<std::int32_t>(name, selection), step.read<std::int32_t>(name + "p", selection))
            << to_string(shape);
    };
    std::thread one([&] { compare(inside); }), other([&] { compare(outside); });
    auto step = writer.begin_step();
    step.lend(lent, whole(shape), first, strides);
    step.put(put.id, whole(shape), first, strides);
    step.end();
    one.join();
    other.join();
  }
  EXPECT_LE(writer.statistics().bytes_copied, 2 * writer.statistics().bytes);
}

}  // namespace
}  // namespace penstock::stream
