#include "pool/store/object_store.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "pool/store/store_impl.hpp"

namespace penstock::pool {

using fabric::Promise;

constexpr std::size_t most_owed = 10'000;  // erases that a failing disk owes
constexpr std::size_t short_metadata =
    256;  // such as arrays have in each version: they go on when long ones fill the half

std::string describe_key(std::string_view row, std::string_view column) {
  constexpr std::size_t most = 80;
  constexpr char digits[] = "0123456789abcdef";
  std::string out;
  const auto append = [&](std::string_view text) {
    for (const char c : text.substr(0, most)) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x20 && byte < 0x7f) out.push_back(c);
      else out.append("\\x").append(1, digits[byte >> 4]).append(1, digits[byte & 15]);
    }
    if (text.size() > most) out.append("...");
  };
  append(row);
  out.push_back('/');
  append(column);
  return out;
}

fabric::Task<void> finished_by(fabric::Progress& progress, std::shared_ptr<Promise<void>> done, base::Deadline deadline,
                               std::string what) {
  fabric::Timer timer;
  if (!deadline.is_never())
    timer = progress.after(deadline.remaining(),
                           [done, what] { done->set_error(Error(Errc::timeout, what + " in time")); });
  co_await done->future();
}

ObjectStore::ObjectStore(std::shared_ptr<fabric::Progress> progress, StoreOptions options)
    : ObjectStore(std::move(progress), options, [&] {
        std::vector<std::unique_ptr<storage::Tier>> tiers;
        for (const auto& tier : options.tiers) tiers.push_back(storage::open_tier(tier));
        return tiers;
      }()) {}

ObjectStore::ObjectStore(std::shared_ptr<fabric::Progress> progress, StoreOptions options,
                         std::vector<std::unique_ptr<storage::Tier>> tiers)
    : progress_(std::move(progress)), impl_(std::make_shared<Impl>(*progress_, std::move(options))) {
  impl_->start(std::move(tiers));
}

ObjectStore::~ObjectStore() {
  progress_->call([this] { impl_->stop(); });
}

ObjectTable& ObjectStore::table() { return impl_->table; }

std::uint64_t ObjectStore::first_version() const { return impl_->floor_recovered + 1; }

// ------------------------------------------------------------------------------------------------------------- reserve

std::shared_ptr<Blob> ObjectStore::try_reserve(std::uint64_t bytes) {
  auto blobs = impl_->credit->try_take({&bytes, 1}, impl_->credit->charge_of({&bytes, 1}));
  return blobs.empty() ? nullptr : std::move(blobs.front());
}

ObjectStore::Blobs ObjectStore::try_reserve_all(std::span<const std::uint64_t> sizes) {
  return impl_->credit->try_take(sizes, impl_->credit->charge_of(sizes));
}

std::uint64_t ObjectStore::memory_limit() const { return impl_->memory->limit(); }

std::uint64_t ObjectStore::memory_free() const {
  return memory_limit() - std::min(memory_limit(), impl_->memory->used());
}

std::shared_ptr<const std::string> ObjectStore::keep_metadata(std::string_view text, bool anyway) {
  const auto most = memory_limit() / 2 + (text.size() <= short_metadata ? memory_limit() / 8 : 0);
  if (auto kept = impl_->metadata->keep(text, anyway ? ~std::uint64_t{0} : most)) return kept;
  throw Error(Errc::pool_full, "no room for metadata of " + std::to_string(text.size()) + " bytes: all take " +
                                   std::to_string(impl_->metadata->bytes()) + " bytes of this server, and may take " +
                                   std::to_string(most) + " (memory: " + base::format_size(memory_limit()) + ")");
}

void ObjectStore::spare_first(std::function<bool()> give_up) { impl_->give_up_first = std::move(give_up); }

fabric::Task<std::shared_ptr<Blob>> ObjectStore::reserve(std::uint64_t bytes, Deadline deadline, bool own) {
  if (auto blob = try_reserve(bytes)) co_return blob;
  std::vector<std::uint64_t> sizes(1, bytes);
  auto blobs = co_await reserve_all(std::move(sizes), deadline, own);
  co_return std::move(blobs.front());
}

fabric::Task<ObjectStore::Blobs> ObjectStore::reserve_all(std::vector<std::uint64_t> sizes, Deadline deadline,
                                                          bool own) {
  const auto self = impl_;
  const auto charge = self->credit->charge_of(sizes);
  const bool books = own && Credit::all_small(sizes);
  auto taken = self->credit->try_take(sizes, charge, books);
  if (!taken.empty() || sizes.empty()) co_return taken;

  auto promise = std::make_shared<Promise<Blobs>>(self->progress);
  struct Asked {  // leaves the queue when the caller goes away
    std::shared_ptr<Impl> self;
    std::shared_ptr<Credit::Request> request;
    ~Asked() { self->credit->withdraw(request); }
  };
  auto granted = [promise](Blobs blobs, std::exception_ptr error) {
    if (error) promise->set_error(error);
    else promise->set(std::move(blobs));
  };
  Asked asked{self, self->credit->ask(std::move(sizes), std::move(granted), books)};
  fabric::Timer timer;
  if (!deadline.is_never())
    timer = self->progress.after(deadline.remaining(), [self, promise, charge] {
      promise->set_error(Error(Errc::pool_full, self->why_full(charge)));
    });
  co_return co_await promise->future();
}

// ------------------------------------------------------------------------------------------------------------- put, drop

fabric::Task<void> ObjectStore::put(std::vector<Write> writes, bool durable, bool after_disk, Deadline deadline) {
  const auto self = impl_;
  for (const auto& write : writes) {
    if (write.row.size() > max_key_bytes || write.column.size() > max_key_bytes)
      throw Error(Errc::invalid_argument,
                  "a key's row or column is longer than " + std::to_string(max_key_bytes) + " bytes");
    if (!write.object.blob || write.object.blob->size() != write.object.bytes)
      throw Error(Errc::invalid_argument, "an object without its bytes: " + describe_key(write.row, write.column));
  }
  durable = durable || after_disk;
  if (!self->disk) {
    if (durable) throw Error(Errc::unsupported, "this pool server keeps nothing on disk (it has no tier)");
    for (auto& write : writes) put_now(write.ns, write.row, write.column, std::move(write.object), write.keep_older);
    co_return;
  }
  // What failed puts may have left in a tier is owed to it: that list must not grow for as long as the disk fails.
  if (durable && !self->disk_error.empty() && self->failed_erases.size() + self->erasing >= most_owed)
    throw Error(Errc::system, "the disk takes no object before the failed ones are undone: " + self->disk_error);
  // What is there already, in memory only, is made durable too.
  const bool again = durable && std::any_of(writes.begin(), writes.end(), [&](const Write& write) {
                       const auto* same = self->table.find(write.ns, write.row, write.column, write.object.version);
                       return same != nullptr && !same->on_disk;
                     });
  std::vector<Impl::Done> pending;
  for (std::span<Write> rest(writes); !rest.empty();) {
    std::size_t taken = 0;
    if (auto done = self->start_put(rest, durable, after_disk, taken)) pending.push_back(std::move(done));
    rest = rest.subspan(taken);
  }
  writes.clear();
  self->write_behind();
  for (auto& done : pending) co_await finished_by(self->progress, done, deadline, "the disk did not take an object");
  if (again) co_await flush(deadline);
}

ObjectStore::OnItsWay ObjectStore::on_its_way(const std::string& packed_key) {
  OnItsWay newest;
  if (!impl_->disk) return newest;
  const auto at = impl_->keys.find(packed_key);
  if (at == impl_->keys.end()) return newest;
  for (const auto& p : at->second.pending)
    if (p.hidden && !p.gone && p.version >= newest.version) newest = {p.version, p.bytes, p.checksum};
  return newest;
}

bool ObjectStore::is_taken_on_its_way(const std::string& packed_key, const StoredObject& object) {
  if (!impl_->disk) return false;
  const auto at = impl_->keys.find(packed_key);
  return at != impl_->keys.end() && std::ranges::any_of(at->second.pending, [&](const auto& p) {
           return p.hidden && !p.gone && p.version == object.version &&
                  (p.bytes != object.bytes || p.checksum != object.checksum);
         });
}

void ObjectStore::give_up_on_its_way() {
  if (impl_->disk) impl_->give_up_hidden();
}

bool ObjectStore::memory_only() const { return impl_->disk == nullptr; }

bool ObjectStore::put_now(const Namespace& ns, std::string_view row, std::string_view column, StoredObject object,
                          bool keep_older) {
  object.on_disk = false;
  object.last_used = ++impl_->uses;
  return impl_->table.insert(ns, row, column, std::move(object), keep_older);
}

fabric::Task<bool> ObjectStore::drop(Namespace ns, std::string row, std::string column,
                                     std::optional<std::uint64_t> version, bool durable, Deadline deadline) {
  const auto self = impl_;
  if (!self->disk) co_return self->table.erase(ns, row, column, version);
  Impl::Done done;
  const bool had = self->start_drop(ns, row, column, version, durable, done);
  if (done) co_await finished_by(self->progress, done, deadline, "the disk did not drop " + describe_key(row, column));
  co_return had;
}

fabric::Task<void> ObjectStore::flush(Deadline deadline) {
  const auto self = impl_;
  if (!self->disk) co_return;
  struct Flushing {
    std::shared_ptr<Impl> self;
    ~Flushing() { --self->flushing; }
  };
  ++self->flushing;
  Flushing flushing{self};
  const auto begun = self->submitted;
  auto failures = self->failures;
  self->retry_failed();
  while (self->unwritten_objects > 0 || self->writing_jobs > 0 || !self->failed_erases.empty()) {
    if (self->stopped) throw Error(Errc::cancelled, "the object store was closed");
    if (self->last_failed > begun)
      throw Error(Errc::system, "not everything could be written to disk: " + self->disk_error);
    // Of before: once more, and that counts.
    if (std::exchange(failures, self->failures) != self->failures) self->retry_failed();
    if (!co_await self->settled.wait(deadline))
      throw Error(Errc::timeout, std::to_string(self->unwritten_bytes) + " bytes were not written to disk in time");
  }
  auto done = std::make_shared<Promise<void>>(self->progress);
  self->disk->run_aside(
      [](const Tiers& tiers) {
        for (const auto& tier : tiers) tier->sync();
      },
      [done](std::exception_ptr error) {
        if (error) done->set_error(error);
        else done->set();
      });
  co_await finished_by(self->progress, done, deadline, "the disk did not sync");
}

// ------------------------------------------------------------------------------------------------------------ statistics

StoreStatistics ObjectStore::statistics() const {
  const auto& s = *impl_;
  const auto usage = s.memory->usage();
  StoreStatistics out;
  out.objects = s.table.size();
  out.bytes = s.table.bytes();
  out.memory_used = usage.used;
  out.memory_peak = s.memory->peak();
  out.memory_limit = s.memory->limit();
  out.segment_bytes = usage.segment_bytes;
  out.fragmentation = usage.fragmentation();
  // A key's state: the map's node, the key twice (here and in the queue), one pending version.
  constexpr std::uint64_t state_bytes = 160 + sizeof(Impl::Pending) + sizeof(Impl::Place);
  out.index_bytes = s.table.index_bytes() + s.evictable.bytes() + s.demotable.bytes() +
                    s.leased.size() * sizeof(EvictionHeap::Entry) + s.keys.size() * state_bytes;
  out.metadata_bytes = s.metadata->bytes();
  out.unwritten_bytes = s.unwritten_bytes;
  out.evictions = s.evictions;
  out.recalls = s.recall_count;
  out.demotions = s.demotions;
  out.waiting = s.credit->waiting();
  out.disk_error = s.disk_error;
  if (s.disk) {
    out.write_groups = s.disk->groups();
    for (const auto& tier : s.disk->tiers()) out.tiers.push_back(tier->statistics());
  }
  return out;
}

}  // namespace penstock::pool
