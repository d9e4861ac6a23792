// The plane of the insitu engine: memory of writer ranks in this process as it lies, that of others over tcp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stream/insitu/local_writer.hpp"
#include "transport/data_plane.hpp"

namespace penstock::stream {

class InsituPlane final : public transport::DataPlane {
 public:
  // local: by writer rank; null: in another process. remote reaches those; null where there are none.
  InsituPlane(std::vector<std::shared_ptr<LocalWriter>> local, std::unique_ptr<transport::DataPlane> remote)
      : local_(std::move(local)), remote_(std::move(remote)) {}

  std::string_view name() const override { return "insitu"; }
  bool maps_in_place() const override { return true; }
  void fetch(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
             base::Deadline deadline) override;
  Mapped map(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment, std::uint64_t offset,
             std::uint64_t bytes, base::Deadline deadline) override;
  memory::SlotInfo header(std::uint64_t step, std::uint32_t slot, int writer_rank, base::Deadline deadline) override;
  void read_payload(std::uint64_t step, std::uint32_t slot, int writer_rank, std::vector<std::byte>& out,
                    base::Deadline deadline) override;

  // Views of lent arrays since forget_views, of which one is alive: where it lies. Nothing: none is.
  struct KeptView {
    int writer_rank = 0;
    std::uint64_t offset = 0;
  };
  std::optional<KeptView> kept_view() const;
  void forget_views() { views_.clear(); }

 private:
  memory::Arena* arena_of(int rank) const;  // null: in another process. Throws Error(protocol)
  void copy(memory::Arena& arena, std::uint64_t step, std::uint32_t slot, const Item& item);

  const std::vector<std::shared_ptr<LocalWriter>> local_;
  const std::unique_ptr<transport::DataPlane> remote_;
  std::vector<Item> remote_items_;  // of the fetch under way
  std::vector<std::pair<std::weak_ptr<const void>, KeptView>> views_;
};

// Over the writer that admitted this reader. Throws Error: unsupported, writer_lost.
std::unique_ptr<InsituPlane> make_insitu_plane(
    std::vector<std::shared_ptr<LocalWriter>> local,
    const std::function<std::unique_ptr<transport::DataPlane>()>& make_remote);

}  // namespace penstock::stream
