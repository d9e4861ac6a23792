#include "storage/journal.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <utility>

#include "base/log.hpp"
#include "storage/tier.hpp"

namespace penstock::storage {

namespace {

constexpr std::string_view suffix = ".log";
constexpr std::size_t most_free_files = 2;
constexpr int most_damaged_files = 4;

std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

void write_at(const File& file, std::uint64_t offset, std::string_view head, std::string_view body) {
  while (!head.empty() || !body.empty()) {
    const iovec parts[2] = {{const_cast<char*>(head.data()), head.size()},
                            {const_cast<char*>(body.data()), body.size()}};
    const ssize_t count = ::pwritev(file.fd(), parts, 2, static_cast<off_t>(offset));
    if (count < 0) {
      if (errno == EINTR) continue;
      fail("write", file.path(), errno);
    }
    const auto written = static_cast<std::size_t>(count);
    const std::size_t of_head = std::min(head.size(), written);
    head.remove_prefix(of_head);
    body.remove_prefix(written - of_head);
    offset += written;
  }
}

std::string read_whole(const File& file) {
  std::string content(file.size(), '\0');
  content.resize(file.read_at(0, std::as_writable_bytes(std::span(content))));
  return content;
}

// Empty when there is no space for that many bytes.
std::shared_ptr<File> create(const std::string& path, std::uint64_t bytes) {
  auto file = std::make_shared<File>(path, O_RDWR | O_CREAT | O_EXCL);
  const int error = ::posix_fallocate(file->fd(), 0, static_cast<off_t>(bytes));
  if (error == 0) return file;
  remove_file(path);
  if (error == ENOSPC || error == EDQUOT) return nullptr;
  fail("write", path, error);
}

}  // namespace

Journal::Journal(std::string folder, std::uint64_t file_bytes, Number released,
                 const std::function<void(Number, std::string_view)>& replay)
    : folder_(std::move(folder)), file_bytes_(file_bytes) {
  make_folder(folder_);
  recover(released, replay);
}

// Files of which nothing was replayed go, before there are new ones: they may hold numbers that will be given again.
void Journal::recover(Number released, const std::function<void(Number, std::string_view)>& replay) {
  std::vector<Segment> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().extension() != suffix) continue;
    Segment segment;
    segment.file = std::make_shared<File>(entry.path().string(), O_RDONLY);
    std::string start(journal_head_bytes, '\0');
    start.resize(segment.file->read_at(0, std::as_writable_bytes(std::span(start))));
    segment.head = decode_journal_head(start).value_or(JournalHead());
    if (segment.head.file == 0 && start.find_first_not_of('\0') != std::string::npos)
      keep_damaged(entry.path().string());
    found.push_back(std::move(segment));
  }
  std::ranges::sort(found, {}, [](const Segment& segment) { return segment.head.file; });
  last_ = released;
  bool removed = false;
  for (auto& segment : found) {
    files_used_ = std::max(files_used_, segment.head.file);
    const std::string content = read_whole(*segment.file);
    FrameReader reader(content);
    bool damaged = false;
    while (const auto body = reader.next()) {
      if (reader.number() <= last_) continue;
      if (reader.number() != last_ + 1) {  // those before it are lost
        damaged = true;
        break;
      }
      replay(reader.number(), *body);
      segment.last = last_ = reader.number();
    }
    if (damaged || reader.is_before_frames_above(last_)) keep_damaged(segment.file->path());
    if (segment.last != 0) {
      segment.size = segment.file->size();
      segments_.push_back(std::move(segment));
    } else {
      remove_file(segment.file->path());
      removed = true;
    }
  }
  if (removed) sync_folder(folder_);
  synced_ = released;  // what was replayed may be in the system's memory only
  if (last_ > released) {
    for (const Segment& segment : segments_) segment.file->sync_data();
    synced_ = last_;
  }
}

// Under a second name: the first one goes with its frames, if it has any.
void Journal::keep_damaged(const std::string& path) const {
  if (std::filesystem::hard_link_count(path) > 1) return;  // it was found before
  std::string kept;
  for (int i = 1; i <= most_damaged_files && kept.empty(); ++i) {
    kept = folder_ + "/damaged-" + std::to_string(i);
    if (::link(path.c_str(), kept.c_str()) != 0) kept.clear();
  }
  base::log(base::Level::warn, "a journal's file is damaged, or its end was never synced: frames may be lost",
            {{"path", path}, {"kept", kept.empty() ? "no" : kept}});
}

// Takes append_mutex_ for granted. What is in the present file is made durable: syncs are of one file.
void Journal::start_segment(std::uint64_t least_bytes) {
  if (open_) {
    sync_file(*segments_.back().file);
    std::lock_guard lock(sync_mutex_);
    synced_ = std::max(synced_, last_);
  }
  Segment segment;
  segment.size = std::max(file_bytes_, least_bytes);
  segment.head = {++files_used_, last_ + 1, random_seed()};
  bool made = false;
  if (segment.size == file_bytes_ && !free_.empty()) {
    segment.file = free_.back();
    free_.pop_back();
  } else {
    const std::string path = folder_ + "/" + std::to_string(segment.head.file) + std::string(suffix);
    while (!(segment.file = create(path, segment.size))) {
      if (segment.size == least_bytes) fail("write", path, ENOSPC);
      segment.size = std::max(segment.size / 16, least_bytes);  // what makes space must be written, too
    }
    made = true;
  }
  segment.reusable = segment.size == file_bytes_;
  const auto head = encode_journal_head(segment.head);
  try {
    if (made) sync_folder(folder_);
    write_at(*segment.file, 0, head, {});
  } catch (const Error&) {
    remove_file(segment.file->path());
    throw;
  }
  segment.at = head.size();
  segments_.push_back(std::move(segment));
  open_ = true;
}

Journal::Number Journal::append(std::string_view body, const std::function<void(const Place&)>& appended) {
  std::lock_guard lock(append_mutex_);
  throw_if_failed();
  const std::uint64_t bytes = frame_head_bytes + body.size();
  if (!open_ || segments_.back().at + bytes > segments_.back().size) start_segment(journal_head_bytes + bytes);
  Segment& segment = segments_.back();
  try {
    write_at(*segment.file, segment.at, encode_frame_head(segment.head, last_ + 1, body), body);
  } catch (const Error&) {
    blot_out(segment);
    throw;
  }
  const Place place{segment.file, segment.head, last_ + 1, segment.at, body.size()};
  segment.at += bytes;
  segment.last = ++last_;
  appended(place);
  return last_;
}

std::string Journal::read(const Place& place) {
  std::string frame(frame_head_bytes + place.bytes, '\0');
  frame.resize(place.file->read_at(place.offset, std::as_writable_bytes(std::span(frame))));
  const auto body = std::string_view(frame).substr(std::min(frame.size(), frame_head_bytes));
  if (!frame.starts_with(encode_frame_head(place.head, place.number, body)))
    throw Error(Errc::system, "a frame of the journal " + place.file->path() + " is not what was written");
  return frame.substr(frame_head_bytes);
}

// A frame that was written in part is whole if what it lacks is zeros; then it would be taken for the next one, which has its
// number. Takes append_mutex_ for granted.
void Journal::blot_out(const Segment& segment) {
  try {
    write_at(*segment.file, segment.at, std::string(frame_head_bytes, '\0'), {});
  } catch (const Error&) {
    std::lock_guard lock(sync_mutex_);
    failed_ = true;  // nobody can tell what the file holds
  }
}

void Journal::sync(Number number) {
  std::unique_lock lock(sync_mutex_);
  sync_ended_.wait(lock, [&] { return !syncing_ || synced_ >= number || failed_; });
  if (synced_ >= number) return;
  if (failed_) {
    lock.unlock();
    throw_if_failed();
  }
  syncing_ = true;
  lock.unlock();
  Number upto = 0;
  std::shared_ptr<File> file;  // files before it are synced; empty: everything is
  {
    std::lock_guard appending(append_mutex_);
    upto = last_;
    if (open_) file = segments_.back().file;
  }
  const auto end = [&](bool done) {
    lock.lock();
    syncing_ = false;
    if (done) synced_ = std::max(synced_, upto);
    sync_ended_.notify_all();
    lock.unlock();
  };
  try {
    if (file) sync_file(*file);
  } catch (...) {
    end(false);
    throw;
  }
  end(true);
}

// The system tells of a failure once only, to one of two syncs at a time, and forgets what it could not write.
void Journal::sync_file(const File& file) {
  std::lock_guard one(file_sync_mutex_);
  throw_if_failed();
  try {
    file.sync_data();
  } catch (const Error& error) {
    {
      std::lock_guard lock(sync_mutex_);
      failed_ = true;
    }
    sync_ended_.notify_all();
    throw Error(Errc::system, error.what());  // also when the disk is full: the frames are there for now
  }
}

void Journal::throw_if_failed() {
  if (failed()) throw Error(Errc::system, "a sync of the journal " + folder_ + " has failed");
}

Journal::Number Journal::synced() {
  std::lock_guard lock(sync_mutex_);
  return synced_;
}

bool Journal::failed() {
  std::lock_guard lock(sync_mutex_);
  return failed_;
}

Journal::Number Journal::last() {
  std::lock_guard lock(append_mutex_);
  return last_;
}

std::uint64_t Journal::bytes() {
  std::lock_guard lock(append_mutex_);
  std::uint64_t bytes = free_.size() * file_bytes_;
  for (const Segment& segment : segments_) bytes += segment.size;
  return bytes;
}

void Journal::release(Number number) {
  std::vector<std::shared_ptr<File>> gone;
  {
    std::lock_guard lock(append_mutex_);
    while (segments_.size() > (open_ ? 1 : 0) && segments_.front().last <= number) {
      auto& segment = segments_.front();
      if (segment.reusable && free_.size() < most_free_files) free_.push_back(std::move(segment.file));
      else gone.push_back(std::move(segment.file));
      segments_.pop_front();
    }
  }
  for (const auto& file : gone) remove_file(file->path());
}

void Journal::restart() {
  {
    std::scoped_lock lock(append_mutex_, sync_mutex_);
    open_ = false;
    for (auto& segment : segments_) segment.reusable = false;  // a disk that failed once
    failed_ = false;
    synced_ = last_;
  }
  release(last());
}

}  // namespace penstock::storage
