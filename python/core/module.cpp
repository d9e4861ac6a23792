// The module penstock._core: the context, and opening streams.
#include "core.hpp"
#include "penstock/version.hpp"

namespace penstock::python {
namespace {

StreamOptions options_of(const nb::dict& from) {
  StreamOptions options;
  for (auto [key, value] : from) set_option(options, nb::cast<std::string>(key), nb::cast<std::string>(value));
  return options;
}

class PyContext {
 public:
  explicit PyContext(ContextOptions options) : context_(std::make_unique<Context>(std::move(options))) {}
  ~PyContext() { shut_down(); }

  std::unique_ptr<PyWriter> create_stream(const std::string& name, nb::object cohort, const nb::dict& options) {
    auto& context = this->context();
    auto chosen = options_of(options);
    auto ranks = cohort_of(std::move(cohort));
    nb::gil_scoped_release release;
    return std::make_unique<PyWriter>(context.create_stream(name, std::move(ranks), chosen));
  }

  std::unique_ptr<PyReader> open_stream(const std::string& name, nb::object cohort, const nb::dict& options) {
    auto& context = this->context();
    auto chosen = options_of(options);
    auto ranks = cohort_of(std::move(cohort));
    nb::gil_scoped_release release;
    return std::make_unique<PyReader>(context.open_stream(name, std::move(ranks), chosen));
  }

  // As "key: value" lines.
  std::string options_for(const std::string& stream, const nb::dict& options) {
    return to_yaml(context().options_for(stream, options_of(options)));
  }

  std::vector<StreamEntry> list_streams() {
    auto& context = this->context();
    nb::gil_scoped_release release;
    return context.list_streams();
  }

  bool progress() {
    auto& context = this->context();
    nb::gil_scoped_release release;
    return context.progress();
  }

  void shut_down() {
    if (context_) drop_unlocked(context_);
  }
  void forget() { static_cast<void>(context_.release()); }

 private:
  Context& context() {
    if (!context_) throw Error(Errc::wrong_state, "the context has been shut down");
    return *context_;
  }
  std::unique_ptr<Context> context_;
};

}  // namespace

void bind_context(nb::module_& m) {
  nb::class_<PyContext>(m, "Context")
      .def(
          "__init__",
          [](PyContext* self, std::string config, std::string directory, std::string listen, bool explicit_progress) {
            nb::gil_scoped_release release;
            new (self) PyContext({std::move(config), std::move(directory), std::move(listen), explicit_progress});
          },
          "config_file"_a, "directory"_a, "listen"_a, "explicit_progress"_a)
      .def("create_stream", &PyContext::create_stream, "name"_a, "cohort"_a.none(), "options"_a)
      .def("open_stream", &PyContext::open_stream, "name"_a, "cohort"_a.none(), "options"_a)
      .def("options_for", &PyContext::options_for, "stream"_a, "options"_a)
      .def("list_streams", &PyContext::list_streams)
      .def("progress", &PyContext::progress)
      .def("shut_down", &PyContext::shut_down)
      .def("forget", &PyContext::forget);
}

}  // namespace penstock::python

NB_MODULE(_core, m) {
  // Streams that a program leaves open live in reference cycles that the interpreter may not collect at exit; atexit
  // has closed what is behind them.
  nanobind::set_leak_warnings(false);
  m.attr("version") = penstock::version;
  penstock::python::bind_values(m);
  penstock::python::bind_writer(m);
  penstock::python::bind_reader(m);
  penstock::python::bind_context(m);
}
