// A server that is killed while its workers work: calls a function that tells its process through the pipe that is named
// in the arguments, and waits for ever. For compute_workers_test.
//
//   compute_test_server WORKER PLUGIN FIFO CALLS
#include <cstdlib>
#include <cstring>
#include <string>

#include "pool/compute/compute_workers.hpp"

using namespace penstock;
using namespace penstock::pool::compute;

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const std::string fifo = argv[3];
  const int calls = std::atoi(argv[4]);
  fabric::Progress progress;
  fabric::Workers threads(progress, 1);
  ComputeOptions options;
  options.worker_program = argv[1];
  options.plugins = {argv[2]};
  options.workers = static_cast<unsigned>(calls);
  ComputeWorkers workers(progress, threads, options);
  std::vector<fabric::Future<ComputeResult>> futures;
  for (int i = 0; i < calls; ++i) {
    ComputeRequest request;
    request.function = "block_once_told";
    ComputeInput input;
    input.bytes = std::as_bytes(std::span(fifo));
    request.inputs = {input};
    futures.push_back(fabric::spawn(progress, workers.run(std::move(request), base::Deadline::never())));
  }
  for (auto& future : futures) future.get(base::Deadline::never());
  return 0;
}
