#include "trace/trace_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/clock.hpp"
#include "base/fork.hpp"
#include "base/log.hpp"
#include "fabric/handshake.hpp"
#include "storage/file.hpp"
#include "storage/little_endian.hpp"
#include "storage/tier.hpp"
#include "trace/format.hpp"

namespace penstock::trace {

namespace {

using storage::append_little;

constexpr std::size_t block_bytes = 64 << 10;
constexpr std::size_t max_texts = 1 << 16;             // remembered; then the table begins again
constexpr std::size_t max_remembered_bytes = 8 << 20;  // of them
constexpr std::int64_t max_age_ns = 1'000'000'000;     // of a block before it is written
constexpr std::size_t max_records_keys = 1 << 20;      // of one record, which must fit into a block

std::int64_t realtime_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// A line of a file of the system's; "" where there is none.
std::string first_line(const char* path) {
  try {
    const auto file = storage::File::open_if_there(path, O_RDONLY);
    if (!file) return {};
    std::string text(256, '\0');
    text.resize(file->read_at(0, std::as_writable_bytes(std::span(text))));
    return text.substr(0, text.find_first_of("\n\0"));
  } catch (const Error&) {
    return {};
  }
}

std::string header() {
  std::string body;
  append_little<std::uint64_t>(body, static_cast<std::uint64_t>(realtime_ns()));
  append_little<std::uint64_t>(body, static_cast<std::uint64_t>(TraceWriter::now_ns()));
  append_varint(body, static_cast<std::uint64_t>(::getpid()));
  append_text(body, fabric::host_name());
  append_text(body, first_line("/proc/sys/kernel/random/boot_id"));
  append_text(body, first_line("/proc/self/comm"));
  std::string bytes(trace_magic);
  append_little<std::uint32_t>(bytes, trace_version);
  append_little<std::uint32_t>(bytes, static_cast<std::uint32_t>(body.size()));
  append_little<std::uint64_t>(bytes, storage::checksum(std::as_bytes(std::span(body))));
  return bytes + body;
}

storage::File create(const std::string& path) {
  if (storage::exists(path)) throw Error(Errc::already_exists, "the trace " + path + " is there already");
  return storage::File(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
}

storage::File create_in(const std::string& path) {
  std::error_code error;
  if (path.ends_with(".trace") && !std::filesystem::is_directory(path, error)) return create(path);
  std::filesystem::create_directories(path, error);
  if (error) throw Error(Errc::system, "cannot make the folder " + path + " for traces: " + error.message());
  const std::string stem = path + "/" + fabric::host_name() + "-" + std::to_string(::getpid());
  for (int number = 2;; ++number) {
    const std::string name = stem + (number == 2 ? "" : "-" + std::to_string(number - 1)) + ".trace";
    if (!storage::exists(name)) return create(name);
  }
}

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

}  // namespace

struct TraceWriter::Impl {
  const base::Origin origin;  // in a forked child the file is the parent's

  std::mutex mutex;  // guards everything below
  storage::File file;
  bool broken = false;
  std::string block;  // entries
  std::int64_t block_realtime = 0, block_start = 0, last_start = 0;
  std::uint32_t clients = 0;
  std::unordered_map<std::string, std::uint64_t, TextHash, std::equal_to<>> texts;
  std::size_t text_bytes = 0;
  std::string scratch;  // the record under way: its texts come before it

  void begin() {
    block_realtime = realtime_ns();
    block_start = last_start = now_ns();
  }

  std::uint64_t text(std::string_view text) {
    if (text.empty()) return 0;
    if (const auto found = texts.find(text); found != texts.end()) return found->second;
    block.push_back(static_cast<char>(TraceEntry::text));
    append_text(block, text.substr(0, max_trace_text));
    text_bytes += text.size();
    return texts.emplace(std::string(text), texts.size() + 1).first->second;
  }

  // Not within a record, whose texts must be those that it was written with.
  void bound_texts() {
    if (texts.size() < max_texts && text_bytes < max_remembered_bytes) return;
    texts.clear();
    text_bytes = 0;
    block.push_back(static_cast<char>(TraceEntry::forget));
  }

  void append(const TraceEvent& event);
  void write_block();
};

void TraceWriter::Impl::append(const TraceEvent& event) {
  namespace f = trace_flags;
  if (block.empty()) begin();
  bound_texts();
  const bool one_size =
      !event.sizes.empty() && event.sizes.size() == event.keys.size() &&
      std::ranges::count(event.sizes, event.sizes[0]) == static_cast<std::ptrdiff_t>(event.sizes.size());
  const bool sizes = !event.sizes.empty() && event.sizes.size() == event.keys.size() && !one_size;
  const bool part = event.offset != 0 || event.part_bytes != ~std::uint64_t{0};
  const bool texts = !event.metadata.empty() || !event.function.empty() || !event.arguments.empty();
  const std::uint64_t flags =
      (event.batch ? f::batch : 0) | (event.asynchronous ? f::asynchronous : 0) | (event.existing ? f::existing : 0) |
      (event.wait ? f::wait : 0) | (event.tag ? f::tag : 0) | (event.version ? f::version : 0) | (part ? f::part : 0) |
      (sizes ? f::sizes : 0) | (one_size ? f::one_size : 0) | (texts ? f::text : 0) |
      (event.memory_bytes ? f::limits : 0) | static_cast<std::uint64_t>(event.if_exists) << f::if_exists_shift |
      static_cast<std::uint64_t>(event.acknowledge) << f::acknowledge_shift;
  std::string& to = scratch;
  to.clear();
  to.push_back(static_cast<char>(TraceEntry::record));
  to.push_back(static_cast<char>(event.verb));
  append_varint(to, flags);
  append_varint(to, zigzag(event.start_ns - last_start));
  last_start = event.start_ns;
  append_varint(to, static_cast<std::uint64_t>(std::max<std::int64_t>(event.duration_ns, 0)));
  append_varint(to, static_cast<std::uint64_t>(event.outcome));
  if (event.outcome != Errc::ok) append_varint(to, event.failed);
  append_varint(to, event.client);
  append_varint(to, event.thread);
  append_varint(to, zigzag(event.timeout.count()));
  append_varint(to, text({reinterpret_cast<const char*>(event.ns.bytes.data()), event.ns.bytes.size()}));
  append_varint(to, event.count);
  if (event.tag) append_varint(to, *event.tag);
  if (event.version) append_varint(to, *event.version);
  if (part) append_varint(to, event.offset), append_varint(to, event.part_bytes);
  if (event.memory_bytes) append_varint(to, event.memory_bytes);
  if (texts)
    append_varint(to, text(event.metadata)), append_varint(to, text(event.function)),
        append_varint(to, text(event.arguments));
  append_varint(to, event.keys.size());
  for (const Key& key : event.keys) {
    append_varint(to, text(key.row));
    append_varint(to, text(key.column));
  }
  if (one_size) append_varint(to, event.sizes[0]);
  else if (sizes)
    for (const std::uint64_t size : event.sizes) append_varint(to, size);
  block += to;
}

void TraceWriter::Impl::write_block() {
  if (block.empty() || broken) return;
  std::string body;
  body.reserve(16 + block.size());
  append_little<std::uint64_t>(body, static_cast<std::uint64_t>(block_realtime));
  append_little<std::uint64_t>(body, static_cast<std::uint64_t>(block_start));
  body += block;
  std::string prefix;
  append_little<std::uint32_t>(prefix, trace_block_magic);
  append_little<std::uint32_t>(prefix, static_cast<std::uint32_t>(body.size()));
  append_little<std::uint64_t>(prefix, storage::checksum(std::as_bytes(std::span(body))));
  block.clear();
  try {
    if (body.size() > max_trace_block) throw Error(Errc::invalid_argument, "an operation too large to record");
    file.write(prefix, std::as_bytes(std::span(body)));
  } catch (const Error& error) {
    broken = true;  // what follows could not be read
    base::log(base::Level::warn, "recording ends", {{"path", file.path()}, {"why", std::string_view(error.what())}});
  }
}

TraceWriter::TraceWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

TraceWriter::~TraceWriter() { flush(); }

std::shared_ptr<TraceWriter> TraceWriter::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->file = create_in(path);
  impl->file.write(header(), {});
  impl->block.reserve(block_bytes + block_bytes / 4);
  return std::shared_ptr<TraceWriter>(new TraceWriter(std::move(impl)));
}

std::shared_ptr<TraceWriter> TraceWriter::shared(const std::string& path) {
  static std::mutex mutex;                                                               // guards writers
  static std::map<std::pair<pid_t, std::string>, std::shared_ptr<TraceWriter>> writers;  // a forked child has its own
  const std::lock_guard lock(mutex);
  auto& known = writers[{::getpid(), path}];
  if (!known || !storage::exists(known->path())) known = open(path);
  return known;
}

std::uint32_t TraceWriter::client(std::string_view pool) {
  if (impl_->origin.inherited()) return 0;
  const std::lock_guard lock(impl_->mutex);
  if (impl_->block.empty()) impl_->begin();
  impl_->block.push_back(static_cast<char>(TraceEntry::client));
  append_text(impl_->block, pool.substr(0, max_trace_text));
  return impl_->clients++;
}

void TraceWriter::record(const TraceEvent& event) {
  if (event.keys.size() > max_records_keys || impl_->origin.inherited()) return;
  const std::int64_t now = event.start_ns + event.duration_ns;
  const std::lock_guard lock(impl_->mutex);
  if (impl_->broken) return;
  impl_->append(event);
  if (impl_->block.size() >= block_bytes || now - impl_->block_start > max_age_ns) impl_->write_block();
}

void TraceWriter::flush() {
  if (impl_->origin.inherited()) return;
  const std::lock_guard lock(impl_->mutex);
  impl_->write_block();
}

const std::string& TraceWriter::path() const { return impl_->file.path(); }

std::uint32_t TraceWriter::this_thread() {
  static std::atomic<std::uint32_t> next{0};
  thread_local const std::uint32_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

std::int64_t TraceWriter::now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(base::Clock::now().time_since_epoch()).count();
}

}  // namespace penstock::trace
