// penstock-compute-worker: runs functions beside the data, for the server that started it.
//
//   penstock-compute-worker PARENT PLUGIN...          built-ins and plug-ins
//   penstock-compute-worker PARENT --exec PROGRAM...  the same limits, then another program (Python)
//
// Not for people: it talks to its parent over descriptor 3. It ends when the parent closes that or dies.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/log.hpp"
#include "pool/compute/process.hpp"
#include "pool/compute/worker_loop.hpp"

using namespace penstock;
namespace compute = penstock::pool::compute;

namespace {

void limit(__rlimit_resource resource, rlim_t value) {
  const rlimit both{value, value};
  ::setrlimit(resource, &both);
}

// What never changes from call to call; memory is the server's to set for each.
void confine() {
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, 0);
  limit(RLIMIT_NOFILE, 256);
  limit(RLIMIT_MEMLOCK, 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    base::log(base::Level::error, "penstock-compute-worker is started by Penstock's servers");
    return 2;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != static_cast<pid_t>(std::atol(argv[1]))) return 3;  // it died before that
  confine();
  if (argc > 3 && std::strcmp(argv[2], "--exec") == 0) {
    ::execvp(argv[3], argv + 3);
    base::log(base::Level::error, "a compute worker cannot start",
              {{"program", argv[3]}, {"error", std::strerror(errno)}});
    return 127;
  }
  try {
    compute::serve_calls(memory::UniqueFd(compute::worker_descriptor), {argv + 2, argv + argc});
  } catch (const std::exception& error) {
    base::log(base::Level::error, "a compute worker cannot go on", {{"error", error.what()}});
    return 1;
  }
  return 0;
}
