// What tests of several modules share.
#pragma once

#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "penstock/error.hpp"

namespace penstock {

// Whether a sanitizer was built in: it takes memory and time of its own, and ends a process that crashes in its own way.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

// For what must happen, and does long before unless something is wrong.
inline constexpr Timeout patience(30'000);
inline base::Deadline soon() { return base::Deadline(Timeout(60'000)); }

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// A whole number from the environment, such as a seed; the other one when it is not set.
inline std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// The code of the Error that a call throws, and what it says; ok when it throws none.
template <class F>
std::pair<Errc, std::string> error_of(F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {Errc::ok, ""};
}
template <class F>
Errc code_of(F&& f) {
  return error_of(std::forward<F>(f)).first;
}

// While it lives nothing is logged: what goes wrong is meant to.
class SilentLog {
 public:
  SilentLog() {
    base::set_log_sink([](base::Level, std::string_view) {});
  }
  ~SilentLog() { base::set_log_sink({}); }
  SilentLog(const SilentLog&) = delete;
};

// A folder of a test's own, which goes with the object and with all that is in it.
class TestFolder {
 public:
  TestFolder() : path_((std::filesystem::temp_directory_path() / "penstock-test-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp " + path_);
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace penstock
