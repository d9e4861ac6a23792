#include "storage/file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "storage/tier.hpp"

namespace penstock::storage {

void fail(std::string_view doing, const std::string& path, int error) {
  if (error == ENOSPC || error == EDQUOT)
    throw TierFull("no space left: cannot " + std::string(doing) + " " + path + " (" +
                   std::generic_category().message(error) + ")");
  throw Error(Errc::system,
              "cannot " + std::string(doing) + " " + path + ": " + std::generic_category().message(error));
}

File::File(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0600)), path_(path) {
  if (fd_ < 0) fail((flags & O_CREAT) != 0 ? "create" : "open", path, errno);
}

std::optional<File> File::open_if_there(const std::string& path, int flags) {
  File file;
  file.fd_ = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  file.path_ = path;
  if (file.fd_ >= 0) return file;
  if (errno == ENOENT) return std::nullopt;
  fail("open", path, errno);
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

std::uint64_t File::size() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail("look at", path_, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void File::write(std::string_view head, std::span<const std::byte> body) const {
  while (!head.empty() || !body.empty()) {
    const iovec parts[2] = {{const_cast<char*>(head.data()), head.size()},
                            {const_cast<std::byte*>(body.data()), body.size()}};
    const ssize_t count = ::writev(fd_, parts, 2);
    if (count < 0) {
      if (errno == EINTR) continue;
      fail("write", path_, errno);
    }
    const std::size_t of_head = std::min(head.size(), static_cast<std::size_t>(count));
    head.remove_prefix(of_head);
    body = body.subspan(static_cast<std::size_t>(count) - of_head);
  }
}

void File::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0) {
      if (errno == EINTR) continue;
      fail("write", path_, errno);
    }
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

std::size_t File::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (count == 0) break;
    if (count < 0) {
      if (errno == EINTR) continue;
      fail("read", path_, errno);
    }
    done += static_cast<std::size_t>(count);
  }
  return done;
}

void File::start_writing_back() const { ::sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WRITE); }

void File::sync_data() const {
  if (::fdatasync(fd_) != 0) fail("sync", path_, errno);
}

File lock_folder(const std::string& path) {
  File file(path + "/LOCK", O_RDWR | O_CREAT);
  if (::flock(file.fd(), LOCK_EX | LOCK_NB) == 0) return file;
  if (errno != EWOULDBLOCK) fail("lock", path, errno);
  throw Error(Errc::wrong_state, "the storage " + path + " is open already, here or in another process");
}

void make_folder(const std::string& path) {
  const auto absolute = std::filesystem::absolute(path).lexically_normal();
  auto folder = absolute;
  if (!folder.has_filename()) folder = folder.parent_path();  // a path may end in a slash
  if (std::filesystem::is_directory(folder)) return;
  const auto above = folder.parent_path();
  make_folder(above.string());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) fail("make the folder", folder.string(), errno);
  sync_folder(above.string());
}

void sync_folder(const std::string& path) {
  const File folder(path, O_RDONLY | O_DIRECTORY);
  if (::fsync(folder.fd()) != 0) fail("sync the folder", path, errno);
}

void rename_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail("rename to", to, errno);
}

bool remove_file(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return true;
  if (errno == ENOENT) return false;
  fail("remove", path, errno);
}

bool exists(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return true;
  if (errno == EACCES) fail("look at", path, errno);
  return false;
}

void replace_file(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".new";
  {
    const File file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    file.write(content, {});
    file.sync_data();
  }
  rename_file(temporary, path);
  sync_folder(std::filesystem::path(path).parent_path().string());
}

std::string read_small_file(const std::string& path) {
  const File file(path, O_RDONLY);
  const std::uint64_t size = file.size();
  if (size > (1 << 20)) throw Error(Errc::protocol, path + " is too large to be what it should");
  std::string content(size, '\0');
  content.resize(file.read_at(0, std::as_writable_bytes(std::span(content))));
  return content;
}

std::uint64_t free_bytes(const std::string& path) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) fail("look at", path, errno);
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

}  // namespace penstock::storage
