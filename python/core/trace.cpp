// Recordings and replays: the extension's part. Text is JSON; python/penstock/trace.py makes of it what users see.
#include "penstock/trace.hpp"

#include <nanobind/stl/pair.h>

#include "core.hpp"

namespace penstock::python {
namespace {

class PyReplay {
 public:
  PyReplay(std::shared_ptr<Context> context, Recording recording, ReplayOptions options)
      : context_(std::move(context)),
        replay_(std::make_shared<Replay>(*context_, std::move(recording), std::move(options))) {}
  ~PyReplay() {
    if (origin_.leave(replay_, context_)) return;
    if (replay_) drop_unlocked(replay_);  // which waits for what is under way
    drop_unlocked(context_);
  }
  std::pair<std::uint64_t, std::uint64_t> progress() const { return replay_->progress(); }
  void stop() { replay_->stop(); }
  bool wait(std::int64_t slice_ms) {
    origin_.check("the replay");
    Unlocked unlocked;
    return replay_->wait(timeout_of(slice_ms));
  }
  std::string report() { return replay_->report(); }

 private:
  const Origin origin_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<Replay> replay_;
};

}  // namespace

nb::object start_replay(std::shared_ptr<Context> context, const nb::object& recording, const nb::dict& options,
                        double speed, std::uint32_t clients, bool keep, std::int64_t timeout_ms) {
  ReplayOptions chosen;
  chosen.pool = pool_options_of(options);
  chosen.speed = speed;
  chosen.clients = clients;
  chosen.keep = keep;
  chosen.timeout = timeout_of(timeout_ms);
  return nb::cast(
      std::make_unique<PyReplay>(std::move(context), nb::cast<const Recording&>(recording), std::move(chosen)));
}

void bind_trace(nb::module_& m) {
  const auto unlocked = nb::call_guard<Unlocked>();
  nb::class_<Recording>(m, "Recording")
      .def_static("read", &Recording::read, "paths"_a, unlocked)
      .def("summary", &Recording::summary, unlocked)
      .def("operations", &Recording::operations)
      .def("lines", &Recording::lines, "first"_a, "count"_a, unlocked)
      .def("write_lines", &Recording::write_lines, "path"_a, unlocked)
      .def("write_chrome_trace", &Recording::write_chrome_trace, "path"_a, unlocked);
  nb::class_<PyReplay>(m, "Replay")
      .def("progress", &PyReplay::progress)
      .def("stop", &PyReplay::stop)
      .def("wait", &PyReplay::wait, "slice_ms"_a)
      .def("report", &PyReplay::report);
}

}  // namespace penstock::python
