#include "stream/direct_reader.hpp"

#include "base/log.hpp"
#include "fabric/reach.hpp"
#include "model/minmax.hpp"
#include "stream/recycling_allocator.hpp"

namespace penstock::stream {
namespace {

double seconds_since(base::Clock::time_point start) {
  return std::chrono::duration<double>(base::Clock::now() - start).count();
}

constexpr std::size_t max_cached_parts = 64;

// One pool a kind of object, for the process: views may outlive every reader.
const std::shared_ptr<RecyclingPool>& lease_pool() {
  static const auto pool = std::make_shared<RecyclingPool>();
  return pool;
}
const std::shared_ptr<RecyclingPool>& view_pool() {
  static const auto pool = std::make_shared<RecyclingPool>();
  return pool;
}

}  // namespace

// A step held by this rank; released with the last owner.
class DirectReader::Lease {
 public:
  Lease(std::shared_ptr<ReaderNode> node, std::uint64_t step, std::uint32_t slot)
      : step(step), slot(slot), node_(std::move(node)) {
    node_->count_lease();
  }
  ~Lease() {
    try {
      node_->release(step, slot);
    } catch (const std::exception& e) {
      base::log(base::Level::warn, "a step could not be released", {{"stream", node_->stream()}, {"why", e.what()}});
    }
  }
  const std::uint64_t step;
  const std::uint32_t slot;

 private:
  std::shared_ptr<ReaderNode> node_;
};

DirectReader::DirectReader(const EngineContext& context, const std::string& name, std::shared_ptr<Cohort> cohort,
                           const StreamOptions& options)
    : options_(options),
      cohort_(std::move(cohort)),
      node_(ReaderNode::open(context, name, *cohort_, options)),
      progress_(context.progress),
      statistics_file_(node_->stream(), "reader", cohort_->rank()) {
  plane_ = make_plane();
  plane_->prepare(base::Deadline(Timeout(options_.open_timeout_ms)));
  counters_.data_plane = plane_->name();
  base::log(base::Level::info, "stream opened", {{"stream", node_->stream()}, {"data_plane", plane_->name()}});
}

DirectReader::~DirectReader() {
  try {
    close();
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "the reader did not close well", {{"stream", node_->stream()}, {"why", e.what()}});
  }
}

std::unique_ptr<ReaderEngine> open_direct_reader(const EngineContext& context, const std::string& name,
                                                 std::shared_ptr<Cohort> cohort, const StreamOptions& options) {
  return std::make_unique<DirectReader>(context, name, std::move(cohort), options);
}

// Shared memory when every writer rank's Unix socket can be reached from here, which is what being on one host means.
std::unique_ptr<fabric::DataPlane> DirectReader::make_plane() const {
  const auto& admission = node_->admission();
  fabric::DataPlaneOptions plane;
  plane.stream = node_->stream();
  plane.token = admission.token;
  plane.rank = static_cast<std::uint32_t>(cohort_->rank());
  plane.writers = admission.endpoints;
  bool local = options_.data_plane != DataPlane::tcp;
  std::size_t elsewhere = admission.endpoints.size();  // the first such rank
  for (std::size_t rank = 0; local && rank < admission.endpoints.size(); ++rank) {
    local = fabric::reachable_locally(admission.endpoints[rank]);
    if (!local) elsewhere = rank;
  }
  // Rank 0's socket was reached a moment ago: the writer is not elsewhere, it is gone.
  if (options_.data_plane == DataPlane::shm && elsewhere == 0)
    throw Error(Errc::writer_lost, "stream " + node_->stream() + ": the writer " + admission.writer +
                                       " was lost while this reader joined");
  if (options_.data_plane == DataPlane::shm && !local)
    throw Error(Errc::unsupported, "stream " + node_->stream() + ": data_plane=shm, but writer rank " +
                                       std::to_string(elsewhere) + " cannot be reached on this host");
  if (!local && admission.endpoints.front().tcp_hosts.empty())
    throw Error(Errc::unsupported,
                "stream " + node_->stream() +
                    ": its writer serves shared memory only (data_plane=shm), and is not on this host");
  return local ? fabric::make_shm_plane(progress_, std::move(plane)) : fabric::make_tcp_plane(std::move(plane));
}

base::Deadline DirectReader::deadline_of(Timeout timeout) const {
  return base::Deadline(timeout == configured ? Timeout(options_.step_timeout_ms) : timeout);
}

// --------------------------------------------------------------------------------------------------------------- steps

Outcome DirectReader::begin_step(Timeout timeout) {
  if (closed_) throw Error(Errc::stream_closed, "stream " + name() + " is closed");
  if (lease_) throw Error(Errc::wrong_state, "stream " + name() + ": the last step has not ended");
  ReaderProtocol::Step next;
  const auto start = base::Clock::now();
  outcome_ = node_->wait_step(next, deadline_of(timeout));
  counters_.wait_s += seconds_since(start);
  if (outcome_ != Outcome::ready) return outcome_;
  auto lease = std::allocate_shared<Lease>(RecyclingAllocator<Lease>(lease_pool()), node_, next.step, next.slot);
  describe(next.epoch);  // throws: the lease goes back
  lease_ = std::move(lease);
  payloads_.reset();
  pending_.clear();
  ++counters_.steps;
  return outcome_;
}

const DirectReader::Lease& DirectReader::current() const {
  if (!lease_) throw Error(Errc::wrong_state, "stream " + name() + ": no step is being read");
  return *lease_;
}

std::uint64_t DirectReader::step() const { return current().step; }

const model::Epoch& DirectReader::layout() const {
  current();
  return *epoch_;
}

// Decodes what changed since the last step's epoch.
void DirectReader::describe(const std::shared_ptr<const EpochBlobs>& blobs) {
  if (blobs == blobs_) return;
  auto layouts = rank_layouts_;
  layouts.resize(blobs->layouts.size());
  std::vector<std::uint32_t> with_payload;
  for (std::uint32_t rank = 0; rank < layouts.size(); ++rank) {
    const auto& blob = blobs->layouts[rank];
    if (!blob) throw Error(Errc::protocol, "the writer did not describe rank " + std::to_string(rank));
    const bool same = blobs_ && blobs_->layouts[rank] == blob && layouts[rank];
    const bool had = std::find(payload_ranks_.begin(), payload_ranks_.end(), rank) != payload_ranks_.end();
    bool has = had;
    if (!same) {
      auto decoded = wire::decode_layout(rank, std::as_bytes(std::span(*blob)));
      has = decoded.has_payload;
      layouts[rank] = std::make_shared<const model::RankLayout>(std::move(decoded.layout));
    }
    if (has) with_payload.push_back(rank);
  }
  epoch_ = model::Epoch::build(blobs->number, layouts);
  rank_layouts_ = std::move(layouts);
  payload_ranks_ = std::move(with_payload);
  blobs_ = blobs;
  parts_.clear();
}

const VariableInfo* DirectReader::find(std::string_view name) const {
  const auto* variable = layout().find(name);
  return variable ? &variable->info : nullptr;
}

std::vector<BlockInfo> DirectReader::blocks(std::uint32_t id) const {
  std::vector<BlockInfo> result;
  for (const auto& b : layout().variable(id).blocks) result.push_back({b.box, b.writer_rank});
  return result;
}

Dims DirectReader::shape_of(std::uint32_t id, const Selection& selection) const {
  return model::shape_of(layout().variable(id), selection);
}

// ------------------------------------------------------------------------------------------------------------- payload

const std::vector<DirectReader::RankPayload>& DirectReader::payloads() {
  const auto& lease = current();
  if (payloads_) return *payloads_;
  std::vector<RankPayload> result;
  std::vector<std::byte> bytes;
  for (const auto rank : payload_ranks_) {
    bytes.clear();
    plane_->read_payload(lease.step, lease.slot, static_cast<int>(rank), bytes, deadline_of(configured));
    if (!bytes.empty()) result.push_back({rank, wire::decode_payload(bytes)});
  }
  payloads_ = std::move(result);
  return *payloads_;
}

std::vector<std::string> DirectReader::attribute_names() {
  std::vector<std::string> names;
  for (const auto& p : payloads())
    for (const auto& [name, value] : p.payload.attributes)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

// Ranks that put the same attribute mean the same; if they differ, the lowest rank's holds.
std::optional<Attribute> DirectReader::attribute(std::string_view name) {
  for (const auto& p : payloads())
    for (const auto& [have, value] : p.payload.attributes)
      if (have == name) return value;
  return std::nullopt;
}

std::optional<MinMax> DirectReader::min_max(std::uint32_t id, std::optional<std::uint64_t> block) {
  const auto& variable = layout().variable(id);
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

std::vector<std::string> DirectReader::read_strings(std::uint32_t id) {
  const auto& variable = layout().variable(id);
  if (variable.info.dtype != DType::string)
    throw Error(Errc::invalid_argument, "variable " + variable.info.name + " does not hold strings");
  std::vector<std::string> result(variable.blocks.size());
  for (const auto& p : payloads())
    for (const auto& s : p.payload.strings)
      for (std::size_t b = 0; b < variable.blocks.size(); ++b)
        if (variable.blocks[b].writer_rank == static_cast<int>(p.rank) && variable.blocks[b].rank_block == s.block)
          result[b] = s.text;
  if (variable.info.kind == Kind::global_value && result.size() > 1) result.erase(result.begin(), result.end() - 1);
  return result;
}

// ---------------------------------------------------------------------------------------------------------------- data

void DirectReader::get(std::uint32_t id, const Selection& selection, void* out, Order order,
                       std::span<const std::int64_t> strides) {
  current();
  const auto& plan = plans_.get(*epoch_, id, selection, {order, strides});
  if (out == nullptr && plan->bytes() > 0) throw Error(Errc::invalid_argument, "no memory to read into");
  pending_.push_back({plan, static_cast<std::byte*>(out)});
}

void DirectReader::wait(Timeout timeout) {
  const auto& lease = current();
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
  plane_->fetch(lease.step, lease.slot, items_, ordered, deadline_of(timeout));
  counters_.copy_s += seconds_since(start);
  counters_.copies += items_.size();
  counters_.bytes += bytes;
  counters_.bytes_copied += bytes;
}

const std::vector<model::ViewPart>& DirectReader::cached_parts(std::uint32_t id, const Selection& selection) {
  for (const auto& c : parts_)
    if (c.variable == id && c.selection == selection) return c.parts;
  if (parts_.size() >= max_cached_parts) parts_.clear();
  parts_.push_back({id, selection, model::view_parts(layout().variable(id), selection)});
  return parts_.back().parts;
}

Views DirectReader::view(std::uint32_t id, const Selection& selection) {
  const auto& lease = current();
  struct Owner {
    std::shared_ptr<Lease> lease;
    std::shared_ptr<const void> memory;
  };
  Views views;
  for (const auto& part : cached_parts(id, selection)) {
    auto mapped = plane_->map(lease.step, lease.slot, part.writer_rank, part.segment, part.offset, part.bytes,
                              deadline_of(configured));
    auto owner =
        std::allocate_shared<Owner>(RecyclingAllocator<Owner>(view_pool()),
                                    Owner{plane_->maps_in_place() ? lease_ : nullptr, std::move(mapped.owner)});
    views.push_back(
        View(mapped.bytes, part.box, part.order, part.strides, std::shared_ptr<const void>(std::move(owner))));
    counters_.bytes += part.bytes;
  }
  return views;
}

void DirectReader::end_step() {
  current();
  struct Release {
    DirectReader& reader;
    ~Release() { reader.lease_.reset(); }
  } release{*this};
  if (!pending_.empty()) wait(configured);
  statistics_file_.update([this] { return statistics(); });
}

void DirectReader::close() {
  if (closed_) return;
  closed_ = true;
  lease_.reset();
  node_->close();
  statistics_file_.finish([this] { return statistics(); });
}

StreamStatistics DirectReader::statistics() const {
  auto result = counters_;
  node_->add_statistics(result);
  result.plans_built = plans_.built();
  result.plans_reused = plans_.reused();
  return result;
}

}  // namespace penstock::stream
