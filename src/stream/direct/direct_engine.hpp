// The stream engine "direct": blocks stay in the writers' own memory, where readers get them. src/engines names it to the public
// API.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "fabric/registration.hpp"
#include "stream/api/engine.hpp"

namespace penstock::stream {

std::unique_ptr<StepSink> create_direct(const EngineContext& context, const std::string& name, Cohort& cohort,
                                        const StreamOptions& options);
std::unique_ptr<StepSource> open_direct(const EngineContext& context, const std::string& name, Cohort& cohort,
                                        const StreamOptions& options);
std::unique_ptr<Finder> find_direct(const EngineContext& context, const std::string& name,
                                    const StreamOptions& options);

// The same for an engine whose streams register alike: only those are found whose registration is_here takes.
using IsHere = std::function<bool(const fabric::Registration&)>;
std::unique_ptr<Finder> find_registered(const EngineContext& context, const std::string& name, IsHere is_here);

}  // namespace penstock::stream
