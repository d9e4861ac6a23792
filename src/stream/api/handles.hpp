// What is behind Writers and Readers of the public API.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/fork.hpp"
#include "penstock/stream.hpp"
#include "stream/api/engine.hpp"
#include "stream/api/step_builder.hpp"
#include "stream/api/step_reader.hpp"
#include "trace/stream_recorder.hpp"

namespace penstock {

struct Writer::Impl {
  Impl(std::unique_ptr<trace::StreamRecorder> trace, std::unique_ptr<stream::StepSink> sink, const Cohort& cohort,
       const StreamOptions& in_effect)
      : options(in_effect), recorder(std::move(trace)), builder(std::move(sink), cohort, options) {}

  static Impl& of(Writer& writer) { return *writer.impl_; }
  const std::string& name() const { return builder.name(); }

  const StreamOptions options;
  const base::Origin origin;                              // every call is refused in a forked child
  const std::unique_ptr<trace::StreamRecorder> recorder;  // null: no trace
  stream::StepBuilder builder;
};

struct Reader::Impl {
  Impl(std::unique_ptr<trace::StreamRecorder> trace, std::unique_ptr<stream::StepSource> source, int rank,
       const StreamOptions& in_effect)
      : options(in_effect), recorder(std::move(trace)), reader(std::move(source), options, rank) {}

  const std::string& name() const { return reader.name(); }

  const StreamOptions options;
  const base::Origin origin;                              // every call is refused in a forked child
  const std::unique_ptr<trace::StreamRecorder> recorder;  // null: no trace
  stream::StepReader reader;
  std::set<std::string> told;  // errors of its on_step function that were logged
  bool in_function = false;    // that function is being called
};

namespace stream {

// What is behind a Writer or Reader, or a step of it. Throws where there is nothing, and where it is the parent's, after fork.
template <class Impl>
Impl& live(Impl* impl) {
  if (!impl) throw Error(Errc::wrong_state, "this step has ended");
  if (impl->origin.inherited()) impl->origin.check("stream " + impl->name());
  return *impl;
}
template <class Impl>
Impl& live(const std::unique_ptr<Impl>& impl) {
  return live(impl.get());
}

// Whether there is nothing to end: nothing is behind it, or what is the parent's, which is dropped undestroyed.
template <class Impl>
bool left_to_parent(std::unique_ptr<Impl>& impl) {
  if (impl && impl->origin.inherited()) static_cast<void>(impl.release());
  return !impl;
}

}  // namespace stream
}  // namespace penstock
