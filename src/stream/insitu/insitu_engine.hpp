// The stream engine "insitu": the direct engine, and arrays that are lent stay where they are. A step's end returns when nobody
// uses them any more. Readers in the writer's process may have a function called there (Reader::on_step).
// docs/internals/insitu-engine.md. src/engines names it to the public API.
#pragma once

#include <memory>
#include <string>

#include "stream/api/engine.hpp"

namespace penstock::stream {

std::unique_ptr<StepSink> create_insitu(const EngineContext& context, const std::string& name, Cohort& cohort,
                                        const StreamOptions& options);
std::unique_ptr<StepSource> open_insitu(const EngineContext& context, const std::string& name, Cohort& cohort,
                                        const StreamOptions& options);
// Finds streams of this engine whose rank 0 writes in this process; elsewhere they are read as those of engine direct.
std::unique_ptr<Finder> find_insitu(const EngineContext& context, const std::string& name,
                                    const StreamOptions& options);

}  // namespace penstock::stream
