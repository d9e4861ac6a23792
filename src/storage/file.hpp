// Files and folders by system calls, with errors that name the path. Functions and values; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace penstock::storage {

// Throws for errno: TierFull("no space left: cannot write PATH") when it says so, else Error(system).
[[noreturn]] void fail(std::string_view doing, const std::string& path, int error);

// An open file; closes it. Move-only.
class File {
 public:
  File() = default;
  // Flags of open(2); close-on-exec and owner-only when created. Throws what fail() does.
  File(const std::string& path, int flags);
  // Empty when there is no such file.
  static std::optional<File> open_if_there(const std::string& path, int flags);
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    return *this;
  }
  ~File();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  std::uint64_t size() const;
  // Both parts at the file's present position, in one call as far as the system takes them.
  void write(std::string_view head, std::span<const std::byte> body) const;
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) const;
  // Returns how many bytes there were, fewer only at the file's end.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> out) const;
  void start_writing_back() const;  // lets the kernel begin; waits for nothing
  void sync_data() const;

 private:
  int fd_ = -1;
  std::string path_;
};

// One opener at a time, of any process or of this one. Throws Error(wrong_state). Released with the File.
File lock_folder(const std::string& path);

// Makes the folder and those above it, durably. Throws.
void make_folder(const std::string& path);
void sync_folder(const std::string& path);
void rename_file(const std::string& from, const std::string& to);
// False when there was none.
bool remove_file(const std::string& path);
// Throws where the folder above may not be looked into.
bool exists(const std::string& path);
// Replaces a small file, whole or not at all, durably.
void replace_file(const std::string& path, std::string_view content);
// Throws when there is none, or when it is larger than a MiB.
std::string read_small_file(const std::string& path);
std::uint64_t free_bytes(const std::string& path);

}  // namespace penstock::storage
