// The seam between the public API and where steps live. An engine is chosen by name at run time (engines.cpp, src/engines).
//
// Contract: include/penstock/stream.hpp; each function here is the one of the same name there, for one rank. An engine is
// used by one thread at a time; it takes care of its own threads. Errors leave it usable for close and destruction.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/fork.hpp"
#include "fabric/progress.hpp"
#include "penstock/stream.hpp"

namespace penstock::stream {

// Whether an attribute was put into the open step, and goes with it when it is void, or into the stream.
enum class AttributeOf : std::uint8_t { step, stream };

class WriterEngine {
 public:
  const base::Origin origin;  // the public API refuses every call in a forked child
  virtual ~WriterEngine() = default;
  virtual const std::string& name() const = 0;
  virtual std::string address() const = 0;

  virtual std::uint32_t define(std::string_view name, DType dtype, const Dims& shape,
                               const VariableOptions& options) = 0;
  virtual void put_attribute(std::string_view name, Attribute value, AttributeOf of) = 0;

  virtual bool begin_step(Timeout deadline) = 0;  // false: not within the deadline
  virtual std::string awaited() const = 0;        // who was, after that
  virtual std::uint64_t step() const = 0;
  virtual bool dropped() const = 0;
  virtual void set_shape(std::uint32_t variable, const Dims& shape) = 0;
  virtual void put(std::uint32_t variable, const Box& box, const void* data, std::span<const std::int64_t> strides) = 0;
  virtual std::span<std::byte> put_span(std::uint32_t variable, const Box& box) = 0;
  virtual void lend(std::uint32_t variable, const Box& box, const void* data) = 0;
  virtual void put_whole(std::uint32_t variable, const void* data) = 0;
  virtual void put_string(std::uint32_t variable, std::string_view value) = 0;
  virtual void end_step() = 0;
  virtual void abandon_step() = 0;

  virtual void close(Timeout deadline) = 0;
  virtual void lose() = 0;  // readers are told that the writer is lost
  virtual bool closed() const = 0;
  virtual StreamStatistics statistics() const = 0;
};

class ReaderEngine {
 public:
  const base::Origin origin;  // the public API refuses every call in a forked child
  virtual ~ReaderEngine() = default;
  virtual const std::string& name() const = 0;

  virtual Outcome begin_step(Timeout deadline) = 0;
  virtual std::string why() const = 0;  // the last outcome was not ready
  virtual std::uint64_t step() const = 0;
  virtual void seek(std::uint64_t step) = 0;
  virtual std::vector<std::uint64_t> steps() = 0;
  virtual const std::vector<VariableInfo>& variables() const = 0;
  virtual const VariableInfo* find(std::string_view name) const = 0;
  virtual const VariableInfo& variable(std::string_view name) const = 0;
  virtual std::vector<BlockInfo> blocks(std::uint32_t variable) const = 0;
  virtual std::vector<std::string> attribute_names() = 0;
  virtual std::optional<Attribute> attribute(std::string_view name) = 0;
  virtual std::optional<MinMax> min_max(std::uint32_t variable, std::optional<std::uint64_t> block) = 0;
  virtual std::vector<std::string> read_strings(std::uint32_t variable) = 0;
  virtual Dims shape_of(std::uint32_t variable, const Selection& selection) const = 0;
  virtual void get(std::uint32_t variable, const Selection& selection, void* out, Order order,
                   std::span<const std::int64_t> strides) = 0;
  virtual void wait(Timeout deadline) = 0;
  virtual Views view(std::uint32_t variable, const Selection& selection) = 0;
  virtual void end_step() = 0;

  virtual void close() = 0;
  virtual StreamStatistics statistics() const = 0;
};

// What an engine needs of its context.
struct EngineContext {
  std::shared_ptr<fabric::Progress> progress;
  std::string directory;
  std::string listen;
  std::string trace = {};  // where streams in pools are recorded unless their options say otherwise; "": nowhere
};

// One engine: how each side of a stream is opened.
struct EngineEntry {
  std::string_view name;  // a literal
  std::unique_ptr<WriterEngine> (*create)(const EngineContext&, const std::string& name, std::shared_ptr<Cohort>,
                                          const StreamOptions&);
  std::unique_ptr<ReaderEngine> (*open)(const EngineContext&, const std::string& name, std::shared_ptr<Cohort>,
                                        const StreamOptions&);
};
// src/engines says which there are; it stands above the modules that make them. Any thread.
void add_engine(const EngineEntry& engine);

// By StreamOptions::engine. Throws Error(unsupported).
std::unique_ptr<WriterEngine> create_writer(const EngineContext& context, const std::string& name,
                                            std::shared_ptr<Cohort> cohort, const StreamOptions& options);
std::unique_ptr<ReaderEngine> open_reader(const EngineContext& context, const std::string& name,
                                          std::shared_ptr<Cohort> cohort, const StreamOptions& options);

// The direct engine: blocks stay in the writers' own memory.
std::unique_ptr<WriterEngine> create_direct_writer(const EngineContext& context, const std::string& name,
                                                   std::shared_ptr<Cohort> cohort, const StreamOptions& options);
std::unique_ptr<ReaderEngine> open_direct_reader(const EngineContext& context, const std::string& name,
                                                 std::shared_ptr<Cohort> cohort, const StreamOptions& options);

}  // namespace penstock::stream
