#include "pool/reader_book.hpp"

#include <algorithm>

#include "penstock/error.hpp"

namespace penstock::pool {
namespace {

constexpr std::uint32_t max_ranks = 1u << 20;

}  // namespace

std::optional<std::uint64_t> ReaderBook::choose(const Cohort& cohort, const Ask& ask, std::int64_t before,
                                                const Kept& kept) const {
  if (ask.seek >= 0) return kept.first_from(static_cast<std::uint64_t>(ask.seek));
  const auto newest = kept.newest();
  if (!newest) return std::nullopt;
  if (before >= 0) {
    const auto next = static_cast<std::uint64_t>(before) + 1;
    if (*newest < next) return std::nullopt;
    return ask.latest ? newest : kept.first_from(next);
  }
  const auto from = cohort.group.empty() ? 0 : group_next(cohort.group);
  if (ask.latest || (ask.start == -2 && from == 0)) return *newest >= from ? newest : std::nullopt;
  const auto start = ask.start >= 0 ? static_cast<std::uint64_t>(ask.start) : 0;
  return kept.first_from(std::max(from, start));
}

std::optional<std::uint64_t> ReaderBook::step_for(const Ask& ask, const Kept& kept) {
  if (ask.ranks == 0 || ask.ranks > max_ranks || ask.rank >= ask.ranks)
    throw Error(Errc::protocol, "no such reader rank");
  if (!cohorts_.contains(ask.reader) && cohorts_.size() >= max_reader_cohorts)
    throw Error(Errc::overloaded, "too many readers");
  auto& cohort = cohorts_[ask.reader];
  if (cohort.ranks.empty()) {
    cohort.ranks.resize(ask.ranks);
    for (auto& rank : cohort.ranks) rank.asked = rank.ended = ask.index;
    cohort.group = ask.group;
    cohort.base = cohort.read = ask.index;
  }
  if (cohort.ranks.size() != ask.ranks) throw Error(Errc::protocol, "a reader whose number of ranks changes");
  auto& rank = cohort.ranks[ask.rank];
  rank.gone = false;
  std::optional<std::uint64_t> step;
  const auto end = cohort.base + cohort.given.size();
  if (ask.index >= cohort.base && ask.index < end) {
    step = cohort.given[ask.index - cohort.base];
  } else {
    // In order, or (this home is new) from where the rank says it is.
    const bool follows = ask.index == end && !cohort.given.empty();
    const auto before = follows ? static_cast<std::int64_t>(cohort.given.back()) : ask.last;
    step = choose(cohort, ask, before, kept);
    if (!step) return std::nullopt;
    if (ask.index > end) {
      cohort.given.clear();
      cohort.base = ask.index;
    }
    if (ask.index >= cohort.base) cohort.given.push_back(*step);
  }
  rank.asked = std::max(rank.asked, ask.index + 1);
  return step;
}

// Forgets what all ranks have read. True when something was.
bool ReaderBook::settle(Cohort& cohort) {
  auto read = ~std::uint64_t{0};
  for (const auto& rank : cohort.ranks) read = std::min(read, rank.ended);
  if (read <= cohort.read) return false;
  bool group_moved = false;
  for (auto index = cohort.read; index < read; ++index) {
    if (index < cohort.base || index >= cohort.base + cohort.given.size() || cohort.group.empty()) continue;
    auto& next = groups_[cohort.group];
    const auto after = cohort.given[index - cohort.base] + 1;
    if (after > next) next = after, group_moved = true;
  }
  cohort.read = read;
  // The last one is kept: the next is chosen after it.
  while (cohort.given.size() > 1 && cohort.base + 1 < read) cohort.given.pop_front(), ++cohort.base;
  return group_moved;
}

bool ReaderBook::end_step(std::uint64_t reader, std::uint32_t rank, std::uint64_t index) {
  const auto found = cohorts_.find(reader);
  if (found == cohorts_.end() || rank >= found->second.ranks.size()) return false;
  auto& r = found->second.ranks[rank];
  r.ended = std::max(r.ended, index + 1);
  r.asked = std::max(r.asked, r.ended);
  return settle(found->second);
}

void ReaderBook::lost(std::uint64_t reader, std::uint32_t rank) {
  const auto found = cohorts_.find(reader);
  if (found == cohorts_.end() || rank >= found->second.ranks.size()) return;
  found->second.ranks[rank].gone = true;
}

void ReaderBook::close(std::uint64_t reader, std::uint32_t rank) {
  lost(reader, rank);
  const auto found = cohorts_.find(reader);
  if (found == cohorts_.end()) return;
  const auto& ranks = found->second.ranks;
  if (std::all_of(ranks.begin(), ranks.end(), [](const auto& r) { return r.gone; })) cohorts_.erase(found);
}

bool ReaderBook::held(std::uint64_t step) const {
  for (const auto& [number, cohort] : cohorts_) {
    const auto at = std::find(cohort.given.begin(), cohort.given.end(), step);
    if (at == cohort.given.end()) continue;
    const auto index = cohort.base + static_cast<std::uint64_t>(at - cohort.given.begin());
    for (const auto& rank : cohort.ranks)
      if (!rank.gone && index >= rank.ended) return true;  // being read, or still to be by ranks that are behind
  }
  return false;
}

std::uint64_t ReaderBook::group_next(const std::string& group) const {
  const auto found = groups_.find(group);
  return found == groups_.end() ? 0 : found->second;
}

void ReaderBook::set_group_next(const std::string& group, std::uint64_t next) { groups_[group] = next; }

}  // namespace penstock::pool
