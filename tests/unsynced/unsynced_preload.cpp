// Storage that discards what was not synced: preloaded into a program, records which bytes and names below a folder were
// made durable and how to take the others back. After kill -9, roll_back.py turns the folder into what a machine that lost
// its power could have left.
//
//   PENSTOCK_UNSYNCED_ROOT      the folder that is watched
//   PENSTOCK_UNSYNCED_JOURNAL   a folder beside it (the same file system, outside the root), made when it is not there, where
//                               `journal`, `undo` and `kept` are written. It must not hold a journal: roll back first.
//
//   LD_PRELOAD=libunsynced_preload.so PENSTOCK_UNSYNCED_ROOT=/d/tier PENSTOCK_UNSYNCED_JOURNAL=/d/journal program
//   roll_back.py /d/tier /d/journal [--survive SEED]
//
// One process at a time writes below the root; what it forks must not. Data becomes durable by fsync and fdatasync of its file,
// a name (created, renamed, removed) only by fsync of its folder, the new one for a rename. sync_file_range makes nothing
// durable. Not followed: writes through stdio (the journal's F lines say for which files; they survive), links that are symbolic.
// A shared writable mapping of a watched file ends the program: it could not be told what reaches the disk.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>

#include "unsynced_journal.hpp"

using namespace unsynced;

namespace {

struct Handle {
  bool folder = false, synchronous = false;
  ino_t inode = 0;
  std::string name;  // of a folder, relative
};

constexpr int most_descriptors = 1 << 16;
std::atomic<Handle*> handles[most_descriptors];  // of watched files and folders; never freed, a thread may still look

Handle* handle_of(int fd) { return fd >= 0 && fd < most_descriptors ? handles[fd].load() : nullptr; }
void set_handle(int fd, Handle* handle) {
  if (fd >= 0 && fd < most_descriptors) handles[fd].store(handle);
}

ino_t inode_at(const std::string& path, bool* is_folder = nullptr) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) return 0;
  if (is_folder != nullptr) *is_folder = S_ISDIR(status.st_mode);
  return status.st_ino;
}

// Around a change of a file's bytes at the place that `offset_of` tells once nothing else changes.
template <class OffsetOf, class Action>
auto writing(int fd, off_t length, OffsetOf offset_of, Action action) {
  Journal* const journal = Journal::get();
  const Handle* const handle = journal != nullptr ? handle_of(fd) : nullptr;
  if (handle == nullptr || handle->folder) return action();
  std::lock_guard lock(journal->mutex);
  journal->record_write(handle->inode, fd, offset_of(), length);
  const auto result = action();
  if (handle->synchronous && result >= 0) {
    const KeepErrno keep;
    journal->record_synced(handle->inode, journal->op, size_of(fd));
  }
  return result;
}

off_t position(int fd) { return (fcntl(fd, F_GETFL) & O_APPEND) != 0 ? size_of(fd) : lseek(fd, 0, SEEK_CUR); }

off_t length_of(const iovec* parts, int count) {
  off_t length = 0;
  for (int i = 0; i < count; ++i) length += static_cast<off_t>(parts[i].iov_len);
  return length;
}

template <class Open>
int opening(int at, const char* path, int flags, Open open) {
  Journal* const journal = Journal::get();
  std::string name;
  if (journal == nullptr || !journal->locate(at, path, name)) {
    const int fd = open(flags);
    set_handle(fd, nullptr);
    return fd;
  }
  std::lock_guard lock(journal->mutex);
  journal->begin();
  const std::string full = journal->full(name);
  const ino_t before = inode_at(full);
  if (before == 0 && (flags & O_CREAT) != 0) journal->record("c %llu %s\n", ++journal->op, encoded(name).c_str());
  const int fd = open(flags & ~O_TRUNC);
  if (fd < 0) return fd;
  struct stat status;
  fstat(fd, &status);
  auto* const handle = new Handle{S_ISDIR(status.st_mode), (flags & O_DSYNC) != 0, status.st_ino, name};
  if (before == 0) {
    journal->record("C %llu %s %lu\n", ++journal->op, encoded(name).c_str(), status.st_ino);
    journal->durable_size[status.st_ino] = 0;
  } else if (!handle->folder) {
    journal->durable_size.try_emplace(status.st_ino, status.st_size);
    if ((flags & O_TRUNC) != 0 && status.st_size > 0) {
      journal->record_resize(status.st_ino, fd, 0);
      REAL(ftruncate);
      next(fd, 0);
    }
  }
  set_handle(fd, handle);
  return fd;
}

int renaming(int from_at, const char* from, int to_at, const char* to,
             int (*rename_them)(int, const char*, int, const char*)) {
  Journal* const journal = Journal::get();
  std::string from_name, to_name;
  if (journal == nullptr || !journal->locate(from_at, from, from_name) || !journal->locate(to_at, to, to_name))
    return rename_them(from_at, from, to_at, to);
  std::lock_guard lock(journal->mutex);
  journal->begin();
  const ino_t inode = inode_at(journal->full(from_name));
  bool folder = false;
  const ino_t victim = inode_at(journal->full(to_name), &folder);
  if (victim != 0 && !folder) journal->keep(to_name, victim);
  journal->record("R %llu %s %s %lu %lu\n", ++journal->op, encoded(from_name).c_str(), encoded(to_name).c_str(), inode,
                  folder ? 0 : victim);
  if (victim != 0 && !folder) journal->removed(to_name, victim);
  return rename_them(from_at, from, to_at, to);
}

template <class Remove>
int removing(int at, const char* path, bool folder, Remove remove_it) {
  Journal* const journal = Journal::get();
  std::string name;
  if (journal == nullptr || !journal->locate(at, path, name)) return remove_it();
  std::lock_guard lock(journal->mutex);
  journal->begin();
  const ino_t inode = inode_at(journal->full(name));
  if (inode == 0) return remove_it();
  if (!folder) {
    journal->keep(name, inode);
    journal->record("U %llu %s %lu\n", ++journal->op, encoded(name).c_str(), inode);
    journal->removed(name, inode);
    return remove_it();
  }
  const int result = remove_it();  // which fails for a folder that is not empty
  if (result == 0) journal->record("X %llu %s\n", ++journal->op, encoded(name).c_str());
  return result;
}

template <class Make>
int making(int at, const char* path, const char* letter, Make make) {
  Journal* const journal = Journal::get();
  std::string name;
  if (journal == nullptr || !journal->locate(at, path, name)) return make();
  std::lock_guard lock(journal->mutex);
  journal->begin();
  const int result = make();
  if (result != 0) return result;
  if (*letter == 'L')
    journal->record("L %llu %s %lu\n", ++journal->op, encoded(name).c_str(), inode_at(journal->full(name)));
  else journal->record("M %llu %s\n", ++journal->op, encoded(name).c_str());
  return result;
}

int syncing(int fd, int (*sync_it)(int)) {
  Journal* const journal = Journal::get();
  const Handle* const handle = journal != nullptr ? handle_of(fd) : nullptr;
  if (handle == nullptr) return sync_it(fd);
  Op upto = 0;
  off_t size = 0;
  {
    std::lock_guard lock(journal->mutex);
    upto = journal->op;
    size = size_of(fd);
  }
  const int result = sync_it(fd);
  if (result != 0) return result;
  std::lock_guard lock(journal->mutex);
  if (!handle->folder) {
    journal->record_synced(handle->inode, upto, size);
  } else {
    journal->record("D %llu %llu %s\n", ++journal->op, upto, encoded(handle->name).c_str());
    journal->folder_synced(handle->name, upto);
  }
  return result;
}

void syncing_all(Op upto) {
  Journal* const journal = Journal::get();
  std::lock_guard lock(journal->mutex);
  journal->begin();
  journal->record("A %llu %llu\n", ++journal->op, upto);
}

Op operations() {
  Journal* const journal = Journal::get();
  if (journal == nullptr) return 0;
  std::lock_guard lock(journal->mutex);
  return journal->op;
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

#define MODE(flags)                              \
  va_list arguments;                             \
  va_start(arguments, flags);                    \
  const mode_t mode = mode_of(flags, arguments); \
  va_end(arguments)

extern "C" {

int open(const char* path, int flags, ...) {
  MODE(flags);
  return opening(AT_FDCWD, path, flags, [&](int f) { return real_open(path, f, mode); });
}
int open64(const char* path, int flags, ...) {
  MODE(flags);
  return opening(AT_FDCWD, path, flags, [&](int f) { return real_open(path, f, mode); });
}
int __open_2(const char* path, int flags) {
  return opening(AT_FDCWD, path, flags, [&](int f) { return real_open(path, f); });
}
int __open64_2(const char* path, int flags) {
  return opening(AT_FDCWD, path, flags, [&](int f) { return real_open(path, f); });
}
int openat(int at, const char* path, int flags, ...) {
  MODE(flags);
  REAL(openat);
  return opening(at, path, flags, [&](int f) { return next(at, path, f, mode); });
}
int openat64(int at, const char* path, int flags, ...) {
  MODE(flags);
  REAL(openat);
  return opening(at, path, flags, [&](int f) { return next(at, path, f, mode); });
}
int creat(const char* path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int close(int fd) {
  REAL(close);
  set_handle(fd, nullptr);
  return next(fd);
}
int dup(int fd) {
  REAL(dup);
  const int copy = next(fd);
  set_handle(copy, handle_of(fd));
  return copy;
}
int dup2(int fd, int to) {
  REAL(dup2);
  const int copy = next(fd, to);
  if (copy >= 0) set_handle(copy, handle_of(fd));
  return copy;
}

// stdio writes without these functions; its files are only listed.
FILE* fopen(const char* path, const char* mode) {
  REAL(fopen);
  FILE* const file = next(path, mode);
  Journal* const journal = Journal::get();
  std::string name;
  if (file == nullptr || journal == nullptr || strpbrk(mode, "wa+") == nullptr ||
      !journal->locate(AT_FDCWD, path, name))
    return file;
  std::lock_guard lock(journal->mutex);
  journal->begin();
  journal->record("F %llu %s\n", ++journal->op, encoded(name).c_str());
  return file;
}
FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }
// Closes without close() what was opened with open() and given to fdopen: the descriptor's next user is another file.
int fclose(FILE* file) {
  REAL(fclose);
  if (file != nullptr) set_handle(fileno(file), nullptr);
  return next(file);
}
// The same of fdopendir, as recursive walks use it.
int closedir(DIR* folder) {
  REAL(closedir);
  set_handle(dirfd(folder), nullptr);
  return next(folder);
}

ssize_t write(int fd, const void* data, size_t size) {
  return writing(
      fd, static_cast<off_t>(size), [&] { return position(fd); }, [&] { return real_write(fd, data, size); });
}
ssize_t writev(int fd, const iovec* parts, int count) {
  REAL(writev);
  return writing(
      fd, length_of(parts, count), [&] { return position(fd); }, [&] { return next(fd, parts, count); });
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  REAL(pwrite);
  return writing(
      fd, static_cast<off_t>(size), [&] { return offset; }, [&] { return next(fd, data, size, offset); });
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) { return pwrite(fd, data, size, offset); }
ssize_t pwritev(int fd, const iovec* parts, int count, off_t offset) {
  REAL(pwritev);
  return writing(
      fd, length_of(parts, count), [&] { return offset; }, [&] { return next(fd, parts, count, offset); });
}
ssize_t pwritev64(int fd, const iovec* parts, int count, off64_t offset) { return pwritev(fd, parts, count, offset); }

int ftruncate(int fd, off_t size) noexcept {
  REAL(ftruncate);
  Journal* const journal = Journal::get();
  const Handle* const handle = journal != nullptr ? handle_of(fd) : nullptr;
  if (handle == nullptr) return next(fd, size);
  std::lock_guard lock(journal->mutex);
  journal->record_resize(handle->inode, fd, size);
  return next(fd, size);
}
int ftruncate64(int fd, off64_t size) noexcept { return ftruncate(fd, size); }
int truncate(const char* path, off_t size) noexcept {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const int result = ftruncate(fd, size), saved = errno;
  close(fd);
  errno = saved;
  return result;
}
int truncate64(const char* path, off64_t size) noexcept { return truncate(path, size); }

int fallocate(int fd, int mode, off_t offset, off_t length) {
  REAL(fallocate);
  if ((mode & ~FALLOC_FL_KEEP_SIZE) != 0)  // holes and zeros: as if they were written
    return writing(
        fd, length, [&] { return offset; }, [&] { return next(fd, mode, offset, length); });
  Journal* const journal = Journal::get();
  const Handle* const handle = journal != nullptr ? handle_of(fd) : nullptr;
  if (handle == nullptr || mode != 0 || offset + length <= size_of(fd)) return next(fd, mode, offset, length);
  std::lock_guard lock(journal->mutex);
  journal->record("T %llu %lu %ld %ld 0 0\n", ++journal->op, handle->inode, offset + length, size_of(fd));
  return next(fd, mode, offset, length);
}
int fallocate64(int fd, int mode, off64_t offset, off64_t length) { return fallocate(fd, mode, offset, length); }
int posix_fallocate(int fd, off_t offset, off_t length) { return fallocate(fd, 0, offset, length) == 0 ? 0 : errno; }
int posix_fallocate64(int fd, off64_t offset, off64_t length) { return posix_fallocate(fd, offset, length); }

int fsync(int fd) {
  REAL(fsync);
  return syncing(fd, next);
}
int fdatasync(int fd) {
  REAL(fdatasync);
  return syncing(fd, next);
}
void sync(void) noexcept {
  REAL(sync);
  const Op upto = operations();
  next();
  if (Journal::get() != nullptr) syncing_all(upto);
}
int syncfs(int fd) noexcept {
  REAL(syncfs);
  const Op upto = operations();
  const int result = next(fd);
  if (result == 0 && handle_of(fd) != nullptr) syncing_all(upto);
  return result;
}

int rename(const char* from, const char* to) noexcept {
  return renaming(AT_FDCWD, from, AT_FDCWD, to, [](int, const char* a, int, const char* b) {
    REAL(rename);
    return next(a, b);
  });
}
int renameat(int from_at, const char* from, int to_at, const char* to) noexcept {
  return renaming(from_at, from, to_at, to, [](int at, const char* a, int bt, const char* b) {
    REAL(renameat);
    return next(at, a, bt, b);
  });
}
int unlink(const char* path) noexcept {
  REAL(unlink);
  return removing(AT_FDCWD, path, false, [&] { return next(path); });
}
int unlinkat(int at, const char* path, int flags) noexcept {
  REAL(unlinkat);
  return removing(at, path, (flags & AT_REMOVEDIR) != 0, [&] { return next(at, path, flags); });
}
int rmdir(const char* path) noexcept {
  REAL(rmdir);
  return removing(AT_FDCWD, path, true, [&] { return next(path); });
}
int remove(const char* path) noexcept {
  bool folder = false;
  inode_at(path, &folder);
  return folder ? rmdir(path) : unlink(path);
}
int mkdir(const char* path, mode_t mode) noexcept {
  REAL(mkdir);
  return making(AT_FDCWD, path, "M", [&] { return next(path, mode); });
}
int mkdirat(int at, const char* path, mode_t mode) noexcept {
  REAL(mkdirat);
  return making(at, path, "M", [&] { return next(at, path, mode); });
}
int link(const char* from, const char* to) noexcept {
  REAL(link);
  return making(AT_FDCWD, to, "L", [&] { return next(from, to); });
}

void* mmap(void* address, size_t length, int protection, int flags, int fd, off_t offset) noexcept {
  REAL(mmap);
  const Handle* const handle = (flags & MAP_ANONYMOUS) == 0 ? handle_of(fd) : nullptr;
  if (handle != nullptr && (protection & PROT_WRITE) != 0 && (flags & MAP_TYPE) != MAP_PRIVATE)
    give_up("a watched file is mapped for writing", handle->name.c_str());
  return next(address, length, protection, flags, fd, offset);
}
void* mmap64(void* address, size_t length, int protection, int flags, int fd, off64_t offset) noexcept {
  return mmap(address, length, protection, flags, fd, offset);
}

}  // extern "C"
