#include "storage/object_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>

#include "base/log.hpp"

namespace penstock::storage {

namespace {

constexpr std::size_t most_open_files = 64;  // of one put that are written back together
constexpr std::string_view temporary_prefix = ".tmp-", list_prefix = "batch-";

std::string hex(std::uint64_t value) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) out[static_cast<std::size_t>(i)] = digits[value & 15];
  return out;
}

std::optional<std::uint64_t> from_hex16(std::string_view text) {
  std::uint64_t value = 0;
  const auto end = text.data() + text.size();
  if (text.size() != 16 || std::from_chars(text.data(), end, value, 16).ptr != end) return std::nullopt;
  return value;
}

// [prefix-]HASH-NUMBER-[su] before the suffix.
std::optional<ObjectFolder::Found> parse_name(std::string_view name, std::string_view suffix) {
  constexpr std::size_t tail = 16 + 1 + 16 + 2;
  if (!name.ends_with(suffix)) return std::nullopt;
  name.remove_suffix(suffix.size());
  if (name.size() < tail) return std::nullopt;
  if (name.size() > tail && name[name.size() - tail - 1] != '-') return std::nullopt;
  name = name.substr(name.size() - tail);
  const auto hash = from_hex16(name.substr(0, 16)), number = from_hex16(name.substr(17, 16));
  const char state = name.back();
  if (!hash || !number || name[16] != '-' || name[33] != '-' || (state != 's' && state != 'u')) return std::nullopt;
  return ObjectFolder::Found{{}, *hash, {*number, state == 's'}};
}

unsigned folder_number(std::uint64_t hash) { return static_cast<unsigned>(hash >> 56); }

// The folder, 00 to ff, that a path's file is in.
unsigned folder_number(const std::string& path) {
  const auto name = std::filesystem::path(path).parent_path().filename().string();
  return static_cast<unsigned>(std::stoul(name, nullptr, 16));
}

std::string checksum_text(std::string_view text) { return hex(checksum(std::as_bytes(std::span(text)))); }

}  // namespace

std::uint64_t hash_of(std::string_view key) { return checksum(std::as_bytes(std::span(key))); }

PendingFiles::~PendingFiles() {
  if (!kept_) undo();
}

// Final names go first, then the list, then the temporary ones: recovery that comes in between finds a list with temporary
// files of which some are missing, and goes on undoing.
void PendingFiles::undo() noexcept {
  try {
    for (const Item& item : items_)
      if (!list_path_.empty() || item.temporary.empty() || !exists(item.temporary)) remove_file(item.path);
    if (!list_path_.empty()) remove_file(list_path_);
    for (const Item& item : items_)
      if (!item.temporary.empty()) remove_file(item.temporary);
  } catch (const Error& error) {
    base::log(base::Level::warn, "files of a failed put stay until the tier is opened again", {{"why", error.what()}});
  }
  folder_.end_pending(items_, false);
}

void PendingFiles::keep() {
  folder_.end_pending(items_, true);
  kept_ = true;
}

ObjectFolder::ObjectFolder(std::string path, std::unique_ptr<ObjectCodec> codec)
    : path_(std::move(path)), codec_(std::move(codec)), folder_sync_(path_) {
  make_folder(path_);
  bool made = false;
  for (unsigned folder = 0; folder < FolderSync::folder_count; ++folder) {
    const std::string name = folder_sync_.folder_path(folder);
    if (::mkdir(name.c_str(), 0700) == 0) made = true;
    else if (errno != EEXIST) fail("make the folder", name, errno);
  }
  if (made) sync_folder(path_);
}

std::string ObjectFolder::path_of(std::string_view key, ObjectFile file) const {
  const std::uint64_t hash = hash_of(key);
  std::string prefix = codec_->name_prefix(key);
  if (!prefix.empty()) prefix += '-';
  return folder_sync_.folder_path(folder_number(hash)) + '/' + prefix + hex(hash) + '-' + hex(file.number) +
         (file.synced ? "-s" : "-u") + std::string(codec_->suffix());
}

std::uint64_t ObjectFolder::recover(std::uint64_t watermark, std::uint64_t last,
                                    const std::function<void(const Found&)>& found) {
  watermark_ = watermark;
  std::uint64_t removed = recover_batches();
  last = std::max(last, watermark);
  FolderSync::Folders to_sync;
  for (unsigned folder = 0; folder < FolderSync::folder_count; ++folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_sync_.folder_path(folder))) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(temporary_prefix)) {
        removed += remove_file(entry.path().string()) ? 1 : 0;
        continue;
      }
      auto file = parse_name(name, codec_->suffix());
      if (!file) continue;  // not ours
      file->path = entry.path().string();
      last = std::max(last, file->file.number);
      if (file->file.synced && file->file.number > watermark) to_sync.set(folder);
      found(*file);
    }
  }
  // Whoever made these files may have ended before their names were durable; from now on they count as that.
  if (to_sync.any()) folder_sync_.sync(to_sync);
  next_number_ = last + 1;
  return removed;
}

std::uint64_t ObjectFolder::recover_batches() {
  std::uint64_t removed = 0;
  std::vector<std::string> lists;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    if (entry.is_regular_file() && entry.path().filename().string().starts_with(list_prefix))
      lists.push_back(entry.path().string());
  for (const std::string& list : lists)
    if (!list.ends_with(".new") && !finish_batch(list)) ++removed;
  // A list goes when what it asks for is durable.
  if (!lists.empty()) folder_sync_.sync(FolderSync::Folders().set());
  for (const std::string& list : lists) remove_file(list);
  return removed;
}

// False when it was undone.
bool ObjectFolder::finish_batch(const std::string& list_path) const {
  const std::string text = read_small_file(list_path);
  const std::size_t end = text.rfind("end ");
  if (end == std::string::npos || text.substr(end + 4) != checksum_text(text.substr(0, end)) + "\n") return true;
  std::vector<std::pair<std::string, std::string>> files;
  bool unfinished = false, whole = true;
  for (std::size_t at = 0; at < end;) {
    const std::size_t tab = text.find('\t', at), line_end = text.find('\n', at);
    files.emplace_back(path_ + '/' + text.substr(at, tab - at), path_ + '/' + text.substr(tab + 1, line_end - tab - 1));
    const auto& [temporary, path] = files.back();
    if (exists(temporary)) unfinished = true;
    else if (!exists(path)) whole = false;
    at = line_end + 1;
  }
  if (!unfinished) return true;  // the list outlived its use; its files may have been erased since
  if (!whole) {
    for (const auto& [temporary, path] : files) remove_file(path);
    for (const auto& [temporary, path] : files) remove_file(temporary);
    return false;
  }
  for (const auto& [temporary, path] : files)
    if (exists(temporary)) rename_file(temporary, path);
  return true;
}

void ObjectFolder::write(std::span<const TierWrite> writes, bool sync, bool aside, PendingFiles& out) {
  std::vector<File> to_sync;
  for (const TierWrite& write : writes) {
    write_one(write, sync, aside, out, to_sync);
    if (to_sync.size() < most_open_files && &write != &writes.back()) continue;
    for (const File& file : to_sync) file.sync_data();
    to_sync.clear();
  }
}

void ObjectFolder::write_one(const TierWrite& write, bool sync, bool aside, PendingFiles& out,
                             std::vector<File>& to_sync) {
  ObjectHeader header;
  {
    std::lock_guard lock(mutex_);
    header.number = next_number_++;
    pending_.insert(header.number);
  }
  header.synced = sync;
  header.data_bytes = write.data.size();
  header.checksum = write.checksum ? *write.checksum : checksum(write.data);
  header.key = write.key;
  header.metadata = write.metadata;
  PendingFiles::Item& item = out.items_.emplace_back();
  item.file = {header.number, sync};
  item.checksum = header.checksum;
  item.path = path_of(write.key, item.file);
  if (aside)
    item.temporary = folder_sync_.folder_path(folder_number(hash_of(write.key))) + '/' + std::string(temporary_prefix) +
                     hex(header.number);
  File file(aside ? item.temporary : item.path, O_WRONLY | O_CREAT | O_EXCL);
  codec_->write(file, header, write.data);
  if (!sync) return;
  file.start_writing_back();
  to_sync.push_back(std::move(file));
}

void ObjectFolder::publish(PendingFiles& files, bool sync) {
  if (files.items_.size() > 1) write_list(files, sync);
  for (const auto& item : files.items_) rename_file(item.temporary, item.path);
  if (sync) sync_names(files);
  if (files.list_path_.empty()) return;
  remove_file(files.list_path_);
  files.list_path_.clear();
}

void ObjectFolder::write_list(PendingFiles& files, bool sync) {
  const auto relative = [&](const std::string& path) { return path.substr(path_.size() + 1); };
  std::string text;
  for (const auto& item : files.items_) text += relative(item.temporary) + '\t' + relative(item.path) + '\n';
  text += "end " + checksum_text(text) + '\n';
  const std::string path = path_ + '/' + std::string(list_prefix) + hex(files.items_.front().file.number);
  const std::string temporary = path + ".new";
  try {
    const File file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    file.write(text, {});
    if (sync) {  // the list must not be durable before the files' temporary names are
      sync_names(files);
      file.sync_data();
    }
    rename_file(temporary, path);
  } catch (const Error&) {
    remove_file(temporary);
    throw;
  }
  files.list_path_ = path;
  if (sync) sync_folder(path_);
}

void ObjectFolder::sync_names(const PendingFiles& files) {
  FolderSync::Folders folders;
  for (const auto& item : files.items_) folders.set(folder_number(item.path));
  if (folders.any()) folder_sync_.sync(folders);
}

void ObjectFolder::sync_name(std::string_view key) {
  folder_sync_.sync(FolderSync::Folders().set(folder_number(hash_of(key))));
}

bool ObjectFolder::remove(std::string_view key, ObjectFile file, bool sync) {
  const bool removed = remove_file(path_of(key, file));
  const unsigned folder = folder_number(hash_of(key));
  {
    std::lock_guard lock(mutex_);
    unsynced_.erase(file.number);
    if (removed && !sync) unsynced_names_.set(folder);
  }
  if (sync) folder_sync_.sync(FolderSync::Folders().set(folder));
  return removed;
}

void ObjectFolder::end_pending(const std::vector<PendingFiles::Item>& items, bool kept) {
  std::lock_guard lock(mutex_);
  for (const auto& item : items) {
    pending_.erase(item.file.number);
    if (kept && !item.file.synced) unsynced_.emplace(item.file.number, item.path);
  }
}

bool ObjectFolder::is_durable(ObjectFile file) const {
  std::lock_guard lock(mutex_);
  return file.synced || file.number <= watermark_;
}

void ObjectFolder::add_unsynced(const Found& found) {
  std::lock_guard lock(mutex_);
  unsynced_.emplace(found.file.number, found.path);
}

std::uint64_t ObjectFolder::sync() {
  std::lock_guard one(sync_mutex_);
  std::map<std::uint64_t, std::string> unsynced;
  FolderSync::Folders folders;
  std::uint64_t watermark = 0;
  {
    std::lock_guard lock(mutex_);
    unsynced.swap(unsynced_);
    std::swap(folders, unsynced_names_);
    watermark = (pending_.empty() ? next_number_ : *pending_.begin()) - 1;
  }
  try {
    for (const auto& [number, path] : unsynced) {
      const auto file = File::open_if_there(path, O_RDONLY);  // it may have been erased
      if (!file) continue;
      file->sync_data();
      folders.set(folder_number(path));
    }
    if (folders.any()) folder_sync_.sync(folders);
  } catch (const Error&) {
    std::lock_guard lock(mutex_);
    unsynced_.merge(unsynced);
    unsynced_names_ |= folders;
    throw;
  }
  return watermark;
}

void ObjectFolder::set_watermark(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  watermark_ = std::max(watermark_, number);
}

std::uint64_t ObjectFolder::watermark() const {
  std::lock_guard lock(mutex_);
  return watermark_;
}

}  // namespace penstock::storage
