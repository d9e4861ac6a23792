#include "storage/spare_space.hpp"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>

#include "base/log.hpp"
#include "base/text.hpp"
#include "storage/file.hpp"

namespace penstock::storage {

namespace {

constexpr std::uint64_t left_free = 1 << 20;  // of a disk that is nearly full

std::string parent_folder(const std::string& path) { return std::filesystem::path(path).parent_path().string(); }

}  // namespace

bool SpareSpace::fits() const noexcept {
  try {
    std::error_code none;
    const auto held = std::filesystem::file_size(path_, none);
    return free_bytes(parent_folder(path_)) + (none ? 0 : held) >= bytes_;
  } catch (const std::exception&) {
    return false;
  }
}

bool SpareSpace::hold_all() noexcept {
  try {
    const File file(path_, O_RDWR | O_CREAT);
    return ::posix_fallocate(file.fd(), 0, static_cast<off_t>(bytes_)) == 0;
  } catch (const std::exception&) {
    return false;
  }
}

void SpareSpace::release() {
  const bool full = free_bytes(parent_folder(path_)) < bytes_;
  if (remove_file(path_) && full)
    base::log(base::Level::warn, "a disk is full: the space that was spared is used", {{"path", path_}});
}

void SpareSpace::hold() noexcept {
  try {
    const std::uint64_t free = free_bytes(parent_folder(path_));
    const File file(path_, O_RDWR | O_CREAT);
    const std::uint64_t held = file.size();
    const std::uint64_t wanted = std::min(bytes_, held + (free > left_free ? free - left_free : 0));
    if (wanted > held)
      if (const int error = ::posix_fallocate(file.fd(), 0, static_cast<off_t>(wanted)); error != 0)
        fail("write", path_, error);
    if (wanted < bytes_)
      base::log(base::Level::warn, "a disk is nearly full: too little could be spared",
                {{"path", path_}, {"spared", base::format_size(wanted)}, {"wanted", base::format_size(bytes_)}});
  } catch (const std::exception& error) {
    base::log(base::Level::warn, "no space could be spared", {{"path", path_}, {"why", error.what()}});
  }
}

}  // namespace penstock::storage
