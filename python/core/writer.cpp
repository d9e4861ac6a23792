// The writer at the border. A step is part of its writer here: what is called after it has ended fails, and nothing
// refers to it that could dangle.
#include "core.hpp"
#include "stream/api/handles.hpp"

#include <condition_variable>
#include <thread>

namespace penstock::python {

PyWriter::~PyWriter() {
  if (!writer_) return;
  try {
    lose();  // it was not closed: readers must not take what they have for all there is
  } catch (const Error&) {
    // Nobody is left to tell.
  }
}

Writer& PyWriter::writer() {
  origin_.check("stream " + name_);
  if (!writer_) throw Error(Errc::wrong_state, "stream '" + name_ + "' is closed");
  return *writer_;
}

WriteStep& PyWriter::step() {
  writer();
  if (!step_) throw Error(Errc::wrong_state, "stream '" + name_ + "' has no step open");
  return *step_;
}

Box PyWriter::box_of(const Sizes& start, const Dims& count) const {
  return {start.empty() ? Dims::filled(count.size(), 0) : dims_of(start), count};
}

std::uint32_t PyWriter::define(const std::string& name, const std::string& dtype, const Sizes& shape,
                               const std::string& kind, const std::string& order, bool min_max) {
  Turn turn(mutex_);
  VariableOptions options{kind_named(kind), order_named(order), min_max};
  auto id = writer().define(name, dtype_named(dtype), dims_of(shape), options);
  orders_[id] = options.order;
  return id;
}

bool PyWriter::try_begin_step(std::int64_t timeout_ms) {
  Turn turn(mutex_);
  auto& writer = this->writer();
  require_no_step(step_, name_);
  Unlocked unlocked;
  auto begun = writer.try_begin_step(timeout_of(timeout_ms));
  if (begun) step_.emplace(std::move(*begun));
  return step_.has_value();
}

bool PyWriter::keeps_waiting() {
  Turn turn(mutex_);
  auto& writer = this->writer();
  Unlocked unlocked;
  return Writer::Impl::of(writer).builder.keeps_waiting();
}

bool PyWriter::in_step() {
  Turn turn(mutex_);
  return step_.has_value();
}

void PyWriter::begin_step(std::int64_t timeout_ms) {
  Turn turn(mutex_);
  auto& writer = this->writer();
  require_no_step(step_, name_);
  Unlocked unlocked;
  step_.emplace(writer.begin_step(timeout_of(timeout_ms)));
}

std::uint64_t PyWriter::step_number() {
  Turn turn(mutex_);
  return step().number();
}

bool PyWriter::step_dropped() {
  Turn turn(mutex_);
  return step().dropped();
}

void PyWriter::set_shape(std::uint32_t variable, const Sizes& shape) {
  Turn turn(mutex_);
  step().set_shape(variable, dims_of(shape));
}

// None where the array is packed in the variable's order.
std::vector<std::int64_t> PyWriter::strides_of(std::uint32_t variable, const Buffer& buffer) const {
  const auto order = orders_.find(variable);
  if (order != orders_.end() && buffer.packed(order->second)) return {};
  return buffer.strides();
}

void PyWriter::put(std::uint32_t variable, const Sizes& start, nb::handle array) {
  Turn turn(mutex_);
  auto& step = this->step();
  Buffer buffer(array, false);
  const auto box = box_of(start, buffer.shape());
  const auto strides = strides_of(variable, buffer);
  Unlocked unlocked;  // whatever its size: memory for it may have to be waited for
  step.put(variable, box, buffer.data(), strides);
}

void PyWriter::lend(std::uint32_t variable, const Sizes& start, nb::handle array) {
  Turn turn(mutex_);
  auto& step = this->step();
  Buffer buffer(array, false);
  const auto box = box_of(start, buffer.shape());
  const auto strides = strides_of(variable, buffer);
  {
    Unlocked unlocked;
    step.lend(variable, box, buffer.data(), strides);
  }
  lent_.push_back(lent_array(std::move(buffer)));
}

void PyWriter::put_value(std::uint32_t variable, nb::handle array) {
  Turn turn(mutex_);
  auto& step = this->step();
  Buffer buffer(array, false);
  Unlocked unlocked;
  step.put_whole(variable, buffer.data());
}

void PyWriter::put_string(std::uint32_t variable, const std::string& value) {
  Turn turn(mutex_);
  step().put_string(variable, value);
}

std::unique_ptr<Memory> PyWriter::put_span(std::uint32_t variable, const Sizes& start, const Sizes& count) {
  Turn turn(mutex_);
  auto box = box_of(start, dims_of(count));
  auto& step = this->step();
  const auto span = [&] {
    Unlocked unlocked;
    return step.put_span(variable, box);
  }();
  auto order = orders_.find(variable);
  auto out = std::make_unique<Memory>();
  out->data = span.data();
  out->size = span.size();
  out->writable = true;
  out->owner = writer_;
  out->box = box;
  out->order = order == orders_.end() ? Order::row : order->second;
  return out;
}

void PyWriter::put_attribute(const std::string& name, const std::string& dtype, bool is_array, nb::bytes values,
                             std::vector<std::string> strings, bool of_step) {
  Turn turn(mutex_);
  auto* first = reinterpret_cast<const std::byte*>(values.c_str());
  Attribute value{dtype_named(dtype), is_array, {first, first + values.size()}, std::move(strings)};
  if (of_step) step().put_attribute(name, std::move(value));
  else writer().put_attribute(name, std::move(value));
}

void PyWriter::end_step() {
  Turn turn(mutex_);
  step();
  // The step is over also when this throws; lent arrays are free then.
  struct Over {
    PyWriter* self;
    ~Over() {
      self->step_.reset();
      self->lent_.clear();
    }
  } over{this};
  passed_on() = nullptr;
  try {
    Unlocked unlocked;
    step_->end();
  } catch (...) {
    if (!passed_on()) throw;
  }
  if (const auto passed = std::exchange(passed_on(), nullptr)) std::rethrow_exception(passed);
}

void PyWriter::abandon_step() {
  Turn turn(mutex_);
  step();
  struct Over {
    PyWriter* self;
    ~Over() {
      self->step_.reset();
      self->lent_.clear();
    }
  } over{this};
  Unlocked unlocked;
  step_->abandon();
}

// What closing needs; the thread that closes holds it too.
struct PyWriter::Closing {
  std::shared_ptr<Writer> writer;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
  StreamStatistics statistics;

  // how: closes it.
  template <class How>
  void run(How how) {
    std::exception_ptr failed;
    StreamStatistics last;
    try {
      how(*writer);
    } catch (...) {
      failed = std::current_exception();
    }
    try {
      last = writer->statistics();
    } catch (const Error&) {
      // Those of a closed writer are a courtesy.
    }
    writer.reset();
    std::unique_lock lock(mutex);
    error = failed;
    statistics = std::move(last);
    done = true;
    changed.notify_all();
  }
};

// Gives up an open step. Null when the stream is closed already.
std::shared_ptr<PyWriter::Closing> PyWriter::take_for_closing() {
  if (!writer_) return nullptr;
  closing_ = std::make_shared<Closing>();
  closing_->writer = std::exchange(writer_, nullptr);
  lent_.clear();
  auto step = std::exchange(step_, std::nullopt);
  Unlocked unlocked;
  step.reset();
  return closing_;
}

void PyWriter::close(std::int64_t timeout_ms) {
  Turn turn(mutex_);
  auto deadline = timeout_of(timeout_ms);
  auto closing = take_for_closing();
  if (!closing) return;
  Unlocked unlocked;
  closing->run([&](Writer& writer) { writer.close(deadline); });
  if (closing->error) std::rethrow_exception(closing->error);
}

void PyWriter::start_close(std::int64_t timeout_ms) {
  Turn turn(mutex_);
  auto deadline = timeout_of(timeout_ms);
  // Not joined: when the user interrupts the wait, it goes on alone and touches nothing of Python.
  if (auto closing = take_for_closing())
    std::thread([closing, deadline] { closing->run([&](Writer& writer) { writer.close(deadline); }); }).detach();
}

bool PyWriter::wait_close(std::int64_t slice_ms) {
  Turn turn(mutex_);
  if (!closing_) return true;
  Unlocked unlocked;
  std::unique_lock lock(closing_->mutex);
  const auto slice = std::chrono::milliseconds(slice_ms);
  if (!closing_->changed.wait_for(lock, slice, [&] { return closing_->done; })) return false;
  if (auto error = std::exchange(closing_->error, nullptr)) std::rethrow_exception(error);
  return true;
}

void PyWriter::lose() {
  Turn turn(mutex_);
  const auto closing = take_for_closing();
  if (!closing) return;
  Unlocked unlocked;
  closing->run([](Writer& writer) { writer.lose(); });
  if (closing->error) std::rethrow_exception(closing->error);
}

bool PyWriter::busy() { return !std::unique_lock(mutex_, std::try_to_lock); }

nb::dict PyWriter::statistics() {
  Turn turn(mutex_);
  origin_.check("stream " + name_);
  if (writer_) return to_dict(writer_->statistics());
  if (!closing_) return to_dict({});
  std::unique_lock lock(closing_->mutex);
  return to_dict(closing_->statistics);
}

void PyWriter::forget() {
  // The parent's threads are not here and its mutexes may be locked: nothing of this may run or be destroyed.
  auto* lost = new std::pair(std::move(writer_), std::move(step_));
  static_cast<void>(lost);
  step_.reset();
  new (&mutex_) std::mutex;  // a thread that is not here may hold it
}

void bind_writer(nb::module_& m) {
  nb::class_<PyWriter>(m, "Writer", "The writer of a stream. Timeouts in ms; -1: as configured.")
      .def_prop_ro("name", &PyWriter::name)
      .def_prop_ro("address", &PyWriter::address)
      .def_prop_ro("closed", &PyWriter::closed)
      .def_prop_ro("in_step", &PyWriter::in_step)
      .def("define", &PyWriter::define, "name"_a, "dtype"_a, "shape"_a, "kind"_a, "order"_a, "min_max"_a)
      .def("try_begin_step", &PyWriter::try_begin_step, "timeout_ms"_a)
      .def("begin_step", &PyWriter::begin_step, "timeout_ms"_a)
      .def("keeps_waiting", &PyWriter::keeps_waiting)
      .def("step_number", &PyWriter::step_number)
      .def("step_dropped", &PyWriter::step_dropped)
      .def("set_shape", &PyWriter::set_shape, "variable"_a, "shape"_a)
      .def("put", &PyWriter::put, "variable"_a, "start"_a, "array"_a)
      .def("lend", &PyWriter::lend, "variable"_a, "start"_a, "array"_a)
      .def("put_value", &PyWriter::put_value, "variable"_a, "array"_a)
      .def("put_string", &PyWriter::put_string, "variable"_a, "value"_a)
      .def("put_span", &PyWriter::put_span, "variable"_a, "start"_a, "count"_a)
      .def("put_attribute", &PyWriter::put_attribute, "name"_a, "dtype"_a, "is_array"_a, "values"_a, "strings"_a,
           "of_step"_a = false)
      .def("end_step", &PyWriter::end_step)
      .def("abandon_step", &PyWriter::abandon_step)
      .def("close", &PyWriter::close, "timeout_ms"_a)
      .def("start_close", &PyWriter::start_close, "timeout_ms"_a)
      .def("wait_close", &PyWriter::wait_close, "slice_ms"_a)
      .def("lose", &PyWriter::lose)
      .def("busy", &PyWriter::busy)
      .def("statistics", &PyWriter::statistics)
      .def("place", &PyWriter::place, nb::sig("def place(self) -> dict[str, str]"))
      .def("forget", &PyWriter::forget);
}

}  // namespace penstock::python
