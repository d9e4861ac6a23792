#include "stream/file/master_writer.hpp"

#include <fcntl.h>

#include <new>

#include "storage/checksum.hpp"
#include "stream/file/file_plane.hpp"
#include "stream/file/folder.hpp"

namespace penstock::stream {

MasterWriter::MasterWriter(std::shared_ptr<fabric::Progress> progress, fabric::Registration writer, StepPlaces places,
                           const storage::File& lock, base::Deadline deadline, std::function<void(const Error&)> failed)
    : progress_(std::move(progress)),
      places_(std::move(places)),
      lock_(lock),
      failed_(std::move(failed)),
      thread_(*progress_, 1, "stream-files") {
  Feed::Events events;
  events.step = [this](ReaderProtocol::Step step) { on_step(std::move(step)); };
  events.ended = [this](Outcome outcome, const std::string& why) {
    if (outcome == Outcome::not_ready)
      thread_.submit([this, why] { failed_(Error(Errc::internal, "its masters cannot be written: " + why)); });
  };
  progress_->call([&] {
    feed_ = std::make_shared<Feed>(progress_, std::move(writer), fabric::Reach::automatic, deadline, std::move(events));
  });
}

MasterWriter::~MasterWriter() {
  progress_->call([this] { feed_.reset(); });
}

void MasterWriter::on_step(ReaderProtocol::Step step) {
  thread_.submit([this, step = std::move(step), feed = std::weak_ptr(feed_)] {
    if (broken_) return;
    try {
      try {
        blobs_ = step.epoch == blobs_ ? blobs_ : (describe(*step.epoch), step.epoch);
        if (!places_.present.contains(places_.base + step.step)) write(places_.base + step.step, *step.epoch);
      } catch (const std::bad_alloc&) {
        throw Error(Errc::memory, "there is no memory to write step " + std::to_string(places_.base + step.step));
      }
    } catch (const Error& error) {
      broken_ = true;
      failed_(error);
      return;
    }
    progress_->post([feed, number = step.step, slot = step.slot] {
      if (const auto to = feed.lock()) to->release(number, slot);
    });
  });
}

void MasterWriter::describe(const EpochBlobs& blobs) {
  std::vector<std::shared_ptr<const model::RankLayout>> layouts;
  with_payload_.clear();
  for (std::uint32_t rank = 0; rank < blobs.layouts.size(); ++rank) {
    auto decoded = wire::decode_layout(rank, std::as_bytes(std::span(*blobs.layouts[rank])));
    with_payload_.push_back(decoded.has_payload);
    layouts.push_back(std::make_shared<const model::RankLayout>(std::move(decoded.layout)));
  }
  epoch_ = model::Epoch::build(blobs.number, std::move(layouts));
  layouts_ = join_layouts(blobs);
}

void MasterWriter::write(std::uint64_t step, const EpochBlobs& blobs) {
  const auto part = part_path(places_.folder, step, 0);
  const storage::File file(part, O_RDWR);
  auto [header, offset] = read_header(file);
  HeldFiles held{places_.folder, step, places_.incarnation, std::vector<HeldFiles::Rank>(blobs.layouts.size())};
  held.ranks[0].header = header;
  held.ranks[0].file.emplace(part, O_RDONLY);
  std::vector<wire::Payload> payloads(blobs.layouts.size());
  for (std::uint32_t rank = 0; rank < payloads.size(); ++rank) {
    if (!with_payload_[rank]) continue;
    const auto& of = held.rank(rank);
    const auto text = read_range(*of.file, of.header.payload);
    payloads[rank] = wire::decode_payload(std::as_bytes(std::span(text)));
  }
  const auto read = [&held](const model::Block& block, std::span<std::byte> out) {
    const auto& from = *held.rank(static_cast<std::uint32_t>(block.writer_rank)).file;
    if (from.read_at(block.offset, out) != out.size())
      throw Error(Errc::protocol, from.path() + " ends before the step's bytes do: it was cut off");
  };
  header.layouts = {hdf5_part().add_master(part, {places_.stream, step, *epoch_, payloads, layouts_, read}),
                    layouts_.size(), storage::checksum(std::as_bytes(std::span(layouts_)))};
  write_header(file, header, offset);
  if (places_.sync) file.sync_data();
  require_ours(lock_);
  storage::rename_file(part, file_path(places_.folder, step, 0));
  if (places_.sync) storage::sync_folder(places_.folder);
}

}  // namespace penstock::stream
