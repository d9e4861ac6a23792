// penstock::Space: arrays as objects of a pool. A get asks the servers which blocks hold its box, fetches those, and copies each into
// the caller's memory in one pass that also converts.
#include "penstock/space.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>

#include "fabric/token.hpp"
#include "memory/kind.hpp"
#include "model/array_conversion.hpp"
#include "model/box.hpp"
#include "pool/client/client_impl.hpp"
#include "pool/keys/protocol.hpp"
#include "space/block_key.hpp"
#include "space/cover.hpp"
#include "space/names.hpp"
#include "space/partition.hpp"
#include "space/protocol.hpp"
#include "space/space_service.hpp"  // generated from space.fbs

namespace penstock {

using fabric::Task;
using pool::PoolClient;
using space::Partition;
namespace fb = space::fb;

namespace {

using Deadline = base::Deadline;
using Channel = std::shared_ptr<rpc::Channel>;

constexpr std::uint64_t smallest_part_bytes = std::uint64_t{1} << 20;
constexpr std::uint32_t parts_of_server = 16;
constexpr std::uint64_t fetched_at_once = std::uint64_t{64} << 20;  // bytes of one request
constexpr std::size_t keys_at_once = 10'000;
constexpr std::size_t requests_at_once = 4;
constexpr std::size_t most_begun = 65'536;                 // versions that are known to be there
constexpr Timeout last_look(1000);                         // beyond the deadline
constexpr Timeout first_look(1000), longest_look(16'000);  // whether what is waited for is still of the same array
constexpr std::size_t named_boxes = 8;                     // in an error's message
constexpr int most_rivals = 8;  // puts of the same elements by others, while one of ours is done

std::uint64_t random_number() {
  std::uint64_t number = 0;
  std::memcpy(&number, fabric::Token::random().bytes.data(), sizeof number);
  return number;
}

DType type_of(const ArrayMemory& memory, DType dtype) { return memory.dtype == DType::none ? dtype : memory.dtype; }

model::PlacedArray placed(const ArrayMemory& memory, DType dtype, const Box& box) {
  const DType chosen = type_of(memory, dtype);
  auto layout = model::scalar_layout(chosen, model::dimensions_in(memory.order, box.start.size()));
  if (!memory.strides.empty()) {
    layout.order = Dims();
    layout.strides = memory.strides;
  }
  return model::place(layout, box);
}

void require_on_host(const void* data) {
  if (memory::on_device(data))
    throw Error(Errc::unsupported, "the elements are in a device's memory: copy them to the host's first");
}

std::string text_of(const std::vector<Box>& boxes, bool complete) {
  std::string text;
  for (std::size_t i = 0; i < std::min(boxes.size(), named_boxes); ++i)
    text += (i == 0 ? "" : ", ") + model::to_string(boxes[i]);
  return boxes.size() > named_boxes || !complete ? text + ", ..." : text;
}

}  // namespace

struct Space::Impl : std::enable_shared_from_this<Space::Impl> {
  struct Array {
    Array(std::string called, space::ArrayRecord as)
        : name(std::move(called)), record(std::move(as)), partition(record.shape, record.parts) {}
    const std::string name;
    const space::ArrayRecord record;
    const Partition partition;
    // Versions begin at one server after the other: those of an array of one part do not all lie on one.
    std::uint64_t tag(std::uint64_t version, std::uint32_t part) const { return record.tag_base + version + part; }
    ArrayInfo info() const { return {name, record.dtype, record.shape, record.parts}; }
  };
  using ArrayPointer = std::shared_ptr<const Array>;
  using Pieces = std::vector<Partition::Piece>;
  using Blocks = std::vector<std::vector<Box>>;  // of each piece
  struct Source {                                // what is put
    const void* data;
    model::PlacedArray array;
  };
  struct Replaced {};  // the array was dropped and defined anew
  // The caller's memory, which is read until it is withdrawn: a put that nobody waits for any more goes on alone.
  class Lent {
   public:
    // Throws Error(cancelled).
    void read(const std::function<void()>& copy) {
      const std::shared_lock lock(mutex_);
      if (withdrawn_) throw Error(Errc::cancelled, "the put was interrupted");
      copy();
    }
    void withdraw() {
      const std::lock_guard lock(mutex_);  // waits for copies that are under way
      withdrawn_ = true;
    }

   private:
    std::shared_mutex mutex_;
    bool withdrawn_ = false;
  };
  // Some objects of one server.
  struct Fetch {
    std::vector<Key> keys;
    std::vector<Box> boxes;  // that the bytes of each hold
    GetOptions options;
    std::uint64_t bytes = 0;
  };
  using Objects = std::vector<Result<Object>>;

  Impl(const Context& context, PoolOptions options) : pool(context, std::move(options)) {}

  Pool pool;
  std::mutex mutex;  // guards what follows
  std::map<std::string, ArrayPointer, std::less<>> arrays;
  std::set<std::pair<std::uint64_t, std::uint64_t>> begun;  // array, version: has its object

  Deadline deadline(Timeout timeout) { return pool.impl().deadline(timeout); }
  static Timeout left(Deadline deadline) {
    return std::max(Timeout(0), std::chrono::duration_cast<Timeout>(deadline.remaining()));
  }
  template <class T>
  fabric::Future<T> begin(Task<T> task) {
    return fabric::spawn(*pool.impl().progress, std::move(task));
  }
  // The tasks end by their own deadline.
  template <class T>
  T end(fabric::Future<T> future) {
    if (!pool.impl().progress->wait_for([&] { return future.done(); }, Deadline::never()))
      throw Error(Errc::cancelled, "interrupted by a signal");
    return future.take();
  }

  ArrayPointer keep(std::string_view name, const Object& record);
  ArrayPointer read(std::string_view name);
  // Waits until it is defined.
  ArrayPointer defined(std::string_view name, Deadline deadline);
  static void require_within(const Array& of, const Box& box);
  // The array with this box in it.
  ArrayPointer array(std::string_view name, const Box& box, Deadline deadline);
  ArrayPointer begin_version(ArrayPointer of, std::uint64_t version, Deadline deadline);
  void forget(const Array& of, std::uint64_t version);

  void put_box(ArrayPointer of, std::uint64_t version, const Box& box, const Source& from, Deadline deadline,
               int rivals);
  void put_again(ArrayPointer of, std::uint64_t version, const Partition::Piece& piece, const Source& from,
                 Deadline deadline, int rivals);
  std::vector<std::byte> packed(const Array& of, const Source& from, const Box& box) const;

  // Which blocks hold all of the pieces, once they do. Throws Error(timeout), with the boxes that are missing; Replaced.
  Blocks find_whole(ArrayPointer of, std::uint64_t version, const Pieces& pieces, Deadline deadline);
  // What is there now; wait: once it is whole, or at the deadline.
  Blocks find(ArrayPointer of, std::uint64_t version, const Pieces& pieces, bool wait, Deadline deadline);
  Task<Blocks> find_blocks(ArrayPointer of, std::uint64_t version, std::shared_ptr<const Pieces> pieces, bool wait,
                           Deadline deadline);
  Task<fb::FindReplyT> find_at(pool::Member member, fb::FindRequestT request, Deadline deadline);
  // Gives see each block's bytes, and the box that they hold. False: some were not there (any more).
  template <class See>
  bool fetch(const Array& of, std::uint64_t version, const Pieces& pieces, const Blocks& blocks, Deadline deadline,
             See&& see);
  std::vector<Fetch> fetches(const Array& of, std::uint64_t version, const Pieces& pieces, const Blocks& blocks);
  Task<void> drop_blocks(std::uint64_t array, std::uint64_t version, bool whole, Deadline deadline);
  bool drop_version(const Array& of, std::uint64_t version, Deadline deadline);
  // Of all versions, also of those that go.
  std::vector<ObjectInfo> version_objects(const Array& of);
  Task<fb::DropReplyT> drop_at(pool::Member member, fb::DropRequestT request, Deadline deadline);
  template <class See>
  void list(const Pattern& pattern, See&& see);
};

// ------------------------------------------------------------------------------------------------------------ definitions

Space::Impl::ArrayPointer Space::Impl::keep(std::string_view name, const Object& record) {
  auto array = std::make_shared<const Array>(std::string(name), space::decode_record(record.bytes()));
  const std::lock_guard lock(mutex);
  auto& kept = arrays[std::string(name)];
  if (!kept || kept->record != array->record) kept = std::move(array);
  return kept;
}

Space::Impl::ArrayPointer Space::Impl::read(std::string_view name) {
  try {
    return keep(name, pool.get(space::array_key(name)));
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    throw Error(Errc::not_found, "pool " + pool.name() + ": there is no array '" + std::string(name) + "'");
  }
}

Space::Impl::ArrayPointer Space::Impl::defined(std::string_view name, Deadline deadline) {
  GetOptions options;
  options.timeout = left(deadline);
  try {
    return keep(name, pool.need(space::array_key(name), options));
  } catch (const Error& error) {
    if (error.code() != Errc::timeout) throw;
    throw Error(Errc::timeout, "pool " + pool.name() + ": array '" + std::string(name) + "' was not defined in time");
  }
}

Space::Impl::ArrayPointer Space::Impl::array(std::string_view name, const Box& box, Deadline deadline) {
  ArrayPointer found;
  {
    const std::lock_guard lock(mutex);
    if (const auto it = arrays.find(name); it != arrays.end()) found = it->second;
  }
  if (!found) found = defined(name, deadline);
  require_within(*found, box);
  return found;
}

void Space::Impl::require_within(const Array& of, const Box& box) {
  if (!model::is_within(box, of.record.shape))
    throw Error(Errc::invalid_argument, "the box " + model::to_string(box) + " is not within array '" + of.name +
                                            "' of shape " + to_string(of.record.shape));
}

template <class See>
void Space::Impl::list(const Pattern& pattern, See&& see) {
  std::string next;
  do {
    auto listing = pool.list(pattern, keys_at_once, next);
    for (const auto& object : listing.objects) see(object);
    next = std::move(listing.next);
  } while (!next.empty());
}

// The record is looked at once for each version: its array may have been dropped and defined anew.
Space::Impl::ArrayPointer Space::Impl::begin_version(ArrayPointer of, std::uint64_t version, Deadline deadline) {
  const auto number = std::make_pair(of->record.id, version);
  {
    const std::lock_guard lock(mutex);
    if (begun.contains(number)) return of;
  }
  of = read(of->name);
  PutOptions options;
  options.timeout = left(deadline);
  try {
    pool.put({space::versions_row(of->record.id), space::version_column(version)}, {}, options);
  } catch (const Error& error) {
    if (error.code() != Errc::already_exists) throw;
  }
  const std::lock_guard lock(mutex);
  if (begun.size() >= most_begun) begun.clear();
  begun.insert({of->record.id, version});
  return of;
}

void Space::Impl::forget(const Array& of, std::uint64_t version) {
  const std::lock_guard lock(mutex);
  begun.erase({of.record.id, version});
  if (const auto it = arrays.find(of.name); it != arrays.end() && it->second.get() == &of) arrays.erase(it);
}

// -------------------------------------------------------------------------------------------------------------------- put

// The elements of a box as they lie in a block.
std::vector<std::byte> Space::Impl::packed(const Array& of, const Source& from, const Box& box) const {
  const auto block = placed({}, of.record.dtype, box);
  std::vector<std::byte> bytes(block.bytes);
  model::ArrayConversion(block, from.array, box).run(bytes.data(), from.data);
  return bytes;
}

void Space::Impl::put_box(ArrayPointer of, std::uint64_t version, const Box& box, const Source& from, Deadline deadline,
                          int rivals) {
  struct Sent {
    Partition::Piece piece;
    fabric::Future<std::vector<Result<std::uint64_t>>> done;
  };
  const auto lent = std::make_shared<Lent>();
  struct Withdraw {
    Lent& lent;
    ~Withdraw() { lent.withdraw(); }
  } withdraw{*lent};
  std::vector<Sent> sent;
  for (auto& piece : of->partition.cut(box)) {
    const auto block = placed({}, of->record.dtype, piece.box);
    auto pack = [lent, conversion = model::ArrayConversion(block, from.array, piece.box), data = from.data](
                    std::size_t, std::byte* to) { lent->read([&] { conversion.run(to, data); }); };
    PutOptions options;
    options.tag = of->tag(version, piece.part);
    const Key key{space::block_row({of->record.id, version, piece.part}), space::block_column(piece.box)};
    std::vector<Pool::PutItem> items{{key, {static_cast<const std::byte*>(nullptr), block.bytes}}};
    auto task = pool.impl().put(std::move(items), std::move(options), deadline, std::move(pack));
    sent.push_back({std::move(piece), begin(std::move(task))});
  }
  std::optional<Error> failed;
  Pieces there;
  for (auto& one : sent) {
    const auto result = end(std::move(one.done)).at(0);
    if (result.code == Errc::already_exists) there.push_back(one.piece);
    else if (result.code != Errc::ok && !failed) failed = Error(result.code, result.message);
  }
  if (failed) {
    if (failed->code() == Errc::not_found) forget(*of, version);
    throw failed->in("array '" + of->name + "', version " + std::to_string(version));
  }
  for (const auto& piece : there) put_again(of, version, piece, from, deadline, rivals);
}

// Some of the elements are there: they must be the same, and the others are put.
void Space::Impl::put_again(ArrayPointer of, std::uint64_t version, const Partition::Piece& piece, const Source& from,
                            Deadline deadline, int rivals) {
  const Pieces pieces{piece};
  Blocks blocks;
  const auto compare = [&](const Box& held, const std::byte* bytes) {
    const auto both = *model::intersect(held, piece.box);
    const Source other{bytes, placed({}, of->record.dtype, held)};
    if (packed(*of, other, both) != packed(*of, from, both))
      throw Error(Errc::already_exists, "array '" + of->name + "', version " + std::to_string(version) +
                                            ": elements of " + model::to_string(both) + " are there with other values");
  };
  do blocks = find(of, version, pieces, false, deadline);
  while (!fetch(*of, version, pieces, blocks, deadline, compare));
  const auto missing = space::missing(piece.box, blocks.at(0));
  if (missing.boxes.empty()) return;
  if (rivals == 0)
    throw Error(Errc::already_exists, "array '" + of->name + "', version " + std::to_string(version) +
                                          ": others put elements of " + model::to_string(piece.box) +
                                          " again and again");
  for (const auto& box : missing.boxes) put_box(of, version, box, from, deadline, rivals - 1);
}

// -------------------------------------------------------------------------------------------------------------------- get

Space::Impl::Blocks Space::Impl::find(ArrayPointer of, std::uint64_t version, const Pieces& pieces, bool wait,
                                      Deadline deadline) {
  auto shared = std::make_shared<const Pieces>(pieces);
  return end(begin(find_blocks(std::move(of), version, std::move(shared), wait, deadline)));
}

Space::Impl::Blocks Space::Impl::find_whole(ArrayPointer of, std::uint64_t version, const Pieces& pieces,
                                            Deadline deadline) {
  for (auto look = first_look;; look = std::min(2 * look, longest_look)) {
    Blocks blocks;
    try {
      blocks = find(of, version, pieces, true, earlier(deadline, Deadline(look)));
    } catch (const Error& error) {
      if (error.code() == Errc::not_found) forget(*of, version);
      if (error.code() != Errc::timeout) throw;
      if (!deadline.passed()) continue;
      blocks = find(of, version, pieces, false, Deadline(last_look));  // only to say what is missing
    }
    std::vector<Box> lacking;
    bool complete = true;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      auto missing = space::missing(pieces[i].box, blocks[i], named_boxes);
      lacking.insert(lacking.end(), missing.boxes.begin(), missing.boxes.end());
      complete = complete && missing.complete;
    }
    if (lacking.empty()) return blocks;
    const Error late(Errc::timeout, "array '" + of->name + "', version " + std::to_string(version) +
                                        ": not there in time: " + text_of(lacking, complete));
    if (deadline.passed()) throw late;
    try {
      if (defined(of->name, deadline)->record != of->record) throw Replaced{};
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
      throw late;
    }
  }
}

Task<Space::Impl::Blocks> Space::Impl::find_blocks(ArrayPointer of, std::uint64_t version,
                                                   std::shared_ptr<const Pieces> pieces, bool wait, Deadline deadline) {
  auto& client = *pool.impl().client;
  const auto dimensions = of->record.shape.size();
  Blocks blocks(pieces->size());
  std::vector<std::size_t> left(pieces->size());
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = i;
  for (PoolClient::Attempt attempt = 0; !left.empty();) {
    const auto placement = co_await client.members().at_least(1, deadline);
    const auto& view = placement->view();
    std::map<std::uint32_t, std::vector<std::size_t>> groups;
    for (const auto i : left)
      groups[placement->owners(space::arrays_namespace(), "", of->tag(version, (*pieces)[i].part)).index[0]].push_back(
          i);
    struct Asked {
      std::vector<std::size_t> pieces;
      std::string server;
      fabric::Future<fb::FindReplyT> reply;
    };
    std::vector<Asked> asked;
    for (auto& [member, indices] : groups) {
      fb::FindRequestT request;
      request.view = view.number;
      request.array = of->record.id;
      request.version = version;
      request.tag_base = of->tag(version, 0);
      request.dimensions = static_cast<std::uint8_t>(dimensions);
      request.wait = wait;
      for (const auto i : indices) {
        request.parts.push_back((*pieces)[i].part);
        space::append_box(request.boxes, (*pieces)[i].box);
      }
      auto task = find_at(view.members[member], std::move(request), deadline);
      asked.push_back({std::move(indices), view.members[member].name, begin(std::move(task))});
    }
    left.clear();
    std::optional<Error> last;
    for (auto& one : asked) {
      std::size_t answered = 0;
      try {
        const auto reply = co_await std::move(one.reply);
        const auto found = space::unpack_boxes(reply.blocks, dimensions);
        std::size_t taken = 0;
        if (reply.counts.empty() || reply.counts.size() > one.pieces.size())
          throw Error(Errc::protocol, "a reply of another length");
        for (; answered < reply.counts.size(); ++answered) {
          const std::size_t count = reply.counts[answered];
          if (count > found.size() - taken) throw Error(Errc::protocol, "a reply of another length");
          const auto from = found.begin() + static_cast<std::ptrdiff_t>(taken);
          blocks[one.pieces[answered]].assign(from, from + static_cast<std::ptrdiff_t>(count));
          taken += count;
        }
      } catch (const Error& error) {
        if (!PoolClient::may_retry(error) || deadline.passed()) throw error.in("server " + one.server);
        last = error.in("server " + one.server);
      }
      left.insert(left.end(), one.pieces.begin() + static_cast<std::ptrdiff_t>(answered), one.pieces.end());
    }
    if (!last) continue;
    const Error why = *last;
    co_await client.before_retry(view.number, attempt++, why, deadline);
  }
  co_return blocks;
}

Task<fb::FindReplyT> Space::Impl::find_at(pool::Member member, fb::FindRequestT request, Deadline deadline) {
  auto channel = co_await pool.impl().client->members().channel(std::move(member), deadline);
  const rpc::CallOptions options{deadline};
  co_return co_await fb::SpaceClient(channel).find(std::move(request), options);
}

// By server, some megabytes at a time. Of a large block of which little is wanted, only those rows that are.
std::vector<Space::Impl::Fetch> Space::Impl::fetches(const Array& of, std::uint64_t version, const Pieces& pieces,
                                                     const Blocks& blocks) {
  const auto placement = pool.impl().client->members().placement();
  const std::uint64_t element = size_of(of.record.dtype);
  std::vector<Fetch> all;
  std::map<std::uint32_t, Fetch> open;  // by server
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto tag = of.tag(version, pieces[i].part);
    const auto server = placement->owners(space::arrays_namespace(), "", tag).index[0];
    const auto row = space::block_row({of.record.id, version, pieces[i].part});
    for (const auto& block : blocks[i]) {
      Key key{row, space::block_column(block)};
      const auto wanted = *model::intersect(block, pieces[i].box);
      const std::uint64_t plane = element_count(block.count) / block.count[0] * element;
      if (wanted.count[0] <= block.count[0] / 2 && plane * block.count[0] > smallest_part_bytes) {
        Fetch part;
        part.options.tag = tag;
        part.options.offset = (wanted.start[0] - block.start[0]) * plane;
        part.options.bytes = part.bytes = wanted.count[0] * plane;
        auto rows = block;
        rows.start[0] = wanted.start[0];
        rows.count[0] = wanted.count[0];
        part.keys.push_back(std::move(key));
        part.boxes.push_back(rows);
        all.push_back(std::move(part));
        continue;
      }
      auto& group = open[server];
      const std::uint64_t bytes = plane * block.count[0];
      if (!group.keys.empty() && (group.bytes + bytes > fetched_at_once || group.keys.size() == keys_at_once))
        all.push_back(std::exchange(group, {}));
      // Keys of one server: what holds for the tag of one holds for all.
      group.options.tag = tag;
      group.keys.push_back(std::move(key));
      group.boxes.push_back(block);
      group.bytes += bytes;
    }
  }
  for (auto& [server, group] : open)
    if (!group.keys.empty()) all.push_back(std::move(group));
  return all;
}

template <class See>
bool Space::Impl::fetch(const Array& of, std::uint64_t version, const Pieces& pieces, const Blocks& blocks,
                        Deadline deadline, See&& see) {
  const auto all = fetches(of, version, pieces, blocks);
  std::vector<fabric::Future<Objects>> asked(all.size());
  const auto ask = [&](std::size_t i) {
    if (i < all.size()) asked[i] = begin(pool.impl().get(all[i].keys, all[i].options, false, false, deadline));
  };
  for (std::size_t i = 0; i < requests_at_once; ++i) ask(i);
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto objects = end(std::move(asked[i]));
    ask(i + requests_at_once);
    for (std::size_t k = 0; k < objects.size(); ++k) {
      auto& object = objects[k];
      if (object.code == Errc::not_found && !deadline.passed()) return false;
      if (!object.value) throw Error(object.code, object.message);
      if (object.value->bytes().size() != element_count(all[i].boxes[k].count) * size_of(of.record.dtype))
        throw Error(Errc::protocol, "a block of array '" + of.name + "' has another number of bytes than its box");
      see(all[i].boxes[k], object.value->bytes().data());
      object.value.reset();
    }
  }
  return true;
}

// ------------------------------------------------------------------------------------------------------------------- drop

std::vector<ObjectInfo> Space::Impl::version_objects(const Array& of) {
  std::vector<ObjectInfo> objects;
  Pattern pattern;
  pattern.row = space::versions_row(of.record.id);
  list(pattern, [&](const ObjectInfo& object) {
    if (space::version_of_column(object.key.column)) objects.push_back(object);
  });
  return objects;
}

// The version's object says that it goes, and is dropped last: what was interrupted can be done again.
bool Space::Impl::drop_version(const Array& of, std::uint64_t version, Deadline deadline) {
  const Key key{space::versions_row(of.record.id), space::version_column(version)};
  forget(of, version);
  try {
    if (pool.info(key).bytes == 0) {
      PutOptions options;
      options.if_exists = IfExists::overwrite;
      pool.put(key, std::as_bytes(std::span(space::going)), options);
    }
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    return false;
  }
  end(begin(drop_blocks(of.record.id, version, false, deadline)));
  return pool.drop(key);
}

Task<void> Space::Impl::drop_blocks(std::uint64_t array, std::uint64_t version, bool whole, Deadline deadline) {
  auto& client = *pool.impl().client;
  std::optional<Error> last;
  for (PoolClient::Attempt attempt = 0;; ++attempt) {
    const auto placement = co_await client.members().at_least(1, deadline);
    const auto& view = placement->view();
    last.reset();
    for (const auto& member : view.members) {
      try {
        fb::DropRequestT request;
        request.view = view.number;
        request.array = array;
        request.version = version;
        request.whole = whole;
        co_await drop_at(member, std::move(request), deadline);
      } catch (const Error& error) {
        if (!PoolClient::may_retry(error) || deadline.passed()) throw error.in("server " + member.name);
        last = error.in("server " + member.name);
      }
    }
    if (!last) co_return;
    const Error why = *last;
    co_await client.before_retry(view.number, attempt, why, deadline);
  }
}

Task<fb::DropReplyT> Space::Impl::drop_at(pool::Member member, fb::DropRequestT request, Deadline deadline) {
  auto channel = co_await pool.impl().client->members().channel(std::move(member), deadline);
  const rpc::CallOptions options{deadline};
  co_return co_await fb::SpaceClient(channel).drop(std::move(request), options);
}

// ------------------------------------------------------------------------------------------------------------ public face

Space::Space(const Context& context, PoolOptions options) {
  if (!options.ns.empty()) throw Error(Errc::invalid_argument, "a space has no namespace of its own: leave ns empty");
  options.ns = space::namespace_name;
  impl_ = std::make_shared<Impl>(context, std::move(options));
}

Space::Space(Space&&) noexcept = default;
Space& Space::operator=(Space&&) noexcept = default;
Space::~Space() = default;

ArrayInfo Space::define(std::string_view name, DType dtype, const Dims& shape) {
  auto& pool = impl_->pool;
  const auto key = space::array_key(name);
  if (size_of(dtype) == 0) throw Error(Errc::invalid_argument, "an array of " + std::string(name_of(dtype)));
  if (shape.empty() || element_count(shape) == 0)
    throw Error(Errc::invalid_argument, "an array of shape " + to_string(shape) + " has no elements to put");
  const auto placement = pool.impl().client->members().placement();
  const auto servers = std::max<std::uint64_t>(1, placement->view().members.size());
  const auto most = element_count(shape) / (smallest_part_bytes / size_of(dtype)) + 1;
  space::ArrayRecord record{random_number(), dtype, shape, 1, random_number() >> 32};
  record.parts = static_cast<std::uint32_t>(
      std::min({most, servers * parts_of_server, static_cast<std::uint64_t>(space::max_parts)}));
  record.parts = Partition(shape, record.parts).parts();
  const Key open{space::versions_row(record.id), std::string(space::open_column)};
  pool.put(open, {});
  Impl::ArrayPointer there;
  for (const auto deadline = impl_->deadline(configured); !there;) {
    try {
      pool.put(key, space::encode_record(record));
      return Impl::Array(std::string(name), record).info();
    } catch (const Error& error) {
      if (error.code() != Errc::already_exists) throw;
    }
    try {
      there = impl_->read(name);
    } catch (const Error& error) {  // dropped between the two
      if (error.code() != Errc::not_found || deadline.passed()) throw;
    }
  }
  pool.drop(open);
  if (there->record.dtype != dtype || there->record.shape != shape)
    throw Error(Errc::already_exists, "array '" + std::string(name) + "' is " +
                                          std::string(name_of(there->record.dtype)) + " of shape " +
                                          to_string(there->record.shape));
  return there->info();
}

ArrayInfo Space::info(std::string_view name) { return impl_->read(name)->info(); }

std::vector<ArrayInfo> Space::list() {
  std::vector<ArrayInfo> infos;
  Pattern pattern;
  pattern.row = std::string(space::array_row_prefix) + "*";
  impl_->list(pattern, [&](const ObjectInfo& object) {
    try {
      infos.push_back(impl_->read(std::string_view(object.key.row).substr(space::array_row_prefix.size()))->info());
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;  // dropped meanwhile
    }
  });
  return infos;
}

void Space::put(std::string_view name, std::uint64_t version, const Box& box, const void* data,
                const ArrayMemory& memory, Timeout timeout) {
  const auto deadline = impl_->deadline(timeout);
  require_on_host(data);
  auto array = impl_->array(name, box, deadline);
  if (model::is_empty(box)) return;
  array = impl_->begin_version(std::move(array), version, deadline);
  Impl::require_within(*array, box);
  const Impl::Source from{data, placed(memory, array->record.dtype, box)};
  impl_->put_box(array, version, box, from, deadline, most_rivals);
}

void Space::get(std::string_view name, std::uint64_t version, const Box& box, void* data, const ArrayMemory& memory,
                Timeout timeout) {
  const auto deadline = impl_->deadline(timeout);
  require_on_host(data);
  for (;;) {
    const auto array = impl_->array(name, box, deadline);
    const auto dtype = array->record.dtype;
    const auto into = placed(memory, dtype, box);
    model::conversion_between(type_of(memory, dtype), dtype);  // throws now, and not when the box is there
    if (into.overlapping) throw Error(Errc::invalid_argument, "elements of the destination share bytes");
    if (model::is_empty(box)) return;
    const auto pieces = array->partition.cut(box);
    const auto convert = [&](const Box& held, const std::byte* bytes) {
      const auto both = *model::intersect(held, box);
      model::ArrayConversion(into, placed({}, dtype, held), both).run(data, bytes, {}, into.bytes);
    };
    try {
      Impl::Blocks blocks;
      do blocks = impl_->find_whole(array, version, pieces, deadline);
      while (!impl_->fetch(*array, version, pieces, blocks, deadline, convert));
      return;
    } catch (const Impl::Replaced&) {
    }
  }
}

ArrayInfo Space::wait(std::string_view name, Timeout timeout) {
  return impl_->defined(name, impl_->deadline(timeout))->info();
}

void Space::wait(std::string_view name, std::uint64_t version, const Box& box, Timeout timeout) {
  const auto deadline = impl_->deadline(timeout);
  for (;;) {
    const auto array = impl_->array(name, box, deadline);
    if (model::is_empty(box)) return;
    try {
      impl_->find_whole(array, version, array->partition.cut(box), deadline);
      return;
    } catch (const Impl::Replaced&) {
    }
  }
}

std::vector<std::uint64_t> Space::versions(std::string_view name) {
  std::vector<std::uint64_t> versions;
  for (const auto& object : impl_->version_objects(*impl_->read(name)))
    if (object.bytes == 0) versions.push_back(*space::version_of_column(object.key.column));
  return versions;
}

std::optional<std::uint64_t> Space::latest(std::string_view name) {
  const auto all = versions(name);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::vector<Box> Space::blocks(std::string_view name, std::uint64_t version) {
  std::vector<Box> boxes;
  Pattern pattern;
  pattern.row = pool::escape_pattern(space::blocks_prefix(impl_->read(name)->record.id, version)) + "*";
  impl_->list(pattern, [&](const ObjectInfo& object) {
    if (const auto box = space::block_box_of(object.key.column)) boxes.push_back(*box);
  });
  return boxes;
}

bool Space::drop(std::string_view name, std::uint64_t version) {
  return impl_->drop_version(*impl_->read(name), version, impl_->deadline(configured));
}

// The record goes last: what was interrupted can be done again.
bool Space::drop(std::string_view name) {
  const auto key = space::array_key(name);
  const auto deadline = impl_->deadline(configured);
  Impl::ArrayPointer array;
  try {
    array = impl_->read(name);
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    return false;
  }
  const auto row = space::versions_row(array->record.id);
  impl_->pool.drop({row, std::string(space::open_column)});
  impl_->end(impl_->begin(impl_->drop_blocks(array->record.id, 0, true, deadline)));
  for (const auto& object : impl_->version_objects(*array))
    impl_->drop_version(*array, *space::version_of_column(object.key.column), deadline);
  impl_->forget(*array, 0);
  return impl_->pool.drop(key);
}

}  // namespace penstock
