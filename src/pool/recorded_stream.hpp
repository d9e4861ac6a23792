// Records what is done to a stream in a pool: what stands between the public API and the engine, when there is a trace.
//
// Without one, the engine itself is returned, and nothing is made, copied or timed. A stream is never disturbed: a trace that
// cannot be begun is logged, and the stream goes on without.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "stream/engine.hpp"

namespace penstock::pool {

// `open` makes the engine, and says a number that all ranks of its cohort share and no other has; its time and its outcome are
// recorded, too.
std::unique_ptr<stream::WriterEngine> recorded_writer(
    const stream::EngineContext& context, const std::string& name, const Cohort& cohort, const StreamOptions& options,
    const std::function<std::unique_ptr<stream::WriterEngine>(std::uint64_t& number)>& open);
std::unique_ptr<stream::ReaderEngine> recorded_reader(
    const stream::EngineContext& context, const std::string& name, const Cohort& cohort, const StreamOptions& options,
    const std::function<std::unique_ptr<stream::ReaderEngine>(std::uint64_t& number)>& open);

}  // namespace penstock::pool
