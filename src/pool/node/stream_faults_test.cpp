// Streams in a pool when something goes wrong: a record that cannot be kept, a writer that wakes up too late, one that is joined
// again and again, steps that are too large, and what must go with the last step that needs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "base/test_support.hpp"
#include "pool/coordinator/stream_objects.hpp"
#include "pool/engine/pool_engine.hpp"
#include "pool/keys/stream_keys.hpp"
#include "pool/node/server.hpp"
#include "pool/node/stream_pool_test_support.hpp"
#include "stream/direct/feed.hpp"

namespace penstock::pool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A pool of one server, and what is needed to look into it.
class OneServer {
 public:
  explicit OneServer(std::uint64_t memory_bytes = 256u << 20, bool with_tier = false) {
    PoolServerOptions options;
    options.server.listen = "127.0.0.1";
    options.server.id = 1;
    options.server.store.memory_bytes = memory_bytes;
    if (with_tier) {
      storage::TierOptions tier;
      tier.kind = std::string(storage::tier_kinds().front());
      tier.path = folder_ / "tier";
      options.server.store.tiers.push_back(tier);
    }
    options.registration_directory = folder_.path();
    server_ = std::make_unique<PoolServer>(progress_, options);
    server_->start(patience);
  }
  ~OneServer() {
    server_->stop(Timeout(2000));
    server_.reset();
  }
  stream::EngineContext context() { return {client_, folder_.path(), "127.0.0.1"}; }
  PoolServer& server() { return *server_; }
  ObjectStore& store() { return server_->core().store(); }
  const std::shared_ptr<fabric::Progress>& progress() { return progress_; }

  // Columns of a stream's row.
  std::vector<std::string> columns(const std::string& stream) {
    std::vector<std::string> columns;
    progress_->call([&] {
      store().table().scan(streams_namespace(), exact_row(stream_row(stream)), "", ~std::size_t{0},
                           [&](const ObjectTable::Entry& entry) {
                             columns.emplace_back(entry.column);
                             return true;
                           });
    });
    return columns;
  }
  fb::StreamRecordT record(const std::string& stream) {
    fb::StreamRecordT record;
    progress_->call([&] {
      const auto* object = store().table().find(streams_namespace(), stream_row(stream), record_column);
      if (object != nullptr) record = decode_object<fb::StreamRecord>(object->blob->bytes());
    });
    return record;
  }
  // The client's, to the server.
  std::shared_ptr<rpc::Channel> channel(const std::shared_ptr<PoolClient>& client) {
    const base::Deadline deadline(patience);
    Member member = client->members().placement()->view().members.at(0);
    return fabric::run_task(*client_, client->members().channel(std::move(member), deadline), deadline);
  }
  // Of a client of this role.
  std::shared_ptr<rpc::Channel> channel_as(const std::string& role) {
    const base::Deadline deadline(patience);
    auto connecting =
        rpc::connect(progress_, server_->endpoint(), server_->token(role), "default/" + role, nullptr, deadline);
    return fabric::run_task(*progress_, std::move(connecting), deadline);
  }
  // Says it as a writer would.
  fb::AttachReplyT attach(fb::AttachRequestT request, Timeout within) {
    const base::Deadline deadline(within);
    auto client = shared_client(context(), "", "write", deadline);
    return fabric::run_task(*client_, send(client, std::move(request), deadline), base::Deadline(patience));
  }

 private:
  static Task<fb::AttachReplyT> send(std::shared_ptr<PoolClient> client, fb::AttachRequestT request,
                                     base::Deadline deadline) {
    const auto placement = client->members().placement();
    Member member = placement->view().members.at(0);
    auto channel = co_await client->members().channel(std::move(member), deadline);
    request.view = placement->view().number;
    fb::StreamsClient streams(std::move(channel));
    rpc::CallOptions options;
    options.deadline = deadline;
    co_return co_await streams.attach(std::move(request), options);
  }

  TestFolder folder_;
  std::shared_ptr<fabric::Progress> progress_ = fabric::Progress::create(), client_ = fabric::Progress::create();
  std::unique_ptr<PoolServer> server_;
};

// A vector whose values follow from the step.
class Writer {
 public:
  Writer(OneServer& pool, const std::string& name, std::uint64_t elements, StreamOptions options = pool_options())
      : engine_(write_in_pool(pool.context(), name, solo(), options)), elements_(elements) {
    x_ = engine_->define("x", DType::float64, {elements}, {});
  }
  void write() {
    ASSERT_TRUE(engine_->begin_step(patience)) << engine_->awaited();
    engine_->set_shape(x_, {elements_});
    std::vector<double> values(elements_);
    std::iota(values.begin(), values.end(), 1000.0 * static_cast<double>(engine_->step()));
    engine_->put(x_, Box{{0}, {elements_}}, values.data(), {});
    engine_->end_step();
  }
  void resize(std::uint64_t elements) { elements_ = elements; }
  stream::StepBuilder* operator->() { return engine_.get(); }

 private:
  std::unique_ptr<stream::StepBuilder> engine_;
  std::uint64_t elements_;
  std::uint32_t x_ = 0;
};

std::vector<std::uint64_t> read_steps(OneServer& pool, const std::string& name, std::size_t most) {
  const auto reader = read_from_pool(pool.context(), name, solo(), pool_options());
  std::vector<std::uint64_t> steps;
  while (steps.size() < most && reader->begin_step(patience) == Outcome::ready) {
    const auto& info = reader->variable("x");
    std::vector<double> values(info.shape[0]), expected(info.shape[0]);
    reader->get(info.id, Selection::all(), values.data(), Order::row, {});
    reader->wait(patience);
    std::iota(expected.begin(), expected.end(), 1000.0 * static_cast<double>(reader->step()));
    EXPECT_EQ(values, expected);
    steps.push_back(reader->step());
    reader->end_step();
  }
  return steps;
}

// Until the stream has ended.
std::vector<std::uint64_t> read_all(OneServer& pool, const std::string& name) {
  return read_steps(pool, name, ~std::size_t{0});
}

fb::AttachRequestT writer_of_life(OneServer& pool, const std::string& stream, std::uint64_t life) {
  fb::AttachRequestT request;
  request.stream = stream;
  request.life = life;
  request.ranks = 1;
  request.host = "elsewhere";
  request.address = fabric::to_text(pool.server().endpoint());  // where no writer is
  const auto token = fabric::Token::random();
  request.token.assign(token.bytes.begin(), token.bytes.end());
  return request;
}

// All memory of the server, to the last byte; books: also what is kept for its books.
std::vector<std::shared_ptr<Blob>> take_all(OneServer& pool, bool books = true) {
  std::vector<std::shared_ptr<Blob>> all;
  for (auto size = pool.store().memory_limit(); size > 0; size /= 2) {
    try {
      for (;;) {
        const base::Deadline soon(Timeout(50));
        all.push_back(
            fabric::run_task(*pool.progress(), pool.store().reserve(size, soon, books), base::Deadline(patience)));
      }
    } catch (const Error&) {
    }
  }
  return all;
}

TEST(StreamFaults, ARecordThatCouldNotBeKeptIsKeptTheNextTime) {
  OneServer pool(16u << 20);
  auto all = take_all(pool);
  const auto request = writer_of_life(pool, "late", 77);
  EXPECT_EQ(code_of([&] { pool.attach(request, Timeout(500)); }), Errc::pool_full);
  EXPECT_EQ(pool.record("late").life, 0u) << "there was no room for it";
  const auto channel = pool.channel_as("read");
  fb::StreamInfoRequestT info;
  info.stream = "late";
  const auto is_there = [&] { fb::StreamsClient(channel).start_stream_info(info, {}).get(base::Deadline(patience)); };
  EXPECT_EQ(code_of(is_there), Errc::not_found) << "who waits for it must not be told of a stream that is lost";
  channel->close();
  all.clear();
  // Until it was in time for the server, should the machine stand still for a moment.
  for (const base::Deadline deadline(patience); pool.record("late").life == 0 && !deadline.passed();)
    EXPECT_THROW(pool.attach(request, Timeout(500)), Error) << "no such writer";
  EXPECT_EQ(pool.record("late").life, 77u) << "but a home to come must know of it";
}

// A stream of one step, whose writer has ended, and whose end has no place until what is returned is given free.
std::vector<std::shared_ptr<Blob>> end_without_room(OneServer& pool, Writer& writer, const std::string& name) {
  writer.write();
  EXPECT_THAT(read_steps(pool, name, 1), ElementsAre(0));
  auto all = take_all(pool);
  EXPECT_EQ(code_of([&] { writer->close(Timeout(1500)); }), Errc::timeout);
  return all;
}

TEST(StreamFaults, AStreamHasNotEndedBeforeItsEndIsKept) {
  OneServer pool(16u << 20);
  Writer writer(pool, "ending", 10);
  auto all = end_without_room(pool, writer, "ending");
  EXPECT_EQ(pool.record("ending").state, 0);
  all.clear();
  EXPECT_THAT(read_all(pool, "ending"), ElementsAre(0)) << "the end is kept as soon as there is room";
  EXPECT_EQ(pool.record("ending").state, 1);
}

TEST(StreamFaults, AStreamInAFullPoolEndsAtOnce) {
  OneServer pool(16u << 20);
  Writer writer(pool, "ending", 10);
  writer.write();
  EXPECT_THAT(read_steps(pool, "ending", 1), ElementsAre(0));
  const auto all = take_all(pool, false);
  writer->close(patience);
  EXPECT_EQ(pool.record("ending").state, 1);
  EXPECT_THAT(read_all(pool, "ending"), ElementsAre(0));
}

// Steps that wait for memory are many megabytes; what makes room for them is a few hundred bytes, and must not wait behind them.
TEST(StreamFaults, AFullPoolGoesOnAsFastAsItsGroupReads) {
  OneServer pool(16u << 20);
  auto options = pool_options();
  options.retain_for = "analysis";
  Writer writer(pool, "tight", 250'000, options);  // 2 MB
  constexpr std::uint64_t count = 24;
  std::thread writing([&] {
    for (std::uint64_t i = 0; i < count; ++i) writer.write();
    writer->close(patience);
  });
  const auto full = [&] {
    bool full = false;
    pool.progress()->call([&] {
      const auto now = pool.store().statistics();
      full = now.waiting > 0 && now.memory_used + 2'000'000 > now.memory_limit;
    });
    return full;
  };
  for (const base::Deadline deadline(patience); !full() && !deadline.passed();) std::this_thread::yield();
  auto group = pool_options();
  group.group = "analysis";
  const auto begun = base::Clock::now();
  const auto reader = read_from_pool(pool.context(), "tight", solo(), group);
  std::uint64_t read = 0;
  while (reader->begin_step(patience) == Outcome::ready) {
    EXPECT_EQ(reader->step(), read++);
    reader->end_step();
  }
  writing.join();
  EXPECT_EQ(read, count);
  EXPECT_LT(base::Clock::now() - begun, std::chrono::seconds(8)) << "a step that waits is given up after 10 s";
}

TEST(StreamFaults, AStreamWhoseEndCannotBeKeptCanBeDropped) {
  OneServer pool(16u << 20);
  Writer writer(pool, "ending", 10);
  auto all = end_without_room(pool, writer, "ending");
  const auto channel = pool.channel_as("write");
  fb::DropStreamRequestT drop;
  drop.stream = "ending";
  fb::StreamsClient(channel).start_drop_stream(drop, {}).get(base::Deadline(patience));
  channel->close();
  EXPECT_THAT(pool.columns("ending"), ElementsAre());
}

TEST(StreamFaults, WhoDoesNotComeToReplaceALostWriterLeavesItLost) {
  OneServer pool(16u << 20);
  EXPECT_THROW(pool.attach(writer_of_life(pool, "left", 77), Timeout(500)), Error) << "there is no such writer";
  EXPECT_EQ(pool.record("left").life, 77u);
  auto all = take_all(pool);
  auto next = writer_of_life(pool, "left", 78);
  next.options = "resume: append";
  EXPECT_THROW(pool.attach(next, Timeout(500)), Error) << "its record cannot be kept";
  EXPECT_EQ(pool.record("left").writer, 77u);
  all.clear();
  const auto reader = read_from_pool(pool.context(), "left", solo(), pool_options());
  EXPECT_EQ(reader->begin_step(patience), Outcome::writer_lost) << "somebody still has to look for the first one";
}

TEST(StreamFaults, AWriterThatCannotBeJoinedIsNotLetIn) {
  OneServer pool;
  auto request = writer_of_life(pool, "nowhere", 77);
  request.token.pop_back();
  EXPECT_EQ(code_of([&] { pool.attach(request, patience); }), Errc::protocol);
  EXPECT_THAT(pool.columns("nowhere"), ElementsAre());
}

TEST(StreamFaults, AWriterThatWakesUpTooLateDestroysNothing) {
  OneServer pool;
  {
    Writer writer(pool, "taken", 1000);
    for (int i = 0; i < 3; ++i) writer.write();
    writer->close(patience);
  }
  auto request = writer_of_life(pool, "taken", 99);
  request.again = true;
  try {
    pool.attach(request, patience);
    FAIL() << "it was let in";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Errc::wrong_state) << e.what();
    EXPECT_THAT(e.what(), HasSubstr("taken over by another writer"));
  }
  EXPECT_THAT(read_all(pool, "taken"), ElementsAre(0, 1, 2));
}

// A home to come may have an older record than the writer: the one that this writer replaced.
TEST(StreamFaults, AWriterMayReplaceWhomItReplaced) {
  OneServer pool;
  {
    Writer writer(pool, "before", 10);
    writer.write();
    writer->close(patience);
  }
  auto request = writer_of_life(pool, "before", 99);
  request.again = true;
  request.replaced = pool.record("before").writer;
  for (const base::Deadline deadline(patience); pool.record("before").writer != 99 && !deadline.passed();)
    EXPECT_THROW(pool.attach(request, Timeout(500)), Error) << "no such writer";
  EXPECT_EQ(pool.record("before").writer, 99u);
  EXPECT_EQ(pool.record("before").replaced, request.replaced);
}

// Another consumer takes the steps from the home, which joins the writer again: each step comes once, in order, none is left out.
TEST(StreamFaults, NoStepIsLostWhenTheWriterIsJoinedAgain) {
  OneServer pool;
  Writer writer(pool, "rejoined", 50'000);
  const auto record = pool.record("rejoined");
  fabric::Registration registration;
  registration.stream = "rejoined";
  registration.endpoint = fabric::endpoint_from_text(record.address);
  std::copy(record.token.begin(), record.token.end(), registration.token.bytes.begin());
  constexpr int rounds = 10, steps_a_round = 4;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < steps_a_round; ++i) writer.write();
    std::unique_ptr<stream::Feed> thief;
    std::atomic<bool> over{false};
    pool.progress()->call([&] {
      stream::Feed::Events events;
      events.joined = [&](const stream::Admission&) { over = true; };
      events.step = [](stream::ReaderProtocol::Step) {};
      events.ended = [&](Outcome, const std::string&) { over = true; };
      thief = std::make_unique<stream::Feed>(pool.progress(), registration, fabric::Reach::automatic,
                                             base::Deadline(patience), std::move(events));
    });
    pool.progress()->wait_for([&] { return over.load(); }, base::Deadline(patience));
    pool.progress()->call([&] { thief.reset(); });
  }
  writer->close(patience);
  std::vector<std::uint64_t> all(rounds * steps_a_round);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(read_all(pool, "rejoined"), all);
}

// Who has the record's token can join the writer as the pool does, and have steps given back that the pool has not taken over.
TEST(StreamFaults, OnlyServersAreGivenAStreamsRecord) {
  OneServer pool;
  Writer writer(pool, "kept", 10);
  writer.write();
  const auto bytes_for = [&](const std::string& role, const std::string& column) {
    const base::Deadline deadline(patience);
    const auto channel = pool.channel_as(role);
    fb::ObjectsClient client(channel);
    fb::GetRequestT request;
    const std::vector<Key> keys{{stream_row("kept"), column}};
    request.keys = pack_keys(streams_namespace(), keys);
    request.bytes = ~std::uint64_t{0};
    request.inline_bytes = 1 << 20;
    const auto reply = client.start_get(request, {}).get(deadline);
    channel->close();
    return reply.data.size();
  };
  for (const std::string role : {"read", "write", "compute", "admin"}) {
    EXPECT_EQ(code_of([&] { bytes_for(role, std::string(record_column)); }), Errc::forbidden) << role;
    EXPECT_GT(bytes_for(role, epoch_column(pool.record("kept").life, 1)), 0u) << role;
  }
  EXPECT_GT(bytes_for("server", std::string(record_column)), 0u);
  writer->close(patience);
}

// Clients put and drop objects, also with the right to write; what streams are made of is changed by their home only.
TEST(StreamFaults, OnlyServersChangeWhatStreamsAreMadeOf) {
  OneServer pool;
  Writer writer(pool, "kept", 10);
  writer.write();
  writer->close(patience);
  const auto life = pool.record("kept").life;
  const std::vector<Key> keys{{stream_row("kept"), std::string(record_column)},
                              {stream_row("kept"), step_column(0)},
                              {stripe_row("kept", 0, 0, 0), stripe_column(life)}};
  for (const std::string role : {"write", "compute", "admin"}) {
    const base::Deadline deadline(patience);
    const auto channel = pool.channel_as(role);
    fb::ObjectsClient client(channel);
    for (const auto& key : keys) {
      fb::PutRequestT put;
      put.keys = pack_keys(streams_namespace(), std::span(&key, 1));
      put.sizes = {1};
      put.data = {7};
      put.if_exists = static_cast<std::uint8_t>(IfExists::overwrite);
      EXPECT_EQ(code_of([&] { client.start_put(put, {}).get(deadline); }), Errc::forbidden) << role << " " << key.row;
      fb::DropRequestT drop;
      drop.keys = pack_keys(streams_namespace(), std::span(&key, 1));
      EXPECT_EQ(code_of([&] { client.start_drop(std::move(drop), {}).get(deadline); }), Errc::forbidden) << role;
    }
    fb::DropPatternRequestT all;
    all.ns = pack_namespace(streams_namespace());
    all.row = pack_bytes("*");
    all.column = pack_bytes("*");
    EXPECT_EQ(code_of([&] { client.start_drop_pattern(std::move(all), {}).get(deadline); }), Errc::forbidden) << role;
    channel->close();
  }
  EXPECT_THAT(read_all(pool, "kept"), ElementsAre(0));
}

// Readers learn a writer's life. Who has no more than that cannot speak for it.
TEST(StreamFaults, OnlyItsWriterSpeaksForAStream) {
  OneServer pool;
  Writer writer(pool, "spoken", 10);
  writer.write();
  const base::Deadline deadline(patience);
  const auto record = pool.record("spoken");
  const auto channel = pool.channel_as("write");
  fb::StreamsClient client(channel);
  for (const std::string why : {"", "a lie"}) {
    fb::FinishRequestT finish;
    finish.stream = "spoken";
    finish.life = record.writer;
    finish.why = why;
    EXPECT_EQ(code_of([&] { client.start_finish(finish, {}).get(deadline); }), Errc::forbidden);
  }
  fb::AttachRequestT attach;
  attach.stream = "spoken";
  attach.life = record.writer;
  attach.address = record.address;
  attach.token.assign(32, 1);
  EXPECT_EQ(code_of([&] { client.start_attach(attach, {}).get(deadline); }), Errc::forbidden);
  channel->close();
  EXPECT_EQ(pool.record("spoken").state, 0);
  writer.write();
  writer->close(patience);
  EXPECT_EQ(pool.record("spoken").state, 1);
  EXPECT_THAT(read_all(pool, "spoken"), ElementsAre(0, 1));
}

TEST(StreamFaults, EveryRankCountsAStepThatOneGaveUp) {
  OneServer pool;
  std::vector<std::uint64_t> voided(3);
  run_thread_cohort(3, [&](std::shared_ptr<Cohort> cohort) {
    const auto writer = write_in_pool(pool.context(), "shared", cohort, pool_options());
    for (int t = 0; t < 3; ++t) {
      ASSERT_TRUE(writer->begin_step(patience));
      if (t == 1 && cohort->rank() == 1) writer->abandon_step();
      else writer->end_step();
    }
    writer->close(patience);
    voided[static_cast<std::size_t>(cohort->rank())] = writer->statistics().steps_voided;
  });
  EXPECT_THAT(voided, ElementsAre(1, 1, 1));
  EXPECT_THAT(read_from_pool(pool.context(), "shared", solo(), pool_options())->steps(), ElementsAre(0, 2));
}

TEST(StreamFaults, AStepTooLargeForTheServerIsToldToTheWriter) {
  OneServer pool(16u << 20);
  Writer writer(pool, "large", 5'000'000);
  try {
    writer.write();
    writer->close(patience);
    FAIL() << "it cannot have been kept";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("do not fit into the server's memory of"));
    EXPECT_THAT(e.what(), HasSubstr("tier"));
  }
}

TEST(StreamFaults, AStepLargerThanMemoryGoesToDiskInParts) {
  OneServer pool(48u << 20, true);
  {
    auto options = pool_options();
    options.stripe_bytes = 1u << 20;
    Writer writer(pool, "parts", 8'000'000, options);
    for (int i = 0; i < 2; ++i) writer.write();
    writer->close(patience);
  }
  const auto reader = read_from_pool(pool.context(), "parts", solo(), pool_options());
  EXPECT_THAT(reader->steps(), ElementsAre(0, 1));
}

// A server that was out of reach for a while left the view: it must not use for something else what is still read in place.
TEST(StreamFaults, AServerThatIsLetGoKeepsWhatIsReadInPlace) {
  OneServer pool;
  constexpr std::uint64_t elements = 100'000;  // one stripe
  {
    Writer writer(pool, "viewed", elements);
    writer.write();
    writer->close(patience);
  }
  const auto leases = [&] {
    std::uint64_t count = 0;
    pool.progress()->call([&] { count = pool.server().core().leases(); });
    return count;
  };
  auto reader = read_from_pool(pool.context(), "viewed", solo(), pool_options());
  ASSERT_EQ(reader->begin_step(patience), Outcome::ready);
  const auto id = reader->variable("x").id;
  {
    const auto views = reader->view(id, Selection::all());
    ASSERT_EQ(views.size(), 1u);
    EXPECT_EQ(leases(), 1u);
    const auto client = shared_client(pool.context(), "", "read", base::Deadline(patience));
    const auto channel = pool.channel(client);
    client->progress()->call([&] { channel->retire(); });  // as Members does
    std::vector<double> values(elements), expected(elements);
    reader->get(id, Selection::all(), values.data(), Order::row, {});
    reader->wait(patience);
    std::iota(expected.begin(), expected.end(), 0.0);
    EXPECT_EQ(values, expected) << "asked for again";
    EXPECT_FALSE(channel->open());
    EXPECT_EQ(leases(), 2u) << "by the new channel, and for the view";
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), views.front().as<double>().begin()));
  }
  reader->end_step();
  reader.reset();
  const base::Deadline deadline(patience);
  while (leases() > 0 && !deadline.passed()) {
  }
  EXPECT_EQ(leases(), 0u);
}

TEST(StreamFaults, DescriptionsGoWithTheirLastStep) {
  OneServer pool;
  auto options = pool_options();
  options.retain_steps = 2;
  {
    Writer writer(pool, "refined", 100, options);
    for (std::uint64_t i = 0; i < 12; ++i) {
      writer.resize(100 + i);
      writer.write();
    }
    writer->close(patience);
  }
  const auto of = [&](const char* prefix) {
    const auto columns = pool.columns("refined");
    return std::count_if(columns.begin(), columns.end(), [&](const auto& c) { return c.starts_with(prefix); });
  };
  const base::Deadline deadline(patience);
  while ((of("step/") > 2 || of("epoch/") > 2) && !deadline.passed()) {
  }
  EXPECT_EQ(of("step/"), 2);
  EXPECT_EQ(of("epoch/"), 2);
  EXPECT_THAT(read_all(pool, "refined"), ElementsAre(10, 11));
}

}  // namespace
}  // namespace penstock::pool
