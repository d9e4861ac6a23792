// Streams that register with a directory service: an embedded one in this process, and the public API over it.
#include "stream/api/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/test_support.hpp"
#include "directory/open.hpp"
#include "directory/server.hpp"
#include "fabric/task.hpp"
#include "penstock/error.hpp"
#include "penstock/stream.hpp"
#include "stream/api/engine.hpp"

namespace penstock::stream {
namespace {

using base::Deadline;
using testing::HasSubstr;

const Deadline soon{Timeout(20'000)};

fabric::Registration of_nobody(const std::string& stream) {
  fabric::Registration registration;
  registration.stream = stream;
  registration.endpoint.tcp_hosts = {"127.0.0.1"};
  registration.endpoint.tcp_port = 1;  // nobody listens there
  registration.token = fabric::Token::random();
  registration.host = "somewhere";
  registration.ranks = 2;
  return registration;
}

class StreamRegistry : public testing::Test {
 protected:
  std::shared_ptr<fabric::Progress> progress_ = fabric::Progress::create();
  directory::DirectoryHost host_{progress_, directory::DirectoryServerOptions{}, "127.0.0.1", ""};
  std::unique_ptr<Registry> registry_ = open_registry(progress_, host_.address());
};

TEST_F(StreamRegistry, KeepsWhatWasWrittenUntilItIsRemoved) {
  const auto registration = of_nobody("flow");
  EXPECT_FALSE(registry_->read("flow", soon));
  registry_->write(registration, soon);
  const auto other = open_registry(progress_, host_.address());
  const auto found = other->read("flow", soon);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->token, registration.token);
  EXPECT_EQ(found->endpoint.tcp_port, 1);
  EXPECT_EQ(found->ranks, 2u);
  registry_->remove(registration);
  EXPECT_FALSE(other->read("flow", soon));
}

TEST_F(StreamRegistry, DoesNotRemoveAnothersEntry) {
  const auto first = of_nobody("flow"), second = of_nobody("flow");
  registry_->write(first, soon);
  const auto other = open_registry(progress_, host_.address());
  other->write(second, soon);  // the first does not answer: it is dead
  registry_->remove(first);
  const auto found = other->read("flow", soon);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->token, second.token);
}

TEST_F(StreamRegistry, ListsByNameAndLeavesOutWhatIsNone) {
  std::vector<std::unique_ptr<Registry>> writers;
  for (const char* name : {"b", "a", "c.d-1"}) {
    writers.push_back(open_registry(progress_, host_.address()));
    writers.back()->write(of_nobody(name), soon);
  }
  std::vector<std::string> names;
  for (const auto& r : registry_->list(soon)) names.push_back(r.stream);
  EXPECT_THAT(names, testing::ElementsAre("a", "b", "c.d-1"));
}

TEST_F(StreamRegistry, SaysWhoDoesNotAnswer) {
  const auto nowhere = of_nobody("directory");
  const auto registry = open_registry(progress_, fabric::to_address(nowhere));
  EXPECT_THAT(registry->describe(), testing::Not(HasSubstr(nowhere.token.hex())));
  EXPECT_THAT(code_of([&] { registry->read("flow", Deadline(Timeout(50))); }),
              testing::AnyOf(Errc::timeout, Errc::peer_lost));
  EXPECT_EQ(code_of([&] { open_registry(progress_, "gopher://host"); }), Errc::invalid_argument);
}

// As when the directory could not be reached for longer than the lease lasts.
TEST_F(StreamRegistry, ComesBackWhenItsLeaseWasLost) {
  registry_->write(of_nobody("flow"), soon);
  const auto directory = directory::open_directory(progress_, host_.address(), "");
  const auto entry = fabric::run_task(*progress_, directory->get("/streams/flow", soon), soon);
  ASSERT_TRUE(entry);
  fabric::run_task(*progress_, directory->revoke(entry->lease, soon), soon);
  std::optional<directory::DirectoryEntry> again;
  while (!soon.passed() && (!again || again->lease == entry->lease))
    again = fabric::run_task(*progress_, directory->get("/streams/flow", soon), soon);
  ASSERT_TRUE(again);
  EXPECT_NE(again->lease, entry->lease);
}

TEST_F(StreamRegistry, CarriesAStreamFromItsWriterToItsReader) {
  ContextOptions options;
  options.directory = host_.address();
  Context writers(options), readers(options);
  StreamOptions direct;
  direct.rendezvous_readers = 0;
  auto writer = writers.create_stream("flow", solo(), direct);
  const auto entries = readers.list_streams();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].name, "flow");
  EXPECT_TRUE(entries[0].alive);
  EXPECT_THAT(readers.inspect("flow", Timeout(20'000)), HasSubstr("flow"));
  // A second live writer of the name is refused, and the first is unharmed.
  EXPECT_EQ(code_of([&] { writers.create_stream("flow", solo(), direct); }), Errc::wrong_state);
  auto reader = readers.open_stream("flow", solo(), direct);
  reader.close();
  writer.close();
  EXPECT_TRUE(readers.list_streams().empty());
}

}  // namespace
}  // namespace penstock::stream
