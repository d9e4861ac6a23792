// Names of the objects that a stream in a pool is made of (docs/internals/pools.md). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/pool.hpp"

namespace penstock::pool {

const Namespace& streams_namespace();  // "penstock.streams"

inline constexpr std::string_view stream_row_prefix = "stream/";
std::string stream_row(std::string_view stream);
// "" unless it is a stream's row.
std::string stream_of_row(std::string_view row);

inline constexpr std::string_view record_column = "stream";
// Whether the object of this namespace is a stream's record. It holds its writer's token, with which one can join the writer in place of the
// pool and take its steps from it: no client is given its bytes, whatever its role.
bool is_stream_record(std::string_view row, std::string_view column);
std::string epoch_column(std::uint64_t life, std::uint64_t epoch);
// Nothing: the column is another, or of another life.
std::optional<std::uint64_t> epoch_of_column(std::string_view column, std::uint64_t life);
std::string step_column(std::uint64_t step);  // 20 digits
std::string group_column(std::string_view group);

// One object for each: its column is the life of the writer that put it, so that a later one's cannot be taken for it.
std::string stripe_row(std::string_view stream, std::uint64_t step, std::uint32_t rank, std::uint32_t stripe);
// Nothing: it is no stripe of this stream.
std::optional<std::uint64_t> step_of_stripe_row(std::string_view row, std::string_view stream);
std::string stripe_column(std::uint64_t life);
// Of all stripes of a stream; of one step.
std::string stripe_pattern(std::string_view stream);
std::string stripe_pattern(std::string_view stream, std::uint64_t step);
// Stripes that follow each other lie on servers that follow each other, and so do steps: those of one stripe fill all servers.
// Every 16 steps the order begins elsewhere: large steps that come at a regular distance fill all servers, too. base: the stream's
// own (StreamRecord.tag_base). Streams that earlier servers kept lack `tag_by_step` in it.
inline constexpr std::uint64_t tag_by_step = std::uint64_t{1} << 32;
std::uint64_t stripe_tag(std::uint64_t base, std::uint64_t step, std::uint32_t rank, std::uint32_t stripe);
// Of a new stream.
std::uint64_t tag_base_of(std::string_view stream);

}  // namespace penstock::pool
