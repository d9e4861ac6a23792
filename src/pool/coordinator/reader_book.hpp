// What a stream's home remembers of its readers: which step each cohort's 0th, 1st ... step is, so that all its ranks are given
// the same, and which steps are being read or were read by which group. Pure: no I/O, no clock.
//
// A cohort is known by the number it chose. A home that is new to the stream learns of cohorts from what their ranks say: the
// index they ask for, and the step they were given before it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::pool {

class ReaderBook {
 public:
  explicit ReaderBook(std::size_t max_cohorts = 4096) : max_cohorts_(max_cohorts) {}
  struct Ask {
    std::uint64_t reader = 0;
    std::uint32_t rank = 0, ranks = 1;
    std::uint64_t index = 0;
    std::string group;
    bool latest = false;
    std::int64_t start = -1;  // -1 oldest, -2 newest, else the first not less
    std::int64_t last = -1;   // what the rank was given before; -1: nothing
    std::int64_t seek = -1;
  };
  // Steps that are there, ascending; numbers only.
  class Kept {
   public:
    virtual ~Kept() = default;
    virtual std::optional<std::uint64_t> first_from(std::uint64_t step) const = 0;
    virtual std::optional<std::uint64_t> newest() const = 0;
  };

  // The step that the cohort's index is, decided now if it was not; empty: none is there yet. The step is held by the rank
  // until it ends it. Throws Error(protocol, overloaded).
  std::optional<std::uint64_t> step_for(const Ask& ask, const Kept& kept);
  // The rank has read it. True when that was the last rank, and the cohort has a group.
  bool end_step(std::uint64_t reader, std::uint32_t rank, std::uint64_t index);
  void close(std::uint64_t reader, std::uint32_t rank);
  // Its process is gone, perhaps: it holds nothing until it speaks again.
  void lost(std::uint64_t reader, std::uint32_t rank);

  // What a rank was given by an earlier home: the last of `given` had index - 1; held: indices that it reads still.
  // True when its group has moved by that. Throws Error(protocol, overloaded).
  struct Told {
    std::uint64_t reader = 0;
    std::uint32_t rank = 0, ranks = 1;
    std::string group;
    std::uint64_t index = 0;
    std::vector<std::uint64_t> given, held;
  };
  bool tell(const Told& told);
  // Whether another rank, which has not told anything here yet, may have been given this index by an earlier home.
  bool awaits_others(const Ask& ask) const;

  bool held(std::uint64_t step) const;
  // The first step that the group has not read; 0 for one that nobody knows.
  std::uint64_t group_next(const std::string& group) const;
  const std::map<std::string, std::uint64_t>& groups() const { return groups_; }
  void set_group_next(const std::string& group, std::uint64_t next);
  std::size_t cohorts() const { return cohorts_.size(); }
  // The writer began anew: what was given before means nothing.
  void clear() { cohorts_.clear(), groups_.clear(); }

 private:
  struct Rank {
    std::uint64_t asked = 0;  // index after the last that it was given
    std::uint64_t ended = 0;  // index after the last that it ended
    bool gone = false;        // closed, or its process is
    bool heard = false;       // it has said something
    bool told = false;        // what it was given before
  };
  struct Cohort {
    std::string group;
    std::vector<Rank> ranks;
    bool begun = false;               // it is known where it stands
    std::uint64_t base = 0;           // index of the first that is remembered
    std::deque<std::uint64_t> given;  // steps by index
    std::uint64_t read = 0;           // indices below were read by all ranks
  };
  std::optional<std::uint64_t> choose(const Cohort& cohort, const Ask& ask, std::int64_t before,
                                      const Kept& kept) const;
  bool settle(Cohort& cohort);
  static void begin(Cohort& cohort, const std::string& group, std::uint64_t index);
  static bool gone(const Cohort& cohort);
  Cohort& cohort_of(std::uint64_t reader, std::uint32_t rank, std::uint32_t ranks);

  const std::size_t max_cohorts_;
  std::map<std::uint64_t, Cohort> cohorts_;
  std::map<std::string, std::uint64_t> groups_;
};

}  // namespace penstock::pool
