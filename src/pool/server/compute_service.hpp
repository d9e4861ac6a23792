// Computing beside the data, as a pool's server offers it: loads the objects that a call names (from other servers where it
// must) and runs the function on them.
//
// An object is a described array when its metadata is JSON {"dtype": "float64", "shape": [..]} (and perhaps "start", the
// place of its first element in a larger array); otherwise raw bytes. The result's metadata describes it the same way.
#pragma once

#include <memory>
#include <string>

#include "pool/compute/compute_workers.hpp"
#include "pool/server/object_service.hpp"

namespace penstock::pool {

// For ObjectService. Both outlive it.
Compute make_compute(std::shared_ptr<ServerCore> core, std::shared_ptr<compute::ComputeWorkers> workers);

// What the metadata says of the bytes. Throws Error(invalid_argument) when it contradicts their number.
compute::ComputeInput described_input(const Key& key, const StoredObject& object);
std::string describe_result(const compute::ComputeResult& result);

}  // namespace penstock::pool
