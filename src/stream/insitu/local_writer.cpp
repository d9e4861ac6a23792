#include "stream/insitu/local_writer.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace penstock::stream {
namespace {

// A step that another rank gives up, or that policy drops, rings no bell of the reader: the writer looks so often.
constexpr std::chrono::milliseconds look_again{5};

struct LocalWriters {
  std::mutex mutex;  // guards what follows
  std::map<std::pair<std::string, std::uint32_t>, std::weak_ptr<LocalWriter>> writers;
};

LocalWriters& local_writers() {
  static auto* const all = new LocalWriters;  // never destroyed: streams may outlive static objects
  return *all;
}

}  // namespace

void Analysis::run(std::uint64_t step, const std::function<bool()>& over, base::Deadline deadline) {
  const std::lock_guard lock(turn);
  const struct Running {
    std::atomic<std::thread::id>& runner;
    explicit Running(std::atomic<std::thread::id>& of) : runner(of) { runner = std::this_thread::get_id(); }
    ~Running() { runner = std::thread::id(); }
  } running(runner);
  std::exception_ptr first;
  while (!detached && !(last && *last >= step)) {
    const bool is_over = over();  // before the reader looks: what it was told until then it finds
    const auto before = last;
    auto outcome = Outcome::ready;
    try {
      outcome = take(is_over ? base::Deadline(Timeout(0))
                             : earlier(deadline, base::Deadline::at(base::Clock::now() + look_again)));
    } catch (...) {
      if (!first) first = std::current_exception();
    }
    if (outcome == Outcome::ready && last != before) continue;
    if (outcome != Outcome::not_ready || is_over) break;
    if (deadline.passed())
      throw Error(Errc::timeout, "step " + std::to_string(step) + " did not reach its on_step function in time");
  }
  if (first) std::rethrow_exception(first);
}

void LocalWriter::attach(std::shared_ptr<Analysis> analysis) {
  std::lock_guard lock(mutex_);
  const auto at = std::ranges::upper_bound(analyses_, analysis->cohort, {}, &Analysis::cohort);
  analyses_.insert(at, std::move(analysis));
  count_ = analyses_.size();
}

void LocalWriter::detach(Analysis& analysis) {
  {
    std::lock_guard lock(mutex_);
    analysis.detached = true;
    std::erase_if(analyses_, [&](const auto& one) { return one.get() == &analysis; });
    count_ = analyses_.size();
  }
  if (analysis.runner != std::this_thread::get_id()) std::lock_guard waits(analysis.turn);
}

std::vector<std::shared_ptr<Analysis>> LocalWriter::analyses() const {
  std::lock_guard lock(mutex_);
  return analyses_;
}

void note_local_writer(const fabric::Token& token, std::uint32_t rank, const std::shared_ptr<LocalWriter>& writer) {
  auto& all = local_writers();
  std::lock_guard lock(all.mutex);
  std::erase_if(all.writers, [](const auto& entry) { return entry.second.expired(); });
  all.writers[{token.hex(), rank}] = writer;
}

std::shared_ptr<LocalWriter> find_local_writer(const fabric::Token& token, std::uint32_t rank) {
  auto& all = local_writers();
  std::lock_guard lock(all.mutex);
  const auto found = all.writers.find({token.hex(), rank});
  return found == all.writers.end() ? nullptr : found->second.lock();
}

bool any_local_writer() {
  auto& all = local_writers();
  std::lock_guard lock(all.mutex);
  return std::ranges::any_of(all.writers, [](const auto& entry) { return !entry.second.expired(); });
}

}  // namespace penstock::stream
