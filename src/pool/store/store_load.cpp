// Loading: from memory, or by one read of a tier for all who ask meanwhile.
#include <algorithm>

#include "pool/store/store_impl.hpp"

namespace penstock::pool {

using fabric::Promise;
using BlobPtr = std::shared_ptr<const Blob>;

namespace {

// The fastest tier that has it; its bytes must be those that the table tells of.
void read_verified(const Tiers& tiers, const std::string& key, std::uint64_t checksum, std::span<std::byte> out,
                   const std::string& name) {
  for (const auto& tier : tiers) {
    try {
      tier->get(key, out);
    } catch (const Error& error) {
      if (error.code() == Errc::not_found) continue;
      throw error.in(name + " in " + tier->path());
    }
    if (storage::checksum(out) != checksum)
      throw Error(Errc::protocol, name + " in " + tier->path() + ": the bytes are not those that were put (checksum)");
    return;
  }
  throw Error(Errc::not_found, name + " is in no tier (the first is " + tiers.front()->path() + ")");
}

// The same object, not one that was put again under its version.
bool same(const StoredObject& a, const StoredObject& b) {
  return a.bytes == b.bytes && a.checksum == b.checksum && a.put_us == b.put_us;
}

}  // namespace

fabric::Task<std::optional<ObjectStore::Loaded>> ObjectStore::load(Namespace ns, std::string row, std::string column,
                                                                   std::optional<std::uint64_t> version,
                                                                   Deadline deadline) {
  const auto self = impl_;
  for (;;) {
    if (self->stopped) throw Error(Errc::cancelled, "the object store was closed");
    auto* object = self->table.find(ns, row, column, version);
    if (object == nullptr) co_return std::nullopt;
    object->last_used = ++self->uses;
    if (object->blob) {
      Loaded loaded{*object};
      co_return loaded;
    }
    if (!self->disk) throw Error(Errc::internal, "an object without bytes: " + describe_key(row, column));
    Loaded loaded{*object};
    const UnpackedKey key{ns, row, column};
    const auto recall = self->recall(key, *object);
    auto waiter = std::make_shared<Promise<BlobPtr>>(self->progress);
    recall->waiters.push_back(waiter);
    struct Waits {
      std::shared_ptr<Impl> self;
      std::shared_ptr<Impl::Recall> recall;
      std::shared_ptr<Promise<BlobPtr>> waiter;
      ~Waits() { self->leave_recall(recall, waiter); }
    };
    Waits waits{self, recall, waiter};
    fabric::Timer timer;
    if (!deadline.is_never())
      timer = self->progress.after(deadline.remaining(), [self, recall, waiter] {
        const auto name = describe_key(recall->key.row, recall->key.column);
        if (recall->memory) waiter->set_error(Error(Errc::pool_full, self->why_full(recall->memory->charge)).in(name));
        else waiter->set_error(Error(Errc::timeout, name + " was not read from disk in time"));
      });
    loaded.object.blob = co_await waiter->future();
    loaded.object.on_disk = true;
    if (loaded.object.blob) co_return loaded;
  }
}

std::shared_ptr<ObjectStore::Impl::Recall> ObjectStore::Impl::recall(const UnpackedKey& key,
                                                                     const StoredObject& object) {
  auto on_disk = tier_key(pack_key(key.ns, key.row, key.column), object.version);
  auto& slot = recalls[on_disk];
  if (slot) return slot;
  slot = std::make_shared<Recall>();
  const auto begun = slot;
  begun->key = key;
  begun->tier_key = std::move(on_disk);
  begun->object = object;
  ++recall_count;
  std::vector<std::uint64_t> sizes(1, object.bytes);
  auto blobs = credit->try_take(sizes, credit->charge_of(sizes));
  if (!blobs.empty()) {
    read(begun, std::move(blobs.front()));
    return begun;
  }
  try {
    begun->memory =
        credit->ask(std::move(sizes), [weak = weak_from_this(), begun](Credit::Blobs blobs, std::exception_ptr error) {
          begun->memory = nullptr;
          const auto self = weak.lock();
          if (!self) return;
          if (error) self->recalled(begun, nullptr, error);
          else self->read(begun, std::move(blobs.front()));
        });
  } catch (...) {
    recalls.erase(begun->tier_key);
    throw;
  }
  return begun;
}

void ObjectStore::Impl::read(const std::shared_ptr<Recall>& recall, std::shared_ptr<Blob> blob) {
  auto job = std::make_shared<DiskJob>();
  job->keys.push_back(pack_key(recall->key.ns, recall->key.row, recall->key.column));
  job->read = [recall, blob](const Tiers& tiers) {
    read_verified(tiers, recall->tier_key, recall->object.checksum, blob->writable(),
                  describe_key(recall->key.row, recall->key.column));
  };
  job->done = [weak = weak_from_this(), recall, blob](DiskJob&, std::exception_ptr error) {
    const auto self = weak.lock();
    if (self) self->recalled(recall, blob, error);
  };
  disk->submit(std::move(job));
}

void ObjectStore::Impl::recalled(const std::shared_ptr<Recall>& recall, std::shared_ptr<Blob> blob,
                                 std::exception_ptr error) {
  recalls.erase(recall->tier_key);
  const auto& key = recall->key;
  auto* object = table.find(key.ns, key.row, key.column, recall->object.version);
  const bool there = object != nullptr && same(*object, recall->object);
  if (error && !there) {
    // Dropped meanwhile: no failure of the disk.
    error = nullptr;
    blob = nullptr;
  }
  if (!error && there && !object->blob) {
    object->blob = blob;
    add_evictable(pack_key(key.ns, key.row, key.column), *object);
  }
  for (const auto& waiter : std::exchange(recall->waiters, {})) {
    if (error) waiter->set_error(error);
    else waiter->set(BlobPtr(blob));
  }
}

// The last one who leaves ends a recall that has not begun to read.
void ObjectStore::Impl::leave_recall(const std::shared_ptr<Recall>& recall,
                                     const std::shared_ptr<Promise<BlobPtr>>& waiter) {
  std::erase(recall->waiters, waiter);
  if (!recall->waiters.empty() || !recall->memory) return;
  const auto request = std::exchange(recall->memory, nullptr);
  recalls.erase(recall->tier_key);
  credit->withdraw(request);
}

}  // namespace penstock::pool
