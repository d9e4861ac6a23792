#include "pool/keys/server_status.hpp"

#include <nlohmann/json.hpp>

#include "fabric/json_integer.hpp"

namespace penstock::pool {

namespace {

using nlohmann::json;

constexpr std::size_t max_status_bytes = 4 << 20;

std::uint64_t number(const json& object, const char* name) { return fabric::json_integer<std::uint64_t>(object, name); }

}  // namespace

PoolStatus status_of(const View& view) {
  PoolStatus status;
  status.view = view.number;
  status.settled = view.settled;
  status.replication = view.replication;
  for (const auto& member : view.members) {
    auto& server = status.servers.emplace_back();
    server.id = std::to_string(member.id);
    server.name = member.name;
    server.state = member.state == ServerState::active ? "active" : "draining";
  }
  return status;
}

void read_status(std::string_view text, ServerStatus& status) {
  try {
    if (text.size() > max_status_bytes) throw Error(Errc::protocol, "it is too long");
    const json object = json::parse(text);
    status.objects = number(object, "objects");
    const json& memory = object.at("memory");
    status.memory_bytes = number(memory, "used");
    status.memory_limit = number(memory, "limit");
    const json& tiers = object.at("tiers");
    if (!tiers.is_array()) throw Error(Errc::protocol, "tiers are no list");
    for (const json& tier : tiers) {
      status.disk_bytes += number(tier, "bytes");
      status.disk_free = number(tier, "free");
      status.journal_bytes += number(tier, "journal");
    }
    status.puts = number(object, "puts");
    status.gets = number(object, "gets");
    status.evictions = number(object, "evictions");
    status.recalls = number(object, "recalls");
    status.waiting = number(object, "waiting");
    status.bytes_in = number(object, "bytes_in");
    status.bytes_out = number(object, "bytes_out");
  } catch (const json::exception& error) {
    throw Error(Errc::protocol, "a server's status: " + fabric::problem_of(error));
  } catch (const Error& error) {
    throw Error(Errc::protocol, std::string("a server's status: ") + error.what());
  }
}

}  // namespace penstock::pool
