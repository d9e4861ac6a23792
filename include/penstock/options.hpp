// What can be chosen at run time. Every struct here can be filled in code, from penstock.yaml and from the environment,
// by one mechanism (later wins: code, file, environment), and prints its effective state back. An unknown key is an
// Error(unknown_option) that suggests the nearest name.
//
// A member `fixed` names options, with commas between them, that code fixes: file and environment do not change them. What
// they say of these options is ignored with a warning. `fixed` itself is given in code only.
//
//   penstock.yaml:   streams: { heat: { queue_steps: 2, when_full: discard_oldest } }
//                    pools: { stage: { timeout_ms: 60000 } }
//                    coprocessing: { heat: { wait: automatic, every: 10, pipelines: [pictures.yaml] } }
//                    meshes: { results: { database: exodus, path: results.e } }
//   environment:     PENSTOCK_STREAM_HEAT="direct,queue_steps=2"   PENSTOCK_DIRECTORY=/run/user/1000/penstock
//                    PENSTOCK_STREAMS="queue_steps=8"              PENSTOCK_POOL_STAGE="timeout_ms=60000"
//                    PENSTOCK_COPROCESSING_HEAT="automatic,every=10,pipelines=pictures.yaml;sums.yaml"
//                    PENSTOCK_MESH_RESULTS="exodus,path=results.e,format=cdf5"
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

using Timeout = std::chrono::milliseconds;
// Waits for ever; only ever used because the caller says so.
inline constexpr Timeout forever = Timeout::max();
// "As configured": the stream's own step_timeout, open_timeout or close_timeout.
inline constexpr Timeout configured = Timeout(-1);

enum class WhenFull : std::uint8_t {
  block,           // begin_step waits for a reader to release a step, up to its deadline
  discard_newest,  // the new step is not written; readers never see it
  discard_oldest,  // the oldest step that no reader has begun gives way; if all are being read, the new one is dropped
};
enum class Delivery : std::uint8_t {
  every,   // each retained step, in order
  latest,  // begin_step gives the newest step and skips older ones
};
enum class DataPlane : std::uint8_t { automatic, shm, tcp, ucx };

// How safe what a pool was given is when it says so.
enum class Acknowledge : std::uint8_t {
  memory,      // one server has it
  replicated,  // every replica has it in memory
  durable,     // every replica has it on disk, synced
};

// One stream, either side. Options that concern the other side only are ignored (the two sides may share a file).
struct StreamOptions {
  // Where steps live: direct (in the writers' memory), pool (in staging servers), insitu (as direct, and what is lent stays in the
  // simulation's arrays), file (in HDF5 files) or space (as versions of arrays in a pool: docs/howto/share-arrays.md).
  // automatic: a writer's is direct; a reader finds the stream among living writers, in pools and in files.
  std::string engine = "automatic";
  DataPlane data_plane = DataPlane::automatic;

  // Writer: bounds are per rank, and hold for steps being written, waiting, and being read, together.
  std::uint32_t queue_steps = 4;
  std::uint64_t queue_bytes = std::uint64_t{2} << 30;
  WhenFull when_full = WhenFull::block;
  std::uint32_t rendezvous_readers = 1;  // the first begin_step waits for so many reader cohorts; 0: do not wait
  std::uint32_t reserve_steps = 0;       // newest released steps kept for late joiners, beyond queue_steps
  bool keep_first_step = false;          // the first step stays for late joiners, beyond queue_steps
  bool min_max = false;                  // compute min and max of every block at put (reads each block once more)
  std::uint64_t step_bytes = 0;          // the largest step expected per rank; its memory is made aside from open on

  // Reader
  Delivery delivery = Delivery::every;

  // Engine pool. Readers do not hold the writer: rendezvous_readers, reserve_steps and keep_first_step do not count here;
  // the queue is what the pool has not taken yet. A step may go once it is beyond a bound of retention (0: no such bound)
  // and every group in retain_for has read it; with retain_for alone, as soon as they have. No step goes while it is read.
  std::string pool{};                                   // "": the only one there is
  Acknowledge acknowledge = Acknowledge::memory;        // how safe a step is when its writer may forget it
  std::uint64_t stripe_bytes = std::uint64_t{4} << 20;  // a step is kept in pieces of about this size, on all servers
  std::uint32_t retain_steps = 0;
  std::uint64_t retain_bytes = 0;
  std::uint32_t retain_age_ms = 0;
  std::string retain_for{};  // names of reader groups, with commas between them (in the environment: +)
  // Writer, engines pool and file: no (replaces an earlier stream of the name), append (goes on after its newest step), or a
  // number, that of this run's first step: steps already stored are skipped.
  std::string resume = "no";
  std::string group{};  // reader: a name under which later runs go on where this one stopped; "": none
  // Reader, engines pool and file: the first step: oldest, newest, or a number (the first kept one not less).
  std::string start = "oldest";

  // Engine file. A step is complete once the writers' files of it are closed; readers read beside the writer, or later.
  std::string folder{};           // where the stream's files are; "": "<stream>.steps" in the working directory
  std::uint32_t compression = 0;  // writer: of arrays, by HDF5: 0 (none) to 9
  bool sync = false;              // writer: a step is complete only once the disk has it

  // Where what is done to it is recorded (docs/howto/trace.md): a folder, or a file "*.trace"; "": $PENSTOCK_TRACE,
  // else `trace` in penstock.yaml, else nowhere; "off": nowhere
  std::string trace{};

  // Both
  std::uint32_t spin_us = 20;  // spin at most so long before sleeping in a wait; 0: sleep at once
  std::uint32_t open_timeout_ms = 60'000;
  // 0: no timeout is chosen. A writer then waits for its readers as long as they take, and logs who they are; any other wait
  // ends after unchosen_timeout.
  std::uint32_t step_timeout_ms = 0;
  std::uint32_t close_timeout_ms = 0;

  std::string fixed{};
  // Names of options, with commas between them, that were given whatever their values: set_option, file and environment add
  // theirs. A member that code changed without set_option counts as given where it is not the default.
  std::string given{};
};
inline constexpr Timeout unchosen_timeout{60'000};

// What a simulation does while the analysis of a channel is busy. It sets the stream's when_full (and queue_steps), which the
// section `streams` may set otherwise.
enum class Wait : std::uint8_t {
  block,      // it waits for room, as the stream's when_full says
  drop,       // the new step is not written: when_full discard_newest
  latest,     // the oldest step that no reader has begun gives way: when_full discard_oldest
  automatic,  // a step is written if, and only if, the analysis is there and has room for one now: queue_steps 1
};

// A channel's coprocessor (penstock/coprocessor.hpp).
struct CoprocessorOptions {
  Wait wait = Wait::block;
  std::uint32_t every = 1;  // each so many requests are looked at, from the first on; the others are skipped
  std::vector<std::string> pipelines = {};  // what the analysis runs; as text with ; between them
  std::string output = "output";            // the folder of what an analysis in the simulation's process writes
};

// How an Exodus file is laid out. automatic: offset64 where it holds everything, else cdf5.
enum class MeshFormat : std::uint8_t { automatic, offset64, cdf5, netcdf4, netcdf4_classic };
// Bits of ids, connectivity and the like in a file; as_given: as the fields have them.
enum class MeshIntegers : std::uint8_t { as_given, bits_32, bits_64 };

// Where a mesh region is kept (penstock/mesh_database.hpp).
struct MeshOptions {
  // exodus, nemesis, stream, generated or null; "": stream, or what the ending of the path means
  std::string database{};
  std::string path{};  // of files, or the name of a stream; "": the region's name
  // Databases exodus and nemesis, writer:
  MeshFormat format = MeshFormat::automatic;
  MeshIntegers integers = MeshIntegers::as_given;
  std::uint32_t compression = 0;      // by deflate, 0 (none) to 9: formats netcdf4 and netcdf4_classic
  std::uint32_t states_per_file = 0;  // so many, then the next file of the series; 0: all states in one file
  bool shared = false;                // database exodus: all ranks write one file, in offset64 or cdf5
  bool sync = false;                  // a state is complete only once the disk has it
  // append: goes on after the last state of the region that is there, whose model must be the same; a time: after the last state up to
  // it, and later ones are dropped. Of streams: append, with the model as a new one.
  std::string resume = "no";
};

// A client of a pool (penstock/pool.hpp).
struct PoolOptions {
  std::string pool{};  // "": the only pool in the directory
  // The directory service, an address or "etcd://host:port,..."; "": $PENSTOCK_DIRECTORY_SERVICE, else the one registered on
  // this machine.
  std::string directory{};
  std::string role{};   // "", or read, write, compute, admin: what to ask for; "": the highest that the token allows
  std::string token{};  // "": from the directory
  std::string ns{};     // the namespace's name
  std::uint32_t timeout_ms = 30'000;
  DataPlane data_plane = DataPlane::automatic;  // how large objects move: automatic, tcp or ucx
  // Where to record this client's operations (docs/howto/trace.md): a file "*.trace", or a folder with one file for
  // each process; "": $PENSTOCK_TRACE, else `trace` in penstock.yaml, else nowhere; "off": nowhere, whatever those say
  std::string trace{};
  std::string fixed = "";
};

// What concerns the whole process. Here, too, the environment wins over the file, and the file over code.
struct ContextOptions {
  std::string config_file{};  // $PENSTOCK_CONFIG; "": penstock.yaml in the working directory if there
  std::string directory{};    // where streams register, and pools are found: a folder, or a directory service
      // (tcp://host:port/directory?token=..., etcd://host:port,...); $PENSTOCK_DIRECTORY; "": $XDG_RUNTIME_DIR/penstock, else
      // /tmp/penstock-<uid>
  // IPv4 or IPv6 address for tcp; $PENSTOCK_LISTEN; "::": every interface; "": loopback while the ranks and the directory are
  // on this host, else every interface.
  std::string listen = "";
  bool explicit_progress = false;  // true: no library thread; the application calls Context::progress()
  std::string fixed = "";          // of config_file, directory, listen
};

// Who gave an option its value.
enum class Source : std::uint8_t { builtin, code, file, environment };
struct OptionValue {
  std::string name{}, value{};
  Source source = Source::builtin;
  std::string from{};  // "default", "code", "fixed in code", "penstock.yaml:12", "PENSTOCK_STREAM_HEAT"
};

// The options as YAML, one "key: value" a line, in the order above.
std::string to_yaml(const StreamOptions&);
std::string coprocessor_options_to_yaml(const CoprocessorOptions&);
std::string mesh_options_to_yaml(const MeshOptions&);
// And back, with `given` empty. Throws as set_option does.
StreamOptions from_yaml(std::string_view text);
CoprocessorOptions coprocessor_options_from_yaml(std::string_view text);
MeshOptions mesh_options_from_yaml(std::string_view text);
// Sets one option from text ("queue_bytes", "64MiB"). Throws Error(unknown_option or invalid_argument).
void set_option(StreamOptions&, const std::string& key, const std::string& value);
void set_option(CoprocessorOptions&, const std::string& key, const std::string& value);
void set_option(MeshOptions&, const std::string& key, const std::string& value);
void set_option(PoolOptions&, const std::string& key, const std::string& value);

}  // namespace penstock
