#include "fabric/registration.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <vector>

#include "base/test_support.hpp"
#include "fabric/listener.hpp"
#include "penstock/error.hpp"

namespace penstock::fabric {
namespace {

namespace fs = std::filesystem;

class RegistrationTest : public ::testing::Test {
 protected:
  static Registration sample(const std::string& stream) {
    Registration registration;
    registration.stream = stream;
    registration.endpoint = {.unix_name = "penstock-nobody", .tcp_hosts = {"127.0.0.1"}, .tcp_port = 1};
    registration.token = Token::random();
    registration.pid = 42;
    registration.host = "node1";
    registration.ranks = 3;
    registration.started = 1'700'000'000;
    return registration;
  }
  SilentLog silent;
  TestFolder root;
  Directory directory{root / "deep/streams"};
};

TEST_F(RegistrationTest, WritesReadsListsAndRemoves) {
  EXPECT_FALSE(directory.read("heat"));
  EXPECT_TRUE(directory.list().empty());
  const Registration heat = sample("heat");
  directory.write(heat);
  directory.write(sample("a.b_c-1"));
  const auto found = directory.read("heat");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->endpoint, heat.endpoint);
  EXPECT_EQ(found->token, heat.token);
  EXPECT_EQ(found->pid, 42);
  EXPECT_EQ(found->host, "node1");
  EXPECT_EQ(found->ranks, 3u);
  EXPECT_EQ(found->started, heat.started);
  EXPECT_FALSE(alive(*found));
  const auto all = directory.list();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].stream, "a.b_c-1");
  directory.remove(sample("heat"));  // not this one: another token
  EXPECT_TRUE(directory.read("heat"));
  directory.remove(heat);
  EXPECT_FALSE(directory.read("heat"));
  directory.remove(heat);
}

TEST_F(RegistrationTest, FilesAreForTheirOwnerOnly) {
  directory.write(sample("heat"));
  struct stat status {};
  ASSERT_EQ(::stat(directory.path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  const std::string file = directory.path() + "/heat.json";
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(directory.path())) ++files;
  EXPECT_EQ(files, 1u);  // no temporary file stays

  ::chmod(file.c_str(), 0644);
  EXPECT_EQ(code_of([&] { directory.read("heat"); }), Errc::authentication);
  EXPECT_TRUE(directory.list().empty());
  ::chmod(file.c_str(), 0600);
  ::chmod(directory.path().c_str(), 0755);
  EXPECT_EQ(code_of([&] { directory.read("heat"); }), Errc::authentication);
  EXPECT_EQ(code_of([&] { directory.write(sample("x")); }), Errc::authentication);
}

TEST_F(RegistrationTest, NonsenseFilesAreRefusedOneByOne) {
  directory.write(sample("heat"));
  for (const char* text : {"", "{", "[]", "{\"version\": 1}", "{\"version\": 2}"}) {
    std::ofstream(directory.path() + "/bad.json") << text;
    ::chmod((directory.path() + "/bad.json").c_str(), 0600);
    EXPECT_EQ(code_of([&] { directory.read("bad"); }), Errc::protocol) << text;
    EXPECT_EQ(directory.list().size(), 1u);
  }
  fs::create_symlink(directory.path() + "/heat.json", directory.path() + "/link.json");
  EXPECT_EQ(code_of([&] { directory.read("link"); }), Errc::system);
  directory.write(sample("bad"));  // what is no registration may be replaced
  EXPECT_TRUE(directory.read("bad"));
}

TEST_F(RegistrationTest, NumbersThatDoNotFitAreRefused) {
  const auto text_with = [this](const std::string& name, const std::string& number) {
    const std::string text = registration_text(sample("heat"));
    const auto at = text.find("\"" + name + "\": ") + name.size() + 4;
    return std::string(text).replace(at, text.find_first_of(",\n", at) - at, number);
  };
  EXPECT_EQ(registration_from_text(text_with("tcp_port", "65535"), "here").endpoint.tcp_port, 65535);
  EXPECT_EQ(registration_from_text(text_with("pid", "-7"), "here").pid, -7);
  for (const char* name : {"tcp_port", "ranks", "pid", "started", "version"})
    for (const char* number : {"1e40", "1.5", "\"1\"", "null", "18446744073709551616", "9223372036854775808"})
      EXPECT_EQ(code_of([&] { registration_from_text(text_with(name, number), "here"); }), Errc::protocol)
          << name << " " << number;
  for (const char* number : {"-1", "65536"})
    EXPECT_EQ(code_of([&] { registration_from_text(text_with("tcp_port", number), "here"); }), Errc::protocol);
}

TEST_F(RegistrationTest, OfSeveralWritersAtOnceOneGetsTheName) {
  constexpr int writers = 6;
  Progress progress;
  directory.write(sample("heat"));  // a dead one, which one of them replaces
  for (int round = 0; round < 20; ++round) {
    std::vector<Registration> mine(writers, sample("heat"));
    std::vector<std::unique_ptr<Listener>> listeners;
    for (auto& one : mine) {
      one.token = Token::random();
      listeners.push_back(std::make_unique<Listener>(progress, one.token, "heat", "127.0.0.1",
                                                     [](std::shared_ptr<Connection>, const wire::Hello&) {}));
      one.endpoint = listeners.back()->endpoint();
    }
    std::vector<std::future<Errc>> writing;
    for (const auto& one : mine)
      writing.push_back(std::async(std::launch::async, [&] { return code_of([&] { directory.write(one); }); }));
    std::vector<Errc> came;
    for (auto& one : writing) came.push_back(one.get());
    const auto first = static_cast<std::size_t>(std::ranges::find(came, Errc::ok) - came.begin());
    EXPECT_EQ(std::ranges::count(came, Errc::ok), 1);
    EXPECT_EQ(std::ranges::count(came, Errc::wrong_state), writers - 1);
    ASSERT_LT(first, mine.size());
    EXPECT_EQ(directory.read("heat")->token, mine[first].token);
    if (round % 2 == 0) directory.remove(mine[first]);
  }
}

TEST_F(RegistrationTest, ALiveWriterKeepsItsName) {
  Progress progress;
  Registration mine = sample("heat");
  {
    Listener listener(progress, mine.token, "heat", "127.0.0.1",
                      [](std::shared_ptr<Connection>, const wire::Hello&) {});
    mine.endpoint = listener.endpoint();
    directory.write(mine);
    EXPECT_TRUE(alive(mine));
    directory.write(mine);  // the same again
    EXPECT_EQ(code_of([&] { directory.write(sample("heat")); }), Errc::wrong_state);
  }
  EXPECT_FALSE(alive(mine));
  directory.write(sample("heat"));
}

TEST_F(RegistrationTest, StreamNames) {
  for (const char* good : {"a", "heat", "A.b_c-9", "..."})
    EXPECT_EQ(code_of([&] { check_stream_name(good); }), Errc::ok);
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("a b"),
        std::string("\xc3\xa9"), std::string(129, 'a'), std::string("a\0b", 3)})
    EXPECT_EQ(code_of([&] { check_stream_name(bad); }), Errc::invalid_argument) << bad;
}

TEST_F(RegistrationTest, AddressesRoundTrip) {
  const Registration heat = sample("heat");
  const std::string address = to_address(heat);
  EXPECT_EQ(address, "tcp://127.0.0.1:1/heat?token=" + heat.token.hex());
  EXPECT_TRUE(is_address(address));
  EXPECT_FALSE(is_address("heat"));
  const Registration parsed = parse_address(address);
  EXPECT_EQ(parsed.stream, "heat");
  EXPECT_EQ(parsed.token, heat.token);
  EXPECT_EQ(parsed.endpoint.tcp_hosts, heat.endpoint.tcp_hosts);
  EXPECT_EQ(parsed.endpoint.tcp_port, 1);
  for (const char* bad : {"tcp://host:1/heat", "tcp://host:1/heat?token=ab", "tcp://host/heat", "tcp://:1/", "tcp://"})
    EXPECT_EQ(code_of([&] { parse_address(bad); }), Errc::invalid_argument) << bad;
}

TEST_F(RegistrationTest, DirectoryIsResolvedFromTheEnvironment) {
  EXPECT_EQ(resolve_directory("/x"), "/x");
  const char* before = std::getenv("PENSTOCK_DIRECTORY");
  const std::string saved = before == nullptr ? "" : before;
  ::setenv("PENSTOCK_DIRECTORY", "/y", 1);
  EXPECT_EQ(resolve_directory(""), "/y");
  if (before == nullptr) ::unsetenv("PENSTOCK_DIRECTORY");
  else ::setenv("PENSTOCK_DIRECTORY", saved.c_str(), 1);
}

}  // namespace
}  // namespace penstock::fabric
