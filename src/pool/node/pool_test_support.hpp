// A pool of real servers in this process, each with its own engine, sockets and store.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/test_support.hpp"
#include "penstock/pool.hpp"
#include "penstock/stream.hpp"
#include "pool/node/server.hpp"

namespace penstock {

class PoolTest : public testing::Test {
 protected:
  struct Running {
    std::shared_ptr<fabric::Progress> progress;
    std::unique_ptr<pool::PoolServer> server;
  };

  virtual pool::PoolServerOptions options(std::uint32_t number, std::uint32_t servers, std::uint32_t replication) {
    pool::PoolServerOptions o;
    o.server.pool = "stage";
    o.server.id = 100 + number;
    o.server.name = "server-" + std::to_string(number);
    o.server.listen = "127.0.0.1";
    o.server.servers = servers;
    o.server.replication = replication;
    o.server.lease_ms = 1000;
    o.server.store.memory_bytes = 256 << 20;
    o.directory = number == 0 ? "embedded" : "registered";
    o.registration_directory = folder.path();
    return o;
  }
  void add(pool::PoolServerOptions o) {
    Running running;
    running.progress = fabric::Progress::create();
    running.server = std::make_unique<pool::PoolServer>(running.progress, std::move(o));
    servers.push_back(std::move(running));
  }
  void start(std::uint32_t count, std::uint32_t replication = 1) {
    for (std::uint32_t i = 0; i < count; ++i) add(options(i, count, replication));
    // The first has the directory; none is ready before all have come.
    std::vector<std::future<void>> starting;
    for (auto& s : servers) {
      starting.push_back(std::async(std::launch::async, [&s, this] { start_one(s); }));
      if (starting.size() == 1)
        while (!std::filesystem::exists(folder / "directory.json") && !done(starting[0])) std::this_thread::yield();
    }
    // What went wrong first is said last otherwise.
    for (auto& s : starting) s.wait();
    std::string why;
    for (auto& s : starting) {
      try {
        s.get();
      } catch (const std::exception& error) {
        why += std::string(error.what()) + "; ";
      }
    }
    if (!why.empty()) throw std::runtime_error(why);
  }
  static bool done(std::future<void>& f) { return f.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  static void start_one(Running& running) { running.server->start(patience); }

  Context context() {
    ContextOptions o;
    o.directory = folder.path();
    return Context(o);
  }
  PoolOptions client(std::string role = "") {
    PoolOptions o;
    o.pool = "stage";
    o.role = std::move(role);
    return o;
  }
  void TearDown() override {
    // The directory goes last.
    while (!servers.empty()) {
      servers.back().server->stop(Timeout(5000));
      servers.pop_back();
    }
  }

  TestFolder folder;
  std::vector<Running> servers;
};

}  // namespace penstock
