#include "pool/compute/plugins.hpp"

#include "base/plugin.hpp"
#include "penstock/error.hpp"
#include "pool/compute/protocol.hpp"

namespace penstock::pool::compute {

Plugins::Plugins(const std::vector<std::string>& paths) {
  for (const auto& path : paths) {
    try {
      load(path);
    } catch (const std::exception& error) {
      problems_.push_back(path + ": " + error.what());
    }
  }
}

void Plugins::load(const std::string& path) {
  const auto get =
      reinterpret_cast<penstock_compute_register>(base::plugin_function(path, "penstock_compute_functions"));
  const penstock_compute_table* table = get();
  if (table == nullptr || table->abi != PENSTOCK_COMPUTE_ABI || table->count > max_functions)
    throw Error(Errc::unsupported, "was built for another version of the interface");
  for (std::uint32_t i = 0; i < table->count; ++i) {
    const auto& entry = table->entries[i];
    if (!functions_.emplace(entry.name, entry.function).second)
      problems_.push_back(path + ": function '" + entry.name + "' is there twice; the first stays");
  }
}

std::vector<std::string> Plugins::names() const {
  std::vector<std::string> all;
  for (const auto& [name, function] : functions_) all.push_back(name);
  return all;
}

decltype(penstock_compute_entry::function) Plugins::find(const std::string& name) const {
  const auto found = functions_.find(name);
  return found == functions_.end() ? nullptr : found->second;
}

}  // namespace penstock::pool::compute
