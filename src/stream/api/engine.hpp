// Engines: where the steps of streams go and come from. An engine is chosen by name at run time; src/engines names all.
//
// An engine supplies two seams: a writer's sink (step_sink.hpp) and a reader's source (step_source.hpp). What defines, checks,
// copies, plans and decodes stands above them, once (step_builder.hpp, step_reader.hpp).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

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

// One engine: how each side of a stream is opened. Both are collective over the cohort, which need not outlive the call.
// inspect: what is known of a stream, as JSON, without joining it; null where a stream's registered writer is asked.
// locate: whether a name that a program opens says itself where a stream of this engine is, as a path does. Then it becomes the
// stream's name, and options have the place. Null where streams are found by their names alone.
struct EngineEntry {
  std::string_view name;  // a literal
  std::unique_ptr<StepSink> (*create)(const EngineContext&, const std::string& name, Cohort&, const StreamOptions&);
  std::unique_ptr<StepSource> (*open)(const EngineContext&, const std::string& name, Cohort&, const StreamOptions&);
  std::string (*inspect)(const EngineContext&, const std::string& name, const StreamOptions&, base::Deadline) = nullptr;
  bool (*locate)(std::string& name, StreamOptions& options) = nullptr;
};
// All engines. src/engines defines it, above the modules that make them; test programs of those define their own, or none.
[[gnu::weak]] std::span<const EngineEntry> engines();

}  // namespace penstock::stream
