// One reader rank's part of the protocol: a node of its cohort's control tree; rank 0's parent is the writer's root.
// Pure: link.hpp.
//
// Announcements flow down to every rank in one order; releases are joined on their way up, so that the writer sees one
// lease for the whole cohort. A rank that leaves may keep leases (of its views) and releases them later; its `leave` says
// which announcements had reached it, and the receiver takes later ones back by itself. When a rank is lost the cohort is:
// the survivors can take what they were told of, and releases wait until those that rank 0 can still hear have left. What
// ranks below a rank whose process has ended may hold stays leased until rank 0's process ends, and all leases end then.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stream/protocol/ledger.hpp"
#include "stream/protocol/link.hpp"
#include "stream/protocol/ring_queue.hpp"

namespace penstock::stream {

class ReaderProtocol {
 public:
  struct Step {
    std::uint64_t step = 0;
    std::uint32_t slot = 0;
    std::shared_ptr<const EpochBlobs> epoch;
  };

  // demand: announcements come one at a time, when wanted (as the writer's admission said).
  ReaderProtocol(std::uint32_t rank, std::uint32_t ranks, std::uint32_t writer_ranks, std::uint32_t slots, bool demand,
                 Sink& sink, std::uint32_t fan_out = default_fan_out);

  // ------ the rank's own calls
  // The next step, when it and its epoch are here.
  std::optional<Step> take();
  // This rank waits for its next step (idempotent; costs a message only on demand).
  void want();
  void release(std::uint64_t step, std::uint32_t slot);
  // This rank takes no more: what is and will be announced is released for it.
  void stop();
  // stop, and nothing is to be announced any more. What was taken stays leased until it is released. The writer hears of
  // it when every rank has left.
  void leave();
  // This rank left, and waits no longer for the ranks below it: the cohort is lost unless they have left.
  void stop_waiting();

  // ------ the neighbours'
  void on_message(LinkId link, const wire::Message& message);
  void on_link_lost(LinkId link, const std::string& why);

  // This rank and all below it have left: only now may its process end without breaking the cohort.
  bool all_left() const { return leaves_left_ == 0; }
  // A rank's lease is left, of this rank or below.
  bool holding() const;
  // Every announced step was taken and the writer closed. Ask this before lost().
  bool ended() const { return goodbye_ && taken_ == goodbye_total_; }
  // Nothing more can come, and why; announced steps can still be taken.
  bool lost() const { return !lost_.empty(); }
  const std::string& lost_why() const { return lost_; }

  std::uint64_t dropped() const { return dropped_; }
  std::uint64_t taken() const { return taken_; }
  std::uint64_t epochs_received() const { return epochs_received_; }

 private:
  struct Announced {
    std::uint64_t step = 0;
    std::uint32_t slot = 0;
    std::uint64_t epoch = 0;
  };
  struct Pending {
    std::uint64_t step = 0;
    std::uint32_t remaining = 0;  // own release and children's
    std::vector<bool> given;      // own, then by child
    bool owed = false;            // all gave it back, and the parent has not heard of it yet
  };
  static constexpr std::uint32_t own = 0;

  std::shared_ptr<const EpochBlobs> known(std::uint64_t epoch) const;
  void on_announce(const wire::Message& message);
  void on_epoch(const wire::Message& message);
  void contribute(std::uint32_t who, std::uint64_t step, std::uint32_t slot);
  void give(std::uint32_t who, std::uint32_t slot);
  void settle(std::uint32_t child, std::uint64_t heard);
  void forward_want(std::uint64_t index);
  void note_leave();
  void send_down(const wire::Message& message);
  void lose(const std::string& why, LinkId except);
  bool is_child(LinkId link) const { return link >= first_child_ && link < first_child_ + children_; }

  std::uint32_t rank_;
  std::uint32_t writer_ranks_;
  bool demand_;
  Sink& sink_;
  std::uint32_t first_child_;
  std::uint32_t children_;
  RingQueue<Announced> announced_;
  std::vector<Pending> pending_;  // by slot
  std::vector<std::shared_ptr<const EpochBlobs>> epochs_;
  std::shared_ptr<EpochBlobs> partial_;  // more of it is to come
  std::uint64_t announced_total_ = 0, taken_ = 0, wanted_ = 0, dropped_ = 0, last_announced_ = 0, epochs_received_ = 0;
  std::uint64_t last_epoch_ = 0;  // of the step announced last; epochs come in ascending order
  bool goodbye_ = false;
  std::uint64_t goodbye_total_ = 0;
  std::uint32_t leaves_left_;
  bool stopped_ = false;
  bool left_ = false;
  std::vector<bool> child_left_;  // with all below it, or it is lost
  std::vector<bool> child_has_ranks_below_;
  std::string lost_;
};

}  // namespace penstock::stream
