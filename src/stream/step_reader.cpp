#include "stream/step_reader.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "memory/kind.hpp"
#include "model/box.hpp"
#include "model/copy.hpp"
#include "model/minmax.hpp"
#include "stream/recycling_allocator.hpp"

namespace penstock::stream {
namespace {

constexpr std::size_t max_cached_parts = 64;

// One pool for the process: views may outlive every reader.
const std::shared_ptr<RecyclingPool>& view_pool() {
  static const auto pool = std::make_shared<RecyclingPool>();
  return pool;
}

// Of an array of this shape, where along each dimension its n-th element lies (in the given order).
Dims unravel(std::uint64_t n, const Dims& count, Order order) {
  Dims index = count;
  for (std::size_t i = 0; i < count.size(); ++i) {
    const auto d = order == Order::row ? count.size() - 1 - i : i;  // the fastest first
    index[d] = n % count[d];
    n /= count[d];
  }
  return index;
}

// A run of bytes of a rank's segment as a piece of a plan.
model::Piece run_piece(const model::Block& from, std::uint64_t offset, std::uint64_t bytes, std::uint64_t to) {
  model::Piece piece;
  piece.writer_rank = from.writer_rank;
  piece.segment = from.segment;
  piece.elem_size = 1;
  const std::int64_t stride = 1;
  piece.copy = model::normalise(&stride, &stride, &bytes, 1, 1);
  piece.copy.src_offset += static_cast<std::int64_t>(from.offset + offset);
  piece.copy.dst_offset += static_cast<std::int64_t>(to);
  return piece;
}

}  // namespace

void StepSource::seek(std::uint64_t) {
  throw Error(Errc::unsupported, "stream " + stream() + ": its engine does not keep steps; seek needs engine=pool");
}
std::vector<std::uint64_t> StepSource::steps() {
  throw Error(Errc::unsupported, "stream " + stream() + ": its engine does not keep steps; steps needs engine=pool");
}

StepReader::StepReader(std::unique_ptr<StepSource> source, const StreamOptions& options, int rank)
    : options_(options), source_(std::move(source)), statistics_file_(source_->stream(), "reader", rank) {
  counters_.data_plane = source_->plane().name();
  base::log(base::Level::info, "stream opened",
            {{"stream", source_->stream()}, {"data_plane", source_->plane().name()}});
}

StepReader::~StepReader() {
  try {
    close();
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "the reader did not close well", {{"stream", name()}, {"why", e.what()}});
  }
}

base::Deadline StepReader::deadline_of(Timeout timeout) const {
  return base::Deadline(timeout == configured ? Timeout(options_.step_timeout_ms) : timeout);
}

// --------------------------------------------------------------------------------------------------------------- steps

Outcome StepReader::begin_step(Timeout timeout) {
  if (closed_) throw Error(Errc::stream_closed, "stream " + name() + " is closed");
  if (step_) throw Error(Errc::wrong_state, "stream " + name() + ": the last step has not ended");
  StepSource::Step next;
  const auto start = base::Clock::now();
  outcome_ = source_->wait_step(next, deadline_of(timeout));
  counters_.wait_s += base::seconds_since(start);
  if (outcome_ != Outcome::ready) return outcome_;
  describe(next.epoch);  // throws: the lease goes back
  step_ = std::move(next);
  last_step_ = step_->step;
  payloads_.reset();
  pending_.clear();
  ++counters_.steps;
  return outcome_;
}

void StepReader::seek(std::uint64_t step) {
  if (closed_) throw Error(Errc::stream_closed, "stream " + name() + " is closed");
  source_->seek(step);
}

std::vector<std::uint64_t> StepReader::steps() {
  if (closed_) throw Error(Errc::stream_closed, "stream " + name() + " is closed");
  return source_->steps();
}

const StepSource::Step& StepReader::current() const {
  if (!step_) throw Error(Errc::wrong_state, "stream " + name() + ": no step is being read");
  return *step_;
}

std::uint64_t StepReader::step() const { return current().step; }

const model::Epoch& StepReader::layout() const {
  current();
  return *epoch_;
}

const VariableInfo& StepReader::variable(std::string_view name) const {
  const auto* found = layout().find(name);
  if (!found) refuse_absent(name);
  return found->info;
}

const model::VariableLayout& StepReader::put_variable(std::uint32_t id) const {
  const auto& epoch = layout();
  if (const auto* found = epoch.find(id)) return *found;
  if (id < epoch.defined().size()) refuse_absent(epoch.defined()[id].info.name);
  throw Error(Errc::not_found, "stream " + name() + ": no variable has the id " + std::to_string(id));
}

void StepReader::refuse_absent(std::string_view variable) const {
  std::string text =
      "stream " + name() + ": step " + std::to_string(step()) + " has no variable '" + std::string(variable) + "'; ";
  const auto last = last_with_.find(variable);
  if (last != last_with_.end())
    throw Error(Errc::not_found,
                text + "the last step with it that this reader has seen is step " + std::to_string(last->second));
  text += "no step that this reader has seen has it";
  if (const auto nearest = epoch_->nearest(variable); !nearest.empty()) text += "; did you mean '" + nearest + "'?";
  throw Error(Errc::not_found, text);
}

// Decodes what changed since the last step's epoch.
void StepReader::describe(const std::shared_ptr<const EpochBlobs>& blobs) {
  if (blobs == blobs_) return;
  auto layouts = rank_layouts_;
  auto places = rank_places_;
  layouts.resize(blobs->layouts.size());
  places.resize(layouts.size());
  std::vector<std::uint32_t> with_payload;
  for (std::uint32_t rank = 0; rank < layouts.size(); ++rank) {
    const auto& blob = blobs->layouts[rank];
    if (!blob) throw Error(Errc::protocol, "the writer did not describe rank " + std::to_string(rank));
    const bool same = blobs_ && blobs_->layouts.size() > rank && blobs_->layouts[rank] == blob && layouts[rank];
    const bool had = std::find(payload_ranks_.begin(), payload_ranks_.end(), rank) != payload_ranks_.end();
    bool has = had;
    if (!same) {
      auto decoded = wire::decode_layout(rank, std::as_bytes(std::span(*blob)));
      has = decoded.has_payload;
      layouts[rank] = std::make_shared<const model::RankLayout>(std::move(decoded.layout));
      places[rank] = source_->place(*layouts[rank]);
    }
    if (has) with_payload.push_back(rank);
  }
  auto epoch = model::Epoch::build(blobs->number, layouts);
  if (epoch_)
    for (const auto& info : epoch_->variables()) {
      auto& last = last_with_[info.name];
      last = std::max(last, last_step_);
    }
  epoch_ = std::move(epoch);
  rank_layouts_ = std::move(layouts);
  rank_places_ = std::move(places);
  payload_ranks_ = std::move(with_payload);
  blobs_ = blobs;
  parts_.clear();
  place(blobs->number);
}

// The epoch that plans are made of.
void StepReader::place(std::uint64_t number) {
  placed_ = epoch_;
  chunk_first_.clear();
  if (std::none_of(rank_places_.begin(), rank_places_.end(), [](const auto& p) { return p.layout != nullptr; })) return;
  auto layouts = rank_layouts_;
  for (std::size_t rank = 0; rank < layouts.size(); ++rank)
    if (rank_places_[rank].layout) layouts[rank] = rank_places_[rank].layout;
  placed_ = model::Epoch::build(number, std::move(layouts), model::any_segments);
  number_chunks();
}

void StepReader::number_chunks() {
  chunk_first_.resize(epoch_->defined().size());
  for (std::uint32_t id = 0; id < chunk_first_.size(); ++id) {
    const auto& described = epoch_->defined()[id].blocks;
    const auto& placed = placed_->defined()[id].blocks;
    auto& first = chunk_first_[id];
    first.reserve(described.size() + 1);
    std::uint32_t at = 0;
    for (const auto& block : described) {
      first.push_back(at);
      const auto& place = rank_places_[static_cast<std::size_t>(block.writer_rank)];
      const auto end = place.layout ? place.first.at(block.rank_block + std::size_t{1}) : block.rank_block + 1;
      while (at < placed.size() && placed[at].writer_rank == block.writer_rank && placed[at].rank_block < end) ++at;
    }
    first.push_back(at);
    if (at != placed.size()) throw Error(Errc::internal, "a placed block belongs to none that was described");
  }
}

StepReader::Chunks StepReader::chunks_of(std::uint32_t id, std::uint64_t block) const {
  if (chunk_first_.empty()) return {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block) + 1};
  const auto& first = chunk_first_[id];
  return {first[block], first[block + 1]};
}

const VariableInfo* StepReader::find(std::string_view name) const {
  const auto* variable = layout().find(name);
  return variable ? &variable->info : nullptr;
}

std::vector<BlockInfo> StepReader::blocks(std::uint32_t id) const {
  std::vector<BlockInfo> result;
  for (const auto& b : put_variable(id).blocks) result.push_back({b.box, b.writer_rank});
  return result;
}

Dims StepReader::shape_of(std::uint32_t id, const Selection& selection) const {
  return model::shape_of(put_variable(id), selection);
}

// ------------------------------------------------------------------------------------------------------------- payload

const std::vector<StepReader::RankPayload>& StepReader::payloads() {
  const auto& step = current();
  if (payloads_) return *payloads_;
  std::vector<RankPayload> result;
  std::vector<std::byte> bytes;
  for (const auto rank : payload_ranks_) {
    bytes.clear();
    source_->plane().read_payload(step.step, step.slot, static_cast<int>(rank), bytes, deadline_of(configured));
    if (!bytes.empty()) result.push_back({rank, wire::decode_payload(bytes)});
  }
  payloads_ = std::move(result);
  return *payloads_;
}

std::vector<std::string> StepReader::attribute_names() {
  std::vector<std::string> names;
  for (const auto& p : payloads())
    for (const auto& [name, value] : p.payload.attributes)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

// Ranks that put the same attribute mean the same; if they differ, the lowest rank's holds.
std::optional<Attribute> StepReader::attribute(std::string_view name) {
  for (const auto& p : payloads())
    for (const auto& [have, value] : p.payload.attributes)
      if (have == name) return value;
  return std::nullopt;
}

std::optional<MinMax> StepReader::min_max(std::uint32_t id, std::optional<std::uint64_t> block) {
  const auto& variable = put_variable(id);
  if (block && *block >= variable.blocks.size())
    throw Error(Errc::invalid_argument,
                "variable " + variable.info.name + " has " + std::to_string(variable.blocks.size()) + " blocks");
  std::optional<MinMax> result;
  for (const auto& p : payloads()) {
    for (const auto& r : p.payload.ranges) {
      for (std::size_t b = block.value_or(0); b < (block ? *block + 1 : variable.blocks.size()); ++b)
        if (variable.blocks[b].writer_rank == static_cast<int>(p.rank) && variable.blocks[b].rank_block == r.block)
          model::merge(result, r.range);
    }
  }
  return result;
}

std::vector<std::string> StepReader::read_strings(std::uint32_t id) {
  const auto& variable = put_variable(id);
  if (variable.info.dtype != DType::string)
    throw Error(Errc::invalid_argument, "variable " + variable.info.name + " does not hold strings");
  std::vector<std::string> result(variable.blocks.size());
  for (const auto& p : payloads())
    for (const auto& s : p.payload.strings)
      for (std::size_t b = 0; b < variable.blocks.size(); ++b)
        if (variable.blocks[b].writer_rank == static_cast<int>(p.rank) && variable.blocks[b].rank_block == s.block)
          result[b] = s.text;
  if (variable.info.kind == penstock::Kind::global_value && result.size() > 1)
    result.erase(result.begin(), result.end() - 1);
  return result;
}

// ---------------------------------------------------------------------------------------------------------------- data

void StepReader::enqueue(const std::shared_ptr<const model::Plan>& plan, void* out) {
  if (out == nullptr && plan->bytes() > 0) throw Error(Errc::invalid_argument, "no memory to read into");
  pending_.push_back({plan, static_cast<std::byte*>(out)});
}

void StepReader::get(std::uint32_t id, const Selection& selection, void* out, Order order,
                     std::span<const std::int64_t> strides) {
  const auto& variable = put_variable(id);
  if (placed_ == epoch_) return enqueue(plans_.get(*epoch_, id, selection, {order, strides}), out);
  model::shape_of(variable, selection);  // throws in the writer's numbers
  const bool one_local = selection.form() == Selection::Form::all && variable.info.kind == penstock::Kind::local_array;
  if (selection.form() != Selection::Form::block && !one_local)
    return enqueue(plans_.get(*placed_, id, selection, {order, strides}), out);
  const auto block = one_local ? 0 : selection.block_number();
  const auto chunks = chunks_of(id, block);
  if (chunks.cut()) return get_cut(id, block, static_cast<std::byte*>(out), order, strides);
  enqueue(plans_.get(*placed_, id, Selection::block(chunks.first), {order, strides}), out);
}

// A block that is kept in several: each goes to its part of the caller's array.
void StepReader::get_cut(std::uint32_t id, std::uint64_t number, std::byte* out, Order order,
                         std::span<const std::int64_t> strides) {
  const auto& described = epoch_->variable(id);
  const auto& block = described.blocks[number];
  const auto& count = block.box.count;
  if (!strides.empty() && strides.size() != count.size())
    throw Error(Errc::invalid_argument, "variable " + described.info.name + ": one stride for each dimension");
  if (out == nullptr) throw Error(Errc::invalid_argument, "no memory to read into");
  const auto packed = model::packed_strides(count, described.elem_size, order);
  const auto used = strides.empty() ? std::span<const std::int64_t>(packed).first(count.size()) : strides;
  const auto chunks = chunks_of(id, number);
  std::uint64_t bytes_before = 0;
  for (auto chunk = chunks.first; chunk < chunks.last; ++chunk) {
    const auto start = unravel(bytes_before / described.elem_size, count, described.info.order);
    std::int64_t at = 0;
    for (std::size_t d = 0; d < count.size(); ++d) at += static_cast<std::int64_t>(start[d]) * used[d];
    enqueue(plans_.get(*placed_, id, Selection::block(chunk), {order, used}), out + at);
    bytes_before += placed_->variable(id).blocks[chunk].bytes;
  }
}

void StepReader::wait(Timeout timeout) {
  const auto& step = current();
  if (pending_.empty()) return;
  items_.clear();
  bool ordered = false;
  std::uint64_t bytes = 0;
  for (const auto& p : pending_) {
    for (const auto& piece : p.plan->pieces()) items_.push_back({&piece, p.out});
    ordered |= p.plan->overlapping();
    bytes += p.plan->bytes();
  }
  const auto start = base::Clock::now();
  struct Clear {
    std::vector<Pending>& pending;
    ~Clear() { pending.clear(); }
  } clear{pending_};
  auto& plane = source_->plane();
  const auto fetch = memory::devices_here(start) ? &transport::DataPlane::fetch_to_any : &transport::DataPlane::fetch;
  (plane.*fetch)(step.step, step.slot, items_, ordered, deadline_of(timeout));
  counters_.copy_s += base::seconds_since(start);
  counters_.copies += items_.size();
  counters_.bytes += bytes;
  counters_.bytes_copied += bytes;
}

const std::vector<model::ViewPart>& StepReader::cached_parts(std::uint32_t id, const Selection& selection) {
  for (const auto& c : parts_)
    if (c.variable == id && c.selection == selection) return c.parts;
  if (parts_.size() >= max_cached_parts) parts_.clear();
  parts_.push_back({id, selection, model::view_parts(put_variable(id), selection)});
  return parts_.back().parts;
}

// A part of one block: in place where it lies in one piece, else its bytes put together from the pieces.
transport::DataPlane::Mapped StepReader::view_part(std::uint32_t id, const model::ViewPart& part) {
  const auto& step = current();
  auto& plane = source_->plane();
  const auto deadline = deadline_of(configured);
  if (placed_ == epoch_)
    return plane.map(step.step, step.slot, part.writer_rank, part.segment, part.offset, part.bytes, deadline);
  const auto& placed = placed_->variable(id).blocks;
  const auto within = part.offset - epoch_->variable(id).blocks[part.block].offset;
  const auto chunks = chunks_of(id, part.block);
  if (!chunks.cut()) {
    const auto& block = placed[chunks.first];
    return plane.map(step.step, step.slot, part.writer_rank, block.segment, block.offset + within, part.bytes,
                     deadline);
  }
  std::vector<model::Piece> pieces;
  std::uint64_t position = 0;  // of the chunk within the block
  for (auto c = chunks.first; c < chunks.last; position += placed[c++].bytes) {
    const auto first = std::max(position, within);
    const auto last = std::min(position + placed[c].bytes, within + part.bytes);
    if (first >= last) continue;
    if (last - first == part.bytes)
      return plane.map(step.step, step.slot, part.writer_rank, placed[c].segment, placed[c].offset + (first - position),
                       part.bytes, deadline);
    pieces.push_back(run_piece(placed[c], first - position, last - first, first - within));
  }
  auto joined = plane.join(step.step, step.slot, pieces, part.bytes, deadline);
  counters_.copies += pieces.size();
  counters_.bytes_copied += part.bytes;
  return joined;
}

Views StepReader::view(std::uint32_t id, const Selection& selection) {
  const auto& step = current();
  struct Owner {
    std::shared_ptr<const void> lease;
    std::shared_ptr<const void> memory;
  };
  const bool in_place = source_->plane().maps_in_place();
  Views views;
  for (const auto& part : cached_parts(id, selection)) {
    if (part.bytes == 0) {
      views.push_back(View({}, part.box, part.order, part.strides, nullptr));
      continue;
    }
    auto mapped = view_part(id, part);
    auto owner = std::allocate_shared<Owner>(RecyclingAllocator<Owner>(view_pool()),
                                             Owner{in_place ? step.lease : nullptr, std::move(mapped.owner)});
    views.push_back(
        View(mapped.bytes, part.box, part.order, part.strides, std::shared_ptr<const void>(std::move(owner))));
    counters_.bytes += part.bytes;
  }
  return views;
}

void StepReader::end_step() {
  current();
  {
    struct Release {
      StepReader& reader;
      ~Release() { reader.step_.reset(); }
    } release{*this};
    if (!pending_.empty()) wait(configured);
    statistics_file_.update([this] { return statistics(); });
  }
  source_->step_ended();
}

void StepReader::close() {
  if (closed_) return;
  closed_ = true;
  step_.reset();
  source_->close();
  statistics_file_.finish([this] { return statistics(); });
}

StreamStatistics StepReader::statistics() const {
  auto result = counters_;
  source_->add_statistics(result);
  result.plans_built = plans_.built();
  result.plans_reused = plans_.reused();
  return result;
}

}  // namespace penstock::stream
