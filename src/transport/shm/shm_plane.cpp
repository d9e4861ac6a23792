#include "transport/shm/shm_plane.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "base/fault.hpp"
#include "base/log.hpp"
#include "fabric/connect.hpp"
#include "fabric/reach.hpp"
#include "wire/data.hpp"

namespace penstock::transport {

namespace {

using base::Deadline;
using memory::Mapping;
using memory::SlotHeader;
using memory::SlotInfo;

constexpr std::size_t max_slots = 1u << 16;

// One writer rank: the connection over which it sends its segments, and those that came. The engine thread adds, the
// reader's thread looks; `mutex` guards all.
struct Writer {
  struct Slot {
    std::uint64_t generation = 0;
    std::vector<std::shared_ptr<const Mapping>> segments;  // null where one is still missing
  };

  std::mutex mutex;
  std::vector<Slot> slots;
  std::shared_ptr<fabric::Connection> connection;
  bool asked = false;  // a connection was asked for
  // Why no more segments will come. Not an Error: exceptions share their text between threads behind the sanitizer's back.
  struct End {
    Errc code = Errc::ok;
    std::string why;
  };
  std::optional<End> ended;

  void add(const wire::SegmentAnnounce& announce, memory::UniqueFd fd);
};

void Writer::add(const wire::SegmentAnnounce& announce, memory::UniqueFd fd) {
  if (announce.slot >= max_slots) throw Error(Errc::protocol, "an impossible slot");
  std::shared_ptr<const Mapping> mapping;
  if (announce.bytes != 0) {
    if (!fd) throw Error(Errc::protocol, "a segment was announced without its memory");
    mapping = std::make_shared<const Mapping>(memory::map_segment(fd.get(), announce.bytes));
  }
  std::vector<std::shared_ptr<const Mapping>> replaced;  // unmapped after the lock is given back
  std::lock_guard lock(mutex);
  if (slots.size() <= announce.slot) slots.resize(announce.slot + 1);
  Slot& slot = slots[announce.slot];
  if (announce.generation < slot.generation) return;
  if (announce.generation > slot.generation || !mapping) {
    slot.generation = announce.generation;
    replaced.swap(slot.segments);
  }
  if (!mapping) return;
  if (slot.segments.size() <= announce.segment) slot.segments.resize(announce.segment + 1);
  slot.segments[announce.segment] = std::move(mapping);
}

const SlotHeader& header_of(const Mapping& first) { return *reinterpret_cast<const SlotHeader*>(first.data()); }

class ShmPlane final : public DataPlane {
 public:
  ShmPlane(std::shared_ptr<fabric::Progress> progress, DataPlaneOptions options)
      : progress_(std::move(progress)), options_(std::move(options)) {
    for (std::size_t i = 0; i < options_.writers.size(); ++i) writers_.push_back(std::make_shared<Writer>());
  }
  ~ShmPlane() override;

  std::string_view name() const override { return "shm"; }
  void prepare(Deadline deadline) override;
  bool maps_in_place() const override { return true; }
  void fetch(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
             Deadline deadline) override;
  Mapped map(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment, std::uint64_t offset,
             std::uint64_t bytes, Deadline deadline) override;
  SlotInfo header(std::uint64_t step, std::uint32_t slot, int writer_rank, Deadline deadline) override;
  void read_payload(std::uint64_t step, std::uint32_t slot, int writer_rank, std::vector<std::byte>& out,
                    Deadline deadline) override;

 private:
  // The mappings that a step's bytes of one rank lie in: segment 0 for its header, and the one asked for.
  struct Found {
    std::shared_ptr<const Mapping> first;
    std::shared_ptr<const Mapping> segment;
    const SlotHeader& header() const { return header_of(*first); }
    bool holds(std::uint64_t step) const {
      std::atomic_thread_fence(std::memory_order_acquire);
      return header().step.load(std::memory_order_acquire) == step;
    }
  };
  enum class Look { found, wait, gone };

  Writer& writer(int rank);
  void connect(int rank, Deadline deadline);
  static void receive_segments(const std::shared_ptr<Writer>& writer,
                               const std::shared_ptr<fabric::Connection>& connection, fabric::Progress& progress);
  static void give_up(Writer& writer, const Error& error);
  static Look look(Writer& writer, std::uint64_t step, std::uint32_t slot, std::uint32_t segment, Found& found);
  Found find(std::uint64_t step, std::uint32_t slot, int rank, std::uint32_t segment, Deadline deadline);
  [[noreturn]] static void gone(std::uint64_t step, int rank);
  static void check_range(const Mapping& mapping, std::uint64_t offset, std::uint64_t bytes, int rank);
  static void check_piece(const Mapping& mapping, const model::Piece& piece);

  std::shared_ptr<fabric::Progress> progress_;
  DataPlaneOptions options_;
  std::vector<std::shared_ptr<Writer>> writers_;
};

ShmPlane::~ShmPlane() {
  for (auto& writer : writers_) {
    std::lock_guard lock(writer->mutex);
    if (const auto connection = std::move(writer->connection)) connection->close();
    writer->ended = Writer::End{Errc::stream_closed, "closed"};
  }
}

Writer& ShmPlane::writer(int rank) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= writers_.size())
    throw Error(Errc::protocol, "there is no writer rank " + std::to_string(rank));
  return *writers_[static_cast<std::size_t>(rank)];
}

// Asks the rank for its segments; what comes arrives on the engine thread. The callbacks may outlive this plane, but
// neither the progress nor the writer's state.
void ShmPlane::connect(int rank, Deadline deadline) {
  const auto index = static_cast<std::size_t>(rank);
  const wire::Hello hello{.purpose = wire::Purpose::segments, .rank = options_.rank, .stream = options_.stream};
  fabric::connect_async(*progress_, fabric::endpoint_from_text(options_.writers[index]), options_.token, hello,
                        fabric::Reach::unix_only, deadline,
                        [writer = writers_[index], progress = progress_.get()](
                            std::shared_ptr<fabric::Connection> connection, std::optional<Error> error) {
                          if (connection) receive_segments(writer, connection, *progress);
                          else give_up(*writer, *error);
                          progress->notify();
                        });
}

void ShmPlane::give_up(Writer& writer, const Error& error) {
  std::lock_guard lock(writer.mutex);
  // Who did not answer in time may do so when asked again; anything else is final.
  if (error.code() == Errc::timeout) writer.asked = false;
  else if (!writer.ended) writer.ended = Writer::End{error.code(), error.what()};
  writer.connection.reset();
}

void ShmPlane::receive_segments(const std::shared_ptr<Writer>& writer,
                                const std::shared_ptr<fabric::Connection>& connection, fabric::Progress& progress) {
  {
    std::lock_guard lock(writer->mutex);
    if (writer->ended) {  // the plane is gone
      connection->close();
      return;
    }
    writer->connection = connection;
  }
  connection->start(
      [writer, &progress](std::uint16_t kind, std::span<const std::byte> bytes, memory::UniqueFd fd) {
        if (kind != static_cast<std::uint16_t>(wire::DataKind::segment_announce))
          throw Error(Errc::protocol, "expected a segment, got message kind " + std::to_string(kind));
        base::fault_point("receive:segment", base::FaultPhase::before);
        writer->add(wire::decode_segment_announce(bytes), std::move(fd));
        progress.notify();
      },
      [writer, &progress](const Error& why) {
        give_up(*writer, why);
        progress.notify();
      });
}

void ShmPlane::prepare(Deadline deadline) {
  for (std::size_t rank = 0; rank < writers_.size(); ++rank) {
    Writer& to = *writers_[rank];
    bool ask = false;
    {
      std::lock_guard lock(to.mutex);
      ask = !to.asked && !to.ended;
      to.asked = to.asked || ask;
    }
    if (ask) connect(static_cast<int>(rank), deadline);
  }
  for (std::size_t rank = 0; rank < writers_.size(); ++rank) {
    Writer& to = *writers_[rank];
    std::optional<Writer::End> ended;
    const bool answered = progress_->wait_for(
        [&] {
          std::lock_guard lock(to.mutex);
          ended = to.ended;
          return to.connection || to.ended.has_value();
        },
        deadline);
    if (ended) throw Error(ended->code, "memory of writer rank " + std::to_string(rank) + ": " + ended->why);
    if (!answered) throw Error(Errc::timeout, "waited for memory of writer rank " + std::to_string(rank));
  }
}

ShmPlane::Look ShmPlane::look(Writer& writer, std::uint64_t step, std::uint32_t slot, std::uint32_t segment,
                              Found& found) {
  std::lock_guard lock(writer.mutex);
  if (slot >= writer.slots.size()) return Look::wait;
  const auto& segments = writer.slots[slot].segments;
  if (segments.empty() || !segments[0]) return Look::wait;
  const std::uint64_t holds = header_of(*segments[0]).step.load(std::memory_order_acquire);
  if (holds == memory::slot_replaced) return Look::wait;  // newer memory is on its way
  if (holds != step) return Look::gone;
  if (segment >= segments.size() || !segments[segment]) return Look::wait;
  found.first = segments[0];
  found.segment = segments[segment];
  return Look::found;
}

ShmPlane::Found ShmPlane::find(std::uint64_t step, std::uint32_t slot, int rank, std::uint32_t segment,
                               Deadline deadline) {
  Writer& from = writer(rank);
  Found found;
  Look look_result = look(from, step, slot, segment, found);
  if (look_result == Look::wait) {
    bool ask = false;
    {
      std::lock_guard lock(from.mutex);
      ask = !from.asked && !from.ended;
      from.asked = from.asked || ask;
    }
    if (ask) connect(rank, deadline);
    std::optional<Writer::End> ended;
    progress_->wait_for(
        [&] {
          {
            std::lock_guard lock(from.mutex);
            ended = from.ended;
          }
          // In this order: what came before the end is found.
          look_result = look(from, step, slot, segment, found);
          return look_result != Look::wait || ended.has_value();
        },
        deadline);
    if (look_result == Look::wait && ended)
      throw Error(ended->code, "memory of writer rank " + std::to_string(rank) + ": " + ended->why);
    if (look_result == Look::wait)
      throw Error(Errc::timeout, "waited for memory of writer rank " + std::to_string(rank));
  }
  if (look_result == Look::gone) gone(step, rank);
  return found;
}

void ShmPlane::gone(std::uint64_t step, int rank) {
  throw Error(Errc::step_gone,
              "writer rank " + std::to_string(rank) + " does not hold step " + std::to_string(step) + " any more");
}

void ShmPlane::check_range(const Mapping& mapping, std::uint64_t offset, std::uint64_t bytes, int rank) {
  if (offset > mapping.size() || bytes > mapping.size() - offset)
    throw Error(Errc::protocol, "writer rank " + std::to_string(rank) + " described bytes outside its memory");
}

// Where a piece reaches is known from decoded messages only.
void ShmPlane::check_piece(const Mapping& mapping, const model::Piece& piece) {
  const auto extent = model::source_extent(piece);
  if (extent.first < 0 || extent.last > static_cast<__int128>(mapping.size()))
    throw Error(Errc::protocol,
                "writer rank " + std::to_string(piece.writer_rank) + " described blocks outside its memory");
}

void ShmPlane::fetch(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool, Deadline deadline) {
  // Plans come in runs of one rank and segment: look once for each run.
  Found found;
  int rank = -1;
  std::uint32_t segment = 0;
  const auto still_there = [&] {
    if (found.first && !found.holds(step)) gone(step, rank);
  };
  for (const Item& item : items) {
    const model::Piece& piece = *item.piece;
    if (!found.first || piece.writer_rank != rank || piece.segment != segment) {
      still_there();
      found = find(step, slot, piece.writer_rank, piece.segment, deadline);
      rank = piece.writer_rank;
      segment = piece.segment;
    }
    check_piece(*found.segment, piece);
    model::execute(piece, found.segment->data(), item.out);
    bytes_moved_ += piece.bytes();
  }
  still_there();
}

DataPlane::Mapped ShmPlane::map(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment,
                                std::uint64_t offset, std::uint64_t bytes, Deadline deadline) {
  const Found found = find(step, slot, writer_rank, segment, deadline);
  check_range(*found.segment, offset, bytes, writer_rank);
  return {{found.segment->data() + offset, bytes}, found.segment};
}

SlotInfo ShmPlane::header(std::uint64_t step, std::uint32_t slot, int writer_rank, Deadline deadline) {
  const Found found = find(step, slot, writer_rank, 0, deadline);
  const SlotInfo info = load(found.header());
  if (info.step != step || !found.holds(step)) gone(step, writer_rank);
  return info;
}

void ShmPlane::read_payload(std::uint64_t step, std::uint32_t slot, int writer_rank, std::vector<std::byte>& out,
                            Deadline deadline) {
  const SlotInfo info = header(step, slot, writer_rank, deadline);
  if (info.payload_bytes == 0) return;
  const auto segment = static_cast<std::uint32_t>(std::min<std::uint64_t>(info.payload_segment, ~std::uint32_t{0}));
  const Found found = find(step, slot, writer_rank, segment, deadline);
  check_range(*found.segment, info.payload_offset, info.payload_bytes, writer_rank);
  const std::byte* begin = found.segment->data() + info.payload_offset;
  out.insert(out.end(), begin, begin + info.payload_bytes);
  if (!found.holds(step)) gone(step, writer_rank);
  bytes_moved_ += info.payload_bytes;
}

}  // namespace

const Plane shm_plane{
    .name = "shm",
    .address = [](const fabric::Endpoint& here) -> std::string {
      return here.unix_name.empty() ? "" : fabric::to_text({.unix_name = here.unix_name});
    },
    .reaches =
        [](const std::string& address) { return fabric::reachable_locally(fabric::endpoint_from_text(address)); },
    .make = [](std::shared_ptr<fabric::Progress> progress, DataPlaneOptions options) -> std::unique_ptr<DataPlane> {
      return std::make_unique<ShmPlane>(std::move(progress), std::move(options));
    }};

}  // namespace penstock::transport
