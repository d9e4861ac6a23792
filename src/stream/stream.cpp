// The public API over the engines: deadlines as configured, outcomes as values or exceptions, objects that end themselves.
#include "penstock/stream.hpp"

#include <exception>

#include "base/config.hpp"
#include "base/log.hpp"
#include "fabric/exit.hpp"
#include "fabric/registration.hpp"
#include "stream/engine.hpp"
#include "stream/inspect.hpp"
#include "stream/registry.hpp"

namespace penstock {
namespace {

constexpr Timeout directory_patience(10'000);
constexpr int most_last_turns = 1000;  // of an engine that the application polls

// The engine of a step or stream. Throws where there is none any more, and where it is the parent's, after fork.
template <class Engine>
Engine& live(Engine* engine) {
  if (!engine) throw Error(Errc::wrong_state, "this step has ended");
  engine->origin.check("stream " + engine->name());
  return *engine;
}
template <class Engine>
Engine& live(const std::unique_ptr<Engine>& engine) {
  return live(engine.get());
}

// Whether there is nothing to end: no engine, or one that is the parent's, which is dropped undestroyed.
template <class Engine>
bool left_to_parent(std::unique_ptr<Engine>& engine) {
  if (engine && engine->origin.inherited()) static_cast<void>(engine.release());
  return !engine;
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------- WriteStep

WriteStep::WriteStep(WriteStep&& other) noexcept : engine_(std::exchange(other.engine_, nullptr)) {}
WriteStep& WriteStep::operator=(WriteStep&& other) noexcept {
  WriteStep old(std::exchange(engine_, std::exchange(other.engine_, nullptr)));
  return *this;
}
WriteStep::~WriteStep() {
  if (!engine_ || engine_->origin.inherited()) return;
  try {
    engine_->abandon_step();
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "a step could not be abandoned", {{"why", e.what()}});
  }
}

std::uint64_t WriteStep::number() const { return live(engine_).step(); }
bool WriteStep::dropped() const { return live(engine_).dropped(); }
void WriteStep::set_shape(std::uint32_t variable, const Dims& shape) { live(engine_).set_shape(variable, shape); }
void WriteStep::put(std::uint32_t variable, const Box& box, const void* data, std::span<const std::int64_t> strides) {
  live(engine_).put(variable, box, data, strides);
}
std::span<std::byte> WriteStep::put_span(std::uint32_t variable, const Box& box) {
  return live(engine_).put_span(variable, box);
}
void WriteStep::lend(std::uint32_t variable, const Box& box, const void* data) {
  live(engine_).lend(variable, box, data);
}
void WriteStep::put_whole(std::uint32_t variable, const void* data) { live(engine_).put_whole(variable, data); }
void WriteStep::put_string(std::uint32_t variable, std::string_view value) {
  live(engine_).put_string(variable, value);
}
void WriteStep::put_attribute(std::string_view name, Attribute value) {
  live(engine_).put_attribute(name, std::move(value), stream::AttributeOf::step);
}
void WriteStep::end() {
  live(engine_);
  std::exchange(engine_, nullptr)->end_step();
}
void WriteStep::abandon() {
  live(engine_);
  std::exchange(engine_, nullptr)->abandon_step();
}

// ------------------------------------------------------------------------------------------------------------- Writer

Writer::Writer(std::unique_ptr<stream::WriterEngine> engine) : engine_(std::move(engine)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&& other) noexcept {
  Writer old(std::exchange(engine_, std::exchange(other.engine_, nullptr)));
  return *this;
}
Writer::~Writer() {
  if (left_to_parent(engine_) || engine_->closed()) return;
  try {
    if (std::uncaught_exceptions() > 0) engine_->lose();
    else engine_->close(configured);
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "the stream did not close well", {{"stream", engine_->name()}, {"why", e.what()}});
  }
}

const std::string& Writer::name() const { return engine_->name(); }
std::string Writer::address() const { return engine_->address(); }
std::uint32_t Writer::define(std::string_view name, DType dtype, const Dims& shape, VariableOptions options) {
  return live(engine_).define(name, dtype, shape, options);
}
void Writer::put_attribute(std::string_view name, Attribute value) {
  live(engine_).put_attribute(name, std::move(value), stream::AttributeOf::stream);
}

WriteStep Writer::begin_step(Timeout deadline) {
  if (!live(engine_).begin_step(deadline))
    throw Error(Errc::timeout, "stream " + name() + ": no room for a step in time; awaited: " + engine_->awaited());
  return WriteStep(engine_.get());
}
std::optional<WriteStep> Writer::try_begin_step(Timeout deadline) {
  if (!live(engine_).begin_step(deadline)) return std::nullopt;
  return WriteStep(engine_.get());
}
void Writer::close(Timeout deadline) { live(engine_).close(deadline); }
void Writer::lose() { live(engine_).lose(); }
StreamStatistics Writer::statistics() const { return live(engine_).statistics(); }

// ----------------------------------------------------------------------------------------------------------- ReadStep

ReadStep::ReadStep(ReadStep&& other) noexcept : engine_(std::exchange(other.engine_, nullptr)) {}
ReadStep& ReadStep::operator=(ReadStep&& other) noexcept {
  ReadStep old(std::exchange(engine_, std::exchange(other.engine_, nullptr)));
  return *this;
}
ReadStep::~ReadStep() {
  if (!engine_ || engine_->origin.inherited()) return;
  try {
    engine_->end_step();
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "a step did not end well", {{"why", e.what()}});
  }
}

std::uint64_t ReadStep::number() const { return live(engine_).step(); }
const std::vector<VariableInfo>& ReadStep::variables() const { return live(engine_).variables(); }
const VariableInfo* ReadStep::find(std::string_view name) const { return live(engine_).find(name); }
const VariableInfo& ReadStep::variable(std::string_view name) const { return live(engine_).variable(name); }
std::vector<BlockInfo> ReadStep::blocks(std::uint32_t variable) const { return live(engine_).blocks(variable); }
std::vector<std::string> ReadStep::attribute_names() const { return live(engine_).attribute_names(); }
std::optional<Attribute> ReadStep::attribute(std::string_view name) const { return live(engine_).attribute(name); }
std::optional<MinMax> ReadStep::min_max(std::uint32_t variable) const { return live(engine_).min_max(variable, {}); }
std::optional<MinMax> ReadStep::min_max(std::uint32_t variable, std::uint64_t block) const {
  return live(engine_).min_max(variable, block);
}
void ReadStep::get(std::uint32_t variable, const Selection& selection, void* out, Order order,
                   std::span<const std::int64_t> strides) {
  live(engine_).get(variable, selection, out, order, strides);
}
std::vector<std::string> ReadStep::read_strings(std::uint32_t variable) const {
  return live(engine_).read_strings(variable);
}
Dims ReadStep::shape_of(std::uint32_t variable, const Selection& selection) const {
  return live(engine_).shape_of(variable, selection);
}
void ReadStep::wait(Timeout deadline) { live(engine_).wait(deadline); }
Views ReadStep::view(std::uint32_t variable, const Selection& selection) {
  return live(engine_).view(variable, selection);
}
void ReadStep::end() {
  live(engine_);
  std::exchange(engine_, nullptr)->end_step();
}
void ReadStep::require_type(const VariableInfo& variable, DType dtype) {
  if (variable.dtype != dtype)
    throw Error(Errc::invalid_argument, variable.name + " holds " + std::string(penstock::name_of(variable.dtype)) +
                                            ", not " + std::string(penstock::name_of(dtype)));
}

// ------------------------------------------------------------------------------------------------------------- Reader

Reader::Reader(std::unique_ptr<stream::ReaderEngine> engine) : engine_(std::move(engine)) {}
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&& other) noexcept {
  Reader old(std::exchange(engine_, std::exchange(other.engine_, nullptr)));
  return *this;
}
Reader::~Reader() {
  if (left_to_parent(engine_)) return;
  try {
    engine_->close();
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "the reader did not close well", {{"stream", engine_->name()}, {"why", e.what()}});
  }
}

const std::string& Reader::name() const { return engine_->name(); }

ReadStep Reader::begin_step(Timeout deadline) {
  const auto outcome = live(engine_).begin_step(deadline);
  if (outcome == Outcome::ready) return ReadStep(engine_.get());
  const auto code = outcome == Outcome::not_ready       ? Errc::timeout
                    : outcome == Outcome::end_of_stream ? Errc::end_of_stream
                                                        : Errc::writer_lost;
  throw Error(code, "stream " + name() + ": " + engine_->why());
}

StepOutcome Reader::try_begin_step(Timeout deadline) {
  StepOutcome result;
  result.outcome = live(engine_).begin_step(deadline);
  if (result.outcome == Outcome::ready) result.step.emplace(ReadStep(engine_.get()));
  return result;
}
void Reader::seek(std::uint64_t step) { live(engine_).seek(step); }
std::vector<std::uint64_t> Reader::steps() { return live(engine_).steps(); }
void Reader::close() { live(engine_).close(); }
StreamStatistics Reader::statistics() const { return live(engine_).statistics(); }

// ------------------------------------------------------------------------------------------------------------ Context

Context::Context(ContextOptions options) : options_(std::move(options)) {
  const auto settings = base::settings(options_);
  options_.config_file = settings.config_file;
  options_.directory = settings.directory;
  options_.listen = settings.listen;
  if (!settings.log.empty()) base::set_log_level(base::parse_level(settings.log));
  progress_ = fabric::Progress::create(options_.explicit_progress ? fabric::Progress::Mode::explicit_poll
                                                                  : fabric::Progress::Mode::threaded);
}
Context::~Context() {
  if (!progress_) return;
  if (progress_->threaded()) {
    fabric::wait_at_exit(*progress_);
    return;
  }
  // What was closed has posted its end, which holds the engine, and from now on nobody polls.
  for (int turn = 0; turn < most_last_turns && progress_->poll(); ++turn) {
  }
}
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

StreamOptions Context::options_for(std::string_view stream, StreamOptions defaults) const {
  return base::options_for_stream(stream, std::move(defaults), options_.config_file);
}

stream::EngineContext Context::engine_context() const {
  return {progress_, options_.directory, options_.listen, base::settings(options_).trace};
}

Writer Context::create_stream(std::string_view name, std::shared_ptr<Cohort> cohort, StreamOptions options) const {
  fabric::check_stream_name(name);
  base::check(options);
  options = base::options_in_effect(name, base::Side::writer, options, options_.config_file);
  return Writer(stream::create_writer(engine_context(), std::string(name), std::move(cohort), options));
}

Reader Context::open_stream(std::string_view name, std::shared_ptr<Cohort> cohort, StreamOptions options) const {
  std::string stream(name);
  if (fabric::is_address(name)) stream = fabric::parse_address(name).stream;
  else fabric::check_stream_name(name);
  base::check(options);
  options = base::options_in_effect(stream, base::Side::reader, options, options_.config_file);
  return Reader(stream::open_reader(engine_context(), std::string(name), std::move(cohort), options));
}

std::vector<StreamEntry> Context::list_streams() const {
  std::vector<StreamEntry> entries;
  const auto registry = stream::open_registry(progress_, options_.directory);
  for (const auto& r : registry->list(base::Deadline(directory_patience)))
    entries.push_back({r.stream, fabric::to_address(r), r.host, r.pid, r.ranks, fabric::alive(r)});
  return entries;
}

std::string Context::inspect(std::string_view name, Timeout deadline) const {
  if (fabric::is_address(name))
    return stream::inspect_writer(*progress_, fabric::parse_address(name), base::Deadline(deadline));
  const auto registry = stream::open_registry(progress_, options_.directory);
  const auto found = registry->read(name, base::Deadline(deadline));
  if (!found)
    throw Error(Errc::not_found, "no stream " + std::string(name) + " is registered in " + registry->describe());
  return stream::inspect_writer(*progress_, *found, base::Deadline(deadline));
}

bool Context::progress() { return progress_->poll(); }

}  // namespace penstock
