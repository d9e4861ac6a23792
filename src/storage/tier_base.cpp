#include "storage/tier_base.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <unordered_set>

#include "base/log.hpp"
#include "base/text.hpp"

namespace penstock::storage {

namespace {

// "penstock tier 3 disk": the format's number and the kind. Formats of `rocksdb` and `disk`: 1 had no journal; 2 had one in the
// folder `journal`, which held writes that RocksDB did not have; 3 has all in RocksDB.
constexpr std::string_view mark_begin = "penstock tier ";
constexpr std::uint64_t newest_format = 3;

std::uint64_t format_of(std::string_view kind) { return kind == "rocksdb" || kind == "disk" ? 3 : 1; }

std::string mark_of(std::uint64_t format, std::string_view kind) {
  return std::string(mark_begin) + std::to_string(format) + " " + std::string(kind) + "\n";
}

struct Mark {
  std::uint64_t format = 0;
  std::string_view kind;
};
std::optional<Mark> parse_mark(std::string_view text) {
  if (!text.starts_with(mark_begin)) return std::nullopt;
  text.remove_prefix(mark_begin.size());
  Mark mark;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), mark.format);
  if (parsed.ec != std::errc() || parsed.ptr == text.data() + text.size() || *parsed.ptr != ' ') return std::nullopt;
  mark.kind = base::trim(text.substr(static_cast<std::size_t>(parsed.ptr - text.data())));
  return mark;
}

void check_key(std::string_view key) {
  if (key.size() > max_key_bytes)
    throw Error(Errc::invalid_argument,
                "a key of " + base::format_size(key.size()) + " is longer than " + base::format_size(max_key_bytes));
}

// Then no key is there twice.
bool ascending(std::span<const TierWrite> writes) {
  for (std::size_t i = 1; i < writes.size(); ++i)
    if (writes[i - 1].key >= writes[i].key) return false;
  return !writes.empty();
}

// Of several writes with one key the last counts.
std::vector<TierWrite> last_of_each_key(std::span<const TierWrite> writes) {
  std::vector<TierWrite> kept;
  std::unordered_set<std::string_view> seen;
  for (std::size_t i = writes.size(); i-- > 0;)
    if (seen.insert(writes[i].key).second) kept.push_back(writes[i]);
  std::reverse(kept.begin(), kept.end());
  return kept;
}

void refuse_journal(const TierOptions& options, std::uint64_t format) {
  const std::string journal = options.path + "/journal";
  if (!exists(journal) || std::filesystem::is_empty(journal)) return;
  throw Error(
      Errc::unsupported,
      "the tier in " + options.path + " is of format " + std::to_string(format) + ", and its journal (" + journal +
          ") may hold objects that this release cannot read: run the release that wrote the folder, and copy its "
          "objects to a pool with a new folder. Removing the journal loses what was put last");
}

void check_mark(const TierOptions& options) {
  const std::string path = options.path + "/TIER", mark = mark_of(format_of(options.kind), options.kind);
  if (!exists(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(options.path)) {
      const auto name = entry.path().filename().string();
      if (name != "LOCK" && name != "TIER.new")
        throw Error(Errc::protocol,
                    "the folder " + options.path + " holds other things (" + name + ") and is not a tier");
    }
    return replace_file(path, mark);
  }
  const std::string found = read_small_file(path);
  if (found == mark) return;
  const auto there = parse_mark(found);
  if (!there) throw Error(Errc::protocol, path + " is not a tier's mark");
  if (there->format > newest_format)
    throw Error(Errc::unsupported, "the tier in " + options.path + " is of format " + std::to_string(there->format) +
                                       ", of a newer release of Penstock; this one knows " +
                                       std::to_string(newest_format) + " and older ones: open it with that release");
  if (there->kind != options.kind)
    throw Error(Errc::protocol,
                "the tier in " + options.path + " is of kind " + std::string(there->kind) + ", not " + options.kind);
  if (there->format >= format_of(options.kind)) return;
  refuse_journal(options, there->format);
  // In place, one digit: that takes no space, and is not torn.
  const File file(path, O_WRONLY);
  if (::pwrite(file.fd(), mark.data(), mark.size(), 0) != static_cast<ssize_t>(mark.size())) fail("write", path, errno);
  file.sync_data();
}

}  // namespace

TierBase::TierBase(const TierOptions& options) : options_(options) {
  make_folder(options_.path);
  lock_ = lock_folder(options_.path);
  check_mark(options_);
}

template <class Action>
auto TierBase::counted(Action action) {
  try {
    return action();
  } catch (...) {
    count_error();
    throw;
  }
}

void TierBase::put(std::span<const TierWrite> writes, bool sync) {
  counted([&] {
    std::uint64_t bytes = 0;
    for (const TierWrite& write : writes) {
      check_key(write.key);
      if (write.metadata.size() > max_metadata_bytes || write.data.size() > max_data_bytes)
        throw Error(Errc::invalid_argument, "metadata of " + base::format_size(write.metadata.size()) +
                                                " and data of " + base::format_size(write.data.size()) +
                                                " are more than " + base::format_size(max_metadata_bytes) + " and " +
                                                base::format_size(max_data_bytes));
      bytes += write.data.size();
    }
    if (writes.size() == 1) do_put(writes, sync);
    else if (ascending(writes)) do_put(writes, sync);
    else if (!writes.empty()) do_put(last_of_each_key(writes), sync);
    written_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (sync) syncs_.fetch_add(1, std::memory_order_relaxed);
  });
}

void TierBase::get(std::string_view key, std::span<std::byte> out) {
  counted([&] {
    check_key(key);
    do_get(key, out);
    read_bytes_.fetch_add(out.size(), std::memory_order_relaxed);
  });
}

std::optional<TierEntry> TierBase::find(std::string_view key) {
  return counted([&] {
    check_key(key);
    return do_find(key);
  });
}

bool TierBase::erase(std::string_view key, bool sync) {
  return counted([&] {
    check_key(key);
    return do_erase(key, sync);
  });
}

void TierBase::scan(std::string_view prefix, const std::function<bool(const TierEntry&)>& visit) {
  counted([&] { do_scan(prefix, visit); });
}

void TierBase::sync() {
  counted([&] {
    do_sync();
    syncs_.fetch_add(1, std::memory_order_relaxed);
  });
}

void TierBase::close() noexcept {
  try {
    do_sync();
  } catch (const std::exception& error) {
    base::log(base::Level::warn, "a tier was closed without a sync", {{"path", path()}, {"why", error.what()}});
  }
}

TierStatistics TierBase::statistics() {
  TierStatistics result;
  {
    std::lock_guard lock(usage_mutex_);
    result.objects = objects_;
    result.bytes = bytes_;
  }
  result.free_bytes = free_bytes(path());
  result.journal_bytes = journal_bytes();
  result.written_bytes = written_bytes_;
  result.read_bytes = read_bytes_;
  result.syncs = syncs_;
  result.errors = errors_;
  result.dropped = dropped_;
  return result;
}

std::uint64_t TierBase::used_bytes() {
  std::lock_guard lock(usage_mutex_);
  return bytes_;
}

void TierBase::count_nothing() {
  std::lock_guard lock(usage_mutex_);
  objects_ = bytes_ = 0;
}

void TierBase::count_existing(std::uint64_t data_bytes) {
  std::lock_guard lock(usage_mutex_);
  objects_ += 1;
  bytes_ += data_bytes;
}

void TierBase::count_erased(std::uint64_t data_bytes) {
  std::lock_guard lock(usage_mutex_);
  objects_ -= 1;
  bytes_ -= data_bytes;
}

TierBase::Room::Room(TierBase& tier, const Change& change) : tier_(tier), change_(change) {
  const std::uint64_t limit = tier.options_.limit_bytes;
  std::lock_guard lock(tier_.usage_mutex_);
  // What is replaced counts until the new data is in: of two puts at once one may fail for nothing, but none gets too much.
  if (limit != 0 && tier_.bytes_ + change_.bytes_new > limit + change_.bytes_replaced)
    throw TierFull("no space left: " + base::format_size(change_.bytes_new) + " more in " + tier_.path() +
                   " would exceed its limit of " + base::format_size(limit));
  tier_.objects_ += change_.objects_new;
  tier_.bytes_ += change_.bytes_new;
}

TierBase::Room::~Room() {
  std::lock_guard lock(tier_.usage_mutex_);
  tier_.objects_ -= committed_ ? change_.objects_replaced : change_.objects_new;
  tier_.bytes_ -= committed_ ? change_.bytes_replaced : change_.bytes_new;
}

void TierBase::Room::commit() { committed_ = true; }

}  // namespace penstock::storage
