#include "storage/journal.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "base/test_support.hpp"

namespace penstock::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t file_bytes = 4096;

std::string body_of(std::uint64_t number, std::size_t bytes) {
  std::string body(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) body[i] = static_cast<char>(number * 31 + i);
  return body;
}

class JournalTest : public testing::Test {
 protected:
  // What is replayed.
  std::map<Journal::Number, std::string> open(Journal::Number released = 0) {
    journal_.reset();
    std::map<Journal::Number, std::string> found;
    journal_ = std::make_unique<Journal>(folder_.path(), file_bytes, released,
                                         [&](Journal::Number number, std::string_view body) {
                                           EXPECT_TRUE(found.empty() || found.rbegin()->first + 1 == number);
                                           found[number] = body;
                                         });
    return found;
  }
  void append(Journal::Number number, std::size_t bytes) {
    Journal::Number told = 0;
    EXPECT_EQ(journal_->append(body_of(number, bytes), [&](const Journal::Place& place) { told = place.number; }),
              number);
    EXPECT_EQ(told, number);
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }
  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const fs::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  }

  SilentLog silent_;
  TestFolder folder_;
  std::unique_ptr<Journal> journal_;
};

TEST_F(JournalTest, FramesComeBackInOrder) {
  EXPECT_TRUE(open().empty());
  EXPECT_EQ(files(), 0u);  // none before the first frame
  for (Journal::Number n = 1; n <= 40; ++n) append(n, n * 17 % 600);
  append(41, 3 * file_bytes);  // a file of its own
  append(42, 0);
  journal_->sync();
  for (int round = 0; round < 2; ++round) {
    const auto found = open(7);
    ASSERT_EQ(found.size(), 35u);
    for (const auto& [n, body] : found)
      EXPECT_EQ(body, n == 41 ? body_of(n, 3 * file_bytes) : n == 42 ? "" : body_of(n, n * 17 % 600)) << n;
    EXPECT_EQ(journal_->last(), 42u);
  }
  append(43, 10);
  EXPECT_EQ(open(41).size(), 2u);
  EXPECT_TRUE(open(43).empty());
  EXPECT_EQ(files(), 0u);
  append(44, 10);
}

TEST_F(JournalTest, ReleasedFilesAreUsedAgain) {
  open();
  for (Journal::Number n = 1; n <= 200; ++n) {
    append(n, 500);
    if (n > 10) journal_->release(n - 10);
    EXPECT_LE(files(), 5u);
  }
  // What earlier uses have left in them is behind the frames of this one, and is not taken for frames.
  const auto found = open(190);
  ASSERT_EQ(found.size(), 10u);
  EXPECT_EQ(found.begin()->first, 191u);
  journal_->restart();
  EXPECT_EQ(files(), 0u);
  append(201, 10);
}

TEST_F(JournalTest, ATornTailEndsIt) {
  open();
  for (Journal::Number n = 1; n <= 5; ++n) append(n, 100);
  journal_.reset();
  const fs::path file = fs::directory_iterator(folder_.path())->path();
  const std::string whole = read(file);
  const std::size_t frame = frame_head_bytes + 100;
  for (std::size_t cut = 0; cut <= journal_head_bytes + 5 * frame; cut += 7) {
    const std::size_t left = cut < journal_head_bytes ? 0 : (cut - journal_head_bytes) / frame;
    for (const bool zeros : {false, true}) {
      std::string torn = whole.substr(0, cut);
      if (zeros) torn.resize(whole.size());
      write(file, torn);
      EXPECT_EQ(open().size(), left) << cut;
      // What is appended then is what counts, also where whole frames of the old end lie behind it.
      append(left + 1, 100);
      EXPECT_EQ(open().size(), left + 1) << cut;
      journal_.reset();
      fs::remove_all(folder_.path());
      fs::create_directory(folder_.path());
    }
  }
}

TEST_F(JournalTest, NoFlippedByteIsTakenForAFrame) {
  open();
  for (Journal::Number n = 1; n <= 3; ++n) append(n, 50);
  journal_.reset();
  const fs::path file = fs::directory_iterator(folder_.path())->path();
  const std::string whole = read(file);
  for (std::size_t at = 0; at < journal_head_bytes + 3 * (frame_head_bytes + 50); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    FrameReader reader(damaged);
    std::size_t count = 0;
    while (const auto body = reader.next()) EXPECT_EQ(*body, body_of(++count, 50)) << at;
    const std::size_t before = at < journal_head_bytes ? 0 : (at - journal_head_bytes) / (frame_head_bytes + 50);
    EXPECT_EQ(count, before) << at;
  }
}

TEST_F(JournalTest, FramesBehindALostOneAreLeftOutAndNeverComeBack) {
  open();
  for (Journal::Number n = 1; n <= 20; ++n) append(n, 1000);  // several files
  journal_.reset();
  std::map<std::uint64_t, fs::path> by_use;
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    by_use[decode_journal_head(read(entry.path()))->file] = entry.path();
  ASSERT_GE(by_use.size(), 4u);
  const auto& second = by_use[2];
  std::string damaged = read(second);
  damaged[journal_head_bytes + frame_head_bytes + 5] ^= 1;
  write(second, damaged);
  const auto found = open();
  EXPECT_EQ(found.size(), decode_journal_head(damaged)->first - 1);
  const Journal::Number last = journal_->last();
  append(last + 1, 10);
  // As if the new frame and many more had been brought over: nothing of the old ones is replayed.
  EXPECT_EQ(open().size(), last + 1);
  EXPECT_TRUE(open(15).empty());
}

// Somebody who puts bytes that look like the next frame, and has them where that one would begin.
TEST_F(JournalTest, PutBytesAreNoFrames) {
  open();
  append(1, 10);
  journal_->append(std::string(100, 'x'), [](const Journal::Place&) {});
  journal_.reset();
  const fs::path file = fs::directory_iterator(folder_.path())->path();
  const std::string content = read(file);
  JournalHead head = *decode_journal_head(content);
  const std::size_t second = journal_head_bytes + frame_head_bytes + 10;
  for (const bool guessed : {false, true}) {
    if (!guessed) head.seed ^= 1;
    const std::string forged = encode_frame_head(head, 2, "evil") + "evil";
    std::string shorter = content.substr(0, second) + forged;
    shorter.resize(content.size());
    write(file, shorter);
    EXPECT_EQ(open().size(), guessed ? 2u : 1u);  // the seed is what they lack
    journal_.reset();
    head = *decode_journal_head(content);
  }
}

// What cannot be told from the end of a file, unless by what is behind it, is not passed over in silence.
TEST_F(JournalTest, DamageIsToldAndKept) {
  const std::size_t frame = frame_head_bytes + 100;
  const auto kept = [&] {
    return std::ranges::count_if(fs::directory_iterator(folder_.path()), [](const auto& entry) {
      return entry.path().filename().string().starts_with("damaged-");
    });
  };
  const auto flip = [](std::size_t at) {
    return [at](std::string content) {
      content[at] ^= 1;
      return content;
    };
  };
  struct Case {
    std::function<std::string(std::string)> change;
    std::size_t frames;
    bool told;
  };
  const std::vector<Case> cases = {
      {[](std::string content) { return content; }, 5, false},
      {flip(10), 0, true},                                    // the head
      {flip(journal_head_bytes + 2 * frame + 1), 2, true},    // a frame's check,
      {flip(journal_head_bytes + 2 * frame + 8), 2, true},    // number,
      {flip(journal_head_bytes + 2 * frame + 17), 2, true},   // size
      {flip(journal_head_bytes + 3 * frame + 70), 3, true},   // and bytes
      {flip(journal_head_bytes + 4 * frame + 70), 4, false},  // the last: as if it had not been written whole
      {[](std::string content) { return std::string(content.size(), '\0'); }, 0, false},
      {[](std::string) { return std::string(); }, 0, false},
  };
  for (const auto& [change, frames, told] : cases) {
    fs::remove_all(folder_.path());
    fs::create_directory(folder_.path());
    open();
    for (Journal::Number n = 1; n <= 5; ++n) append(n, 100);
    journal_.reset();
    const fs::path file = fs::directory_iterator(folder_.path())->path();
    const std::string changed = change(read(file));
    write(file, changed);
    int warnings = 0;
    base::set_log_sink([&](base::Level, std::string_view) { ++warnings; });
    EXPECT_EQ(open().size(), frames);
    EXPECT_EQ(warnings, told ? 1 : 0);
    ASSERT_EQ(kept(), told ? 1 : 0);
    if (told) {
      EXPECT_EQ(read(folder_ / "damaged-1"), changed);
    }
    open(frames);  // all of them are elsewhere now
    EXPECT_EQ(kept(), told ? 1 : 0);
    base::set_log_sink([](base::Level, std::string_view) {});
  }
}

TEST_F(JournalTest, ManyThreads) {
  open();
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> sum{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const auto number =
            journal_->append(std::string(static_cast<std::size_t>(i), 'x'), [](const Journal::Place&) {});
        sum += number;
        if (i % 3 == t % 3) journal_->sync(number);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sum, 400u * 401 / 2);
  EXPECT_EQ(open().size(), 400u);
}

}  // namespace
}  // namespace penstock::storage
