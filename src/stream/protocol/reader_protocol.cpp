#include "stream/protocol/reader_protocol.hpp"

#include <algorithm>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::stream {

using wire::Kind;
using wire::Message;

ReaderProtocol::ReaderProtocol(std::uint32_t rank, std::uint32_t ranks, std::uint32_t writer_ranks, std::uint32_t slots,
                               bool demand, Sink& sink, std::uint32_t fan_out)
    : rank_(rank),
      writer_ranks_(writer_ranks),
      demand_(demand),
      sink_(sink),
      first_child_(first_child(rank, fan_out)),
      children_(child_count(rank, ranks, fan_out)),
      announced_(slots + 1),
      pending_(slots),
      leaves_left_(1 + children_),
      child_left_(children_),
      child_has_ranks_below_(children_) {
  for (auto& p : pending_) p.given.resize(1 + children_);
  for (std::uint32_t c = 0; c < children_; ++c)
    child_has_ranks_below_[c] = child_count(first_child_ + c, ranks, fan_out) > 0;
}

void ReaderProtocol::send_down(const Message& message) {
  for (std::uint32_t c = 0; c < children_; ++c)
    if (!child_left_[c]) sink_.send(first_child_ + c, message);
}

// ------------------------------------------------------------------------------------------------------------- steps

std::shared_ptr<const EpochBlobs> ReaderProtocol::known(std::uint64_t epoch) const {
  for (const auto& e : epochs_)
    if (e->number == epoch) return e;
  return nullptr;
}

std::optional<ReaderProtocol::Step> ReaderProtocol::take() {
  if (announced_.empty()) return std::nullopt;
  auto epoch = known(announced_.front().epoch);
  if (!epoch) return std::nullopt;  // announced through a ring, described on a socket that is slower
  const auto next = announced_.pop();
  ++taken_;
  return Step{next.step, next.slot, std::move(epoch)};
}

void ReaderProtocol::want() {
  if (demand_ && announced_.empty()) forward_want(taken_);
}

void ReaderProtocol::forward_want(std::uint64_t index) {
  if (index < wanted_ || index < announced_total_ || lost()) return;
  wanted_ = index + 1;
  sink_.send(parent_link, Message{.kind = Kind::want, .step = index});
}

void ReaderProtocol::release(std::uint64_t step, std::uint32_t slot) { contribute(own, step, slot); }

void ReaderProtocol::contribute(std::uint32_t who, std::uint64_t step, std::uint32_t slot) {
  if (slot >= pending_.size() || pending_[slot].step != step || pending_[slot].remaining == 0 ||
      pending_[slot].given[who])
    throw Error(Errc::protocol, "release of step " + std::to_string(step) + ", which is not held");
  give(who, slot);
}

void ReaderProtocol::give(std::uint32_t who, std::uint32_t slot) {
  auto& pending = pending_[slot];
  pending.given[who] = true;
  if (--pending.remaining > 0) return;
  pending.owed = lost() && !all_left();
  if (!pending.owed) sink_.send(parent_link, Message{.kind = Kind::release, .step = pending.step, .slot = slot});
}

// The child and all below it hold no step from `heard` on.
void ReaderProtocol::settle(std::uint32_t child, std::uint64_t heard) {
  for (std::uint32_t slot = 0; slot < pending_.size(); ++slot) {
    const auto& pending = pending_[slot];
    if (pending.remaining > 0 && !pending.given[1 + child] && pending.step >= heard) give(1 + child, slot);
  }
}

bool ReaderProtocol::holding() const {
  return std::any_of(pending_.begin(), pending_.end(), [](const auto& p) { return p.remaining > 0; });
}

void ReaderProtocol::stop() {
  stopped_ = true;
  while (!announced_.empty()) {
    const auto next = announced_.pop();
    ++taken_;
    contribute(own, next.step, next.slot);
  }
}

void ReaderProtocol::leave() {
  if (left_) return;
  stop();
  left_ = true;
  note_leave();
}

void ReaderProtocol::note_leave() {
  if (--leaves_left_ > 0) return;
  for (std::uint32_t slot = 0; slot < pending_.size(); ++slot)
    if (std::exchange(pending_[slot].owed, false))
      sink_.send(parent_link, Message{.kind = Kind::release, .step = pending_[slot].step, .slot = slot});
  sink_.send(parent_link, Message{.kind = Kind::leave, .value = announced_total_ > 0 ? last_announced_ + 1 : 0});
}

void ReaderProtocol::on_announce(const Message& message) {
  if (message.slot >= pending_.size())
    throw Error(Errc::protocol, "announcement of slot " + std::to_string(message.slot));
  if (lost() || all_left()) return;  // the parent takes it back when this subtree has left
  if (goodbye_ || (announced_total_ > 0 && message.step <= last_announced_))
    throw Error(Errc::protocol, "announcement of step " + std::to_string(message.step) + " out of order");
  auto& pending = pending_[message.slot];
  if (pending.remaining != 0) throw Error(Errc::protocol, "announcement of a slot that is still held");
  ++announced_total_;
  last_announced_ = message.step;
  last_epoch_ = message.epoch;
  pending.step = message.step;
  pending.remaining = 1;
  pending.given[own] = false;
  for (std::uint32_t c = 0; c < children_; ++c) {
    pending.given[1 + c] = child_left_[c];
    pending.remaining += !child_left_[c];
  }
  send_down(message);
  if (stopped_) {
    ++taken_;
    contribute(own, message.step, message.slot);
  } else {
    announced_.push({message.step, message.slot, message.epoch});
  }
}

void ReaderProtocol::on_epoch(const Message& message) {
  if (!partial_) {
    const auto base = known(message.value);
    if (message.value != 0 && !base)
      throw Error(Errc::protocol, "epoch " + std::to_string(message.epoch) + " builds on one that was not sent");
    partial_ = std::make_shared<EpochBlobs>();
    partial_->number = message.epoch;
    if (base) partial_->layouts = base->layouts;
    partial_->layouts.resize(writer_ranks_);
  }
  if (partial_->number != message.epoch)
    throw Error(Errc::protocol, "epoch " + std::to_string(message.epoch) + " amid another");
  for (const auto& blob : message.layouts) {
    if (blob.rank >= writer_ranks_) throw Error(Errc::protocol, "a layout of rank " + std::to_string(blob.rank));
    partial_->layouts[blob.rank] = blob.layout;
  }
  send_down(message);
  if (message.flag) return;
  auto epoch = std::move(partial_);
  partial_.reset();
  if (std::find(epoch->layouts.begin(), epoch->layouts.end(), nullptr) != epoch->layouts.end())
    throw Error(Errc::protocol, "epoch " + std::to_string(message.epoch) + " lacks a rank");
  // What no announced step names any more can go; the newest stays as the base of the next.
  std::erase_if(epochs_, [&](const auto& e) {
    if (e == epochs_.back()) return false;
    for (std::size_t i = 0; i < announced_.size(); ++i)
      if (announced_[i].epoch == e->number) return false;
    return true;
  });
  epochs_.push_back(std::move(epoch));
  ++epochs_received_;
}

// -------------------------------------------------------------------------------------------------------- neighbours

void ReaderProtocol::on_message(LinkId link, const Message& message) {
  if (is_child(link)) {
    const auto child = link - first_child_;
    if (child_left_[child] && message.kind != Kind::release)
      throw Error(Errc::protocol, "a rank spoke after it had left");
    switch (message.kind) {
      case Kind::release: contribute(1 + child, message.step, message.slot); return;
      case Kind::want: forward_want(message.step); return;
      case Kind::leave:
        child_left_[child] = true;
        settle(child, message.value);
        note_leave();
        return;
      case Kind::lost: lose(message.text, link); return;
      default: throw Error(Errc::protocol, "a rank sent " + std::string(wire::name_of(message.kind)) + " up");
    }
  }
  switch (message.kind) {
    case Kind::announce: on_announce(message); return;
    case Kind::epoch: on_epoch(message); return;
    case Kind::dropped:
      dropped_ += message.value;
      send_down(message);
      return;
    case Kind::goodbye:
      if (lost() || all_left()) return;
      if (goodbye_ || message.step != announced_total_)
        throw Error(Errc::protocol, "the end after " + std::to_string(message.step) + " steps, not " +
                                        std::to_string(announced_total_));
      goodbye_ = true;
      goodbye_total_ = message.step;
      send_down(message);
      return;
    case Kind::lost: lose(message.text, link); return;
    default: throw Error(Errc::protocol, "the writer sent " + std::string(wire::name_of(message.kind)));
  }
}

void ReaderProtocol::on_link_lost(LinkId link, const std::string& why) {
  if (is_child(link)) {
    const auto child = link - first_child_;
    const bool in_order = child_left_[child];
    child_left_[child] = true;
    if (!in_order) lose("rank " + std::to_string(link) + " of the reader was lost (" + why + ")", link);
    // Its process has ended, and its views with it. Ranks below it may hold views of the same steps.
    if (!child_has_ranks_below_[child]) settle(child, 0);
    if (!in_order) note_leave();
    return;
  }
  // The end may have come through the ring, and the description of the last steps not at all.
  // Ranks below wait for it even when this rank has left.
  const auto described = epochs_.empty() ? 0 : epochs_.back()->number;
  if (goodbye_ && described >= last_epoch_) return;
  lose(rank_ == 0 ? "the writer is gone (" + why + ")"
                  : "the parent of rank " + std::to_string(rank_) + " of the reader was lost (" + why + ")",
       link);
}

void ReaderProtocol::stop_waiting() {
  if (!all_left())
    lose("rank " + std::to_string(rank_) + " of the reader closed, and waits for other ranks no longer", no_link);
}

// The survivors keep their leases, on the slots they were told of: the writer hears of no release before they have left.
void ReaderProtocol::lose(const std::string& why, LinkId except) {
  if (lost()) return;
  lost_ = why.empty() ? "no reason was given" : why;
  const Message message{.kind = Kind::lost, .text = why};
  if (except != parent_link && rank_ != 0 && !all_left()) sink_.send(parent_link, message);
  for (std::uint32_t c = 0; c < children_; ++c)
    if (first_child_ + c != except && !child_left_[c]) sink_.send(first_child_ + c, message);
}

}  // namespace penstock::stream
