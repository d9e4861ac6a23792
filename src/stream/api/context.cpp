// Contexts: configuration, the library's thread, and how streams are opened.
#include "stream/api/context.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "fabric/exit.hpp"
#include "fabric/registration.hpp"
#include "stream/api/handles.hpp"
#include "stream/api/inspect.hpp"
#include "stream/api/registry.hpp"

namespace penstock {
namespace {

constexpr Timeout directory_patience(10'000);
constexpr int most_last_turns = 1000;  // of an engine that the application polls

const stream::EngineEntry& engine_named(const std::string& name) {
  std::vector<std::string_view> names;
  for (const auto& entry : stream::engines != nullptr ? stream::engines() : std::span<const stream::EngineEntry>()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  throw Error(Errc::unsupported, base::unknown_name("engine", name, names));
}

// A stream that is named by its folder, or by the file of a step in it: how its options are found, and where it is.
struct Files {
  std::string stream, folder, start;
};
std::optional<Files> files_named(std::string_view name) {
  namespace fs = std::filesystem;
  if (fabric::is_address(name)) return std::nullopt;
  std::error_code none;
  fs::path folder(name);
  if (name.find('/') == name.npos && !fs::exists(folder / "stream.json", none)) return std::nullopt;
  Files files;
  if (fs::is_regular_file(folder, none)) {
    files.start = folder.stem().string();
    folder = fs::absolute(folder).parent_path();
    if (files.start.find_first_not_of("0123456789") != std::string::npos)
      throw Error(Errc::invalid_argument, std::string(name) + " is not the file of a stream's step");
  }
  folder = fs::absolute(folder).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  files.folder = folder.string();
  files.stream = folder.stem().string().substr(0, 128);
  std::ranges::replace_if(
      files.stream, [](unsigned char c) { return !std::isalnum(c) && c != '.' && c != '_' && c != '-'; }, '_');
  return files;
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
  options.config_file = settings.config_file;
  options.directory = settings.directory;
  options.listen = settings.listen;
  if (!settings.log.empty()) base::set_log_level(base::parse_level(settings.log));
  auto progress = fabric::Progress::create(options.explicit_progress ? fabric::Progress::Mode::explicit_poll
                                                                     : fabric::Progress::Mode::threaded);
  impl_.reset(new Impl{std::move(options), {std::move(progress), settings.directory, settings.listen}});
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

Writer Context::create_stream(std::string_view name, std::shared_ptr<Cohort> cohort, StreamOptions options) const {
  fabric::check_stream_name(name);
  base::check(options);
  const std::string stream(name);
  options = base::options_in_effect(stream, base::Side::writer, options, impl_->options.config_file);
  const auto& engine = engine_named(options.engine);
  auto [recorder, sink] = opened(trace::Verb::write_open, impl_->options, stream, *cohort, options,
                                 [&] { return engine.create(impl_->engines, stream, *cohort, options); });
  return Writer(std::make_unique<Writer::Impl>(std::move(recorder), std::move(sink), *cohort, options));
}

Reader Context::open_stream(std::string_view name, std::shared_ptr<Cohort> cohort, StreamOptions options) const {
  std::string stream(name);
  const auto files = files_named(name);
  if (files) stream = files->stream;
  else if (fabric::is_address(name)) stream = fabric::parse_address(name).stream;
  else fabric::check_stream_name(name);
  const auto in_files = [&](StreamOptions& of) {  // the name says so, whatever the configuration says
    if (!files) return;
    of.engine = "file";
    of.folder = files->folder;
    if (!files->start.empty()) of.start = files->start;
  };
  in_files(options);
  base::check(options);
  options = base::options_in_effect(stream, base::Side::reader, options, impl_->options.config_file);
  in_files(options);
  const auto& engine = engine_named(options.engine);
  auto [recorder, source] = opened(trace::Verb::read_open, impl_->options, stream, *cohort, options, [&] {
    return engine.open(impl_->engines, files ? stream : std::string(name), *cohort, options);
  });
  return Reader(std::make_unique<Reader::Impl>(std::move(recorder), std::move(source), cohort->rank(), options));
}

std::vector<StreamEntry> Context::list_streams() const {
  std::vector<StreamEntry> entries;
  const auto registry = stream::open_registry(impl_->engines.progress, impl_->options.directory);
  for (const auto& r : registry->list(base::Deadline(directory_patience)))
    entries.push_back({r.stream, fabric::to_address(r), r.host, r.pid, r.ranks, fabric::alive(r)});
  return entries;
}

std::string Context::inspect(std::string_view name, Timeout deadline, StreamOptions options) const {
  if (fabric::is_address(name))
    return stream::inspect_writer(*impl_->engines.progress, fabric::parse_address(name), base::Deadline(deadline));
  fabric::check_stream_name(name);
  options = base::options_in_effect(name, base::Side::reader, options, impl_->options.config_file);
  const auto& engine = engine_named(options.engine);
  if (engine.inspect) return engine.inspect(impl_->engines, std::string(name), options, base::Deadline(deadline));
  const auto registry = stream::open_registry(impl_->engines.progress, impl_->options.directory);
  const auto found = registry->read(name, base::Deadline(deadline));
  if (!found)
    throw Error(Errc::not_found, "no stream " + std::string(name) + " is registered in " + registry->describe());
  return stream::inspect_writer(*impl_->engines.progress, *found, base::Deadline(deadline));
}

bool Context::progress() { return impl_->engines.progress->poll(); }

}  // namespace penstock
