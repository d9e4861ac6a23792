// The stream engine "file": a stream is a folder of HDF5 files, which outlives the programs. src/engines names it to the public API.
#pragma once

#include <memory>
#include <string>

#include "stream/api/engine.hpp"

namespace penstock::stream {

std::unique_ptr<StepSink> create_file(const EngineContext& context, const std::string& name, Cohort& cohort,
                                      const StreamOptions& options);
std::unique_ptr<StepSource> open_file(const EngineContext& context, const std::string& name, Cohort& cohort,
                                      const StreamOptions& options);

}  // namespace penstock::stream
