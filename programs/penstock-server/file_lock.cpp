#include "file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "penstock/error.hpp"

namespace penstock::server {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw Error(Errc::system, "cannot " + what + " " + path + ": " + std::strerror(errno));
}

}  // namespace

FileLock::FileLock(std::string path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
  if (!file_) fail("open", path_);
}

bool FileLock::try_exclusive() { return lock(LOCK_EX); }

bool FileLock::try_shared() { return lock(LOCK_SH); }

void FileLock::unlock() { ::flock(file_.get(), LOCK_UN); }

bool FileLock::lock(int operation) {
  while (::flock(file_.get(), operation | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) fail("lock", path_);
  }
  return true;
}

std::string FileLock::text() const {
  std::string text(std::size_t{16} << 10, '\0');
  const auto length = ::pread(file_.get(), text.data(), text.size(), 0);
  if (length < 0) fail("read", path_);
  text.resize(static_cast<std::size_t>(length));
  return text;
}

void FileLock::set_text(const std::string& text) {
  if (::ftruncate(file_.get(), 0) != 0 ||
      ::pwrite(file_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    fail("write", path_);
}

}  // namespace penstock::server
