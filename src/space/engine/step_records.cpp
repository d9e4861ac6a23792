#include "space/engine/step_records.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "base/text.hpp"
#include "pool/engine/pool_engine.hpp"
#include "pool/keys/protocol.hpp"
#include "space/client/space_impl.hpp"
#include "space/names.hpp"
#include "stream/api/patience.hpp"

namespace penstock::space {
namespace {

constexpr std::string_view records_name = "penstock.array-streams";
constexpr std::array<std::string_view, 4> what_names{"data", "void", "end", "lost"};

std::optional<std::uint64_t> number_in(std::string_view digits) {
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string to_text(const StreamRecord& record) {
  return fmt::format("{} {} {} {} {}", record.incarnation, record.ranks, record.retain, record.writer,
                     fmt::join(record.groups, ","));
}

StreamRecord record_from_text(std::string_view text) {
  StreamRecord record;
  std::string groups;
  std::istringstream in{std::string(text)};
  if (!(in >> record.incarnation >> record.ranks >> record.retain >> record.writer) || record.ranks == 0 ||
      record.ranks > most_ranks)
    throw Error(Errc::protocol, "the record of a stream in a space makes no sense");
  std::getline(in >> std::ws, groups);
  if (!groups.empty())
    for (const auto group : base::split(groups, ',')) record.groups.emplace_back(group);
  return record;
}

std::string to_text(const StepMark& mark) {
  return fmt::format("{} {:016x} {:016x} {:016x}", what_names.at(static_cast<std::size_t>(mark.what)),
                     mark.layout_bytes, mark.payload_bytes, mark.layout_since);
}

StepMark mark_from_text(std::string_view text) {
  StepMark mark;
  std::string what;
  std::istringstream in{std::string(text)};
  in >> what >> std::hex >> mark.layout_bytes >> mark.payload_bytes >> mark.layout_since;
  const auto* found = std::find(what_names.begin(), what_names.end(), what);
  if (!in || found == what_names.end())
    throw Error(Errc::protocol, "the record of a step of a stream in a space makes no sense");
  mark.what = static_cast<StepMark::What>(found - what_names.begin());
  return mark;
}

Key stream_key(std::string_view stream) { return {fmt::format("stream/{}", stream), "writer"}; }
std::string steps_prefix(std::string_view stream) { return fmt::format("step/{}/", stream); }
std::string steps_prefix(std::string_view stream, std::uint64_t incarnation) {
  return fmt::format("{}{:020}/", steps_prefix(stream), incarnation);
}
std::string steps_row(std::string_view stream, std::uint64_t incarnation, std::uint64_t step) {
  return fmt::format("{}{:020}", steps_prefix(stream, incarnation), step);
}
std::optional<std::uint64_t> step_of_row(std::string_view row) { return number_in(row.substr(row.rfind('/') + 1)); }
std::optional<std::uint64_t> incarnation_of_row(std::string_view row) {
  const auto parts = base::split(row, '/');
  return parts.size() == 4 ? number_in(parts[2]) : std::nullopt;
}
std::string rank_column(std::uint32_t rank) { return fmt::format("rank/{:010}", rank); }
std::optional<std::uint32_t> rank_of_column(std::string_view column) {
  const auto number = number_in(column.substr(std::min(column.size(), every_rank.size() - 1)));
  return number && *number < most_ranks ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}
std::string group_column(std::string_view group) { return fmt::format("read/{}", group); }
std::string array_name(std::string_view stream, std::string_view variable) {
  return fmt::format("{}/{}", stream, variable);
}

Clients open_clients(const stream::EngineContext& context, const StreamOptions& options, const std::string& role) {
  const base::Deadline deadline(Timeout(options.open_timeout_ms));
  const auto client = pool::shared_client(context, options.pool, role, deadline);
  const auto timeout = stream::chosen_or_usual(options.step_timeout_ms);
  PoolOptions arrays;
  arrays.pool = options.pool;
  arrays.ns = namespace_name;
  arrays.timeout_ms = static_cast<std::uint32_t>(timeout.count());
  return {client, records_of(client, options.pool, timeout),
          Space::Impl::over(Pool::Impl::over(client, std::move(arrays)), options.acknowledge)};
}

Pool records_of(std::shared_ptr<pool::PoolClient> client, const std::string& pool, Timeout timeout) {
  PoolOptions records;
  records.pool = pool;
  records.ns = records_name;
  records.timeout_ms = static_cast<std::uint32_t>(timeout.count());
  return Pool::Impl::over(std::move(client), std::move(records));
}

Marks marks_of(Pool& records, std::string_view stream, std::uint64_t incarnation) {
  Marks all;
  Pattern pattern;
  pattern.row = pool::escape_pattern(steps_prefix(stream, incarnation)) + "*";
  pattern.column = every_rank;
  std::string next;
  do {
    auto listing = records.list(pattern, keys_at_once, next);
    for (const auto& object : listing.objects)
      if (const auto step = step_of_row(object.key.row)) all[*step].push_back(mark_from_text(object.metadata));
    next = std::move(listing.next);
  } while (!next.empty());
  return all;
}

bool is_complete(const std::vector<StepMark>& ranks, const StreamRecord& record) {
  const auto has_data = [](const StepMark& mark) { return mark.what == StepMark::What::data; };
  return ranks.size() == record.ranks && std::all_of(ranks.begin(), ranks.end(), has_data);
}

std::vector<std::uint64_t> kept_steps(const Marks& marks, const StreamRecord& record) {
  std::vector<std::uint64_t> steps;
  for (const auto& [step, ranks] : marks)
    if (is_complete(ranks, record)) steps.push_back(step);
  if (record.retain > 0)
    std::erase_if(steps, [&, newest = steps.empty() ? 0 : steps.back()](std::uint64_t step) {
      return newest - step >= record.retain;
    });
  return steps;
}

State state_of(const Marks& marks, bool lives) {
  State state = lives ? State::open : State::lost;
  if (marks.empty()) return state;
  for (const auto& rank : marks.rbegin()->second) {
    if (rank.what == StepMark::What::lost) return State::lost;
    if (rank.what == StepMark::What::ended) state = State::ended;
  }
  return state;
}

std::optional<StreamRecord> find_stream(Pool& records, std::string_view stream) {
  try {
    const auto object = records.get(stream_key(stream));
    auto record = record_from_text(object.text());
    record.leased = object.info.metadata == leased_metadata;
    return record;
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    return std::nullopt;
  }
}

Timeout left(base::Deadline deadline) { return Space::Impl::left(deadline); }

}  // namespace penstock::space
