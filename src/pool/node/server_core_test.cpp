// What the servers of a pool do among themselves.
#include <semaphore>

#include "pool/node/server_core_test_support.hpp"
#include "pool/store/shared_texts.hpp"

namespace penstock::pool {
namespace {

TEST_F(Servers, WhatIsPutAgainAfterADropComesBackToItsFormerOwner) {
  start(2);
  std::vector<Key> keys;
  for (int i = 0; i < 100; ++i) {
    keys.push_back({"row " + std::to_string(i), "a"});
    pool->put(keys.back(), bytes_of("old"));
    EXPECT_TRUE(pool->drop(keys.back()));
  }
  add(options(2, 2, 1));
  servers[2].server->start(patience);
  const auto put = [&](int i) { pool->put(keys[i], bytes_of(std::to_string(i))); };
  for (int i = 0; i < 50; ++i) put(i);  // not settled, as likely as not
  settle();
  for (int i = 50; i < 100; ++i) put(i);
  servers[2].server->drain(patience);
  settle();
  const auto found = pool->get(keys);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(found[i]) << i << ": " << found[i].message;
    EXPECT_EQ(found[i].value->text(), std::to_string(i));
  }
}

TEST_F(Servers, ADropWhoseAnswerWasLostIsToldAgain) {
  start(2, 2);
  const Key key{"row", "a"};
  pool->put(key, bytes_of("x"), with(IfExists::refuse, Acknowledge::replicated));
  const auto at = primary_of("row");
  fb::ObjectsClient client(channel(at, "write"));
  const auto drop = [&](std::uint64_t id) {
    const auto reply = client.start_drop(drop_request(at, key, id), {}).get(base::Deadline(patience));
    return static_cast<bool>(reply.dropped.at(0));
  };
  EXPECT_TRUE(drop(7));
  EXPECT_TRUE(drop(7));
  EXPECT_FALSE(drop(8));
  // What was put since is not what that drop was about.
  pool->put(key, bytes_of("y"), with(IfExists::refuse, Acknowledge::replicated));
  EXPECT_TRUE(drop(7));
  EXPECT_EQ(pool->get(key).text(), "y");
  EXPECT_TRUE(drop(9));
  // The other owner knows of it too: it may be the primary by the time it is asked.
  servers[at].progress->call([] {});
  EXPECT_EQ(held(1 - at, key).size(), 0u);
}

TEST_F(Servers, APutWhoseAnswerWasLostIsDoneOnce) {
  start(1);
  fb::ObjectsClient client(channel(0, "write"));
  const Key key{"row", "a"};
  const auto put = [&](std::string_view text, IfExists if_exists, bool again) {
    return client.start_put(put_request(0, key, text, if_exists, again), {}).get(base::Deadline(patience));
  };
  EXPECT_EQ(put("x", IfExists::refuse, false).versions[0], 1u);
  const auto again = put("x", IfExists::refuse, true);
  EXPECT_TRUE(again.failed.empty());
  EXPECT_EQ(again.versions[0], 1u);
  EXPECT_EQ(put("x", IfExists::refuse, false).failed.size(), 1u);
  EXPECT_EQ(put("y", IfExists::refuse, true).failed.size(), 1u);  // another's
  EXPECT_EQ(put("y", IfExists::add_version, false).versions[0], 2u);
  EXPECT_EQ(put("y", IfExists::add_version, true).versions[0], 2u);
  EXPECT_EQ(held(0, key), (std::vector<std::string>{"x", "y"}));
}

TEST_F(Servers, AFullReplicaSaysSo) {
  start(2, 2);
  const std::string row = "row";
  auto& replica = core(1 - primary_of(row));
  const auto all =
      run(1 - primary_of(row), replica.store().reserve(replica.store().memory_limit(), base::Deadline(patience)));
  PoolOptions o;
  o.pool = "stage";
  o.timeout_ms = 1000;
  Pool soon(*context, o);
  for (const std::size_t bytes : {100, 1 << 20}) {
    const std::string text(bytes, 'x');
    try {
      soon.put({row, "c"}, bytes_of(text), with(IfExists::overwrite, Acknowledge::replicated));
      ADD_FAILURE() << "it is at one server only";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::pool_full) << error.what();
    }
  }
}

// The primary has nothing of a put that failed, but a replica may: the drop reaches it, or the next view would restore it.
TEST_F(Servers, ADropCoversAPutThatFailed) {
  start(3, 3);
  const Key key{"row", "a"};
  const auto at = primary_of("row"), full = (at + 1) % 3, other = (at + 2) % 3;
  auto& store = core(full).store();
  const auto all = run(full, store.reserve(store.memory_limit(), base::Deadline(patience)));
  PoolOptions o;
  o.pool = "stage";
  o.timeout_ms = 1000;
  Pool soon(*context, o);
  EXPECT_THROW(soon.put(key, bytes_of("x"), with(IfExists::overwrite, Acknowledge::replicated)), Error);
  EXPECT_EQ(held(at, key).size(), 0u);
  ASSERT_EQ(held(other, key).size(), 1u);
  EXPECT_FALSE(pool->drop(key));
  EXPECT_EQ(held(other, key).size(), 0u);
}

// A put that timed out may come yet: the next one of its key goes on above it.
TEST_F(Servers, WhatWasGivenUpDoesNotTakeTheNextOnesPlace) {
  auto with_tier = options(0, 1, 1);
  with_tier.server.store.memory_bytes = 4 << 20;
  with_tier.server.store.tiers.resize(1);
  with_tier.server.store.tiers[0].path = folder / "tier";
  start({with_tier});
  auto& core = this->core(0);
  auto& store = core.store();
  const auto blob_of = [&](std::string_view text) {
    auto blob = store.try_reserve(text.size());
    std::ranges::copy(bytes_of(text), blob->writable().begin());
    return blob;
  };
  const auto found = [&](const std::string& row) {
    const auto loaded = run(0, core.load(Namespace{}, row, "c", std::nullopt, std::nullopt, base::Deadline(patience)));
    const auto bytes = loaded.value().object.blob->bytes();
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  struct Case {
    std::string row, second;
    IfExists if_exists;
    bool again;
    Acknowledge acknowledge;
    std::uint64_t version;
  };
  const auto durable = Acknowledge::durable;
  std::vector<fabric::Future<void>> given_up;
  const std::vector<Case> cases = {{"refuse", "second", IfExists::refuse, false, durable, 2},
                                   {"overwrite", "second", IfExists::overwrite, false, durable, 2},
                                   {"memory", "second", IfExists::refuse, false, Acknowledge::memory, 2},
                                   {"again", "first", IfExists::add_version, true, durable, 1},
                                   {"again, other bytes", "second", IfExists::add_version, true, durable, 2}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.row);
    fabric::Future<std::vector<ServerCore::PutResult>> putting;
    servers[0].progress->call([&] {
      // Its caller gave up before it ended, as at a deadline: the key is not locked, and the disk has it.
      auto first = blob_of("first");
      std::vector<ObjectStore::Write> writes(1);
      auto& object = writes[0].object;
      writes[0].row = c.row;
      writes[0].column = "c";
      writes[0].keep_older = c.if_exists == IfExists::add_version;
      object.version = store.first_version();
      object.bytes = first->size();
      object.checksum = storage::checksum(first->bytes());
      object.blob = std::move(first);
      given_up.push_back(
          fabric::spawn(*servers[0].progress, store.put(std::move(writes), true, true, base::Deadline(patience))));
      std::vector<ServerCore::Put> puts(1);
      puts[0].row = c.row;
      puts[0].column = "c";
      auto second = blob_of(c.second);
      puts[0].checksum = storage::checksum(second->bytes());
      puts[0].blob = std::move(second);
      putting = fabric::spawn(*servers[0].progress,
                              core.put(std::move(puts), c.if_exists, c.acknowledge, base::Deadline(patience), c.again));
    });
    const auto results = putting.get(base::Deadline(patience));
    ASSERT_FALSE(results.at(0).error) << results[0].error->what();
    EXPECT_EQ(results[0].version, c.version);
    EXPECT_EQ(found(c.row), c.second);
  }
  const std::string large(1 << 20, 'x');
  for (int i = 0; i < 8; ++i) pool->put({"large", std::to_string(i)}, bytes_of(large), with(IfExists::refuse, durable));
  for (const auto& c : cases) {
    SCOPED_TRACE(c.row);
    servers[0].progress->call([&] { EXPECT_FALSE(store.table().find(Namespace{}, c.row, "c")->blob); });
    EXPECT_EQ(found(c.row), c.second);
  }
}

TEST_F(Servers, ASubscriptionMayEndInItsCallbackAndItsCallbackMayThrow) {
  start(1);
  std::unique_ptr<Subscription> once;
  std::promise<void> ended;
  std::atomic<int> calls{0};
  std::latch ready(1);
  once = pool->subscribe(
      {"*", "*"},
      [&, owned = std::string(100, 'x')](const ObjectEvent&) {
        ready.wait();
        ++calls;
        once.reset();
        EXPECT_EQ(owned, std::string(100, 'x'));  // what it has captured is still there
        ended.set_value();
      },
      true);
  ready.count_down();
  std::atomic<int> heard{0};
  std::promise<void> all;
  auto throwing = pool->subscribe(
      {"*", "*"},
      [&](const ObjectEvent&) {
        if (++heard == 3) all.set_value();
        throw std::runtime_error("the callback's own");
      },
      true);
  for (int i = 0; i < 3; ++i) pool->put({"row", std::to_string(i)}, bytes_of("x"));
  EXPECT_EQ(ended.get_future().wait_for(patience), std::future_status::ready);
  EXPECT_EQ(all.get_future().wait_for(patience), std::future_status::ready);
  EXPECT_EQ(calls, 1);
}

TEST_F(Servers, AClientsLeasesWaitsAndSubscriptionsAreBounded) {
  every.server.max_leases = 2;
  every.server.max_subscriptions = 1;
  every.server.max_waits = 1;
  start(1);
  const std::string large(300'000, 'x');
  for (int i = 0; i < 3; ++i) pool->put({"large", std::to_string(i)}, bytes_of(large));
  {
    const auto first = pool->get({"large", "0"});
    const auto second = pool->get({"large", "1"});
    EXPECT_EQ(code_of([&] { pool->get({"large", "2"}); }), Errc::overloaded);
  }
  const base::Deadline deadline(patience);
  const auto leases = [&] {
    std::uint64_t all = 0;
    servers[0].progress->call([&] { all = core(0).leases(); });
    return all;
  };
  while (leases() != 0 && !deadline.passed()) std::this_thread::yield();
  EXPECT_EQ(pool->get({"large", "2"}).text(), large);

  auto first = pool->want({"never", "1"});
  GetOptions soon;
  soon.timeout = Timeout(5000);
  const auto second = code_of([&] { pool->need({"never", "2"}, soon); });
  EXPECT_EQ(second, Errc::overloaded);
  pool->put({"never", "1"}, bytes_of("x"));
  EXPECT_EQ(first.get(patience).text(), "x");

  fb::ObjectsClient client(channel(0, "read"));
  fb::SubscribeRequestT request;
  request.ns = pack_namespace(Namespace{});
  request.row = request.column = pack_bytes("*");
  request.begin = true;
  request.id = 1;
  client.start_subscribe(request, {}).get(deadline);
  request.id = 2;
  EXPECT_EQ(code_of([&] { client.start_subscribe(request, {}).get(deadline); }), Errc::overloaded);
}

TEST_F(Servers, AnObjectOfNoBytesIsLoadedFromWhereItLies) {
  start(2);
  pool->put({"row", "empty"}, {});
  const auto other = 1 - primary_of("row");
  const auto loaded =
      run(other, core(other).load_anywhere(Namespace{}, "row", "empty", std::nullopt, false, base::Deadline(patience)));
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->object.blob->bytes().size(), 0u);
  EXPECT_EQ(loaded->object.version, 1u);
}

TEST_F(Servers, AVersionThatIsNotThereIsWaitedForWithoutHarm) {
  start(1);
  pool->put({"row", "a"}, bytes_of("1"));
  GetOptions later;
  later.version = 2;
  later.timeout = Timeout(300);
  EXPECT_EQ(code_of([&] { pool->need({"row", "a"}, later); }), Errc::timeout);
  later.timeout = patience;
  auto second = pool->want({"row", "a"}, later);
  pool->put({"row", "a"}, bytes_of("2"), with(IfExists::add_version));
  EXPECT_EQ(second.get(patience).text(), "2");
}

// One message with all of them is more than the other server takes.
TEST_F(Servers, ReplicasWithLargeMetadataArriveAll) {
  every.server.call_memory = 1 << 20;
  start(2, 2);
  put_many("large", 100, std::string(max_metadata_bytes, 'm'), Acknowledge::replicated);
  for (std::size_t server = 0; server < 2; ++server)
    for (std::size_t i = 0; i < 100; ++i)
      ASSERT_EQ(held(server, {"large", column_of(i)}), std::vector<std::string>{"x"});
}

// A client takes no reply of the size that all of it would have, and the library asks for less at once.
TEST_F(Servers, ARequestForTooMuchMetadataSaysSo) {
  start(1);
  constexpr std::size_t objects = 4'200, fit = 2'049;  // 262 MiB, 128 MiB
  put_many("large", objects, std::string(max_metadata_bytes, 'm'));
  std::vector<Key> keys;
  for (std::size_t i = 0; i < objects; ++i) keys.push_back({"large", column_of(i)});
  GetOptions slow;  // sanitizers
  slow.timeout = Timeout(120'000);
  for (const auto& result : pool->info(keys, slow)) ASSERT_EQ(result.code, Errc::ok) << result.message;
  fb::GetRequestT request;
  request.view = core(0).placement()->view().number;
  request.keys = pack_keys(Namespace{}, keys);
  request.info_only = true;
  const base::Deadline deadline(slow.timeout);
  const auto reply = fb::ObjectsClient(channel(0, "read")).start_get(request, rpc::CallOptions{deadline}).get(deadline);
  ASSERT_EQ(reply.got.size(), objects);
  for (std::size_t i = 0; i < objects; ++i)
    ASSERT_EQ(static_cast<Errc>(reply.got[i]->code), i < fit ? Errc::ok : Errc::overloaded) << i;
  EXPECT_THAT(reply.got[fit]->message, testing::HasSubstr("ask for fewer at once"));
}

// With objects that have no bytes at all, too.
TEST_F(Servers, MetadataAreBounded) {
  auto o = options(0, 1, 1);
  o.server.store.memory_bytes = 4 << 20;
  start({o});
  PutOptions described;
  std::size_t taken = 0;
  const auto put_one = [&] {
    described.metadata = std::to_string(100 + taken) + std::string(max_metadata_bytes - 3, 'm');
    pool->put({"row", column_of(taken)}, {}, described);
  };
  while (taken < 100 && code_of(put_one) == Errc::ok) ++taken;
  EXPECT_EQ(code_of(put_one), Errc::pool_full);
  EXPECT_EQ(taken, 31u);
  EXPECT_EQ(pool->list({"row", "*"}).objects.size(), taken);
  pool->put({"large", "c"}, std::vector<std::byte>(3 << 20));
  EXPECT_EQ(pool->need({"large", "c"}).bytes().size(), std::size_t{3} << 20);
  PutOptions shortly;
  shortly.metadata = "a short text";
  EXPECT_EQ(code_of([&] { pool->put({"short", "c"}, {}, shortly); }), Errc::ok);
  pool->drop({"row", column_of(0)});
  EXPECT_EQ(code_of(put_one), Errc::ok);
}

// Each server has them once: replicas, and what a server takes over that joins.
TEST_F(Servers, EqualMetadataAreKeptOnce) {
  start(2, 2);
  constexpr std::size_t objects = 1000;
  for (const char text : {'a', 'b'}) {
    std::vector<Pool::PutItem> items;
    for (std::size_t i = 0; i < objects; ++i)
      items.push_back({{"row " + column_of(i), std::string(1, text)}, bytes_of("x")});
    PutOptions o;
    o.metadata = std::string(max_metadata_bytes, text);
    o.acknowledge = Acknowledge::replicated;
    o.timeout = patience;
    for (const auto& result : pool->put(items, o)) ASSERT_EQ(result.code, Errc::ok) << result.message;
  }
  add(options(2, 3, 2));
  servers[2].server->start(patience);
  const base::Deadline deadline(patience);
  while ((pool->status().servers.size() < 3 || !pool->status().settled) && !deadline.passed())
    std::this_thread::yield();
  for (std::size_t i = 0; i < 3; ++i) {
    std::uint64_t bytes = 0;
    servers[i].progress->call([&] { bytes = core(i).store().statistics().metadata_bytes; });
    EXPECT_EQ(bytes, 2 * (max_metadata_bytes + SharedTexts::overhead)) << "server " << i;
  }
}

// The library refuses them before.
TEST_F(Servers, MetadataOfAnotherClientThatAreTooLongAreRefused) {
  start(1);
  fb::PutRequestT request;
  request.view = core(0).placement()->view().number;
  const std::vector<Key> keys{{"row", "a"}};
  request.keys = pack_keys(Namespace{}, keys);
  request.sizes = {0};
  request.metadata = std::string(max_metadata_bytes + 1, 'm');
  const base::Deadline deadline(patience);
  EXPECT_EQ(code_of([&] {
              fb::ObjectsClient(channel(0, "write")).start_put(request, rpc::CallOptions{deadline}).get(deadline);
            }),
            Errc::protocol);
  EXPECT_TRUE(held(0, keys[0]).empty());
}

// Pages are short where objects have much metadata; nothing is left out.
TEST_F(Servers, ListingsWithLargeMetadataAreWhole) {
  start(2);
  constexpr std::size_t objects = 300;
  put_many("large", objects, std::string(max_metadata_bytes, 'm'));
  const auto in_row = pool->wait_row("large", objects, "*", patience);
  ASSERT_EQ(in_row.size(), objects);
  for (std::size_t i = 0; i < objects; ++i) EXPECT_EQ(in_row[i].key.column, column_of(i));
  std::set<std::string> listed;
  std::string next;
  do {
    const auto page = pool->list({"large", "*"}, 10'000, next);
    EXPECT_LT(page.objects.size(), objects);
    for (const auto& info : page.objects) EXPECT_TRUE(listed.insert(info.key.column).second);
    next = page.next;
  } while (!next.empty());
  EXPECT_EQ(listed.size(), objects);
}

// Also where the list has several pages: a server that has nothing of the row holds nobody up.
TEST_F(Servers, ARowIsListedByItsOwnServer) {
  every.server.lease_ms = 120'000;
  start(2);
  constexpr std::size_t objects = 300;
  std::string row = "row";
  while (!primary(0, row)) row += "+";
  put_many(row, objects, std::string(max_metadata_bytes, 'm'));
  std::binary_semaphore stopped(0), go_on(0);
  std::thread stopping([&] {
    servers[1].progress->call([&] {
      stopped.release();
      go_on.acquire();
    });
  });
  stopped.acquire();
  std::vector<ObjectInfo> found;
  EXPECT_EQ(code_of([&] { found = pool->wait_row(row, objects, "*", patience); }), Errc::ok);
  go_on.release();
  stopping.join();
  EXPECT_EQ(found.size(), objects);
}

}  // namespace
}  // namespace penstock::pool
