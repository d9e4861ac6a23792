#include "pool/sim/world.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "pool/sim/clock.hpp"
#include "pool/sim/node.hpp"
#include "pool/sim/oracle.hpp"

namespace penstock::pool::sim {

const char* name_of(Bug bug) {
  switch (bug) {
    case Bug::none: return "none";
    case Bug::settled_early: return "a view is said to be settled too early";
    case Bug::drain_at_once: return "a server that drains leaves before others hold what it has";
    case Bug::replica_lost: return "a replica is acknowledged and not kept";
    case Bug::drop_untold: return "a drop does not reach the replicas";
    case Bug::nothing_missing: return "a server says that it lacks nothing of what it is offered";
    case Bug::absence_forgotten: return "a server that was away is not told that it was";
    case Bug::lease_not_renewed: return "a lease is not renewed when the directory comes back";
  }
  return "?";
}

namespace {

constexpr Node first_client = 1000;
constexpr std::uint64_t patience_ms = 120'000;  // for what must come to an end
constexpr std::uint64_t max_turns = 2'000'000;
constexpr std::uint32_t most_servers = 7;
const Timeout long_call(30'000);
const Timeout grace(1000);

class World {
 public:
  World(const Plan& plan, Bug bug, bool trace)
      : plan_(plan),
        tracing_(trace),
        random_(plan.seed ^ 0x3011d),
        progress_(fabric::Progress::create(fabric::Progress::Mode::explicit_poll)),
        network_(progress_, plan.seed, plan.max_delay_us, false),
        directory_(progress_, network_),
        around_{progress_, &network_, &directory_, &random_, bug} {
    directory_.on_put = [this](const directory::DirectoryEntry& entry) { on_put(entry); };
  }
  Result run();

 private:
  // Running it
  void play();
  void until(const std::function<bool()>& ready, std::uint64_t limit_ms, const std::string& what);
  void finish();
  void fail(const std::string& what) {
    if (result_.failure.empty()) result_.failure = what;
  }
  void note(const char* format, ...) __attribute__((format(printf, 2, 3)));
  // A coroutine whose failure is the schedule's.
  void begin(fabric::Task<void> task);
  fabric::Task<void> guarded(fabric::Task<void> task);

  // What happens to servers and network
  SimServer& add_server(std::uint64_t id);
  std::uint64_t new_id();
  void on_put(const directory::DirectoryEntry& entry);
  std::vector<SimServer*> staying() const;  // in the pool, and not about to leave
  fabric::Task<void> act_all();
  void act(const Action& action);
  fabric::Task<void> start_later(std::uint64_t id, std::uint32_t delay_ms);
  fabric::Task<void> directory_away(std::uint32_t length_ms);
  fabric::Task<void> away(SimServer* server, std::uint32_t length_ms);
  fabric::Task<void> drain(SimServer* server);
  void lose(SimServer& server, std::uint32_t again_after_ms);
  bool settled() const;

  // What clients do
  fabric::Task<void> use(SimClient* client, std::uint32_t number, std::uint32_t lane);
  fabric::Task<void> put(SimClient* client, std::string key);
  fabric::Task<void> drop(SimClient* client, std::string key);
  fabric::Task<void> get(SimClient* client, std::string key, Timeout timeout);
  std::string key_of(std::uint32_t client, std::uint64_t n) const {
    return "k" + std::to_string(client) + "-" + std::to_string(n);
  }
  Timeout timeout() { return random_.chance(0.1) ? Timeout(random_.between(1, 800)) : long_call; }
  // What came of a call; allowed: an outcome that is none of the network's.
  bool ended(const std::string& call, base::Deadline deadline, Timeout given, Errc code, const std::string& message,
             Errc allowed = Errc::ok);

  void check_copies();

  const Plan& plan_;
  const bool tracing_;
  Result result_;
  SimulatedTime time_;
  Random random_;
  std::shared_ptr<fabric::Progress> progress_;
  Network network_;
  DirectoryHost directory_;
  Surroundings around_;
  Oracle oracle_;
  std::vector<std::unique_ptr<SimServer>> servers_;
  std::vector<std::unique_ptr<SimClient>> clients_;
  View view_;                  // the newest one in the directory
  std::uint32_t deaths_ = 0;   // since the pool was settled last with those that live
  std::size_t under_way_ = 0;  // coroutines begun
  bool over_ = false;
  std::uint64_t next_value_ = 1;
  Node next_node_ = 1;
};

// ------------------------------------------------------------------------------------------------------------- running

void World::note(const char* format, ...) {
  if (!tracing_) return;
  std::printf("%10.3f ms  ", static_cast<double>(time_.elapsed_us()) / 1000);
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::printf("\n");
}

fabric::Task<void> World::guarded(fabric::Task<void> task) {
  try {
    co_await std::move(task);
  } catch (const std::exception& error) {
    fail(error.what());
  }
  --under_way_;
}

void World::begin(fabric::Task<void> task) {
  ++under_way_;
  fabric::spawn(*progress_, guarded(std::move(task)));
}

void World::until(const std::function<bool()>& ready, std::uint64_t limit_ms, const std::string& what) {
  const auto limit = time_.elapsed_us() + limit_ms * 1000;
  for (std::uint64_t turn = 0;; ++turn) {
    while (progress_->poll()) {
    }
    if (!over_ && !result_.failure.empty()) throw Violation(result_.failure);
    if (ready()) return;
    if (time_.elapsed_us() > limit || turn > max_turns) throw Violation(what);
    if (!time_.advance()) throw Violation("nothing happens any more: " + what);
  }
}

Result World::run() {
  try {
    play();
  } catch (const std::exception& error) {
    fail(error.what());
  }
  finish();
  result_.frames = network_.frames();
  result_.simulated_ms = time_.elapsed_us() / 1000;
  return result_;
}

void World::play() {
  for (std::uint32_t i = 0; i < plan_.servers; ++i) begin(add_server(100 + i).start());
  until([this] { return under_way_ == 0 && settled(); }, patience_ms, "the pool does not come up");
  for (std::uint32_t c = 0; c < plan_.clients; ++c)
    clients_.push_back(std::make_unique<SimClient>(around_, first_client + c));
  for (std::uint32_t c = 0; c < plan_.clients; ++c)
    for (const std::uint32_t lane : {0, 1}) begin(use(clients_[c].get(), c, lane));
  begin(act_all());
  until([this] { return under_way_ == 0; }, patience_ms, "a call, a drain or a start does not end");
  until([this] { return settled(); }, patience_ms, "the pool does not settle");
  // What follows an acknowledgement in memory has its time.
  const auto later = time_.elapsed_us() + 2'000'000;
  until([&] { return time_.elapsed_us() >= later; }, patience_ms, "time stands still");
  for (std::uint32_t c = 0; c < plan_.clients; ++c)
    for (std::uint32_t k = 0; k < plan_.keys; ++k) begin(get(clients_[0].get(), key_of(c, k), long_call));
  until([this] { return under_way_ == 0; }, patience_ms, "a read at the end does not end");
  check_copies();
}

// Nothing may be left of it when the next schedule begins.
void World::finish() {
  over_ = true;
  try {
    if (directory_.away()) directory_.come_back(true);
    for (auto& client : clients_) client->close();
    for (auto& server : servers_) server->kill();
    const auto later = time_.elapsed_us() + 70'000'000;
    until([&] { return time_.elapsed_us() >= later; }, patience_ms, "time stands still");
  } catch (const std::exception& error) {
    fail(error.what());
  }
  network_.close();
}

// ----------------------------------------------------------------------------------------- what happens to the servers

SimServer& World::add_server(std::uint64_t id) {
  servers_.push_back(std::make_unique<SimServer>(around_, next_node_++, id, plan_));
  return *servers_.back();
}

std::vector<SimServer*> World::staying() const {
  std::vector<SimServer*> found;
  for (const auto& server : servers_)
    if (server->started && !server->leaving && !server->gone && !server->away) found.push_back(server.get());
  return found;
}

void World::on_put(const directory::DirectoryEntry& entry) {
  if (entry.path != pool_path(pool_name, "view")) return;
  const View before = std::exchange(view_, view_from_json(entry.value));
  ++result_.views;
  std::string members;
  bool all_live = true;
  for (const auto& member : view_.members) {
    members += " " + member.name + (member.state == ServerState::draining ? " (draining)" : "");
    all_live = all_live && network_.alive(node_at(member.endpoint));
  }
  note("view %llu%s:%s", static_cast<unsigned long long>(view_.number), view_.settled ? ", settled" : "",
       members.c_str());
  if (view_.settled)
    for (const auto& server : servers_)
      if (server->back && view_.find(server->id)) server->away = server->back = false;
  const bool all_here = std::ranges::none_of(servers_, [](const auto& server) { return server->away; });
  if (view_.settled && all_live && all_here) deaths_ = 0;
  for (const auto* server : staying())
    if (before.find(server->id) && !view_.find(server->id))
      fail("server-" + std::to_string(server->node) + " lives and stays, and view " + std::to_string(view_.number) +
           " does not name it");
}

bool World::settled() const {
  std::size_t live = 0;
  for (const auto& server : servers_) {
    if (server->gone) continue;
    ++live;
    const auto* member = view_.find(server->id);
    if (!member || node_at(member->endpoint) != server->node) return false;
  }
  return view_.settled && view_.members.size() == live;
}

fabric::Task<void> World::act_all() {
  std::uint32_t now_ms = 0;
  for (const auto& action : plan_.actions) {
    co_await fabric::pause_for(*progress_, std::chrono::milliseconds(action.at_ms - now_ms));
    now_ms = action.at_ms;
    if (over_) co_return;
    act(action);
  }
}

// Anywhere in the order of ids: the lowest one proposes the views.
std::uint64_t World::new_id() {
  for (;;) {
    const auto id = random_.between(1, 300);
    if (std::ranges::none_of(servers_, [id](const auto& server) { return server->id == id; })) return id;
  }
}

void World::act(const Action& action) {
  auto stay = staying();
  SimServer* const one = stay.empty() ? nullptr : stay[random_.below(stay.size())];
  const auto any_node = [&] {
    const auto n = random_.below(stay.size() + clients_.size());
    return n < stay.size() ? stay[n]->node : clients_[n - stay.size()]->node;
  };
  switch (action.kind) {
    case ActionKind::directory_dies:
      if (!directory_.away()) begin(directory_away(action.length_ms));
      return;
    case ActionKind::join:
      if (stay.size() < most_servers) begin(add_server(new_id()).start());
      return;
    case ActionKind::away:
      if (deaths_ + 1 < plan_.replication && stay.size() > plan_.replication)
        begin(away(one, plan_.lease_ms + action.length_ms));
      return;
    case ActionKind::drain:
      if (stay.size() > plan_.replication) begin(drain(one));
      return;
    case ActionKind::kill:
    case ActionKind::restart: {
      const bool survived = deaths_ + 1 < plan_.replication && stay.size() > plan_.replication;
      if (survived) lose(*one, action.kind == ActionKind::restart ? action.length_ms : 0);
      return;
    }
    case ActionKind::cut:
    case ActionKind::hold: {
      const auto a = any_node(), b = any_node();
      note("%s node %u, node %u (%u ms)", name_of(action.kind), a, b, action.length_ms);
      if (action.kind == ActionKind::hold) return network_.hold(a, b, std::chrono::milliseconds(action.length_ms));
      network_.cut(a, b);
      oracle_.connection_lost();
      return;
    }
  }
}

fabric::Task<void> World::directory_away(std::uint32_t length_ms) {
  note("the directory dies");
  ++result_.outages;
  directory_.go_away();
  co_await fabric::pause_for(*progress_, std::chrono::milliseconds(length_ms));
  note("the directory is back");
  directory_.come_back(around_.bug != Bug::lease_not_renewed);
}

// As a process that stands still, or whose network is gone: it comes back with all that it had.
fabric::Task<void> World::away(SimServer* server, std::uint32_t length_ms) {
  note("server-%u is away (%u ms)", server->node, length_ms);
  ++deaths_;
  server->away = true;
  server->directory->cut_off(true);
  oracle_.server_died();
  const std::chrono::milliseconds length(length_ms);
  network_.isolate(server->node, length);
  co_await fabric::pause_for(*progress_, length);
  note("server-%u is back", server->node);
  server->directory->cut_off(false);
  server->back = true;
  oracle_.server_died();  // until it hears of the view without it, it takes what comes, and gives that up afterwards
}

fabric::Task<void> World::drain(SimServer* server) {
  note("server-%u drains", server->node);
  co_await server->drain();
  ++result_.drains;
  result_.drains_by_command += server->drained_by_command;
  note("server-%u has drained", server->node);
}

void World::lose(SimServer& server, std::uint32_t again_after_ms) {
  note("server-%u is killed", server.node);
  ++result_.kills;
  ++deaths_;
  server.kill();
  oracle_.server_died();
  if (again_after_ms > 0) begin(start_later(server.id, again_after_ms));
}

fabric::Task<void> World::start_later(std::uint64_t id, std::uint32_t delay_ms) {
  co_await fabric::pause_for(*progress_, std::chrono::milliseconds(delay_ms));
  if (over_) co_return;
  auto& server = add_server(id);
  note("server-%u starts with the same id", server.node);
  co_await server.start();
}

// ----------------------------------------------------------------------------------------------------- what clients do

bool World::ended(const std::string& call, base::Deadline deadline, Timeout given, Errc code,
                  const std::string& message, Errc allowed) {
  ++result_.calls;
  note("%s: %s", call.c_str(), code == Errc::ok ? "done" : message.c_str());
  if (base::Clock::now() > deadline.when() + grace) fail(call + " ended after its deadline");
  if (code == Errc::ok) return true;
  if (code != allowed) ++result_.failed_calls;
  if (given == long_call && code != allowed) fail(call + " failed although it had 30 s: " + message);
  return false;
}

fabric::Task<void> World::use(SimClient* client, std::uint32_t number, std::uint32_t lane) {
  const auto end = time_.elapsed_us() + plan_.duration_ms * 1000;
  while (time_.elapsed_us() < end) {
    co_await fabric::pause_for(*progress_, std::chrono::microseconds(random_.below(plan_.think_ms * 2000)));
    // Its own keys are changed by this lane only.
    auto own = key_of(number, lane + 2 * random_.below(plan_.keys / 2));
    auto any = key_of(static_cast<std::uint32_t>(random_.below(plan_.clients)), random_.below(plan_.keys));
    const auto what = random_.below(100);
    if (what < 45) co_await put(client, std::move(own));
    else if (what < 60) co_await drop(client, std::move(own));
    else co_await get(client, std::move(any), timeout());
  }
}

fabric::Task<void> World::put(SimClient* client, std::string key) {
  const auto value = std::make_shared<std::string>("v" + std::to_string(next_value_++));
  PutOptions options;
  options.acknowledge = random_.chance(0.5) ? Acknowledge::replicated : Acknowledge::memory;
  options.if_exists = random_.chance(0.2) ? IfExists::refuse : IfExists::overwrite;
  const bool safe = options.acknowledge == Acknowledge::replicated;
  const bool refusing = options.if_exists == IfExists::refuse;
  const Timeout given = timeout();
  const base::Deadline deadline(given);
  const std::string call = "node " + std::to_string(client->node) + " put " + key + " = " + *value +
                           (safe ? ", replicated" : ", memory") + (refusing ? ", if absent" : "");
  oracle_.begin(key, *value);
  note("%s ...", call.c_str());
  penstock::Result<std::uint64_t> result;
  try {
    std::vector<Pool::PutItem> items{{{key, ""}, std::as_bytes(std::span(*value))}};
    result = (co_await client->pool->put(std::move(items), options, deadline)).at(0);
  } catch (const Error& error) {
    result.code = error.code();
    result.message = error.what();
  }
  if (ended(call, deadline, given, result.code, result.message, refusing ? Errc::already_exists : Errc::ok)) {
    oracle_.done(key, *value, safe);
  } else if (refusing && result.code == Errc::already_exists) {
    oracle_.refused(key, *value);
    if (oracle_.allowed(key) == Oracle::Values{""}) fail(call + ": refused, and there is nothing");
  }
}

fabric::Task<void> World::drop(SimClient* client, std::string key) {
  const Timeout given = timeout();
  const base::Deadline deadline(given);
  const std::string call = "node " + std::to_string(client->node) + " drop " + key;
  oracle_.begin(key, "");
  note("%s ...", call.c_str());
  penstock::Result<bool> result;
  try {
    std::vector<Key> keys{{key, ""}};
    GetOptions options;
    result = (co_await client->pool->drop(std::move(keys), options, deadline)).at(0);
  } catch (const Error& error) {
    result.code = error.code();
    result.message = error.what();
  }
  if (ended(call, deadline, given, result.code, result.message)) oracle_.done(key, "", true);
}

fabric::Task<void> World::get(SimClient* client, std::string key, Timeout given) {
  const base::Deadline deadline(given);
  const std::string call = "node " + std::to_string(client->node) + " get " + key;
  const auto read = oracle_.begin_read(key);
  penstock::Result<Object> result;
  try {
    std::vector<Key> keys{{key, ""}};
    GetOptions options;
    result = (co_await client->pool->get(std::move(keys), options, false, false, deadline)).at(0);
  } catch (const Error& error) {
    result.code = error.code();
    result.message = error.what();
  }
  if (ended(call, deadline, given, result.code, result.message, Errc::not_found))
    oracle_.end_read(read, std::string(result.value->text()));
  else if (result.code == Errc::not_found) oracle_.end_read(read, "");
  else oracle_.forget(read);
}

// Settled means that every owner holds what it owns, and nobody what was dropped.
void World::check_copies() {
  const Placement placement(view_);
  for (std::uint32_t c = 0; c < plan_.clients; ++c) {
    for (std::uint64_t k = 0; k < plan_.keys; ++k) {
      const auto key = key_of(c, k);
      if (!oracle_.safe(key)) continue;
      const auto expected = *oracle_.allowed(key).begin();
      const auto owners = placement.owners(Namespace{}, key, std::nullopt);
      for (auto* server : staying()) {
        const auto index = std::ranges::find(view_.members, server->id, &Member::id) - view_.members.begin();
        const bool owns = owners.contains(static_cast<std::uint32_t>(index));
        const auto* object = server->core->store().table().find(Namespace{}, key, "");
        const std::string has =
            object ? std::string(reinterpret_cast<const char*>(object->blob->bytes().data()), object->bytes) : "";
        if (has != expected && (owns || object))
          fail("server-" + std::to_string(server->node) + (owns ? ", an owner of " : ", no owner of ") + key +
               ", holds " + text_of({has}) + " at the end, expected " + text_of({expected}));
      }
    }
  }
}

}  // namespace

Result run_schedule(const Plan& plan, Bug bug, bool trace) { return World(plan, bug, trace).run(); }

}  // namespace penstock::pool::sim
