// Memory that is withdrawn while a peer reads it: its owner is let go when the peer has done so, and nobody waits for that.
#include "transport/bulk_exposures.hpp"

#include <gtest/gtest.h>

namespace penstock::transport {
namespace {

class ExposuresTest : public testing::Test {
 protected:
  using State = std::shared_ptr<Exposure::State>;
  State expose_shared() { return exposures_->add(buffer_.span(), Access::read, buffer_.state(), leases_, owner_); }
  long owners() const { return owner_.use_count(); }

  const std::shared_ptr<Exposures> exposures_ = std::make_shared<Exposures>();
  const std::shared_ptr<Leases> leases_ = std::make_shared<Leases>();
  BulkBuffer buffer_ = BulkBuffer::allocate(1 << 16);
  std::shared_ptr<const void> owner_ = std::make_shared<int>();
};

TEST_F(ExposuresTest, WhatNobodyUsesIsLetGoAtOnce) {
  auto state = expose_shared();
  EXPECT_EQ(owners(), 2);
  exposures_->withdraw(std::move(state));
  EXPECT_EQ(owners(), 1);
}

TEST_F(ExposuresTest, WhatAPeerCopiesIsKeptUntilItHas) {
  auto state = expose_shared();
  const auto lease = state->lease;
  ASSERT_TRUE(leases_->enter(lease));
  exposures_->withdraw(std::move(state));
  EXPECT_EQ(owners(), 2);
  EXPECT_FALSE(leases_->enter(lease));
  exposures_->withdraw(expose_shared());  // looks again
  EXPECT_EQ(owners(), 2);
  leases_->leave(lease);
  exposures_->withdraw(expose_shared());
  EXPECT_EQ(owners(), 1);
}

TEST_F(ExposuresTest, WhatAPeerNeverLetsGoEndsWithIt) {
  auto state = expose_shared();
  ASSERT_TRUE(leases_->enter(state->lease));
  exposures_->withdraw(std::move(state));
  exposures_->end();
  EXPECT_EQ(owners(), 1);
}

TEST_F(ExposuresTest, WhatTheNetworkHoldsIsKeptUntilItIsReleased) {
  std::vector<std::byte> plain(1000);
  auto state = exposures_->add(plain, Access::read, nullptr, nullptr, owner_);
  wire::DataRequest request;
  request.region = state->descriptor.id;
  auto region = exposures_->open(request, false);
  ASSERT_TRUE(region->hold());
  exposures_->withdraw(std::move(state));
  EXPECT_EQ(region->state(), Errc::invalid_argument);
  EXPECT_EQ(owners(), 2);
  region->release();
  region.reset();
  EXPECT_EQ(owners(), 1);
}

}  // namespace
}  // namespace penstock::transport
