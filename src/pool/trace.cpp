#include "pool/trace.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "pool/trace_encoding.hpp"
#include "storage/file.hpp"
#include "storage/little_endian.hpp"
#include "storage/tier.hpp"

namespace penstock::pool {

namespace {

using storage::read_little;

constexpr std::string_view verbs[verb_count] = {
    "put",         "get",          "need",         "want",         "info",
    "list",        "drop",         "drop_pattern", "wait_row",     "subscribe",
    "compute",     "status",       "write_open",   "write_define", "write_attribute",
    "write_begin", "write_shape",  "write_put",    "write_end",    "write_abandon",
    "write_close", "read_open",    "read_seek",    "read_steps",   "read_begin",
    "read_get",    "read_strings", "read_wait",    "read_view",    "read_end",
    "read_close"};

[[noreturn]] void refuse_trace(const char* why) { throw Error(Errc::protocol, why); }

class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : left_(bytes) {}
  bool empty() const { return left_.empty(); }
  std::uint8_t byte() {
    if (left_.empty()) refuse_trace("an entry that ends early");
    const auto value = std::to_integer<std::uint8_t>(left_[0]);
    left_ = left_.subspan(1);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint64_t part = byte();
      if (shift == 63 && part > 1) break;
      value |= (part & 0x7f) << shift;
      if (part < 0x80) return value;
    }
    refuse_trace("a number that is too long");
  }
  std::uint32_t varint32() {
    const std::uint64_t value = varint();
    if (value > 0xffffffff) refuse_trace("a number that is too large");
    return static_cast<std::uint32_t>(value);
  }
  std::int64_t little64() {
    const auto part = take(8);
    return static_cast<std::int64_t>(read_little<std::uint64_t>(part, 0));
  }
  std::string text() {
    const std::uint64_t size = varint();
    if (size > max_trace_text) refuse_trace("a text that is too long");
    const auto part = take(size);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  // A count of things of at least one byte each.
  std::size_t count() {
    const std::uint64_t value = varint();
    if (value > left_.size()) refuse_trace("more than there is");
    return value;
  }

 private:
  std::span<const std::byte> take(std::uint64_t size) {
    if (size > left_.size()) refuse_trace("an entry that ends early");
    const auto part = left_.first(size);
    left_ = left_.subspan(size);
    return part;
  }
  std::span<const std::byte> left_;
};

class Decoder {
 public:
  explicit Decoder(Trace& trace) : trace_(trace) {}

  // All entries of a block, or an error and none of its records.
  void block(std::span<const std::byte> bytes) {
    const std::size_t records = trace_.records.size();
    try {
      Cursor cursor(bytes);
      cursor.little64();  // the clocks when the block was begun: for people who look for drift
      last_start_ = cursor.little64();
      while (!cursor.empty()) entry(cursor);
    } catch (...) {
      trace_.records.resize(records);
      throw;
    }
  }

 private:
  void entry(Cursor& cursor) {
    switch (static_cast<TraceEntry>(cursor.byte())) {
      case TraceEntry::text: trace_.texts.push_back(cursor.text()); break;
      case TraceEntry::forget: first_text_ = trace_.texts.size(); break;
      case TraceEntry::client: trace_.clients.push_back(cursor.text()); break;
      case TraceEntry::record: trace_.records.push_back(record(cursor)); break;
      default: refuse_trace("an entry of an unknown kind");
    }
  }

  // 0 is the empty text, n the nth since the table was last forgotten.
  std::uint32_t text(Cursor& cursor) {
    const std::uint64_t number = cursor.varint();
    if (number == 0) return 0;
    if (number > trace_.texts.size() - first_text_) refuse_trace("a text that was not given");
    return static_cast<std::uint32_t>(first_text_ + number - 1);
  }

  TraceRecord record(Cursor& cursor) {
    TraceRecord record;
    const auto verb = cursor.byte();
    if (verb >= verb_count) refuse_trace("a verb that does not exist");
    record.verb = static_cast<Verb>(verb);
    const std::uint64_t flags = cursor.varint();
    if ((flags & ~trace_flags::all) != 0) refuse_trace("options that do not exist");
    options(flags, record);
    // Wraps rather than overflows: a nonsensical time is still a time.
    last_start_ = static_cast<std::int64_t>(static_cast<std::uint64_t>(last_start_) +
                                            static_cast<std::uint64_t>(unzigzag(cursor.varint())));
    record.start_ns = last_start_;
    record.duration_ns = static_cast<std::int64_t>(cursor.varint() & ~(std::uint64_t{1} << 63));
    record.outcome = static_cast<Errc>(cursor.varint32() & 0xffff);
    if (record.outcome != Errc::ok) record.failed = cursor.varint32();
    record.client = cursor.varint32();
    if (record.client >= trace_.clients.size()) refuse_trace("a client that was not given");
    record.thread = cursor.varint32();
    record.timeout = Timeout(unzigzag(cursor.varint()));
    record.ns = text(cursor);
    record.count = cursor.varint();
    if (flags & trace_flags::tag) record.tag = cursor.varint();
    if (flags & trace_flags::version) record.version = cursor.varint();
    if (flags & trace_flags::part) record.offset = cursor.varint(), record.part_bytes = cursor.varint();
    if (flags & trace_flags::limits) record.memory_bytes = cursor.varint();
    if (flags & trace_flags::text)
      record.metadata = text(cursor), record.function = text(cursor), record.arguments = text(cursor);
    keys(cursor, flags, record);
    return record;
  }

  static void options(std::uint64_t flags, TraceFields& fields) {
    fields.batch = flags & trace_flags::batch;
    fields.asynchronous = flags & trace_flags::asynchronous;
    fields.existing = flags & trace_flags::existing;
    fields.wait = flags & trace_flags::wait;
    const auto if_exists = flags >> trace_flags::if_exists_shift & 3,
               acknowledge = flags >> trace_flags::acknowledge_shift & 3;
    if (if_exists > static_cast<std::uint64_t>(IfExists::add_version) ||
        acknowledge > static_cast<std::uint64_t>(Acknowledge::durable))
      refuse_trace("options that do not exist");
    fields.if_exists = static_cast<IfExists>(if_exists);
    fields.acknowledge = static_cast<Acknowledge>(acknowledge);
  }

  void keys(Cursor& cursor, std::uint64_t flags, TraceRecord& record) {
    const std::size_t count = cursor.count();
    record.keys.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      TraceKey key;
      key.row = text(cursor);
      key.column = text(cursor);
      record.keys.push_back(key);
    }
    if (flags & trace_flags::one_size) record.sizes.assign(count, cursor.varint());
    else if (flags & trace_flags::sizes)
      for (std::size_t i = 0; i < count; ++i) record.sizes.push_back(cursor.varint());
  }

  Trace& trace_;
  std::size_t first_text_ = 1;
  std::int64_t last_start_ = 0;
};

// The length of what follows a prefix that ends with length and checksum, if all of it is there and undamaged.
std::optional<std::size_t> checked_length(std::span<const std::byte> bytes, std::size_t prefix) {
  const std::size_t length = read_little<std::uint32_t>(bytes, prefix - 12);
  if (length > max_trace_block || length > bytes.size() - prefix) return std::nullopt;
  if (storage::checksum(bytes.subspan(prefix, length)) != read_little<std::uint64_t>(bytes, prefix - 8))
    return std::nullopt;
  return length;
}

// Returns where the blocks begin.
std::size_t decode_header(std::span<const std::byte> bytes, TraceHeader& header) {
  if (bytes.size() < trace_prefix_bytes || std::memcmp(bytes.data(), trace_magic.data(), trace_magic.size()) != 0)
    refuse_trace("not a trace");
  const auto version = read_little<std::uint32_t>(bytes, trace_magic.size());
  if (version != trace_version)
    throw Error(Errc::protocol, "a trace of version " + std::to_string(version) + "; this program reads version " +
                                    std::to_string(trace_version));
  const auto length = checked_length(bytes, trace_prefix_bytes);
  if (!length) refuse_trace("a trace without its header");
  Cursor cursor(bytes.subspan(trace_prefix_bytes, *length));
  header.realtime_ns = cursor.little64();
  header.monotonic_ns = cursor.little64();
  header.pid = cursor.varint();
  header.host = cursor.text();
  header.boot = cursor.text();
  header.program = cursor.text();
  return trace_prefix_bytes + *length;
}

}  // namespace

std::string_view name_of(Verb verb) {
  const auto number = static_cast<std::size_t>(verb);
  return number < verb_count ? verbs[number] : "unknown";
}

Namespace Trace::ns(const TraceRecord& record) const {
  Namespace ns;
  const std::string& text = texts[record.ns];
  std::memcpy(ns.bytes.data(), text.data(), std::min(text.size(), ns.bytes.size()));
  return ns;
}

Trace decode_trace(std::span<const std::byte> bytes) {
  Trace trace;
  Decoder decoder(trace);
  std::size_t at = decode_header(bytes, trace.header);
  while (at < bytes.size()) {
    const auto rest = bytes.subspan(at);
    std::optional<std::size_t> length;
    if (rest.size() >= trace_block_prefix_bytes && read_little<std::uint32_t>(rest, 0) == trace_block_magic)
      length = checked_length(rest, trace_block_prefix_bytes);
    try {
      if (!length) refuse_trace("a block that is damaged or not whole");
      decoder.block(rest.subspan(trace_block_prefix_bytes, *length));
    } catch (const Error& error) {
      trace.lost_bytes = rest.size();
      trace.problem = error.what();
      break;
    }
    at += trace_block_prefix_bytes + *length;
  }
  return trace;
}

Trace read_trace(const std::string& path) {
  const auto file = storage::File::open_if_there(path, O_RDONLY);
  if (!file) throw Error(Errc::not_found, "there is no trace " + path);
  std::vector<std::byte> bytes(file->size());
  bytes.resize(file->read_at(0, bytes));
  try {
    return decode_trace(bytes);
  } catch (const Error& error) {
    throw error.in(path);
  }
}

std::vector<Trace> read_traces(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    std::vector<Trace> one;
    one.push_back(read_trace(path));
    return one;
  }
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    if (entry.path().extension() == ".trace") names.push_back(entry.path().string());
  if (names.empty()) throw Error(Errc::not_found, "there is no file *.trace in " + path);
  std::ranges::sort(names);
  std::vector<Trace> traces;
  for (const auto& name : names) traces.push_back(read_trace(name));
  return traces;
}

}  // namespace penstock::pool
