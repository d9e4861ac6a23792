#include <cstdlib>
#include <map>
#include <mutex>

#include "base/config.hpp"
#include "pool/engine/pool_engine.hpp"
#include "stream/api/open.hpp"

namespace penstock::pool {
namespace {

struct Clients {
  std::mutex mutex;  // guards what follows
  std::map<std::string, std::weak_ptr<PoolClient>> by_key;
};

Clients& clients() {
  static Clients all;
  return all;
}

}  // namespace

std::shared_ptr<PoolClient> shared_client(const stream::EngineContext& context, const std::string& pool,
                                          const std::string& role, base::Deadline deadline, DataPlane plane) {
  const char* service = std::getenv("PENSTOCK_DIRECTORY_SERVICE");
  const auto key = std::to_string(reinterpret_cast<std::uintptr_t>(context.progress.get())) + " " + pool + " " + role +
                   " " + std::string(stream::plane_name(plane)) + " " + context.directory + " " +
                   (service ? service : "");
  auto& all = clients();
  {
    std::lock_guard lock(all.mutex);
    if (auto there = all.by_key[key].lock()) return there;
  }
  PoolOptions options = base::options_of_pool_for_streams(pool, context.config_file);
  options.role = role;
  options.data_plane = plane;
  // A stream's other side may be there before its pool.
  auto made = PoolClient::open(context.progress, options, context.directory, deadline, /*wait_for_it=*/true);
  // Its channels are the engine thread's: its end is there too, whoever holds it last.
  std::shared_ptr<PoolClient> client(made.get(), [made](PoolClient*) mutable {
    auto progress = made->progress();
    auto holder = std::make_shared<std::shared_ptr<PoolClient>>(std::move(made));
    if (progress->on_engine_thread()) holder->reset();
    else progress->call([holder] { holder->reset(); });
  });
  std::lock_guard lock(all.mutex);
  std::erase_if(all.by_key, [](const auto& entry) { return entry.second.expired(); });
  if (auto there = all.by_key[key].lock()) return there;  // another thread was faster
  all.by_key[key] = client;
  return client;
}

}  // namespace penstock::pool
