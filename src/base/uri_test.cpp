#include "base/uri.hpp"

#include <gtest/gtest.h>

#include <string>

#include "penstock/error.hpp"

namespace penstock::base {
namespace {

TEST(UriTest, ReadsItsParts) {
  const StreamUri uri = parse_uri("tcp://node7.cluster:4711/heat?token=00ff");
  EXPECT_EQ(uri.host, "node7.cluster");
  EXPECT_EQ(uri.port, 4711);
  EXPECT_EQ(uri.stream, "heat");
  EXPECT_EQ(uri.token, std::string("\0\xff", 2));
}

TEST(UriTest, GoesThereAndBack) {
  const StreamUri uris[] = {
      {"127.0.0.1", 1, "heat", ""},
      {"::1", 65535, "heat", "secret"},
      {"fe80::1%eth0", 80, "a/b c?d=%", std::string("\0\x01", 2)},
      {"host", 9, "Wärme", "t"},
  };
  for (const StreamUri& uri : uris) EXPECT_EQ(parse_uri(format_uri(uri)), uri) << format_uri(uri);
  EXPECT_EQ(format_uri(uris[1]), "tcp://[::1]:65535/heat?token=736563726574");
}

TEST(UriTest, TellsAddressesFromNames) {
  EXPECT_TRUE(is_uri("tcp://h:1/s"));
  EXPECT_FALSE(is_uri("heat"));
  EXPECT_FALSE(is_uri("group/heat:2"));
}

TEST(UriTest, RefusesWhatIsWrong) {
  for (const char* bad : {
           "",
           "heat",
           "udp://h:1/s",
           "tcp://h:1",
           "tcp://h:1/",
           "tcp://:1/s",
           "tcp://h/s",
           "tcp://h:/s",
           "tcp://h:0/s",
           "tcp://h:65536/s",
           "tcp://h:x/s",
           "tcp://::1:5/s",
           "tcp://[::1]/s",
           "tcp://[::1/s",
           "tcp://[[1]:81/s",
           "tcp://[]:1/s",
           "tcp://h:1/s?tok=00",
           "tcp://h:1/s?token=",
           "tcp://h:1/s?token=0",
           "tcp://h:1/s?token=xy",
           "tcp://h:1/%zz",
           "tcp://h:1/%4",
       }) {
    try {
      parse_uri(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument) << bad;
    }
  }
}

TEST(UriTest, KeepsTheTokenOutOfErrors) {
  try {
    parse_uri("tcp://h:1/s?token=cafe5");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("cafe"), std::string::npos);
  }
}

}  // namespace
}  // namespace penstock::base
