// Streams in files: what was put is what is read, by any number of ranks, while the stream grows, later, and after its writer died.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <complex>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <thread>

#include "base/fault.hpp"
#include "stream/file/file_engine.hpp"
#include "stream/file/file_test_support.hpp"
#include "stream/file/folder.hpp"

namespace penstock::stream {

std::span<const EngineEntry> engines() {
  static constexpr EngineEntry file[] = {
      {"file", &create_file, &open_file, &inspect_files, &locate_files, &find_files}};
  return file;
}

namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

TEST_F(FileTest, StepsAreReadAfterTheirWriterHasEnded) {
  write_steps(3, options());
  EXPECT_THAT(names_in(steps_), ElementsAre("00000000.h5", "00000001.h5", "00000002.h5", "stream.json", "stream.lock"));
  auto reader = context_.open_stream("heat", solo(), options());
  for (std::uint64_t t = 0; t < 3; ++t) {
    auto step = reader.begin_step();
    EXPECT_EQ(step.number(), t);
    EXPECT_EQ(read_T(step), values_of(t));
  }
  EXPECT_EQ(reader.try_begin_step(20s).outcome, Outcome::end_of_stream);
}

TEST_F(FileTest, AStreamIsOpenedByItsFolderOrTheFileOfAStep) {
  write_steps(3, options());
  auto by_folder = context_.open_stream(steps_ + "/", solo());
  EXPECT_EQ(by_folder.name(), "heat");
  EXPECT_EQ(by_folder.begin_step().number(), 0u);
  auto by_file = context_.open_stream(steps_ + "/00000001.h5", solo());
  EXPECT_EQ(by_file.begin_step().number(), 1u);
  EXPECT_EQ(code_of([&] { context_.open_stream(steps_ + "/stream.json", solo()); }), Errc::invalid_argument);
}

TEST_F(FileTest, AFolderThatWasMovedIsRead) {
  write_steps(2, options());
  const auto moved = folder_ / "elsewhere.d";
  fs::rename(steps_, moved);
  auto reader = context_.open_stream(moved, solo());
  auto step = reader.begin_step();
  EXPECT_EQ(read_T(step), values_of(0));
}

TEST_F(FileTest, AReaderFollowsAWriter) {
  auto writer = context_.create_stream("heat", solo(), options());
  auto reader = context_.open_stream("heat", solo(), options());
  const auto T = writer.define<double>("T", {4, 6});
  EXPECT_EQ(reader.try_begin_step(1ms).outcome, Outcome::not_ready);
  for (std::uint64_t t = 0; t < 20; ++t) {
    auto step = writer.begin_step();
    step.put(T, values_of(t).data());
    step.end();
    auto read = reader.begin_step();
    EXPECT_EQ(read.number(), t);
    EXPECT_EQ(read_T(read), values_of(t));
  }
  EXPECT_THAT(error_of([&] { reader.begin_step(1ms); }).second, HasSubstr("last step read was 19"));
  writer.close();
  EXPECT_EQ(reader.try_begin_step(20s).outcome, Outcome::end_of_stream);
}

TEST_F(FileTest, AReaderWaitsForItsStream) {
  std::thread later([&] { write_steps(1, options()); });
  auto reader = context_.open_stream("heat", solo(), options());
  EXPECT_EQ(reader.begin_step().number(), 0u);
  later.join();
  const auto none = options([&](auto& o) {
    o.folder = folder_ / "none";
    o.open_timeout_ms = 20;
  });
  EXPECT_EQ(code_of([&] { context_.open_stream("heat", solo(), none); }), Errc::timeout);
}

// Everything that a step can hold, of a rank of three; with another seed, with other values.
template <class T>
std::vector<T> numbers(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(count);
  for (auto& value : values) {
    if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) value.bits = random() & 0x3fff;
    else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
      value = T(static_cast<float>(random() % 100), static_cast<float>(random() % 100));
    else value = static_cast<T>(random() % 100);
  }
  return values;
}

template <class T>
void expect_array(ReadStep& step, const std::string& name, const std::vector<T>& expected,
                  const Selection& selection = Selection::all()) {
  const auto& variable = step.variable(name);
  ASSERT_EQ(variable.dtype, dtype_of<T>()) << name;
  auto got = std::make_unique<T[]>(expected.size());
  step.get(variable, selection, got.get());
  step.wait();
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(got[i], expected[i]) << name << " at " << i;
}

template <class... T>
struct Types {};
using Arrays = Types<std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t, std::uint32_t,
                     std::uint64_t, float, double, float16, bfloat16, std::complex<float>, std::complex<double>>;

constexpr std::uint64_t rows_each = 4, columns = 6;

struct EveryKind : FileTest, testing::WithParamInterface<std::uint32_t> {};

template <class... T>
void put_types(WriteStep& step, std::map<std::string, std::uint32_t>& ids, Writer& writer, std::uint64_t rank,
               std::uint64_t ranks, std::uint64_t t, Types<T...>) {
  const auto one = [&]<class V>(V*, Order order) {
    const auto name = std::string(name_of(dtype_of<V>())) + (order == Order::row ? "" : "_column");
    if (!ids.contains(name))
      ids[name] = writer.define(name, dtype_of<V>(), {rows_each * ranks, columns}, {.order = order});
    const auto values = numbers<V>(rows_each * columns, t * 1000 + rank);
    step.put(ids[name], Box{{rank * rows_each, 0}, {rows_each, columns}}, values.data(), {});
  };
  (one(static_cast<T*>(nullptr), Order::row), ...);
  (one(static_cast<T*>(nullptr), Order::column), ...);
}

template <class... T>
void expect_types(ReadStep& step, std::uint64_t ranks, std::uint64_t t, Types<T...>) {
  const auto one = [&]<class V>(V*, Order order) {
    const auto name = std::string(name_of(dtype_of<V>())) + (order == Order::row ? "" : "_column");
    for (std::uint64_t rank = 0; rank < ranks; ++rank) {
      auto values = numbers<V>(rows_each * columns, t * 1000 + rank);
      if (order == Order::column) {
        const auto put = values;
        for (std::uint64_t r = 0; r < rows_each; ++r)
          for (std::uint64_t c = 0; c < columns; ++c) values[r * columns + c] = put[c * rows_each + r];
      }
      expect_array(step, name, values, Selection::box({rank * rows_each, 0}, {rows_each, columns}));
    }
  };
  (one(static_cast<T*>(nullptr), Order::row), ...);
  (one(static_cast<T*>(nullptr), Order::column), ...);
}

void write_every_kind(Context& context, const StreamOptions& options, int ranks, std::uint64_t steps) {
  run_thread_cohort(ranks, [&](std::shared_ptr<Cohort> cohort) {
    const auto rank = static_cast<std::uint64_t>(cohort->rank()), of = static_cast<std::uint64_t>(ranks);
    auto writer = context.create_stream("heat", cohort, options);
    std::map<std::string, std::uint32_t> ids;
    const auto b = writer.define<bool>("b", {of});
    const auto haloed = writer.define<double>("haloed", {of * 3, 1000}, {.min_max = true});
    const auto span = writer.define<float>("in/span", {of * 5000}, {.min_max = true});
    const auto lent = writer.define<std::int32_t>("lent", {of * 2000});
    const auto shaped = writer.define<double>("shaped", {of});
    const auto local = writer.define_local<std::int64_t>("local");
    const auto time = writer.define_value<double>("time");
    const auto each = writer.define_value<std::int32_t>("each", Kind::local_value);
    const auto text = writer.define("text", DType::string, {}, {.kind = Kind::global_value});
    const auto texts = writer.define("texts", DType::string, {}, {.kind = Kind::local_value});
    writer.put_attribute("haloed/units", Attribute::of("K"));
    writer.put_attribute("haloed/dims", Attribute::of(std::vector<std::string>{"y", "x"}));
    writer.put_attribute("run", Attribute::of(std::int64_t{7}));
    for (std::uint64_t t = 0; t < steps; ++t) {
      auto step = writer.begin_step();
      put_types(step, ids, writer, rank, of, t, Arrays{});
      const bool flag = (t + rank) % 2 == 0;
      step.put(b, Box{{rank}, {1}}, &flag);
      std::vector<double> halo(5 * 1002, -1);
      for (std::size_t r = 0; r < 3; ++r)
        for (std::size_t c = 0; c < 1000; ++c)
          halo[(r + 1) * 1002 + c + 1] = static_cast<double>(rank * 1000 + r + t * c);
      const std::int64_t strides[] = {1002 * 8, 8};
      step.put(haloed.id, Box{{rank * 3, 0}, {3, 1000}}, halo.data() + 1003, strides);
      const auto filled = step.put_span(span, Box{{rank * 5000}, {5000}});
      std::ranges::fill(filled, static_cast<float>(rank + t));
      const std::vector<std::int32_t> mine(2000, static_cast<std::int32_t>(rank * 10 + t));
      step.lend(lent, Box{{rank * 2000}, {2000}}, mine.data());
      step.set_shape(shaped.id, {of * (t + 1)});
      const std::vector<double> grown(t + 1, static_cast<double>(rank));
      step.put(shaped, Box{{rank * (t + 1)}, {t + 1}}, grown.data());
      const std::vector<std::int64_t> own(rank, static_cast<std::int64_t>(rank));  // rank 0's is empty
      step.put(local, Box{{0}, {rank}}, own.data());
      const double now = 0.5 * static_cast<double>(t);
      if (rank == 0) step.put(time, Box{}, &now);
      const auto mark = static_cast<std::int32_t>(rank + t);
      step.put(each, Box{}, &mark);
      if (rank == 0) step.put_string(text, "step " + std::to_string(t));
      step.put_string(texts, "rank " + std::to_string(rank));
      step.put_attribute("phase", static_cast<std::int64_t>(t));
      step.end();
    }
    writer.close();
  });
}

void expect_every_kind(Context& context, const StreamOptions& options, int readers, std::uint64_t writers,
                       std::uint64_t steps) {
  run_thread_cohort(readers, [&](std::shared_ptr<Cohort> cohort) {
    auto reader = context.open_stream("heat", cohort, options);
    for (std::uint64_t t = 0; t < steps; ++t) {
      auto step = reader.begin_step();
      ASSERT_EQ(step.number(), t);
      expect_types(step, writers, t, Arrays{});
      std::vector<double> column;
      std::vector<std::int64_t> own;
      for (std::uint64_t rank = 0; rank < writers; ++rank) {
        bool flag = false;
        step.get("b", Selection::box({rank}, {1}), &flag);
        step.wait();
        EXPECT_EQ(flag, (t + rank) % 2 == 0);
        for (std::uint64_t r = 0; r < 3; ++r) column.push_back(static_cast<double>(rank * 1000 + r + t * 10));
        expect_array(step, "in/span", std::vector<float>(5000, static_cast<float>(rank + t)), Selection::block(rank));
        expect_array(step, "lent", std::vector<std::int32_t>(2000, static_cast<std::int32_t>(rank * 10 + t)),
                     Selection::block(rank));
        expect_array(step, "shaped", std::vector<double>(t + 1, static_cast<double>(rank)), Selection::block(rank));
        expect_array(step, "local", std::vector<std::int64_t>(rank, static_cast<std::int64_t>(rank)),
                     Selection::block(rank));
        own.push_back(static_cast<std::int64_t>(rank + t));
      }
      expect_array(step, "haloed", column, Selection::box({0, 10}, {writers * 3, 1}));
      expect_array(step, "each", std::vector<std::int32_t>(own.begin(), own.end()));
      expect_array(step, "time", std::vector<double>{0.5 * static_cast<double>(t)});
      EXPECT_THAT(step.read_strings(step.variable("text").id), ElementsAre("step " + std::to_string(t)));
      EXPECT_EQ(step.read_strings(step.variable("texts").id).back(), "rank " + std::to_string(writers - 1));
      EXPECT_EQ(step.attribute("phase")->as<std::int64_t>(), static_cast<std::int64_t>(t));
      EXPECT_EQ(step.attribute("haloed/units")->as<std::string>(), "K");
      const auto range = step.min_max(step.variable("in/span").id);
      ASSERT_TRUE(range);
      float greatest = 0;
      std::memcpy(&greatest, range->max, sizeof(greatest));
      EXPECT_EQ(greatest, static_cast<float>(writers - 1 + t));
      const auto views = step.view(step.variable("lent").id, Selection::all());
      ASSERT_EQ(views.size(), writers);
    }
    EXPECT_EQ(reader.try_begin_step(20s).outcome, Outcome::end_of_stream);
  });
}

TEST_P(EveryKind, OfThreeRanksIsReadByOneTwoAndFour) {
  const auto with = options([](auto& o) { o.compression = GetParam(); });
  const auto plain = options();
  write_every_kind(context_, with, 3, 3);
  for (const int readers : {1, 2, 4}) expect_every_kind(context_, plain, readers, 3, 3);
}

TEST_P(EveryKind, OfOneRankIsRead) {
  write_every_kind(context_, options([](auto& o) {
                     o.compression = GetParam();
                     o.sync = true;
                   }),
                   1, 2);
  expect_every_kind(context_, options(), 2, 1, 2);
}

INSTANTIATE_TEST_SUITE_P(Compression, EveryKind, testing::Values(0u, 4u));

TEST_F(FileTest, CompressedBlocksTakeLessRoom) {
  const std::vector<double> data(1 << 16, 1);
  for (const std::uint32_t level : {0u, 1u}) {
    auto writer = context_.create_stream("heat", solo(), options([&](auto& o) { o.compression = level; }));
    const auto T = writer.define<double>("T", {data.size()});
    auto step = writer.begin_step();
    step.put(T, data.data());
    step.end();
    writer.close();
    const auto size = fs::file_size(steps_ + "/00000000.h5");
    if (level == 0) EXPECT_GT(size, data.size() * 8);
    else EXPECT_LT(size, data.size());
  }
}

TEST_F(FileTest, SeekAndStartFindSteps) {
  write_steps(6, options());
  auto reader = context_.open_stream("heat", solo(), options([](auto& o) { o.start = "newest"; }));
  EXPECT_EQ(reader.begin_step().number(), 5u);
  EXPECT_THAT(reader.steps(), ElementsAre(0, 1, 2, 3, 4, 5));
  reader.seek(2);
  EXPECT_EQ(reader.begin_step().number(), 2u);
  EXPECT_EQ(reader.begin_step().number(), 3u);
  fs::remove(steps_ + "/00000004.h5");
  EXPECT_EQ(reader.begin_step().number(), 5u);
  reader.seek(9);
  EXPECT_EQ(reader.try_begin_step(0ms).outcome, Outcome::end_of_stream);
  auto latest = context_.open_stream("heat", solo(), options([](auto& o) { o.delivery = Delivery::latest; }));
  EXPECT_EQ(latest.begin_step().number(), 5u);
  EXPECT_EQ(latest.try_begin_step(0ms).outcome, Outcome::end_of_stream);
}

TEST_F(FileTest, AWriterThatIsLostIsSaidToBe) {
  write_steps(2, options(), false);
  auto reader = context_.open_stream("heat", solo(), options());
  reader.begin_step();
  reader.begin_step();
  EXPECT_EQ(reader.try_begin_step(20s).outcome, Outcome::writer_lost);
  EXPECT_THAT(error_of([&] { reader.begin_step(); }).second, HasSubstr("last step read was 1"));
  // Another goes on.
  write_steps(2, options([](auto& o) { o.resume = "append"; }));
  auto step = reader.begin_step();
  EXPECT_EQ(step.number(), 2u);
  EXPECT_EQ(read_T(step), values_of(2));
}

// The record says that the stream goes on; when the lock is looked at, it has ended.
Writer* closes_before_the_lock = nullptr;
TEST_F(FileTest, AWriterThatClosesWhileAReaderLooksIsNotLost) {
  struct Unhook {
    ~Unhook() { base::fault_hook = nullptr; }
  } unhook;
  for (const bool inspected : {false, true}) {
    auto writer = context_.create_stream("heat", solo(), options());
    const auto T = writer.define<double>("T", {4, 6});
    auto step = writer.begin_step();
    step.put(T, values_of(0).data());
    step.end();
    auto reader = context_.open_stream("heat", solo(), options());
    reader.begin_step().end();
    closes_before_the_lock = &writer;
    base::fault_hook = [](std::string_view point, base::FaultPhase) {
      if (point == "writer-lock" && closes_before_the_lock != nullptr)
        std::exchange(closes_before_the_lock, nullptr)->close();
      return false;
    };
    if (inspected) {
      EXPECT_THAT(context_.inspect("heat", Timeout(5000), options()), HasSubstr("\"state\":\"ended\""));
    } else {
      EXPECT_EQ(reader.try_begin_step(Timeout(20'000)).outcome, Outcome::end_of_stream);
    }
    EXPECT_EQ(closes_before_the_lock, nullptr);  // the hook has run
  }
}

TEST_F(FileTest, ResumeSaysWhatBecomesOfTheStepsThereAre) {
  write_steps(3, options());
  write_steps(2, options([](auto& o) { o.resume = "append"; }));
  EXPECT_THAT(list_steps(steps_), ElementsAre(0, 1, 2, 3, 4));
  const auto before = fs::last_write_time(steps_ + "/00000004.h5");
  write_steps(4, options([](auto& o) { o.resume = "3"; }));  // 3 and 4 are there
  EXPECT_THAT(list_steps(steps_), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_EQ(fs::last_write_time(steps_ + "/00000004.h5"), before);
  auto reader = context_.open_stream("heat", solo(), options([](auto& o) { o.start = "6"; }));
  auto step = reader.begin_step();
  EXPECT_EQ(read_T(step), values_of(6));
  write_steps(1, options());
  EXPECT_THAT(list_steps(steps_), ElementsAre(0));
  step.end();
  EXPECT_EQ(reader.try_begin_step(20s).outcome, Outcome::writer_lost);  // it was another stream's reader
}

TEST_F(FileTest, FoldersThatAreNotTheStreamsStay) {
  auto writer = context_.create_stream("heat", solo(), options());
  EXPECT_EQ(error_of([&] { context_.create_stream("heat", solo(), options()); }).first, Errc::wrong_state);
  writer.close();
  EXPECT_THAT(error_of([&] { context_.create_stream("cool", solo(), options()); }).second, HasSubstr("'heat'"));
  std::ofstream(steps_ + "/notes.txt") << "mine";
  EXPECT_EQ(code_of([&] { context_.create_stream("heat", solo(), options()); }), Errc::wrong_state);
  EXPECT_TRUE(fs::exists(steps_ + "/notes.txt"));
  const auto other = folder_ / "other";
  fs::create_directory(other);
  std::ofstream(other + "/notes.txt") << "mine";
  EXPECT_EQ(code_of([&] { context_.open_stream(other, solo()); }), Errc::invalid_argument);
}

// Its folder is removed, renamed, or copied by links and removed, and another stream is written in its place.
TEST_F(FileTest, AWriterWhoseFolderIsGoneLeavesTheNextOneAlone) {
  const std::string before = folder_ / "before";
  const std::function<void()> ways[] = {[&] { fs::remove_all(steps_); }, [&] { fs::rename(steps_, before); },
                                        [&] {
                                          fs::copy(steps_, before, fs::copy_options::create_hard_links);
                                          fs::remove_all(steps_);
                                        }};
  for (const int ranks : {1, 2})
    for (const auto& go_away : ways) {
      std::barrier all_there(ranks);
      run_thread_cohort(ranks, [&](std::shared_ptr<Cohort> cohort) {
        auto writer = context_.create_stream("heat", cohort, options());
        const auto v = writer.define<double>("v", {static_cast<std::uint64_t>(ranks)});
        const auto put = [&](double value) {
          auto step = writer.begin_step();
          step.put(v, Box{{static_cast<std::uint64_t>(cohort->rank())}, {1}}, &value);
          step.end();
        };
        put(1);
        all_there.arrive_and_wait();
        if (cohort->rank() == 0) {
          while (!fs::exists(steps_ + "/00000000.h5")) std::this_thread::yield();  // the step is complete
          go_away();
          write_steps(3, options());
        }
        all_there.arrive_and_wait();
        const auto error = error_of([&] {
          for (int t = 0; t < 100; ++t) put(2);
        });
        EXPECT_THAT(error.second, HasSubstr("removed, renamed or replaced"));
        EXPECT_NE(code_of([&] { writer.close(); }), Errc::ok);
      });
      EXPECT_THAT(names_in(steps_),
                  ElementsAre("00000000.h5", "00000001.h5", "00000002.h5", "stream.json", "stream.lock"));
      auto reader = context_.open_stream("heat", solo(), options());
      for (std::uint64_t t = 0; t < 3; ++t) {
        auto step = reader.begin_step();
        EXPECT_EQ(read_T(step), values_of(t));
      }
      EXPECT_EQ(reader.try_begin_step(20s).outcome, Outcome::end_of_stream);
      fs::remove_all(steps_);
      fs::remove_all(before);
    }
}

TEST_F(FileTest, AStepThatARankGivesUpIsVoidForAll) {
  run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) {
    auto writer = context_.create_stream("heat", cohort, options());
    const auto T = writer.define<double>("T", {2});
    for (int t = 0; t < 3; ++t) {
      auto step = writer.begin_step();
      const double value = t;
      step.put(T, Box{{static_cast<std::uint64_t>(cohort->rank())}, {1}}, &value);
      if (t == 1 && cohort->rank() == 0) step.abandon();
      else step.end();
    }
    writer.close();
  });
  EXPECT_THAT(names_in(steps_), ElementsAre("00000000.h5", "00000000.rank1", "00000002.h5", "00000002.rank1",
                                            "stream.json", "stream.lock"));
  auto reader = context_.open_stream("heat", solo(), options());
  EXPECT_EQ(reader.begin_step().number(), 0u);
  auto step = reader.begin_step();
  EXPECT_EQ(step.number(), 2u);
  expect_array(step, "T", std::vector<double>{2, 2});
}

TEST_F(FileTest, ARankThatEndsAfterAnErrorTellsTheOthersOfIt) {
  run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) {
    const auto steps = [&] {
      auto writer = context_.create_stream("heat", cohort, options());  // not closed after an error
      const auto v = writer.define<double>("T", {2});
      cohort->broadcast("", 0);
      if (cohort->rank() == 1) fs::create_directories(steps_ + "/00000001.rank1/in the way");
      for (int t = 0; t < 100; ++t) {
        auto step = writer.begin_step();
        const double value = 1;
        step.put(v, Box{{static_cast<std::uint64_t>(cohort->rank())}, {1}}, &value);
        step.end();
      }
    };
    EXPECT_THAT(error_of(steps).second, HasSubstr("00000001.rank1"));
  });
}

// Rank 0 has removed the files of incomplete steps: the step's end fails, with what the stream has failed with.
TEST_F(FileTest, ARankInAStepIsToldWhyTheStreamHasFailed) {
  std::promise<void> in_step, removed;
  run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) {
    const auto rank = static_cast<std::uint64_t>(cohort->rank());
    auto writer = context_.create_stream("heat", cohort, options());
    const auto v = writer.define<double>("T", {2});
    const double value = 1;
    const auto begin = [&] {
      auto step = writer.begin_step();
      step.set_shape(v, {2 + rank});
      step.put(v, Box{{rank}, {1}}, &value);
      return step;
    };
    const auto refused = [&](auto&& call) {
      const auto error = error_of(call);
      EXPECT_EQ(error.first, Errc::invalid_argument) << error.second;
      EXPECT_THAT(error.second, HasSubstr("rank 1 has"));
    };
    if (rank == 0) {
      in_step.get_future().wait();
      refused([&] {
        for (;;) begin().end();
      });
      EXPECT_NE(code_of([&] { writer.close(); }), Errc::ok);
      // The message that tells the other rank is on its way: what comes after it on the same thread has ended.
      const auto elsewhere = options([&](auto& o) { o.folder = folder_ / "another.steps"; });
      context_.create_stream("another", solo(), elsewhere).close();
      removed.set_value();
    } else {
      begin().end();
      auto step = begin();
      in_step.set_value();
      removed.get_future().wait();
      refused([&] { step.end(); });
    }
  });
}

TEST_F(FileTest, AMasterThatCannotBeWrittenEndsTheStream) {
  const auto T = std::string("T");
  run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) {
    auto writer = context_.create_stream("heat", cohort, options());
    const auto v = writer.define<double>("T", {2});
    const auto put = [&] {
      auto step = writer.begin_step();
      const double value = 1;
      step.put(v, Box{{static_cast<std::uint64_t>(cohort->rank())}, {1}}, &value);
      step.end();
    };
    put();
    if (cohort->rank() == 0) fs::create_directory(steps_ + "/00000001.h5");  // in the way of its name
    const auto error = error_of([&] {
      for (int t = 0; t < 100; ++t) put();
    });
    EXPECT_EQ(error.first, Errc::system) << error.second;
    EXPECT_THAT(error.second, HasSubstr("00000001.h5"));
    EXPECT_NE(code_of([&] { writer.close(); }), Errc::ok);
  });
  fs::remove(steps_ + "/00000001.h5");
  // Rank 1 may have ended a step after rank 0 gave up: the next writer removes that file, as it does after a crash.
  auto left = names_in(steps_);
  std::erase_if(left, [](const auto& name) { return name != "00000000.rank1" && name.ends_with(".rank1"); });
  EXPECT_THAT(left, ElementsAre("00000000.h5", "00000000.rank1", "stream.json", "stream.lock"));
  auto reader = context_.open_stream("heat", solo(), options());
  EXPECT_EQ(reader.begin_step().number(), 0u);
  EXPECT_EQ(reader.try_begin_step(20s).outcome, Outcome::writer_lost);
}

TEST_F(FileTest, WritersThatMayNotWriteAreRefused) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  fs::create_directory(steps_);
  fs::permissions(steps_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THAT(error_of([&] { write_steps(1, options()); }).second, HasSubstr(steps_));
  fs::permissions(steps_, fs::perms::owner_all);
}

}  // namespace
}  // namespace penstock::stream
