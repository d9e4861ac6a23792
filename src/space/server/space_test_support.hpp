// Pools of real servers that keep arrays.
#pragma once

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "penstock/space.hpp"
#include "pool/node/pool_test_support.hpp"
#include "space/server/space_service.hpp"

namespace penstock {

class SpaceTest : public PoolTest {
 protected:
  pool::PoolServerOptions options(std::uint32_t number, std::uint32_t count, std::uint32_t replication) override {
    auto o = PoolTest::options(number, count, replication);
    o.extend = [](auto core) { return space::extend_server(std::move(core)); };
    return o;
  }
  Space space() { return Space(context(), client()); }
  // Servers of a view that does not change: requests are counted once.
  void start_settled(std::uint32_t count) {
    start(count);
    const base::Deadline deadline(patience);
    for (auto& running : servers) {
      bool settled = false;
      while (!settled && !deadline.passed()) {
        const auto placement = running.server->core().placement();
        settled = placement->view().settled && placement->view().members.size() == count;
      }
      EXPECT_TRUE(settled);
    }
  }
};

inline std::vector<double> numbers(std::uint64_t count, double first = 0) {
  std::vector<double> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace penstock
