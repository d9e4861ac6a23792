// What programs did to pools and streams, and when: one append-only file a process. trace_writer.hpp writes it;
// python/penstock/trace reads it, shows it, and does it again.
//
// File: "PNSTRACE", version (4), length (4), checksum (8), then a header: realtime and monotonic clock at the same moment, pid,
// host, boot id, program. Then blocks: "PTB1", length (4), checksum (8, XXH3 of what follows), realtime, monotonic, entries. A
// process that is killed leaves at most one block unfinished: what is before it is readable, the rest is reported as lost.
// Entries: `text` (the next number's text: rows, columns, metadata, functions, namespaces, pools are written once and named by
// number from then on), `forget` (numbers begin again, so that the writer's table stays bounded), `client`, `record`. Numbers
// are little-endian or LEB128. A record of one small put takes about 20 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "penstock/error.hpp"
#include "penstock/pool.hpp"

namespace penstock::trace {

inline constexpr std::uint32_t trace_version = 1;
inline constexpr std::size_t max_trace_block = 16 << 20;
inline constexpr std::size_t max_trace_text = 1 << 20;

// The calls of penstock/pool.hpp (get_into is a get), then those of penstock/stream.hpp, of a writer
// (write_) and of a reader (read_). Numbers are in files: new ones come last, here and in
// python/penstock/trace/file.py.
//
// Of a stream's calls the key is (stream, variable or attribute), the client stands for one Writer or Reader, `version` is the
// step's number, and `sizes` says how many bytes were put or asked for. Besides:
//   write_open, read_open   count, tag: ranks, rank; version: the cohort's number (none when it could not open);
//                           arguments: the options in effect, as YAML
//   write_define            arguments: the variable (stream_text.hpp)
//   write_attribute         arguments: its type and size
//   write_begin, read_begin outcome: timeout when there was none in time; read_begin: end_of_stream, writer_lost;
//                           existing: dropped by policy
//   write_shape             arguments: the shape
//   write_put               arguments: the box; function: "" copied, "span", "lend", "whole", "string"
//   write_close             count: 1 when the writer was given up because of an error
//   read_get, read_view     arguments: the selection; function: the variable, when it is new to this reader or has changed
enum class Verb : std::uint8_t {
  put,
  get,
  need,
  want,
  info,
  list,
  drop,
  drop_pattern,
  wait_row,
  subscribe,
  compute,
  status,
  write_open,
  write_define,
  write_attribute,
  write_begin,
  write_shape,
  write_put,
  write_end,
  write_abandon,
  write_close,
  read_open,
  read_seek,
  read_steps,
  read_begin,
  read_get,
  read_strings,
  read_wait,
  read_view,
  read_end,
  read_close
};

// Of a record, what is neither keys nor text. Times are nanoseconds of this process's steady clock.
struct TraceFields {
  Verb verb = Verb::put;
  bool batch = false;         // the call took a list
  bool asynchronous = false;  // the call returned before it was done
  bool existing = false;      // subscribe: with what is there
  bool wait = false;          // compute: for objects that are not there yet
  IfExists if_exists = IfExists::refuse;
  Acknowledge acknowledge = Acknowledge::memory;
  Errc outcome = Errc::ok;   // of a batch: the first that is not ok
  std::uint32_t failed = 0;  // keys for which it was not ok
  std::uint32_t client = 0;  // TraceWriter::client
  std::uint32_t thread = 0;  // TraceWriter::this_thread where the call was made
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;  // until it was done
  Timeout timeout{0};
  std::optional<std::uint64_t> tag, version;
  std::uint64_t offset = 0, part_bytes = ~std::uint64_t{0};  // get of a part
  std::uint64_t count = 0;         // list: limit; wait_row: objects; drop_pattern: dropped; compute: time limit in ms
  std::uint64_t memory_bytes = 0;  // compute: limit
};

// To be written. Patterns are keys: their row and column patterns; a row that is waited for has the column's pattern.
struct TraceEvent : TraceFields {
  Namespace ns;
  std::span<const Key> keys;
  std::span<const std::uint64_t> sizes;  // put, and what was got: of each key's object; else empty
  std::string_view metadata;             // put
  std::string_view function, arguments;  // compute; of streams, see Verb
};

// How entries lie in bytes.
inline constexpr std::string_view trace_magic = "PNSTRACE";
inline constexpr std::uint32_t trace_block_magic = 0x31425450;  // "PTB1"

enum class TraceEntry : std::uint8_t { text = 1, forget = 2, client = 3, record = 4 };

namespace trace_flags {
inline constexpr std::uint64_t batch = 1, asynchronous = 2, existing = 4, wait = 8;
inline constexpr std::uint64_t tag = 16, version = 32, part = 64, sizes = 128, one_size = 256, text = 512,
                               limits = 1024;
inline constexpr unsigned if_exists_shift = 11, acknowledge_shift = 13;  // two bits each
}  // namespace trace_flags

inline void append_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}
// Small numbers of either sign.
inline std::uint64_t zigzag(std::int64_t value) {
  return static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
}
inline void append_text(std::string& to, std::string_view text) {
  append_varint(to, text.size());
  to += text;
}

}  // namespace penstock::trace
