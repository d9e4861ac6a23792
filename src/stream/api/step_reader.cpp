#include "stream/api/step_reader.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "memory/kind.hpp"
#include "model/minmax.hpp"
#include "stream/api/patience.hpp"
#include "stream/api/recycling_allocator.hpp"

namespace penstock::stream {
namespace {

constexpr std::size_t max_cached_parts = 64;

// One pool for the process: views may outlive every reader.
const std::shared_ptr<RecyclingPool>& view_pool() {
  static const auto pool = std::make_shared<RecyclingPool>();
  return pool;
}

}  // namespace

void StepSource::seek(std::uint64_t) {
  throw Error(Errc::unsupported,
              "stream " + stream() + ": its engine does not keep steps; seek needs engine=pool, file or space");
}
std::vector<std::uint64_t> StepSource::steps() {
  throw Error(Errc::unsupported,
              "stream " + stream() + ": its engine does not keep steps; steps needs engine=pool, file or space");
}

void StepSource::on_step(Take) {
  throw Error(Errc::unsupported,
              "stream " + stream() +
                  ": its engine calls no functions; open the reader with engine=insitu for on_step, or loop over "
                  "the steps");
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
  return base::Deadline(timeout == configured ? chosen_or_usual(options_.step_timeout_ms) : timeout);
}

// --------------------------------------------------------------------------------------------------------------- steps

Outcome StepReader::begin_step(Timeout timeout) {
  if (closed_) throw Error(Errc::stream_closed, "stream " + name() + " is closed");
  if (step_)
    throw Error(Errc::wrong_state, "stream " + name() + ": step " + std::to_string(step_->step) +
                                       " is open: end it before the next begins");
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

void StepReader::on_step(StepSource::Take take) {
  if (closed_) throw Error(Errc::stream_closed, "stream " + name() + " is closed");
  source_->on_step(std::move(take));
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
  layouts.resize(blobs->layouts.size());
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
  payload_ranks_ = std::move(with_payload);
  blobs_ = blobs;
  parts_.clear();
  source_->described(rank_layouts_);
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
  put_variable(id);
  enqueue(plans_.get(*epoch_, id, selection, {order, strides}), out);
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

Views StepReader::view(std::uint32_t id, const Selection& selection) {
  const auto& step = current();
  struct Owner {
    std::shared_ptr<const void> lease;
    std::shared_ptr<const void> memory;
  };
  auto& plane = source_->plane();
  const bool in_place = plane.maps_in_place();
  const auto deadline = deadline_of(configured);
  Views views;
  for (const auto& part : cached_parts(id, selection)) {
    if (part.bytes == 0) {
      views.push_back(View({}, part.box, part.order, part.strides, nullptr));
      continue;
    }
    auto mapped = plane.map(step.step, step.slot, part.writer_rank, part.segment, part.offset, part.bytes, deadline);
    counters_.copies += mapped.copies;
    if (mapped.copies > 0) counters_.bytes_copied += part.bytes;
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
  source_->stop_calls();
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
