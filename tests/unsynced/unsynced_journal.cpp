#include "unsynced_journal.hpp"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace unsynced {

namespace {

std::string parent_of(const std::string& relative) {
  const size_t slash = relative.rfind('/');
  return slash == std::string::npos ? "" : relative.substr(0, slash);
}

}  // namespace

int real_open(const char* path, int flags, mode_t mode) {
  REAL(open);
  return next(path, flags, mode);
}
ssize_t real_write(int fd, const void* data, size_t size) {
  REAL(write);
  return next(fd, data, size);
}

[[noreturn]] void give_up(const char* why, const char* what) {
  const std::string text = std::string("unsynced_preload: ") + why + ": " + what + "\n";
  real_write(2, text.data(), text.size());
  abort();
}

std::string encoded(const std::string& name) {
  std::string out;
  for (const unsigned char c : name) {
    char text[4] = {static_cast<char>(c), 0, 0, 0};
    if (c <= ' ' || c == '%' || c > '~') snprintf(text, sizeof text, "%%%02X", c);
    out += text;
  }
  return out.empty() ? "." : out;
}

off_t size_of(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 ? status.st_size : 0;
}

Journal* Journal::get() {
  const KeepErrno keep;
  static Journal* const journal = make();
  return journal;
}

Journal* Journal::make() {
  const char* root = getenv("PENSTOCK_UNSYNCED_ROOT");
  const char* journal = getenv("PENSTOCK_UNSYNCED_JOURNAL");
  if (root == nullptr || journal == nullptr || *root == '\0' || *journal == '\0') return nullptr;
  auto* made = new Journal;
  char buffer[PATH_MAX];
  REAL(mkdir);
  next(root, 0700);
  if (realpath(root, buffer) == nullptr) give_up("there is no such folder", root);
  made->root_ = buffer;
  made->folder_ = journal;
  return made;
}

void Journal::begin() {
  if (journal_ >= 0) return;
  REAL(mkdir);
  next(folder_.c_str(), 0700);
  char buffer[PATH_MAX];
  if (realpath(folder_.c_str(), buffer) == nullptr) give_up("there is no such folder", folder_.c_str());
  if ((std::string(buffer) + "/").rfind(root_ + "/", 0) == 0) give_up("the journal lies in what it watches", buffer);
  kept_ = std::string(buffer) + "/kept";
  next(kept_.c_str(), 0700);
  journal_ = real_open((std::string(buffer) + "/journal").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC);
  undo_ = real_open((std::string(buffer) + "/undo").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC);
  if (journal_ < 0 || undo_ < 0) give_up("there is a journal already; roll back first", buffer);
}

bool Journal::locate(int at, const char* path, std::string& relative) const {
  const KeepErrno keep;
  if (path == nullptr || *path == '\0') return false;
  std::string full = path;
  char buffer[PATH_MAX];
  if (full[0] != '/' && at != AT_FDCWD) {
    const ssize_t size = readlink(("/proc/self/fd/" + std::to_string(at)).c_str(), buffer, sizeof buffer);
    if (size <= 0) return false;
    full = std::string(buffer, static_cast<size_t>(size)) + "/" + full;
  }
  while (full.size() > 1 && full.back() == '/') full.pop_back();
  const size_t slash = full.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : slash == 0 ? "/" : full.substr(0, slash);
  const std::string last = slash == std::string::npos ? full : full.substr(slash + 1);
  std::string resolved;
  if (last == "." || last == "..") {
    if (realpath(full.c_str(), buffer) == nullptr) return false;
    resolved = buffer;
  } else {
    if (realpath(parent.c_str(), buffer) == nullptr) return false;
    resolved = std::string(buffer) + (buffer[1] != '\0' ? "/" : "") + last;
  }
  if (resolved == root_) return relative.clear(), true;
  if (resolved.rfind(root_ + "/", 0) != 0) return false;
  relative = resolved.substr(root_.size() + 1);
  return true;
}

void Journal::record(const char* format, ...) {
  char line[4 * PATH_MAX];
  va_list arguments;
  va_start(arguments, format);
  const int size = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (size < 0 || size >= static_cast<int>(sizeof line) ||
      real_write(journal_, line, static_cast<size_t>(size)) != size)
    give_up("cannot write the journal", strerror(errno));
}

off_t Journal::save(int fd, off_t begin, off_t end) {
  const off_t at = undo_size_;
  if (begin >= end) return at;
  const int in = real_open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC);
  if (in < 0) give_up("cannot read what is overwritten", strerror(errno));
  std::vector<char> chunk(1 << 20);
  while (begin < end) {
    const ssize_t size =
        pread(in, chunk.data(), std::min<size_t>(chunk.size(), static_cast<size_t>(end - begin)), begin);
    if (size <= 0 || real_write(undo_, chunk.data(), static_cast<size_t>(size)) != size)
      give_up("cannot save what is overwritten", strerror(errno));
    begin += size;
    undo_size_ += size;
  }
  REAL(close);
  next(in);
  return at;
}

void Journal::record_write(ino_t inode, int fd, off_t offset, off_t length) {
  const off_t size = size_of(fd), durable = std::min(size, durable_size[inode]);
  const off_t end = std::max(offset, std::min(offset + length, durable));
  const off_t undo = save(fd, offset, end);
  record("W %llu %lu %ld %ld %ld %ld %ld\n", ++op, inode, offset, length, size, undo, end - offset);
}

void Journal::record_resize(ino_t inode, int fd, off_t new_size) {
  const off_t size = size_of(fd), durable = std::min(size, durable_size[inode]);
  const off_t undo = save(fd, new_size, durable);
  record("T %llu %lu %ld %ld %ld %ld\n", ++op, inode, new_size, size, undo, std::max<off_t>(0, durable - new_size));
  // What was beyond is not durable any more in the sense of `save`: it is in the journal now.
  durable_size[inode] = std::min(durable, new_size);
}

void Journal::record_synced(ino_t inode, Op upto, off_t size) {
  record("S %llu %llu %lu\n", ++op, upto, inode);
  durable_size[inode] = size;
}

void Journal::keep(const std::string& relative, ino_t inode) const {
  REAL(link);
  if (next(full(relative).c_str(), (kept_ + "/" + std::to_string(inode)).c_str()) != 0 && errno != EEXIST)
    give_up("cannot keep a removed file; is the journal on the same file system?", strerror(errno));
}

void Journal::removed(const std::string& relative, ino_t inode) {
  removals_[parent_of(relative)].push_back({op, inode});
}

void Journal::folder_synced(const std::string& folder, Op upto) {
  REAL(unlink);
  auto& list = removals_[folder];
  const auto gone = std::partition(list.begin(), list.end(), [&](const Removal& r) { return r.op > upto; });
  for (auto at = gone; at != list.end(); ++at) next((kept_ + "/" + std::to_string(at->inode)).c_str());
  list.erase(gone, list.end());
}

}  // namespace unsynced
