// What a process that exits waits for.
#pragma once

#include "fabric/progress.hpp"

namespace penstock::fabric {

// The application has let go of this engine, and what still runs on it (a goodbye to a pool) is its last owner: a process that
// exits gives it two seconds, because libraries clean up then (OpenSSL frees the locks that a thread's end takes).
void wait_at_exit(Progress& progress);

}  // namespace penstock::fabric
