#include "pool/store/object_table.hpp"

#include <absl/container/btree_set.h>
#include <absl/types/compare.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <new>

#include "penstock/error.hpp"
#include "pool/store/object_waiters.hpp"

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
  explicit Impl(ObjectTable& table) : waiters(table) {}

  std::map<Namespace, Space> spaces;
  int visiting = 0;
  std::size_t keys = 0;
  std::uint64_t object_bytes = 0, node_bytes = 0;
  ObjectWaiters waiters;

  Space* space(const Namespace& ns) {
    const auto at = spaces.find(ns);
    return at == spaces.end() ? nullptr : &at->second;
  }
  Node* find(const Namespace& ns, KeyView key) {
    Space* in = space(ns);
    return in == nullptr ? nullptr : in->find(key);
  }
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

ObjectTable::ObjectTable() : impl_(std::make_unique<Impl>(*this)) {}
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
  const auto [row, column] = node->key();
  waiters.count_row(ns, row, column, true);
  waiters.change(false, ns, row, column, node->newest);
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
  const auto [row, column] = node.key();
  waiters.change(false, ns, row, column, node.newest);
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
  impl_->waiters.change(true, ns, row_copy, column_copy, erased);
  return true;
}

void ObjectTable::Impl::remove_node(const Namespace& ns, Node* node) {
  const auto [row, column] = node->key();
  waiters.count_row(ns, row, column, false);
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
  if (impl_->find(ns, {row, column}) == nullptr) return impl_->waiters.wait(ns, row, column, std::move(present));
  present();
  return 0;
}

ObjectTable::WaiterId ObjectTable::wait_row(const Namespace& ns, std::string_view row, const KeyPattern& pattern,
                                            std::size_t count, std::function<void()> reached) {
  const std::size_t have = impl_->count_matching(ns, row, pattern.column, count);
  if (have < count) return impl_->waiters.wait_row(ns, row, pattern.column, count, have, std::move(reached));
  reached();
  return 0;
}

void ObjectTable::cancel(WaiterId id) { impl_->waiters.cancel(id); }

std::uint32_t ObjectTable::waiters(const Namespace& ns, std::string_view row, std::string_view column) const {
  return impl_->waiters.of_key(ns, row, column);
}

std::size_t ObjectTable::waiting() const { return impl_->waiters.size(); }

ObjectTable::WaiterId ObjectTable::subscribe(const Namespace& ns, KeyPattern pattern, Event event) {
  return impl_->waiters.subscribe(ns, std::move(pattern), std::move(event));
}

}  // namespace penstock::pool
