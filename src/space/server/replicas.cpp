#include "space/server/replicas.hpp"

#include <algorithm>
#include <atomic>
#include <limits>

#include "base/log.hpp"
#include "model/array_conversion.hpp"
#include "model/box.hpp"
#include "space/cover.hpp"
#include "space/names.hpp"

namespace penstock::space {

using pool::Blob;
using pool::ServerCore;

namespace {

constexpr unsigned threads = 2;
constexpr std::size_t most_parts_noted = 32'768, most_rows = 65'536, most_in_advance = 65'536, most_seen = 16;
constexpr std::chrono::seconds longest_in_advance(60);
constexpr std::chrono::milliseconds quiet_time(1);  // without blocks, before conversions in advance
constexpr std::chrono::milliseconds longest_quiet_wait(100);
constexpr std::chrono::seconds longest_mapping(1);  // of memory that is free

std::vector<std::uint64_t> numbers_of(const Layout& layout) {
  std::vector<std::uint64_t> numbers{static_cast<std::uint64_t>(layout.dtype)};
  numbers.insert(numbers.end(), layout.order.begin(), layout.order.end());
  return numbers;
}

std::uint64_t bytes_of(const Box& box, DType dtype) { return element_count(box.count) * size_of(dtype); }

// Recent ones count for more.
void follow(double& known, double now) { known = known > 0 ? 0.7 * known + 0.3 * now : now; }

}  // namespace

// What replicas take, also those that only readers hold any more: the last one may go on any thread.
struct Replicas::Charge {
  std::atomic<std::uint64_t> bytes{0};
};

struct Replicas::Held {
  Held(std::shared_ptr<Charge> to, std::uint64_t bytes) : charged(std::move(to)), charge(bytes) {
    charged->bytes += charge;
  }
  Held(const Held&) = delete;
  ~Held() {
    blob.reset();
    charged->bytes -= charge;
  }
  std::shared_ptr<Blob> blob;
  const std::shared_ptr<Charge> charged;
  const std::uint64_t charge;
};

// The replicas of one part in one layout.
struct Replicas::Shelf {
  Shelf(fabric::Progress& progress, std::uint64_t tag_of_row) : tag(tag_of_row), changed(progress) {}
  const std::uint64_t tag;
  std::vector<std::list<Kept>::iterator> kept;  // disjoint
  std::vector<Box> under_way;                   // disjoint from each other and from those
  bool gone = false;                            // the blocks are others now: nothing is kept
  fabric::Signal changed;

  std::vector<Box> boxes(const Box& meeting) const {
    std::vector<Box> found;
    for (const auto& one : kept)
      if (model::intersect(one->replica.box, meeting)) found.push_back(one->replica.box);
    for (const auto& box : under_way)
      if (model::intersect(box, meeting)) found.push_back(box);
    return found;
  }
};

struct Replicas::UnderWay {
  UnderWay(std::shared_ptr<Shelf> of, Box which) : shelf(std::move(of)), box(std::move(which)) {
    shelf->under_way.push_back(box);
  }
  UnderWay(const UnderWay&) = delete;
  ~UnderWay() {
    shelf->under_way.erase(std::find(shelf->under_way.begin(), shelf->under_way.end(), box));
    shelf->changed.notify_all();
  }
  std::shared_ptr<Shelf> shelf;
  Box box;
};

std::shared_ptr<Replicas> Replicas::create(std::shared_ptr<ServerCore> core, std::shared_ptr<Parts> parts,
                                           std::uint64_t budget) {
  std::shared_ptr<Replicas> replicas(new Replicas(core, parts, budget));
  parts->observe(replicas);
  core->store().spare_first([weak = std::weak_ptr(replicas)] {
    const auto self = weak.lock();
    return self && self->evict_one();
  });
  return replicas;
}

Replicas::Replicas(std::shared_ptr<ServerCore> core, std::shared_ptr<Parts> parts, std::uint64_t budget)
    : core_(core),
      parts_(std::move(parts)),
      progress_(*core->progress()),
      budget_(budget),
      workers_(std::make_unique<fabric::Workers>(progress_, threads, "conversions")),
      turns_(std::make_shared<Turns>(progress_, [this] { return parts_->puts_under_way() > 0 ? 1 : threads; })),
      charge_(std::make_shared<Charge>()),
      quiet_(progress_) {}

std::uint64_t Replicas::tag_of(const Request& request) {
  return request.record->tag_base + request.row.version + request.row.part;
}

Replicas::Kind Replicas::kind_of(const BlockRow& row, const Layout& layout) { return {row.array, numbers_of(layout)}; }

std::shared_ptr<Replicas::Shelf> Replicas::shelf_of(const Request& request) {
  auto& shelf = shelves_[{block_row(request.row), numbers_of(request.layout)}];
  if (!shelf) shelf = std::make_shared<Shelf>(progress_, tag_of(request));
  return shelf;
}

void Replicas::let_go(const std::shared_ptr<Shelf>& shelf) {
  shelf->gone = true;
  for (const auto& one : std::exchange(shelf->kept, {})) {
    kept_bytes_ -= one->replica.blob->charged();
    kept_.erase(one);
  }
  shelf->changed.notify_all();
}

void Replicas::rows_gone(std::string_view row) {
  const std::string name(row);
  last_put_.erase(name);
  for (auto it = shelves_.lower_bound({name, {}}); it != shelves_.end() && it->first.first == name;) {
    let_go(it->second);
    it = shelves_.erase(it);
  }
}

// Of a row that this server owns in each view nothing was changed without it.
void Replicas::view_changed() {
  const auto core = core_.lock();
  if (!core) return;
  const auto placement = core->placement();
  const auto number = placement->view().number;
  const bool missed = number != std::exchange(view_, number) + 1;
  for (auto it = shelves_.begin(); it != shelves_.end();) {
    const auto& row = it->first.first;
    if (!missed && core->is_primary(*placement, arrays_namespace(), row, it->second->tag)) {
      ++it;
      continue;
    }
    let_go(it->second);
    it = shelves_.erase(it);
  }
  last_put_.clear();
}

// ----------------------------------------------------------------------------------------------------------------- memory

std::uint64_t Replicas::used() const { return charge_->bytes.load(std::memory_order_relaxed); }

// The least recently used that nobody holds.
bool Replicas::evict_one() {
  const auto oldest =
      std::find_if(kept_.begin(), kept_.end(), [](const Kept& one) { return one.replica.blob.use_count() == 1; });
  if (oldest == kept_.end()) return false;
  // The tables lose it first: its memory goes at the end of this function, and who waits for memory then reads them.
  const auto gone = std::move(oldest->replica);
  std::erase(oldest->shelf->kept, oldest);
  kept_.erase(oldest);
  kept_bytes_ -= gone.blob->charged();
  ++counted_.evictions;
  return true;
}

// Null: there is no room without evicting objects.
Replicas::Task<std::shared_ptr<Blob>> Replicas::reserve(std::uint64_t bytes) {
  const auto charge = pool::ObjectStore::charge_of(bytes);
  const auto core = core_.lock();
  if (!core || charge > budget_) co_return nullptr;
  while (used() + charge > budget_)
    if (!evict_one()) co_return nullptr;
  auto held = std::make_shared<Held>(charge_, charge);
  counted_.replica_peak = std::max(counted_.replica_peak, used());
  held->blob = core->store().try_reserve(bytes);
  if (!held->blob && core->store().memory_free() >= charge) {
    try {
      held->blob = co_await core->store().reserve(bytes, base::Deadline(longest_mapping));
    } catch (const Error& error) {
      if (error.code() != Errc::pool_full) throw;
    }
  }
  if (!held->blob) co_return nullptr;
  auto* raw = held->blob.get();
  co_return std::shared_ptr<Blob>(std::move(held), raw);
}

// ----------------------------------------------------------------------------------------------------------------- choice

// A reader may be one version behind the others.
void Replicas::note_request(const Request& request) {
  if (parts_noted_ >= most_parts_noted) histories_.clear(), parts_noted_ = 0;
  auto& history = histories_[kind_of(request.row, request.layout)];
  const auto [found, first] = history.parts.try_emplace(request.row.part);
  parts_noted_ += first ? 1 : 0;
  auto& part = found->second;
  const auto version = request.row.version;
  if (first || (part.version != version && part.version != version + 1)) {
    if (!first) {
      follow(part.usual_requests, static_cast<double>(part.requests));
      follow(part.usual_bytes, static_cast<double>(part.bytes) / static_cast<double>(part.requests));
      follow(part.usual_wanted, static_cast<double>(part.wanted));
    }
    part.version = version;
    part.requests = part.bytes = part.wanted = 0;
    part.seen.clear();
    if (const auto put = last_put_.find(block_row(request.row)); put != last_put_.end())
      follow(history.idle_s, std::chrono::duration<double>(Clock::now() - put->second).count());
  }
  ++part.requests;
  part.bytes += bytes_of(request.box, request.layout.dtype);
  if (part.seen.size() >= most_seen) return;
  for (const auto& box : missing(request.box, part.seen).boxes) {
    part.wanted += bytes_of(box, request.layout.dtype);
    part.seen.push_back(box);
  }
}

// bytes: that would be converted.
ConversionChoice Replicas::choose(const Request& request, std::uint64_t bytes, bool on_put) const {
  ConversionCosts costs;
  costs.on_put = on_put;
  costs.bytes = costs.wanted_bytes = costs.whole_bytes = static_cast<double>(bytes);
  costs.reader_bytes_per_s = request.convert_rate;
  costs.link_bytes_per_s = request.copy_rate;
  costs.fused_at_reader = request.in_place;
  costs.memory_left = budget_ - std::min(budget_, used() - std::min(used(), kept_bytes_));
  if (const auto found = histories_.find(kind_of(request.row, request.layout)); found != histories_.end()) {
    const auto& history = found->second;
    costs.server_bytes_per_s = history.server_rate;
    costs.idle_s = history.idle_s;
    costs.requests = 0;
    if (const auto it = history.parts.find(request.row.part); it != history.parts.end()) {
      const auto& part = it->second;
      const bool ended = part.usual_requests > 0;  // all of the requests for some version
      costs.requests = ended ? part.usual_requests : static_cast<double>(part.requests);
      if (on_put) {
        costs.bytes = ended ? part.usual_bytes : static_cast<double>(part.bytes) / static_cast<double>(part.requests);
        costs.wanted_bytes = ended ? part.usual_wanted : static_cast<double>(part.wanted);
      } else if (part.version == request.row.version) {
        costs.requests -= static_cast<double>(part.requests) - 1;
      }
    }
    if (history.server_rate > 0) costs.queue_s = static_cast<double>(queued_bytes_) / history.server_rate / threads;
  }
  return choose_conversion(costs);
}

std::string Replicas::explain(const Request& request) const {
  if (const auto shelf = shelves_.find({block_row(request.row), numbers_of(request.layout)}); shelf != shelves_.end()) {
    if (missing(request.box, shelf->second->boxes(request.box), 1).boxes.empty())
      return "converted already, or being converted";
  }
  if (request.record->options.convert != ConvertAt::automatic)
    return std::string(name_of(request.record->options.convert)) + ": the array was defined so";
  return choose(request, bytes_of(request.box, request.layout.dtype), false).why;
}

// ------------------------------------------------------------------------------------------------------------- conversion

Replicas::Task<Replicas::Replica> Replicas::make(std::shared_ptr<Shelf> shelf, Request request, Box box,
                                                 base::Deadline deadline) {
  const auto self = shared_from_this();
  const auto bytes = bytes_of(box, request.layout.dtype);
  struct Queued {
    std::uint64_t& total;
    const std::uint64_t bytes;
    Queued(std::uint64_t& of, std::uint64_t more) : total(of), bytes(more) { total += bytes; }
    ~Queued() { total -= bytes; }
  };
  auto queued = std::make_unique<Queued>(queued_bytes_, bytes);
  const auto turn = co_await Turns::take(turns_, deadline);
  if (shelf->gone) throw Error(Errc::not_found, "the blocks were dropped");
  const auto core = core_.lock();
  if (!core) throw Error(Errc::stale_view, "this server is stopping");
  struct Source {
    Box box;
    std::shared_ptr<const Blob> blob;
  };
  auto sources = std::make_shared<std::vector<Source>>();
  const auto view = core->placement()->view().number;
  const auto found = co_await parts_->find(request.row, box, view, false, deadline);
  if (!found.covered) throw Error(Errc::not_found, "some elements are not there");
  const auto row = block_row(request.row);
  const auto tag = tag_of(request);
  for (const auto& block : found.blocks) {
    auto column = block_column(block);
    const auto loaded = co_await core->load(arrays_namespace(), row, std::move(column), tag, std::nullopt, deadline);
    if (!loaded || loaded->object.bytes != bytes_of(block, request.record->dtype))
      throw Error(Errc::not_found, "a block is not there");
    sources->push_back({block, loaded->object.blob});
  }
  const auto blob = co_await reserve(bytes);
  if (!blob) throw Error(Errc::pool_full, "there is no room for a replica");
  auto job = [blob, sources, box, layout = request.layout, dtype = request.record->dtype] {
    const auto begun = Clock::now();
    const auto into = model::place(model::scalar_layout(layout.dtype, layout.order), box);
    for (const auto& source : *sources) {
      const auto order = model::dimensions_in(Order::row, box.count.size());
      const auto from = model::place(model::scalar_layout(dtype, order), source.box);
      model::ArrayConversion(into, from, *model::intersect(source.box, box))
          .run(blob->writable().data(), source.blob->bytes().data(), {}, into.bytes);
    }
    return std::chrono::duration<double>(Clock::now() - begun).count();
  };
  const double seconds = co_await workers_->run(job);
  queued.reset();
  ++counted_.conversions;
  counted_.converted_bytes += bytes;
  counted_.conversion_s += seconds;
  if (const auto history = histories_.find(kind_of(request.row, request.layout)); history != histories_.end())
    follow(history->second.server_rate, static_cast<double>(bytes) / std::max(seconds, 1e-9));
  if (shelf->gone) throw Error(Errc::not_found, "the blocks were dropped");
  Replica replica{box, blob};
  shelf->kept.push_back(kept_.insert(kept_.end(), {replica, shelf.get()}));
  kept_bytes_ += blob->charged();
  co_return replica;
}

Replicas::Task<Replicas::Covered> Replicas::cover(std::shared_ptr<Shelf> shelf, Request request,
                                                  base::Deadline deadline) {
  const auto dtype = request.layout.dtype;
  for (Covered covered;; covered.replicas.clear()) {
    if (shelf->gone) throw Error(Errc::not_found, "the blocks were dropped");
    if (deadline.passed()) throw Error(Errc::timeout, "the conversion did not end in time");
    std::uint64_t bytes = 0;
    for (const auto& one : shelf->kept) {
      if (!model::intersect(one->replica.box, request.box)) continue;
      kept_.splice(kept_.end(), kept_, one);
      covered.replicas.push_back(one->replica);
      bytes += one->replica.blob->size();
    }
    const auto mine = missing(request.box, shelf->boxes(request.box));
    if (!mine.complete) throw Error(Errc::overloaded, "too many boxes of replicas");
    if (mine.boxes.empty()) {
      const bool others = std::any_of(shelf->under_way.begin(), shelf->under_way.end(),
                                      [&](const Box& box) { return model::intersect(box, request.box).has_value(); });
      if (!others) co_return covered;
      co_await shelf->changed.wait(deadline);
      continue;
    }
    for (const auto& box : mine.boxes) bytes += bytes_of(box, dtype);
    if (bytes > budget_) throw Error(Errc::pool_full, "the replicas of " + std::to_string(bytes) + " bytes");
    std::vector<std::unique_ptr<UnderWay>> under_way;
    for (const auto& box : mine.boxes) under_way.push_back(std::make_unique<UnderWay>(shelf, box));
    for (auto& one : under_way) {
      auto task = make(shelf, request, one->box, deadline);
      covered.replicas.push_back(co_await std::move(task));
      covered.made += bytes_of(one->box, dtype);
      one.reset();
    }
  }
}

// A shelf that holds nothing goes.
struct Replicas::Leave {
  Replicas& of;
  const ShelfKey key;
  Leave(Replicas& replicas, const Request& request)
      : of(replicas), key(block_row(request.row), numbers_of(request.layout)) {}
  Leave(const Leave&) = delete;
  ~Leave() {
    const auto found = of.shelves_.find(key);
    if (found != of.shelves_.end() && found->second->kept.empty() && found->second->under_way.empty())
      of.shelves_.erase(found);
  }
};

Replicas::Task<Replicas::Given> Replicas::give(Request request, base::Deadline deadline) {
  const auto self = shared_from_this();
  note_request(request);
  ++counted_.requests;
  const Leave leave(*this, request);
  const auto shelf = shelf_of(request);
  Given given;
  try {
    model::conversion_between(request.layout.dtype, request.record->dtype);
    std::uint64_t bytes = 0;
    for (const auto& box : missing(request.box, shelf->boxes(request.box)).boxes)
      bytes += bytes_of(box, request.layout.dtype);
    if (bytes > 0 && request.record->options.convert == ConvertAt::automatic) {
      auto choice = choose(request, bytes, false);
      given.why = std::move(choice.why);
      if (choice.place == ConvertAt::at_reader) {
        ++counted_.left_to_readers;
        co_return given;
      }
    } else if (bytes > 0) {
      given.why = std::string(name_of(request.record->options.convert)) + ": the array was defined so";
    }
    auto task = cover(shelf, request, deadline);
    auto covered = co_await std::move(task);
    bytes = 0;
    for (const auto& one : covered.replicas)
      bytes += bytes_of(*model::intersect(one.box, request.box), request.layout.dtype);
    counted_.given_bytes += bytes;
    counted_.shared_bytes += bytes - std::min(bytes, covered.made);
    given.replicas = std::move(covered.replicas);
  } catch (const Error& error) {
    ++counted_.left_to_readers;
    given.why = std::string("at_reader: ") + error.what();
  }
  co_return given;
}

// ------------------------------------------------------------------------------------------------------------- in advance

void Replicas::part_put(const BlockRow& row, std::shared_ptr<const DefinedArray> array, bool whole) {
  last_block_ = Clock::now();
  const auto& options = array->options;
  std::vector<Layout> layouts;
  if (options.convert == ConvertAt::in_advance && whole) {
    for (const auto& form : options.layouts) layouts.push_back(layout_of(form, *array));
  } else if (options.convert == ConvertAt::automatic) {
    const auto first = histories_.lower_bound({row.array, {}});
    if (first == histories_.end() || first->first.first != row.array) return;
    if (last_put_.size() < most_rows) last_put_[block_row(row)] = last_block_;
    for (auto it = first; whole && it != histories_.end() && it->first.first == row.array; ++it) {
      const auto& numbers = it->first.second;
      layouts.push_back({static_cast<DType>(numbers[0]), Dims(std::span(numbers).subspan(1))});
    }
  }
  for (auto& layout : layouts) {
    Request request{row, array, array->partition.box_of(row.part), std::move(layout)};
    const auto bytes = bytes_of(request.box, request.layout.dtype);
    if (options.convert == ConvertAt::automatic && choose(request, bytes, true).place != ConvertAt::in_advance)
      continue;
    if (in_advance_.size() < most_in_advance) in_advance_.push_back({std::move(request), last_block_});
  }
  while (in_advance_tasks_ < std::min<std::size_t>(threads, in_advance_.size())) {
    ++in_advance_tasks_;
    fabric::spawn(progress_, convert_in_advance());
  }
}

// What cannot be done is left to those who ask.
Replicas::Task<void> Replicas::convert_in_advance() {
  const auto self = shared_from_this();
  struct Ends {
    std::size_t& tasks;
    ~Ends() { --tasks; }
  } ends{in_advance_tasks_};
  while (!in_advance_.empty() && !core_.expired()) {
    const auto now = Clock::now();
    const bool quiet = parts_->puts_under_way() == 0 && now - last_block_ >= quiet_time;
    if (!quiet && now - in_advance_.front().since < longest_quiet_wait) {
      co_await quiet_.wait(base::Deadline(quiet_time));
      continue;
    }
    const auto request = std::move(in_advance_.front().request);
    in_advance_.pop_front();
    const Leave leave(*this, request);
    const auto shelf = shelf_of(request);
    try {
      auto task = cover(shelf, request, base::Deadline(longest_in_advance));
      co_await std::move(task);
    } catch (const Error& error) {
      base::log(base::Level::debug, "array elements were not converted in advance", {{"error", error.what()}});
    }
  }
}

fb::StatusReplyT Replicas::status() const {
  auto status = counted_;
  status.replica_bytes = used();
  status.replica_limit = budget_;
  return status;
}

}  // namespace penstock::space
