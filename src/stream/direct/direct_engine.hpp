// The stream engine "direct": blocks stay in the writers' own memory, where readers get them. src/engines names it to the public
// API.
#pragma once

#include <memory>
#include <string>

#include "stream/api/engine.hpp"

namespace penstock::stream {

std::unique_ptr<StepSink> create_direct(const EngineContext& context, const std::string& name, Cohort& cohort,
                                        const StreamOptions& options);
std::unique_ptr<StepSource> open_direct(const EngineContext& context, const std::string& name, Cohort& cohort,
                                        const StreamOptions& options);

}  // namespace penstock::stream
