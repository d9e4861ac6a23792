#include "fabric/launch.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "fabric/handshake.hpp"

namespace penstock::fabric {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::optional<int> rank_in(const char* name) {
  const std::string text = variable(name);
  int rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || rank < 0) return std::nullopt;
  return rank;
}

}  // namespace

Launch launch_of_environment() {
  const std::string name_space = variable("PMIX_NAMESPACE");
  if (!name_space.empty())
    for (const char* name : {"PMIX_RANK", "OMPI_COMM_WORLD_RANK"})
      if (const auto rank = rank_in(name)) return {"pmix " + name_space, *rank};
  const std::string job = variable("OMPI_MCA_ess_base_jobid");
  if (const auto rank = rank_in("OMPI_COMM_WORLD_RANK"); rank && !job.empty()) return {"ompi " + job, *rank};
  const std::string slurm_job = variable("SLURM_JOB_ID"), slurm_step = variable("SLURM_STEP_ID");
  if (const auto rank = rank_in("SLURM_PROCID"); rank && !slurm_job.empty() && !slurm_step.empty())
    return {"slurm " + slurm_job + "." + slurm_step, *rank};
  // PMI names no job. The launcher's process on this host stands for it: ranks on other hosts go unnoticed.
  if (const auto rank = rank_in("PMI_RANK")) return {"pmi " + host_name() + ":" + std::to_string(::getppid()), *rank};
  return {};
}

std::string forgotten_communicator(const Launch& one, const Launch& other) {
  if (one.id.empty() || one.id != other.id || one.rank == other.rank) return "";
  const auto [low, high] = std::minmax(one.rank, other.rank);
  return "ranks " + std::to_string(low) + " and " + std::to_string(high) +
         " of one MPI launch each open it alone, as if the other were not there; give every rank the communicator "
         "(Python: comm=MPI.COMM_WORLD; C++: penstock::mpi_cohort; C: penstock_mpi_cohort), or each a stream of its "
         "own";
}

}  // namespace penstock::fabric
