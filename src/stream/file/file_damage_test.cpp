// Files of steps that are damaged, or of another version: an error or right data, never a crash.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "stream/file/file_test_support.hpp"
#include "stream/file/folder.hpp"

namespace penstock::stream {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void replace(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

struct DamageTest : FileTest {
  // Two ranks, with a payload of each, in two steps.
  void write(std::uint32_t compression) {
    run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) {
      const auto rank = static_cast<std::uint64_t>(cohort->rank());
      auto writer = context_.create_stream("heat", cohort, options([&](auto& o) { o.compression = compression; }));
      const auto T = writer.define<double>("T", {2, elements}, {.min_max = true});
      writer.put_attribute("T/units", Attribute::of("K"));
      for (std::uint64_t t = 0; t < 2; ++t) {
        auto step = writer.begin_step();
        std::vector<double> row(elements, static_cast<double>(10 * t + rank));
        step.put(T, Box{{rank, 0}, {1, elements}}, row.data());
        step.end();
      }
      writer.close();
    });
  }
  // What is read of the stream; Errors end it. False: some array is not what was put.
  bool read_all() {
    auto reader =
        context_.open_stream("heat", solo(), options([](auto& o) { o.open_timeout_ms = o.step_timeout_ms = 50; }));
    bool right = true;
    for (;;) {
      auto next = reader.try_begin_step(50ms);
      if (!next.step) return right;
      auto& step = *next.step;
      std::vector<double> got(2 * elements);
      step.get("T", Selection::all(), got.data());
      step.wait();
      for (std::uint64_t i = 0; i < got.size(); ++i)
        right = right && got[i] == static_cast<double>(10 * step.number() + i / elements);
      (void)step.view(step.variable("T").id, Selection::block(1));
      (void)step.attribute("T/units");
      (void)step.min_max(step.variable("T").id);
    }
  }

  static constexpr std::uint64_t elements = 600;
};

// What says where blocks are and what they hold has checksums; elements themselves have none, unless they are compressed.
TEST_F(DamageTest, IsAnErrorOrDoesNotMatter) {
  const auto seed = number_from("PENSTOCK_TEST_SEED", std::random_device{}());
  SCOPED_TRACE("PENSTOCK_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (const std::uint32_t compression : {0u, 3u}) {
    write(compression);
    ASSERT_TRUE(read_all());
    std::uint64_t refused = 0;
    for (const std::string name : {"00000000.h5", "00000001.rank1", "00000001.h5", "stream.json"}) {
      const auto path = steps_ + "/" + name;
      const auto whole = content_of(path);
      for (int attempt = 0; attempt < 150; ++attempt) {
        auto damaged = whole;
        if (attempt % 3 == 0) damaged.resize(random() % damaged.size());
        else
          for (auto flips = random() % 4 + 1; flips > 0; --flips)
            damaged[random() % damaged.size()] ^= static_cast<char>(random() % 255 + 1);
        replace(path, damaged);
        const auto code = code_of([&] { read_all(); });
        refused += code != Errc::ok;
        EXPECT_NE(code, Errc::internal);
      }
      replace(path, whole);
    }
    EXPECT_GT(refused, 100u);
    EXPECT_TRUE(read_all());
  }
}

TEST_F(DamageTest, ACutFileIsNamed) {
  write(0);
  const auto path = steps_ + "/00000000.rank1";
  fs::resize_file(path, fs::file_size(path) / 2);
  EXPECT_THAT(error_of([&] { read_all(); }).second, HasSubstr(path));
  fs::remove(path);
  EXPECT_THAT(error_of([&] { read_all(); }).second, HasSubstr(path));
}

TEST_F(DamageTest, AnotherVersionIsNamed) {
  write(0);
  auto record = content_of(steps_ + "/stream.json");
  record.replace(record.find("\"penstock_files\": 1"), 19, "\"penstock_files\": 2");
  replace(steps_ + "/stream.json", record);
  EXPECT_THAT(error_of([&] { read_all(); }).second, HasSubstr("another release"));
  EXPECT_THAT(error_of([&] { write(0); }).second, HasSubstr("another release"));
  EXPECT_TRUE(fs::exists(steps_ + "/00000000.h5"));
}

}  // namespace
}  // namespace penstock::stream
