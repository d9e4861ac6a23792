// Whether the ranks of a writer cohort put the same variables: one type, kind, order and shape for each name. Rank 0 asks
// when layouts change; a step whose layouts are all known costs nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/layout.hpp"
#include "wire/control.hpp"

namespace penstock::stream {

class Agreement {
 public:
  explicit Agreement(std::uint32_t ranks) : put_(ranks) {}

  // Takes the layouts that changed since the last call. Returns what two ranks say of one variable when their newest layouts
  // differ in it, else "". Throws Error(protocol).
  const std::string& disagreement(const std::vector<wire::RankBlob>& changed);

 private:
  using Definitions = std::vector<model::VariableDefinition>;
  bool take(const wire::RankBlob& blob);
  void compare();

  std::vector<std::shared_ptr<const Definitions>> put_;  // by rank; ranks that put the same mostly share it
  std::string why_;
};

}  // namespace penstock::stream
