#include "stream/protocol/writer_protocol.hpp"

#include "penstock/error.hpp"

namespace penstock::stream {

using wire::Kind;
using wire::Message;

WriterProtocol::WriterProtocol(std::uint32_t rank, LedgerSettings settings, Sink& sink, std::uint32_t fan_out)
    : rank_(rank),
      settings_(settings),
      sink_(sink),
      first_child_(first_child(rank, fan_out)),
      children_(child_count(rank, settings.ranks, fan_out)),
      grants_(settings.slots() + 1),
      pending_(settings.slots()),
      closing_left_(1 + children_),
      child_closing_(children_) {
  if (is_root())
    ledger_ = std::make_unique<Ledger>(settings, sink, [this](const Grant& grant) { accept_grant(grant); });
}

void WriterProtocol::send_down(const Message& message) {
  for (std::uint32_t c = 0; c < children_; ++c) sink_.send(first_child_ + c, message);
}

// ------------------------------------------------------------------------------------------------------------ grants

void WriterProtocol::accept_grant(const Grant& grant) {
  grants_.push(grant);
  granted_ = grant.step + 1;
  if (!grant.dropped) {
    freed_.push(grant.slot);
    auto& pending = pending_[grant.slot];
    pending.step = grant.step;
    pending.remaining = 1 + children_;
    pending.given.assign(1 + children_, false);
    pending.voided_by.reset();
    pending.layouts.clear();
  }
  send_down(Message{.kind = Kind::grant, .step = grant.step, .slot = grant.slot, .flag = grant.dropped});
}

std::optional<WriterProtocol::Grant> WriterProtocol::take_grant() {
  if (grants_.empty()) return std::nullopt;
  const auto grant = grants_.pop();
  next_step_ = grant.step + 1;
  return grant;
}

std::optional<std::uint32_t> WriterProtocol::take_freed_slot() {
  if (freed_.empty()) return std::nullopt;
  return freed_.pop();
}

void WriterProtocol::want() {
  if (!grants_.empty() || wanted_ > next_step_) return;
  wanted_ = next_step_ + 1;
  if (is_root()) ledger_->want(next_step_);
  else sink_.send(parent_link, Message{.kind = Kind::want, .step = next_step_});
}

// ----------------------------------------------------------------------------------------------------------- records

void WriterProtocol::record(const Grant& grant, bool voided, std::shared_ptr<const std::string> layout) {
  static const std::vector<wire::RankBlob> unchanged;
  const auto by = voided ? std::optional(rank_) : std::nullopt;
  if (layout) contribute(own, grant.slot, grant.step, by, {wire::RankBlob{rank_, std::move(layout)}});
  else contribute(own, grant.slot, grant.step, by, unchanged);
}

void WriterProtocol::contribute(std::uint32_t who, std::uint32_t slot, std::uint64_t step,
                                std::optional<std::uint32_t> voided_by, const std::vector<wire::RankBlob>& layouts,
                                bool more) {
  if (slot >= pending_.size() || pending_[slot].step != step || pending_[slot].remaining == 0 ||
      pending_[slot].given[who])
    throw Error(Errc::protocol, "a record of step " + std::to_string(step) + ", which is not being written");
  auto& pending = pending_[slot];
  if (voided_by && (!pending.voided_by || *voided_by < *pending.voided_by)) pending.voided_by = voided_by;
  pending.layouts.insert(pending.layouts.end(), layouts.begin(), layouts.end());
  if (more) return;
  pending.given[who] = true;
  if (--pending.remaining > 0) return;
  if (is_root()) {
    const auto by = pending.voided_by;  // the slot may be granted again at once
    if (by) note_voided(step, *by);
    if (agreement_ && !pending.layouts.empty()) disagreement_ = agreement_->disagreement(pending.layouts);
    if (!by && !disagreement_.empty())
      return break_cohort("step " + std::to_string(step) + ": " + disagreement_ +
                              "; every rank puts a variable with the same type and shape",
                          no_link, Errc::invalid_argument);
    ledger_->commit(slot, by.has_value(), pending.layouts);
    return;
  }
  Message message{.kind = Kind::record,
                  .step = step,
                  .slot = slot,
                  .ranks = pending.voided_by.value_or(0),
                  .flag = pending.voided_by.has_value()};
  split_layouts(pending.layouts, [&](auto first, auto last, bool more) {
    message.layouts.assign(first, last);
    message.value = more;
    sink_.send(parent_link, message);
  });
}

// On its way before `closed`, and on the same links: so every rank has counted every such step when it is closed.
void WriterProtocol::note_voided(std::uint64_t step, std::uint32_t by) {
  voided_ = {voided_.count + 1, step, by};
  send_down(Message{.kind = Kind::voided, .step = step, .ranks = by});
}

// ------------------------------------------------------------------------------------------------------------- close

void WriterProtocol::closing() { note_closing(); }

void WriterProtocol::note_closing() {
  if (--closing_left_ > 0) return;
  if (is_root()) {
    ledger_->finish();
    if (ledger_->finished()) {
      closed_ = true;
      send_down(Message{.kind = Kind::closed});
    }
  } else {
    sink_.send(parent_link, Message{.kind = Kind::closing});
  }
}

void WriterProtocol::close_now() {
  if (closed_) return;
  if (is_root()) ledger_->finish_now();
  closed_ = true;
  send_down(Message{.kind = Kind::closed});
}

// -------------------------------------------------------------------------------------------------------- neighbours

void WriterProtocol::on_message(LinkId link, const Message& message) {
  if (link >= first_reader_link) {
    ledger_->on_reader(link, message);
    if (ledger_->finished() && closing_left_ == 0 && !closed_) {
      closed_ = true;
      send_down(Message{.kind = Kind::closed});
    }
    return;
  }
  if (message.kind == Kind::lost) {
    const auto code = static_cast<Errc>(message.value);
    if (!closed_) break_cohort(message.text, link, code == Errc::ok ? Errc::peer_lost : code);
  } else if (is_child(link)) {
    switch (message.kind) {
      case Kind::record:
        for (const auto& blob : message.layouts)
          if (blob.rank >= settings_.ranks)
            throw Error(Errc::protocol, "a layout of rank " + std::to_string(blob.rank));
        if (message.flag && message.ranks >= settings_.ranks)
          throw Error(Errc::protocol, "a step given up by rank " + std::to_string(message.ranks));
        contribute(1 + link - first_child_, message.slot, message.step,
                   message.flag ? std::optional(message.ranks) : std::nullopt, message.layouts, message.value != 0);
        break;
      case Kind::want:
        if (is_root()) ledger_->want(message.step);
        else if (message.step >= wanted_) {
          wanted_ = message.step + 1;
          sink_.send(parent_link, message);
        }
        break;
      case Kind::closing:
        if (child_closing_[link - first_child_]) throw Error(Errc::protocol, "a rank closed twice");
        child_closing_[link - first_child_] = true;
        note_closing();
        break;
      default: throw Error(Errc::protocol, "a rank sent " + std::string(wire::name_of(message.kind)) + " up");
    }
  } else if (is_root()) {
    throw Error(Errc::protocol, "the root has no parent");
  } else {
    switch (message.kind) {
      case Kind::grant:
        if (!message.flag && message.slot >= pending_.size())
          throw Error(Errc::protocol, "a grant of slot " + std::to_string(message.slot));
        if (message.step != granted_ || (!message.flag && pending_[message.slot].remaining != 0))
          throw Error(Errc::protocol, "a grant of step " + std::to_string(message.step) + " out of order");
        accept_grant({message.step, message.slot, message.flag});
        break;
      case Kind::voided:
        if (message.step >= granted_ || (voided_.count > 0 && message.step <= voided_.step) ||
            message.ranks >= settings_.ranks)
          throw Error(Errc::protocol, "step " + std::to_string(message.step) + " is void, which was not granted");
        note_voided(message.step, message.ranks);
        break;
      case Kind::closed:
        closed_ = true;
        send_down(message);
        break;
      default: throw Error(Errc::protocol, "the parent rank sent " + std::string(wire::name_of(message.kind)));
    }
  }
}

void WriterProtocol::on_link_lost(LinkId link, const std::string& why) {
  if (link >= first_reader_link) {
    ledger_->remove(link);
    if (ledger_->finished() && closing_left_ == 0 && !closed_) {
      closed_ = true;
      send_down(Message{.kind = Kind::closed});
    }
    return;
  }
  if (closed_) return;
  const auto who = is_child(link) ? "rank " + std::to_string(link) : "the parent of rank " + std::to_string(rank_);
  break_cohort(who + " of the writer was lost (" + why + ")", link);
}

void WriterProtocol::break_cohort(const std::string& why, LinkId except, Errc code) {
  if (broken()) return;
  broken_ = why.empty() ? "no reason was given" : why;
  broken_code_ = code;
  const Message message{.kind = Kind::lost, .value = static_cast<std::uint64_t>(code), .text = why};
  if (is_root()) ledger_->break_stream(why);
  else if (except != parent_link) sink_.send(parent_link, message);
  for (std::uint32_t c = 0; c < children_; ++c)
    if (first_child_ + c != except) sink_.send(first_child_ + c, message);
}

Awaited WriterProtocol::awaited() const {
  using Whom = Awaited::Whom;
  if (!is_root()) {
    if (closing_left_ > 0 && closing_left_ < 1 + children_)
      return {"ranks below " + std::to_string(rank_), Whom::others};
    return {"rank 0 of the writer", Whom::first_rank};
  }
  if (const auto missing = ledger_->readers_missing())
    return {std::to_string(missing) + (missing == 1 ? " reader" : " readers") +
                " to join (rendezvous_readers=" + std::to_string(settings_.rendezvous_readers) + ")",
            Whom::readers};
  if (const auto kept = ledger_->steps_kept())
    return {"a reader to come for " + std::to_string(kept) + (kept == 1 ? " step" : " steps") + " kept for it",
            Whom::readers};
  std::string holders;
  for (const auto& r : ledger_->readers()) {
    if (r.held == 0 || (r.left && closing_left_ == 0)) continue;
    holders += (holders.empty() ? "" : ", ") + r.name + " (" + std::to_string(r.held) +
               (r.left ? " held by views of a reader that left)" : " held)");
  }
  if (!holders.empty()) return {"readers to release steps: " + holders, Whom::readers};
  if (!ledger_->readers().empty() && ledger_->queue_depth() > 0 && children_ == 0)
    return {"readers to take the steps waiting for them", Whom::readers};
  for (std::uint32_t c = 0; c < children_; ++c)
    if (closing_left_ < 1 + children_ && !child_closing_[c])
      return {"rank " + std::to_string(first_child_ + c) + " to close", Whom::others};
  return {"records of the other ranks", Whom::others};
}

}  // namespace penstock::stream
