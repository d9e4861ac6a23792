// A reader rank of a stream in a space, or of an array that was put there without a stream. Ranks of a cohort find the same step
// next without speaking to each other: steps are complete in the order of their numbers.
#include <algorithm>
#include <sstream>

#include "fabric/registration.hpp"
#include "fabric/token.hpp"
#include "penstock/interrupt.hpp"
#include "pool/keys/protocol.hpp"
#include "space/client/space_impl.hpp"
#include "space/engine/space_engine.hpp"
#include "space/engine/space_plane.hpp"
#include "space/engine/writer_lease.hpp"
#include "stream/api/open.hpp"
#include "stream/api/patience.hpp"
#include "wire/control.hpp"

namespace penstock::space {

using stream::EpochBlobs;

namespace {

class SpaceSource final : public stream::StepSource {
 public:
  SpaceSource(const stream::EngineContext& context, const std::string& name, Cohort& cohort,
              const StreamOptions& options);

  const std::string& stream() const override { return name_; }
  std::uint64_t cohort_number() const override { return number_; }
  transport::DataPlane& plane() override { return *plane_; }
  Outcome wait_step(Step& step, base::Deadline deadline) override;
  std::string why(Outcome outcome) const override;
  void step_ended() override;
  void described(std::span<const std::shared_ptr<const model::RankLayout>> layouts) override {
    plane_->describe(layouts);
  }
  void seek(std::uint64_t step) override;
  std::vector<std::uint64_t> steps() override;
  void close() override { plane_->read(0, {}); }
  void add_statistics(StreamStatistics& statistics) const override;

 private:
  bool is_array() const { return !record_; }
  base::Deadline step_deadline() const { return base::Deadline(stream::chosen_or_usual(options_.step_timeout_ms)); }
  void open(base::Deadline deadline);
  std::uint64_t first_step();
  void go_to_newest();
  bool look_again();
  bool was_killed(const StreamRecord& record);
  Outcome lost(const std::string& how);
  bool was_dropped(std::uint64_t step);
  Outcome take(const std::vector<ObjectInfo>& objects, Step& step, bool& skipped);
  std::uint64_t first_unread(std::uint64_t step) const;
  void note_read(std::uint64_t first, std::uint64_t last);
  void describe(const std::vector<RankRecord>& ranks, base::Deadline deadline);
  Outcome wait_version(Step& step, base::Deadline deadline);

  const std::string name_;
  const StreamOptions options_;
  Clients clients_;
  std::unique_ptr<SpacePlane> plane_;
  std::uint64_t number_ = 0;
  std::optional<StreamRecord> record_;  // none: an array
  Space::Impl::ArrayPointer array_;
  std::optional<VersionSubscription> versions_;
  std::uint64_t next_ = 0;  // the least number of the step to come
  std::optional<std::uint64_t> last_;
  std::uint64_t noted_ = 0;  // all steps below it are, as read by the group
  std::shared_ptr<const EpochBlobs> epoch_;
  std::uint64_t epochs_ = 0;
  std::vector<std::uint64_t> layouts_since_;  // of epoch_, by rank
  std::string why_;
  std::uint64_t steps_ = 0, dropped_ = 0, announced_bytes_ = 0;
};

SpaceSource::SpaceSource(const stream::EngineContext& context, const std::string& name, Cohort& cohort,
                         const StreamOptions& options)
    : name_(name), options_(options), clients_(stream::on_every_rank(cohort, [&] {
        if (fabric::is_address(name))
          throw Error(Errc::unsupported, "a stream in a space is opened by its name, not by an address");
        const bool latest = options.delivery == Delivery::latest;
        if ((latest || !options.group.empty()) && cohort.size() > 1)
          throw Error(Errc::unsupported, "stream " + name + ": a reader of a space with " +
                                             (latest ? "delivery=latest" : "a group") +
                                             " has one rank: those of a cohort would not agree which step is " +
                                             (latest ? "the newest" : "read by all"));
        return open_clients(context, options, options.group.empty() ? "read" : "write");
      })) {
  const auto text = stream::share_text(cohort, [&] {
    open(base::Deadline(Timeout(options.open_timeout_ms)));
    const auto token = fabric::Token::random();
    std::ostringstream out;
    out << stream::number_made_of(token, "number of the cohort") << ' ' << first_step() << ' '
        << (record_ ? to_text(*record_) : std::string());
    return out.str();
  });
  std::istringstream in(text);
  std::string record;
  in >> number_ >> next_ >> std::ws;
  std::getline(in, record);
  record_.reset();
  if (!record.empty()) record_ = record_from_text(record);
  if (!is_array()) {
    plane_ = std::make_unique<SpacePlane>(clients_, name_, record_->incarnation);
  } else {
    array_ = Space::Impl::of(*clients_.arrays).defined(name_, base::Deadline(Timeout(options_.open_timeout_ms)));
    plane_ = std::make_unique<SpacePlane>(clients_, array_);
    seek(next_);
  }
}

// Until a writer has begun the stream, or somebody has defined the array.
void SpaceSource::open(base::Deadline deadline) {
  for (auto look = first_look;; look = std::min(2 * look, longest_look)) {
    record_ = find_stream(clients_.records, name_);
    if (record_) break;
    try {
      array_ = Space::Impl::of(*clients_.arrays).read(name_, step_deadline());
      break;
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;
    }
    if (deadline.passed() || interrupted())
      throw Error(Errc::timeout, "stream " + name_ + " did not open within " +
                                     std::to_string(options_.open_timeout_ms) + " ms: no writer has begun it in pool " +
                                     clients_.records.name() + ", and no array has its name");
    GetOptions options;
    options.timeout = left(earlier(deadline, base::Deadline(look)));
    try {
      clients_.records.need(stream_key(name_), options);
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
    }
  }
  const auto& groups = record_ ? record_->groups : array_->record.options.readers;
  if (options_.group.empty() || std::find(groups.begin(), groups.end(), options_.group) != groups.end()) return;
  std::string names;
  for (const auto& group : groups) names += (names.empty() ? "'" : ", '") + group + "'";
  throw Error(Errc::invalid_argument,
              (record_ ? "stream " : "array ") + name_ + " is not held back for group '" + options_.group + "'" +
                  (names.empty() ? "" : ", but for " + names) + ": name it in " +
                  (record_ ? "the writer's retain_for" : "the readers of its definition") + ", or leave group out");
}

std::uint64_t SpaceSource::first_step() {
  if (options_.start != "oldest" && options_.start != "newest") return std::stoull(options_.start);
  if (is_array()) {
    const auto all = clients_.arrays->versions(name_);
    return all.empty() || options_.start == "oldest" ? 0 : all.back();
  }
  const auto all = steps();
  return all.empty() ? 0 : options_.start == "oldest" ? all.front() : all.back();
}

void SpaceSource::go_to_newest() {
  const auto all = steps();
  if (all.empty() || all.back() <= next_) return;
  dropped_ += static_cast<std::uint64_t>(all.end() - std::lower_bound(all.begin(), all.end(), next_)) - 1;
  seek(all.back());
}

std::vector<std::uint64_t> SpaceSource::steps() {
  if (!is_array()) return kept_steps(marks_of(clients_.records, name_, record_->incarnation), *record_);
  std::vector<std::uint64_t> found;
  const auto& shape = array_->record.shape;
  const Box whole{Dims::filled(shape.size(), 0), shape};
  for (const auto version : clients_.arrays->versions(name_)) {
    try {
      clients_.arrays->wait(name_, version, whole, Timeout(0));
      found.push_back(version);
    } catch (const Error& error) {
      if (error.code() != Errc::timeout && error.code() != Errc::not_found) throw;
    }
  }
  return found;
}

void SpaceSource::seek(std::uint64_t step) {
  next_ = step;
  if (!is_array()) return;
  const auto array = Space::Impl::of(*clients_.arrays).read(name_, step_deadline());
  if (array->record != array_->record) epoch_.reset();  // it was defined anew
  if (!array->record.fields.empty())
    throw Error(Errc::unsupported, "array '" + name_ + "' has structures as elements, which streams do not have");
  array_ = array;
  plane_->bind(array_);
  VersionPattern pattern;
  pattern.start = step;
  const Box whole{Dims::filled(array_->record.shape.size(), 0), array_->record.shape};
  versions_.emplace(clients_.arrays->subscribe(name_, whole, pattern));
}

Outcome SpaceSource::wait_step(Step& step, base::Deadline deadline) {
  if (options_.delivery == Delivery::latest) go_to_newest();
  if (is_array()) return wait_version(step, deadline);
  bool killed = false;  // what the writer has put before is read first
  for (auto look = first_look;; look = std::min(2 * look, longest_look)) {
    const auto until = killed ? base::Deadline(least_wait) : earlier(deadline, base::Deadline(look));
    std::vector<ObjectInfo> objects;
    try {
      objects = clients_.records.wait_row(steps_row(name_, record_->incarnation, next_), record_->ranks,
                                          std::string(every_rank), std::max(left(until), least_wait));
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
      why_ = "step " + std::to_string(next_) + " is not complete: it waits for the writer, " + record_->writer;
      const auto now = find_stream(clients_.records, name_);
      if (!now || now->incarnation != record_->incarnation) {
        why_ = now ? "the stream has another writer now, " + now->writer : "the stream was removed";
        return Outcome::writer_lost;
      }
      if (look_again()) continue;
      if (killed) return lost("has not kept its lease: it was killed, is stopped, or does not reach the directory");
      killed = was_killed(*now);
      if (!killed && (deadline.passed() || interrupted())) return Outcome::not_ready;
      continue;
    }
    bool skipped = false;
    const auto outcome = take(objects, step, skipped);
    if (!skipped) return outcome;
    look = first_look;
  }
}

// Rank 0 of the writer has gone, and no rank has said so. record: as find_stream gives it.
bool SpaceSource::was_killed(const StreamRecord& record) {
  if (writer_lives(*clients_.client, record, step_deadline())) return false;
  return state_of(marks_of(clients_.records, name_, record.incarnation), true) == State::open;
}

Outcome SpaceSource::lost(const std::string& how) {
  why_ = "its writer (" + record_->writer + ") " + how;
  return Outcome::writer_lost;
}

// Whether the step to come was dropped: no rank has put anything into it, and later ones are there. It goes on with those. A listing
// is of no one moment, so the home of the step is asked again after it.
bool SpaceSource::look_again() {
  const auto all = marks_of(clients_.records, name_, record_->incarnation);
  for (const auto& [step, ranks] : all)
    if (step < next_) note_read(step, step);
  const auto next = all.lower_bound(next_);
  if (next == all.end() || next->first == next_) return false;
  if (!clients_.records.wait_row(steps_row(name_, record_->incarnation, next_), 0, std::string(every_rank)).empty())
    return false;
  dropped_ += next->first - next_;
  next_ = next->first;
  return true;
}

// A rank begins a step only once the step it replaces may be dropped, and every rank has an object for each step.
bool SpaceSource::was_dropped(std::uint64_t step) {
  if (record_->retain == 0) return false;
  const auto later = clients_.records.wait_row(steps_row(name_, record_->incarnation, step + record_->retain), 0,
                                               std::string(every_rank));
  const bool dropped = std::any_of(later.begin(), later.end(), [](const ObjectInfo& object) {
    const auto what = mark_from_text(object.metadata).what;
    return what == StepMark::What::data || what == StepMark::What::voided;
  });
  dropped_ += dropped ? 1 : 0;
  return dropped;
}

Outcome SpaceSource::take(const std::vector<ObjectInfo>& objects, Step& step, bool& skipped) {
  std::vector<RankRecord> ranks(record_->ranks);
  if (objects.size() != ranks.size())
    throw Error(Errc::protocol, "step " + std::to_string(next_) + " has " + std::to_string(objects.size()) +
                                    " records, not one of each of the " + std::to_string(ranks.size()) + " ranks");
  std::vector<StepMark::What> whats;
  std::uint64_t announced = 0;
  for (const auto& object : objects) {
    const auto rank = rank_of_column(object.key.column);
    if (!rank || *rank >= ranks.size())
      throw Error(Errc::protocol, "a step of the stream has a rank that the writer has not");
    const auto mark = mark_from_text(object.metadata);
    if (mark.layout_bytes > std::min<std::uint64_t>(object.bytes, wire::max_message_bytes) ||
        mark.payload_bytes > object.bytes - mark.layout_bytes)
      throw Error(Errc::protocol, "step " + std::to_string(next_) + " has a layout or values of an impossible size");
    ranks[*rank] = {object.key, mark};
    whats.push_back(mark.what);
    announced += object.key.row.size() + object.key.column.size() + object.metadata.size();
  }
  const auto any = [&](StepMark::What what) { return std::find(whats.begin(), whats.end(), what) != whats.end(); };
  if (any(StepMark::What::lost)) return lost("has ended without closing it");
  if (any(StepMark::What::ended)) return Outcome::end_of_stream;
  const auto number = next_;
  skipped = any(StepMark::What::voided) || was_dropped(number);
  // Whoever only polls gets a step that is there, whatever that takes.
  try {
    if (!skipped) describe(ranks, step_deadline());
  } catch (const Error& error) {
    if (error.code() != Errc::not_found || record_->retain == 0) throw;
    skipped = true;  // it went between the two
    ++dropped_;
  }
  if (skipped) note_read(first_unread(number), number);
  ++next_;
  if (skipped) return Outcome::not_ready;
  plane_->read(number, std::move(ranks));
  last_ = number;
  ++steps_;
  announced_bytes_ += announced;
  step.step = number;
  step.epoch = epoch_;
  return Outcome::ready;
}

void SpaceSource::describe(const std::vector<RankRecord>& ranks, base::Deadline deadline) {
  auto epoch = std::make_shared<EpochBlobs>();
  std::vector<std::uint64_t> since;
  bool changed = !epoch_;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& [key, mark] = ranks[rank];
    since.push_back(mark.layout_since);
    if (epoch_ && layouts_since_[rank] == mark.layout_since) {
      epoch->layouts.push_back(epoch_->layouts[rank]);
      continue;
    }
    changed = true;
    GetOptions options;
    options.bytes = mark.layout_bytes;
    options.timeout = left(deadline);
    std::string layout(mark.layout_bytes, '\0');
    clients_.records.get_into(key, std::as_writable_bytes(std::span(layout)), options);
    epoch->layouts.push_back(std::make_shared<const std::string>(std::move(layout)));
  }
  if (!changed) return;
  epoch->number = ++epochs_;
  epoch_ = std::move(epoch);
  layouts_since_ = std::move(since);
}

Outcome SpaceSource::wait_version(Step& step, base::Deadline deadline) {
  std::optional<std::uint64_t> version;
  try {
    version = versions_->next(std::max(left(deadline), least_wait));
  } catch (const Error& error) {
    if (error.code() != Errc::timeout && error.code() != Errc::not_found) throw;
    why_ = error.what();
    return error.code() == Errc::timeout ? Outcome::not_ready : Outcome::writer_lost;
  }
  if (!version) return Outcome::end_of_stream;
  if (!epoch_) {
    model::RankLayout layout;
    const auto& [dtype, shape] = std::tie(array_->record.dtype, array_->record.shape);
    layout.variables.push_back({name_, dtype, Kind::global_array, Order::row, shape, false});
    layout.blocks.push_back({0, {Dims::filled(shape.size(), 0), shape}, 0, 0, element_count(shape) * size_of(dtype)});
    auto epoch = std::make_shared<EpochBlobs>();
    epoch->number = ++epochs_;
    epoch->layouts.push_back(std::make_shared<const std::string>(wire::encode_layout(layout, false)));
    epoch_ = std::move(epoch);
  }
  plane_->read(*version, {});
  next_ = *version + 1;
  last_ = *version;
  ++steps_;
  step.step = *version;
  step.epoch = epoch_;
  return Outcome::ready;
}

// Steps up to this one may go, as far as this group is concerned.
void SpaceSource::step_ended() {
  if (options_.group.empty() || !last_) return;
  if (is_array()) return clients_.arrays->done(name_, *last_, options_.group);
  note_read(first_unread(*last_), *last_);
}

// The first time also those before that the writer may be waiting for: it has begun none that is further ahead.
std::uint64_t SpaceSource::first_unread(std::uint64_t step) const {
  return step + 1 > record_->retain ? step + 1 - record_->retain : 0;
}

void SpaceSource::note_read(std::uint64_t first, std::uint64_t last) {
  if (options_.group.empty()) return;
  PutOptions options;
  options.if_exists = IfExists::overwrite;  // by another reader of the group
  options.acknowledge = Acknowledge::replicated;
  for (noted_ = std::max(noted_, first); noted_ <= last; ++noted_)
    clients_.records.put({steps_row(name_, record_->incarnation, noted_), group_column(options_.group)}, {}, options);
}

std::string SpaceSource::why(Outcome outcome) const {
  const auto read = last_ ? "the last step read was " + std::to_string(*last_) : std::string("no step was read");
  switch (outcome) {
    case Outcome::not_ready: return "no step in time: " + why_ + "; " + read;
    case Outcome::end_of_stream: return "the writer has closed it; " + read;
    case Outcome::writer_lost: return why_ + "; " + read;
    case Outcome::ready: break;
  }
  return "";
}

void SpaceSource::add_statistics(StreamStatistics& statistics) const {
  statistics.steps_dropped = dropped_;
  statistics.announcement_bytes = announced_bytes_;
  statistics.epochs = epochs_;
  PeerStatistics peer;
  peer.name = record_ ? record_->writer : "array " + name_;
  peer.ranks = record_ ? record_->ranks : 1;
  peer.data_plane = "space";
  peer.steps_delivered = peer.steps_released = steps_;
  statistics.peers.push_back(std::move(peer));
}

}  // namespace

std::unique_ptr<stream::StepSource> open_in_space(const stream::EngineContext& context, const std::string& name,
                                                  Cohort& cohort, const StreamOptions& options) {
  return std::make_unique<SpaceSource>(context, name, cohort, options);
}

}  // namespace penstock::space
