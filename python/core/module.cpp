// The module penstock._core: the context, and opening streams.
#include <nanobind/stl/string_view.h>

#include <algorithm>

#include "base/config.hpp"
#include "coprocessor.hpp"
#include "core.hpp"
#include "penstock/version.hpp"
#include "stream/api/patience.hpp"

namespace penstock::python {
namespace {

// side: none where they are not for one side only.
StreamOptions options_of(const nb::dict& from, std::optional<base::Side> side = {}) {
  StreamOptions options;
  for (auto [name, value] : from)
    base::set_option(options, nb::cast<std::string>(name), nb::cast<std::string>(value), side);
  return options;
}

// (name, value, where it came from) of each.
nb::list described(const std::vector<OptionValue>& options) {
  nb::list out;
  for (const auto& option : options) out.append(nb::make_tuple(option.name, option.value, option.from));
  return out;
}

class PyContext {
 public:
  explicit PyContext(ContextOptions options) : context_(std::make_shared<Context>(std::move(options))) {}
  ~PyContext() { shut_down(); }

  std::unique_ptr<PyWriter> create_stream(const std::string& name, nb::object cohort, const nb::dict& options) {
    auto& context = this->context();
    auto chosen = options_of(options, base::Side::writer);
    auto ranks = cohort_of(std::move(cohort));
    Unlocked unlocked;
    return std::make_unique<PyWriter>(context.create_stream(name, std::move(ranks), chosen));
  }

  std::unique_ptr<PyReader> open_stream(const std::string& name, nb::object cohort, const nb::dict& options) {
    auto& context = this->context();
    auto chosen = options_of(options, base::Side::reader);
    auto ranks = cohort_of(std::move(cohort));
    Unlocked unlocked;
    return std::make_unique<PyReader>(context.open_stream(name, std::move(ranks), chosen));
  }

  std::unique_ptr<PyCoprocessor> create_coprocessor(const std::string& channel, nb::object cohort,
                                                    const nb::dict& options, nb::object start) {
    context();
    return std::make_unique<PyCoprocessor>(context_, channel, std::move(cohort), options, std::move(start));
  }

  nb::list describe_options(const std::string& stream, const nb::dict& options) {
    return described(context().describe_options(stream, options_of(options)));
  }
  nb::list describe_pool(const std::string& pool) {
    PoolOptions options;
    options.pool = pool;
    const auto settings = context().describe_settings();
    const auto file = std::ranges::find(settings, "config_file", &OptionValue::name);
    return described(base::describe_pool(std::move(options), file->value));
  }
  nb::list describe_settings() { return described(context().describe_settings()); }

  std::vector<StreamEntry> list_streams() {
    auto& context = this->context();
    Unlocked unlocked;
    return context.list_streams();
  }

  std::string inspect(const std::string& name, std::int64_t timeout_ms, const nb::dict& options) {
    auto& context = this->context();
    const auto chosen = options_of(options, base::Side::reader);
    Unlocked unlocked;
    return context.inspect(name, timeout_of(timeout_ms), chosen);
  }

  nb::object open_pool(const nb::dict& options) { return penstock::python::open_pool(context(), options); }
  nb::object open_space(const nb::dict& options) { return penstock::python::open_space(context(), options); }
  nb::object open_region(const std::string& name, nb::object cohort, const nb::dict& options) {
    return penstock::python::open_region(context(), name, std::move(cohort), options);
  }
  nb::object create_region(const std::string& name, nb::object cohort, const nb::dict& options) {
    return penstock::python::create_region(context(), name, std::move(cohort), options);
  }
  nb::list known_pools(const std::string& directory, std::int64_t timeout_ms) {
    return penstock::python::known_pools(context(), directory, timeout_ms);
  }

  bool progress() {
    auto& context = this->context();
    Unlocked unlocked;
    return context.progress();
  }

  void shut_down() {
    if (context_) drop_unlocked(context_);
  }
  void forget() { static_cast<void>(new std::shared_ptr<Context>(std::move(context_))); }

 private:
  Context& context() {
    if (!context_) throw Error(Errc::wrong_state, "the context has been shut down");
    return *context_;
  }
  std::shared_ptr<Context> context_;
};

}  // namespace

void bind_context(nb::module_& m) {
  nb::class_<PyContext>(m, "Context")
      .def(
          "__init__",
          [](PyContext* self, const nb::dict& settings) {
            ContextOptions options;
            for (auto [name, value] : settings)
              base::set_option(options, nb::cast<std::string>(name), nb::cast<std::string>(value));
            Unlocked unlocked;
            new (self) PyContext(std::move(options));
          },
          "settings"_a)
      .def("create_stream", &PyContext::create_stream, "name"_a, "cohort"_a.none(), "options"_a)
      .def("open_stream", &PyContext::open_stream, "name"_a, "cohort"_a.none(), "options"_a)
      .def("create_coprocessor", &PyContext::create_coprocessor, "channel"_a, "cohort"_a.none(), "options"_a, "start"_a)
      .def("describe_options", &PyContext::describe_options, "stream"_a, "options"_a)
      .def("describe_pool", &PyContext::describe_pool, "pool"_a)
      .def("describe_settings", &PyContext::describe_settings)
      .def("list_streams", &PyContext::list_streams)
      .def("inspect", &PyContext::inspect, "name"_a, "timeout_ms"_a, "options"_a)
      .def("open_pool", &PyContext::open_pool, "options"_a, nb::sig("def open_pool(self, options: dict) -> Pool"))
      .def("open_space", &PyContext::open_space, "options"_a, nb::sig("def open_space(self, options: dict) -> Space"))
      .def("open_region", &PyContext::open_region, "name"_a, "cohort"_a.none(), "options"_a,
           nb::sig("def open_region(self, name: str, cohort: object | None, options: dict) -> RegionSource"))
      .def("create_region", &PyContext::create_region, "name"_a, "cohort"_a.none(), "options"_a,
           nb::sig("def create_region(self, name: str, cohort: object | None, options: dict) -> RegionSink"))
      .def("known_pools", &PyContext::known_pools, "directory"_a, "timeout_ms"_a)
      .def("progress", &PyContext::progress)
      .def("shut_down", &PyContext::shut_down)
      .def("forget", &PyContext::forget);
}

}  // namespace penstock::python

NB_MODULE(_core, m) {
  // What is left when the interpreter ends is reported unless begin_exit(quiet=true).
  m.def(
      "begin_exit",
      [](bool quiet) {
        if (quiet) nanobind::set_leak_warnings(false);
        penstock::python::begin_exit();
      },
      nanobind::arg("quiet"));
  m.def("forget_threads", penstock::python::forget_threads);
  // For tests: how soon a writer that waits for its readers says so.
  m.def(
      "set_first_warning", [](int ms) { penstock::stream::Patience::set_first_warning(std::chrono::milliseconds(ms)); },
      nanobind::arg("ms"));
  m.attr("version") = penstock::version;
  m.attr("stream_options") = nanobind::tuple(nanobind::cast(penstock::base::stream_option_names()));
  m.attr("mesh_options") = nanobind::tuple(nanobind::cast(penstock::base::mesh_option_names()));
  m.attr("max_amr_depth") = penstock::max_amr_depth;
  penstock::python::bind_values(m);
  penstock::python::bind_writer(m);
  penstock::python::bind_reader(m);
  penstock::python::bind_coprocessor(m);
  penstock::python::bind_pool(m);
  penstock::python::bind_space(m);
  penstock::python::bind_mesh(m);
  penstock::python::bind_rpc(m);
  penstock::python::bind_fragments(m);
  penstock::python::bind_context(m);
}
