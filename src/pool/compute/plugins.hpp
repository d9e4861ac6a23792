// Plug-ins of a worker: shared objects and what they register. Loaded once, never unloaded. One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/compute.hpp"

namespace penstock::pool::compute {

class Plugins {
 public:
  // Never throws for a plug-in that cannot be loaded; problems() tells.
  explicit Plugins(const std::vector<std::string>& paths);
  std::vector<std::string> names() const;
  const std::vector<std::string>& problems() const { return problems_; }
  // Null when there is none of that name.
  decltype(penstock_compute_entry::function) find(const std::string& name) const;

 private:
  void load(const std::string& path);
  std::map<std::string, decltype(penstock_compute_entry::function)> functions_;
  std::vector<std::string> problems_;
};

}  // namespace penstock::pool::compute
