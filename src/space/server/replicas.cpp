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
using Clock = std::chrono::steady_clock;

namespace {

constexpr unsigned threads = 2;
constexpr std::size_t most_histories = 4096, most_rows = 65'536;
constexpr std::chrono::seconds longest_in_advance(60);
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
  struct Kept {
    Replica replica;
    std::uint64_t last_used = 0;
  };
  const std::uint64_t tag;
  std::vector<Kept> kept;      // disjoint
  std::vector<Box> under_way;  // disjoint from each other and from those
  std::size_t waiting = 0;     // for what is under way
  bool gone = false;           // the blocks are others now: nothing is kept
  fabric::Signal changed;

  std::vector<Box> boxes(const Box& meeting, bool also_under_way) const {
    std::vector<Box> found;
    for (const auto& one : kept)
      if (model::intersect(one.replica.box, meeting)) found.push_back(one.replica.box);
    if (also_under_way)
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
      charge_(std::make_shared<Charge>()),
      turn_(std::make_shared<fabric::Signal>(progress_)) {}

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
  shelf->kept.clear();
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

// The least recently used that no reader holds, and with it a shelf that nobody uses any more.
bool Replicas::evict_one() {
  auto oldest = shelves_.end();
  std::size_t which = 0;
  std::uint64_t used = std::numeric_limits<std::uint64_t>::max();
  for (auto it = shelves_.begin(); it != shelves_.end(); ++it) {
    const auto& kept = it->second->kept;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i].last_used >= used || kept[i].replica.blob.use_count() > 1) continue;
      used = kept[i].last_used;
      oldest = it;
      which = i;
    }
  }
  if (oldest == shelves_.end()) return false;
  auto& kept = oldest->second->kept;
  // Out of the table first: what is told that memory came free looks at it.
  const auto gone = std::move(kept[which]);
  kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(which));
  if (kept.empty() && oldest->second.use_count() == 1) shelves_.erase(oldest);
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

void Replicas::note_request(const Request& request) {
  if (histories_.size() >= most_histories) histories_.clear();
  auto& history = histories_[kind_of(request.row, request.layout)];
  auto& version = history.parts[request.row.part];
  if (version.requests == 0 || version.number != request.row.version) {
    if (version.requests > 0) follow(history.requests, static_cast<double>(version.requests));
    version = {request.row.version, 0};
    if (const auto put = last_put_.find(block_row(request.row)); put != last_put_.end())
      follow(history.idle_s, std::chrono::duration<double>(Clock::now() - put->second).count());
  }
  ++version.requests;
}

ConversionChoice Replicas::choose(const Request& request, std::uint64_t bytes, bool on_put) const {
  ConversionCosts costs;
  costs.on_put = on_put;
  costs.bytes = costs.whole_bytes = static_cast<double>(bytes);
  costs.reader_bytes_per_s = request.convert_rate;
  costs.link_bytes_per_s = request.copy_rate;
  costs.fused_at_reader = request.in_place;
  costs.memory_left = budget_ - std::min(budget_, used());
  for (const auto& [key, shelf] : shelves_)  // what can go at once
    for (const auto& one : shelf->kept)
      if (one.replica.blob.use_count() == 1) costs.memory_left += one.replica.blob->charged();
  if (const auto found = histories_.find(kind_of(request.row, request.layout)); found != histories_.end()) {
    const auto& history = found->second;
    costs.server_bytes_per_s = history.server_rate;
    costs.idle_s = history.idle_s;
    costs.requests = history.requests;
    const auto version = history.parts.find(request.row.part);
    if (!on_put && version != history.parts.end() && version->second.number == request.row.version)
      costs.requests -= static_cast<double>(version->second.requests) - 1;
    if (history.server_rate > 0) costs.queue_s = static_cast<double>(queued_bytes_) / history.server_rate / threads;
  }
  return choose_conversion(costs);
}

std::string Replicas::explain(const Request& request) const {
  if (const auto shelf = shelves_.find({block_row(request.row), numbers_of(request.layout)}); shelf != shelves_.end()) {
    const auto boxes = shelf->second->boxes(request.box, true);
    if (missing(request.box, boxes, 1).boxes.empty()) return "converted already, or being converted";
  }
  if (request.record->options.convert != ConvertAt::automatic)
    return std::string(name_of(request.record->options.convert)) + ": the array was defined so";
  return choose(request, bytes_of(request.box, request.layout.dtype), false).why;
}

// ------------------------------------------------------------------------------------------------------------- conversion

Replicas::Task<void> Replicas::wait_turn(std::shared_ptr<Shelf> shelf, bool in_advance, base::Deadline deadline) {
  const auto turn = turn_;
  for (;;) {
    const bool puts = parts_->puts_under_way() > 0;
    const bool yields = in_advance && puts && shelf->waiting == 0 && !shelf->gone;
    if (running_ < (puts ? 1 : threads) && !yields) co_return;
    // A put's end says nothing: it is looked at again.
    const bool notified = co_await turn->wait(earlier(deadline, base::Deadline(std::chrono::milliseconds(2))));
    if (!notified && deadline.passed()) throw Error(Errc::timeout, "the conversion had no turn in time");
  }
}

Replicas::Task<void> Replicas::make(std::shared_ptr<Shelf> shelf, Request request, Box box, bool in_advance,
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
  co_await wait_turn(shelf, in_advance, deadline);
  struct Running {
    Replicas& of;
    explicit Running(Replicas& replicas) : of(replicas) { ++of.running_; }
    ~Running() {
      --of.running_;
      of.turn_->notify_all();
    }
  } running(*this);
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
  shelf->kept.push_back({{box, blob}, ++uses_});
}

Replicas::Task<Replicas::Given> Replicas::give(Request request, base::Deadline deadline) {
  const auto self = shared_from_this();
  note_request(request);
  ++counted_.requests;
  const auto shelf = shelf_of(request);
  struct Leave {  // a shelf that holds nothing
    Replicas& of;
    const std::pair<std::string, std::vector<std::uint64_t>> key;
    ~Leave() {
      const auto found = of.shelves_.find(key);
      if (found == of.shelves_.end()) return;
      const auto& shelf = *found->second;
      if (shelf.kept.empty() && shelf.under_way.empty() && shelf.waiting == 0) of.shelves_.erase(found);
    }
  } leave{*this, {block_row(request.row), numbers_of(request.layout)}};
  Given given;
  std::uint64_t made = 0;
  bool chosen = request.record->options.convert != ConvertAt::automatic;
  try {
    model::conversion_between(request.layout.dtype, request.record->dtype);
    for (;;) {
      if (shelf->gone) throw Error(Errc::not_found, "the blocks were dropped");
      if (missing(request.box, shelf->boxes(request.box, false), 1).boxes.empty()) break;
      const auto mine = missing(request.box, shelf->boxes(request.box, true));
      if (!mine.complete) throw Error(Errc::overloaded, "too many boxes of replicas");
      if (mine.boxes.empty()) {
        ++shelf->waiting;
        turn_->notify_all();
        bool notified = false;
        try {
          notified = co_await shelf->changed.wait(deadline);
        } catch (...) {
          --shelf->waiting;
          throw;
        }
        --shelf->waiting;
        if (!notified) throw Error(Errc::timeout, "the conversion did not end in time");
        continue;
      }
      std::uint64_t bytes = 0;
      for (const auto& box : mine.boxes) bytes += bytes_of(box, request.layout.dtype);
      if (!std::exchange(chosen, true)) {
        auto choice = choose(request, bytes, false);
        given.why = std::move(choice.why);
        if (choice.place == ConvertAt::at_reader) {
          ++counted_.left_to_readers;
          co_return given;
        }
      } else if (given.why.empty()) {
        given.why = std::string(name_of(request.record->options.convert)) + ": the array was defined so";
      }
      std::vector<std::unique_ptr<UnderWay>> under_way;
      for (const auto& box : mine.boxes) under_way.push_back(std::make_unique<UnderWay>(shelf, box));
      for (auto& one : under_way) {
        auto task = make(shelf, request, one->box, false, deadline);
        co_await std::move(task);
        made += bytes_of(one->box, request.layout.dtype);
        one.reset();
      }
    }
  } catch (const Error& error) {
    ++counted_.left_to_readers;
    given.why = std::string("at_reader: ") + error.what();
    co_return given;
  }
  std::uint64_t bytes = 0;
  for (auto& one : shelf->kept) {
    const auto both = model::intersect(one.replica.box, request.box);
    if (!both) continue;
    one.last_used = ++uses_;
    given.replicas.push_back(one.replica);
    bytes += bytes_of(*both, request.layout.dtype);
  }
  counted_.given_bytes += bytes;
  counted_.shared_bytes += bytes - std::min(bytes, made);
  co_return given;
}

// ------------------------------------------------------------------------------------------------------------- in advance

void Replicas::block_put(const std::string& row, const Box& box) {
  const auto core = core_.lock();
  const auto which = block_row_of(row);
  if (!core || !which) return;
  const auto record = parts_->known_record(which->array);
  if (!record || record->options.convert == ConvertAt::at_reader || record->options.convert == ConvertAt::on_request)
    return;
  const auto placement = core->placement();
  const auto tag = record->tag_base + which->version + which->part;
  if (!core->is_primary(*placement, arrays_namespace(), row, tag)) return;
  std::vector<Layout> layouts;
  if (record->options.convert == ConvertAt::in_advance) {
    for (const auto& form : record->options.layouts) layouts.push_back(layout_of(form, *record));
  } else {
    bool known = false;
    for (auto it = histories_.lower_bound({which->array, {}});
         it != histories_.end() && it->first.first == which->array; ++it) {
      known = true;
      const auto& numbers = it->first.second;
      const Layout layout{static_cast<DType>(numbers[0]), Dims(std::span(numbers).subspan(1))};
      Request request{*which, record, box, layout};
      if (choose(request, bytes_of(box, layout.dtype), true).place == ConvertAt::in_advance) layouts.push_back(layout);
    }
    if (known && last_put_.size() < most_rows) last_put_[row] = Clock::now();
  }
  for (const auto& layout : layouts) {
    const Request request{*which, record, box, layout};
    const auto shelf = shelf_of(request);
    if (shelf->boxes(box, true).empty()) fabric::spawn(progress_, make_in_advance(shelf, request, box));
  }
}

Replicas::Task<void> Replicas::make_in_advance(std::shared_ptr<Shelf> shelf, Request request, Box box) {
  const auto self = shared_from_this();
  const UnderWay under_way(shelf, box);
  try {
    auto task = make(shelf, std::move(request), box, true, base::Deadline(longest_in_advance));
    co_await std::move(task);
  } catch (const Error& error) {
    base::log(base::Level::debug, "array elements were not converted in advance", {{"error", error.what()}});
  }
}

fb::StatusReplyT Replicas::status() const {
  auto status = counted_;
  status.replica_bytes = used();
  status.replica_limit = budget_;
  return status;
}

}  // namespace penstock::space
