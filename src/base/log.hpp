// Penstock's only way to say something: lines of a lower-case message and key=value fields.
//
//   base::log(Level::warn, "reader left without a word", {{"stream", name}, {"reader", 3}});
//
// By default warnings and errors go to stderr; $PENSTOCK_LOG or the configuration sets another level, and a program may
// take the lines itself. Safe from any thread. Logging never throws. Whoever first handles an error logs it, once.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

namespace penstock::base {

enum class Level { trace, debug, info, warn, error, off };

// One field; text with blanks or quotes in it is quoted.
class LogField {
 public:
  LogField(std::string_view key, std::string_view value) : key_(key), value_(quoted(value)) {}
  LogField(std::string_view key, const char* value) : LogField(key, std::string_view(value)) {}
  LogField(std::string_view key, const std::string& value) : LogField(key, std::string_view(value)) {}
  LogField(std::string_view key, bool value) : key_(key), value_(value ? "true" : "false") {}
  template <class T>
    requires(std::integral<T> || std::floating_point<T>)
  LogField(std::string_view key, T value) : key_(key), value_(std::to_string(value)) {}

  std::string_view key() const { return key_; }
  const std::string& value() const { return value_; }

 private:
  static std::string quoted(std::string_view value);
  std::string_view key_;
  std::string value_;
};

// Does nothing when the level is below the one in force; ask log_enabled first where the fields are costly to make.
void log(Level level, std::string_view message, std::initializer_list<LogField> fields = {}) noexcept;
bool log_enabled(Level level) noexcept;

void set_log_level(Level level) noexcept;
// Throws Error(invalid_argument) for a word that names no level.
Level parse_level(std::string_view word);
std::string_view name_of(Level level);

// Takes every line (message and fields, no time, no line end) instead of stderr; an empty function gives stderr back.
// Called by the thread that logs, one call at a time; it must not log itself.
using LogSink = std::function<void(Level, std::string_view line)>;
void set_log_sink(LogSink sink);

}  // namespace penstock::base
