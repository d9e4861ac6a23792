// Array spaces: versioned arrays of n dimensions in a pool. Programs put boxes of a version and get boxes of it, each in its own
// layout and type: a box is there when all of its elements are, whoever put them, and however they were cut.
// Source: SAND2021-10271 (the Kokkos staging space on DataSpaces), with cover, immutability and deadlines added.
//
// A put returns when every replica in the pool has the elements. Elements are written once: the same values may be put again, others are refused. Programs that share an array agree on nothing but
// its name; where its elements lie follows from its shape and the pool's servers.
//
// Threads: a Space may be shared by threads. Calls block, and end by their deadline (PoolOptions::timeout_ms unless given). Memory is
// the host's. Errors: not_found (no such array; a version that was dropped), timeout (names the boxes that are not there),
// already_exists (other values, another definition), invalid_argument (a box outside the array), wrong_state (a version that begins is
// lower than those that are kept), unsupported (types that do not
// convert, a device's memory), and those of a Pool.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/conversion.hpp"
#include "penstock/pool.hpp"
#include "penstock/types.hpp"

namespace penstock {

// A field of the structures that an array may have as elements.
struct ArrayField {
  std::string name{};  // 1 to 64 bytes
  DType dtype = DType::none;
  friend bool operator==(const ArrayField&, const ArrayField&) = default;
};

// Where a field lies in the caller's memory.
struct FieldMemory {
  std::string name{};
  DType dtype = DType::none;  // none: the array's
  // Bytes from `data` to the field of the box's first element; into any memory, so that fields may have arrays of their own.
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides{};  // instead of those of ArrayMemory
};

// How the elements of a box lie in the caller's memory: next to each other in an order, or with strides.
struct ArrayMemory {
  DType dtype = DType::none;  // none: the array's
  Order order = Order::row;
  // Bytes between neighbours along each dimension, of any sign, instead of the order; the pointer is to the box's first element.
  std::vector<std::int64_t> strides{};
  // Which elements put and get refuse, with Error(invalid_argument) that names the first one by index and value. A put is then
  // checked before any of it is sent; what a get has written is unspecified. Servers leave gets that are checked to the reader.
  ConversionCheck check = ConversionCheck::none;
  // Of an array of structures: where the fields lie; a get may leave some out, a put names all. Empty: all fields, one behind the
  // other without padding, in structures. Fields must not share bytes.
  std::vector<FieldMemory> fields{};
  std::uint64_t structure_bytes = 0;  // from one structure to the next; 0: the elements of each field are neighbours
  // The name of a layout that load_layouts has loaded: the data are layout_bytes() bytes, without order and strides. Structures lie
  // as they do without `fields`, which, if given, say what is expected: others are refused. This program holds the box in rows
  // meanwhile.
  std::string layout{};
  // What `data` has room for, where a plug-in's layout says how much it takes: more is refused. 0: it is not compared.
  std::uint64_t layout_bytes = 0;
};

// Loads layouts that a shared object supplies (penstock/layout_plugin.h), for all of the process, and returns their names. The
// same ones again are no error. Throws Error: not_found (it cannot be loaded), unsupported (it is no plug-in of this version),
// already_exists (another one has a layout of the same name); then none of its layouts is there.
std::vector<std::string> load_layouts(const std::string& path);
// Of a box in the layout. Throws Error: not_found, unsupported (the plug-in refuses it).
std::uint64_t layout_bytes(std::string_view layout, const Dims& count, std::uint64_t element_bytes);

// Where elements are converted that a program gets in another memory order or type than the array has.
enum class ConvertAt : std::uint8_t {
  at_reader,   // by each program that gets them
  on_request,  // by the server, when the first program asks; it keeps the result for the next ones
  in_advance,  // by the server, when they are put, into the layouts that ArrayOptions names
  automatic,   // chosen for each request from measured costs; Space::explain says how
};
std::string_view name_of(ConvertAt place);
// Throws Error(invalid_argument), with the names.
ConvertAt convert_at_named(std::string_view name);

struct ArrayForm {
  DType dtype = DType::none;  // none: the array's
  Order order = Order::row;
  friend bool operator==(const ArrayForm&, const ArrayForm&) = default;
};

struct ArrayOptions {
  ConvertAt convert = ConvertAt::automatic;
  std::vector<ArrayForm> layouts{};  // for in_advance, at most 16
  // How many versions are there at most; 0: as many as fit. A new one begins when the lowest one has been dropped, and that is when
  // every reader has read it (Space::done); puts wait for that.
  std::uint32_t keep = 0;
  // The same, as bytes: as many whole versions as fit, at least one. define makes a number of it, or lowers `keep`; 0: no bound.
  std::uint64_t keep_bytes = 0;
  // A version that began longer ago goes when another one begins, once every reader has read it; puts do not wait for that. 0: no
  // version goes because of its age.
  std::uint64_t keep_ms = 0;
  std::vector<std::string> readers{};  // names of groups of programs, at most 64; none: versions go unread
  friend bool operator==(const ArrayOptions&, const ArrayOptions&) = default;
};

struct ArrayInfo {
  std::string name{};
  DType dtype = DType::none;
  Dims shape{};
  std::uint32_t parts = 0;  // pieces that lie on a server each
  ArrayOptions options{};
  std::vector<ArrayField> fields{};  // of an array of structures, whose dtype is none
};

// Elements that one put has brought.
struct ArrayBlock {
  Box box;
  std::string writer;       // "host:process number" of the program that put it
  std::int64_t put_us = 0;  // when: microseconds since 1970
};

// What one server has done for arrays since it started. Bytes are those of the layout that was asked for.
struct SpaceStatus {
  std::string server;
  std::uint64_t conversions = 0, converted_bytes = 0;
  double conversion_s = 0;  // of worker threads
  // What was asked for in another layout: given (of which some had been there, or under way for others), and left to readers.
  std::uint64_t requests = 0, given_bytes = 0, shared_bytes = 0, left_to_readers = 0;
  std::uint64_t replica_bytes = 0, replica_peak = 0, replica_limit = 0,
                evictions = 0;  // of converted replicas in memory
};

// A put that goes on.
class PendingPut {
 public:
  PendingPut(PendingPut&&) noexcept;
  PendingPut& operator=(PendingPut&&) noexcept;
  ~PendingPut();  // as wait, but says nothing of errors
  // Until the elements are there: from then on the source is the caller's again. Throws what put throws, once.
  void wait();

 private:
  friend class Space;
  struct State;
  explicit PendingPut(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Which versions of an array a subscription gives: start, start + step, ... below stop. It ends once no lower one can be given any
// more: with the version before stop, or when the box of one at or above stop is there.
struct VersionPattern {
  std::uint64_t start = 0, step = 1;
  std::optional<std::uint64_t> stop;
};

// Versions of an array in ascending order, each once all elements of a box are there. One that is dropped before that is skipped,
// and one that begins below a version already given is not given. An incomplete version holds back those above it: dropping it
// lets the subscription go on. Drops are not held back: ArrayOptions::readers does that. For one thread at a
// time; without its Space it throws wrong_state.
class VersionSubscription {
 public:
  VersionSubscription(VersionSubscription&&) noexcept;
  VersionSubscription& operator=(VersionSubscription&&) noexcept;
  ~VersionSubscription();
  // None: it has ended. Throws Error: timeout (names the boxes that are not there, or says
  // that no version began; the next call goes on), not_found (the array was dropped).
  std::optional<std::uint64_t> next(Timeout timeout = configured);
  // Versions that had begun, were waited for, and were dropped. Any thread.
  std::uint64_t skipped() const;

 private:
  friend class Space;
  struct State;
  explicit VersionSubscription(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class Space {
 public:
  // options.ns stays empty: a pool has one space.
  explicit Space(const Context& context, PoolOptions options = {});
  Space(Space&&) noexcept;
  Space& operator=(Space&&) noexcept;
  ~Space();

  // One to eight dimensions, and every type but string. The same definition again is no error, also without options.
  ArrayInfo define(std::string_view name, DType dtype, const Dims& shape, const ArrayOptions& options = {});
  // An array of structures of 1 to 64 fields. It is converted by its readers: `convert` is at_reader or automatic.
  ArrayInfo define(std::string_view name, const std::vector<ArrayField>& fields, const Dims& shape,
                   const ArrayOptions& options = {});
  ArrayInfo info(std::string_view name);
  std::vector<ArrayInfo> list();

  // The box of a version. Both wait until the array is defined, and get until the whole box is there. data: the box's elements, as
  // `memory` says. Integers wrap when they are converted without a check; floats become the nearest integer towards zero
  // within the range; real and complex numbers do not convert to each other.
  void put(std::string_view name, std::uint64_t version, const Box& box, const void* data,
           const ArrayMemory& memory = {}, Timeout timeout = configured);
  void get(std::string_view name, std::uint64_t version, const Box& box, void* data, const ArrayMemory& memory = {},
           Timeout timeout = configured);
  // Returns when the version has begun; `data` is read until PendingPut::wait has returned.
  PendingPut start_put(std::string_view name, std::uint64_t version, const Box& box, const void* data,
                       const ArrayMemory& memory = {}, Timeout timeout = configured);
  // What each server that holds some of the box would do for a get of it in this memory now, and why: a line each.
  std::vector<std::string> explain(std::string_view name, std::uint64_t version, const Box& box,
                                   const ArrayMemory& memory);
  std::vector<SpaceStatus> status();
  // Until the array is defined; until the whole box is there.
  ArrayInfo wait(std::string_view name, Timeout timeout = configured);
  void wait(std::string_view name, std::uint64_t version, const Box& box, Timeout timeout = configured);

  // Waits until the array is defined.
  VersionSubscription subscribe(std::string_view name, const Box& box, const VersionPattern& pattern = {},
                                Timeout timeout = configured);

  // This reader, one of ArrayOptions, has read the version and all before it: they may go.
  void done(std::string_view name, std::uint64_t version, std::string_view reader, Timeout timeout = configured);

  // Ascending. A version is there as soon as some of it was put.
  std::vector<std::uint64_t> versions(std::string_view name);
  std::optional<std::uint64_t> latest(std::string_view name);
  // The boxes whose elements are there, and who put them: disjoint, in no order.
  std::vector<ArrayBlock> blocks(std::string_view name, std::uint64_t version);

  // False when there was none. Whoever waits for it gets not_found, or goes on waiting where nothing of the version was.
  bool drop(std::string_view name, std::uint64_t version);
  // With all versions.
  bool drop(std::string_view name);

  struct Impl;  // the library's own

 private:
  friend class PendingPut;
  friend class VersionSubscription;
  ArrayInfo define(std::string_view name, DType dtype, const std::vector<ArrayField>& fields, const Dims& shape,
                   const ArrayOptions& options);
  explicit Space(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace penstock
