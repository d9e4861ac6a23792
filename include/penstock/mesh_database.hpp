// Mesh databases: where a region (penstock/region.hpp) is written to and read from.
//
//   auto sink = mesh::create_region(context, "results", cohort);      // collective
//   sink->define(model);                                              // this rank's part
//   sink->write(slot, values);                                        // its model fields, those of role communication first
//   sink->begin_state(t);  sink->write(slot, values);  sink->end_state();   // or abandon_state()
//   sink->define(other);                                              // the topology has changed: the next states are of this model
//   sink->close();
//
// Which database it is: MeshOptions (code, then penstock.yaml, then PENSTOCK_MESH_<NAME>), else what the ending of the name means
// (.e, .exo, .g, .gen, .ex2: exodus), else a stream of that name, whose engine is an option of the stream.
//
//   exodus      one Exodus II file; of a cohort of several ranks: as nemesis, or (shared) one file. Readable while being written, except
//               netCDF-4, which has its name once it is closed. A second model begins a second file, name-s0002
//   nemesis     an Exodus file for each rank, name.RANKS.RANK, with communication maps
//   stream      a step for the model and one for each state, on any engine
//   generated   read only: "10x10x10|times:3", a grid of hexahedra
//   null        keeps nothing
//
// Values are packed, row by row, in the field's element type. An object is used by one thread at a time. Errors: Error, which names the
// file or stream. After one a Sink can only be closed, except after invalid_argument and wrong_state from write, begin_state and
// end_state, which change nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/cohort.hpp"
#include "penstock/options.hpp"
#include "penstock/region.hpp"
#include "penstock/stream.hpp"

namespace penstock::mesh {

// A field of a model, by its place in it.
struct Slot {
  std::size_t entity = 0;
  std::size_t field = 0;
};
// Throws Error(not_found).
Slot slot_of(const Model& model, EntityType type, std::string_view entity, std::string_view field);

struct Rows {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

// The outcome of waiting for a state. model: the topology has changed, Source::model is the new one, and its states follow.
struct StateOutcome {
  enum class Kind : std::uint8_t { state, model, not_ready, end } kind = Kind::end;
  double time = 0;
  std::uint64_t number = 0;  // of the state, from 0 for the region's first; also where a reader came later
};

class Source {
 public:
  virtual ~Source() = default;
  virtual std::uint32_t parts() const = 0;
  // Unchanged until next_state says so.
  virtual const Model& model(std::uint32_t part) = 0;
  // Goes on to the next complete state. A file has no more for now at its end: a later call looks again.
  virtual StateOutcome next_state(Timeout deadline) = 0;
  // Of the states of all models, where they can be sought. Throws Error(unsupported) where states can only be read in order.
  virtual std::vector<double> times() = 0;
  // The next state is this one. Where it is of another model, next_state gives that first.
  virtual void seek(std::uint64_t state) = 0;
  // Fields of the model, or of the present state. out: rows.count x components values. Throws Error(wrong_state) before a state.
  virtual void read(std::uint32_t part, Slot slot, Rows rows, void* out) = 0;
};

class Sink {
 public:
  virtual ~Sink() = default;  // without close: what is incomplete is not seen by readers
  // Before anything else, and again between states where the topology has changed. Collective. Throws Error(wrong_state) where another
  // writer has not closed the files yet.
  virtual void define(const Model& model) = 0;
  // Model fields before the first state, each once, those of role communication first (collective on nemesis); transient and reduction fields in each state. The whole field.
  virtual void write(Slot slot, const void* values) = 0;
  // Throws Error(wrong_state), which names a field of the model that was not written. Where ranks share a file the first begin_state,
  // end_state and close are collective, and throw on all ranks what one of them could not do.
  virtual void begin_state(double time) = 0;
  // The state is complete when all ranks have returned. A file (not netCDF-4) then has it whatever becomes of the writer; a stream holds the state in the
  // writer's memory until its readers, or the pool, have it (queue_steps states at most). Throws Error(wrong_state), which names a
  // field that was not written.
  virtual void end_state() = 0;
  // The state that was begun is given up, and another one can begin; after an error of the sink it does nothing. All ranks give up the
  // same state: of a stream none is seen that a rank has given up; files of several ranks that differ in that are not read.
  virtual void abandon_state() = 0;
  virtual void close() = 0;
};

// Collective. The context must live as long as what is returned.
std::unique_ptr<Source> open_region(const Context& context, const std::string& name,
                                    std::shared_ptr<Cohort> cohort = solo(), MeshOptions options = {});
std::unique_ptr<Sink> create_region(const Context& context, const std::string& name,
                                    std::shared_ptr<Cohort> cohort = solo(), MeshOptions options = {});

// All parts as one: nodes and elements with equal ids are merged. Nodes and elements are in the order of their ids, or in the one that
// spread() has kept. Throws Error(invalid_argument) where the parts contradict each other.
std::unique_ptr<Source> join(std::shared_ptr<Source> source);

inline constexpr std::uint32_t no_part = UINT32_MAX;
// By element, through the blocks: its part, or no_part, which leaves it out.
using Assignment = std::vector<std::uint32_t>;
// As many elements for each part, but for one, in their order.
Assignment assign_linear(const Model& model, std::uint32_t parts);
// Elements of these blocks alone, all in part 0. Throws Error(not_found).
Assignment assign_blocks(const Model& model, const std::vector<std::string>& blocks);
// An assignment as a load-balance file has it: what SEACAS's nem_slice writes and nem_spread reads.
struct LoadBalance {
  Assignment assignment;
  std::uint32_t parts = 0;
  std::uint64_t nodes = 0;  // of the mesh that it is for; 0: not known
};
// Throws Error: not_found, invalid_argument (no such file, damaged, or of nodes instead of elements), unsupported (no netCDF).
LoadBalance read_load_balance(const std::string& path);
// With the nodes of each part, and those that it shares with others. Replaces another load-balance file. whole: of one part. Throws
// as spread(), and Error(invalid_argument) for an element without a part, or where there is a file of another kind.
void write_load_balance(const std::string& path, std::shared_ptr<Source> whole, const LoadBalance& balance);
// Called for each model.
using Assign = std::function<Assignment(const Model&)>;
// A source of one part as several: each element with its nodes and with what belongs to it in sets. Nodes that several parts have are
// named in their comm sets. Throws Error(invalid_argument).
std::unique_ptr<Source> spread(std::shared_ptr<Source> source, Assign assign, std::uint32_t parts);
// For one model: next_state throws Error(wrong_state) where another one follows.
std::unique_ptr<Source> spread(std::shared_ptr<Source> source, Assignment assignment, std::uint32_t parts);
// Throws Error(invalid_argument) also where it is for a mesh with another number of nodes.
std::unique_ptr<Source> spread(std::shared_ptr<Source> source, LoadBalance balance);

}  // namespace penstock::mesh
