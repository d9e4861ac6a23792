#include "mesh/exodus/shared_rows.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "penstock/error.hpp"
#include "stream/api/open.hpp"

namespace penstock::mesh {
namespace {

using Numbers = std::vector<std::uint64_t>;

std::string bytes_of(const Numbers& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::uint64_t)};
}

// Reads what bytes_of made, one number after the other.
class NumberReader {
 public:
  explicit NumberReader(const std::string& bytes) : bytes_(bytes) {}
  std::uint64_t next() {
    std::uint64_t number = 0;
    if (bytes_.size() - at_ < sizeof number) throw Error(Errc::internal, "the ranks define different entities");
    std::memcpy(&number, bytes_.data() + at_, sizeof number);
    at_ += sizeof number;
    return number;
  }

 private:
  const std::string& bytes_;
  std::size_t at_ = 0;
};

struct Candidate {
  std::int64_t key;
  std::uint64_t rank, row;
  auto operator<=>(const Candidate&) const = default;
};
struct Found {  // a key that several ranks have
  std::int64_t key;
  std::uint64_t rank, number;  // of its owner
};

// Of one entity: first the total, then where each rank's rows begin, then what several ranks have.
void settle(std::vector<NumberReader>& ranks, Numbers& out) {
  Numbers counts;
  std::vector<Candidate> candidates;
  bool are_shared = false;
  for (std::uint64_t rank = 0; rank < ranks.size(); ++rank) {
    counts.push_back(ranks[rank].next());
    are_shared = ranks[rank].next() != 0 || are_shared;
    for (auto left = ranks[rank].next(); left > 0; --left) {
      const auto row = ranks[rank].next();
      candidates.push_back({static_cast<std::int64_t>(ranks[rank].next()), rank, row});
    }
  }
  std::sort(candidates.begin(), candidates.end());
  std::vector<Numbers> others(ranks.size());  // by rank: rows that belong to a lower one
  std::vector<Candidate> owners;
  for (std::size_t i = 0; i < candidates.size();) {
    const auto& owner = candidates[i];
    bool several = false;
    for (; i < candidates.size() && candidates[i].key == owner.key; ++i)
      if (candidates[i].rank != owner.rank) {
        several = true;
        others[candidates[i].rank].push_back(candidates[i].row);
      }
    if (several) owners.push_back(owner);
    else if (are_shared)
      throw Error(Errc::invalid_argument,
                  "rank " + std::to_string(owner.rank) + " shares the node with id " + std::to_string(owner.key) +
                      ", as its comm set says, and the comm set of no other rank has a node with that id");
  }
  Numbers firsts(ranks.size());
  std::uint64_t total = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::sort(others[rank].begin(), others[rank].end());
    firsts[rank] = total;
    total += counts[rank] - others[rank].size();
  }
  out.push_back(total);
  out.insert(out.end(), firsts.begin(), firsts.end());
  out.push_back(owners.size());
  for (const auto& owner : owners) {
    const auto& its = others[owner.rank];
    const auto before = std::lower_bound(its.begin(), its.end(), owner.row) - its.begin();
    out.insert(out.end(), {static_cast<std::uint64_t>(owner.key), owner.rank,
                           firsts[owner.rank] + owner.row - static_cast<std::uint64_t>(before)});
  }
}

SharedRows take(const RankRows& mine, NumberReader& answer, std::uint64_t rank, std::uint64_t ranks) {
  SharedRows rows{.total = answer.next()};
  for (std::uint64_t each = 0; each < ranks; ++each)
    if (const auto first = answer.next(); each == rank) rows.first = first;
  std::vector<Found> found(answer.next());  // by key
  for (auto& each : found) {
    each.key = static_cast<std::int64_t>(answer.next());
    each.rank = answer.next();
    each.number = answer.next();
  }
  constexpr auto none = UINT64_MAX;
  rows.numbers.assign(mine.count, none);
  for (std::size_t i = 0; i < mine.keys.size() && !found.empty(); ++i) {
    const auto its = std::lower_bound(found.begin(), found.end(), mine.keys[i],
                                      [](const Found& each, std::int64_t key) { return each.key < key; });
    if (its == found.end() || its->key != mine.keys[i]) continue;
    rows.shared.resize(mine.count);
    rows.shared[mine.maybe_shared[i]] = true;
    if (its->rank != rank) rows.numbers[mine.maybe_shared[i]] = its->number;
  }
  for (std::uint64_t row = 0; row < mine.count; ++row) {
    if (rows.numbers[row] != none) continue;
    rows.numbers[row] = rows.first + rows.own_count++;
    rows.own.push_back(row);
  }
  rows.all_own = rows.own_count == mine.count;
  if (rows.all_own) Numbers().swap(rows.own);
  return rows;
}

}  // namespace

std::vector<SharedRows> number_rows(Cohort& cohort, const std::vector<RankRows>& entities) {
  Numbers mine;
  for (const auto& entity : entities) {
    mine.insert(mine.end(), {entity.count, entity.are_shared ? 1U : 0U, entity.keys.size()});
    for (std::size_t i = 0; i < entity.keys.size(); ++i)
      mine.insert(mine.end(), {entity.maybe_shared[i], static_cast<std::uint64_t>(entity.keys[i])});
  }
  const auto texts = cohort.gather(bytes_of(mine), 0);
  const auto text = stream::share_text(cohort, [&] {
    std::vector<NumberReader> ranks(texts.begin(), texts.end());
    Numbers all;
    for (std::size_t e = 0; e < entities.size(); ++e) settle(ranks, all);
    return bytes_of(all);
  });
  NumberReader answer(text);
  std::vector<SharedRows> rows;
  for (const auto& entity : entities)
    rows.push_back(
        take(entity, answer, static_cast<std::uint64_t>(cohort.rank()), static_cast<std::uint64_t>(cohort.size())));
  return rows;
}

}  // namespace penstock::mesh
