// The server's state as JSON.
#include <array>
#include <nlohmann/json.hpp>

#include "pool/keys/json_text.hpp"
#include "pool/server/object_service.hpp"

namespace penstock::pool {

nlohmann::json drain_json(const ServerCore::DrainStatus& drain) {
  constexpr std::array<const char*, 5> names{"none", "handing_on", "handed_on", "left", "failed"};
  return {{"state", names[static_cast<std::size_t>(drain.state)]},
          {"objects", drain.left.objects},
          {"bytes", drain.left.bytes},
          {"why", drain.why},
          {"awaits", drain.awaits}};
}

std::string status_json(ServerCore& core) {
  const auto s = core.store().statistics();
  const auto& c = core.counters();
  nlohmann::json json{
      {"id", std::to_string(core.self())},
      {"name", core.options().name},
      {"pool", core.options().pool},
      {"replication", core.options().replication},
      {"objects", s.objects},
      {"bytes", s.bytes},
      {"memory",
       {{"used", s.memory_used},
        {"peak", s.memory_peak},
        {"limit", s.memory_limit},
        {"segments", s.segment_bytes},
        {"index", s.index_bytes},
        {"metadata", s.metadata_bytes},
        {"unwritten", s.unwritten_bytes}}},
      {"evictions", s.evictions},
      {"recalls", s.recalls},
      {"waiting", s.waiting},
      {"leases", core.leases()},
      {"subscriptions", c.subscriptions},
      {"disk_error", s.disk_error},
      {"puts", c.puts},
      {"gets", c.gets},
      {"drops", c.drops},
      {"bytes_in", c.bytes_in},
      {"bytes_out", c.bytes_out},
      {"replicated_bytes", c.replicated_bytes},
      {"rebalanced_bytes", c.rebalanced_bytes},
      {"drain", drain_json(core.drain_status())},
  };
  auto tiers = nlohmann::json::array();
  for (const auto& t : s.tiers)
    tiers.push_back({{"objects", t.objects},
                     {"bytes", t.bytes},
                     {"free", t.free_bytes},
                     {"journal", t.journal_bytes},
                     {"written", t.written_bytes},
                     {"read", t.read_bytes},
                     {"syncs", t.syncs},
                     {"errors", t.errors}});
  json["tiers"] = tiers;
  auto members = nlohmann::json::array();
  if (const auto placement = core.placement()) {
    json["view"] = placement->view().number;
    json["settled"] = placement->view().settled;
    for (const auto& m : placement->view().members)
      members.push_back({{"id", std::to_string(m.id)},
                         {"name", m.name},
                         {"state", m.state == ServerState::active ? "active" : "draining"}});
  }
  json["servers"] = members;
  return json_text(json);
}

}  // namespace penstock::pool
