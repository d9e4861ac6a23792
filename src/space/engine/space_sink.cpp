// A writer rank of a stream in a space. Blocks stay in this rank's memory until the step ends; then those of global arrays are put
// as boxes of a version, and one object has the rest. Ranks do not speak to each other: a step is there once every rank's object is.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <set>

#include "base/log.hpp"
#include "base/text.hpp"
#include "fabric/handshake.hpp"
#include "fabric/token.hpp"
#include "penstock/interrupt.hpp"
#include "pool/keys/protocol.hpp"
#include "space/client/space_impl.hpp"
#include "space/engine/space_engine.hpp"
#include "space/engine/step_records.hpp"
#include "space/engine/writer_lease.hpp"
#include "space/names.hpp"
#include "stream/api/open.hpp"
#include "stream/api/patience.hpp"
#include "wire/control.hpp"

namespace penstock::space {
namespace {

constexpr Timeout lose_within(1'000), lease_within(5'000);

// Memory that is kept from step to step, at offsets that ascend.
class StepMemory {
 public:
  memory::Place take(std::uint64_t bytes) {
    if (used_ == chunks_.size()) chunks_.emplace_back();
    auto& chunk = chunks_[used_++];
    if (chunk.size < bytes || !chunk.memory) {
      chunk.memory.reset();
      chunk.memory.reset(static_cast<std::byte*>(
          ::operator new(std::max<std::uint64_t>(bytes, 1), std::align_val_t(memory::block_alignment))));
      chunk.size = bytes;
    }
    chunk.offset = next_;
    next_ += std::max<std::uint64_t>(1, (bytes + memory::block_alignment - 1) / memory::block_alignment) *
             memory::block_alignment;
    return {0, chunk.offset, chunk.memory.get()};
  }
  const std::byte* at(std::uint64_t offset) const {
    const auto end = chunks_.begin() + static_cast<std::ptrdiff_t>(used_);
    const auto found = std::lower_bound(chunks_.begin(), end, offset,
                                        [](const Chunk& chunk, std::uint64_t wanted) { return chunk.offset < wanted; });
    if (found == end || found->offset != offset) throw Error(Errc::internal, "a block has no memory");
    return found->memory.get();
  }
  void reuse() { used_ = 0, next_ = 0; }
  std::uint64_t bytes() const {
    std::uint64_t all = 0;
    for (const auto& chunk : chunks_) all += chunk.size;
    return all;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t(memory::block_alignment)); }
  };
  struct Chunk {
    std::unique_ptr<std::byte, Free> memory;
    std::uint64_t size = 0, offset = 0;
  };
  std::vector<Chunk> chunks_;
  std::size_t used_ = 0;
  std::uint64_t next_ = 0;
};

using ArrayPointer = Space::Impl::ArrayPointer;

class SpaceSink final : public stream::StepSink {
 public:
  SpaceSink(const stream::EngineContext& context, const std::string& name, Cohort& cohort,
            const StreamOptions& options);

  const std::string& stream() const override { return name_; }
  std::uint64_t cohort_number() const override { return record_.incarnation; }
  std::string address() const override { return ""; }
  Begun begin(base::Deadline deadline) override;
  std::uint64_t step() const override { return number_; }
  stream::Awaited awaited() const override {
    using Whom = stream::Awaited::Whom;
    return {awaited_, !awaits_readers_ ? Whom::others : rank_ == 0 ? Whom::readers : Whom::first_rank};
  }
  std::optional<memory::Place> allocate(std::uint64_t bytes) override { return memory_.take(bytes); }
  void commit(const Payload& payload, std::shared_ptr<const std::string> layout) override;
  void discard() override;
  void close(base::Deadline deadline) override;
  void lose(const std::string& how) override;
  void add_statistics(StreamStatistics& statistics) const override {
    statistics.steps_voided = voided_;
    statistics.epochs = epochs_;
    statistics.memory_bytes = memory_.bytes();
  }

 private:
  void begin_stream(std::uint32_t ranks);
  bool take_lease();
  void drop_others();
  void require_ours();
  bool make_room(base::Deadline deadline);
  std::string groups_lacking(std::uint64_t step);
  void drop_arrays(std::uint64_t last, base::Deadline deadline);
  void drop_step(std::uint64_t step, base::Deadline deadline);
  ArrayPointer array_of(const model::VariableDefinition& variable, base::Deadline deadline);
  ArrayPointer define(const model::VariableDefinition& variable, base::Deadline deadline);
  void put_arrays(const std::vector<std::uint32_t>& blocks, base::Deadline deadline);
  void put_owed(Timeout timeout);
  void mark(StepMark::What what, std::uint64_t step, Timeout timeout);
  void put_record(const StepMark& mark, std::uint64_t step, std::span<const std::byte> bytes, Timeout timeout);

  const std::string name_;
  const StreamOptions options_;
  const std::uint32_t rank_;
  Clients clients_;
  StreamRecord record_;
  std::unique_ptr<WriterLease> lease_;                       // rank 0
  std::map<std::string, ArrayPointer, std::less<>> arrays_;  // by variable
  struct Put {
    std::uint64_t step;
    std::set<ArrayPointer> arrays;
  };
  std::deque<Put> put_;  // by this rank, of the steps that are kept
  StepMemory memory_;
  std::shared_ptr<const std::string> layout_;
  model::RankLayout described_;  // layout_, decoded
  std::uint64_t layout_since_ = 0;
  std::uint64_t number_ = 0, next_ = 0, voided_ = 0, epochs_ = 0;
  bool open_ = false;
  std::optional<std::uint64_t> owed_;  // a void step that nobody was told of
  std::string awaited_;
  bool awaits_readers_ = false;
};

SpaceSink::SpaceSink(const stream::EngineContext& context, const std::string& name, Cohort& cohort,
                     const StreamOptions& options)
    : name_(name),
      options_(options),
      rank_(static_cast<std::uint32_t>(cohort.rank())),
      clients_(stream::on_every_rank(cohort, [&] { return open_clients(context, options, "write"); })) {
  if (!options.retain_for.empty() && options.retain_steps == 0)
    throw Error(Errc::invalid_argument, "stream " + name +
                                            ": retain_for names who holds back the steps beyond retain_steps, which "
                                            "engine space needs with it: set retain_steps");
  const auto ranks = static_cast<std::uint32_t>(cohort.size());
  if (ranks > most_ranks)
    throw Error(Errc::unsupported, "stream " + name + ": engine space takes at most " + std::to_string(most_ranks) +
                                       " writer ranks, not " + std::to_string(ranks) + ": use engine pool");
  record_ = record_from_text(stream::share_text(cohort, [&] {
    begin_stream(ranks);
    return to_text(record_);
  }));
}

// Rank 0: the stream before gives way. From the moment that the record is another one, the writer before begins no step.
void SpaceSink::begin_stream(std::uint32_t ranks) {
  const auto token = fabric::Token::random();
  std::memcpy(&record_.incarnation, token.bytes.data(), sizeof(record_.incarnation));
  record_.ranks = ranks;
  record_.retain = options_.retain_steps;
  record_.writer = fabric::host_name() + ":" + std::to_string(::getpid());
  std::set<std::string_view> groups;
  for (const auto group : base::split(options_.retain_for, ','))
    if (!group.empty()) groups.insert(group);
  record_.groups.assign(groups.begin(), groups.end());
  const auto text = to_text(record_);
  PutOptions options;
  options.if_exists = IfExists::overwrite;
  options.acknowledge = std::max(options_.acknowledge, Acknowledge::replicated);
  if (take_lease()) options.metadata = leased_metadata;
  clients_.records.put(stream_key(name_), std::as_bytes(std::span(text)), options);
  drop_others();
}

bool SpaceSink::take_lease() {
  try {
    const base::Deadline deadline(std::min(Timeout(options_.open_timeout_ms), lease_within));
    lease_ = std::make_unique<WriterLease>(clients_.client, record_.incarnation, deadline);
  } catch (const Error& error) {
    base::log(base::Level::warn, "readers will not see it when this writer is killed: the directory gives it no lease",
              {{"stream", name_}, {"why", error.what()}});
  }
  return lease_ != nullptr;
}

// What other writers have left of this stream, whoever they were: what one could not drop, the next one does. Each time this
// writer still has the stream, what it has looked at before is none of a later one's.
void SpaceSink::drop_others() {
  auto& space = Space::Impl::of(*clients_.arrays);
  Pattern rows;
  rows.row = pool::escape_pattern(steps_prefix(name_)) + "*";
  for (;;) {
    const auto found = clients_.records.list(rows, 1);
    if (found.objects.empty()) break;
    require_ours();
    const auto incarnation = incarnation_of_row(found.objects[0].key.row);
    Pattern its;
    its.row = pool::escape_pattern(incarnation ? steps_prefix(name_, *incarnation) : found.objects[0].key.row);
    if (incarnation) its.row += "*";
    clients_.records.drop_matching(its);
  }
  Pattern arrays;
  arrays.row = pool::escape_pattern(std::string(array_row_prefix) + array_name(name_, "")) + "*";
  space.list(arrays, [&](const ObjectInfo& object) {
    try {
      const auto array = space.read(object.key.row.substr(array_row_prefix.size()), space.deadline(configured));
      if (array->record.stream == 0 || array->record.stream == record_.incarnation) return;  // a program's
      require_ours();
      space.drop_array(*array, space.deadline(configured));
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;  // dropped meanwhile
    }
  });
}

void SpaceSink::require_ours() {
  const auto now = find_stream(clients_.records, name_);
  if (now && now->incarnation == record_.incarnation) return;
  throw Error(
      Errc::wrong_state,
      "stream " + name_ + (now ? " has another writer now, " + now->writer : " was removed") + " from the space");
}

stream::StepSink::Begun SpaceSink::begin(base::Deadline deadline) {
  for (auto look = first_look;; look = std::min(2 * look, longest_look)) {
    require_ours();
    if (make_room(earlier(deadline, base::Deadline(look)))) break;
    if (deadline.passed() || interrupted()) return Begun::not_yet;
  }
  number_ = next_;
  open_ = true;
  memory_.reuse();
  return Begun::open;
}

// Whether a step can begin: every rank has put the oldest step, and the groups that hold it back have read it. What may
// still come, as the answer of the server that follows one that died, the next call waits for again.
bool SpaceSink::make_room(base::Deadline deadline) {
  const base::Deadline until(std::max(left(deadline), least_wait));
  const bool waits = record_.retain > 0 && next_ >= record_.retain;
  const auto oldest = waits ? next_ - record_.retain : 0;
  const auto row = steps_row(name_, record_.incarnation, oldest);
  const auto step = "step " + std::to_string(oldest);
  try {
    awaited_ = "the pool's servers, which note that a step is void";
    put_owed(left(until));
    if (!waits) return true;
    if (record_.ranks > 1) {
      awaited_ = "the other ranks of this writer, at " + step;
      clients_.records.wait_row(row, record_.ranks, std::string(every_rank), left(until));
    }
    if (!record_.groups.empty()) {
      awaited_ = "readers of " + step;
      clients_.records.wait_row(row, record_.groups.size(), std::string(every_group), left(until));
    }
    awaited_ = "the pool's servers, which drop " + step;
    // The oldest itself stays while this step is written: as many complete steps as are kept can always be read.
    if (oldest > 0) drop_arrays(oldest - 1, until);
    // No rank is further behind than this: it would have held back the row that was waited for.
    if (rank_ == 0 && oldest >= record_.retain) drop_step(oldest - record_.retain, until);
  } catch (const Error& error) {
    if (error.code() != Errc::timeout && !pool::PoolClient::may_retry(error)) throw;
    awaits_readers_ = awaited_.starts_with("readers");
    if (awaits_readers_) awaited_ = groups_lacking(oldest);
    return false;
  }
  return true;
}

// For a message.
std::string SpaceSink::groups_lacking(std::uint64_t step) {
  std::set<std::string> lacking(record_.groups.begin(), record_.groups.end());
  try {
    for (const auto& object : clients_.records.wait_row(steps_row(name_, record_.incarnation, step), 0,
                                                        std::string(every_group), least_wait))
      lacking.erase(object.key.column.substr(every_group.size() - 1));
  } catch (const Error&) {  // then all are named
  }
  std::string names;
  for (const auto& group : lacking) names += (names.empty() ? "'" : ", '") + group + "'";
  return (lacking.size() > 1 ? "groups " : "group ") + names + ", to read step " + std::to_string(step);
}

// Of this rank's steps up to the last.
void SpaceSink::drop_arrays(std::uint64_t last, base::Deadline deadline) {
  for (; !put_.empty() && put_.front().step <= last; put_.pop_front())
    for (const auto& array : put_.front().arrays)
      Space::Impl::of(*clients_.arrays).drop_version(*array, put_.front().step, deadline);
}

void SpaceSink::drop_step(std::uint64_t step, base::Deadline deadline) {
  std::vector<Key> keys;
  const auto row = steps_row(name_, record_.incarnation, step);
  for (std::uint32_t rank = 0; rank < record_.ranks; ++rank) keys.push_back({row, rank_column(rank)});
  for (const auto& group : record_.groups) keys.push_back({row, group_column(group)});
  for (const auto& result : clients_.records.drop(keys, Space::Impl::until(deadline)))
    if (result.code != Errc::ok && result.code != Errc::not_found) throw Error(result.code, result.message);
}

ArrayPointer SpaceSink::array_of(const model::VariableDefinition& variable, base::Deadline deadline) {
  auto found = arrays_.find(variable.name);
  if (found == arrays_.end()) found = arrays_.emplace(variable.name, define(variable, deadline)).first;
  const auto& shape = found->second->record.shape;
  if (shape != variable.shape)
    throw Error(Errc::unsupported, "stream " + name_ + ": variable '" + variable.name + "' has shape " +
                                       to_string(variable.shape) + " in step " + std::to_string(number_) + " and had " +
                                       to_string(shape) +
                                       " before: an array in a space keeps its shape; use engine pool for this stream");
  return found->second;
}

// An array is this stream's, or refused: what others have put there stays theirs.
ArrayPointer SpaceSink::define(const model::VariableDefinition& variable, base::Deadline deadline) {
  auto& space = Space::Impl::of(*clients_.arrays);
  ArrayRecord wanted;
  wanted.dtype = variable.dtype;
  wanted.shape = variable.shape;
  wanted.stream = record_.incarnation;
  for (;;) {
    auto array = space.define(array_name(name_, variable.name), wanted, deadline);
    if (array->record.stream == record_.incarnation) {
      Space::Impl::require_defined_as(*array, wanted);
      try {
        require_ours();  // the next writer may have looked for arrays before this one was there
      } catch (const Error&) {
        space.drop_array(*array, deadline);
        throw;
      }
      return array;
    }
    if (array->record.stream == 0)
      throw Error(Errc::already_exists,
                  "stream " + name_ + ": there is an array '" + array->name + "' already, which no stream has defined");
    // A rank of the writer before has defined it late. That it is not the next writer's is certain: this one still has the stream.
    require_ours();
    space.drop_array(*array, deadline);
  }
}

void SpaceSink::put_arrays(const std::vector<std::uint32_t>& blocks, base::Deadline deadline) {
  auto& space = Space::Impl::of(*clients_.arrays);
  std::vector<std::unique_ptr<Space::Impl::Putting>> puts;
  try {
    for (const auto number : blocks) {
      const auto& block = described_.blocks[number];
      const auto& variable = described_.variables[block.variable];
      const auto array = array_of(variable, deadline);
      if (record_.retain > 0) put_.back().arrays.insert(array);
      space.begin_version_of(*array, number_, deadline);
      ArrayMemory memory;
      memory.order = variable.order;
      const Space::Impl::Source source{memory_.at(block.offset), placed(memory, array->record, block.box)};
      puts.push_back(space.start(array, number_, block.box, source, deadline, most_rivals));
    }
    for (auto& put : puts) space.finish(*put);
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    require_ours();   // says who has dropped them
    arrays_.clear();  // somebody else has: the next step defines them anew
    throw;
  }
}

void SpaceSink::commit(const Payload& payload, std::shared_ptr<const std::string> layout) {
  const base::Deadline deadline(stream::chosen_or_usual(options_.step_timeout_ms));
  if (layout) {
    layout_ = std::move(layout);
    described_ = wire::decode_layout(rank_, std::as_bytes(std::span(*layout_))).layout;
    layout_since_ = number_;
    ++epochs_;
  }
  StepMark mark;
  mark.layout_bytes = layout_->size();
  mark.payload_bytes = payload.bytes;
  mark.layout_since = layout_since_;
  std::vector<std::byte> record;
  const auto append = [&](const void* data, std::uint64_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    record.insert(record.end(), from, from + bytes);
  };
  append(layout_->data(), layout_->size());
  if (payload.bytes > 0) append(payload.place.data, payload.bytes);
  std::vector<std::uint32_t> boxes;
  for (std::uint32_t number = 0; number < described_.blocks.size(); ++number) {
    const auto& block = described_.blocks[number];
    const auto& variable = described_.variables[block.variable];
    if (block.bytes == 0 || variable.dtype == DType::string) continue;
    if (variable.kind == Kind::global_array) boxes.push_back(number);
    else append(memory_.at(block.offset), block.bytes);
  }
  if (record_.retain > 0) put_.push_back({number_, {}});
  put_arrays(boxes, deadline);
  put_record(mark, number_, record, left(deadline));
  open_ = false;
  next_ = number_ + 1;
  if (record_.retain == 0 || number_ < record_.retain) return;
  try {
    drop_arrays(number_ - record_.retain, deadline);
  } catch (const Error&) {  // this step is there all the same; the next begin() drops it, or says why not
  }
}

void SpaceSink::discard() {
  if (!open_) return;
  open_ = false;
  ++voided_;
  next_ = number_ + 1;
  owed_ = number_;
  put_owed(configured);
}

void SpaceSink::put_owed(Timeout timeout) {
  if (!owed_) return;
  mark(StepMark::What::voided, *owed_, timeout);
  owed_.reset();
}

void SpaceSink::close(base::Deadline deadline) {
  put_owed(left(deadline));
  mark(StepMark::What::ended, next_, left(deadline));
  lease_.reset();
}

void SpaceSink::lose(const std::string& /*how*/) {
  put_owed(lose_within);
  mark(StepMark::What::lost, next_, lose_within);
  lease_.reset();
}

void SpaceSink::mark(StepMark::What what, std::uint64_t step, Timeout timeout) {
  StepMark mark;
  mark.what = what;
  put_record(mark, step, {}, timeout);
}

void SpaceSink::put_record(const StepMark& mark, std::uint64_t step, std::span<const std::byte> bytes,
                           Timeout timeout) {
  PutOptions options;
  options.if_exists = IfExists::overwrite;  // one of a put that failed may be there
  options.acknowledge = options_.acknowledge;
  options.metadata = to_text(mark);
  options.timeout = timeout;
  clients_.records.put({steps_row(name_, record_.incarnation, step), rank_column(rank_)}, bytes, options);
}

}  // namespace

std::unique_ptr<stream::StepSink> create_in_space(const stream::EngineContext& context, const std::string& name,
                                                  Cohort& cohort, const StreamOptions& options) {
  return std::make_unique<SpaceSink>(context, name, cohort, options);
}

}  // namespace penstock::space
