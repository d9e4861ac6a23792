// A pool reader's data plane: the stripes of the step being read, leased at their owners. Where a server's memory can be mapped
// it is read in place; else parts are asked for, one request for each stripe and call. A server that is gone is replaced by the
// next replica, in the middle of a fetch too. What a server gave is right while the channel to it stands: after each copy that
// is looked at. What map() gave stays with its owner as long as the server keeps it; one that closes the channel itself (it
// has stopped) does not touch it any more.
//
// The leases belong to the step (HeldStep) and to what was mapped of them, and go back when the last of those is gone, on
// whatever thread. Pieces are those of the writers' slots, which lie in stripes (stripes.hpp); the rest as
// transport/data_plane.hpp says.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fork.hpp"
#include "pool/client/client_core.hpp"
#include "pool/keys/stripes.hpp"
#include "transport/bulk.hpp"
#include "transport/data_plane.hpp"

namespace penstock::pool {

// One stripe's bytes, at one owner, as long as this lives.
class StripeLease {
 public:
  ~StripeLease();
  // In this process's memory, or mapped; empty: to be asked for.
  std::span<const std::byte> bytes() const { return bytes_; }
  std::uint64_t size() const { return size_; }
  // Whether what was read until now is right: memory mapped from a server that let us go may be another object's since.
  bool there() const { return !mapped_ || channel_->open(); }
  // What is mapped counts as this process's memory again when it is read again.
  void unmap_pages() const;

 private:
  friend class StripePlane;
  bool mapped_ = false;
  std::shared_ptr<rpc::Channel> channel_;
  std::uint64_t lease_ = 0;
  transport::BulkDescriptor bulk_;
  std::uint64_t size_ = 0;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
  const base::Origin origin_;
};

// The step being read.
struct HeldStep {
  std::string stream;
  std::uint64_t step = 0;
  std::uint64_t life = 0;
  std::vector<std::uint64_t> payload_bytes;             // by rank; at the end of stripe 0
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // rank, stripe
  std::map<Key, std::shared_ptr<StripeLease>> stripes;  // the reader's thread only
  std::function<void()> ended;                          // called by the destructor
  const base::Origin origin;
  ~HeldStep();
};

struct StripeAnswer;  // of an owner, to a request for stripes

class StripePlane final : public transport::DataPlane {
 public:
  // in_place: read mapped memory where it can be had. stripe_bytes: how large stripes are about. tag_base: where they lie.
  StripePlane(std::shared_ptr<PoolClient> client, bool in_place, std::uint64_t stripe_bytes, std::uint64_t tag_base,
              std::string name);

  // What is fetched from now on is of this step.
  void read(const std::shared_ptr<HeldStep>& step) { held_ = step; }
  // Where the steps' bytes are from now on, by rank.
  void describe(std::vector<std::shared_ptr<const StripeMap>> maps) { maps_ = std::move(maps); }

  std::string_view name() const override { return name_; }
  void fetch(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
             base::Deadline deadline) override;
  Mapped map(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment, std::uint64_t offset,
             std::uint64_t bytes, base::Deadline deadline) override;
  memory::SlotInfo header(std::uint64_t step, std::uint32_t slot, int writer_rank, base::Deadline deadline) override;
  void read_payload(std::uint64_t step, std::uint32_t slot, int writer_rank, std::vector<std::byte>& out,
                    base::Deadline deadline) override;

 private:
  class JoinedMemory;
  struct Gather;
  std::shared_ptr<HeldStep> held(std::uint64_t step) const;
  std::shared_ptr<StripeLease> lease(HeldStep& held, HeldStep::Key key, base::Deadline deadline);
  // came: called with those that have come, as they do.
  using Came = std::function<void(const std::vector<HeldStep::Key>&)>;
  void lease_all(HeldStep& held, const std::vector<HeldStep::Key>& keys, base::Deadline deadline,
                 const Came& came = {});
  void take(HeldStep& held, const std::vector<HeldStep::Key>& keys, StripeAnswer& answer, base::Deadline deadline);
  static void copy_in_place(const StripeLease& stripe, const model::Piece& piece, std::byte* out);
  static Came copier(const HeldStep& held, std::span<const Item> items, std::vector<bool>& done);
  void run(HeldStep& held, std::vector<Gather>& gathers, base::Deadline deadline);
  const StripeMap& map_of(int writer_rank) const;
  void fetch_placed(HeldStep& held, std::span<const Item> items, bool ordered, base::Deadline deadline);
  Mapped map_one(HeldStep& held, const model::Piece& piece, std::uint64_t bytes, base::Deadline deadline);
  Mapped join(HeldStep& held, std::span<const model::Piece> pieces, std::uint64_t bytes, base::Deadline deadline);
  void fetch_once(HeldStep& held, std::span<const Item> items, bool ordered, base::Deadline deadline);
  static void copy_ranges(const StripeLease& stripe, Gather& gather);
  void read_part(HeldStep& held, HeldStep::Key key, std::uint64_t offset, std::span<std::byte> out,
                 base::Deadline deadline);

  std::shared_ptr<PoolClient> client_;
  const bool in_place_;
  const std::size_t stripes_together_;  // in one request
  const std::uint64_t tag_base_;
  const std::string name_;
  const std::shared_ptr<JoinedMemory> joined_;
  std::vector<std::shared_ptr<const StripeMap>> maps_;  // by rank
  std::weak_ptr<HeldStep> held_;
};

}  // namespace penstock::pool
