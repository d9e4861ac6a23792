// Options or settings that a simulation cannot run with.
#pragma once

#include <stdexcept>

namespace simulation {

// The text is a line for the user. Every rank throws the same one: run_over_mpi() writes it once.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace simulation
