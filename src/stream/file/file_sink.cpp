// A writer rank of a stream in files: each block goes to the rank's own file as it is put, from where it lies. Which step, and
// whether all ranks have it, is agreed on by a direct sink in which no bytes are; see master_writer for what follows.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <new>
#include <sstream>

#include "base/log.hpp"
#include "fabric/handshake.hpp"
#include "model/copy.hpp"
#include "storage/checksum.hpp"
#include "stream/api/open.hpp"
#include "stream/direct/direct_sink.hpp"
#include "stream/file/file_engine.hpp"
#include "stream/file/file_plane.hpp"
#include "stream/file/folder.hpp"
#include "stream/file/master_writer.hpp"

namespace penstock::stream {
namespace {

constexpr std::uint64_t least_compressed_bytes = 4096;
constexpr std::uint64_t packed_at_once = 4 << 20;
constexpr Timeout lose_within(1'000);

// The ranks' agreement on steps.
class Agreement final : public DirectSink {
 public:
  Agreement(const EngineContext& context, const std::string& name, Cohort& cohort, const StreamOptions& options)
      : DirectSink(context, name, cohort, options, {.registered = false, .keep_undelivered = true}) {}
  using DirectSink::node;
};

StreamOptions agreement_options(StreamOptions options) {
  const StreamOptions plain;
  options.rendezvous_readers = 0;
  options.queue_bytes = plain.queue_bytes;
  options.step_bytes = 0;
  options.when_full = WhenFull::block;
  options.reserve_steps = 0;
  options.keep_first_step = false;
  return options;
}

// Memory that is kept from step to step, aligned as blocks are.
class Scratch {
 public:
  std::byte* take(std::uint64_t bytes) {
    if (used_ == parts_.size()) parts_.emplace_back();
    auto& [memory, size] = parts_[used_++];
    if (!memory || size < bytes) {
      memory.reset();
      memory.reset(static_cast<std::byte*>(
          ::operator new(std::max<std::uint64_t>(bytes, 1), std::align_val_t(memory::block_alignment))));
      size = bytes;
    }
    return memory.get();
  }
  void reuse() { used_ = 0; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t(memory::block_alignment)); }
  };
  std::vector<std::pair<std::unique_ptr<std::byte, Free>, std::uint64_t>> parts_;
  std::size_t used_ = 0;
};

// Calls write(packed, bytes) for parts of the array in their packed order.
template <class Write>
void pack_in_parts(const StepSink::Block& block, std::vector<std::byte>& buffer, Write write) {
  const auto size = size_of(block.variable.dtype);
  auto count = block.box.count;
  const std::size_t slowest = block.variable.order == Order::row ? 0 : count.size() - 1;
  const auto slab = block.bytes / count[slowest];
  const auto together = std::clamp<std::uint64_t>(packed_at_once / slab, 1, count[slowest]);
  buffer.resize(together * slab);
  const auto* from = block.data;
  for (std::uint64_t at = 0, all = count[slowest]; at < all; at += count[slowest]) {
    count[slowest] = std::min(together, all - at);
    const auto packed = model::packed_strides(count, size, block.variable.order);
    model::copy_nd(buffer.data(), packed.data(), from, block.strides.data(), count.begin(), count.size(), size);
    write(buffer.data(), slab * count[slowest]);
    from += static_cast<std::int64_t>(count[slowest]) * block.strides[slowest];
  }
}

class FileSink final : public StepSink {
 public:
  FileSink(const EngineContext& context, const std::string& name, Cohort& cohort, const StreamOptions& options);
  ~FileSink() override { drop_file(); }

  const std::string& stream() const override { return agreement_->stream(); }
  std::uint64_t cohort_number() const override { return agreement_->cohort_number(); }
  std::string address() const override { return places_.folder; }
  Begun begin(base::Deadline deadline) override;
  std::uint64_t step() const override { return places_.base + agreement_->step(); }
  Awaited awaited() const override {
    return {"the files of earlier steps in " + places_.folder + " (" + agreement_->awaited().who + ")"};
  }
  bool takes_blocks() const override { return true; }
  std::optional<Taken> take(const Block& block) override;
  std::optional<memory::Place> allocate(std::uint64_t bytes) override {
    return memory::Place{0, 0, scratch_.take(bytes)};
  }
  void commit(const Payload& payload, std::shared_ptr<const std::string> layout) override;
  void discard() override {
    drop_file();
    agreement_->discard();
  }
  void close(base::Deadline deadline) override;
  void lose(const std::string& how) override;
  void add_statistics(StreamStatistics& statistics) const override { agreement_->add_statistics(statistics); }

 private:
  struct Unwritten {  // a block whose elements may change until commit
    std::uint32_t number;
    model::VariableDefinition variable;
    Box box;
    std::uint64_t offset;  // in the file; of a compressed block, its own
    bool compressed;
    const std::byte* data;
    std::vector<std::int64_t> strides;
    std::uint64_t bytes;
    StepSink::Block block() const {
      return {.variable = variable, .box = box, .number = number, .bytes = bytes, .data = data, .strides = strides};
    }
  };

  void write_block(const Block& block, bool compressed, std::uint64_t offset);
  void prepare();
  void begin_stream();
  void require_folder();
  void open_file();
  void drop_file() noexcept;
  void finish_file(const Payload& payload);
  void give_up() noexcept;

  const StreamOptions options_;
  const std::uint32_t rank_;
  StepPlaces places_;
  std::optional<storage::File> lock_;  // while it writes; locked by rank 0
  StreamRecord record_;
  std::unique_ptr<Agreement> agreement_;
  std::unique_ptr<MasterWriter> masters_;  // rank 0

  bool writes_ = true;    // the stream has not ended here
  bool skipped_ = false;  // the open step is there already
  std::unique_ptr<StepFile> made_;
  std::optional<storage::File> file_;
  std::uint64_t compressed_bytes_ = 0;  // so far, without compression
  std::vector<Unwritten> unwritten_;
  Scratch scratch_;
  std::vector<std::byte> packed_;
};

FileSink::FileSink(const EngineContext& context, const std::string& name, Cohort& cohort, const StreamOptions& options)
    : options_(options), rank_(static_cast<std::uint32_t>(cohort.rank())) {
  on_every_rank(cohort, [] { (void)hdf5_part(); });
  places_.stream = record_.stream = name;
  places_.sync = options.sync;
  record_.host = fabric::host_name();
  record_.pid = ::getpid();
  record_.started = std::time(nullptr);
  record_.ranks = static_cast<std::uint32_t>(cohort.size());
  const auto text = share_text(cohort, [&] {
    places_.folder = folder_of(name, options);
    prepare();
    std::ostringstream out;
    out << record_.incarnation << ' ' << places_.base << ' ' << places_.present.size() << ' ';
    for (const auto step : places_.present) out << step << ' ';
    out << places_.folder;
    return out.str();
  });
  std::istringstream in(text);
  std::size_t present = 0;
  in >> places_.incarnation >> places_.base >> present;
  for (std::uint64_t step = 0; present > 0 && in >> step; --present) places_.present.insert(step);
  in >> std::ws;
  std::getline(in, places_.folder);
  on_every_rank(cohort, [&] {
    if (::access(places_.folder.c_str(), W_OK | X_OK) != 0) storage::fail("write to the folder", places_.folder, errno);
    if (!lock_) lock_ = lock_to_watch(places_.folder);
  });
  agreement_ = std::make_unique<Agreement>(context, name, cohort, agreement_options(options));
  share_outcome(cohort, [&] {
    begin_stream();
    auto& node = agreement_->node();
    fabric::Registration writer;
    writer.stream = name;
    writer.endpoint = node.endpoint();
    writer.token = node.token();
    masters_ = std::make_unique<MasterWriter>(context.progress, std::move(writer), places_, *lock_,
                                              base::Deadline(Timeout(options.open_timeout_ms)),
                                              [&node](const Error& error) { node.fail(error.what(), error.code()); });
  });
}

// Rank 0: what there is of the stream, and that nobody else writes it.
void FileSink::prepare() {
  const auto& folder = places_.folder;
  require_own_files(folder);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) storage::fail("make the folder", folder, error.value());
  lock_ = lock_for_writing(folder);
  const auto before = read_record(folder);
  if (!lock_)
    throw Error(Errc::wrong_state,
                "the stream in " + folder + " is already being written" +
                    (before ? " by process " + std::to_string(before->pid) + " on " + before->host : std::string()));
  if (before && before->stream != record_.stream)
    throw Error(Errc::wrong_state, "the folder " + folder + " holds stream '" + before->stream + "', not '" +
                                       record_.stream + "': choose another folder, or remove it");
  const auto token = fabric::Token::random();
  std::memcpy(&record_.incarnation, token.bytes.data(), sizeof(record_.incarnation));
  if (options_.resume == "no" || !before) {
    if (options_.resume != "no" && options_.resume != "append") places_.base = std::stoull(options_.resume);
    return;
  }
  record_.incarnation = before->incarnation;
  const auto steps = list_steps(folder);
  if (!steps.empty() && steps.back() > INT64_MAX)
    throw Error(Errc::protocol, "no stream has so many steps: " + file_path(folder, steps.back(), 0));
  if (options_.resume != "append") places_.base = std::stoull(options_.resume);
  else places_.base = steps.empty() ? 0 : steps.back() + 1;
  places_.present.insert(std::ranges::lower_bound(steps, places_.base), steps.end());
}

// Rank 0, once all ranks are there: the stream before gives way.
void FileSink::begin_stream() {
  const auto before = read_record(places_.folder);
  remove_steps(places_.folder, !before || before->incarnation != record_.incarnation);
  write_record(places_.folder, record_, places_.sync);
}

StepSink::Begun FileSink::begin(base::Deadline deadline) {
  require_folder();
  const auto begun = agreement_->begin(deadline);
  if (begun != Begun::open) return begun;
  scratch_.reuse();
  unwritten_.clear();
  compressed_bytes_ = 0;
  skipped_ = places_.present.contains(step());
  if (skipped_) return begun;
  try {
    open_file();
  } catch (...) {
    discard();
    throw;
  }
  return begun;
}

// Every rank is told when one finds that the folder is not the stream's any more.
void FileSink::require_folder() {
  try {
    if (lock_) require_ours(*lock_);
  } catch (const Error& error) {
    agreement_->node().fail(error.what(), error.code());
    throw;
  }
}

void FileSink::open_file() {
  const auto path = part_path(places_.folder, step(), rank_);
  made_ = hdf5_part().create(path);
  file_.emplace(path, O_RDWR);
}

void FileSink::drop_file() noexcept {
  if (!made_) return;
  file_.reset();
  made_.reset();
  if (lock_ && still_ours(*lock_)) ::unlink(part_path(places_.folder, step(), rank_).c_str());
}

std::optional<StepSink::Taken> FileSink::take(const Block& block) {
  Taken taken;
  const bool compressed =
      skipped_ || (options_.compression > 0 && block.bytes >= least_compressed_bytes && !block.box.count.empty());
  if (compressed) {
    taken.segment = compressed_segment;
    taken.offset = compressed_bytes_;
    compressed_bytes_ +=
        (block.bytes + memory::block_alignment - 1) / memory::block_alignment * memory::block_alignment;
  } else {
    taken.offset = made_->add_block(block.number, block.variable, block.box.count);
  }
  if (block.data == nullptr) taken.memory = scratch_.take(block.bytes);
  if (skipped_) return taken;
  if (block.data != nullptr && !block.lent) write_block(block, compressed, taken.offset);
  else
    unwritten_.push_back({block.number,
                          block.variable,
                          block.box,
                          taken.offset,
                          compressed,
                          block.data ? block.data : taken.memory,
                          {block.strides.begin(), block.strides.end()},
                          block.bytes});
  return taken;
}

void FileSink::write_block(const Block& block, bool compressed, std::uint64_t offset) {
  const auto* data = block.data;
  if (!compressed) {
    const auto write = [&](const std::byte* part, std::uint64_t bytes) {
      file_->write_at(offset, {part, bytes});
      offset += bytes;
    };
    block.strides.empty() ? write(data, block.bytes) : pack_in_parts(block, packed_, write);
    return;
  }
  if (!block.strides.empty()) {
    packed_.resize(block.bytes);
    const auto size = size_of(block.variable.dtype);
    const auto packed = model::packed_strides(block.box.count, size, block.variable.order);
    model::copy_nd(packed_.data(), packed.data(), data, block.strides.data(), block.box.count.begin(),
                   block.box.count.size(), size);
    data = packed_.data();
  }
  made_->write_compressed(block.number, block.variable, block.box.count, data, static_cast<int>(options_.compression));
}

void FileSink::commit(const Payload& payload, std::shared_ptr<const std::string> layout) {
  try {
    if (!skipped_) finish_file(payload);
  } catch (const Error&) {
    // Of a stream that has failed, rank 0 removes what is not complete: why it failed is what counts.
    agreement_->node().check();
    throw;
  }
  agreement_->commit({}, std::move(layout));
}

// Rank 0's keeps its temporary name: it becomes the master.
void FileSink::finish_file(const Payload& payload) {
  for (const auto& b : unwritten_) write_block(b.block(), b.compressed, b.offset);
  StepHeader header;
  header.rank = rank_;
  header.ranks = record_.ranks;
  header.step = step();
  header.incarnation = places_.incarnation;
  if (payload.bytes > 0) {
    header.payload = {made_->add_bytes("payload", payload.bytes), payload.bytes,
                      storage::checksum({payload.place.data, payload.bytes})};
    file_->write_at(header.payload.offset, {payload.place.data, payload.bytes});
  }
  write_header(*file_, header, made_->header_offset());
  made_->close();
  if (places_.sync) file_->sync_data();
  if (rank_ != 0) {
    require_folder();
    storage::rename_file(file_->path(), file_path(places_.folder, step(), rank_));
    if (places_.sync) storage::sync_folder(places_.folder);
  }
  file_.reset();
  made_.reset();
}

void FileSink::close(base::Deadline deadline) {
  try {
    agreement_->close(deadline);
  } catch (...) {
    if (rank_ == 0) give_up();
    throw;
  }
  if (rank_ != 0 || !writes_) return;
  writes_ = false;
  masters_.reset();
  require_ours(*lock_);
  remove_steps(places_.folder, false);
  record_.ended = true;
  write_record(places_.folder, record_, places_.sync);
  lock_.reset();
}

// Steps that are not complete will never be.
void FileSink::give_up() noexcept {
  if (!std::exchange(writes_, false)) return;
  masters_.reset();
  try {
    require_ours(*lock_);
    remove_steps(places_.folder, false);
    record_.why = agreement_->node().failure();
    write_record(places_.folder, record_, places_.sync);
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "files of incomplete steps stay", {{"stream", stream()}, {"why", e.what()}});
  }
  lock_.reset();
}

void FileSink::lose(const std::string& how) {
  agreement_->node().wait_released(base::Deadline(lose_within));  // what it committed is worth keeping
  agreement_->lose(how);
  if (rank_ == 0) give_up();
}

}  // namespace

std::unique_ptr<StepSink> create_file(const EngineContext& context, const std::string& name, Cohort& cohort,
                                      const StreamOptions& options) {
  return std::make_unique<FileSink>(context, name, cohort, options);
}

}  // namespace penstock::stream
