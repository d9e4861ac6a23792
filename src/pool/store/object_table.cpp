#include "pool/store/object_table.hpp"

#include <absl/container/btree_set.h>
#include <absl/types/compare.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <set>
#include <unordered_map>

#include "penstock/error.hpp"

namespace penstock::pool {

namespace {

struct KeyView {
  std::string_view row, column;
};

int compare(const KeyView& a, const KeyView& b) {
  const int rows = a.row.compare(b.row);
  return rows != 0 ? rows : a.column.compare(b.column);
}

}  // namespace

// One key with its versions; the key's bytes follow it in the same allocation. A million small objects are what its layout
// is made for.
class ObjectTable::Node {
 public:
  StoredObject newest;
  std::unique_ptr<std::vector<StoredObject>> older;  // ascending; null: none

  static Node* make(KeyView key, StoredObject object) {
    return new (::operator new(bytes_of(key))) Node(key, std::move(object));
  }
  static void destroy(Node* node) {
    node->~Node();
    ::operator delete(node);
  }
  KeyView key() const { return {{text(), row_bytes_}, {text() + row_bytes_, column_bytes_}}; }
  std::size_t bytes() const { return bytes_of(key()); }
  std::span<const StoredObject> all_older() const {
    return older ? std::span<const StoredObject>(*older) : std::span<const StoredObject>();
  }
  // Whether a version may be there below the newest: every later one keeps what came before it.
  bool takes_below(std::uint64_t version) const {
    if (version >= newest.version || !newest.keeps_older) return false;
    for (const StoredObject& old : all_older())
      if (old.version == version || (old.version > version && !old.keeps_older)) return false;
    return true;
  }

 private:
  Node(KeyView key, StoredObject object)
      : newest(std::move(object)),
        row_bytes_(static_cast<std::uint16_t>(key.row.size())),
        column_bytes_(static_cast<std::uint16_t>(key.column.size())) {
    char* to = reinterpret_cast<char*>(this + 1);
    to = std::copy(key.row.begin(), key.row.end(), to);
    std::copy(key.column.begin(), key.column.end(), to);
  }
  static std::size_t bytes_of(KeyView key) { return sizeof(Node) + key.row.size() + key.column.size(); }
  const char* text() const { return reinterpret_cast<const char*>(this + 1); }

  std::uint16_t row_bytes_, column_bytes_;
};
static_assert(max_key_bytes <= 0xffff);

struct ObjectTable::Order {
  using is_transparent = void;
  template <class A, class B>
  absl::weak_ordering operator()(const A& a, const B& b) const {
    const int order = compare(key(a), key(b));
    if (order == 0) return absl::weak_ordering::equivalent;
    return order < 0 ? absl::weak_ordering::less : absl::weak_ordering::greater;
  }
  static KeyView key(const Node* node) { return node->key(); }
  static KeyView key(const KeyView& key) { return key; }
};

// The keys of one namespace. Programs put and get keys in order, so the place of the last use is tried first: then a find
// or an insert costs two comparisons instead of a search.
class ObjectTable::Space {
 public:
  using Tree = absl::btree_set<Node*, Order>;

  Space() = default;
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;
  ~Space() {
    for (Node* node : tree_) Node::destroy(node);
  }

  const Tree& tree() const { return tree_; }
  Node* find(KeyView key) {
    if (last_ != tree_.end()) {
      const int beyond_last = compare(key, (*last_)->key());
      if (beyond_last == 0) return *last_;
      if (beyond_last > 0) {
        const auto next = std::next(last_);
        const int beyond_next = next == tree_.end() ? -1 : compare(key, (*next)->key());
        if (beyond_next < 0) return nullptr;  // it would lie between them
        if (beyond_next == 0) return *(last_ = next);
      }
    }
    const auto at = tree_.lower_bound(key);
    if (at != tree_.end() && compare((*at)->key(), key) == 0) return *(last_ = at);
    last_ = at == tree_.begin() ? tree_.end() : std::prev(at);  // the place where add will want it
    return nullptr;
  }
  void add(Node* node) { last_ = tree_.insert(last_ == tree_.end() ? last_ : std::next(last_), node); }
  void remove(Node* node) {
    tree_.erase(tree_.find(node->key()));
    last_ = tree_.end();
    Node::destroy(node);
  }

 private:
  Tree tree_;
  Tree::iterator last_ = tree_.end();
};

namespace {

// What malloc takes for a block (glibc: a word, rounded to two).
std::uint64_t allocated(std::uint64_t bytes) { return (bytes + 8 + 15) / 16 * 16; }

}  // namespace

struct ObjectTable::Impl {
  // A key's waiter, a row's, or a subscription, in one numbering: their order is the order in which they are told.
  struct Waiter {
    std::string key;                // packed; of a row: with an empty column
    std::function<void()> present;  // taken out when it is called
    TextPattern column;             // of a row
    std::size_t count = 0;          // of a row; 0: the waiter of one key
    std::size_t have = 0;
  };
  struct Watcher {
    Namespace ns;
    KeyPattern pattern;
    std::function<void(bool, const Namespace&, std::string_view, std::string_view, const StoredObject&)> event;
  };
  struct Change {
    bool dropped;
    Namespace ns;
    std::string row, column;
    StoredObject object;
    WaiterId before;  // who came later was told by the call that made the waiter
  };
  using Waiters = std::unordered_map<std::string, std::set<WaiterId>>;

  std::map<Namespace, Space> spaces;
  std::unordered_map<WaiterId, Waiter> waiters;
  Waiters by_key, by_row;
  std::map<WaiterId, std::shared_ptr<Watcher>> watchers;
  WaiterId next_id = 1;
  std::deque<Change> changes;
  bool telling = false;
  int visiting = 0;
  std::size_t keys = 0;
  std::uint64_t object_bytes = 0, node_bytes = 0;

  Space* space(const Namespace& ns) {
    const auto at = spaces.find(ns);
    return at == spaces.end() ? nullptr : &at->second;
  }
  Node* find(const Namespace& ns, KeyView key) {
    Space* in = space(ns);
    return in == nullptr ? nullptr : in->find(key);
  }
  void count_row(const Namespace& ns, KeyView key, bool added);
  void change(bool dropped, const Namespace& ns, KeyView key, const StoredObject& object);
  void tell();
  void tell(const Change& change);
  void tell(WaiterId id, const Change& change);
  void forget(std::unordered_map<WaiterId, Waiter>::iterator waiter);
  std::size_t count_matching(const Namespace& ns, std::string_view row, const TextPattern& column, std::size_t enough);
  void remove_node(const Namespace& ns, Node* node);
  void add(const Namespace& ns, Space& space, KeyView key, StoredObject object);
  bool replace(const Namespace& ns, Node& node, StoredObject object);
  void insert_below(Node& node, StoredObject object);

  struct Walk {
    const KeyPattern* pattern;  // null: everything
    std::size_t visits_left;
    const std::function<bool(const Entry&)>& visit;
  };
  const Node* walk(const Namespace& ns, Space& space, std::optional<KeyView> after, Walk& walk);
};

ObjectTable::ObjectTable() : impl_(std::make_unique<Impl>()) {}
ObjectTable::~ObjectTable() = default;

// ------------------------------------------------------------------------------------------------------------- objects

StoredObject* ObjectTable::find(const Namespace& ns, std::string_view row, std::string_view column,
                                std::optional<std::uint64_t> version) {
  Node* node = impl_->find(ns, {row, column});
  if (node == nullptr) return nullptr;
  if (!version || *version == node->newest.version) return &node->newest;
  if (!node->older) return nullptr;
  const auto found = std::ranges::lower_bound(*node->older, *version, {}, &StoredObject::version);
  return found != node->older->end() && found->version == *version ? &*found : nullptr;
}

void ObjectTable::DestroyNode::operator()(Node* node) const { Node::destroy(node); }

bool ObjectTable::insert(const Namespace& ns, std::string_view row, std::string_view column, StoredObject object,
                         bool keep_older) {
  Space* space = impl_->space(ns);
  object.keeps_older = keep_older;
  if (Node* node = space ? space->find({row, column}) : nullptr) return impl_->replace(ns, *node, std::move(object));
  if (row.size() > max_key_bytes || column.size() > max_key_bytes)
    throw Error(Errc::invalid_argument,
                "a key's row or column is longer than " + std::to_string(max_key_bytes) + " bytes");
  impl_->add(ns, space ? *space : impl_->spaces[ns], {row, column}, std::move(object));
  return true;
}

void ObjectTable::Impl::add(const Namespace& ns, Space& space, KeyView key, StoredObject object) {
  assert(visiting == 0);
  std::unique_ptr<Node, DestroyNode> made(Node::make(key, std::move(object)));
  Node* node = made.get();
  space.add(node);
  (void)made.release();
  object_bytes += node->newest.bytes;
  ++keys;
  node_bytes += allocated(node->bytes());
  count_row(ns, node->key(), true);
  change(false, ns, node->key(), node->newest);
}

bool ObjectTable::Impl::replace(const Namespace& ns, Node& node, StoredObject object) {
  assert(visiting == 0);
  if (object.version <= node.newest.version) {
    if (!node.takes_below(object.version)) return false;
    insert_below(node, std::move(object));
    return true;
  }
  object_bytes += object.bytes;
  if (object.keeps_older) {
    if (!node.older) {
      node.older = std::make_unique<std::vector<StoredObject>>();
      node_bytes += allocated(sizeof(*node.older));
    }
    node.older->push_back(std::exchange(node.newest, std::move(object)));
    node_bytes += sizeof(StoredObject);
  } else {
    object_bytes -= node.newest.bytes;
    if (node.older) {
      for (const StoredObject& old : *node.older) object_bytes -= old.bytes;
      node_bytes -= allocated(sizeof(*node.older)) + node.older->size() * sizeof(StoredObject);
      node.older.reset();
    }
    node.newest = std::move(object);
  }
  change(false, ns, node.key(), node.newest);
  return true;
}

std::vector<StoredObject> ObjectTable::versions(const Namespace& ns, std::string_view row,
                                                std::string_view column) const {
  std::vector<StoredObject> all;
  const Node* node = impl_->find(ns, {row, column});
  if (node == nullptr) return all;
  all.assign(node->all_older().begin(), node->all_older().end());
  all.push_back(node->newest);
  return all;
}

bool ObjectTable::takes(const Namespace& ns, std::string_view row, std::string_view column, std::uint64_t version) {
  const Node* node = impl_->find(ns, {row, column});
  return node == nullptr || version > node->newest.version || node->takes_below(version);
}

void ObjectTable::Impl::insert_below(Node& node, StoredObject object) {
  object_bytes += object.bytes;
  if (!node.older) {
    node.older = std::make_unique<std::vector<StoredObject>>();
    node_bytes += allocated(sizeof(*node.older));
  }
  auto& older = *node.older;
  auto at = std::ranges::lower_bound(older, object.version, {}, &StoredObject::version);
  if (!object.keeps_older) {
    for (auto gone = older.begin(); gone != at; ++gone) object_bytes -= gone->bytes;
    node_bytes -= static_cast<std::uint64_t>(at - older.begin()) * sizeof(StoredObject);
    at = older.erase(older.begin(), at);
  }
  older.insert(at, std::move(object));
  node_bytes += sizeof(StoredObject);
}

bool ObjectTable::erase(const Namespace& ns, std::string_view row, std::string_view column,
                        std::optional<std::uint64_t> version) {
  assert(impl_->visiting == 0);
  Node* node = impl_->find(ns, {row, column});
  if (node == nullptr) return false;
  // The caller's views may be of the key that goes.
  const std::string row_copy(row), column_copy(column);
  StoredObject erased;
  if (version && node->older && *version != node->newest.version) {
    const auto found = std::ranges::lower_bound(*node->older, *version, {}, &StoredObject::version);
    if (found == node->older->end() || found->version != *version) return false;
    erased = std::move(*found);
    node->older->erase(found);
  } else if (version && *version != node->newest.version) {
    return false;
  } else {
    erased = std::move(node->newest);
    if (version && node->older) {
      node->newest = std::move(node->older->back());
      node->older->pop_back();
    } else {
      if (node->older) {
        for (const StoredObject& old : *node->older) impl_->object_bytes -= old.bytes;
        impl_->node_bytes -= allocated(sizeof(*node->older)) + node->older->size() * sizeof(StoredObject);
      }
      node->older.reset();
      impl_->remove_node(ns, node);
      node = nullptr;
    }
  }
  if (node != nullptr) {
    impl_->node_bytes -= sizeof(StoredObject);
    if (node->older->empty()) {
      impl_->node_bytes -= allocated(sizeof(*node->older));
      node->older.reset();
    }
  }
  impl_->object_bytes -= erased.bytes;
  impl_->change(true, ns, {row_copy, column_copy}, erased);
  return true;
}

void ObjectTable::Impl::remove_node(const Namespace& ns, Node* node) {
  count_row(ns, node->key(), false);
  --keys;
  node_bytes -= allocated(node->bytes());
  const auto space = spaces.find(ns);
  space->second.remove(node);
  if (space->second.tree().empty()) spaces.erase(space);
}

std::size_t ObjectTable::size() const { return impl_->keys; }
std::uint64_t ObjectTable::bytes() const { return impl_->object_bytes; }
// The tree holds a pointer for each key in nodes of 256 bytes, between half and wholly full.
std::uint64_t ObjectTable::index_bytes() const { return impl_->node_bytes + impl_->keys * 11; }

// ------------------------------------------------------------------------------------------------------------- listing

// Visits one namespace; returns the entry to go on after, null when it came to the end.
const ObjectTable::Node* ObjectTable::Impl::walk(const Namespace& ns, Space& space, std::optional<KeyView> after,
                                                 Walk& walk) {
  const auto& tree = space.tree();
  auto at = tree.begin();
  KeyView prefix;
  bool one_row = false;
  if (walk.pattern != nullptr) {
    one_row = walk.pattern->row.exact();
    prefix = {walk.pattern->row.prefix(), one_row ? std::string_view(walk.pattern->column.prefix()) : ""};
    at = tree.lower_bound(prefix);
  }
  if (after && compare(*after, prefix) >= 0) at = tree.upper_bound(*after);
  const Node* last = nullptr;
  for (; at != tree.end(); ++at) {
    Node* node = *at;
    const KeyView key = node->key();
    if (one_row ? key.row != prefix.row || !key.column.starts_with(prefix.column) : !key.row.starts_with(prefix.row))
      return nullptr;
    if (walk.visits_left == 0) return last;
    --walk.visits_left;
    last = node;
    if (walk.pattern != nullptr && !walk.pattern->matches(key.row, key.column)) continue;
    if (!walk.visit(Entry{ns, key.row, key.column, node->newest, node->all_older()})) return last;
  }
  return nullptr;
}

namespace {

// While somebody visits, nobody may change the table.
struct Visit {
  explicit Visit(int& count) : count(count) { ++count; }
  ~Visit() { --count; }
  int& count;
};

std::string pack(const Namespace& ns, const ObjectTable::Node* node) {
  return pack_key(ns, node->key().row, node->key().column);
}

}  // namespace

std::string ObjectTable::scan(const Namespace& ns, const KeyPattern& pattern, std::string_view after,
                              std::size_t max_visits, const std::function<bool(const Entry&)>& visit) {
  UnpackedKey from;
  if (!after.empty()) {
    from = unpack_key(after);
    if (from.ns != ns) throw Error(Errc::protocol, "a listing that goes on in another namespace");
  }
  const auto space = impl_->spaces.find(ns);
  if (space == impl_->spaces.end()) return {};
  const Visit guard(impl_->visiting);
  Impl::Walk walk{&pattern, std::max<std::size_t>(max_visits, 1), visit};
  std::optional<KeyView> start;
  if (!after.empty()) start = KeyView{from.row, from.column};
  const Node* last = impl_->walk(space->first, space->second, start, walk);
  return last == nullptr ? std::string() : pack(ns, last);
}

std::string ObjectTable::scan_all(std::string_view after, std::size_t max_visits,
                                  const std::function<bool(const Entry&)>& visit) {
  UnpackedKey from;
  if (!after.empty()) from = unpack_key(after);
  const Visit guard(impl_->visiting);
  Impl::Walk walk{nullptr, std::max<std::size_t>(max_visits, 1), visit};
  // An entry to go on after belongs to the namespace before, when the visits ended with its last.
  std::string resume(after);
  for (auto space = impl_->spaces.lower_bound(from.ns); space != impl_->spaces.end(); ++space) {
    if (walk.visits_left == 0) return resume;
    std::optional<KeyView> start;
    if (!after.empty() && space->first == from.ns) start = KeyView{from.row, from.column};
    const std::size_t left = walk.visits_left;
    if (const Node* last = impl_->walk(space->first, space->second, start, walk)) return pack(space->first, last);
    if (walk.visits_left != left) resume = pack(space->first, *std::prev(space->second.tree().end()));
  }
  return {};
}

// ------------------------------------------------------------------------------------------------------------- waiting

void ObjectTable::Impl::count_row(const Namespace& ns, KeyView key, bool added) {
  if (by_row.empty()) return;
  const auto row = by_row.find(pack_key(ns, key.row, {}));
  if (row == by_row.end()) return;
  for (const WaiterId id : row->second) {
    Waiter& waiter = waiters.at(id);
    if (waiter.column.matches(key.column)) waiter.have += added ? 1 : std::size_t{0} - 1;
  }
}

// Remembers what has to be told, if anybody wants to know, and tells it unless a call further out is doing so.
void ObjectTable::Impl::change(bool dropped, const Namespace& ns, KeyView key, const StoredObject& object) {
  const bool awaited = !dropped && ((!by_key.empty() && by_key.contains(pack_key(ns, key.row, key.column))) ||
                                    (!by_row.empty() && by_row.contains(pack_key(ns, key.row, {}))));
  const auto wants = [&](const auto& watcher) {
    return watcher.second->ns == ns && watcher.second->pattern.matches(key.row, key.column);
  };
  if (!awaited && std::ranges::none_of(watchers, wants)) return;
  changes.push_back({dropped, ns, std::string(key.row), std::string(key.column), object, next_id});
  if (!telling) tell();
}

void ObjectTable::Impl::tell() {
  struct Telling {
    explicit Telling(bool& flag) : flag(flag) { flag = true; }
    ~Telling() { flag = false; }
    bool& flag;
  } guard(telling);
  while (!changes.empty()) {
    const Change change = std::move(changes.front());
    changes.pop_front();
    tell(change);
  }
}

void ObjectTable::Impl::tell(const Change& change) {
  std::vector<WaiterId> ids;
  if (!change.dropped) {
    for (const auto& [waiters, column] :
         {std::pair{&by_key, std::string_view(change.column)}, {&by_row, std::string_view()}}) {
      const auto found = waiters->find(pack_key(change.ns, change.row, column));
      if (found != waiters->end()) ids.insert(ids.end(), found->second.begin(), found->second.end());
    }
  }
  for (const auto& [id, watcher] : watchers)
    if (id < change.before && watcher->ns == change.ns && watcher->pattern.matches(change.row, change.column))
      ids.push_back(id);
  std::ranges::sort(ids);
  // A column that is empty names a key as well as its row; nobody is called twice, as ids differ.
  for (const WaiterId id : ids) tell(id, change);
}

// Calls it, unless one that was called before has cancelled it or taken away what it waits for.
void ObjectTable::Impl::tell(WaiterId id, const Change& change) {
  if (const auto watcher = watchers.find(id); watcher != watchers.end()) {
    const auto alive = watcher->second;  // it may cancel itself
    alive->event(change.dropped, change.ns, change.row, change.column, change.object);
    return;
  }
  const auto waiter = waiters.find(id);
  if (waiter == waiters.end()) return;
  const bool satisfied = waiter->second.count > 0 ? waiter->second.have >= waiter->second.count
                                                  : find(change.ns, {change.row, change.column}) != nullptr;
  if (!satisfied) return;
  const auto present = std::move(waiter->second.present);
  forget(waiter);
  present();
}

void ObjectTable::Impl::forget(std::unordered_map<WaiterId, Waiter>::iterator waiter) {
  Waiters& index = waiter->second.count > 0 ? by_row : by_key;
  const auto entry = index.find(waiter->second.key);
  entry->second.erase(waiter->first);
  if (entry->second.empty()) index.erase(entry);
  waiters.erase(waiter);
}

std::size_t ObjectTable::Impl::count_matching(const Namespace& ns, std::string_view row, const TextPattern& column,
                                              std::size_t enough) {
  const auto space = spaces.find(ns);
  std::size_t count = 0;
  if (space == spaces.end()) return count;
  const auto& tree = space->second.tree();
  for (auto at = tree.lower_bound(KeyView{row, column.prefix()}); at != tree.end() && count < enough; ++at) {
    const KeyView key = (*at)->key();
    if (key.row != row || !key.column.starts_with(column.prefix())) break;
    if (column.matches(key.column)) ++count;
  }
  return count;
}

ObjectTable::WaiterId ObjectTable::wait(const Namespace& ns, std::string_view row, std::string_view column,
                                        std::function<void()> present) {
  if (impl_->find(ns, {row, column}) != nullptr) {
    present();
    return 0;
  }
  const WaiterId id = impl_->next_id++;
  std::string key = pack_key(ns, row, column);
  impl_->by_key[key].insert(id);
  impl_->waiters.emplace(id, Impl::Waiter{std::move(key), std::move(present), {}});
  return id;
}

ObjectTable::WaiterId ObjectTable::wait_row(const Namespace& ns, std::string_view row, const KeyPattern& pattern,
                                            std::size_t count, std::function<void()> reached) {
  const std::size_t have = impl_->count_matching(ns, row, pattern.column, count);
  if (have >= count) {
    reached();
    return 0;
  }
  const WaiterId id = impl_->next_id++;
  std::string key = pack_key(ns, row, {});
  impl_->by_row[key].insert(id);
  impl_->waiters.emplace(id, Impl::Waiter{std::move(key), std::move(reached), pattern.column, count, have});
  return id;
}

void ObjectTable::cancel(WaiterId id) {
  if (const auto waiter = impl_->waiters.find(id); waiter != impl_->waiters.end()) impl_->forget(waiter);
  else impl_->watchers.erase(id);
}

std::uint32_t ObjectTable::waiters(const Namespace& ns, std::string_view row, std::string_view column) const {
  if (impl_->by_key.empty()) return 0;
  const auto found = impl_->by_key.find(pack_key(ns, row, column));
  return found == impl_->by_key.end() ? 0 : static_cast<std::uint32_t>(found->second.size());
}

std::size_t ObjectTable::waiting() const { return impl_->waiters.size(); }

ObjectTable::WaiterId ObjectTable::subscribe(
    const Namespace& ns, KeyPattern pattern,
    std::function<void(bool, const Namespace&, std::string_view, std::string_view, const StoredObject&)> event) {
  const WaiterId id = impl_->next_id++;
  impl_->watchers.emplace(id, std::make_shared<Impl::Watcher>(Impl::Watcher{ns, std::move(pattern), std::move(event)}));
  return id;
}

}  // namespace penstock::pool
