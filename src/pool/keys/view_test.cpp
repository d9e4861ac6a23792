#include "pool/keys/view.hpp"

#include <gtest/gtest.h>

#include "penstock/error.hpp"

namespace penstock::pool {
namespace {

Member member(std::uint64_t id, ServerState state = ServerState::active) {
  return {id, "node:" + std::to_string(id), {"penstock-" + std::to_string(id), {"127.0.0.1"}, 4711}, 1, state};
}

Member since(std::uint64_t number, Member member) {
  member.since = number;
  return member;
}

Announcement announce(std::uint64_t id, std::uint64_t finished = 0, bool leaving = false) {
  return {member(id), leaving, finished};
}

View view_of(std::uint64_t number, std::vector<Member> members, bool settled, std::uint32_t replication = 2) {
  View view;
  view.number = number;
  view.settled = settled;
  view.replication = replication;
  view.members = std::move(members);
  return view;
}

View after_losses(std::uint64_t losses, View view) {
  view.losses = losses;
  return view;
}

void expect_view_refused(const std::string& text) {
  try {
    view_from_json(text);
    ADD_FAILURE() << "taken: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::protocol) << text;
  }
}

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what << " in " << text;
  return text.replace(at, what.size(), with);
}

TEST(View, JsonBothWays) {
  View view = view_of(7, {member(3), member(~std::uint64_t{0}, ServerState::draining)}, false);
  view.members[0].weight = 5;
  EXPECT_EQ(view_from_json(to_json(view)), view);
  EXPECT_EQ(view_from_json(to_json(View{})), View{});
  const Announcement said{member(9), true, 12};
  const Announcement heard = announcement_from_json(to_json(said));
  EXPECT_EQ(heard.member, said.member);
  EXPECT_TRUE(heard.leaving);
  EXPECT_EQ(heard.finished_view, 12u);
}

TEST(View, NamesThatAreNoTextAreStillWritten) {
  View view = view_of(1, {member(1)}, true);
  view.members[0].name = "node\xff";
  EXPECT_EQ(view_from_json(to_json(view)).members.size(), 1u);
}

TEST(View, WhatIsNoView) {
  const std::string good = to_json(view_of(7, {member(3), member(4)}, true));
  EXPECT_NO_THROW(view_from_json(good));
  for (const char* text : {"", "{", "[]", "null", "{}", "7"}) expect_view_refused(text);
  expect_view_refused(replaced(good, "\"number\":7", "\"number\":-7"));
  expect_view_refused(replaced(good, "\"number\":7", "\"number\":7.5"));
  expect_view_refused(replaced(good, "\"number\":7", "\"number\":\"7\""));
  expect_view_refused(replaced(good, "\"number\":7", "\"number\":1e40"));
  expect_view_refused(replaced(good, "\"tcp_port\":4711", "\"tcp_port\":1e40"));
  expect_view_refused(replaced(good, "\"settled\":true", "\"settled\":1"));
  expect_view_refused(replaced(good, "\"replication\":2", "\"replication\":0"));
  expect_view_refused(replaced(good, "\"replication\":2", "\"replication\":9"));
  expect_view_refused(replaced(good, "\"weight\":1", "\"weight\":0"));
  expect_view_refused(replaced(good, "\"weight\":1", "\"weight\":100000"));
  expect_view_refused(replaced(good, "\"state\":\"active\"", "\"state\":\"asleep\""));
  expect_view_refused(replaced(good, "\"id\":3", "\"id\":0"));
  expect_view_refused(replaced(good, "\"id\":3", "\"id\":4"));  // twice
  expect_view_refused(replaced(good, "\"id\":3", "\"id\":5"));  // not in order
  expect_view_refused(replaced(good, "\"version\":1", "\"version\":2"));
  expect_view_refused(std::string(std::size_t{5} << 20, ' '));
}

TEST(View, FindsMembersById) {
  const View view = view_of(1, {member(3), member(5)}, true);
  EXPECT_EQ(view.find(5)->name, "node:5");
  EXPECT_EQ(view.find(4), nullptr);
  EXPECT_EQ(view.find(6), nullptr);
}

TEST(NextView, TheFirstServersCome) {
  const View first = next_view({}, {announce(5), announce(3)}, 2);
  EXPECT_EQ(first, view_of(1, {since(1, member(3)), since(1, member(5))}, false));
  EXPECT_EQ(next_view(first, {announce(5), announce(3)}, 2), first);
}

TEST(NextView, SettlesWhenAllHaveFinishedThisView) {
  const View present = view_of(4, {member(1), member(2)}, false);
  EXPECT_EQ(next_view(present, {announce(1, 4), announce(2, 3)}, 2), present);
  EXPECT_EQ(next_view(present, {announce(1, 4), announce(2, 4)}, 2), view_of(5, {member(1), member(2)}, true));
  const View settled = view_of(5, {member(1), member(2)}, true);
  EXPECT_EQ(next_view(settled, {announce(1, 4), announce(2, 4)}, 2), settled);
}

TEST(NextView, AServerJoins) {
  const View present = view_of(4, {member(1), member(3)}, true);
  EXPECT_EQ(next_view(present, {announce(1, 4), announce(2), announce(3, 4)}, 2),
            view_of(5, {member(1), since(5, member(2)), member(3)}, false));
}

TEST(NextView, AServerDies) {
  const View present = view_of(4, {member(1), member(2)}, true);
  const View without = next_view(present, {announce(2, 4)}, 2);
  EXPECT_EQ(without, after_losses(1, view_of(5, {member(2)}, false)));
  // It stood still, and comes back as it was.
  EXPECT_EQ(next_view(without, {announce(1, 4), announce(2, 5)}, 2),
            after_losses(1, view_of(6, {since(6, member(1)), member(2)}, false)));
}

TEST(NextView, ADrainedServerGoesInThreeSteps) {
  View view = view_of(4, {member(1), member(2)}, true);
  view = next_view(view, {announce(1, 4), announce(2, 4, true)}, 2);
  EXPECT_EQ(view, view_of(5, {member(1), member(2, ServerState::draining)}, false));
  EXPECT_EQ(next_view(view, {announce(1, 5), announce(2, 4, true)}, 2), view);  // it has not passed on all
  view = next_view(view, {announce(1, 5), announce(2, 5, true)}, 2);
  EXPECT_EQ(view, view_of(6, {member(1), member(2, ServerState::draining)}, true));
  view = next_view(view, {announce(1, 5), announce(2, 5, true)}, 2);
  EXPECT_EQ(view, view_of(7, {member(1)}, true));
  EXPECT_EQ(next_view(view, {announce(1, 5), announce(2, 5, true)}, 2), view);  // still about to end
}

TEST(NextView, ADrainingServerThatDiesUnsettles) {
  const View present = view_of(5, {member(1), member(2, ServerState::draining)}, false);
  EXPECT_EQ(next_view(present, {announce(1, 5)}, 2), after_losses(1, view_of(6, {member(1)}, false)));
}

TEST(NextView, ADrainingServerMayThinkBetterOfIt) {
  const View present = view_of(5, {member(1), member(2, ServerState::draining)}, false);
  EXPECT_EQ(next_view(present, {announce(1, 4), announce(2, 4)}, 2), view_of(6, {member(1), member(2)}, false));
}

TEST(NextView, ANewProcessOfAServerHasLostItsMemory) {
  const View present = view_of(4, {member(1), member(2)}, true);
  Announcement again = announce(2);
  again.member.endpoint.unix_name = "penstock-2-again";
  const View next = next_view(present, {announce(1, 4), again}, 2);
  EXPECT_EQ(next.number, 5u);
  EXPECT_FALSE(next.settled);
  EXPECT_EQ(next.members[1].endpoint.unix_name, "penstock-2-again");
}

TEST(NextView, AnotherReplicationUnsettles) {
  const View present = view_of(4, {member(1), member(2)}, true, 1);
  EXPECT_EQ(next_view(present, {announce(1, 4), announce(2, 4)}, 2), view_of(5, {member(1), member(2)}, false, 2));
}

TEST(NextView, AServerThatComesToLeaveIsNotTaken) {
  const View present = view_of(4, {member(1)}, true);
  EXPECT_EQ(next_view(present, {announce(1, 4), announce(2, 0, true)}, 2), present);
}

TEST(NextView, ADirectoryThatForgotAllSaysNothing) {
  const View present = view_of(4, {member(1)}, true);
  EXPECT_EQ(next_view(present, {}, 2), present);
}

TEST(NextView, WhenAllLeaveTheLastStaysActive) {
  const auto draining = ServerState::draining;
  const View alone = view_of(4, {member(1)}, true);
  EXPECT_EQ(next_view(alone, {announce(1, 4, true)}, 2), alone);
  View view = view_of(4, {member(1), member(2), member(3)}, true);
  view = next_view(view, {announce(1, 4, true), announce(2, 4, true), announce(3, 4, true)}, 2);
  EXPECT_EQ(view, view_of(5, {member(1, draining), member(2, draining), member(3)}, false));
  view = next_view(view, {announce(1, 5, true), announce(2, 5, true), announce(3, 5, true)}, 2);
  EXPECT_EQ(view, view_of(6, {member(1, draining), member(2, draining), member(3)}, true));
  view = next_view(view, {announce(1, 5, true), announce(2, 5, true), announce(3, 5, true)}, 2);
  EXPECT_EQ(view, view_of(7, {member(3)}, true));
  // One that is active is the last, whoever has the highest id: the other has handed on to it.
  view = view_of(4, {member(1), member(2, draining)}, true);
  EXPECT_EQ(next_view(view, {announce(1, 4, true), announce(2, 4, true)}, 2), view_of(5, {member(1)}, true));
}

TEST(NextView, ADrainingServerIsActiveAgainWhenNobodyElseIsLeft) {
  const View present = view_of(5, {member(1), member(2, ServerState::draining)}, false);
  const View next = next_view(present, {announce(2, 5, true)}, 2);
  EXPECT_EQ(next, after_losses(1, view_of(6, {member(2)}, false)));
  const View back = next_view(next, {announce(1), announce(2, 6, true)}, 2);
  EXPECT_EQ(back, after_losses(1, view_of(7, {since(7, member(1)), member(2, ServerState::draining)}, false)));
}

}  // namespace
}  // namespace penstock::pool
