// Objects as files in 256 folders, by the first byte of their key's hash: writing, naming, syncing, recovery. What the
// tiers `files`, `hdf5` and `disk` share; they keep the index (which file is the key's).
//
// A file's name is [prefix-]HASH-NUMBER-s.obj: the key's XXH3 hash, the file's number (never used twice, so keys of one hash
// never meet; the header has the key itself), and s when its bytes were synced before it got the name, else u.
//
// Files are *pending* from their creation until their tier has its index entry. Files with u are *unsynced* until a sync()
// that begins after they are kept; those numbered up to the watermark are durable in any case. The tier stores the watermark.
//
// Several files that are published together are committed by a list of their names, `batch-NUMBER`, which is removed when
// all have their final names. Recovery finishes a list whose files are all there and undoes any other.
//
// Safe from any thread, apart from recover().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/folder_sync.hpp"
#include "storage/object_codec.hpp"
#include "storage/tier.hpp"

namespace penstock::storage {

struct ObjectFile {
  std::uint64_t number = 0;
  bool synced = false;
};

class ObjectFolder;

// Files that were written and have no index entry yet. Removed again unless kept.
class PendingFiles {
 public:
  struct Item {
    ObjectFile file;
    std::uint64_t checksum = 0;
    std::string temporary, path;  // temporary: "" when written under its final name
  };

  explicit PendingFiles(ObjectFolder& folder) : folder_(folder) {}
  PendingFiles(const PendingFiles&) = delete;
  PendingFiles& operator=(const PendingFiles&) = delete;
  ~PendingFiles();

  const std::vector<Item>& items() const { return items_; }
  void keep();

 private:
  friend class ObjectFolder;
  void undo() noexcept;

  ObjectFolder& folder_;
  std::vector<Item> items_;
  std::string list_path_;  // of the list of a batch, while there is one
  bool kept_ = false;
};

class ObjectFolder {
 public:
  // Makes the folders.
  ObjectFolder(std::string path, std::unique_ptr<ObjectCodec> codec);

  const ObjectCodec& codec() const { return *codec_; }
  std::string path_of(std::string_view key, ObjectFile file) const;

  struct Found {
    std::string path;
    std::uint64_t hash = 0;
    ObjectFile file;
  };
  // Once, before all else: finishes or undoes batches, removes what is temporary, calls `found` for each file there is.
  // Returns how many files it removed. `watermark`: as the tier stored it; `last`: the highest number that its index knows, which
  // is not given again even when that file is gone.
  std::uint64_t recover(std::uint64_t watermark, std::uint64_t last, const std::function<void(const Found&)>& found);

  // Writes one file for each, one write call each; when `sync` their bytes are durable on return, their names not. `aside`:
  // under temporary names. On throw nothing remains.
  void write(std::span<const TierWrite> writes, bool sync, bool aside, PendingFiles& out);
  // Gives files that were written aside their names, all or none, and syncs the names when `sync`.
  void publish(PendingFiles& files, bool sync);
  void sync_names(const PendingFiles& files);
  // What was removed of this key stays removed.
  void sync_name(std::string_view key);
  bool remove(std::string_view key, ObjectFile file, bool sync);

  bool is_durable(ObjectFile file) const;
  // Counts a file as unsynced that was there at open.
  void add_unsynced(const Found& found);
  // Makes unsynced files durable. Returns the watermark to store; the tier calls set_watermark when it has.
  std::uint64_t sync();
  void set_watermark(std::uint64_t number);
  std::uint64_t watermark() const;

 private:
  friend class PendingFiles;
  void write_one(const TierWrite& write, bool sync, bool aside, PendingFiles& out, std::vector<File>& to_sync);
  void write_list(PendingFiles& files, bool sync);
  std::uint64_t recover_batches();
  bool finish_batch(const std::string& list_path) const;
  void end_pending(const std::vector<PendingFiles::Item>& items, bool kept);

  const std::string path_;
  const std::unique_ptr<ObjectCodec> codec_;
  FolderSync folder_sync_;
  std::mutex sync_mutex_;     // one sync() at a time; taken before mutex_
  mutable std::mutex mutex_;  // guards what follows
  std::uint64_t next_number_ = 1;
  std::uint64_t watermark_ = 0;
  std::set<std::uint64_t> pending_;
  std::map<std::uint64_t, std::string> unsynced_;  // paths by number
  FolderSync::Folders unsynced_names_;             // where files were removed without a sync
};

// The number that a name's hash part is made of.
std::uint64_t hash_of(std::string_view key);

}  // namespace penstock::storage
