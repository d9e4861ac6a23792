// The journal of unsynced_preload, and the system's functions as they are called beside those that the library replaces.
//
// `journal` has a line for each operation, in the order in which they took place; names are relative and percent-encoded:
//   c OP NAME; C OP NAME INODE      a file about to be created; created      L OP NAME INODE   a further link
//   R OP FROM TO INODE VICTIM       renamed, VICTIM (0: none) replaced       U OP NAME INODE   removed
//   M OP NAME, X OP NAME            folder made, removed                     D OP UPTO NAME    folder synced
//   W OP INODE OFFSET LENGTH SIZE UNDO UNDO_LENGTH    about to be written; SIZE before; bytes to be restored at OFFSET
//   T OP INODE NEW_SIZE SIZE UNDO UNDO_LENGTH         about to be truncated or grown; bytes to be restored at NEW_SIZE
//   S OP UPTO INODE                 synced: operations up to UPTO are durable       A OP UPTO   sync or syncfs
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <sys/types.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

// Hidden: a function that a preloaded library exports replaces the program's own of that name.
#pragma GCC visibility push(hidden)

namespace unsynced {

using Op = unsigned long long;

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}
#define REAL(name) static const auto next = real<decltype(&name)>(#name)

int real_open(const char* path, int flags, mode_t mode = 0600);
ssize_t real_write(int fd, const void* data, size_t size);

[[noreturn]] void give_up(const char* why, const char* what);

// What is done on the side leaves errno alone.
struct KeepErrno {
  const int saved = errno;
  ~KeepErrno() { errno = saved; }
};

class Journal {
 public:
  // Null when nothing is watched.
  static Journal* get();

  std::mutex mutex;  // held from the record of a change until the change is made
  Op op = 0;
  std::map<ino_t, off_t> durable_size;

  // The path below the root ("" for the root itself); false when it is not below it.
  bool locate(int at, const char* path, std::string& relative) const;
  std::string full(const std::string& relative) const { return relative.empty() ? root_ : root_ + "/" + relative; }

  // Before the first record: programs on the way to the one that is meant (shells) never come here.
  void begin();
  void record(const char* format, ...) __attribute__((format(printf, 2, 3)));
  void record_write(ino_t inode, int fd, off_t offset, off_t length);
  void record_resize(ino_t inode, int fd, off_t new_size);
  void record_synced(ino_t inode, Op upto, off_t size);

  // A second link, so that a removed file can come back.
  void keep(const std::string& relative, ino_t inode) const;
  void removed(const std::string& relative, ino_t inode);
  void folder_synced(const std::string& folder, Op upto);

 private:
  struct Removal {
    Op op;
    ino_t inode;
  };
  static Journal* make();
  // Appends bytes [begin, end) of an open file to `undo`; says where they are.
  off_t save(int fd, off_t begin, off_t end);

  std::string root_, folder_, kept_;
  int journal_ = -1, undo_ = -1;
  off_t undo_size_ = 0;
  std::map<std::string, std::vector<Removal>> removals_;  // by folder: kept until that is synced
};

std::string encoded(const std::string& name);
off_t size_of(int fd);

}  // namespace unsynced

#pragma GCC visibility pop
