#include "pool/coordinator/reader_book.hpp"

#include <algorithm>

#include "penstock/error.hpp"

namespace penstock::pool {
namespace {

constexpr std::uint32_t max_ranks = 1u << 20;
constexpr std::size_t max_told = 4096;

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

// Whether all ranks that have said something are: then those that have not will not come either. (If they do, they speak.)
bool ReaderBook::gone(const Cohort& cohort) {
  return std::none_of(cohort.ranks.begin(), cohort.ranks.end(), [](const auto& r) { return r.heard && !r.gone; });
}

// The rank has spoken.
ReaderBook::Cohort& ReaderBook::cohort_of(std::uint64_t reader, std::uint32_t rank, std::uint32_t ranks) {
  if (ranks == 0 || ranks > max_ranks || rank >= ranks) throw Error(Errc::protocol, "no such reader rank");
  if (!cohorts_.contains(reader) && cohorts_.size() >= max_cohorts_) {
    std::erase_if(cohorts_, [](const auto& entry) { return gone(entry.second); });
    if (cohorts_.size() >= max_cohorts_)
      throw Error(Errc::overloaded,
                  "a stream may have " + std::to_string(max_cohorts_) + " readers at once (the servers' max_readers)");
  }
  auto& cohort = cohorts_[reader];
  if (cohort.ranks.empty()) cohort.ranks.resize(ranks);
  if (cohort.ranks.size() != ranks) throw Error(Errc::protocol, "a reader whose number of ranks changes");
  cohort.ranks[rank].gone = false;
  cohort.ranks[rank].heard = true;
  return cohort;
}

bool ReaderBook::awaits_others(const Ask& ask) const {
  const auto found = cohorts_.find(ask.reader);
  if (found == cohorts_.end()) return ask.ranks > 1;
  const auto& cohort = found->second;
  if (ask.index >= cohort.base && ask.index < cohort.base + cohort.given.size()) return false;
  for (std::uint32_t rank = 0; rank < cohort.ranks.size(); ++rank)
    if (rank != ask.rank && !cohort.ranks[rank].told) return true;
  return false;
}

bool ReaderBook::tell(const Told& told) {
  if (told.given.size() > max_told || told.held.size() > max_told || told.given.size() > told.index)
    throw Error(Errc::protocol, "a reader that was given more than it says");
  auto& cohort = cohort_of(told.reader, told.rank, told.ranks);
  const auto first = told.index - told.given.size();
  if (!cohort.begun) begin(cohort, told.group, first);
  if (first > cohort.base + cohort.given.size()) {  // what lies between is not known
    cohort.given.clear();
    cohort.base = first;
  }
  for (auto i = told.given.size(); i-- > 0;)
    if (first + i + 1 == cohort.base) cohort.given.push_front(told.given[i]), --cohort.base;
  for (std::size_t i = 0; i < told.given.size(); ++i)
    if (first + i == cohort.base + cohort.given.size()) cohort.given.push_back(told.given[i]);
  cohort.read = std::min(cohort.read, cohort.base);
  auto& rank = cohort.ranks[told.rank];
  rank.asked = std::max(rank.asked, told.index);
  rank.ended = told.held.empty() ? told.index : *std::min_element(told.held.begin(), told.held.end());
  rank.told = true;
  return settle(cohort);
}

// All ranks stand at this index, as far as is known.
void ReaderBook::begin(Cohort& cohort, const std::string& group, std::uint64_t index) {
  for (auto& rank : cohort.ranks) rank.asked = rank.ended = index;
  cohort.group = group;
  cohort.base = cohort.read = index;
  cohort.begun = true;
}

std::optional<std::uint64_t> ReaderBook::step_for(const Ask& ask, const Kept& kept) {
  auto& cohort = cohort_of(ask.reader, ask.rank, ask.ranks);
  if (!cohort.begun) begin(cohort, ask.group, ask.index);
  auto& rank = cohort.ranks[ask.rank];
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
    if (gone(cohort)) continue;
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
