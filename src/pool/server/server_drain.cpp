// An administrator's drain: this server hands on every object and leaves. It ends by itself only when nothing is left to hand
// on, or when that cannot be done; then the server is an active member again. A view with this server active is one more change
// of view: nothing is let go before it has settled, so nothing is lost whenever a drain ends.
#include "base/log.hpp"
#include "base/text.hpp"
#include "pool/server/server_core.hpp"

namespace penstock::pool {
namespace {

constexpr Timeout drain_check_period(1000);
constexpr Timeout directory_within(5000);

std::string amount_text(const ServerCore::Amount& amount) {
  return std::to_string(amount.objects) + " objects (" + base::format_size(amount.bytes) + ")";
}

}  // namespace

bool ServerCore::is_draining() const {
  return drain_.state == DrainState::handing_on || drain_.state == DrainState::handed_on;
}

bool ServerCore::others_active() const {
  const auto placement = members_->placement();
  if (!placement) return false;
  for (const auto& member : placement->view().members)
    if (member.id != options_.id && member.state == ServerState::active) return true;
  return false;
}

void ServerCore::begin_drain(std::function<void()> left) {
  if (is_draining()) return;
  if (stopping_ || leaving_) throw Error(Errc::wrong_state, "server " + options_.name + " is ending already");
  to_pass_on_ = {store_->table().size(), store_->table().bytes()};
  if (!others_active())
    throw Error(Errc::wrong_state, "server " + options_.name + " is the only active server of pool " + options_.pool +
                                       ": nobody can take over its " + amount_text(to_pass_on_));
  drain_ = {};
  drain_.state = DrainState::handing_on;
  base::log(base::Level::info, "draining", {{"pool", options_.pool}, {"objects", to_pass_on_.objects}});
  fabric::spawn(*progress_, drain(++drain_number_, std::move(left)));
}

Task<void> ServerCore::drain(std::uint64_t number, std::function<void()> left) {
  auto self = shared_from_this();
  const Background background(*this);
  auto leases_lost = leases_lost_;
  while (drain_number_ == number && is_draining() && !stopping_) {
    const auto placement = members_->placement();
    const auto* me = placement->view().find(options_.id);
    if (me && !leaving_) {
      leaving_ = true;
      leases_lost = leases_lost_;
      changed_->notify_all();
    } else if (me && me->state == ServerState::draining && placement->view().settled) {
      end_drain(DrainState::handed_on, "");
    } else if (me && me->state == ServerState::active && !others_active()) {
      end_drain(DrainState::failed, "no other server of the pool is active");
      co_return;
    } else if (!me && leaving_) {
      bool in_order = drain_.state == DrainState::handed_on;
      if (!in_order) {
        const Deadline soon(directory_within);
        try {
          in_order = co_await left_in_order(leases_lost, soon);
        } catch (const Error&) {  // without the directory this server does not know; it joins again
        }
      }
      if (drain_number_ != number) co_return;
      if (in_order) {
        end_drain(DrainState::left, "");
        left();
        co_return;
      }
      // It was taken for dead, and has not handed on what it has: it joins again, and begins anew.
      leaving_ = false;
      changed_->notify_all();
    }
    const Deadline soon(drain_check_period);
    co_await drain_moved_->wait(soon);
  }
}

void ServerCore::end_drain(DrainState state, std::string why) {
  drain_.left = state == DrainState::failed ? to_pass_on_ : Amount{};
  drain_.state = state;
  drain_.why = std::move(why);
  if (state == DrainState::failed) {
    base::log(base::Level::warn, "the drain has failed; the server stays in the pool",
              {{"pool", options_.pool}, {"left", amount_text(drain_.left)}, {"why", drain_.why}});
    leaving_ = false;
    changed_->notify_all();
  }
  drain_moved_->notify_all();
}

void ServerCore::cancel_drain(const std::string& why) {
  if (drain_.state == DrainState::handed_on || drain_.state == DrainState::left)
    throw Error(Errc::wrong_state, "server " + options_.name + " has handed everything on, and is leaving the pool");
  if (drain_.state != DrainState::handing_on)
    throw Error(Errc::wrong_state, "server " + options_.name + " is not being drained");
  ++drain_number_;
  end_drain(DrainState::failed, why);
}

// This server's objects do not become fewer.
void ServerCore::drain_stalled(const Error& error) {
  if (drain_.state != DrainState::handing_on || !leaving_) return;
  ++drain_number_;
  end_drain(DrainState::failed, error.what());
}

ServerCore::DrainStatus ServerCore::drain_status() const {
  auto status = drain_;
  if (status.state != DrainState::handing_on) return status;
  status.left = to_pass_on_;
  const auto placement = members_->placement();
  if (placement && finished_view_ >= placement->view().number)
    for (const auto& [path, other] : announced_)
      if (other.member.id != options_.id && other.finished_view < placement->view().number)
        status.awaits.push_back(other.member.name);
  return status;
}

Task<void> ServerCore::drain_moved(Deadline deadline) {
  auto self = shared_from_this();
  co_await drain_moved_->wait(deadline);
}

}  // namespace penstock::pool
