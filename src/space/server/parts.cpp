#include "space/server/parts.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "model/box.hpp"
#include "pool/keys/protocol.hpp"
#include "space/names.hpp"
#include "space/protocol.hpp"
#include "space/server/parts_impl.hpp"

namespace penstock::space {

using pool::ObjectTable;
using pool::ServerCore;

namespace {

constexpr std::size_t most_known = 65'536;
constexpr std::size_t dropped_at_once = 1000;

Error unfinished_error() { return Error(Errc::timeout, "a put that was under way did not end"); }

}  // namespace

class Parts::Admitted final : public pool::PutToken {
 public:
  Admitted(std::shared_ptr<Part> part, Box box, std::shared_ptr<std::size_t> count)
      : part_(std::move(part)), box_(std::move(box)), count_(std::move(count)) {
    part_->pending.push_back(box_);
    ++*count_;
  }
  Admitted(const Admitted&) = delete;
  ~Admitted() override {
    --*count_;
    part_->pending.erase(std::find(part_->pending.begin(), part_->pending.end(), box_));
    if (in_doubt && !part_->index.first_met(box_)) part_->doubtful.push_back(box_);
    part_->changed.notify_all();
  }

 private:
  std::shared_ptr<Part> part_;
  const Box box_;
  std::shared_ptr<std::size_t> count_;
};

std::shared_ptr<Parts> Parts::create(std::shared_ptr<ServerCore> core) {
  std::shared_ptr<Parts> parts(new Parts(std::move(core)));
  parts->begin();
  return parts;
}

Parts::Parts(std::shared_ptr<ServerCore> core) : core_(core), progress_(*core->progress()) {}

Parts::~Parts() {
  if (const auto core = core_.lock()) core->store().table().cancel(events_);
}

void Parts::begin() {
  const auto core = locked(core_);
  auto event = [weak = weak_from_this()](bool dropped, const Namespace&, std::string_view row, std::string_view column,
                                         const pool::StoredObject&) {
    if (const auto self = weak.lock()) self->changed(dropped, row, column);
  };
  events_ = core->store().table().subscribe(arrays_namespace(), pool::KeyPattern(), std::move(event));
  core->on_view([weak = weak_from_this()](const pool::View&) {
    if (const auto self = weak.lock()) self->view_changed();
  });
}

const Namespace& Parts::of() const { return arrays_namespace(); }

// A dropped block makes the index stale: blocks go with their version, all at once.
void Parts::changed(bool dropped, std::string_view row, std::string_view column) {
  if (const auto home = homes_.find(row); home != homes_.end())
    if (const auto used = home->second.lock()) used->note_change();
  const auto box = block_box_of(column);
  const auto observer = observer_.lock();
  if (observer && box && dropped) observer->rows_gone(row);
  const auto found = parts_.find(row);
  if (found == parts_.end()) return;
  auto& part = *found->second;
  if (dropped) part.state = Part::State::stale;
  else if (box && part.state != Part::State::stale) part.insert(*box);
  part.changed.notify_all();
  if (box && !dropped) tell_of_put(part);
}

void Parts::tell_of_put(const Part& part) {
  const auto core = core_.lock();
  const auto observer = observer_.lock();
  const auto row = block_row_of(part.row);
  if (!core || !observer || !row || part.state != Part::State::filled) return;
  const auto known = records_.find(row->array);
  if (known == records_.end() || row->part >= known->second->partition.parts()) return;
  const auto& array = known->second;
  const auto tag = array->tag_base + row->version + row->part;
  if (!core->is_primary(*core->placement(), arrays_namespace(), part.row, tag)) return;
  observer->part_put(*row, array, part.elements == element_count(array->partition.box_of(row->part).count));
}

void Parts::view_changed() {
  known_.clear();
  if (const auto observer = observer_.lock()) observer->view_changed();
  for (auto it = parts_.begin(); it != parts_.end();) {
    auto& part = *it->second;
    part.state = Part::State::stale;
    part.changed.notify_all();
    const bool used = it->second.use_count() > 1 || !part.doubtful.empty();
    it = used ? std::next(it) : parts_.erase(it);
  }
  for (const auto& [row, home] : homes_)
    if (const auto used = home.lock()) used->note_change();
}

std::shared_ptr<Parts::Part> Parts::kept(const std::string& row) {
  auto& part = parts_[row];
  if (!part) part = std::make_shared<Part>(row, progress_);
  return part;
}

std::shared_ptr<Parts::Home> Parts::home_of(const std::string& row) {
  if (const auto found = homes_.find(row); found != homes_.end())
    if (auto home = found->second.lock()) return home;
  std::erase_if(homes_, [](const auto& entry) { return entry.second.expired(); });
  auto home = std::make_shared<Home>(progress_);
  homes_[row] = home;
  return home;
}

Parts::Task<std::shared_ptr<Parts::Part>> Parts::part_of(std::string row, base::Deadline deadline) {
  auto part = kept(row);
  while (part->state != Part::State::filled) {
    if (part->state == Part::State::stale) {
      co_await fill(part, deadline);
      continue;
    }
    const bool notified = co_await part->changed.wait(deadline);
    if (!notified) throw Error(Errc::timeout, "the index of the array was not made in time");
  }
  co_return part;
}

// Blocks that others have not passed on yet count: they belong to this server.
Parts::Task<void> Parts::fill(std::shared_ptr<Part> part, base::Deadline deadline) {
  const auto core = locked(core_);
  struct Unfinished {  // whoever comes next begins anew
    Part& part;
    ~Unfinished() {
      if (part.state == Part::State::filling) part.state = Part::State::stale;
      part.changed.notify_all();
    }
  } unfinished{*part};
  part->index = BlockIndex();
  part->elements = 0;
  part->state = Part::State::filling;
  const auto pattern = rows_like(part->row, false);
  const auto see = [&](const ObjectTable::Entry& entry) {
    if (const auto box = block_box_of(entry.column)) part->insert(*box);
    return true;
  };
  std::string after;
  do after = core->store().table().scan(arrays_namespace(), pattern, after, scan_at_once, see);
  while (!after.empty());
  const auto elsewhere = co_await core->list_elsewhere(arrays_namespace(), pool::escape_pattern(part->row), deadline);
  for (const auto& key : elsewhere)
    if (const auto box = block_box_of(key.column)) part->insert(*box);
  if (part->state == Part::State::filling) part->state = Part::State::filled;
}

Parts::Task<Parts::VersionState> Parts::state_of(Version version, base::Deadline deadline) {
  const auto core = locked(core_);
  auto row = versions_row(version.first);
  auto column = version_column(version.second);
  const auto found = co_await core->load_anywhere(arrays_namespace(), std::move(row), std::move(column), std::nullopt,
                                                  false, deadline);
  if (!found) co_return VersionState::absent;
  co_return found->object.bytes == 0 ? VersionState::open : VersionState::going;
}

Parts::Task<std::shared_ptr<const DefinedArray>> Parts::record(std::uint64_t array, base::Deadline deadline) {
  if (const auto known = records_.find(array); known != records_.end()) co_return known->second;
  const auto core = locked(core_);
  auto row = versions_row(array);
  std::string column(open_column);
  const auto found = co_await core->load_anywhere(arrays_namespace(), std::move(row), std::move(column), std::nullopt,
                                                  false, deadline);
  if (!found) throw Error(Errc::not_found, "the array was dropped, or is being dropped");
  auto record = std::make_shared<const DefinedArray>(decode_record(found->object.blob->bytes()));
  if (record->id != array) throw Error(Errc::protocol, "the record is of another array");
  if (records_.size() >= most_known) records_.clear();
  records_[array] = record;
  co_return record;
}

Parts::Task<void> Parts::require_version(Version version, base::Deadline deadline) {
  if (dropping_.contains(version)) throw dropped_error();
  if (known_.contains(version)) co_return;
  const auto state = co_await state_of(version, deadline);
  if (state != VersionState::open || dropping_.contains(version)) throw dropped_error();
  if (known_.size() >= most_known) known_.clear();
  known_.insert(version);
}

Parts::Task<std::shared_ptr<pool::PutToken>> Parts::admit(const ServerCore::Put& put, IfExists if_exists,
                                                          base::Deadline deadline) {
  if (put.row.starts_with(versions_row_prefix)) {
    auto token = co_await admit_version(put, if_exists, deadline);
    co_return token;
  }
  if (if_exists != IfExists::refuse) throw foreign_error();
  if (put.row.starts_with(array_row_prefix)) {
    decode_record(put.blob->bytes());
    co_return std::make_shared<pool::PutToken>();
  }
  const auto row = block_row_of(put.row);
  const auto box = block_box_of(put.column);
  if (!row || !box) throw foreign_error();
  const Version version{row->array, row->version};
  const auto of = co_await record(row->array, deadline);
  if (!model::is_within(*box, of->shape) || row->part >= of->partition.parts() ||
      model::intersect(*box, of->partition.box_of(row->part)) != *box ||
      put.blob->size() != element_count(box->count) * element_bytes(*of))
    throw foreign_error();
  for (;;) {
    co_await require_version(version, deadline);
    const auto part = co_await part_of(put.row, deadline);
    if (!known_.contains(version) || part->dropped) continue;  // dropped, or another view, meanwhile
    const auto meets = [&](const Box& other) { return model::intersect(other, *box).has_value(); };
    const auto met = part->index.first_met(*box);
    if (met && *met != *box)
      throw Error(Errc::already_exists, "the block " + model::to_string(*met) + " has some of the elements");
    const auto doubted = std::find_if(part->doubtful.begin(), part->doubtful.end(), meets);
    if (doubted != part->doubtful.end() && *doubted != *box)
      throw Error(Errc::already_exists, "an earlier put of " + model::to_string(*doubted) + " may still come");
    if (std::none_of(part->pending.begin(), part->pending.end(), meets))
      co_return std::make_shared<Admitted>(part, *box, admitted_);
    const bool notified = co_await part->changed.wait(deadline);
    if (!notified) throw Error(Errc::timeout, "an earlier put of the same elements did not end");
  }
}

Parts::Task<Parts::Found> Parts::find(BlockRow row, Box box, std::uint64_t view, bool wait, base::Deadline deadline) {
  const auto core = locked(core_);
  const auto wanted = element_count(box.count);
  const auto name = block_row(row);
  for (;;) {
    const auto part = co_await part_of(name, deadline);
    if (core->placement()->view().number != view)
      throw Error(Errc::stale_view, "the pool's membership changed meanwhile");
    Found found;
    std::uint64_t covered = 0;
    part->index.for_each(box, [&](const Box& block) {
      covered += element_count(model::intersect(block, box)->count);
      found.blocks.push_back(block);
      return true;
    });
    found.covered = covered == wanted;
    bool over = found.covered || !wait;
    if (!over) {
      const bool notified = co_await part->changed.wait(deadline);
      over = !notified;
    }
    if (part->dropped) throw dropped_error();
    if (!over) continue;
    const bool empty = part->index.size() == 0 && part->pending.empty() && part->doubtful.empty();
    if (empty && part.use_count() <= 2) parts_.erase(name);
    co_return found;
  }
}

Parts::Task<void> Parts::settle(std::uint64_t array, base::Deadline deadline) {
  const auto home = home_of(versions_row(array));
  while (!home->begun.empty()) {
    const bool notified = co_await home->changed.wait(deadline);
    if (!notified) throw unfinished_error();
  }
}

Parts::Task<void> Parts::settle_blocks(std::string prefix, base::Deadline deadline) {
  for (auto it = parts_.lower_bound(prefix); it != parts_.end() && it->first.starts_with(prefix);) {
    const auto part = it->second;
    if (part->pending.empty()) {
      ++it;
      continue;
    }
    const bool notified = co_await part->changed.wait(deadline);
    if (!notified) throw unfinished_error();
    it = parts_.lower_bound(prefix);
  }
}

struct Parts::Block {
  Key key;
  std::optional<std::uint64_t> tag;
};

Parts::Task<std::uint64_t> Parts::drop_blocks(std::vector<Block> blocks, base::Deadline deadline) {
  const auto core = locked(core_);
  std::uint64_t count = 0;
  for (auto& block : blocks) {
    const bool there = co_await core->drop(arrays_namespace(), std::move(block.key.row), std::move(block.key.column),
                                           block.tag, std::nullopt, Acknowledge::memory, deadline);
    count += there ? 1 : 0;
  }
  co_return count;
}

Parts::Task<std::uint64_t> Parts::drop(std::uint64_t array, std::uint64_t version, std::uint64_t tag_base,
                                       std::uint64_t view, base::Deadline deadline) {
  const auto core = locked(core_);
  const auto prefix = blocks_prefix(array, version);
  struct Dropping {  // nothing is admitted
    Parts& parts;
    const Version version;
    bool first;
    Dropping(Parts& of, Version which) : parts(of), version(which), first(of.dropping_.insert(which).second) {
      parts.known_.erase(version);
    }
    ~Dropping() {
      if (first) parts.dropping_.erase(version);
    }
  } dropping(*this, {array, version});
  co_await settle_blocks(prefix, deadline);
  // Where it is open, another drop has ended and the version has begun anew.
  const auto state = co_await state_of({array, version}, deadline);
  if (state == VersionState::open) co_return 0;
  // What others have not passed on yet would come back.
  std::vector<Block> blocks;
  auto elsewhere = co_await core->list_elsewhere(arrays_namespace(), pool::escape_pattern(prefix) + "*", deadline);
  for (auto& key : elsewhere) {
    const auto row = block_row_of(key.row);
    if (!row) continue;
    const auto tag = tag_base + row->part;
    if (core->is_primary(*core->placement(), arrays_namespace(), key.row, tag)) blocks.push_back({std::move(key), tag});
  }
  std::uint64_t count = co_await drop_blocks(std::move(blocks), deadline);
  const auto pattern = rows_like(prefix, true);
  std::string after;
  do {
    blocks.clear();
    const auto placement = core->placement();
    after = core->store().table().scan(
        arrays_namespace(), pattern, after, scan_at_once, [&](const ObjectTable::Entry& entry) {
          if (core->is_primary(*placement, entry.ns, entry.row, entry.object.tag))
            blocks.push_back({{std::string(entry.row), std::string(entry.column)}, entry.object.tag});
          return blocks.size() < dropped_at_once;
        });
    count += co_await drop_blocks(std::move(blocks), deadline);
  } while (!after.empty());
  // In a newer view this server may own more of them, or others what it left.
  if (core->placement()->view().number != view)
    throw Error(Errc::stale_view, "the pool's membership changed during the drop");
  for (auto it = parts_.lower_bound(prefix); it != parts_.end() && it->first.starts_with(prefix);) {
    it->second->dropped = true;
    it->second->changed.notify_all();
    it = parts_.erase(it);
  }
  co_return count;
}

}  // namespace penstock::space
