#include "stream/direct_writer.hpp"

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

// While it lives, who copies from the arena may wait for this rank's own copy: a simulation stands still for that one.
// Null: nobody shall wait.
class Copying {
 public:
  explicit Copying(memory::Arena* arena) : arena_(arena) {
    if (arena_) arena_->note_copying(true);
  }
  Copying(const Copying&) = delete;
  ~Copying() {
    if (arena_) arena_->note_copying(false);
  }

 private:
  memory::Arena* arena_;
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

DirectWriter::DirectWriter(const EngineContext& context, const std::string& name, std::shared_ptr<Cohort> cohort,
                           const StreamOptions& options, WriterUse use)
    : name_(name),
      options_(options),
      arena_(std::make_shared<memory::Arena>(
          ledger_settings(options, static_cast<std::uint32_t>(cohort->size())).slots(), options.queue_bytes)),
      node_(std::make_unique<WriterNode>(context, name, *cohort, options, arena_, use)),
      solo_(cohort->size() == 1),
      statistics_file_(name, "writer", cohort->rank()) {
  layout_.rank = cohort->rank();
}

DirectWriter::~DirectWriter() = default;

std::unique_ptr<WriterEngine> create_direct_writer(const EngineContext& context, const std::string& name,
                                                   std::shared_ptr<Cohort> cohort, const StreamOptions& options) {
  auto writer = std::make_unique<DirectWriter>(context, name, std::move(cohort), options);
  writer->prefault(*context.progress);
  return writer;
}

// With step_bytes given, every slot's memory is made from now on, as far as queue_bytes allows, while the application computes
// its first step. A step that comes earlier waits for the memory of its own slot.
void DirectWriter::prefault(fabric::Progress& progress) {
  if (options_.step_bytes == 0) return;
  prefaulting_ = std::make_unique<fabric::Workers>(progress, 1, "stream-memory");
  for (std::uint32_t slot = 0; slot < arena_->slots(); ++slot)
    prefaulting_->submit([arena = arena_, slot, bytes = options_.step_bytes, stream = name_] {
      try {
        arena->prepare(slot, bytes);
      } catch (const Error& e) {  // begin_step will say so if it is still so then
        base::log(base::Level::warn, "memory for a step could not be made ahead",
                  {{"stream", stream}, {"why", e.what()}});
      }
    });
}

// --------------------------------------------------------------------------------------------------------- definitions

std::uint32_t DirectWriter::define(std::string_view name, DType dtype, const Dims& shape,
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

model::VariableDefinition& DirectWriter::variable(std::uint32_t id) {
  if (id >= layout_.variables.size()) throw Error(Errc::not_found, "no variable has the id " + std::to_string(id));
  return layout_.variables[id];
}

void DirectWriter::set_shape(std::uint32_t id, const Dims& shape) {
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
void DirectWriter::require_payload_room(const std::string& what, std::uint64_t attributes,
                                        std::uint64_t strings) const {
  if (payload_frame_bytes + attributes + strings > wire::max_message_bytes)
    throw Error(Errc::invalid_argument, "stream " + name_ + ": no room for " + what +
                                            ": the attributes in force and the strings of one step take " +
                                            base::format_size(wire::max_message_bytes) +
                                            " of a rank at most, all together");
}

void DirectWriter::put_attribute(std::string_view name, Attribute value, AttributeOf of) {
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

bool DirectWriter::begin_step(Timeout timeout) {
  if (closed_) throw Error(Errc::stream_closed, "stream " + name_ + " is closed");
  if (state_ != State::idle) throw Error(Errc::wrong_state, "stream " + name_ + ": the last step has not ended");
  const base::Deadline deadline(timeout == configured ? Timeout(options_.step_timeout_ms) : timeout);
  const auto start = base::Clock::now();
  if (!open_) {
    const auto grant = node_->wait_grant(deadline);
    counters_.wait_s += base::seconds_since(start);
    if (!grant) return false;
    grant_ = *grant;
    dropped_ = grant_.dropped;
    open_ = !dropped_;
  }
  blocks_put_ = 0;
  payload_.strings.clear();
  payload_.ranges.clear();
  string_bytes_ = 0;
  lent_.clear();
  ranged_.clear();
  attributes_.keep_step();
  shapes_before_.clear();
  discards_used_ = 0;
  try {
    if (open_ && !reserve_slot(deadline)) {
      // Out of bytes though not out of steps. Policy drops the step; without one the same step is tried again, for the
      // other ranks write it.
      if (options_.when_full == WhenFull::block) return false;
      void_step();
      dropped_ = true;
    }
  } catch (...) {
    give_up();
    throw;
  }
  waited_ = base::Clock::now() - start > no_wait;
  devices_ = memory::devices_here(start);
  state_ = State::writing;
  return true;
}

std::string DirectWriter::awaited() const {
  if (!open_) return node_->awaited();
  return "memory of earlier steps (queue_bytes=" + base::format_size(options_.queue_bytes) + "): " + node_->awaited();
}

// The arena, if those who copy from it shall wait for a copy of so many bytes. Where this rank has waited for them, the next
// step will too: what they lose it does not gain.
memory::Arena* DirectWriter::goes_first(std::uint64_t bytes) const {
  return bytes >= noted_copy_bytes && !waited_ ? arena_.get() : nullptr;
}

// Makes room for a step as large as the last one. False when bytes are short until the deadline.
bool DirectWriter::reserve_slot(base::Deadline deadline) {
  const auto reserve = std::max(options_.step_bytes, last_bytes_);
  for (;;) {
    const auto seen = node_->recycled();
    try {
      arena_->begin(grant_.slot, grant_.step, reserve);
      return true;
    } catch (const Error& e) {
      if (e.code() != Errc::step_too_large) throw;
      if (reserve > 0 && reserve + memory::slot_header_bytes > options_.queue_bytes) {
        arena_->begin(grant_.slot, grant_.step, 0);  // it may be smaller than the last
        return true;
      }
    }
    if (options_.when_full != WhenFull::block || !node_->wait_recycled(seen, deadline)) return false;
  }
}

memory::Place DirectWriter::allocate(std::uint64_t bytes) {
  const base::Deadline deadline(Timeout(options_.step_timeout_ms));
  for (;;) {
    const auto seen = node_->recycled();
    if (auto place = arena_->try_allocate(grant_.slot, bytes)) return *place;
    const bool hopeless = arena_->used_bytes(grant_.slot) + bytes > options_.queue_bytes;
    if (!hopeless && options_.when_full == WhenFull::block && node_->wait_recycled(seen, deadline)) continue;
    void_step();
    state_ = State::failed;
    throw Error(Errc::step_too_large, "stream " + name_ + ": step " + std::to_string(grant_.step) +
                                          " does not fit into queue_bytes=" + base::format_size(options_.queue_bytes) +
                                          " of this rank; it is void on every rank");
  }
}

void DirectWriter::require_writing() const {
  if (state_ == State::failed) throw Error(Errc::step_voided, "stream " + name_ + ": this step is void");
  if (state_ != State::writing) throw Error(Errc::wrong_state, "stream " + name_ + ": no step is being written");
}

std::uint64_t DirectWriter::checked_bytes(const model::VariableDefinition& v, const Box& box) const {
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
void DirectWriter::note_block(model::BlockDefinition block) {
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

std::byte* DirectWriter::add_block(std::uint32_t id, const Box& box, std::uint64_t bytes) {
  const auto place = allocate(bytes);
  const auto& v = layout_.variables[id];
  if (v.min_max && bytes > 0)
    ranged_.push_back({static_cast<std::uint32_t>(blocks_put_), place.data, bytes / size_of(v.dtype)});
  note_block({id, box, place.segment, place.offset, bytes});
  counters_.bytes += bytes;
  return place.data;
}

void DirectWriter::put(std::uint32_t id, const Box& box, const void* data, std::span<const std::int64_t> strides) {
  require_writing();
  const auto& v = variable(id);
  const auto bytes = checked_bytes(v, box);
  if (!strides.empty() && strides.size() != box.count.size())
    throw Error(Errc::invalid_argument, "variable " + v.name + ": one stride for each dimension");
  if (bytes > 0 && data == nullptr) throw Error(Errc::invalid_argument, "variable " + v.name + ": no data");
  if (dropped_) return;
  std::byte* place = add_block(id, box, bytes);
  if (bytes == 0) return;
  const bool timed = bytes >= timed_copy_bytes;
  const auto start = timed ? base::Clock::now() : base::Clock::time_point();
  const auto size = size_of(v.dtype);
  const bool look = devices_ || bytes >= looked_at_bytes || blocks_put_ <= looked_at_blocks;
  const bool on_device = look && memory::on_device(data);
  const Copying copying(goes_first(bytes));
  if (strides.empty() || model::is_contiguous(box.count, strides.data(), size, v.order)) {
    if (on_device) memory::copy_in(place, data, bytes);
    else std::memcpy(place, data, bytes);
  } else {
    copy_strided(place, data, on_device, strides, box.count, size, v.order);
  }
  if (timed) counters_.copy_s += base::seconds_since(start);
  ++counters_.copies;
  counters_.bytes_copied += bytes;
}

std::byte* DirectWriter::discard_block(std::uint64_t bytes) {
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

std::span<std::byte> DirectWriter::put_span(std::uint32_t id, const Box& box) {
  require_writing();
  const auto bytes = checked_bytes(variable(id), box);
  return {dropped_ ? discard_block(bytes) : add_block(id, box, bytes), bytes};
}

void DirectWriter::lend(std::uint32_t id, const Box& box, const void* data) {
  require_writing();
  const auto bytes = checked_bytes(variable(id), box);
  if (dropped_ || bytes == 0) return;
  lent_.push_back({data, add_block(id, box, bytes), bytes});
}

void DirectWriter::put_whole(std::uint32_t id, const void* data) {
  const auto& v = variable(id);
  put(id, v.kind == penstock::Kind::global_array ? whole(v.shape) : Box{}, data, {});
}

void DirectWriter::put_string(std::uint32_t id, std::string_view value) {
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

void DirectWriter::write_payload() {
  for (const auto& r : ranged_) {
    const auto& block = layout_.blocks[r.block];
    if (const auto range = model::compute_min_max(layout_.variables[block.variable].dtype, r.data, r.elements))
      payload_.ranges.push_back({r.block, *range});
  }
  const bool has_payload = !payload_.empty();
  if (has_payload != had_payload_) layout_changed_ = true;
  had_payload_ = has_payload;
  if (!has_payload) return;
  if (payload_changed_ || !payload_.strings.empty() || !payload_.ranges.empty()) {
    payload_bytes_.clear();
    wire::encode(payload_, payload_bytes_);
    payload_changed_ = !payload_.strings.empty() || !payload_.ranges.empty();
  }
  if (payload_bytes_.size() > wire::max_message_bytes)  // ranges: what else is in it was counted as it was put
    throw Error(Errc::step_too_large, "stream " + name_ + ": the minima and maxima of " +
                                          std::to_string(payload_.ranges.size()) +
                                          " blocks of one rank do not fit into one message; the step is void");
  const auto place = allocate(payload_bytes_.size());
  std::memcpy(place.data, payload_bytes_.data(), payload_bytes_.size());
  arena_->set_payload(grant_.slot, place, payload_bytes_.size());
}

// The layout as readers need it, when it is not the one they have.
std::shared_ptr<const std::string> DirectWriter::described() {
  if (blocks_put_ != layout_.blocks.size()) {
    layout_.blocks.resize(blocks_put_);
    layout_changed_ = true;
  }
  if (!layout_changed_) return nullptr;
  layout_changed_ = false;
  auto text = wire::encode_layout(layout_, had_payload_);
  if (text.size() + 4096 > wire::max_message_bytes)
    throw Error(Errc::step_too_large,
                "stream " + name_ + ": " + std::to_string(blocks_put_) +
                    " blocks of one rank cannot be described in one message; put fewer, larger ones");
  return std::make_shared<const std::string>(std::move(text));
}

void DirectWriter::end_step() {
  if (state_ == State::failed) {
    state_ = State::idle;
    throw Error(Errc::step_voided, "stream " + name_ + ": step " + std::to_string(grant_.step) + " was voided");
  }
  require_writing();
  if (!dropped_) {
    try {
      commit_step();
    } catch (...) {
      give_up();
      state_ = State::idle;
      throw;
    }
  }
  state_ = State::idle;
}

void DirectWriter::commit_step() {
  for (const auto& l : lent_) {
    const auto start = base::Clock::now();
    const Copying copying(goes_first(l.bytes));
    memory::copy_in(l.place, l.data, l.bytes);
    counters_.copy_s += base::seconds_since(start);
    ++counters_.copies;
    counters_.bytes_copied += l.bytes;
  }
  write_payload();
  last_bytes_ = arena_->used_bytes(grant_.slot);
  auto layout = described();
  arena_->publish(grant_.slot, grant_.step);
  node_->record(grant_, false, std::move(layout));
  open_ = false;
  ++counters_.steps;
  statistics_file_.update([this] { return statistics(); });
}

// The attributes and shapes of a void step do not hold for the next.
void DirectWriter::undo_step() {
  payload_changed_ |= attributes_.undo_step();
  for (; !shapes_before_.empty(); shapes_before_.pop_back()) {
    auto& [id, shape] = shapes_before_.back();
    layout_.variables[id].shape = std::move(shape);
    layout_changed_ = true;
  }
}

// The record says that the step is void; what was noted of its layout was never described.
void DirectWriter::void_step() {
  undo_step();
  open_ = false;
  layout_changed_ = true;
  node_->record(grant_, true, nullptr);
  ++counters_.steps_voided;
}

// Of an error that is on its way out already: the other ranks must not wait for this one's record.
void DirectWriter::give_up() noexcept {
  if (!open_) return;
  try {
    void_step();
  } catch (const std::exception& e) {
    base::log(base::Level::debug, "a step could not be voided",
              {{"stream", name_}, {"step", grant_.step}, {"why", e.what()}});
  }
}

void DirectWriter::abandon_step() {
  if (state_ == State::idle) throw Error(Errc::wrong_state, "stream " + name_ + ": no step is being written");
  state_ = State::idle;
  if (open_) void_step();
  else undo_step();
}

// --------------------------------------------------------------------------------------------------------------- close

void DirectWriter::close(Timeout timeout) {
  if (closed_) return;
  if (state_ != State::idle) abandon_step();
  give_up();  // what begin_step was to try again
  closed_ = true;
  prefaulting_.reset();
  struct Final {
    DirectWriter& writer;
    ~Final() {
      writer.statistics_file_.finish([this] { return writer.statistics(); });
    }
  } final{*this};
  node_->close(base::Deadline(timeout == configured ? Timeout(options_.close_timeout_ms) : timeout));
}

void DirectWriter::lose() {
  if (closed_) return;
  closed_ = true;
  prefaulting_.reset();
  node_->lose("it ended without closing the stream");
}

StreamStatistics DirectWriter::statistics() const {
  auto result = counters_;
  node_->add_statistics(result);
  result.memory_bytes = arena_->total_bytes();
  return result;
}

}  // namespace penstock::stream
