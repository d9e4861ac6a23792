// Asks a stream's writer how it is doing, without joining the stream.
#pragma once

#include <string>

#include "base/clock.hpp"
#include "fabric/progress.hpp"
#include "fabric/registration.hpp"

namespace penstock::stream {

// The writer's statistics as JSON text. Throws Error: not_found (nobody answers), authentication, timeout.
std::string inspect_writer(fabric::Progress& progress, const fabric::Registration& registration,
                           base::Deadline deadline);

}  // namespace penstock::stream
