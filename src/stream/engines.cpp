// Engines by name. Which there are is said in one place, above all of them: src/engines/engines.cpp.
#include <mutex>
#include <vector>

#include "base/text.hpp"
#include "penstock/error.hpp"
#include "stream/engine.hpp"

namespace penstock::stream {
namespace {

struct Table {
  std::mutex mutex;  // guards entries
  std::vector<EngineEntry> entries;
};

Table& table() {
  static Table all;
  return all;
}

EngineEntry engine_named(const std::string& name) {
  auto& all = table();
  std::lock_guard lock(all.mutex);
  std::vector<std::string_view> names;
  for (const auto& entry : all.entries) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  throw Error(Errc::unsupported, base::unknown_name("engine", name, names));
}

}  // namespace

void add_engine(const EngineEntry& engine) {
  auto& all = table();
  std::lock_guard lock(all.mutex);
  all.entries.push_back(engine);
}

std::unique_ptr<WriterEngine> create_writer(const EngineContext& context, const std::string& name,
                                            std::shared_ptr<Cohort> cohort, const StreamOptions& options) {
  return engine_named(options.engine).create(context, name, std::move(cohort), options);
}

std::unique_ptr<ReaderEngine> open_reader(const EngineContext& context, const std::string& name,
                                          std::shared_ptr<Cohort> cohort, const StreamOptions& options) {
  return engine_named(options.engine).open(context, name, std::move(cohort), options);
}

}  // namespace penstock::stream
