// What clients of pools did, and when: one append-only file a process (trace_writer.hpp writes it), read here.
//
// File: "PNSTRACE", version (4), length (4), checksum (8), then a header: realtime and monotonic clock at the same moment, pid,
// host, boot id, program. Then blocks: "PTB1", length (4), checksum (8, XXH3 of what follows), realtime, monotonic, entries. A
// process that is killed leaves at most one block unfinished: what is before it is readable, the rest is reported as lost.
// Entries: `text` (the next number's text: rows, columns, metadata, functions, namespaces, pools are written once and named by
// number from then on), `forget` (numbers begin again, so that the writer's table stays bounded), `client`, `record`. Numbers
// are little-endian or LEB128. A record of one small put takes about 20 bytes.
//
// Decoding is pure and takes any bytes. Values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/pool.hpp"

namespace penstock::pool {

inline constexpr std::uint32_t trace_version = 1;
inline constexpr std::size_t max_trace_block = 16 << 20;
inline constexpr std::size_t max_trace_text = 1 << 20;

// The calls of penstock/pool.hpp (get_into is a get), then those of penstock/stream.hpp on streams in pools, of a writer
// (write_) and of a reader (read_). Numbers are in files: new ones come last.
//
// Of a stream's calls the key is (stream, variable or attribute), the client stands for one Writer or Reader, `version` is the
// step's number, and `sizes` says how many bytes were put or asked for. Besides:
//   write_open, read_open   count, tag: ranks, rank; version: the cohort's number (none when it could not open);
//                           arguments: the options in effect, as YAML
//   write_define            arguments: the variable (stream_trace.hpp)
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
inline constexpr std::size_t verb_count = 31;
std::string_view name_of(Verb verb);
inline bool is_of_stream(Verb verb) { return verb >= Verb::write_open; }

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

// As read. Texts are shared: numbers into Trace::texts.
struct TraceKey {
  std::uint32_t row = 0, column = 0;
  friend bool operator==(const TraceKey&, const TraceKey&) = default;
};
struct TraceRecord : TraceFields {
  std::uint32_t ns = 0;
  std::vector<TraceKey> keys;
  std::vector<std::uint64_t> sizes;  // empty or one for each key
  std::uint32_t metadata = 0, function = 0, arguments = 0;
};

struct TraceHeader {
  std::int64_t realtime_ns = 0;   // since 1970,
  std::int64_t monotonic_ns = 0;  // at this reading of the steady clock
  std::uint64_t pid = 0;
  std::string host, boot, program;  // boot: of the kernel; the same for all processes of a machine, "" where unknown
};

struct Trace {
  TraceHeader header;
  std::vector<std::string> texts{""};  // 0 is empty
  std::vector<std::string> clients;    // the pool of each
  std::vector<TraceRecord> records;    // in the order in which they ended, roughly
  std::uint64_t lost_bytes = 0;        // at the end of the file, not readable
  std::string problem;                 // why; "" when the file ends with a whole block

  Key key(TraceKey key) const { return {texts[key.row], texts[key.column]}; }
  Namespace ns(const TraceRecord& record) const;
};

// Throws Error(protocol) when it is no trace at all (or of another version); a damaged block ends it without an error.
Trace decode_trace(std::span<const std::byte> bytes);
// Throws Error: not_found, system, protocol.
Trace read_trace(const std::string& path);
// All files of a folder that are traces ("*.trace"), by name, or the one file.
std::vector<Trace> read_traces(const std::string& path);

}  // namespace penstock::pool
