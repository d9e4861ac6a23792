#include "base/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::base {
namespace {

constexpr std::array<std::string_view, 6> level_names{"trace", "debug", "info", "warn", "error", "off"};

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::trace: return spdlog::level::trace;
    case Level::debug: return spdlog::level::debug;
    case Level::info: return spdlog::level::info;
    case Level::warn: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
    case Level::off: break;
  }
  return spdlog::level::off;
}

struct Logging {
  Logging() : to_stderr("penstock", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    to_stderr.set_level(spdlog::level::trace);
    to_stderr.set_pattern("%Y-%m-%dT%H:%M:%S.%e penstock[%P] %l: %v");
    to_stderr.flush_on(spdlog::level::trace);
    const char* wanted = std::getenv("PENSTOCK_LOG");
    if (wanted == nullptr || *wanted == '\0') return;
    try {
      level = parse_level(wanted);
    } catch (const Error& error) {
      to_stderr.warn("PENSTOCK_LOG: {}", error.what());
    }
  }

  std::atomic<Level> level{Level::warn};
  std::mutex mutex;  // guards sink, and keeps its calls apart
  LogSink sink;
  spdlog::logger to_stderr;  // not in spdlog's registry, which belongs to the application
};

// Never destroyed: threads may log while the process ends.
Logging& logging() {
  static Logging* instance = new Logging;
  return *instance;
}

}  // namespace

std::string LogField::quoted(std::string_view value) {
  if (!value.empty() && value.find_first_of(" \t\r\n\"=") == std::string_view::npos) return std::string(value);
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out.push_back('\\');
    if (c == '\n') out.append("\\n");
    else out.push_back(c);
  }
  return out + "\"";
}

bool log_enabled(Level level) noexcept {
  return level != Level::off && level >= logging().level.load(std::memory_order_relaxed);
}

void log(Level level, std::string_view message, std::initializer_list<LogField> fields) noexcept {
  if (!log_enabled(level)) return;
  try {
    std::string line(message);
    for (const LogField& field : fields) line.append(" ").append(field.key()).append("=").append(field.value());
    Logging& logging_now = logging();
    std::lock_guard lock(logging_now.mutex);
    if (logging_now.sink) logging_now.sink(level, line);
    else logging_now.to_stderr.log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
  } catch (...) {
    // There is no better place to report that reporting failed.
  }
}

void set_log_level(Level level) noexcept { logging().level.store(level, std::memory_order_relaxed); }

Level parse_level(std::string_view word) {
  for (std::size_t i = 0; i < level_names.size(); ++i)
    if (trim(word) == level_names[i]) return static_cast<Level>(i);
  throw Error(Errc::invalid_argument, unknown_name("log level", word, level_names));
}

std::string_view name_of(Level level) { return level_names[static_cast<std::size_t>(level)]; }

void set_log_sink(LogSink sink) {
  Logging& logging_now = logging();
  std::lock_guard lock(logging_now.mutex);
  logging_now.sink = std::move(sink);
}

}  // namespace penstock::base
