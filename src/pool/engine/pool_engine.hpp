// The stream engine "pool": steps are kept by a pool's servers, which outlive the programs that write and read them.
//
// The sink is a direct one that only the stream's home reads (stream_home.hpp); put, begin and end never speak to the pool.
// The source of steps is the home, with a data plane of its own (stripes, leased at their
// owners: read in place on one node, else asked for). src/engines names both to the public API.
#pragma once

#include <memory>
#include <string>

#include "pool/client/client_core.hpp"
#include "stream/api/engine.hpp"

namespace penstock::pool {

std::unique_ptr<stream::StepSink> create_in_pool(const stream::EngineContext& context, const std::string& name,
                                                 Cohort& cohort, const StreamOptions& options);
std::unique_ptr<stream::StepSource> open_in_pool(const stream::EngineContext& context, const std::string& name,
                                                 Cohort& cohort, const StreamOptions& options);
// What the stream's coordinator knows of it, as JSON. Throws Error: not_found, timeout.
std::string inspect_in_pool(const stream::EngineContext& context, const std::string& name, const StreamOptions& options,
                            base::Deadline deadline);
// Asks the coordinators in all pools that the directory knows, or in that of the options. Where no directory service is known it
// finds nothing.
std::unique_ptr<stream::Finder> find_in_pools(const stream::EngineContext& context, const std::string& name,
                                              const StreamOptions& options);

// A client of the pool that the options name, shared by this process's streams of one role and plane. Application threads.
std::shared_ptr<PoolClient> shared_client(const stream::EngineContext& context, const std::string& pool,
                                          const std::string& role, base::Deadline deadline,
                                          DataPlane plane = DataPlane::automatic);

}  // namespace penstock::pool
