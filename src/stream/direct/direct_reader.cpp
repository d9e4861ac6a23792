#include "stream/direct/direct_reader.hpp"

#include <atomic>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "stream/api/open.hpp"
#include "stream/api/recycling_allocator.hpp"
#include "stream/direct/direct_engine.hpp"
#include "transport/planes.hpp"

namespace penstock::stream {
namespace {

// One pool for the process: leases may outlive every reader.
const std::shared_ptr<RecyclingPool>& lease_pool() {
  static const auto pool = std::make_shared<RecyclingPool>();
  return pool;
}

}  // namespace

// A step held by this rank; released with the last owner.
class DirectSource::Lease {
 public:
  Lease(std::shared_ptr<ReaderNode> node, std::uint64_t step, std::uint32_t slot)
      : step_(step), slot_(slot), node_(std::move(node)) {
    node_->count_lease();
  }
  ~Lease() {
    if (origin_.leave(node_)) return;  // the step is the parent's
    release();
  }
  void release() noexcept {
    if (released_.exchange(true)) return;
    try {
      node_->release(step_, slot_);
    } catch (const std::exception& e) {
      base::log(base::Level::warn, "a step could not be released", {{"stream", node_->stream()}, {"why", e.what()}});
    }
  }

 private:
  const std::uint64_t step_;
  const std::uint32_t slot_;
  const base::Origin origin_;
  std::atomic<bool> released_ = false;
  std::shared_ptr<ReaderNode> node_;
};

DirectSource::DirectSource(const EngineContext& context, const std::string& name, Cohort& cohort,
                           const StreamOptions& options, const MakePlane& make_plane)
    : node_(ReaderNode::open(context, name, cohort, options)), plane_(make_plane(node_->stream(), node_->admission())) {
  plane_->prepare(base::Deadline(Timeout(options.open_timeout_ms)));
}

// The writer's number for this cohort, made unlike that of any other writer.
std::uint64_t DirectSource::cohort_number() const {
  const auto& admission = node_->admission();
  return number_made_of(admission.token, "number of reader " + std::to_string(admission.cohort));
}

Outcome DirectSource::wait_step(Step& step, base::Deadline deadline) {
  ReaderProtocol::Step next;
  const auto outcome = node_->wait_step(next, deadline);
  if (outcome != Outcome::ready) return outcome;
  auto lease = std::allocate_shared<Lease>(RecyclingAllocator<Lease>(lease_pool()), node_, next.step, next.slot);
  lease_ = lease;
  step = {next.step, next.slot, std::move(next.epoch), std::move(lease)};
  return outcome;
}

bool DirectSource::revoke_lease() {
  const auto lease = lease_.lock();
  if (lease) lease->release();
  return lease != nullptr;
}

std::unique_ptr<transport::DataPlane> make_direct_plane(std::shared_ptr<fabric::Progress> progress,
                                                        const std::string& stream, const Admission& admission,
                                                        std::uint32_t rank, const StreamOptions& options) {
  const auto wanted = wanted_plane(options);
  auto choice = transport::choose_plane(admission.addresses, wanted);
  if (choice.plane == nullptr) {
    const auto who = "writer rank " + std::to_string(choice.unreached);
    const auto forced = "stream " + stream + ": data_plane=" + std::string(wanted) + ", but " + who;
    if (wanted.empty())
      throw Error(Errc::unsupported, "stream " + stream + ": " + who +
                                         " cannot be reached from here on any data plane that its option data_plane "
                                         "allows; where that is ucx, readers need data_plane=ucx, too");
    if (!choice.has_address) throw Error(Errc::unsupported, forced + " was opened with another data_plane");
    // Rank 0's socket was reached a moment ago: the writer is not elsewhere, it is gone.
    if (choice.unreached == 0)
      throw Error(Errc::writer_lost,
                  "stream " + stream + ": the writer " + admission.writer + " was lost while this reader joined");
    throw Error(Errc::unsupported, forced + " cannot be reached on this host");
  }
  return choice.plane->make(
      std::move(progress),
      {.stream = stream, .token = admission.token, .rank = rank, .writers = std::move(choice.addresses)});
}

std::unique_ptr<StepSource> open_direct(const EngineContext& context, const std::string& name, Cohort& cohort,
                                        const StreamOptions& options) {
  return std::make_unique<DirectSource>(context, name, cohort, options,
                                        [&](const std::string& stream, const Admission& admission) {
                                          return make_direct_plane(context.progress, stream, admission,
                                                                   static_cast<std::uint32_t>(cohort.rank()), options);
                                        });
}

}  // namespace penstock::stream
