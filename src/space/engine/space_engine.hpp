// The stream engine "space": step N of a stream puts each global array as version N of the array "<stream>/<variable>", and a
// stream is read from there. An array that was put without a stream is read as a stream of one variable. src/engines names both to
// the public API; docs/internals/space.md says which promises of streams do not hold.
#pragma once

#include <memory>
#include <string>

#include "stream/api/engine.hpp"

namespace penstock::space {

std::unique_ptr<stream::StepSink> create_in_space(const stream::EngineContext& context, const std::string& name,
                                                  Cohort& cohort, const StreamOptions& options);
std::unique_ptr<stream::StepSource> open_in_space(const stream::EngineContext& context, const std::string& name,
                                                  Cohort& cohort, const StreamOptions& options);

// Looks for streams, not for arrays, in all pools that the directory knows, or in that of the options.
std::unique_ptr<stream::Finder> find_in_spaces(const stream::EngineContext& context, const std::string& name,
                                               const StreamOptions& options);
// What the records of the stream say of it, as JSON. Throws Error: not_found, timeout.
std::string inspect_in_space(const stream::EngineContext& context, const std::string& name,
                             const StreamOptions& options, base::Deadline deadline);

}  // namespace penstock::space
