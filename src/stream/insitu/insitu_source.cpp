// The insitu engine's source of steps: the direct engine's, over memory of this process where the writer is, too.
#include <algorithm>
#include <utility>

#include "penstock/error.hpp"
#include "stream/direct/direct_engine.hpp"
#include "stream/direct/direct_reader.hpp"
#include "stream/insitu/insitu_engine.hpp"
#include "stream/insitu/insitu_plane.hpp"

namespace penstock::stream {
namespace {

std::unique_ptr<transport::DataPlane> make_plane(const EngineContext& context, const std::string& stream,
                                                 const Admission& admission, std::uint32_t rank,
                                                 const StreamOptions& options) {
  std::vector<std::shared_ptr<LocalWriter>> local;
  for (std::uint32_t writer = 0; writer < admission.writer_ranks; ++writer)
    local.push_back(find_local_writer(admission.token, writer));
  return make_insitu_plane(std::move(local), [&] {
    auto over_tcp = options;
    over_tcp.data_plane = DataPlane::tcp;
    return make_direct_plane(context.progress, stream, admission, rank, over_tcp);
  });
}

class InsituSource final : public DirectSource {
 public:
  InsituSource(const EngineContext& context, const std::string& name, Cohort& cohort, const StreamOptions& options)
      : DirectSource(context, name, cohort, options,
                     [&](const std::string& stream, const Admission& admission) {
                       return make_plane(context, stream, admission, static_cast<std::uint32_t>(cohort.rank()),
                                         options);
                     }),
        rank_(static_cast<std::uint32_t>(cohort.rank())) {}
  ~InsituSource() override { detach(); }

  Outcome wait_step(Step& step, base::Deadline deadline) override;
  void step_ended() override;
  void described(std::span<const std::shared_ptr<const model::RankLayout>> layouts) override;
  void on_step(Take take) override;
  void stop_calls() override { detach(); }

 private:
  InsituPlane& insitu_plane() { return static_cast<InsituPlane&>(plane()); }
  std::string variable_of(const InsituPlane::KeptView& view) const;
  bool revoke();
  void detach();

  const std::uint32_t rank_;
  std::vector<std::shared_ptr<const model::RankLayout>> layouts_;  // of the step being read
  bool lent_ = false;                                              // arrays are lent to it
  std::shared_ptr<LocalWriter> writer_;                            // with analysis_
  std::shared_ptr<Analysis> analysis_;                             // null: steps are begun by the application
};

Outcome InsituSource::wait_step(Step& step, base::Deadline deadline) {
  insitu_plane().forget_views();
  const auto outcome = DirectSource::wait_step(step, deadline);
  if (outcome == Outcome::ready && analysis_) analysis_->last = step.step;
  return outcome;
}

void InsituSource::described(std::span<const std::shared_ptr<const model::RankLayout>> layouts) {
  layouts_.assign(layouts.begin(), layouts.end());
  lent_ = std::ranges::any_of(layouts_, [](const auto& layout) {
    return std::ranges::any_of(layout->blocks, [](const auto& b) { return b.segment == memory::lent_segment; });
  });
}

std::string InsituSource::variable_of(const InsituPlane::KeptView& view) const {
  const auto& layout = *layouts_.at(static_cast<std::size_t>(view.writer_rank));
  std::string name;
  std::uint64_t nearest = 0;
  for (const auto& block : layout.blocks) {
    if (block.segment != memory::lent_segment || block.offset > view.offset || block.offset < nearest) continue;
    nearest = block.offset;
    name = layout.variables[block.variable].name;
  }
  return name;
}

// The thread that would release a kept step stands in the writer's end, which waits for that: the step is released for it.
void InsituSource::step_ended() {
  const auto kept = analysis_ && lent_ ? insitu_plane().kept_view() : std::nullopt;
  const bool revoked = revoke();
  DirectSource::step_ended();
  if (!revoked) return;
  const auto what = kept ? "memory that the simulation lent (variable " + variable_of(*kept) + ")"
                         : "a step with memory that the simulation lent";
  throw Error(Errc::wrong_state, "stream " + stream() + ": the analysis kept a view of " + what +
                                     " beyond its function; copy what is to be kept");
}

// Whether there was something to revoke.
bool InsituSource::revoke() { return analysis_ && lent_ && revoke_lease(); }

void InsituSource::on_step(Take take) {
  if (analysis_) throw Error(Errc::wrong_state, "stream " + stream() + ": this reader has an on_step function already");
  auto writer = find_local_writer(admission().token, rank_);
  if (!writer)
    throw Error(Errc::unsupported, "stream " + stream() + ": rank " + std::to_string(rank_) +
                                       " of its writer is not in this process, so nobody would call on_step of rank " +
                                       std::to_string(rank_) + "; loop over the steps instead");
  analysis_ = std::make_shared<Analysis>();
  analysis_->cohort = admission().cohort;
  analysis_->take = [this, take = std::move(take)](base::Deadline deadline) {
    // Also where the step's end fails before it comes to step_ended.
    struct Revoke {
      InsituSource& source;
      ~Revoke() { source.revoke(); }
    } revoke{*this};
    return take(deadline);
  };
  writer_ = std::move(writer);
  writer_->attach(analysis_);
}

void InsituSource::detach() {
  if (analysis_) writer_->detach(*analysis_);
}

class LocalFinder final : public Finder {
 public:
  explicit LocalFinder(std::unique_ptr<Finder> registered) : registered_(std::move(registered)) {}
  std::optional<Found> look(base::Deadline deadline) override {
    return any_local_writer() ? registered_->look(deadline) : std::nullopt;
  }
  std::string place() const override { return ""; }
  std::vector<std::string> names(base::Deadline) override { return {}; }
  Timeout pause() const override { return registered_->pause(); }

 private:
  const std::unique_ptr<Finder> registered_;
};

}  // namespace

std::unique_ptr<Finder> find_insitu(const EngineContext& context, const std::string& name, const StreamOptions&) {
  return std::make_unique<LocalFinder>(find_registered(context, name, [](const fabric::Registration& registration) {
    return find_local_writer(registration.token, 0) != nullptr;
  }));
}

std::unique_ptr<StepSource> open_insitu(const EngineContext& context, const std::string& name, Cohort& cohort,
                                        const StreamOptions& options) {
  auto in_effect = options;  // code may ask for a plane where configuration has chosen the engine
  in_effect.data_plane = DataPlane::automatic;
  return std::make_unique<InsituSource>(context, name, cohort, in_effect);
}

}  // namespace penstock::stream
