#include "transport/tcp/tcp_plane.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "fabric/connect.hpp"
#include "fabric/socket.hpp"
#include "penstock/interrupt.hpp"
#include "transport/tcp/link.hpp"
#include "transport/tcp/transfer_limits.hpp"
#include "wire/control.hpp"

namespace penstock::transport {

namespace {

using base::Deadline;
using memory::SlotInfo;

class TcpPlane final : public DataPlane {
 public:
  explicit TcpPlane(DataPlaneOptions options) : options_(std::move(options)), writers_(options_.writers.size()) {}

  std::string_view name() const override { return "tcp"; }
  void fetch(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
             Deadline deadline) override;
  Mapped map(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment, std::uint64_t offset,
             std::uint64_t bytes, Deadline deadline) override;
  SlotInfo header(std::uint64_t step, std::uint32_t slot, int writer_rank, Deadline deadline) override;
  void read_payload(std::uint64_t step, std::uint32_t slot, int writer_rank, std::vector<std::byte>& out,
                    Deadline deadline) override;

 private:
  // One writer rank: its link, and the transfer of the fetch under way.
  struct Writer {
    std::unique_ptr<Link> link;  // null until first used
    TransferPtr transfer;
    bool readable = false;
  };
  Writer& writer(int rank, Deadline deadline);
  static void begin(Transfer& transfer, std::uint64_t step, std::uint32_t slot, bool ordered);
  static void add(Transfer& transfer, const model::Piece& piece, std::byte* out);
  void fetch_part(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered, Deadline deadline);
  void read_bytes(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment, std::uint64_t offset,
                  std::span<std::byte> out, Deadline deadline);
  void run(Deadline deadline);
  void advance(std::size_t rank);
  void wait(Deadline deadline);
  void drop_unfinished();

  DataPlaneOptions options_;
  std::vector<Writer> writers_;      // by rank
  std::vector<std::size_t> active_;  // ranks of the fetch under way that have not finished
  std::vector<pollfd> entries_;
};

TcpPlane::Writer& TcpPlane::writer(int rank, Deadline deadline) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= writers_.size())
    throw Error(Errc::protocol, "there is no writer rank " + std::to_string(rank));
  auto& writer = writers_[static_cast<std::size_t>(rank)];
  if (writer.link) return writer;
  const wire::Hello hello{.purpose = wire::Purpose::data, .rank = options_.rank, .stream = options_.stream};
  try {
    memory::UniqueFd socket =
        fabric::connect_blocking(fabric::endpoint_from_text(options_.writers[static_cast<std::size_t>(rank)]),
                                 options_.token, hello, fabric::Reach::tcp_only, deadline);
    writer.transfer = std::make_shared<Transfer>();
    writer.link = std::make_unique<Link>(std::move(socket), nullptr, options_.in_flight_bytes);
  } catch (const Error& error) {
    throw error.in("writer rank " + std::to_string(rank));
  }
  return writer;
}

void TcpPlane::fetch(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
                     Deadline deadline) {
  if (!ordered) {
    fetch_part(step, slot, items, false, deadline);
    return;
  }
  // Ranks answer in any order: where order matters, one rank after the other.
  for (std::size_t first = 0; first < items.size();) {
    std::size_t last = first + 1;
    while (last < items.size() && items[last].piece->writer_rank == items[first].piece->writer_rank) ++last;
    fetch_part(step, slot, items.subspan(first, last - first), true, deadline);
    first = last;
  }
}

void TcpPlane::begin(Transfer& transfer, std::uint64_t step, std::uint32_t slot, bool ordered) {
  transfer.region = step;
  transfer.slot = slot;
  transfer.ordered = ordered;
  transfer.parts.clear();
  transfer.error.reset();
  transfer.done = false;
}

// The piece's plan and `out` live until the fetch has finished.
void TcpPlane::add(Transfer& transfer, const model::Piece& piece, std::byte* out) {
  if (piece.bytes() == 0) return;
  if (piece.points.size() <= request_points) {
    transfer.parts.push_back({piece, out});
    return;
  }
  for (PieceChunks chunks(piece, request_points * piece.elem_size); !chunks.done();)
    transfer.parts.push_back({chunks.next(), out});
}

void TcpPlane::fetch_part(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
                          Deadline deadline) {
  active_.clear();
  try {
    for (const Item& item : items) {
      const auto rank = static_cast<std::size_t>(item.piece->writer_rank);
      Transfer& transfer = *writer(item.piece->writer_rank, deadline).transfer;
      if (std::find(active_.begin(), active_.end(), rank) == active_.end()) {
        begin(transfer, step, slot, ordered);
        active_.push_back(rank);
      }
      add(transfer, *item.piece, item.out);
      bytes_moved_ += item.piece->bytes();
    }
    for (const std::size_t rank : active_) writers_[rank].link->submit(writers_[rank].transfer);
    run(deadline);
  } catch (...) {
    drop_unfinished();
    throw;
  }
}

// Until every active stream has finished.
void TcpPlane::run(Deadline deadline) {
  for (;;) {
    for (const std::size_t rank : active_) advance(rank);
    std::erase_if(active_, [this](std::size_t rank) { return writers_[rank].transfer->done; });
    if (active_.empty()) return;
    wait(deadline);
  }
}

void TcpPlane::advance(std::size_t rank) {
  Writer& writer = writers_[rank];
  try {
    try {
      writer.link->advance(std::exchange(writer.readable, false));
    } catch (const Error&) {
      writer.link.reset();  // the next fetch connects anew
      if (!writer.transfer->done) throw;
    }
    if (writer.transfer->done && writer.transfer->error) throw Error(*writer.transfer->error);
  } catch (const Error& error) {
    throw error.in("writer rank " + std::to_string(rank));
  }
}

void TcpPlane::wait(Deadline deadline) {
  entries_.clear();
  for (const std::size_t rank : active_) {
    const int write = writers_[rank].link->wants_write() ? POLLOUT : 0;
    entries_.push_back({writers_[rank].link->socket(), static_cast<short>(POLLIN | write), 0});
  }
  for (;;) {
    const auto slice = std::min(deadline.remaining(), std::chrono::duration_cast<Timeout>(fabric::interruption_period));
    const int count = ::poll(entries_.data(), entries_.size(), static_cast<int>(slice.count()));
    if (count > 0) {
      for (std::size_t i = 0; i < active_.size(); ++i)
        writers_[active_[i]].readable = (entries_[i].revents & ~POLLOUT) != 0;
      return;
    }
    if (count < 0 && errno != EINTR) throw Error(Errc::system, "poll failed: " + fabric::errno_text(errno));
    if (deadline.passed())
      throw Error(Errc::timeout, "waited for bytes of writer rank " + std::to_string(active_.front()));
    if (interrupted()) throw Error(Errc::timeout, "interrupted");
  }
}

// A reply that is still under way must never reach memory that the caller has got back.
void TcpPlane::drop_unfinished() {
  for (const std::size_t rank : active_)
    if (!writers_[rank].transfer->done) writers_[rank] = {};
  active_.clear();
}

void TcpPlane::read_bytes(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment,
                          std::uint64_t offset, std::span<std::byte> out, Deadline deadline) {
  if (out.empty()) return;
  const model::Piece piece = model::byte_piece(writer_rank, segment, offset, out.size());
  const Item item{&piece, out.data()};
  fetch_part(step, slot, std::span(&item, 1), false, deadline);
}

DataPlane::Mapped TcpPlane::map(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment,
                                std::uint64_t offset, std::uint64_t bytes, Deadline deadline) {
  // Sizes come from decoded descriptions: no rank has more than a petabyte, and a wish for it is an error, not a crash.
  if (bytes > wire::max_read_bytes) throw Error(Errc::protocol, "a view of impossible size");
  try {
    std::shared_ptr<std::byte[]> memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
    const std::span<std::byte> span(memory.get(), bytes);
    read_bytes(step, slot, writer_rank, segment, offset, span, deadline);
    return {span, memory};
  } catch (const std::bad_alloc&) {
    throw Error(Errc::memory, "no memory for a view of " + std::to_string(bytes) + " bytes");
  }
}

SlotInfo TcpPlane::header(std::uint64_t step, std::uint32_t slot, int writer_rank, Deadline deadline) {
  // As the writer's memory has it: its first four words in its byte order, which the handshake's version implies.
  SlotInfo info;
  static_assert(sizeof info == offsetof(memory::SlotHeader, copying));
  read_bytes(step, slot, writer_rank, 0, 0, std::as_writable_bytes(std::span(&info, 1)), deadline);
  if (info.step != step)
    throw Error(Errc::step_gone, "writer rank " + std::to_string(writer_rank) + " does not hold step " +
                                     std::to_string(step) + " any more");
  return info;
}

void TcpPlane::read_payload(std::uint64_t step, std::uint32_t slot, int writer_rank, std::vector<std::byte>& out,
                            Deadline deadline) {
  const SlotInfo info = header(step, slot, writer_rank, deadline);
  if (info.payload_bytes == 0) return;
  if (info.payload_bytes > wire::max_message_bytes || info.payload_segment >= memory::max_slot_segments)
    throw Error(Errc::protocol, "writer rank " + std::to_string(writer_rank) + " has a payload of impossible size");
  const std::size_t before = out.size();
  out.resize(before + info.payload_bytes);
  read_bytes(step, slot, writer_rank, static_cast<std::uint32_t>(info.payload_segment), info.payload_offset,
             std::span(out).subspan(before), deadline);
}

std::string address(const fabric::Endpoint& here) {
  if (here.tcp_hosts.empty()) return "";
  return fabric::to_text({.tcp_hosts = here.tcp_hosts, .tcp_port = here.tcp_port});
}
bool reaches(const std::string& address) { return !fabric::endpoint_from_text(address).tcp_hosts.empty(); }
std::unique_ptr<DataPlane> make(std::shared_ptr<fabric::Progress>, DataPlaneOptions options) {
  return std::make_unique<TcpPlane>(std::move(options));
}

}  // namespace

const Plane tcp_plane{"tcp", address, reaches, make};

}  // namespace penstock::transport
