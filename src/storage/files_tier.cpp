// The tiers `files` and `hdf5`: one file for each object (object_folder), the index in memory, made again at open from the
// files' headers. Of several files of one key the one with the highest number counts.
#include <charconv>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/log.hpp"
#include "storage/object_folder.hpp"
#include "storage/tier_base.hpp"

namespace penstock::storage {

namespace {

constexpr std::size_t files_per_scan_step = 64;

struct Record {
  ObjectFile file;
  std::uint64_t data_bytes = 0, checksum = 0;
};

class FilesTier final : public TierBase {
 public:
  FilesTier(const TierOptions& options, std::unique_ptr<ObjectCodec> codec)
      : TierBase(options), folder_(options.path + "/objects", std::move(codec)) {
    recover();
  }
  ~FilesTier() override { close(); }

 protected:
  void do_put(std::span<const TierWrite> writes, bool sync) override;
  std::optional<TierEntry> do_find(std::string_view key) override;
  void do_get(std::string_view key, std::span<std::byte> out) override;
  bool do_erase(std::string_view key, bool sync) override;
  void do_scan(std::string_view prefix, const std::function<bool(const TierEntry&)>& visit) override;
  void do_sync() override;

 private:
  using Index = std::map<std::string, Record, std::less<>>;

  void recover();
  void recover_file(const ObjectFolder::Found& found);
  void set_aside(const std::string& path, const Error& error);
  std::optional<Record> record_of(std::string_view key);
  std::optional<TierEntry> entry_of(const std::string& key, Record record);

  std::string watermark_path() const { return path() + "/SYNCED"; }

  ObjectFolder folder_;
  std::mutex sync_mutex_;  // one writer of the watermark at a time; taken before mutex_
  std::mutex mutex_;       // guards index_; not held during input and output
  Index index_;
};

void FilesTier::recover() {
  std::uint64_t watermark = 0;
  if (exists(watermark_path())) {
    const std::string text = read_small_file(watermark_path());
    std::from_chars(text.data(), text.data() + text.size(), watermark);  // anything else: 0, more is verified
  }
  const std::uint64_t removed = folder_.recover(watermark, 0, [&](const auto& found) { recover_file(found); });
  count_dropped(removed);
  for (const auto& [key, record] : index_) count_existing(record.data_bytes);
  const TierStatistics counted = statistics();
  if (counted.dropped + counted.errors != 0)
    base::log(
        base::Level::warn, "a tier was recovered",
        {{"path", path()}, {"objects", counted.objects}, {"dropped", counted.dropped}, {"damaged", counted.errors}});
}

void FilesTier::recover_file(const ObjectFolder::Found& found) {
  const bool durable = folder_.is_durable(found.file);
  ObjectHeader header;
  try {
    header = durable ? folder_.codec().read(found.path, {}) : folder_.codec().verify(found.path);
    if (hash_of(header.key) != found.hash || header.number != found.file.number)
      throw Error(Errc::protocol, found.path + " is another object's file");
  } catch (const Error& error) {
    if (error.code() != Errc::protocol) throw;
    if (durable) return set_aside(found.path, error);
    remove_file(found.path);
    return count_dropped();
  }
  const Record record{found.file, header.data_bytes, header.checksum};
  const auto [at, added] = index_.try_emplace(header.key, record);
  if (!added) {  // one replaced the other, and was not removed yet
    const bool newer = record.file.number > at->second.file.number;
    folder_.remove(header.key, newer ? at->second.file : record.file, false);
    if (newer) at->second = record;
    if (!newer) return;
  }
  if (!durable) folder_.add_unsynced(found);
}

// What was durable is never removed, but without its header nobody knows whose it is.
void FilesTier::set_aside(const std::string& file, const Error& error) {
  const std::string damaged = path() + "/damaged";
  make_folder(damaged);
  rename_file(file, damaged + '/' + std::filesystem::path(file).filename().string());
  count_error();
  base::log(base::Level::error, "a damaged file was set aside", {{"path", file}, {"why", error.what()}});
}

std::optional<Record> FilesTier::record_of(std::string_view key) {
  std::lock_guard lock(mutex_);
  const auto at = index_.find(key);
  if (at == index_.end()) return std::nullopt;
  return at->second;
}

void FilesTier::do_put(std::span<const TierWrite> writes, bool sync) {
  Room::Change change;
  std::vector<std::optional<Record>> replaced;
  for (const TierWrite& write : writes) {
    replaced.push_back(record_of(write.key));
    change.objects_new += 1;
    change.bytes_new += write.data.size();
    if (!replaced.back()) continue;
    change.objects_replaced += 1;
    change.bytes_replaced += replaced.back()->data_bytes;
    sync = sync || folder_.is_durable(replaced.back()->file);
  }
  Room room(*this, change);
  PendingFiles files(folder_);
  folder_.write(writes, sync, true, files);
  folder_.publish(files, sync);
  {
    std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < writes.size(); ++i) {
      const auto& item = files.items()[i];
      index_.insert_or_assign(std::string(writes[i].key), Record{item.file, writes[i].data.size(), item.checksum});
    }
  }
  files.keep();
  room.commit();
  for (std::size_t i = 0; i < writes.size(); ++i)
    if (replaced[i]) folder_.remove(writes[i].key, replaced[i]->file, false);
}

std::optional<TierEntry> FilesTier::do_find(std::string_view key) {
  const auto record = record_of(key);
  if (!record) return std::nullopt;
  ObjectHeader header = folder_.codec().read(folder_.path_of(key, record->file), {});
  return TierEntry{std::move(header.key), header.data_bytes, header.checksum, std::move(header.metadata)};
}

// For scans, which meet objects that are being replaced or erased; empty for one that was erased.
std::optional<TierEntry> FilesTier::entry_of(const std::string& key, Record record) {
  for (;;) {
    const std::string file = folder_.path_of(key, record.file);
    try {
      ObjectHeader header = folder_.codec().read(file, {});
      return TierEntry{std::move(header.key), header.data_bytes, header.checksum, std::move(header.metadata)};
    } catch (const Error&) {
      if (exists(file)) throw;
    }
    const auto again = record_of(key);
    if (!again || again->file.number == record.file.number) return std::nullopt;
    record = *again;
  }
}

void FilesTier::do_get(std::string_view key, std::span<std::byte> out) {
  const auto record = record_of(key);
  if (!record) throw Error(Errc::not_found, "there is no such object in " + path());
  const std::string file = folder_.path_of(key, record->file);
  folder_.codec().read(file, [&](const ObjectHeader& header) {
    if (header.key != key) throw Error(Errc::protocol, file + " is another object's file");
    if (header.data_bytes != out.size())
      throw Error(Errc::invalid_argument,
                  "the object has " + std::to_string(header.data_bytes) + " bytes, not " + std::to_string(out.size()));
    return out;
  });
}

bool FilesTier::do_erase(std::string_view key, bool sync) {
  const auto record = record_of(key);
  if (!record) {
    if (sync) folder_.sync_name(key);
    return false;
  }
  folder_.remove(key, record->file, sync);
  {
    std::lock_guard lock(mutex_);
    index_.erase(index_.find(key));
  }
  count_erased(record->data_bytes);
  return true;
}

void FilesTier::do_scan(std::string_view prefix, const std::function<bool(const TierEntry&)>& visit) {
  std::string last(prefix);
  bool first = true;
  for (;;) {
    std::vector<std::pair<std::string, Record>> step;
    {
      std::lock_guard lock(mutex_);
      auto at = first ? index_.lower_bound(last) : index_.upper_bound(last);
      for (; at != index_.end() && at->first.starts_with(prefix) && step.size() < files_per_scan_step; ++at)
        step.push_back(*at);
    }
    if (step.empty()) return;
    first = false;
    last = step.back().first;
    for (const auto& [key, record] : step) {
      const auto entry = entry_of(key, record);
      if (entry && !visit(*entry)) return;
    }
  }
}

void FilesTier::do_sync() {
  std::lock_guard one(sync_mutex_);
  const std::uint64_t watermark = folder_.sync();
  if (watermark <= folder_.watermark()) return;
  replace_file(watermark_path(), std::to_string(watermark) + "\n");
  folder_.set_watermark(watermark);
}

}  // namespace

std::unique_ptr<Tier> open_files_tier(const TierOptions& options) {
#ifdef PENSTOCK_HAVE_HDF5
  if (options.kind == "hdf5") return std::make_unique<FilesTier>(options, hdf5_codec());
#endif
  return std::make_unique<FilesTier>(options, raw_codec());
}

}  // namespace penstock::storage
