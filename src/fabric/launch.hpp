// Which MPI launch started this process, as far as the launcher's environment variables say (Open MPI, PMIx, MPICH's PMI,
// Slurm). Only for errors that name a forgotten communicator: nothing else depends on it.
#pragma once

#include <string>

namespace penstock::fabric {

struct Launch {
  std::string id;  // the same in every process of the launch; "": no launcher is known
  int rank = 0;
};

Launch launch_of_environment();

// When two processes that open a stream alone are ranks of one launch: what is wrong and how to put it right. Else "".
std::string forgotten_communicator(const Launch& one, const Launch& other);

}  // namespace penstock::fabric
