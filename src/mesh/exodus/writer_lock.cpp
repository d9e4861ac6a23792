#include "mesh/exodus/writer_lock.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/fork.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

// Behind the end of any file: some file systems let nobody read what is locked. How long the lock is says who has it.
constexpr std::int64_t lock_begin = std::int64_t{1} << 62;

struct flock write_lock(std::int64_t length) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = lock_begin;
  lock.l_len = length;
  return lock;
}

[[noreturn]] void refuse(const std::string& path, std::int64_t process) {
  throw Error(Errc::wrong_state, path + ": is being written by " +
                                     (process > 0 ? "process " + std::to_string(process) : "another process") +
                                     ": wait until it has closed the region, or take another name");
}

bool is_still(const storage::File& file) {
  struct stat mine {
  }, there{};
  return ::fstat(file.fd(), &mine) == 0 && ::stat(file.path().c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

// HDF5 locks its files by flock(), which NFS makes of the same locks: it would be refused its own file.
bool would_stop_hdf5(const storage::File& file) {
  struct statfs system {};
  return ::fstatfs(file.fd(), &system) == 0 && system.f_type == NFS_SUPER_MAGIC;
}

// Nothing where it cannot be opened: whoever writes it says why.
std::optional<storage::File> open_to_lock(const std::string& path, bool make) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0666);
  if (file < 0) return std::nullopt;
  ::close(file);
  return storage::File::open_if_there(path, O_RDWR);
}

}  // namespace

WriterLock::WriterLock(const std::string& path, bool is_there, bool hdf5) {
  const auto own = is_there ? path : path + ".writing", other = is_there ? path + ".writing" : path;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    auto file = open_to_lock(own, !is_there);
    if (!file) require_no_writer(own);  // somebody else's, perhaps
    if (!file || (hdf5 && would_stop_hdf5(*file))) break;
    auto lock = write_lock(std::int64_t{::getpid()} + 1);
    if (::fcntl(file->fd(), F_OFD_SETLK, &lock) != 0) {
      if (errno == EAGAIN || errno == EACCES) require_no_writer(own);
      else break;
      continue;  // it has gone meanwhile
    }
    if (!is_still(*file)) continue;  // it took its name before it was locked
    base::leave_to_parent(file->fd());
    file_ = std::move(*file);
    made_ = !is_there;
    break;
  }
  try {
    require_no_writer(other);
  } catch (const Error&) {
    remove_if_empty();
    throw;
  }
}

WriterLock::~WriterLock() { remove_if_empty(); }

void WriterLock::remove_if_empty() const {
  struct stat status {};
  const bool is_empty = made_ && ::fstat(file_.fd(), &status) == 0 && status.st_size == 0;
  if (is_empty && is_still(file_)) ::unlink(file_.path().c_str());
}

void require_no_writer(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0 && errno == EACCES)
    throw Error(Errc::system, path + ": may not be read, so that nobody can tell whether it is being written");
  if (file < 0) return;
  auto lock = write_lock(0);  // to the end
  const bool known = ::fcntl(file, F_OFD_GETLK, &lock) == 0;
  ::close(file);
  if (known && lock.l_type != F_UNLCK) refuse(path, lock.l_start == lock_begin ? lock.l_len - 1 : 0);
}

}  // namespace penstock::mesh
