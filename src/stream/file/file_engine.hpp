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

std::string inspect_files(const EngineContext& context, const std::string& name, const StreamOptions& options,
                          base::Deadline deadline);
std::unique_ptr<Finder> find_files(const EngineContext& context, const std::string& name, const StreamOptions& options);
// A name with a slash or that ends in ".steps", or of a folder with a stream in it, or of a step's file.
bool locate_files(std::string& name, StreamOptions& options);

}  // namespace penstock::stream
