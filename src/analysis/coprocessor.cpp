// The public calls: checks, times, and the border between a step and its coprocessor.
#include "penstock/coprocessor.hpp"

#include <exception>
#include <utility>

#include "analysis/coprocessor_impl.hpp"
#include "analysis/python_part.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "penstock/error.hpp"

namespace penstock {
namespace {

class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += base::seconds_since(start_); }
  Stopwatch(const Stopwatch&) = delete;

 private:
  double& sum_;
  const base::Clock::time_point start_ = base::Clock::now();
};

Coprocessor::Impl& usable(const std::unique_ptr<Coprocessor::Impl>& impl) {
  if (!impl) throw Error(Errc::wrong_state, "this coprocessor was moved from");
  impl->check_usable();
  return *impl;
}

template <class T>
void read_value(const analysis::Steering& steering, std::string_view name, T& out) {
  const auto& value = steering.value(name);
  const auto* found = std::get_if<T>(&value);
  if (!found)
    throw Error(Errc::invalid_argument,
                "parameter '" + std::string(name) + "' is of type " + std::string(analysis::type_of(value)));
  out = *found;
}

}  // namespace

Coprocessor::Coprocessor(const Context& context, std::string_view channel, std::shared_ptr<Cohort> cohort,
                         CoprocessorOptions options, StreamOptions stream, StartAnalysis start)
    : impl_(std::make_unique<Impl>(context, channel, std::move(cohort), std::move(options), std::move(stream),
                                   std::move(start))) {
  if (impl_->stream.engine == "insitu" && !impl_->options.pipelines.empty() && !impl_->start) analysis::python_part();
}
Coprocessor::Coprocessor(Coprocessor&&) noexcept = default;

Coprocessor::~Coprocessor() {
  if (!impl_) return;
  if (impl_->origin.inherited()) {
    static_cast<void>(impl_.release());
    return;
  }
  try {
    impl_->end(configured, std::uncaught_exceptions() > 0);
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "the channel did not close well", {{"channel", impl_->channel}, {"why", e.what()}});
  }
}

const std::string& Coprocessor::channel() const { return impl_->channel; }

void Coprocessor::add_pipeline(const std::string& path) {
  auto& impl = usable(impl_);
  if (impl.counted.requests > 0)
    throw Error(Errc::wrong_state, "pipeline " + path + ": pipelines are added before the first request");
  if (impl.stream.engine == "insitu" && !impl.start) analysis::python_part();
  impl.options.pipelines.push_back(path);
}

void Coprocessor::set_mesh(std::string_view name, Mesh mesh) { usable(impl_).fields.set_mesh(name, std::move(mesh)); }

std::uint32_t Coprocessor::field(std::string_view mesh, std::string_view name, DType dtype,
                                 const FieldOptions& options) {
  auto& impl = usable(impl_);
  return impl.fields.add_field(impl.writer, mesh, name, dtype, options);
}

std::uint32_t Coprocessor::structure(std::string_view mesh, std::string_view variable, DType dtype, Order order) {
  auto& impl = usable(impl_);
  return impl.fields.add_structure(impl.writer, mesh, variable, dtype, order);
}

void Coprocessor::declare(std::string_view name, bool value) { usable(impl_).steering.declare(name, value); }
void Coprocessor::declare(std::string_view name, std::string value) {
  usable(impl_).steering.declare(name, std::move(value));
}
void Coprocessor::declare_number(std::string_view name, double value, double least, double greatest) {
  usable(impl_).steering.declare(name, value, least, greatest);
}
void Coprocessor::declare_integer(std::string_view name, std::int64_t value, std::int64_t least,
                                  std::int64_t greatest) {
  usable(impl_).steering.declare(name, value, least, greatest);
}
void Coprocessor::read(std::string_view name, bool& out) const { read_value(impl_->steering, name, out); }
void Coprocessor::read(std::string_view name, std::int64_t& out) const { read_value(impl_->steering, name, out); }
void Coprocessor::read(std::string_view name, double& out) const { read_value(impl_->steering, name, out); }
void Coprocessor::read(std::string_view name, std::string& out) const { read_value(impl_->steering, name, out); }

std::optional<CoprocessStep> Coprocessor::request(std::int64_t cycle, double time) {
  auto& impl = usable(impl_);
  Stopwatch watch(impl.counted.request_s);
  auto step = impl.request(cycle, time);
  if (!step) return std::nullopt;
  return CoprocessStep(&impl, std::move(*step));
}

CoprocessorStatistics Coprocessor::statistics() const { return impl_->statistics(); }
Writer& Coprocessor::writer() { return impl_->writer; }
int Coprocessor::finalize(Timeout deadline) { return impl_->end(deadline, false); }
void Coprocessor::lose() { impl_->end(configured, true); }

// ---------------------------------------------------------------------------------------------------------- the step

CoprocessStep::CoprocessStep(Coprocessor::Impl* coprocessor, WriteStep step)
    : coprocessor_(coprocessor), step_(std::move(step)) {}
CoprocessStep::CoprocessStep(CoprocessStep&& other) noexcept
    : coprocessor_(other.coprocessor_), step_(std::exchange(other.step_, std::nullopt)) {}
CoprocessStep::~CoprocessStep() {
  if (!step_) return;
  if (!coprocessor_->origin.inherited()) coprocessor_->close_step(false);
}

WriteStep& CoprocessStep::step() {
  if (!step_) throw Error(Errc::wrong_state, "this step has ended");
  return *step_;
}

bool CoprocessStep::wants(std::uint32_t field) const {
  if (!step_) return false;
  coprocessor_->fields.variable(field);
  // One that was added meanwhile waits for the next step.
  return field < coprocessor_->wanted.size() && coprocessor_->wanted[field] != 0;
}

void CoprocessStep::put(std::uint32_t field, const Box& box, const void* data, std::span<const std::int64_t> strides) {
  auto& step = this->step();
  if (!wants(field)) return;
  Stopwatch watch(coprocessor_->counted.put_s);
  auto& variable = coprocessor_->reshaped(step, field);
  step.put(variable.id, analysis::ChannelFields::box_of(variable, box), data, strides);
}

void CoprocessStep::lend(std::uint32_t field, const Box& box, const void* data, std::span<const std::int64_t> strides) {
  auto& step = this->step();
  if (!wants(field)) return;
  Stopwatch watch(coprocessor_->counted.put_s);
  auto& variable = coprocessor_->reshaped(step, field);
  step.lend(variable.id, analysis::ChannelFields::box_of(variable, box), data, strides);
}

std::span<std::byte> CoprocessStep::put_span(std::uint32_t field, const Box& box) {
  auto& step = this->step();
  if (!wants(field)) return {};
  auto& variable = coprocessor_->reshaped(step, field);
  return step.put_span(variable.id, analysis::ChannelFields::box_of(variable, box));
}

void CoprocessStep::coprocess() {
  auto& step = this->step();
  auto& impl = *coprocessor_;
  Stopwatch watch(impl.counted.end_s);
  impl.put_metadata(step);
  struct Over {
    CoprocessStep& self;
    bool published = false;
    ~Over() {
      self.coprocessor_->close_step(published);
      self.step_.reset();
    }
  } over{*this};
  // What end throws may come after the step is committed; shapes are set again then, which changes nothing.
  step.end();
  over.published = true;
}

}  // namespace penstock
