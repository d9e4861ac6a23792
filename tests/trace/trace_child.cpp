// Writes a trace: what is in it goes to standard output, a line of JSON for each record.
//
//   trace_child FILE random SEED COUNT     records of every kind
//   trace_child FILE texts COUNT           as many different rows, more than a writer remembers
//   trace_child FILE blocks COUNT EACH     blocks of so many records
//   trace_child FILE killed                100 records, flushed, then 3 more and SIGKILL
//   trace_child FILE forked                records by a process whose children must write nothing
//   trace_child FILE threads COUNT EACH    threads of so many records each
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "trace/trace_writer.hpp"

namespace {

using namespace penstock;
using trace::TraceEvent;
using trace::TraceWriter;
using trace::Verb;

TraceEvent event(Verb verb, std::span<const Key> keys) {
  TraceEvent event;
  event.verb = verb;
  event.keys = keys;
  event.start_ns = TraceWriter::now_ns();
  event.duration_ns = 1000;
  return event;
}

void repeat(TraceWriter& writer, Verb verb, int count) {
  const Key key{"row", "column"};
  for (int i = 0; i < count; ++i) writer.record(event(verb, {&key, 1}));
}

// Text of any bytes, in JSON as the hexadecimal digits.
std::string hex(std::string_view text) {
  std::string digits = "\"";
  for (const char c : text) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(c));
    digits += two;
  }
  return digits + "\"";
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t end) { return engine_() % end; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  // Small ones, and of every length.
  std::uint64_t number() { return engine_() >> below(64); }
  std::string text() {
    std::string text(below(12), '\0');
    for (char& c : text) c = static_cast<char>(below(256));
    return text;
  }

 private:
  std::mt19937_64 engine_;
};

void write_random(TraceWriter& writer, std::uint64_t seed, int count) {
  Random random(seed);
  std::vector<std::string> texts;
  for (int i = 0; i < 40; ++i) texts.push_back(random.text());
  const auto some = [&]() -> const std::string& { return texts[random.below(texts.size())]; };
  for (int i = 0; i < 3; ++i) writer.client("pool " + std::to_string(i));
  std::int64_t now = TraceWriter::now_ns();
  for (int i = 0; i < count; ++i) {
    std::vector<Key> keys(random.one_in(3) ? random.below(9) : 1);
    for (auto& key : keys) key = {some(), some()};
    std::vector<std::uint64_t> sizes(random.one_in(2) ? keys.size() : 0);
    const bool same = random.one_in(2);
    for (auto& size : sizes) size = same ? 100 : random.number();
    TraceEvent e = event(static_cast<Verb>(random.below(static_cast<std::uint64_t>(Verb::read_close) + 1)), keys);
    e.sizes = sizes;
    e.batch = random.one_in(2), e.asynchronous = random.one_in(2);
    e.existing = random.one_in(2), e.wait = random.one_in(2);
    e.if_exists = static_cast<IfExists>(random.below(3));
    e.acknowledge = static_cast<Acknowledge>(random.below(3));
    if (random.one_in(3)) e.outcome = Errc::pool_full, e.failed = static_cast<std::uint32_t>(random.below(9));
    e.client = static_cast<std::uint32_t>(random.below(3));
    e.thread = static_cast<std::uint32_t>(random.number());
    now += static_cast<std::int64_t>(random.number() >> 24) - static_cast<std::int64_t>(random.number() >> 24);
    e.start_ns = now;
    e.duration_ns = static_cast<std::int64_t>(random.number() >> 1);
    e.timeout = random.one_in(3) ? forever : Timeout(static_cast<std::int64_t>(random.below(9)) - 2);
    if (random.one_in(2)) e.tag = random.number();
    if (random.one_in(2)) e.version = random.number();
    if (random.one_in(4)) e.offset = random.number(), e.part_bytes = random.number();
    e.count = random.one_in(2) ? 0 : random.number();
    e.memory_bytes = random.one_in(4) ? random.number() : 0;
    const std::string metadata = some(), function = some(), arguments = some();
    if (random.one_in(2)) e.metadata = metadata, e.function = function, e.arguments = arguments;
    for (auto& byte : e.ns.bytes) byte = static_cast<std::uint8_t>(random.one_in(2));
    writer.record(e);

    const auto optional = [](const std::optional<std::uint64_t>& v) { return v ? std::to_string(*v) : "null"; };
    std::string said = "[", lengths = "[";
    for (const auto& key : keys) said += (said.size() > 1 ? ", [" : "[") + hex(key.row) + ", " + hex(key.column) + "]";
    for (const auto size : sizes) lengths += (lengths.size() > 1 ? ", " : "") + std::to_string(size);
    const std::map<std::string, std::string> fields{
        {"verb", std::to_string(static_cast<int>(e.verb))},
        {"batch", e.batch ? "true" : "false"},
        {"asynchronous", e.asynchronous ? "true" : "false"},
        {"existing", e.existing ? "true" : "false"},
        {"waits", e.wait ? "true" : "false"},
        {"if_exists", std::to_string(static_cast<int>(e.if_exists))},
        {"acknowledge", std::to_string(static_cast<int>(e.acknowledge))},
        {"outcome", hex(name_of(e.outcome))},
        {"failed", std::to_string(e.failed)},
        {"client", std::to_string(e.client)},
        {"thread", std::to_string(e.thread)},
        {"start_ns", std::to_string(e.start_ns)},
        {"duration_ns", std::to_string(e.duration_ns)},
        {"timeout_ms", std::to_string(e.timeout.count())},
        {"namespace", hex({reinterpret_cast<const char*>(e.ns.bytes.data()), e.ns.bytes.size()})},
        {"count", std::to_string(e.count)},
        {"tag", optional(e.tag)},
        {"version", optional(e.version)},
        {"offset", std::to_string(e.offset)},
        {"part_bytes", std::to_string(e.part_bytes)},
        {"memory_bytes", std::to_string(e.memory_bytes)},
        {"metadata", hex(e.metadata)},
        {"function", hex(e.function)},
        {"arguments", hex(e.arguments)},
        {"keys", said + "]"},
        {"sizes", lengths + "]"}};
    std::string line;
    for (const auto& [name, value] : fields) line += (line.empty() ? "{\"" : ", \"") + name + "\": " + value;
    std::puts((line + "}").c_str());
  }
}

// A child is made while another thread has the writer's lock, as likely as not.
int write_forked(TraceWriter& writer) {
  repeat(writer, Verb::put, 1);
  std::atomic<bool> enough{false};
  std::jthread busy([&] {
    while (!enough) writer.flush();
  });
  int wrong = 0;
  for (int i = 0; i < 20; ++i) {
    repeat(writer, Verb::put, 1);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      repeat(writer, Verb::get, 1);
      writer.flush();
      std::quick_exit(0);
    }
    int status = 0;
    wrong += ::waitpid(child, &status, 0) != child || !WIFEXITED(status);
  }
  enough = true;
  busy.join();
  repeat(writer, Verb::put, 1);
  return wrong;
}

void write_threads(TraceWriter& writer, int threads, int each) {
  std::vector<std::jthread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&writer, each] {
      for (int i = 0; i < each; ++i) {
        const Key key{"thread/" + std::to_string(TraceWriter::this_thread()), std::to_string(i % 100)};
        TraceEvent put = event(Verb::put, {&key, 1});
        put.thread = TraceWriter::this_thread();
        put.count = static_cast<std::uint64_t>(i);
        writer.record(put);
      }
    });
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2) {
    std::fputs("usage: trace_child FILE random|texts|blocks|killed|forked|threads NUMBER...\n", stderr);
    return 2;
  }
  const auto number = [&](std::size_t i) { return i < words.size() ? std::stoi(words[i]) : 1; };
  const auto writer = TraceWriter::open(words[0]);
  if (words[1] == "random") {
    write_random(*writer, static_cast<std::uint64_t>(number(2)), number(3));
    return 0;
  }
  writer->client("heat");
  if (words[1] == "texts") {
    for (int i = 0; i < number(2); ++i) {
      const Key key{"row/" + std::to_string(i), "T"};
      writer->record(event(Verb::put, {&key, 1}));
    }
  } else if (words[1] == "blocks") {
    for (int block = 0; block < number(2); ++block) {
      repeat(*writer, Verb::put, number(3));
      writer->flush();
    }
  } else if (words[1] == "killed") {
    repeat(*writer, Verb::put, 100);
    writer->flush();
    repeat(*writer, Verb::get, 3);
    ::kill(::getpid(), SIGKILL);
  } else if (words[1] == "forked") {
    return write_forked(*writer);
  } else if (words[1] == "threads") {
    write_threads(*writer, number(2), number(3));
  }
  return 0;
}
