// The parameters that an analysis may set, and their values: declared by the simulation, the same on all ranks.
//
// One thread at a time. What comes from outside is checked against the declaration; a value that does not fit is refused
// alone, and the others are taken.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/demand.hpp"

namespace penstock::analysis {

class Steering {
 public:
  // least, greatest: of the value's type; numbers only. Throws Error(invalid_argument, already_exists).
  void declare(std::string_view name, Value value, std::optional<Value> least = {}, std::optional<Value> greatest = {});
  // Throws Error(not_found), with the nearest name.
  const Value& value(std::string_view name) const;
  // Refusals, name: why, take the place of those before. The first few only, shortened: they go with each step.
  void apply(const std::vector<std::pair<std::string, Value>>& values);
  const std::map<std::string, std::string>& refused() const { return refused_; }

  struct Parameter {
    Value value, initial;
    std::optional<Value> least, greatest;
  };
  const std::map<std::string, Parameter, std::less<>>& parameters() const { return parameters_; }

 private:
  void set(std::string_view name, const Value& value);
  Parameter& find(std::string_view name);

  std::map<std::string, Parameter, std::less<>> parameters_;
  std::map<std::string, std::string> refused_;
};

}  // namespace penstock::analysis
