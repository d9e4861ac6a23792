// The account that a writer's root keeps of its steps and readers: which slot holds which step, who still needs it, who
// may begin the next one, and what policy drops. Pure: see link.hpp.
//
// A slot is idle, granted (being written) or committed. A committed step carries one mark per reader cohort: pending (to
// be announced) or announced (leased). A step with no mark is released; released steps stay only as the reserve or the
// kept first step. No step is granted while queue_steps slots are granted or committed with a mark; a late joiner may
// mark the reserve beyond that.
//
// keep_undelivered: while there is no reader, committed steps are kept for the next one, as if it were there and behind;
// when the only reader goes, so are the steps that it had not released. What was released is never announced again.
//
// An announcement is the lease: what was announced is never dropped. Where steps may be dropped or skipped
// (discard_oldest, latest), a cohort is therefore announced one step at a time, when it wants one.
//
// Where steps may be dropped, a cohort is announced no step while it holds its share of the queue (share()); such steps
// stay pending for it. In a full queue, what is pending only for cohorts that need more than their share gives way first.
//
// A cohort that leaves is announced nothing more; the leases that it keeps (views) last until it releases them or its
// connection ends. The end of the stream does not wait for them. A cohort is told of the end once nothing is pending for
// it; the stream is finished once every cohort that has not left has released what it was announced.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/options.hpp"
#include "stream/protocol/link.hpp"
#include "stream/protocol/ring_queue.hpp"

namespace penstock::stream {

struct LedgerSettings {
  std::uint32_t ranks = 1;
  std::uint32_t queue_steps = 4;
  std::uint32_t reserve_steps = 0;
  bool keep_first_step = false;
  WhenFull when_full = WhenFull::block;
  std::uint32_t rendezvous_readers = 1;
  bool keep_undelivered = false;
  std::uint32_t least_share = 2;  // steps that a cohort may hold, however many cohorts there are
  std::uint32_t slots() const { return queue_steps + reserve_steps + (keep_first_step ? 1 : 0); }
};

// Layouts of all ranks, as a step had them.
struct EpochBlobs {
  std::uint64_t number = 0;  // from 1
  std::vector<std::shared_ptr<const std::string>> layouts;
};

class Ledger {
 public:
  struct Grant {
    std::uint64_t step = 0;
    std::uint32_t slot = 0;
    bool dropped = false;
  };
  struct ReaderAccount {
    LinkId link = 0;
    std::string name;
    std::uint32_t ranks = 1;
    bool latest = false;
    bool left = false;  // what it holds, its views do
    std::uint64_t announced = 0, released = 0, dropped = 0, held = 0;
    std::uint64_t needed = 0;  // held, or to be announced
  };
  struct Totals {
    std::uint64_t committed = 0, dropped = 0, voided = 0, epochs = 0;
  };

  // on_grant is called for each step in order, once; it must not call back.
  Ledger(LedgerSettings settings, Sink& sink, std::function<void(const Grant&)> on_grant);

  // A rank waits to begin `step`: decides at once whether policy drops something.
  void want(std::uint64_t step);
  // Every rank's record of a granted step is in. changed: layouts that differ from those ranks' last records.
  void commit(std::uint32_t slot, bool voided, const std::vector<wire::RankBlob>& changed);

  // A reader cohort is admitted: it will see every retained step, or the newest; after the end, that it has ended. The
  // caller has sent `admit` before.
  void join(LinkId link, std::uint32_t ranks, bool latest, std::string name);
  bool on_demand(bool latest) const { return latest || settings_.when_full == WhenFull::discard_oldest; }
  // want, release, leave of a cohort. Throws Error(protocol) when it claims what it does not have; remove it then.
  void on_reader(LinkId link, const wire::Message& message);
  void remove(LinkId link);
  // False: it was never admitted, or it has left and holds nothing any more.
  bool has(LinkId link) const;
  // Steps that a cohort may hold where steps may be dropped: an equal part of the queue, at least least_share, and not all
  // of it. (A queue of less than three steps has no parts.)
  std::uint32_t share() const;

  // No further step will come; each cohort is told once every step was announced to it, or at once when forced. What is
  // committed after all were told is dropped.
  void finish();
  void finish_now();
  void break_stream(const std::string& why);
  bool finished() const { return finished_; }
  bool finishing() const { return finishing_; }

  bool rendezvous_met() const { return joined_ >= settings_.rendezvous_readers; }
  std::uint32_t readers_missing() const { return rendezvous_met() ? 0 : settings_.rendezvous_readers - joined_; }
  std::uint64_t next_step() const { return next_step_; }
  const Totals& totals() const { return totals_; }
  const LedgerSettings& settings() const { return settings_; }
  std::vector<ReaderAccount> readers() const;
  std::uint32_t queue_depth() const;    // steps being written, and committed steps that a reader needs
  std::uint32_t steps_waiting() const;  // the latter alone
  std::uint32_t steps_kept() const;     // of those, for a reader that is not there
  std::uint32_t retained_steps() const { return static_cast<std::uint32_t>(retained_.size()); }

 private:
  enum class Mark : std::uint8_t { none, pending, announced };
  enum class State : std::uint8_t { idle, granted, committed };
  struct Slot {
    State state = State::idle;
    std::uint64_t step = 0;
    std::shared_ptr<const EpochBlobs> epoch;
    bool kept = false;  // for a reader that is not there
  };
  struct Reader {
    ReaderAccount account;
    std::vector<Mark> marks;  // by slot
    std::shared_ptr<const EpochBlobs> known;
    std::uint64_t wanted = 0;  // demand: announcements asked for so far
    std::uint64_t unreported_drops = 0, last_drop = 0;
    bool demand = false;
    bool told_end = false;
    // Steps are announced to it.
    bool present() const { return !account.left && !told_end; }
  };

  Reader& reader(LinkId link);
  bool marked(std::uint32_t slot) const;
  bool leased(std::uint32_t slot) const;
  std::uint32_t needed_by(const Reader& reader) const;
  bool may_discard() const { return settings_.when_full != WhenFull::block; }
  void grant(bool dropped, std::uint32_t slot);
  void grant_free_slots();
  void collect();
  void free_slot(std::uint32_t slot);
  void keep_for_next(const Reader& gone);
  void drop_for_readers(std::uint64_t step);
  bool skip_oldest();
  bool drop_oldest();
  bool drop_surplus();
  void drop_pending(std::uint32_t slot);
  void mark_pending(Reader& reader, std::uint32_t slot);
  void serve(Reader& reader);
  void serve_all();
  void leave(Reader& reader, std::uint64_t heard);
  void announce(Reader& reader, std::uint32_t slot);
  void report_drops(Reader& reader);
  void send_epoch(Reader& reader, const std::shared_ptr<const EpochBlobs>& epoch);
  void maybe_goodbye();
  bool steps_awaited() const;
  void say_goodbye(Reader& reader);

  LedgerSettings settings_;
  Sink& sink_;
  std::function<void(const Grant&)> on_grant_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> retained_;  // committed slots, in step order
  std::vector<std::unique_ptr<Reader>> readers_;
  std::vector<std::shared_ptr<const std::string>> layouts_;  // by rank, newest
  bool layouts_changed_ = false;                             // since epoch_, perhaps by a voided step
  std::shared_ptr<const EpochBlobs> epoch_;
  Totals totals_;
  std::uint64_t next_step_ = 0;
  std::uint64_t wanted_step_ = 0;  // the newest step that a rank waits to begin
  std::uint64_t first_committed_ = ~std::uint64_t{0};
  std::uint32_t joined_ = 0;
  bool finishing_ = false;
  bool finished_ = false;
  std::string broken_why_;
};

}  // namespace penstock::stream
