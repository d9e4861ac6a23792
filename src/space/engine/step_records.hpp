// What a stream in a space is made of beside its arrays: objects of a pool, in a namespace of their own.
//
//   stream/<name>, "writer"                 who writes it: a new incarnation for each writer
//   step/<name>/<incarnation>/<step>
//     rank/<rank>                           what that rank put into the step: its layout, its payload, and what is no global array
//     read/<group>                          that group needs the step no more
//
// Every rank puts one object into every row: also to say that it gave the step up, closed the stream, or was lost. So a reader
// waits for a row to have as many objects as there are ranks, and needs nobody to tell it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/space.hpp"
#include "pool/client/client_core.hpp"
#include "pool/keys/protocol.hpp"
#include "stream/api/engine.hpp"

namespace penstock::space {

// A reader gets the marks of a step in one reply.
inline constexpr std::uint32_t most_ranks = pool::max_listed;

struct StreamRecord {
  std::uint64_t incarnation = 0;
  std::uint32_t ranks = 1;          // at most most_ranks
  std::uint32_t retain = 0;         // steps that are kept; 0: all
  std::string writer;               // host:pid
  std::vector<std::string> groups;  // which hold back the steps that are not kept
  bool leased = false;  // the writer has a lease (writer_lease.hpp); in the object's metadata, so not in to_text
};
inline constexpr std::string_view leased_metadata = "leased";
std::string to_text(const StreamRecord& record);
StreamRecord record_from_text(std::string_view text);  // throws Error(protocol)

// The metadata of a rank's object.
struct StepMark {
  enum class What : std::uint8_t { data, voided, ended, lost } what = What::data;
  std::uint64_t layout_bytes = 0, payload_bytes = 0;  // the object begins with them
  std::uint64_t layout_since = 0;                     // the step from which on the layout is this one
};
std::string to_text(const StepMark& mark);
StepMark mark_from_text(std::string_view text);  // throws Error(protocol)

Key stream_key(std::string_view stream);
std::string steps_prefix(std::string_view stream);
std::string steps_prefix(std::string_view stream, std::uint64_t incarnation);
std::string steps_row(std::string_view stream, std::uint64_t incarnation, std::uint64_t step);
std::optional<std::uint64_t> incarnation_of_row(std::string_view row);
std::optional<std::uint64_t> step_of_row(std::string_view row);
inline constexpr std::string_view every_rank = "rank/*", every_group = "read/*";
std::string rank_column(std::uint32_t rank);
std::optional<std::uint32_t> rank_of_column(std::string_view column);
std::string group_column(std::string_view group);
std::string array_name(std::string_view stream, std::string_view variable);

// Over one client of the pool that the options name.
struct Clients {
  std::shared_ptr<pool::PoolClient> client;
  Pool records;
  std::shared_ptr<Space> arrays;
};
Clients open_clients(const stream::EngineContext& context, const StreamOptions& options, const std::string& role);
// Nothing: no writer has begun it.
std::optional<StreamRecord> find_stream(Pool& records, std::string_view stream);
// The records in the pool of this client.
Pool records_of(std::shared_ptr<pool::PoolClient> client, const std::string& pool, Timeout timeout);
// What the ranks have put, by step.
using Marks = std::map<std::uint64_t, std::vector<StepMark>>;
Marks marks_of(Pool& records, std::string_view stream, std::uint64_t incarnation);
// Whether every rank has put its part of a step.
bool is_complete(const std::vector<StepMark>& ranks, const StreamRecord& record);
// The numbers of the complete steps that are kept. Records stay longer than the versions of arrays.
std::vector<std::uint64_t> kept_steps(const Marks& marks, const StreamRecord& record);
enum class State : std::uint8_t { open, ended, lost };
// lives: writer_lives(), asked before the marks were listed.
State state_of(const Marks& marks, bool lives);
Timeout left(base::Deadline deadline);
inline constexpr Timeout least_wait(100);  // for an answer, where steps or room are only polled for

}  // namespace penstock::space
