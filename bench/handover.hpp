// Words that two processes hand to each other, and the page they live in.
//
// A Word only grows. Whoever publishes owns it; others wait until it has reached a value: they spin for at most spin_us,
// then sleep on a shared futex. A SharedPage is a file of one page that every program of a run maps: it carries the
// barrier from which all clocks start, and words for peers that bring no notification of their own (files).
// Waits end with an exception when the run's deadline passes.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>
#include <stdexcept>
#include <string>

namespace penstock::bench {

inline double now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct alignas(64) Word {
  std::atomic<std::uint32_t> value{0};
  alignas(64) std::atomic<std::uint32_t> sleepers{0};  // a line of its own: publishers read it, spinners do not
};

inline constexpr int forever_us = INT_MAX;

inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  timespec limit{.tv_sec = 60, .tv_nsec = 0};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

inline void publish(Word& word, std::uint32_t value) {
  word.value.store(value, std::memory_order_seq_cst);
  if (word.sleepers.load(std::memory_order_seq_cst) != 0)
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word.value), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

inline void await(Word& word, std::uint32_t value, int spin_us) {
  auto reached = [&] { return word.value.load(std::memory_order_acquire) >= value; };
  if (reached()) return;
  if (spin_us > 0) {
    const double end = now() + 1e-6 * spin_us;
    do {
      for (int i = 0; i < 64; ++i) {
        if (reached()) return;
        __builtin_ia32_pause();
      }
    } while (now() < end);
  }
  const double deadline = now() + 60;
  while (!reached()) {
    word.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = word.value.load(std::memory_order_seq_cst);
    if (seen < value) futex_wait(word.value, seen);
    word.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (now() > deadline) throw std::runtime_error("the other program did not hand over within 60 s");
  }
}

class SharedPage {
 public:
  struct Layout {
    Word arrived;
    Word words[8];
  };
  // The file may be created by any of the programs; a new one is all zeros.
  explicit SharedPage(const std::string& directory) {
    const std::string path = directory + "/page";
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof(Layout)) != 0) throw std::runtime_error("cannot create " + path);
    void* memory = mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + path);
    layout_ = static_cast<Layout*>(memory);
  }
  ~SharedPage() { munmap(layout_, sizeof(Layout)); }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  // Returns in all `parties` programs once the last has come. Used once in a run.
  void meet(std::uint32_t parties) {
    Word& word = layout_->arrived;
    const std::uint32_t mine = word.value.fetch_add(1, std::memory_order_seq_cst) + 1;
    if (mine == parties) publish(word, parties);
    else await(word, parties, 0);
  }
  Word& word(int i) { return layout_->words[i]; }

 private:
  Layout* layout_;
};

}  // namespace penstock::bench
