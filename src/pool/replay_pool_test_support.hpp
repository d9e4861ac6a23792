// A pool of one server, with a folder for what the tests record.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/test_support.hpp"
#include "penstock/stream.hpp"
#include "pool/server.hpp"

namespace penstock {

class OnePoolServer : public testing::Test {
 protected:
  void SetUp() override {
    pool::PoolServerOptions options;
    options.server.pool = "stage";
    options.server.id = 7;
    options.server.name = "server";
    options.server.listen = "127.0.0.1";
    options.server.store.memory_bytes = 256 << 20;
    options.directory = "embedded";
    options.registration_directory = folder.path();
    server = std::make_unique<pool::PoolServer>(fabric::Progress::create(), std::move(options));
    server->start(Timeout(30'000));
  }
  void TearDown() override {
    if (server) server->stop(Timeout(5000));
    server.reset();
  }
  Context new_context() const {
    ContextOptions options;
    options.directory = folder.path();
    return Context(options);
  }

  TestFolder folder;
  std::unique_ptr<pool::PoolServer> server;
};

}  // namespace penstock
