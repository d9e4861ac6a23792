// The one place that knows which engines there are.
#include <array>

#include "base/text.hpp"
#include "penstock/error.hpp"
#include "stream/engine.hpp"

namespace penstock::stream {
namespace {

struct EngineEntry {
  std::string_view name;
  decltype(&create_direct_writer) create;
  decltype(&open_direct_reader) open;
};

constexpr std::array engines{
    EngineEntry{"direct", &create_direct_writer, &open_direct_reader},
};

const EngineEntry& engine_named(const std::string& name) {
  std::array<std::string_view, engines.size()> names;
  for (std::size_t i = 0; i < engines.size(); ++i) {
    if (engines[i].name == name) return engines[i];
    names[i] = engines[i].name;
  }
  throw Error(Errc::unsupported, base::unknown_name("engine", name, names));
}

}  // namespace

std::unique_ptr<WriterEngine> create_writer(const EngineContext& context, const std::string& name,
                                            std::shared_ptr<Cohort> cohort, const StreamOptions& options) {
  return engine_named(options.engine).create(context, name, std::move(cohort), options);
}

std::unique_ptr<ReaderEngine> open_reader(const EngineContext& context, const std::string& name,
                                          std::shared_ptr<Cohort> cohort, const StreamOptions& options) {
  return engine_named(options.engine).open(context, name, std::move(cohort), options);
}

}  // namespace penstock::stream
