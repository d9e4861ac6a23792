#include "pool/keys/view.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "fabric/endpoint_json.hpp"
#include "fabric/json_integer.hpp"
#include "penstock/error.hpp"
#include "pool/keys/json_text.hpp"
#include "pool/keys/placement.hpp"

namespace penstock::pool {

namespace {

using fabric::json_integer;
using nlohmann::json;

constexpr std::uint64_t format_version = 1;
constexpr std::size_t max_view_bytes = 4 << 20;
constexpr std::size_t max_name_bytes = 256;
constexpr std::uint32_t silent_protocol = 2;

bool boolean(const json& object, const char* name) {
  const json& value = object.at(name);
  if (!value.is_boolean()) throw Error(Errc::protocol, std::string(name) + " is neither true nor false");
  return value.get<bool>();
}

json member_to_json(const Member& member) {
  return {{"id", member.id},
          {"name", member.name},
          {"endpoint", fabric::to_json(member.endpoint)},
          {"weight", member.weight},
          {"since", member.since},
          {"state", member.state == ServerState::active ? "active" : "draining"}};
}

Member member_from_json(const json& object) {
  Member member;
  member.id = json_integer<std::uint64_t>(object, "id", 1);
  member.name = object.at("name").get<std::string>();
  if (member.name.size() > max_name_bytes) throw Error(Errc::protocol, "a server's name is too long");
  member.endpoint = fabric::endpoint_from_json(object.at("endpoint"));
  member.weight = json_integer<std::uint32_t>(object, "weight", 1, max_weight);
  if (object.contains("since")) member.since = json_integer<std::uint64_t>(object, "since");
  const auto state = object.at("state").get<std::string>();
  if (state != "active" && state != "draining") throw Error(Errc::protocol, "no such state of a server: " + state);
  member.state = state == "active" ? ServerState::active : ServerState::draining;
  return member;
}

// Parses and hands the object to `read`, with every failure as Error(protocol) that says what it was.
template <class Read>
auto parse(std::string_view text, const char* what, Read read) {
  if (text.size() > max_view_bytes) throw Error(Errc::protocol, std::string(what) + " is too long");
  try {
    const json object = json::parse(text);
    json_integer(object, "version", format_version, format_version);
    return read(object);
  } catch (const json::exception& error) {
    throw Error(Errc::protocol, std::string(what) + ": " + fabric::problem_of(error));
  } catch (const Error& error) {
    throw Error(Errc::protocol, std::string(what) + ": " + error.what());
  }
}

// Whom nobody could take over from: when all leave, one stays active for the others to hand on to. Rather one that still is:
// what those that drain have handed on need not come back. 0: not all leave.
std::uint64_t last_to_leave(const View& present, const std::vector<Announcement>& announced) {
  const Member* last = nullptr;
  for (const Announcement& one : announced) {
    if (!one.leaving) return 0;
    const Member* was = present.find(one.member.id);
    if (was == nullptr) continue;
    const auto rank = [](const Member& m) { return std::pair(m.state == ServerState::active, m.id); };
    if (last == nullptr || rank(*was) > rank(*last)) last = was;
  }
  return last == nullptr ? 0 : last->id;
}

}  // namespace

const Member* View::find(std::uint64_t id) const {
  const auto found = std::ranges::lower_bound(members, id, {}, &Member::id);
  return found != members.end() && found->id == id ? &*found : nullptr;
}

std::string to_json(const View& view) {
  json members = json::array();
  for (const Member& member : view.members) members.push_back(member_to_json(member));
  return json_text({{"version", format_version},
                    {"number", view.number},
                    {"settled", view.settled},
                    {"replication", view.replication},
                    {"losses", view.losses},
                    {"members", std::move(members)}});
}

View view_from_json(std::string_view text) {
  return parse(text, "a pool's view", [](const json& object) {
    View view;
    view.number = json_integer<std::uint64_t>(object, "number");
    view.settled = boolean(object, "settled");
    view.replication = json_integer<std::uint32_t>(object, "replication", 1, max_owners);
    if (object.contains("losses")) view.losses = json_integer<std::uint64_t>(object, "losses");
    const json& members = object.at("members");
    if (!members.is_array() || members.size() > max_members) throw Error(Errc::protocol, "no list of servers");
    for (const json& member : members) {
      view.members.push_back(member_from_json(member));
      const std::size_t count = view.members.size();
      if (count > 1 && view.members[count - 2].id >= view.members[count - 1].id)
        throw Error(Errc::protocol, "servers are not in the order of their ids");
    }
    return view;
  });
}

std::string to_json(const Announcement& announcement) {
  return json_text({{"version", format_version},
                    {"member", member_to_json(announcement.member)},
                    {"leaving", announcement.leaving},
                    {"protocol", announcement.protocol},
                    {"finished_view", announcement.finished_view}});
}

Announcement announcement_from_json(std::string_view text) {
  return parse(text, "a server's announcement", [](const json& object) {
    Announcement announcement;
    announcement.member = member_from_json(object.at("member"));
    announcement.leaving = boolean(object, "leaving");
    announcement.protocol =
        object.contains("protocol") ? json_integer<std::uint32_t>(object, "protocol") : silent_protocol;
    announcement.finished_view = json_integer<std::uint64_t>(object, "finished_view");
    return announcement;
  });
}

View next_view(const View& present, const std::vector<Announcement>& announced, std::uint32_t replication) {
  if (announced.empty()) return present;  // whoever asks is a server: the directory has forgotten it, and knows nothing
  View next = present;
  next.replication = std::clamp<std::uint32_t>(replication, 1, max_owners);
  next.members.clear();
  bool all_finished = true;
  const std::uint64_t last = last_to_leave(present, announced);
  for (const Announcement& one : announced) {
    const Member* was = present.find(one.member.id);
    const bool leaving = one.leaving && one.member.id != last;
    // It has nothing to pass on, or others have all of it.
    if (leaving && (was == nullptr || (present.settled && was->state == ServerState::draining))) continue;
    next.members.push_back(one.member);
    next.members.back().weight = std::clamp<std::uint32_t>(one.member.weight, 1, max_weight);
    const bool same_life = was != nullptr && was->endpoint == one.member.endpoint;
    next.members.back().since = same_life ? was->since : present.number + 1;
    next.members.back().state = leaving ? ServerState::draining : ServerState::active;
    all_finished = all_finished && one.finished_view >= present.number;
  }
  for (const Member& member : present.members) {
    const auto lives = [&](const Announcement& one) {
      return one.member.id == member.id && one.member.endpoint == member.endpoint;
    };
    if (std::ranges::none_of(announced, lives)) ++next.losses;
  }
  std::ranges::sort(next.members, {}, &Member::id);
  const auto same = [](const Member& a, const Member& b) { return a.id == b.id; };
  next.members.erase(std::unique(next.members.begin(), next.members.end(), same), next.members.end());

  if (next.members != present.members || next.replication != present.replication) {
    ++next.number;
    // Nothing has to move when all that happened is that drained servers went.
    std::vector<Member> staying;
    std::ranges::copy_if(present.members, std::back_inserter(staying),
                         [](const Member& member) { return member.state == ServerState::active; });
    next.settled = present.settled && next.replication == present.replication && next.members == staying;
  } else if (!present.settled && all_finished) {
    ++next.number;
    next.settled = true;
  }
  return next;
}

}  // namespace penstock::pool
