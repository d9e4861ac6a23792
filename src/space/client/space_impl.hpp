// The library's part of penstock::Space. A get asks the servers which blocks hold its box (find.cpp), fetches those or has servers
// convert them, and copies each into the caller's memory in one pass (get.cpp). put.cpp puts; arrays.cpp defines and drops.
#pragma once

#include <unistd.h>

#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>

#include "fabric/handshake.hpp"
#include "model/array_conversion.hpp"
#include "penstock/space.hpp"
#include "pool/client/client_impl.hpp"
#include "space/partition.hpp"
#include "space/protocol.hpp"
#include "space/space_service.hpp"  // generated from space.fbs

namespace penstock {

namespace space {

inline constexpr std::size_t keys_at_once = 10'000;
inline constexpr std::size_t requests_at_once = 4;
inline constexpr std::uint64_t fetched_at_once = std::uint64_t{64} << 20;  // bytes of one request
inline constexpr std::uint64_t smallest_part_bytes = std::uint64_t{1} << 20;
// How long a wait goes on before the client looks again whether the array is still the same one and its servers are there.
inline constexpr Timeout first_look(1000), longest_look(16'000);
// How many blocks a client remembers, of one part and in all.
inline constexpr std::size_t most_known_of_part = 1024, most_known = 65'536;
inline constexpr int most_rivals = 8;  // puts of the same elements by others, while one of ours is done

model::PlacedArray placed(const ArrayMemory& memory, const ArrayRecord& of, const Box& box);
inline model::PlacedArray block_of(const ArrayRecord& of, const Box& box) {
  return model::place(stored_layout(of), box);
}
// The nearest layout that servers make; empty: that of the array, or the reader converts, as `why` then says.
std::optional<Layout> layout_of(const ArrayMemory& memory, const ArrayRecord& of, const Box& box,
                                std::string* why = nullptr);
// Elements of a box on their way between the caller's memory, in a layout of a plug-in, and the space. Not of an empty box.
class Rows {
 public:
  Rows(const ArrayMemory& memory, const ArrayRecord& of, const Box& box);
  void from(const void* data);
  void to(void* data) const;
  ArrayMemory as;
  std::vector<std::byte> bytes;

 private:
  std::string layout_;
  Box box_;
  std::uint64_t element_bytes_ = 0;
};
// Throws Error(unsupported).
void require_on_host(const void* data, const ArrayMemory& memory);

}  // namespace space

struct Space::Impl : std::enable_shared_from_this<Space::Impl> {
  template <class T>
  using Task = fabric::Task<T>;
  using Deadline = base::Deadline;
  struct Array {
    Array(std::string called, space::ArrayRecord as)
        : name(std::move(called)), record(std::move(as)), partition(record.shape, record.parts) {}
    const std::string name;
    const space::ArrayRecord record;
    const space::Partition partition;
    // Versions begin at one server after the other: those of an array of one part do not all lie on one.
    std::uint64_t tag(std::uint64_t version, std::uint32_t part) const { return record.tag_base + version + part; }
    ArrayInfo info() const { return {name, record.dtype, record.shape, record.parts, record.options, record.fields}; }
  };
  using ArrayPointer = std::shared_ptr<const Array>;
  using Pieces = std::vector<space::Partition::Piece>;
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
  struct Sent {
    space::Partition::Piece piece;
    fabric::Future<std::vector<Result<std::uint64_t>>> done;
  };
  // A put that is under way.
  struct Putting {
    Putting(ArrayPointer array, std::uint64_t number, Source source, Deadline until, int most)
        : of(std::move(array)), version(number), from(std::move(source)), deadline(until), rivals(most) {}
    Putting(const Putting&) = delete;
    ~Putting() { lent->withdraw(); }
    const ArrayPointer of;
    const std::uint64_t version;
    const Source from;
    const Deadline deadline;
    const int rivals;
    const std::shared_ptr<Lent> lent = std::make_shared<Lent>();
    std::vector<Sent> sent;
  };
  // What is got, and where it is to lie.
  struct Wanted {
    ArrayPointer of;
    std::uint64_t version;
    Pieces pieces;
    Box box;
    model::PlacedArray into;
    void* data;
    std::optional<space::Layout> layout;  // empty: the array's
    model::Check check = model::Check::none;
  };
  // Bytes per second of this program's copies, recent ones first; 0: none yet.
  struct Rates {
    double convert = 0, copy = 0;
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
  explicit Impl(Pool of) : pool(std::move(of)) {}
  // For the library's own use: a space over a pool that is open, and what is behind a space.
  static std::shared_ptr<Space> over(Pool pool, Acknowledge acknowledge) {
    auto impl = std::make_shared<Impl>(std::move(pool));
    impl->acknowledge = acknowledge;
    return std::shared_ptr<Space>(new Space(std::move(impl)));
  }
  static Impl& of(Space& space) { return *space.impl_; }

  Pool pool;
  Acknowledge acknowledge = Acknowledge::replicated;                                  // of puts
  const std::string writer = fabric::host_name() + ":" + std::to_string(::getpid());  // of blocks
  std::mutex mutex;                                                                   // guards what follows
  std::map<std::string, ArrayPointer, std::less<>> arrays;
  std::set<std::pair<std::uint64_t, std::uint64_t>> begun;  // array, version: has its object
  Rates rates;
  // What the last search in a part has found: blocks do not change until they are dropped.
  struct Known {
    Box box;
    std::vector<Box> blocks;
  };
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::map<std::uint32_t, Known>> known;  // array, version: by part
  std::size_t known_blocks = 0;

  Deadline deadline(Timeout timeout) { return pool.impl().deadline(timeout); }
  static Timeout left(Deadline deadline) {
    return std::max(Timeout(0), std::chrono::duration_cast<Timeout>(deadline.remaining()));
  }
  static GetOptions until(Deadline deadline) {
    GetOptions options;
    options.timeout = left(deadline);
    return options;
  }
  PutOptions put_until(Deadline deadline) const {
    PutOptions options;
    options.timeout = left(deadline);
    options.acknowledge = acknowledge;
    return options;
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
  ArrayPointer read(std::string_view name, Deadline deadline);
  // Of the record's definition, or what has the name already.
  ArrayPointer define(std::string_view name, space::ArrayRecord record, Deadline deadline);
  // Throws Error(already_exists).
  static void require_defined_as(const Array& there, const space::ArrayRecord& wanted);
  // Waits until it is defined.
  ArrayPointer defined(std::string_view name, Deadline deadline);
  // Throws for the first element that the check of the caller's memory refuses.
  static void verify(const Array& of, std::uint64_t version, const Box& box, const Source& from, model::Check check);
  static void require_within(const Array& of, const Box& box);
  // The array with this box in it.
  ArrayPointer array(std::string_view name, const Box& box, Deadline deadline);
  ArrayPointer begin_version(ArrayPointer of, std::uint64_t version, Deadline deadline);
  bool has_begun(const Array& of, std::uint64_t version);
  // Throws Error(not_found): the array was dropped.
  void begin_version_of(const Array& of, std::uint64_t version, Deadline deadline);
  // Until the version may begin: drops those that go for it.
  void make_room(const Array& of, std::uint64_t version, Deadline deadline);
  void forget(const Array& of, std::uint64_t version);

  // Sends the box; finish waits until it is there.
  std::unique_ptr<Putting> start(ArrayPointer of, std::uint64_t version, const Box& box, const Source& from,
                                 Deadline deadline, int rivals);
  void finish(Putting& putting);
  void put_again(const Putting& putting, const space::Partition::Piece& piece);
  std::vector<std::byte> packed(const Array& of, const Source& from, const Box& box) const;

  // The lowest version from `first` on, in steps, that is there; none at the deadline. Throws Error(not_found): the array was
  // dropped.
  std::optional<std::uint64_t> next_version(const Array& of, std::uint64_t first, std::uint64_t step,
                                            Deadline deadline);

  // Which blocks hold all of the pieces, once they do. Throws Error(timeout), with the boxes that are missing; Replaced.
  Blocks find_whole(ArrayPointer of, std::uint64_t version, const Pieces& pieces, Deadline deadline);
  // Throws Error(not_found) for a version of a stream's array that was dropped.
  void require_kept(const Array& of, std::uint64_t version, Deadline deadline);
  // Without asking, as it was last found: they may have been dropped. None: some piece is not known.
  std::optional<Blocks> known_whole(const Array& of, std::uint64_t version, const Pieces& pieces);
  void remember(const Array& of, std::uint64_t version, const Pieces& pieces, const Blocks& blocks);
  void forget_blocks(const Array& of, std::uint64_t version);
  // What is there now; wait: once it is whole, or at the deadline.
  Blocks find(ArrayPointer of, std::uint64_t version, const Pieces& pieces, bool wait, Deadline deadline);
  Task<Blocks> find_blocks(ArrayPointer of, std::uint64_t version, std::shared_ptr<const Pieces> pieces, bool wait,
                           Deadline deadline);
  Task<space::fb::FindReplyT> find_at(pool::Member member, space::fb::FindRequestT request, Deadline deadline);
  // The box of this very array. Throws Replaced.
  void get(const ArrayPointer& of, std::uint64_t version, const Box& box, void* data, const ArrayMemory& memory,
           Deadline deadline);
  // Gives see each block's bytes, and the box that they hold. False: some were not there (any more).
  using See = std::function<void(const Box&, const std::byte*)>;
  bool fetch(const Array& of, std::uint64_t version, const Pieces& pieces, const Blocks& blocks, Deadline deadline,
             const See& see);
  // False: some were not there (any more).
  bool take(const Wanted& wanted, const Blocks& blocks, Deadline deadline);
  // What servers converted is copied; the numbers of the pieces that are left to this program.
  std::optional<std::vector<std::size_t>> take_converted(const Wanted& wanted, Deadline deadline);
  struct Conversion;  // of some pieces, by one server
  std::vector<Conversion> conversions(const Wanted& wanted);
  struct Converted;
  Task<Converted> convert_at(pool::Member member, space::fb::ConvertRequestT request, Deadline deadline);
  void measure(double Rates::*rate, std::uint64_t bytes, double seconds);
  std::vector<std::string> explain(const Wanted& wanted, Deadline deadline);
  std::vector<Fetch> fetches(const Array& of, std::uint64_t version, const Pieces& pieces, const Blocks& blocks);
  Task<void> drop_at_all(space::fb::DropRequestT what, Deadline deadline);
  bool drop_version(const Array& of, std::uint64_t version, Deadline deadline);
  bool drop_array(std::string_view name, Deadline deadline);
  bool drop_array(const Array& of, Deadline deadline);
  // Of all versions, also of those that go.
  std::vector<ObjectInfo> version_objects(const Array& of);
  Task<space::fb::DropReplyT> drop_at(pool::Member member, space::fb::DropRequestT request, Deadline deadline);
  void list(const Pattern& pattern, const std::function<void(const ObjectInfo&)>& see) {
    std::string next;
    do {
      auto listing = pool.list(pattern, space::keys_at_once, next);
      for (const auto& object : listing.objects) see(object);
      next = std::move(listing.next);
    } while (!next.empty());
  }
  Task<space::fb::StatusReplyT> status_of(pool::Member member, Deadline deadline);
  std::vector<SpaceStatus> status(Deadline deadline);
};

}  // namespace penstock
