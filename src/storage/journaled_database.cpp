#include "storage/journaled_database.hpp"

#include <algorithm>
#include <chrono>
#include <unordered_map>
#include <utility>

#include "base/log.hpp"
#include "storage/little_endian.hpp"
#include "storage/tier.hpp"

namespace penstock::storage {

namespace {

constexpr std::string_view journaled_key = "journaled";  // the number of the newest frame that RocksDB has
constexpr std::chrono::seconds try_again(1);
constexpr std::chrono::seconds hurry_for(1);        // who looks once looks again
constexpr std::uint64_t overhead_bytes = 512;       // of a batch that waits, beside its data
constexpr std::uint64_t sequence_bytes = 64 << 10;  // between two that are remembered

}  // namespace

struct JournaledDatabase::Waiting {
  explicit Waiting(rocksdb::WriteBatch given) : bytes(given.GetDataSize() + overhead_bytes), batch(std::move(given)) {}
  // The same, of which only the journal has the batch.
  explicit Waiting(const Waiting& other, bool) : bytes(other.bytes), place(other.place) {}

  Journal::Number number() const { return place.number; }
  rocksdb::WriteBatch load() const { return batch ? *batch : rocksdb::WriteBatch(Journal::read(place)); }

  const std::uint64_t bytes;  // with what it takes beside its data
  const std::optional<rocksdb::WriteBatch> batch;
  Journal::Place place;
};

struct JournaledDatabase::Found {
  std::shared_ptr<const Waiting> waiting;
  std::optional<std::string_view> value;  // empty: deleted; a view into the batch
};

// Where each key was last changed, among batches that are added in order and removed in order. Its keys are views
// into the batches, too.
class JournaledDatabase::Index {
 public:
  const Found* find(std::uint32_t column, std::string_view key) const {
    const auto at = found_.find({column, key});
    return at == found_.end() ? nullptr : &at->second;
  }
  // The newest that was added.
  Journal::Number upto() const { return upto_; }

  void add(const std::shared_ptr<const Waiting>& waiting) {
    each(*waiting, [&](const Key& key, std::optional<std::string_view> value) {
      found_.erase(key);  // what it is called is in the older batch
      found_.emplace(key, Found{waiting, value});
    });
    upto_ = waiting->number();
  }
  void remove(const Waiting& waiting) {
    if (!waiting.batch || waiting.number() > upto_) return;
    each(waiting, [&](const Key& key, std::optional<std::string_view>) {
      const auto at = found_.find(key);
      if (at != found_.end() && at->second.waiting.get() == &waiting) found_.erase(at);
    });
  }

 private:
  struct Key {
    std::uint32_t column;
    std::string_view key;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const { return std::hash<std::string_view>()(key.key) + key.column; }
  };
  template <class Action>
  struct Each final : rocksdb::WriteBatch::Handler {
    explicit Each(const Action& given) : action(given) {}
    rocksdb::Status PutCF(std::uint32_t column, const rocksdb::Slice& key, const rocksdb::Slice& value) override {
      action({column, text(key)}, text(value));
      return rocksdb::Status::OK();
    }
    rocksdb::Status DeleteCF(std::uint32_t column, const rocksdb::Slice& key) override {
      action({column, text(key)}, std::nullopt);
      return rocksdb::Status::OK();
    }
    const Action& action;
  };
  template <class Action>
  static void each(const Waiting& waiting, const Action& action) {
    Each<Action> handler(action);
    waiting.batch->Iterate(&handler);
  }

  std::unordered_map<Key, Found, Hash> found_;
  Journal::Number upto_ = 0;
};

JournaledDatabase::JournaledDatabase(const std::string& path, std::uint64_t cache_bytes, const Deferral& deferral)
    : path_(path), most_memory_bytes_(cache_bytes / 8), deferral_(deferral), index_(std::make_unique<Index>()) {
  const auto left = std::max(cache_bytes - most_memory_bytes_, RocksDatabase::least_cache_bytes);
  database_ =
      std::make_unique<RocksDatabase>(path + "/rocksdb", left, [this](std::uint64_t sequence) { flushed(sequence); });
  rocksdb::PinnableSlice value;
  if (database_->get(own(), journaled_key, value) && value.size() == 8)
    brought_ = read_little<std::uint64_t>(std::as_bytes(std::span(value.data(), value.size())), 0);
  const auto replay = [&](Journal::Number number, std::string_view body) {
    rocksdb::WriteBatch batch{std::string(body)};
    const std::uint64_t sequence = bring(std::move(batch), number);
    std::lock_guard lock(mutex_);
    sequences_.emplace_back(sequence, number);
    brought_ = number;
  };
  journal_ =
      std::make_unique<Journal>(path + "/journal", std::max<std::uint64_t>(cache_bytes / 4, 1 << 20), brought_, replay);
  {
    std::lock_guard lock(mutex_);
    open_ = true;
  }
  if (journal_->bytes() != 0) flush_replayed();
  bringing_ = std::thread([this] { bring_over(); });
}

// A disk without space for that keeps the journal, and is no reason not to read what is there.
void JournaledDatabase::flush_replayed() noexcept {
  try {
    if (free_bytes(path_) >= journal_->bytes()) database_->flush();
  } catch (const std::exception& error) {
    base::log(base::Level::warn, "a journal is kept for now", {{"path", path_}, {"why", error.what()}});
  }
}

JournaledDatabase::~JournaledDatabase() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  bringing_.join();
  database_.reset();  // flushes
}

Journal::Number JournaledDatabase::write(rocksdb::WriteBatch batch) {
  if (journal_->failed()) repair_journal();
  look_at_the_disk();
  const auto waiting = std::make_shared<Waiting>(std::move(batch));
  wait_for_room(waiting->bytes);
  bool wake = false;
  const auto number = journal_->append(waiting->batch->Data(), [&](const Journal::Place& place) {
    waiting->place = place;
    std::lock_guard lock(mutex_);
    wake = waiting_.empty() || !holds_back();
    waiting_.push_back(waiting);
    waiting_bytes_ += waiting->bytes;
    memory_bytes_ += waiting->bytes;
    quiet_at_ = Clock::now() + deferral_.quiet;
    prodded_ = true;
  });
  const auto synced = journal_->synced();
  std::vector<std::shared_ptr<Waiting>> gone;  // given free without the lock
  {
    std::lock_guard lock(mutex_);
    gone = let_go(synced, most_memory_bytes_ / 2);
    if (!draining_ && (memory_bytes_ > most_memory_bytes_ / 4 * 3 ||
                       waiting_bytes_ > std::max(deferral_.most_deferred_bytes, most_memory_bytes_) / 4 * 3))
      wake = draining_ = true;
  }
  if (wake) work_.notify_one();
  return number;
}

// Takes mutex_ for granted.
bool JournaledDatabase::holds_back() const {
  const auto now = Clock::now();
  return has_space_ && !stopping_ && !draining_ && settling_ == 0 && now < quiet_at_ && now >= hurry_until_;
}

// Takes mutex_ for granted.
void JournaledDatabase::hurry() const {
  hurry_until_ = Clock::now() + hurry_for;
  work_.notify_one();
}

// What is durable in the journal, the oldest first, until no more than `most` bytes of memory are used. Takes mutex_ for
// granted.
std::vector<std::shared_ptr<JournaledDatabase::Waiting>> JournaledDatabase::let_go(Journal::Number synced,
                                                                                   std::uint64_t most) {
  std::vector<std::shared_ptr<Waiting>> gone;
  while (memory_bytes_ > most && deferred_ < waiting_.size() && holds_back()) {
    auto& oldest = waiting_[deferred_];
    if (oldest->number() > synced || oldest->number() <= indexed_) break;
    gone.push_back(std::exchange(oldest, std::make_shared<Waiting>(*oldest, false)));
    memory_bytes_ -= oldest->bytes - overhead_bytes;
    ++deferred_;
  }
  return gone;
}

std::uint64_t JournaledDatabase::deferred_bytes() const {
  std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < deferred_; ++i) bytes += waiting_[i]->bytes;
  return bytes;
}

void JournaledDatabase::look_at_the_disk() {
  if (writes_++ % 64 == 0) has_space_ = free_bytes(path_) >= deferral_.least_free_bytes;
}

void JournaledDatabase::sync() {
  if (journal_->failed()) repair_journal();
  journal_->sync();
}

void JournaledDatabase::wait_for_room(std::uint64_t bytes) {
  const auto synced = journal_->synced();
  std::vector<std::shared_ptr<Waiting>> gone;
  std::unique_lock lock(mutex_);
  gone = let_go(synced, most_memory_bytes_ - std::min(most_memory_bytes_, bytes));
  const auto most = std::max(deferral_.most_deferred_bytes, most_memory_bytes_);
  const auto has_room = [&] {
    const bool in_memory = deferred_ == waiting_.size() || memory_bytes_ + bytes <= most_memory_bytes_;
    return waiting_.empty() || (in_memory && waiting_bytes_ + bytes <= most);
  };
  if (has_room()) return;
  draining_ = true;
  if (error_) {  // there may be space by now
    error_ = nullptr;
    prodded_ = true;
  }
  work_.notify_one();
  progress_.wait(lock, [&] { return has_room() || error_; });
  if (!has_room()) std::rethrow_exception(error_);
}

// Waits until RocksDB has what was written before.
void JournaledDatabase::settle() {
  std::unique_lock lock(mutex_);
  if (waiting_.empty()) return;
  const auto last = waiting_.back()->number();
  if (error_) {
    error_ = nullptr;
    prodded_ = true;
  }
  ++settling_;
  work_.notify_one();
  progress_.wait(lock, [&] { return brought_ >= last || error_; });
  --settling_;
  if (brought_ < last) std::rethrow_exception(error_);
}

// After a sync that failed: what was written is made durable in RocksDB instead.
void JournaledDatabase::repair_journal() {
  std::lock_guard one(repair_mutex_);
  if (!journal_->failed()) return;
  journal_
      ->last();  // waits for a frame that is being appended: it is in waiting_ then, and until restart() none follows
  settle();
  database_->flush();
  journal_->restart();
}

std::uint64_t JournaledDatabase::bring(rocksdb::WriteBatch batch, Journal::Number number) {
  std::string value;
  append_little(value, number);
  const auto status = batch.Put(own(), slice(journaled_key), slice(value));
  if (!status.ok()) fail(status);
  return database_->write(batch);
}

void JournaledDatabase::bring_over() {
  std::uint64_t bytes = 0;  // since the last sequence number that is remembered
  std::unique_lock lock(mutex_);
  for (;;) {
    if (waiting_.empty()) {
      draining_ = false;
      if (stopping_) return;
      work_.wait(lock);
      continue;
    }
    if (holds_back()) {
      const auto until = quiet_at_;
      work_.wait_until(lock, until);
      continue;
    }
    const auto waiting = waiting_.front();
    prodded_ = false;
    lock.unlock();
    std::exception_ptr error;
    std::uint64_t sequence = 0;
    try {
      sequence = bring(waiting->load(), waiting->number());
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      error_ = error;
      progress_.notify_all();
      if (stopping_) return;  // the journal has it
      work_.wait_for(lock, try_again, [&] { return stopping_ || prodded_; });
      continue;
    }
    error_ = nullptr;
    brought_ = waiting->number();
    bytes += waiting->bytes;
    if (sequences_.empty() || bytes >= sequence_bytes) {
      sequences_.emplace_back(sequence, brought_);
      bytes = 0;
    } else {
      sequences_.back() = {sequence, brought_};
    }
    waiting_bytes_ -= waiting->bytes;
    memory_bytes_ -= deferred_ != 0 ? overhead_bytes : waiting->bytes;
    if (deferred_ != 0) --deferred_;
    waiting_.pop_front();
    progress_.notify_all();
    lock.unlock();
    {
      std::lock_guard indexing(index_mutex_);
      index_->remove(*waiting);
    }
    lock.lock();
  }
}

void JournaledDatabase::flushed(std::uint64_t sequence) {
  Journal::Number number = 0;
  {
    std::lock_guard lock(mutex_);
    if (!open_) return;  // a later flush tells of it again
    while (!sequences_.empty() && sequences_.front().first <= sequence) {
      number = sequences_.front().second;
      sequences_.pop_front();
    }
  }
  if (number == 0) return;
  try {
    journal_->release(number);
  } catch (const Error& error) {
    base::log(base::Level::warn, "a journal's file could not be removed", {{"why", error.what()}});
  }
}

bool JournaledDatabase::get(rocksdb::ColumnFamilyHandle* column, std::string_view key,
                            rocksdb::PinnableSlice& out) const {
  if (const auto found = find_waiting(column->GetID(), key)) {
    if (found->value) out.PinSelf(slice(*found->value));
    return found->value.has_value();
  }
  return database_->get(column, key, out);
}

// What waits is indexed by the first who looks: most is never looked for. What is in the journal only is brought over before.
std::optional<JournaledDatabase::Found> JournaledDatabase::find_waiting(std::uint32_t column,
                                                                        std::string_view key) const {
  bool stuck = false;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (waiting_.empty()) return std::nullopt;
      hurry();
      if (deferred_ != 0) progress_.wait(lock, [&] { return deferred_ == 0 || error_; });
      stuck = deferred_ != 0;
    }
    std::lock_guard indexing(index_mutex_);
    std::vector<std::shared_ptr<Waiting>> added;
    {
      std::lock_guard lock(mutex_);
      hurry();
      if (deferred_ != 0 && !stuck) continue;
      for (std::size_t i = waiting_.size(); i > deferred_ && waiting_[i - 1]->number() > index_->upto(); --i)
        added.push_back(waiting_[i - 1]);
      if (!added.empty()) indexed_ = added.front()->number();
    }
    for (auto at = added.rbegin(); at != added.rend(); ++at) index_->add(*at);
    if (const auto* found = index_->find(column, key)) return *found;
    break;
  }
  return stuck ? find_deferred(column, key) : std::nullopt;
}

// One after the other, the newest first: slow, and only while RocksDB takes nothing.
std::optional<JournaledDatabase::Found> JournaledDatabase::find_deferred(std::uint32_t column,
                                                                         std::string_view key) const {
  std::vector<std::shared_ptr<Waiting>> deferred;
  {
    std::lock_guard lock(mutex_);
    deferred.assign(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(deferred_));
  }
  for (; !deferred.empty(); deferred.pop_back()) {
    Index index;
    index.add(std::make_shared<Waiting>(deferred.back()->load()));
    if (const auto* found = index.find(column, key)) return *found;
  }
  return std::nullopt;
}

std::unique_ptr<rocksdb::Iterator> JournaledDatabase::iterate(std::string_view prefix) {
  settle();
  return database_->iterate(prefix);
}

void JournaledDatabase::free_erased_data() {
  settle();
  database_->free_erased_data();
}

}  // namespace penstock::storage
