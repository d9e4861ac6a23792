// What tests of several rooms share.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "penstock/error.hpp"

namespace penstock {

// Whether a sanitizer was built in: it takes memory and time of its own, and ends a process that crashes in its own way.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

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
