#include "fabric/guest_table.hpp"

#include <gtest/gtest.h>

namespace penstock::fabric {
namespace {

using base::Clock;

const Source own{true, "user 1"}, stranger{false, "user 2"}, near{false, "10.0.0.1"}, far{false, "10.0.0.2"};

class GuestTableTest : public ::testing::Test {
 protected:
  // Enters a guest and removes who leaves for it; 0: nobody.
  GuestTable::Id enter(const Source& source) {
    const auto leaves = table.add(++last, source, now);
    if (leaves) table.remove(*leaves);
    return leaves.value_or(0);
  }
  GuestTable table{4};
  Clock::time_point now = Clock::now();
  GuestTable::Id last = 0;
};

TEST_F(GuestTableTest, ASourceThatFloodsDisplacesItsOwnOldest) {
  enter(far);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(enter(near), 0u);
  EXPECT_EQ(enter(near), 2u);
  EXPECT_EQ(enter(near), 3u);
  EXPECT_EQ(enter(far), 4u);  // near still has the most
  EXPECT_EQ(table.size(), 4u);
}

TEST_F(GuestTableTest, WhoAnswersIsDisplacedAfterTheSilent) {
  for (int i = 0; i < 4; ++i) enter(near);
  table.set_answering(1, true);
  EXPECT_EQ(enter(near), 2u);
  table.set_answering(1, false);
  EXPECT_EQ(enter(near), 1u);
}

TEST_F(GuestTableTest, WhoAnswersHasTimeUnlessAnotherSourceComes) {
  for (int i = 0; i < 4; ++i) {
    enter(near);
    table.set_answering(last, true);
  }
  EXPECT_EQ(enter(near), 5u);  // the newcomer
  EXPECT_EQ(enter(far), 1u);
  table.remove(last);
  enter(near);
  now += GuestTable::answer_time;
  table.set_answering(last, true);
  EXPECT_EQ(enter(near), 2u);
}

TEST_F(GuestTableTest, TheOwnUserHasPlacesOfItsOwn) {
  for (int i = 0; i < 4; ++i) enter(i % 2 == 0 ? stranger : near);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(enter(own), 0u);
  EXPECT_EQ(enter(stranger), 1u);
  EXPECT_EQ(enter(own), 5u);
  EXPECT_EQ(table.size(), 8u);
}

TEST_F(GuestTableTest, WithoutDescriptorsTheSilentGoAndOthersFirst) {
  EXPECT_FALSE(table.expendable(now));
  enter(own);
  enter(near);
  enter(near);
  table.set_answering(2, true);
  EXPECT_EQ(table.expendable(now), 3u);
  table.remove(3);
  EXPECT_EQ(table.expendable(now), 1u);
  table.remove(1);
  EXPECT_FALSE(table.expendable(now));
  EXPECT_EQ(table.expendable(now + GuestTable::answer_time), 2u);
}

}  // namespace
}  // namespace penstock::fabric
