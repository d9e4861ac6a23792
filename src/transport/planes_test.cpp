#include "transport/planes.hpp"

#include <gtest/gtest.h>

#include "base/test_support.hpp"
#include "fabric/listener.hpp"

namespace penstock::transport {
namespace {

const fabric::Endpoint gone{.unix_name = "penstock-gone", .tcp_hosts = {"127.0.0.1"}, .tcp_port = 1};

TEST(Planes, TheBestThatReachesAll) {
  const auto progress = fabric::Progress::create();
  const fabric::Listener here(*progress, fabric::Token::random(), "heat", "127.0.0.1", [](auto, const auto&) {});
  const std::vector<std::string> near{addresses_of(here.endpoint()), addresses_of(here.endpoint())};
  const std::vector<std::string> mixed{addresses_of(here.endpoint()), addresses_of(gone)};
  auto choice = choose_plane(near);
  ASSERT_NE(choice.plane, nullptr);
  EXPECT_EQ(choice.plane->name, "shm");
  EXPECT_EQ(choice.addresses, std::vector(2, choice.plane->address(here.endpoint())));
  EXPECT_EQ(choose_plane(near, "tcp").plane->name, "tcp");
  EXPECT_EQ(choose_plane(mixed).plane->name, "tcp");
}

TEST(Planes, NoneSaysWhomItDoesNotReach) {
  const auto progress = fabric::Progress::create();
  const fabric::Listener here(*progress, fabric::Token::random(), "heat", "127.0.0.1", [](auto, const auto&) {});
  const std::vector<std::string> said{addresses_of(here.endpoint()), addresses_of(gone), addresses_of(gone)};
  const auto choice = choose_plane(said, "shm");
  EXPECT_EQ(choice.plane, nullptr);
  EXPECT_EQ(choice.unreached, 1u);
  EXPECT_TRUE(choice.has_address);
  const std::vector<std::string> only{addresses_of(here.endpoint(), "tcp")};
  EXPECT_EQ(choose_plane(only).plane->name, "tcp");
  EXPECT_EQ(choose_plane(only, "shm").plane, nullptr);
  EXPECT_FALSE(choose_plane(only, "shm").has_address);
  EXPECT_EQ(choose_plane(only, "other").plane, nullptr);
}

TEST(Planes, NonsenseIsRefused) {
  for (const char* said : {"7", "\t", "shm", "shm x", "tcp {}", "other x\tshm {}"}) {
    const std::vector<std::string> all{said};
    EXPECT_EQ(code_of([&] { choose_plane(all); }), Errc::protocol) << said;
  }
}

}  // namespace
}  // namespace penstock::transport
