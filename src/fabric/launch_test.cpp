#include "fabric/launch.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace penstock::fabric {
namespace {

// The launchers' variables as given; the rest of them unset, and all as before afterwards.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) {
    for (const char* name : {"PMIX_NAMESPACE", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_MCA_ess_base_jobid",
                             "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "PMI_RANK"}) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      names_.push_back(name);
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto* name : names_) unsetenv(name);
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::map<std::string, std::string> before_;
  std::vector<const char*> names_;
};

Launch launch(const std::map<std::string, std::string>& variables) {
  const Environment environment(variables);
  return launch_of_environment();
}

TEST(Launch, IsReadOfTheLaunchersVariables) {
  EXPECT_EQ(launch({}).id, "");
  const std::vector<std::map<std::string, std::string>> launchers = {
      {{"PMIX_NAMESPACE", "7"}, {"PMIX_RANK", "3"}},
      {{"PMIX_NAMESPACE", "7"}, {"OMPI_COMM_WORLD_RANK", "3"}},
      {{"OMPI_MCA_ess_base_jobid", "7"}, {"OMPI_COMM_WORLD_RANK", "3"}},
      {{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"}},
      {{"PMI_RANK", "3"}},
  };
  for (const auto& variables : launchers) {
    EXPECT_NE(launch(variables).id, "") << variables.begin()->first;
    EXPECT_EQ(launch(variables).rank, 3) << variables.begin()->first;
    EXPECT_EQ(launch(variables).id, launch(variables).id);
  }
  for (const char* rank : {"", "-1", "x", "3x", "99999999999"})
    EXPECT_EQ(launch({{"PMIX_NAMESPACE", "7"}, {"PMIX_RANK", rank}}).id, "") << rank;
  EXPECT_EQ(launch({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}}).id, "") << "a batch script is no rank";
}

TEST(Launch, TwoRanksOfOneLaunchHaveForgottenTheirCommunicator) {
  EXPECT_NE(forgotten_communicator({"a", 1}, {"a", 0}).find("ranks 0 and 1"), std::string::npos);
  EXPECT_EQ(forgotten_communicator({"a", 1}, {"b", 0}), "");
  EXPECT_EQ(forgotten_communicator({"a", 1}, {"a", 1}), "") << "programs that one rank started";
  EXPECT_EQ(forgotten_communicator({"", 0}, {"", 1}), "");
}

}  // namespace
}  // namespace penstock::fabric
