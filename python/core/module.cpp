// The module penstock._core: the context, and opening streams.
#include <condition_variable>
#include <thread>

#include "core.hpp"
#include "penstock/version.hpp"

namespace penstock::python {
namespace {

StreamOptions options_of(const nb::dict& from) {
  StreamOptions options;
  for (auto [key, value] : from) set_option(options, nb::cast<std::string>(key), nb::cast<std::string>(value));
  return options;
}

// Opening waits for a writer to come, perhaps for long, and cannot be interrupted: a thread of its own does it, which
// touches nothing of Python, while Python asks from time to time. It tries in slices, growing ones so that a slow
// admission has its time in the end, and gives up between them when nobody asks any more: a reader that nobody wants
// could be the one that the writer waits for.
class PyOpening {
 public:
  PyOpening(std::shared_ptr<Context> context, std::string name, StreamOptions options, Timeout timeout) {
    std::thread([state = state_, context = std::move(context), name = std::move(name), options, timeout] {
      state->run(*context, name, options, timeout);
    }).detach();
  }
  ~PyOpening() { give_up(); }
  PyOpening(const PyOpening&) = delete;
  PyOpening& operator=(const PyOpening&) = delete;

  void give_up() {
    state_->given_up = true;
    Unlocked unlocked;
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_for(lock, first_slice * 2, [&] { return state_->done; });
  }

  // Null: not yet.
  std::unique_ptr<PyReader> wait(std::int64_t slice_ms) {
    Unlocked unlocked;
    std::unique_lock lock(state_->mutex);
    const auto slice = std::chrono::milliseconds(slice_ms);
    if (!state_->changed.wait_for(lock, slice, [&] { return state_->done; })) return nullptr;
    if (state_->error) std::rethrow_exception(state_->error);
    return std::make_unique<PyReader>(std::exchange(state_->reader, std::nullopt).value());
  }

 private:
  static constexpr Timeout first_slice{250};
  static constexpr Timeout last_slice{4000};
  struct State {
    std::atomic<bool> given_up = false;
    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr error;
    std::optional<Reader> reader;

    void run(Context& context, const std::string& name, StreamOptions options, Timeout timeout) {
      const auto end = std::chrono::steady_clock::now() + timeout;
      std::optional<Reader> opened;
      std::exception_ptr failed;
      for (auto slice = first_slice; !opened && !given_up; slice = std::min(2 * slice, last_slice)) {
        const auto left = std::chrono::ceil<Timeout>(end - std::chrono::steady_clock::now());
        const bool last = left <= slice;
        options.open_timeout_ms = static_cast<std::uint32_t>(std::max(last ? left : slice, Timeout(1)).count());
        try {
          opened = context.open_stream(name, solo(), options);
        } catch (const Error& e) {
          failed =
              std::make_exception_ptr(Error(e.code(), with_whole_time(e.what(), options.open_timeout_ms, timeout)));
          if (last || e.code() != Errc::timeout) break;
        } catch (...) {
          failed = std::current_exception();
          break;
        }
      }
      std::unique_lock lock(mutex);
      if (opened && !given_up) reader = std::move(opened);
      else error = failed;
      done = true;
      changed.notify_all();
    }
    // The library names the time of the last slice.
    static std::string with_whole_time(std::string message, std::uint32_t slice_ms, Timeout timeout) {
      const auto part = "within " + std::to_string(slice_ms) + " ms";
      if (auto at = message.find(part); at != message.npos)
        message.replace(at, part.size(), "within " + std::to_string(timeout.count()) + " ms");
      return message;
    }
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class PyContext {
 public:
  explicit PyContext(ContextOptions options) : context_(std::make_shared<Context>(std::move(options))) {}
  ~PyContext() { shut_down(); }

  std::unique_ptr<PyWriter> create_stream(const std::string& name, nb::object cohort, const nb::dict& options) {
    auto& context = this->context();
    auto chosen = options_of(options);
    auto ranks = cohort_of(std::move(cohort));
    Unlocked unlocked;
    return std::make_unique<PyWriter>(context.create_stream(name, std::move(ranks), chosen));
  }

  std::unique_ptr<PyReader> open_stream(const std::string& name, nb::object cohort, const nb::dict& options) {
    auto& context = this->context();
    auto chosen = options_of(options);
    auto ranks = cohort_of(std::move(cohort));
    Unlocked unlocked;
    return std::make_unique<PyReader>(context.open_stream(name, std::move(ranks), chosen));
  }

  std::unique_ptr<PyOpening> start_open(const std::string& name, const nb::dict& options, std::int64_t timeout_ms) {
    context();
    return std::make_unique<PyOpening>(context_, name, options_of(options), timeout_of(timeout_ms));
  }

  // As "key: value" lines.
  std::string options_for(const std::string& stream, const nb::dict& options) {
    return to_yaml(context().options_for(stream, options_of(options)));
  }

  std::vector<StreamEntry> list_streams() {
    auto& context = this->context();
    Unlocked unlocked;
    return context.list_streams();
  }

  std::string inspect(const std::string& name, std::int64_t timeout_ms) {
    auto& context = this->context();
    Unlocked unlocked;
    return context.inspect(name, timeout_of(timeout_ms));
  }

  nb::object open_pool(const nb::dict& options) { return penstock::python::open_pool(context(), options); }
  nb::object start_replay(const nb::object& recording, const nb::dict& options, double speed, std::uint32_t clients,
                          bool keep, std::int64_t timeout_ms) {
    context();
    return penstock::python::start_replay(context_, recording, options, speed, clients, keep, timeout_ms);
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
  std::shared_ptr<Context> context_;  // shared with streams that are being opened
};

}  // namespace

void bind_context(nb::module_& m) {
  nb::class_<PyOpening>(m, "Opening")
      .def("wait", &PyOpening::wait, "slice_ms"_a, nb::sig("def wait(self, slice_ms: int) -> Reader | None"))
      .def("give_up", &PyOpening::give_up);

  nb::class_<PyContext>(m, "Context")
      .def(
          "__init__",
          [](PyContext* self, std::string config, std::string directory, std::string listen, bool explicit_progress) {
            Unlocked unlocked;
            new (self) PyContext({std::move(config), std::move(directory), std::move(listen), explicit_progress});
          },
          "config_file"_a, "directory"_a, "listen"_a, "explicit_progress"_a)
      .def("create_stream", &PyContext::create_stream, "name"_a, "cohort"_a.none(), "options"_a)
      .def("open_stream", &PyContext::open_stream, "name"_a, "cohort"_a.none(), "options"_a)
      .def("start_open", &PyContext::start_open, "name"_a, "options"_a, "timeout_ms"_a)
      .def("options_for", &PyContext::options_for, "stream"_a, "options"_a)
      .def("list_streams", &PyContext::list_streams)
      .def("inspect", &PyContext::inspect, "name"_a, "timeout_ms"_a)
      .def("open_pool", &PyContext::open_pool, "options"_a)
      .def("start_replay", &PyContext::start_replay, "recording"_a, "options"_a, "speed"_a, "clients"_a, "keep"_a,
           "timeout_ms"_a)
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
  m.attr("version") = penstock::version;
  penstock::python::bind_values(m);
  penstock::python::bind_writer(m);
  penstock::python::bind_reader(m);
  penstock::python::bind_pool(m);
  penstock::python::bind_trace(m);
  penstock::python::bind_rpc(m);
  penstock::python::bind_context(m);
}
