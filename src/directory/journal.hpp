// The embedded directory on disk: one file, "directory.journal", in a folder of its own.
//
//   file    = "PSTKDIR1", salt (4 bytes, random per file), 4 zero bytes, then records
//   record  = salt (4), checksum (8, XXH3 of the rest), length of the body (4), durable (8), body
//   records = one `snapshot` (tree, revision, next lease, counts), its leases and entries, then changes in order
//
// append returns when its changes are on disk (fdatasync); only then may they be acknowledged. When the changes outgrow the
// snapshot, compact writes a new file with a fresh snapshot and renames it over the old one. `durable` says up to where the
// file was synced when the record was written: what is broken after that was never acknowledged, and is dropped; what is
// broken before it is damage, and is refused (Error(protocol)). All numbers are little-endian.
//
// Blocks; one thread at a time (the service's journal thread). Cost: one fdatasync for each append, however many changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "directory/state.hpp"
#include "memory/unique_fd.hpp"

namespace penstock::directory {

class DirectoryJournal {
 public:
  using Time = DirectoryState::Time;

  // Takes the folder (made if need be, mode 0700) for this process. synced: false leaves out every sync, so that what was
  // appended survives the process and not the machine. Throws Error: wrong_state (another process has it), system.
  explicit DirectoryJournal(std::string folder, bool synced = true);

  // What was there, or an empty tree of a new number; then compacts, so that nothing broken stays. Call it once, first.
  // Throws Error: protocol (damaged, or not a directory's journal; the file is left as it is), system.
  DirectoryState recover(DirectoryLimits limits, Time now);

  // All on disk, or Error(system): then it is unknown which of them a recovery would find, and compact must succeed before
  // the next append. A compact that fails for want of room leaves the old file as it is.
  void append(std::span<const DirectoryChange> changes);
  void compact(const DirectorySnapshot& snapshot);

  bool broken() const { return broken_; }
  // Changes have outgrown the snapshot.
  bool wants_compaction() const;
  std::uint64_t bytes() const { return end_; }
  const std::string& path() const { return path_; }

 private:
  std::string folder_;
  bool synced_;
  std::string path_;
  memory::UniqueFd lock_;
  memory::UniqueFd file_;
  std::uint32_t salt_ = 0;
  std::uint64_t end_ = 0;       // where the next record goes; everything before is synced
  std::uint64_t snapshot_ = 0;  // the snapshot's end
  bool broken_ = true;          // until recovered
};

// What DirectoryJournal::recover does with the file's bytes. Throws Error(protocol).
struct ReplayedJournal {
  std::unique_ptr<DirectoryState> state;
  std::uint64_t dropped_bytes = 0;
};
ReplayedJournal replay_journal(std::span<const std::byte> file, DirectoryLimits limits, DirectoryState::Time now);

// The bytes of a whole file, and of records to append to it at `durable`.
std::string encode_journal(const DirectorySnapshot& snapshot, std::uint32_t salt);
std::string encode_changes(std::span<const DirectoryChange> changes, std::uint32_t salt, std::uint64_t durable);

}  // namespace penstock::directory
