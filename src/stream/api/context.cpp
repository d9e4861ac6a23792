// Contexts: configuration, the library's thread, and how streams are opened.
#include "stream/api/context.hpp"

#include <optional>
#include <span>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "directory/server.hpp"
#include "fabric/exit.hpp"
#include "fabric/registration.hpp"
#include "stream/api/find.hpp"
#include "stream/api/handles.hpp"
#include "stream/api/inspect.hpp"
#include "stream/api/registry.hpp"

namespace penstock {
namespace {

constexpr Timeout directory_patience(10'000);
constexpr int most_last_turns = 1000;  // of an engine that the application polls

std::span<const stream::EngineEntry> all_engines() {
  return stream::engines != nullptr ? stream::engines() : std::span<const stream::EngineEntry>();
}

const stream::EngineEntry& engine_named(const std::string& name) {
  std::vector<std::string_view> names;
  for (const auto& entry : all_engines()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  throw Error(Errc::unsupported, base::unknown_name("engine", name, names));
}

// A stream that a program names to read it: by its name, its address, or its place.
struct Named {
  std::string stream;
  StreamOptions options;  // in effect
  std::string given;      // to the engine: the name or the address
  stream::Place place = {};
};
// find(name, options): where the stream is; called if neither the program nor the configuration says it.
template <class Find>
Named named(std::string_view name, StreamOptions options, const std::string& config_file, Find find) {
  std::string stream(name);
  const auto located = [&](StreamOptions& of) {
    for (const auto& entry : all_engines()) {
      stream = name;
      if (!entry.locate || !entry.locate(stream, of)) continue;
      of.engine = entry.name;
      return true;
    }
    return false;
  };
  const bool address = fabric::is_address(name);
  const bool by_path = !address && located(options);
  if (address) stream = fabric::parse_address(name).stream;
  else if (!by_path) fabric::check_stream_name(name);
  base::check(options);
  stream::Place place;
  if (!by_path) {
    const auto chosen = base::options_for_stream(stream, options, config_file);
    if (chosen.engine != base::automatic_engine) place.engine = chosen.engine;
    else if (address) place.engine = "direct";
    else if (!options.folder.empty()) place.engine = "file";
    else if (!options.pool.empty()) place.engine = "pool";
    else place = find(stream, chosen);
  }
  options = base::options_in_effect(stream, base::Side::reader, options, config_file, place.engine);
  if (by_path) located(options);  // the name says so, whatever the configuration says
  if (!place.found.pool.empty()) options.pool = place.found.pool;
  return {stream, options, by_path ? stream : std::string(name), std::move(place)};
}

// What an engine says of a stream, a JSON object, with where that is.
std::string with_place(std::string json, const std::string& engine, const std::string& pool) {
  const auto where = "\"engine\": \"" + engine + "\", " + (pool.empty() ? "" : "\"pool\": \"" + pool + "\", ");
  return json.insert(json.find('{') + 1, where);
}

// Opens one side of a stream: what its calls are recorded with, if they are, and the engine's part.
template <class Open>
auto opened(trace::Verb verb, const ContextOptions& context, const std::string& stream, const Cohort& cohort,
            const StreamOptions& options, Open open) {
  auto recorder = trace::StreamRecorder::open(base::settings(context).trace, stream, options);
  decltype(open()) part;
  trace::recorded(
      recorder, verb, [&] { part = open(); },
      [&](trace::StreamRecorder::Call& call) {
        call.open(cohort, options);
        if (part) call.version = part->cohort_number();
      });
  return std::pair(std::move(recorder), std::move(part));
}

}  // namespace

Context::Context(ContextOptions options) {
  const auto settings = base::settings(options);
  base::warn_of_ignored(settings);
  options.config_file = settings.config_file;
  options.directory = settings.directory;
  options.listen = settings.listen;
  options.fixed = "config_file,directory,listen";  // whatever becomes of the environment
  if (!settings.log.empty()) base::set_log_level(base::parse_level(settings.log));
  auto progress = fabric::Progress::create(options.explicit_progress ? fabric::Progress::Mode::explicit_poll
                                                                     : fabric::Progress::Mode::threaded);
  impl_.reset(new Impl{std::move(options),
                       {std::move(progress), settings.directory, settings.listen, settings.config_file},
                       settings.described});
}
Context::~Context() {
  if (!impl_) return;
  auto& progress = *impl_->engines.progress;
  if (progress.threaded()) {
    fabric::wait_at_exit(progress);
    return;
  }
  // What was closed has posted its end, which holds the engine, and from now on nobody polls.
  for (int turn = 0; turn < most_last_turns && progress.poll(); ++turn) {
  }
}
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

StreamOptions Context::options_for(std::string_view stream, StreamOptions defaults) const {
  return base::options_for_stream(stream, std::move(defaults), impl_->options.config_file);
}

std::vector<OptionValue> Context::describe_options(std::string_view stream, const StreamOptions& defaults) const {
  return base::describe_stream(stream, defaults, impl_->options.config_file);
}

std::vector<OptionValue> Context::describe_settings() const { return impl_->settings; }

CoprocessorOptions Context::coprocessor_options_for(std::string_view channel, CoprocessorOptions defaults) const {
  return base::options_for_coprocessor(channel, std::move(defaults), impl_->options.config_file);
}

MeshOptions Context::mesh_options_for(std::string_view region, MeshOptions defaults) const {
  return base::options_for_mesh(region, std::move(defaults), impl_->options.config_file);
}

Writer Context::create_stream(std::string_view name, std::shared_ptr<Cohort> cohort, StreamOptions options) const {
  fabric::check_stream_name(name);
  if (name == directory::directory_registration)
    throw Error(Errc::invalid_argument,
                "'directory' cannot name a stream: directory services register under this name");
  base::check(options);
  const std::string stream(name);
  options = base::options_in_effect(stream, base::Side::writer, options, impl_->options.config_file);
  const auto& engine = engine_named(options.engine);
  auto [recorder, sink] = opened(trace::Verb::write_open, impl_->options, stream, *cohort, options,
                                 [&] { return engine.create(impl_->engines, stream, *cohort, options); });
  return Writer(std::make_unique<Writer::Impl>(std::move(recorder), std::move(sink), *cohort, options));
}

Reader Context::open_stream(std::string_view name, std::shared_ptr<Cohort> cohort, StreamOptions options) const {
  const auto& engines = impl_->engines;
  std::optional<base::Deadline> end;
  const auto wait = [&](const std::string& stream, const StreamOptions& chosen) {
    end.emplace(Timeout(chosen.open_timeout_ms));
    return stream::wait_for_stream(engines, all_engines(), stream, *cohort, chosen, *end);
  };
  const auto which = named(name, std::move(options), impl_->options.config_file, wait);
  auto opening = which.options;
  if (end) opening.open_timeout_ms = static_cast<std::uint32_t>(end->remaining().count());
  const auto& engine = engine_named(which.options.engine);
  auto [recorder, source] = opened(trace::Verb::read_open, impl_->options, which.stream, *cohort, which.options,
                                   [&] { return engine.open(engines, which.given, *cohort, opening); });
  return Reader(std::make_unique<Reader::Impl>(std::move(recorder), std::move(source), cohort->rank(), which.options));
}

std::vector<StreamEntry> Context::list_streams() const {
  std::vector<StreamEntry> entries;
  const auto registry = stream::open_registry(impl_->engines.progress, impl_->options.directory);
  for (const auto& r : registry->list(base::Deadline(directory_patience)))
    entries.push_back({r.stream, fabric::to_address(r), r.host, r.pid, r.ranks, fabric::alive(r)});
  return entries;
}

std::string Context::inspect(std::string_view name, Timeout timeout, StreamOptions options) const {
  const base::Deadline deadline(timeout);
  const auto& engines = impl_->engines;
  if (fabric::is_address(name))
    return with_place(stream::inspect_writer(*engines.progress, fabric::parse_address(name), deadline), "direct", "");
  const auto find = [&](const std::string& stream, const StreamOptions& chosen) {
    return stream::find_stream(engines, all_engines(), stream, chosen, deadline);
  };
  const auto which = named(name, std::move(options), impl_->options.config_file, find);
  const auto& engine = engine_named(which.options.engine);
  const auto said = [&] {
    if (engine.inspect) return engine.inspect(engines, which.given, which.options, deadline);
    const auto registry = stream::open_registry(engines.progress, impl_->options.directory);
    const auto found = registry->read(name, deadline);
    if (!found)
      throw Error(Errc::not_found, "no stream " + std::string(name) + " is registered in " + registry->describe());
    return stream::inspect_writer(*engines.progress, *found, deadline);
  };
  return with_place(said(), which.options.engine, which.options.pool);
}

bool Context::progress() { return impl_->engines.progress->poll(); }

}  // namespace penstock
