// What is behind a Coprocessor of the public API: one rank of it.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/channel_fields.hpp"
#include "analysis/demand.hpp"
#include "analysis/request_listener.hpp"
#include "analysis/steering.hpp"
#include "base/fork.hpp"
#include "penstock/coprocessor.hpp"

namespace penstock {

struct Coprocessor::Impl {
  Impl(const Context& context, std::string_view channel, std::shared_ptr<Cohort> cohort, CoprocessorOptions options,
       StreamOptions stream, StartAnalysis start);

  enum class Skip : std::uint8_t { no, every, trigger, not_ready };
  using Rules = std::bitset<analysis::max_rules>;
  // What rank 0 tells the others in request().
  struct Decision {
    Skip skip = Skip::no;
    Rules rules;          // those that hold
    std::string request;  // a new one, which is in force from now on; "": none
  };

  bool is_root() const { return cohort->rank() == 0; }
  void check_usable() const;  // throws
  void start_analysis();      // collective
  std::optional<WriteStep> request(std::int64_t cycle, double time);
  void put_metadata(WriteStep& step);
  // The variable, in the shape that its mesh has now.
  analysis::ChannelFields::Variable& reshaped(WriteStep& step, std::uint32_t field);
  void close_step(bool published);
  CoprocessorStatistics statistics() const;
  int end(Timeout deadline, bool lost);

  const base::Origin origin;  // every call is refused in a forked child
  const std::string channel;
  const std::shared_ptr<Cohort> cohort;
  CoprocessorOptions options;
  const StreamOptions stream;  // in effect
  StartAnalysis start;
  std::unique_ptr<RunningAnalysis> program;  // outlives the writer
  Writer writer;
  std::unique_ptr<analysis::RequestListener> listener;  // rank 0, where there may be requests
  analysis::ChannelFields fields;
  analysis::Steering steering;
  CoprocessorStatistics counted;
  std::vector<std::uint8_t> wanted;  // in the open step, by field
  bool in_step = false;
  bool ended = false;
  int status = 0;

 private:
  Decision decide(std::int64_t cycle, double time, std::optional<WriteStep>& begun);
  Decision agree(std::int64_t cycle, double time, std::optional<WriteStep>& begun);
  void await_first_demand();
  bool expects_demand() const;
  bool is_ready(std::optional<WriteStep>& begun);
  void hear(Decision& decision);
  void adopt(analysis::Request request);
  Rules rules_that_hold(std::int64_t cycle, double time) const;
  void gather_wanted(const Rules& rules);
  bool count(Skip skip);
  std::string acknowledgement() const;
  int wait_for_program(Timeout deadline);

  bool started_ = false;
  bool demand_met_ = false;    // the first one is here, or is not waited for
  bool told_failure_ = false;  // rank 0: the others have its error
  std::vector<analysis::Rule> rules_;
  std::vector<std::vector<std::uint8_t>> wanted_by_;  // rule, field
  std::uint64_t resolved_ = 0;                        // the version of the fields that this is of
  std::string refused_;                               // why the last request was; "": it was not
  std::int64_t cycle_ = 0;
  double time_ = 0;
};

}  // namespace penstock
