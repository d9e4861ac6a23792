// One writer rank's part of the protocol: a node of its cohort's control tree, and at rank 0 the ledger. Pure: link.hpp.
//
// Records of a step are joined on their way up; the root commits the step when its own subtree is complete. Grants
// (which step goes into which slot) flow down ahead of need, so that begin_step seldom waits. No operation is collective.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stream/protocol/agreement.hpp"
#include "stream/protocol/awaited.hpp"
#include "stream/protocol/ledger.hpp"
#include "stream/protocol/link.hpp"
#include "stream/protocol/ring_queue.hpp"

namespace penstock::stream {

class WriterProtocol {
 public:
  using Grant = Ledger::Grant;

  WriterProtocol(std::uint32_t rank, LedgerSettings settings, Sink& sink, std::uint32_t fan_out = default_fan_out);

  // Root of several ranks: from now on a step whose layouts contradict each other breaks the cohort.
  void require_agreement() { agreement_.emplace(settings_.ranks); }

  // ------ the rank's own calls
  // The next step this rank may write, if one is granted. Steps come in order.
  std::optional<Grant> take_grant();
  bool has_grant() const { return !grants_.empty(); }
  // Says once for each step that this rank waits for a grant, so that policy can act.
  void want();
  // The rank ended (or voided) a granted step that was not dropped. layout: null when as in its last record.
  void record(const Grant& grant, bool voided, std::shared_ptr<const std::string> layout);
  // Slots whose former step nobody reads any more, each once, as grants arrive.
  std::optional<std::uint32_t> take_freed_slot();
  void closing();
  bool closed() const { return closed_; }
  // This rank gives up: the whole cohort is broken, and readers are told so.
  void fail(const std::string& why, Errc code = Errc::peer_lost) { break_cohort(why, no_link, code); }
  // Root: closes without waiting for readers any longer.
  void close_now();

  // ------ the neighbours'
  // Throws Error(protocol) when the neighbour may not say this.
  void on_message(LinkId link, const wire::Message& message);
  // A tree neighbour, or (root) a reader, is gone.
  void on_link_lost(LinkId link, const std::string& why);

  // Steps that were given up by any rank, as far as this rank has heard: of all, once the stream is closed.
  struct Voided {
    std::uint64_t count = 0;
    std::uint64_t step = 0;  // the last of them
    std::uint32_t by = 0;    // the rank that gave it up; the lowest, if several did
  };
  const Voided& voided() const { return voided_; }

  bool broken() const { return !broken_.empty(); }
  const std::string& broken_why() const { return broken_; }
  Errc broken_code() const { return broken_code_; }
  Awaited awaited() const;

  std::uint32_t rank() const { return rank_; }
  bool is_root() const { return rank_ == 0; }
  Ledger& ledger() { return *ledger_; }
  const Ledger& ledger() const { return *ledger_; }

 private:
  struct Pending {
    std::uint64_t step = 0;
    std::uint32_t remaining = 0;  // own record and children's
    std::vector<bool> given;      // own, then by child
    std::optional<std::uint32_t> voided_by;
    std::vector<wire::RankBlob> layouts;
  };

  static constexpr std::uint32_t own = 0;

  void accept_grant(const Grant& grant);
  void contribute(std::uint32_t who, std::uint32_t slot, std::uint64_t step, std::optional<std::uint32_t> voided_by,
                  const std::vector<wire::RankBlob>& layouts, bool more = false);
  void note_voided(std::uint64_t step, std::uint32_t by);
  void note_closing();
  void send_down(const wire::Message& message);
  void break_cohort(const std::string& why, LinkId except, Errc code = Errc::peer_lost);
  bool is_child(LinkId link) const { return link >= first_child_ && link < first_child_ + children_; }

  std::uint32_t rank_;
  LedgerSettings settings_;
  Sink& sink_;
  std::uint32_t first_child_;
  std::uint32_t children_;
  std::unique_ptr<Ledger> ledger_;  // root only
  RingQueue<Grant> grants_;
  RingQueue<std::uint32_t> freed_;
  std::vector<Pending> pending_;  // by slot
  std::uint64_t granted_ = 0;     // steps below this are granted
  std::uint64_t next_step_ = 0;   // the next step this rank takes
  std::uint64_t wanted_ = 0;      // steps below this were asked for
  std::uint32_t closing_left_;
  bool closed_ = false;
  Voided voided_;
  std::vector<bool> child_closing_;
  std::string broken_;
  Errc broken_code_ = Errc::peer_lost;
  std::optional<Agreement> agreement_;
  std::string disagreement_;  // of the newest layouts, those of void steps among them
};

}  // namespace penstock::stream
