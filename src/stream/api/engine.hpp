// Engines: where the steps of streams go and come from. An engine is chosen by name at run time; src/engines names all.
//
// An engine supplies two seams: a writer's sink (step_sink.hpp) and a reader's source (step_source.hpp). What defines, checks,
// copies, plans and decodes stands above them, once (step_builder.hpp, step_reader.hpp).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "fabric/progress.hpp"
#include "penstock/cohort.hpp"
#include "penstock/options.hpp"
#include "stream/api/step_sink.hpp"
#include "stream/api/step_source.hpp"

namespace penstock::stream {

// What an engine needs of its context.
struct EngineContext {
  std::shared_ptr<fabric::Progress> progress;
  std::string directory;
  std::string listen;
  std::string config_file = {};  // "": none
};

// Looks for one stream where an engine keeps streams, as often as it is asked; never counts as a reader. One thread.
class Finder {
 public:
  struct Found {
    bool live = false;       // it is being written
    std::string where = {};  // "pool stage"
    std::string state = {};  // of one that is not live: "ended 2026-11-28 12:00:31"
    std::string pool = {};   // what the option must be, if anything
  };
  virtual ~Finder() = default;
  // Empty: it is not there now. What is in the way of knowing is not thrown, unless it needs a person: place() says it.
  virtual std::optional<Found> look(base::Deadline deadline) = 0;
  // Where it looks, and what is in the way: "registrations in /run/user/1000/penstock"; "": another finder says it.
  virtual std::string place() const = 0;
  // Of all streams there, as far as they can be listed.
  virtual std::vector<std::string> names(base::Deadline deadline) = 0;
  // The longest time between looks.
  virtual Timeout pause() const = 0;
};

// One engine: how each side of a stream is opened. Both are collective over the cohort, which need not outlive the call.
// inspect: what is known of a stream, as JSON, without joining it; null where a stream's registered writer is asked.
// locate: whether a name that a program opens says itself where a stream of this engine is, as a path does. Then it becomes the
// stream's name, and options have the place. Null where streams are found by their names alone.
// finder: looks for a stream of this name, for readers to whom nobody names the engine. Null: such a reader does not find it.
struct EngineEntry {
  std::string_view name;  // a literal
  std::unique_ptr<StepSink> (*create)(const EngineContext&, const std::string& name, Cohort&, const StreamOptions&);
  std::unique_ptr<StepSource> (*open)(const EngineContext&, const std::string& name, Cohort&, const StreamOptions&);
  std::string (*inspect)(const EngineContext&, const std::string& name, const StreamOptions&, base::Deadline) = nullptr;
  bool (*locate)(std::string& name, StreamOptions& options) = nullptr;
  std::unique_ptr<Finder> (*finder)(const EngineContext&, const std::string& name, const StreamOptions&) = nullptr;
};
// All engines; of several that have a stream a reader takes the first. src/engines defines it, above the modules that make them; test programs of those define their own, or none.
[[gnu::weak]] std::span<const EngineEntry> engines();

}  // namespace penstock::stream
