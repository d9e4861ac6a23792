#include "stream/api/step_builder.hpp"

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "memory/kind.hpp"
#include "model/box.hpp"
#include "model/copy.hpp"
#include "model/minmax.hpp"

namespace penstock::stream {
namespace {

constexpr std::uint64_t noted_copy_bytes = 1 << 20;   // others give way to copies from this size on
constexpr std::chrono::microseconds no_wait{100};     // begin_step takes less while the queue has room
constexpr std::uint64_t timed_copy_bytes = 16 << 10;  // smaller copies are counted but not timed: a clock costs as much

// To look for a device takes as long as to copy a small array. It is done for large ones, and for so many of each step.
constexpr std::uint64_t looked_at_bytes = 4 << 10;
constexpr std::uint64_t looked_at_blocks = 16;

// Of an encoded payload, with room to spare: everything but values.
constexpr std::uint64_t payload_frame_bytes = 512;

// While it lives, others may wait for this rank's own copy: a simulation stands still for that one. Null: nobody shall wait.
class Copying {
 public:
  explicit Copying(StepSink* sink) : sink_(sink) {
    if (sink_) sink_->note_copying(true);
  }
  Copying(const Copying&) = delete;
  ~Copying() {
    if (sink_) sink_->note_copying(false);
  }

 private:
  StepSink* sink_;
};

// Packs an array whose elements are `strides` bytes apart. From a device, what lies between them comes too.
void copy_strided(std::byte* place, const void* data, bool on_device, std::span<const std::int64_t> strides,
                  const Dims& count, std::size_t size, Order order) {
  const auto* from = static_cast<const std::byte*>(data);
  std::unique_ptr<std::byte[]> stage;
  if (on_device) {
    std::int64_t first = 0, last = static_cast<std::int64_t>(size);
    for (std::size_t d = 0; d < count.size(); ++d) {
      const auto span = static_cast<std::int64_t>(count[d] - 1) * strides[d];
      (span < 0 ? first : last) += span;
    }
    const auto bytes = static_cast<std::size_t>(last - first);
    stage = std::make_unique_for_overwrite<std::byte[]>(bytes);
    memory::copy_in(stage.get(), from + first, bytes);
    from = stage.get() - first;
  }
  const auto packed = model::packed_strides(count, size, order);
  model::copy_nd(place, packed.data(), from, strides.data(), count.begin(), count.size(), size);
}

}  // namespace

StepBuilder::StepBuilder(std::unique_ptr<StepSink> sink, const Cohort& cohort, const StreamOptions& options)
    : options_(options),
      solo_(cohort.size() == 1),
      sink_(std::move(sink)),
      statistics_file_(name(), "writer", cohort.rank()) {
  layout_.rank = cohort.rank();
}

StepBuilder::~StepBuilder() = default;

// --------------------------------------------------------------------------------------------------------- definitions

std::uint32_t StepBuilder::define(std::string_view name, DType dtype, const Dims& shape,
                                  const VariableOptions& options) {
  if (name.empty() || name.size() > model::max_name_bytes)
    throw Error(Errc::invalid_argument,
                "a variable's name has 1 to " + std::to_string(model::max_name_bytes) + " bytes");
  if (dtype == DType::none || static_cast<std::size_t>(dtype) >= dtype_count)
    throw Error(Errc::invalid_argument, "variable " + std::string(name) + ": no such element type");
  if (options.kind == penstock::Kind::global_array ? shape.empty() : !shape.empty())
    throw Error(Errc::invalid_argument,
                "variable " + std::string(name) + ": a shape belongs to a global array, and only to one");
  if (dtype == DType::string &&
      (options.kind == penstock::Kind::global_array || options.kind == penstock::Kind::local_array))
    throw Error(Errc::unsupported, "variable " + std::string(name) + ": strings are values, not arrays");
  if (!model::packed_bytes(shape, size_of(dtype)))
    throw Error(Errc::invalid_argument, "variable " + std::string(name) + ": the shape is too large");
  if (ids_.contains(std::string(name)))
    throw Error(Errc::invalid_argument, "variable " + std::string(name) + " is defined already");
  if (layout_.variables.size() >= model::max_variables) throw Error(Errc::invalid_argument, "too many variables");
  const auto id = static_cast<std::uint32_t>(layout_.variables.size());
  layout_.variables.push_back(
      {std::string(name), dtype, options.kind, options.order, shape, options.min_max || options_.min_max});
  ids_.emplace(name, id);
  layout_changed_ = true;
  return id;
}

const model::VariableDefinition& StepBuilder::definition(std::uint32_t id) const {
  if (id >= layout_.variables.size()) throw Error(Errc::not_found, "no variable has the id " + std::to_string(id));
  return layout_.variables[id];
}

model::VariableDefinition& StepBuilder::variable(std::uint32_t id) {
  return const_cast<model::VariableDefinition&>(definition(id));
}

void StepBuilder::set_shape(std::uint32_t id, const Dims& shape) {
  require_writing();
  auto& v = variable(id);
  if (v.kind != penstock::Kind::global_array || shape.size() != v.shape.size())
    throw Error(Errc::invalid_argument, "variable " + v.name + ": a new shape has as many dimensions as the old one");
  if (!model::packed_bytes(shape, size_of(v.dtype)))
    throw Error(Errc::invalid_argument, "variable " + v.name + ": the shape is too large");
  if (v.shape == shape) return;
  for (std::size_t b = 0; b < blocks_put_; ++b)
    if (layout_.blocks[b].variable == id && !model::is_within(layout_.blocks[b].box, shape))
      throw Error(Errc::invalid_argument, "variable " + v.name + ": " + model::to_string(layout_.blocks[b].box) +
                                              " was put already and is not inside shape " + to_string(shape));
  auto before = std::exchange(v.shape, shape);
  // Other ranks may have put the new shape, and have no part in giving the step up: it stays the shape of all.
  if (solo_) shapes_before_.emplace_back(id, std::move(before));
  layout_changed_ = true;
}

// A payload is one message to those who read it.
void StepBuilder::require_payload_room(const std::string& what, std::uint64_t attributes, std::uint64_t strings) const {
  if (payload_frame_bytes + attributes + strings > wire::max_message_bytes)
    throw Error(Errc::invalid_argument, "stream " + name() + ": no room for " + what +
                                            ": the attributes in force and the strings of one step take " +
                                            base::format_size(wire::max_message_bytes) +
                                            " of a rank at most, all together");
}

void StepBuilder::put_attribute(std::string_view name, Attribute value, AttributeOf of) {
  if (of == AttributeOf::step) require_writing();
  if (name.empty() || name.size() > model::max_name_bytes)
    throw Error(Errc::invalid_argument, "an attribute's name is empty or too long");
  if (!value.is_array && value.size() != 1)
    throw Error(Errc::invalid_argument, "attribute " + std::string(name) + ": not one value");
  const auto require_room = [this](const std::string& what, std::uint64_t bytes) {
    require_payload_room(what, bytes, string_bytes_);
  };
  payload_changed_ |= attributes_.put(name, std::move(value), of, require_room);
}

// --------------------------------------------------------------------------------------------------------------- steps

StepSink::Begun StepBuilder::try_sink(base::Deadline deadline) {
  try {
    const auto begun = sink_->begin(deadline);
    if (begun != StepSink::Begun::not_yet) waiting_.reset();
    return begun;
  } catch (...) {
    note_failure();
    throw;
  }
}

StepSink::Begun StepBuilder::begin_sink(Timeout timeout) {
  if (timeout != configured) return try_sink(base::Deadline(timeout));
  if (options_.step_timeout_ms != 0) return try_sink(base::Deadline(Timeout(options_.step_timeout_ms)));
  for (;;) {
    const auto begun = try_sink(Patience::slice());
    if (begun != StepSink::Begun::not_yet || interrupted() || !keeps_waiting()) return begun;
  }
}

bool StepBuilder::keeps_waiting() {
  if (!waiting_) waiting_.emplace(name(), begun_ ? *begun_ + 1 : 0);
  const bool goes_on = waiting_->goes_on([this] { return sink_->awaited(); });
  if (!goes_on) waiting_.reset();
  return goes_on;
}

bool StepBuilder::begin_step(Timeout timeout) {
  if (closed_) throw Error(Errc::stream_closed, "stream " + name() + " is closed");
  if (state_ != State::idle)
    throw Error(Errc::wrong_state, "stream " + name() + ": step " + std::to_string(*begun_) +
                                       " is open: end it, or give it up, before the next begins");
  const auto start = base::Clock::now();
  const auto begun = begin_sink(timeout);
  const auto waited = base::Clock::now() - start;
  counters_.wait_s += std::chrono::duration<double>(waited).count();
  if (begun == StepSink::Begun::not_yet) return false;
  failure_.clear();
  begun_ = sink_->step();
  dropped_ = begun == StepSink::Begun::dropped;
  waited_ = waited > no_wait;
  blocks_put_ = 0;
  payload_.strings.clear();
  payload_.ranges.clear();
  string_bytes_ = 0;
  lent_.clear();
  ranged_.clear();
  attributes_.keep_step();
  shapes_before_.clear();
  discards_used_ = 0;
  devices_ = memory::devices_here(start);
  state_ = State::writing;
  return true;
}

// The sink, if others shall wait for a copy of so many bytes. Where this rank has waited for them, the next step will too: what
// they lose it does not gain.
StepSink* StepBuilder::goes_first(std::uint64_t bytes) const {
  return bytes >= noted_copy_bytes && !waited_ ? sink_.get() : nullptr;
}

memory::Place StepBuilder::allocate(std::uint64_t bytes) {
  if (const auto place = sink_->allocate(bytes)) return *place;
  void_step();
  state_ = State::failed;
  throw Error(Errc::step_too_large, "stream " + name() + ": step " + std::to_string(step()) +
                                        " does not fit into queue_bytes=" + base::format_size(options_.queue_bytes) +
                                        " of this rank; it is void on every rank");
}

void StepBuilder::require_writing() const {
  if (state_ == State::failed) throw Error(Errc::step_voided, "stream " + name() + ": this step is void");
  if (state_ != State::writing) throw Error(Errc::wrong_state, "stream " + name() + ": no step is being written");
}

std::uint64_t StepBuilder::checked_bytes(const model::VariableDefinition& v, const Box& box) const {
  switch (v.kind) {
    case penstock::Kind::global_array:
      if (!model::is_within(box, v.shape))
        throw Error(Errc::invalid_argument,
                    "variable " + v.name + ": " + model::to_string(box) + " is not inside shape " + to_string(v.shape));
      break;
    case penstock::Kind::local_array:
      if (box.count.empty() || !model::is_valid(box))
        throw Error(Errc::invalid_argument, "variable " + v.name + ": a local array has a count");
      for (const auto s : box.start)
        if (s != 0) throw Error(Errc::invalid_argument, "variable " + v.name + ": a local array starts at 0");
      break;
    default:
      if (!box.count.empty()) throw Error(Errc::invalid_argument, "variable " + v.name + " is a value");
  }
  if (v.dtype == DType::string) throw Error(Errc::invalid_argument, "variable " + v.name + " holds strings");
  const auto elements = element_count(box.count);
  const auto size = size_of(v.dtype);
  if (elements > std::numeric_limits<std::uint64_t>::max() / 2 / size)
    throw Error(Errc::invalid_argument, "variable " + v.name + ": block too large");
  return elements * size;
}

// Notes the next block; the same as in the last step costs one comparison.
void StepBuilder::note_block(model::BlockDefinition block) {
  if (blocks_put_ < layout_.blocks.size()) {
    if (!(layout_.blocks[blocks_put_] == block)) {
      layout_.blocks[blocks_put_] = std::move(block);
      layout_changed_ = true;
    }
  } else {
    layout_.blocks.push_back(std::move(block));
    layout_changed_ = true;
  }
  ++blocks_put_;
}

bool StepBuilder::may_lie_on_device(std::uint64_t bytes) const {
  return devices_ || memory::devices_seen() || bytes >= looked_at_bytes || blocks_put_ <= looked_at_blocks;
}

// Whether a sink may take the array from where it is.
bool StepBuilder::can_be_taken(const model::VariableDefinition& v, const Array& array) const {
  if (v.min_max && !array.packed) return false;  // its range is computed of packed elements
  return !may_lie_on_device(array.bytes) || !memory::on_device(array.data);
}

std::optional<StepSink::Taken> StepBuilder::offer(const StepSink::Block& block) {
  try {
    return sink_->take(block);
  } catch (...) {
    note_failure();
    give_up();
    state_ = State::failed;
    throw;
  }
}

// Notes the next block. Returns memory for its elements: null where the sink has taken them from `array`. array: null where the
// caller fills that memory.
std::byte* StepBuilder::add_block(std::uint32_t id, const Box& box, std::uint64_t bytes, const Array* array,
                                  bool lent) {
  if (bytes == 0 || !sink_->takes_blocks()) return allocate_block(id, box, bytes);
  const auto& v = layout_.variables[id];
  const auto number = static_cast<std::uint32_t>(blocks_put_);
  StepSink::Block block{.variable = v, .box = box, .number = number, .bytes = bytes, .lent = lent};
  if (array && can_be_taken(v, *array)) {
    block.data = static_cast<const std::byte*>(array->data);
    if (!array->packed) block.strides = std::span(array->strides).first(array->count.size());
  }
  auto taken = offer(block);
  if (!taken) return allocate_block(id, box, bytes);
  if (v.min_max) {
    const auto elements = bytes / size_of(v.dtype);
    // What is put may change from now on; other elements are looked at when the step ends.
    if (taken->memory || lent) ranged_.push_back({number, taken->memory ? taken->memory : block.data, elements});
    else if (const auto range = model::compute_min_max(v.dtype, block.data, elements))
      payload_.ranges.push_back({number, *range});
  }
  note_block({id, box, taken->segment, taken->offset, bytes, std::move(taken->strides)});
  counters_.bytes += bytes;
  return taken->memory;
}

std::byte* StepBuilder::allocate_block(std::uint32_t id, const Box& box, std::uint64_t bytes) {
  const auto place = allocate(bytes);
  const auto& v = layout_.variables[id];
  if (v.min_max && bytes > 0)
    ranged_.push_back({static_cast<std::uint32_t>(blocks_put_), place.data, bytes / size_of(v.dtype)});
  note_block({id, box, place.segment, place.offset, bytes});
  counters_.bytes += bytes;
  return place.data;
}

// strides: none where the array is packed. Throws invalid_argument.
StepBuilder::Array StepBuilder::checked_array(const model::VariableDefinition& v, const Box& box, const void* data,
                                              std::span<const std::int64_t> strides) const {
  Array array{data, box.count, {}, checked_bytes(v, box), true};
  if (!strides.empty() && strides.size() != box.count.size())
    throw Error(Errc::invalid_argument, "variable " + v.name + ": one stride for each dimension");
  if (array.bytes > 0 && data == nullptr) throw Error(Errc::invalid_argument, "variable " + v.name + ": no data");
  array.packed = strides.empty() || model::is_contiguous(box.count, strides.data(), size_of(v.dtype), v.order);
  std::ranges::copy(strides, array.strides.begin());
  return array;
}

// look: whether it may lie on a device.
void StepBuilder::copy_array(std::byte* place, const Array& array, const model::VariableDefinition& v, bool look) {
  const bool timed = array.bytes >= timed_copy_bytes;
  const auto start = timed ? base::Clock::now() : base::Clock::time_point();
  const bool on_device = look && memory::on_device(array.data);
  const Copying copying(goes_first(array.bytes));
  if (!array.packed) copy_strided(place, array.data, on_device, array.strides, array.count, size_of(v.dtype), v.order);
  else if (on_device) memory::copy_in(place, array.data, array.bytes);
  else std::memcpy(place, array.data, array.bytes);
  if (timed) counters_.copy_s += base::seconds_since(start);
  ++counters_.copies;
  counters_.bytes_copied += array.bytes;
}

void StepBuilder::put(std::uint32_t id, const Box& box, const void* data, std::span<const std::int64_t> strides) {
  require_writing();
  const auto& v = variable(id);
  const auto array = checked_array(v, box, data, strides);
  if (dropped_) return;
  std::byte* place = add_block(id, box, array.bytes, &array, false);
  if (place && array.bytes > 0) copy_array(place, array, v, may_lie_on_device(array.bytes));
}

std::byte* StepBuilder::discard_block(std::uint64_t bytes) {
  if (discards_used_ == discards_.size()) discards_.emplace_back();
  auto& discard = discards_[discards_used_];
  const std::uint64_t lines = bytes / sizeof(Line) + 1;
  if (discard.count < lines) {
    discard = {};
    discard = {std::make_unique_for_overwrite<Line[]>(lines), lines};
  }
  ++discards_used_;
  return discard.lines[0].bytes;
}

std::span<std::byte> StepBuilder::put_span(std::uint32_t id, const Box& box) {
  require_writing();
  const auto bytes = checked_bytes(variable(id), box);
  return {dropped_ ? discard_block(bytes) : add_block(id, box, bytes, nullptr, false), bytes};
}

void StepBuilder::lend(std::uint32_t id, const Box& box, const void* data, std::span<const std::int64_t> strides) {
  require_writing();
  auto array = checked_array(variable(id), box, data, strides);
  if (dropped_) return;
  std::byte* place = add_block(id, box, array.bytes, &array, true);
  if (place && array.bytes > 0) lent_.push_back({id, std::move(array), place});
}

void StepBuilder::put_whole(std::uint32_t id, const void* data) {
  const auto& v = variable(id);
  put(id, v.kind == penstock::Kind::global_array ? whole(v.shape) : Box{}, data, {});
}

void StepBuilder::put_string(std::uint32_t id, std::string_view value) {
  require_writing();
  const auto& v = variable(id);
  if (v.dtype != DType::string) throw Error(Errc::invalid_argument, "variable " + v.name + " does not hold strings");
  if (dropped_) return;
  const auto all = string_bytes_ + PutAttributes::value_bytes + value.size();
  require_payload_room("a string of variable " + v.name, attributes_.bytes(), all);
  payload_.strings.push_back({static_cast<std::uint32_t>(blocks_put_), std::string(value)});
  string_bytes_ = all;
  payload_changed_ = true;
  note_block({id, Box{}, 0, memory::slot_header_bytes, 0});
  counters_.bytes += value.size();
}

StepSink::Payload StepBuilder::write_payload() {
  for (const auto& r : ranged_) {
    const auto& block = layout_.blocks[r.block];
    if (const auto range = model::compute_min_max(layout_.variables[block.variable].dtype, r.data, r.elements))
      payload_.ranges.push_back({r.block, *range});
  }
  const bool has_payload = !payload_.empty();
  if (has_payload != had_payload_) layout_changed_ = true;
  had_payload_ = has_payload;
  if (!has_payload) return {};
  if (payload_changed_ || !payload_.strings.empty() || !payload_.ranges.empty()) {
    payload_bytes_.clear();
    wire::encode(payload_, payload_bytes_);
    payload_changed_ = !payload_.strings.empty() || !payload_.ranges.empty();
  }
  if (payload_bytes_.size() > wire::max_message_bytes)  // ranges: what else is in it was counted as it was put
    throw Error(Errc::step_too_large, "stream " + name() + ": the minima and maxima of " +
                                          std::to_string(payload_.ranges.size()) +
                                          " blocks of one rank do not fit into one message; the step is void");
  const auto place = allocate(payload_bytes_.size());
  std::memcpy(place.data, payload_bytes_.data(), payload_bytes_.size());
  return {place, payload_bytes_.size()};
}

// The layout as readers need it, when it is not the one they have.
std::shared_ptr<const std::string> StepBuilder::described() {
  if (blocks_put_ != layout_.blocks.size()) {
    layout_.blocks.resize(blocks_put_);
    layout_changed_ = true;
  }
  if (!layout_changed_) return nullptr;
  layout_changed_ = false;
  auto text = wire::encode_layout(layout_, had_payload_);
  if (text.size() + 4096 > wire::max_message_bytes)
    throw Error(Errc::step_too_large,
                "stream " + name() + ": " + std::to_string(blocks_put_) +
                    " blocks of one rank cannot be described in one message; put fewer, larger ones");
  return std::make_shared<const std::string>(std::move(text));
}

void StepBuilder::end_step() {
  if (state_ == State::failed) {
    state_ = State::idle;
    throw Error(Errc::step_voided, "stream " + name() + ": step " + std::to_string(step()) + " was voided");
  }
  require_writing();
  if (!dropped_) {
    try {
      commit_step();
    } catch (...) {
      note_failure();
      give_up();
      state_ = State::idle;
      throw;
    }
    state_ = State::ending;
  }
  struct Idle {
    State& state;
    ~Idle() { state = State::idle; }
  } idle{state_};
  if (!dropped_) sink_->settle();
}

void StepBuilder::commit_step() {
  for (const auto& l : lent_) copy_array(l.place, l.array, layout_.variables[l.variable], true);
  const auto payload = write_payload();
  sink_->commit(payload, described());
  ++counters_.steps;
  statistics_file_.update([this] { return statistics(); });
}

// The attributes and shapes of a void step do not hold for the next.
void StepBuilder::undo_step() {
  payload_changed_ |= attributes_.undo_step();
  for (; !shapes_before_.empty(); shapes_before_.pop_back()) {
    auto& [id, shape] = shapes_before_.back();
    layout_.variables[id].shape = std::move(shape);
    layout_changed_ = true;
  }
}

// What was noted of its layout was never described.
void StepBuilder::void_step() {
  undo_step();
  layout_changed_ = true;
  sink_->discard();
}

// Of the error that is on its way out: should the writer end with it, it is the cause.
void StepBuilder::note_failure() noexcept {
  try {
    throw;
  } catch (const std::exception& e) {
    failure_ = e.what();
  } catch (...) {
    failure_ = "an unknown error";
  }
}

// Of an error that is on its way out already: the other ranks must not wait for this one's record.
void StepBuilder::give_up() noexcept {
  try {
    void_step();
  } catch (const std::exception& e) {
    base::log(base::Level::debug, "a step could not be voided",
              {{"stream", name()}, {"step", step()}, {"why", e.what()}});
  }
}

void StepBuilder::abandon_step() {
  if (state_ == State::idle) throw Error(Errc::wrong_state, "stream " + name() + ": no step is being written");
  state_ = State::idle;
  void_step();
}

// --------------------------------------------------------------------------------------------------------------- close

void StepBuilder::close(Timeout timeout) {
  if (closed_) return;
  if (state_ == State::ending)
    throw Error(Errc::wrong_state,
                "stream " + name() + ": the writer is inside the end of a step; close it afterwards");
  if (state_ != State::idle) abandon_step();
  give_up();  // what begin_step was to try again
  closed_ = true;
  struct Final {
    StepBuilder& writer;
    ~Final() {
      writer.statistics_file_.finish([this] { return writer.statistics(); });
    }
  } final{*this};
  if (timeout == configured && options_.close_timeout_ms == 0) {
    const auto finish = [this](base::Deadline deadline) { return sink_->finish(deadline); };
    timeout =
        attempt_patiently(name(), {}, 0, finish, [this] { return sink_->awaited(); }) ? unchosen_timeout : Timeout(0);
  }
  sink_->close(base::Deadline(timeout == configured ? Timeout(options_.close_timeout_ms) : timeout));
}

void StepBuilder::lose() {
  if (closed_) return;
  closed_ = true;
  sink_->lose(failure_.empty() ? "ended without closing the stream" : "ended after an error: " + failure_);
}

StreamStatistics StepBuilder::statistics() const {
  auto result = counters_;
  sink_->add_statistics(result);
  return result;
}

}  // namespace penstock::stream
