// Batches of new objects, the short way: the queue to the disk holds their keys; only a key that somebody else comes to while
// it is on its way gets a state of its own (adopt).
#include <algorithm>

#include "pool/store_impl.hpp"

namespace penstock::pool {

using fabric::Promise;

ObjectStore::Impl::Done ObjectStore::Impl::start_fresh(std::shared_ptr<FreshBatch> batch) {
  if (!failed_erases.empty()) return nullptr;  // versions may be given again: the long way looks at them
  std::string packed;
  for (const auto& item : batch->items) {
    if (disk->busy(item.line)) return nullptr;
    if (keys.empty()) continue;
    packed = batch->packed_key(item);
    if (keys.contains(packed)) return nullptr;
  }
  batch->absent = failures == 0;
  batch->first_use = uses + 1;
  uses += batch->items.size();
  ++fresh_jobs;
  auto job = std::make_shared<DiskJob>();
  job->fresh = batch;
  job->urgent = true;
  auto done = std::make_shared<Promise<void>>(progress);
  submit_writes(std::move(job), done, false);
  batch->make_ready();
  return done;
}

// If the key is in a batch on its way to disk, it gets a state, as if it had been put alone.
void ObjectStore::Impl::adopt(const std::string& packed_key) {
  if (fresh_jobs == 0) return;
  const auto* job = disk->first_of(packed_key);
  if (job == nullptr || !job->fresh) return;
  auto& batch = *job->fresh;
  const auto item = std::ranges::find_if(batch.items, [&](const auto& i) { return batch.packed_key(i) == packed_key; });
  if (item == batch.items.end() || item->id != 0) return;
  Pending pending;
  pending.id = item->id = next_id++;
  pending.version = item->version;
  pending.bytes = item->blob->size();
  pending.checksum = item->checksum;
  pending.in_flight = pending.hidden = true;
  pending.keep_older = batch.keep_older;
  keys[packed_key].pending.push_back(std::move(pending));
}

void ObjectStore::Impl::written_fresh(FreshBatch& batch, const std::exception_ptr& error, std::vector<Place>& erases) {
  --fresh_jobs;
  auto ready = std::move(batch.ready);
  for (std::size_t i = 0; i < batch.items.size(); ++i) {
    const auto& item = batch.items[i];
    if (item.id != 0) {
      written_one({std::string(batch.packed_key(item)), batch.object(item), batch.keep_older, item.id}, error, erases);
      continue;
    }
    if (error) {
      erases.push_back({std::string(batch.packed_key(item)), item.version});  // a tier may have it all the same
      continue;
    }
    if (demotes()) demotable.add({batch.last_used(item), item.version, batch.shared_key(item)});
    evictable.add({batch.last_used(item), item.version, batch.shared_key(item)});
    table.insert(batch.ns, std::move(ready[i]));
  }
  trim_heap(evictable, true);
  if (demotes()) trim_heap(demotable, false);
}

}  // namespace penstock::pool
