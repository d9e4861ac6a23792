#include "data_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::server {
namespace {

Error system_error(const std::string& what) { return Error(Errc::system, what + ": " + std::strerror(errno)); }

std::uint64_t random_id() {
  std::uint64_t id = 0;
  while (id == 0)
    if (::getrandom(&id, sizeof id, 0) != sizeof id && errno != EINTR) throw system_error("no random number");
  return id;
}

}  // namespace

DataFolder::DataFolder(const std::string& path) {
  if (path.empty()) {
    id_ = random_id();
    return;
  }
  std::error_code failed;
  const bool made = std::filesystem::create_directories(path, failed);
  if (failed) throw Error(Errc::system, "folder " + path + ": " + failed.message());
  if (made) std::filesystem::permissions(path, std::filesystem::perms::owner_all, failed);
  const std::string file = (std::filesystem::path(path) / "server-id").string();
  lock_ = memory::UniqueFd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock_.get() < 0) throw system_error(file);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) throw Error(Errc::wrong_state, "another server uses the folder " + path);
    throw system_error(file);
  }
  char text[32];
  const auto length = ::pread(lock_.get(), text, sizeof text, 0);
  if (length < 0) throw system_error(file);
  if (length > 0) {
    try {
      id_ = base::parse_integer(std::string_view(text, static_cast<std::size_t>(length)), 1, UINT64_MAX);
    } catch (const Error& error) {
      throw Error(Errc::protocol, file + ": " + error.what());
    }
    return;
  }
  id_ = random_id();
  const std::string line = std::to_string(id_) + "\n";
  if (::pwrite(lock_.get(), line.data(), line.size(), 0) != static_cast<ssize_t>(line.size()) ||
      ::fsync(lock_.get()) != 0)
    throw system_error(file);
  // The name must last as the data does.
  memory::UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || ::fsync(folder.get()) != 0) throw system_error(path);
}

}  // namespace penstock::server
