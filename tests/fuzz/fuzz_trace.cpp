// Traces of clients: the decoder, and what is made of what it read.
#include <unistd.h>

#include <sstream>

#include "fuzz.hpp"
#include "pool/replay_plan.hpp"
#include "pool/stream_trace.hpp"
#include "pool/trace_writer.hpp"
#include "storage/tier.hpp"

using namespace penstock;
using namespace penstock::pool;
using fuzz::Bytes;

namespace {

// A file whose blocks have the checksums that the bytes of the input lack, so that mutations reach what is inside.
enum Target : std::uint8_t { as_it_is, as_a_block, targets };

constexpr std::size_t prefix = 24, block_prefix = 16;

void append_little(Bytes& to, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<std::byte>(value >> (8 * i)));
}
void append(Bytes& to, std::span<const std::byte> bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

Bytes file_of(std::span<const std::byte> entries) {
  const Bytes header(16 + 4);  // clocks, pid and three empty texts
  Bytes file;
  append(file, std::as_bytes(std::span(std::string_view("PNSTRACE"))));
  append_little(file, trace_version, 4);
  append_little(file, header.size(), 4);
  append_little(file, storage::checksum(header), 8);
  append(file, header);
  append_little(file, 0x31425450, 4);
  append_little(file, entries.size(), 4);
  append_little(file, storage::checksum(entries), 8);
  append(file, entries);
  return file;
}

// What a replay reads of a stream's calls. What is taken says the same when it is written again.
void check_stream(std::string_view text) {
  fuzz::refuses_with({Errc::protocol}, [&] {
    std::string again;
    append_box(again, parse_box(text));
    fuzz::check(parse_box(again) == parse_box(text));
  });
  fuzz::refuses_with({Errc::protocol}, [&] {
    const Selection selection = parse_selection(text);
    std::string again;
    append_selection(again, selection);
    fuzz::check(parse_selection(again) == selection);
  });
  fuzz::refuses_with({Errc::protocol}, [&] {
    const auto variable = parse_variable(text);
    fuzz::check(parse_variable(describe_variable(variable)) == variable);
  });
  fuzz::refuses_with({Errc::protocol}, [&] {
    const Dims shape = parse_shape(text);
    fuzz::check(parse_shape(describe_shape(shape)) == shape);
  });
  fuzz::refuses_with({Errc::protocol}, [&] {
    const Attribute attribute = parse_attribute(text);
    fuzz::check(parse_attribute(describe_attribute(attribute)) == attribute);
  });
}

void check(std::span<const std::byte> bytes) {
  fuzz::refuses_with({Errc::protocol}, [&] {
    Trace trace = decode_trace(bytes);
    for (const auto& record : trace.records) {
      fuzz::check(record.client < trace.clients.size());
      fuzz::check(record.sizes.empty() || record.sizes.size() == record.keys.size());
      for (const TraceKey key : record.keys) (void)trace.key(key);
      (void)trace.ns(record);
      check_stream(trace.texts[record.arguments]);
      check_stream(trace.texts[record.function]);
    }
    std::vector<Trace> traces;
    traces.push_back(trace);
    traces.push_back(std::move(trace));
    const Timeline timeline = merge(std::move(traces));
    std::ostringstream out;
    write_chrome_trace(timeline, out);
    for (const auto& object : objects_before(timeline)) fuzz::check(object.item < timeline.items.size());
    const auto plan = plan_replay(timeline, {1});
    for (const auto& step : plan.steps)
      for (const auto after : step.after) fuzz::check(after < plan.steps.size());
  });
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  const auto path = std::filesystem::temp_directory_path() / ("penstock-fuzz-" + std::to_string(::getpid()) + ".trace");
  {
    const auto writer = TraceWriter::open(path.string());
    writer->client("heat");
    const std::vector<Key> keys = {{"rank/1", "T"}, {"rank/2", "T"}};
    const std::vector<std::uint64_t> sizes = {8, 16};
    for (std::size_t verb = 0; verb < verb_count; ++verb) {
      TraceEvent event;
      event.verb = static_cast<Verb>(verb);
      event.keys = keys;
      event.sizes = sizes;
      event.start_ns = static_cast<std::int64_t>(verb * 1000);
      event.duration_ns = 500;
      constexpr std::string_view said[] = {
          "0,0+64,64", "box 0,1+3,2/2,1", "block 7", "points 2x3",
          "float64 3", "64,64",           "all",     "float64 global_array row 64,2 min_max"};
      if (is_of_stream(event.verb)) event.arguments = said[verb % std::size(said)], event.version = verb;
      if (verb % 2) event.tag = verb, event.version = verb, event.metadata = "text";
      writer->record(event);
    }
  }
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  std::filesystem::remove(path);
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  const Bytes file(begin, begin + text.size());
  const std::size_t header = std::to_integer<std::size_t>(file[12]);  // shorter than 256 bytes
  const Bytes entries(file.begin() + static_cast<std::ptrdiff_t>(prefix + header + block_prefix), file.end());
  return {choose(as_it_is, file), choose(as_a_block, entries)};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % targets) {
    case as_it_is: check(bytes); break;
    case as_a_block: check(file_of(bytes)); break;
  }
  return 0;
}
