#include <algorithm>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include "directory/open.hpp"
#include "directory/server.hpp"
#include "fabric/registration.hpp"
#include "pool/client/client_impl.hpp"
#include "pool/engine/pool_engine.hpp"
#include "pool/engine/pools_finder.hpp"
#include "pool/keys/stream_keys.hpp"

namespace penstock::pool {
namespace {

constexpr Timeout longest_pause(1'000);     // between looks
constexpr Timeout spare_silent_for(5'000);  // a pool or directory that did not answer
constexpr std::size_t most_listed = 1'000;
constexpr auto streams_name = "penstock.streams";  // streams_namespace() is its hash

class PoolFinder final : public PoolsFinder {
 public:
  using PoolsFinder::PoolsFinder;

 private:
  Found look_in(const std::string& pool, base::Deadline deadline) override;
  std::vector<std::string> names_in(const std::string& pool, base::Deadline deadline) override;
};

}  // namespace

Timeout PoolsFinder::pause() const { return longest_pause; }

void PoolsFinder::note_silent(const std::string& pool, const Error& error) {
  silent_.insert_or_assign(pool, Silent{error.what(), base::Deadline(spare_silent_for)});
}

bool PoolsFinder::directory_is_known() const {
  return directory::resolve_directory_service("") != "embedded" || fabric::is_directory_service(context_.directory) ||
         fabric::Directory(context_.directory).read(directory::directory_registration);
}

bool PoolsFinder::spared(const std::string& pool) const {
  const auto silent = silent_.find(pool);
  return silent != silent_.end() && !silent->second.again.passed();
}

void PoolsFinder::learn_pools(base::Deadline deadline) {
  if (spared("")) return;
  try {
    if (!directory_ && directory_is_known())
      directory_ =
          directory::open_directory(context_.progress, directory::resolve_directory_service(""), context_.directory);
    if (!directory_) return;
    if (options_.pool.empty())
      pools_ = fabric::run_task(*context_.progress, pool_names(directory_, deadline), base::Deadline::never());
    else pools_ = {options_.pool};
    silent_.erase("");
  } catch (const Error& error) {
    note_silent("", error);
  }
}

std::shared_ptr<PoolClient> PoolsFinder::client(const std::string& pool, base::Deadline deadline) {
  auto& client = clients_[pool];
  if (!client) client = shared_client(context_, pool, "read", deadline);
  return client;
}

std::optional<PoolsFinder::Found> PoolsFinder::look(base::Deadline deadline) {
  learn_pools(earlier(deadline, base::Deadline(look_within)));
  std::optional<Found> kept;
  for (const auto& pool : pools_) {
    if (spared(pool)) continue;
    try {
      const auto found = look_in(pool, earlier(deadline, base::Deadline(look_within)));
      silent_.erase(pool);
      if (found.live) return found;
      if (!kept) kept = found;
    } catch (const Error& error) {
      if (error.code() == Errc::not_found) silent_.erase(pool);
      else note_silent(pool, error);
    }
  }
  return kept;
}

std::string PoolsFinder::place() const {
  const auto why = [this](const std::string& pool) {
    const auto silent = silent_.find(pool);
    return silent == silent_.end() ? "" : " (does not answer: " + silent->second.why + ")";
  };
  if (!directory_) return "pools (no directory service is known)";
  std::string text;
  for (const auto& pool : pools_) text += (text.empty() ? "pool " : ", pool ") + pool + why(pool);
  if (!text.empty()) return text;
  return silent_.contains("") ? "pools" + why("") : "pools (the directory service knows none)";
}

std::vector<std::string> PoolsFinder::names(base::Deadline deadline) {
  std::vector<std::string> names;
  for (const auto& pool : pools_)
    if (!spared(pool)) std::ranges::move(names_in(pool, deadline), std::back_inserter(names));
  return names;
}

namespace {

stream::Finder::Found PoolFinder::look_in(const std::string& pool, base::Deadline deadline) {
  StreamOptions options = options_;
  options.pool = pool;
  client(pool, deadline);
  const auto told = nlohmann::json::parse(inspect_in_pool(context_, name_, options, deadline));
  const auto state = told.value("state", "");
  Found found{.live = state == "open", .where = "pool " + pool};
  found.state = state == "ended" ? state : "its writer " + told.value("writer", "") + " did not close it";
  found.pool = pool;
  return found;
}

std::vector<std::string> PoolFinder::names_in(const std::string& pool, base::Deadline deadline) {
  std::vector<std::string> names;
  PoolOptions inside;
  inside.ns = streams_name;
  inside.timeout_ms = static_cast<std::uint32_t>(std::min(deadline.remaining(), look_within).count());
  auto records = Pool::Impl::over(client(pool, deadline), std::move(inside));
  for (const auto& object : records.list({stream_row("*"), std::string(record_column)}, most_listed).objects)
    names.push_back(stream_of_row(object.key.row));
  return names;
}

}  // namespace

std::unique_ptr<stream::Finder> find_in_pools(const stream::EngineContext& context, const std::string& name,
                                              const StreamOptions& options) {
  return std::make_unique<PoolFinder>(context, name, options);
}

}  // namespace penstock::pool
