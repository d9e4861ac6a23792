// The stream engine "pool": steps are kept by a pool's servers, which outlive the programs that write and read them.
//
// The writer is a direct writer that only the stream's home reads (stream_home.hpp); put, begin and end never speak to the pool.
// The reader is the step reader over another source of steps (the home) and another data plane (stripes, leased at their
// owners: read in place on one node, else asked for). src/engines names both to the public API.
#pragma once

#include <memory>
#include <string>

#include "pool/client_core.hpp"
#include "stream/engine.hpp"

namespace penstock::pool {

std::unique_ptr<stream::WriterEngine> create_pool_writer(const stream::EngineContext& context, const std::string& name,
                                                         std::shared_ptr<Cohort> cohort, const StreamOptions& options);
std::unique_ptr<stream::ReaderEngine> open_pool_reader(const stream::EngineContext& context, const std::string& name,
                                                       std::shared_ptr<Cohort> cohort, const StreamOptions& options);

// A client of the pool that the options name, shared by this process's streams of one role and plane. Application threads.
std::shared_ptr<PoolClient> shared_client(const stream::EngineContext& context, const std::string& pool,
                                          const std::string& role, base::Deadline deadline,
                                          DataPlane plane = DataPlane::automatic);

}  // namespace penstock::pool
