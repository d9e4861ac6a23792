// What is to be safe before it is where it belongs: frames of bytes, numbered from 1 on, appended to files in a folder and read
// again, in order, when it is opened after a crash. Whoever has brought frames to where they belong, durably, releases them.
//
//   kill -9                          every frame whose append returned is there
//   the loss of what was not synced  every frame that was appended before a sync that returned; of later ones the first few
//
// Files are allocated ahead and used again, so that a sync has only data to write; a frame that does not fit has a file of its
// own, and where the disk has no space for a usual file there is a smaller one. A frame that could not be written is not
// there. After a sync that failed nothing is known of what was appended since the last that did not: failed() is true and
// everything throws until restart().
//
// Frames that lie behind a damaged one, or one that was never synced, are left out. That is told, and the file kept as
// `damaged-N` (the first four; nobody removes them).
//
// Safe from any thread. Errors: Error(system), TierFull.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "storage/file.hpp"
#include "storage/journal_frames.hpp"

namespace penstock::storage {

class Journal {
 public:
  using Number = std::uint64_t;
  // Where a frame's body lies until the frame is released.
  struct Place {
    std::shared_ptr<const File> file;
    JournalHead head;
    Number number = 0;
    std::uint64_t offset = 0, bytes = 0;  // of the frame; of its body
  };
  // Calls replay for every frame numbered above `released`, in order, up to the first that is not whole. Numbers go on behind
  // the last of them.
  Journal(std::string folder, std::uint64_t file_bytes, Number released,
          const std::function<void(Number, std::string_view)>& replay);

  // appended(place) is called before a later frame can be appended; it must not throw or call the journal.
  Number append(std::string_view body, const std::function<void(const Place&)>& appended);
  // The body of a frame that is durable and not released.
  static std::string read(const Place& place);
  // Every frame up to this one is durable. Concurrent calls share what can be shared.
  void sync(Number number);
  void sync() { sync(last()); }
  // Frames up to this one need not be kept.
  void release(Number number);

  Number synced();
  bool failed();
  // Every frame is released and there was no failure.
  void restart();
  Number last();
  // Of all its files. Bounded by what was appended and not released, and by three files more.
  std::uint64_t bytes();

 private:
  struct Segment {
    std::shared_ptr<File> file;
    JournalHead head;
    Number last = 0;                 // frame in it
    std::uint64_t at = 0, size = 0;  // bytes used, allocated
    bool reusable = false;           // filled by this object, and of the usual size
  };

  void recover(Number released, const std::function<void(Number, std::string_view)>& replay);
  void keep_damaged(const std::string& path) const;
  void start_segment(std::uint64_t least_bytes);
  void blot_out(const Segment& segment);
  void sync_file(const File& file);
  void throw_if_failed();

  const std::string folder_;
  const std::uint64_t file_bytes_;

  std::mutex append_mutex_;       // guards what follows, to sync_mutex_; taken before that
  std::deque<Segment> segments_;  // oldest first; frames are appended to the last one if open_
  bool open_ = false;
  std::vector<std::shared_ptr<File>> free_;
  Number last_ = 0;
  std::uint64_t files_used_ = 0;

  std::mutex file_sync_mutex_;  // one sync of a file at a time; taken after append_mutex_, before sync_mutex_
  std::mutex sync_mutex_;       // guards what follows
  std::condition_variable sync_ended_;
  bool syncing_ = false, failed_ = false;
  Number synced_ = 0;
};

}  // namespace penstock::storage
