// The reader at the border. As with the writer, a step is part of its reader here.
#include "core.hpp"

namespace penstock::python {

PyReader::~PyReader() {
  if (closed_inside_) drop_unlocked(closed_inside_);
  if (!reader_) return;
  {
    // Gets that are pending fill their arrays as the step ends, so those live until then.
    Unlocked unlocked;
    step_.reset();
  }
  drop_unlocked(reader_);
}

Reader& PyReader::reader() {
  origin_.check("stream " + name_);
  if (!reader_) throw Error(Errc::wrong_state, "stream '" + name_ + "' is closed");
  return *reader_;
}

ReadStep& PyReader::step() {
  reader();
  if (!step_) throw Error(Errc::wrong_state, "stream '" + name_ + "' has no step open");
  return *step_;
}

std::string PyReader::try_begin_step(std::int64_t timeout_ms) {
  Turn turn(mutex_);
  auto& reader = this->reader();
  require_no_step(step_, name_);
  Outcome outcome;
  {
    Unlocked unlocked;
    auto result = reader.try_begin_step(timeout_of(timeout_ms));
    if (result.step) step_.emplace(std::move(*result.step));
    outcome = result.outcome;
  }
  switch (outcome) {
    case Outcome::ready: return "ready";
    case Outcome::not_ready: return "not_ready";
    case Outcome::end_of_stream: return "end_of_stream";
    case Outcome::writer_lost: return "writer_lost";
  }
  throw Error(Errc::internal, "an unknown outcome");
}

bool PyReader::in_step() {
  Turn turn(mutex_);
  return step_.has_value();
}

void PyReader::begin_step(std::int64_t timeout_ms) {
  Turn turn(mutex_);
  auto& reader = this->reader();
  require_no_step(step_, name_);
  Unlocked unlocked;
  step_.emplace(reader.begin_step(timeout_of(timeout_ms)));
}

void PyReader::seek(std::uint64_t step) {
  Turn turn(mutex_);
  reader().seek(step);
}

std::vector<std::uint64_t> PyReader::steps() {
  Turn turn(mutex_);
  auto& reader = this->reader();
  Unlocked unlocked;
  return reader.steps();
}

std::uint64_t PyReader::step_number() {
  Turn turn(mutex_);
  return step().number();
}

std::vector<VariableInfo> PyReader::variables() {
  Turn turn(mutex_);
  return step().variables();
}

VariableInfo PyReader::variable(const std::string& name) {
  Turn turn(mutex_);
  return step().variable(name);
}

bool PyReader::has(const std::string& name) {
  Turn turn(mutex_);
  return step().find(name) != nullptr;
}

std::vector<BlockInfo> PyReader::blocks(std::uint32_t variable) {
  Turn turn(mutex_);
  return step().blocks(variable);
}

// Whether the blocks cover an array of this shape without holes. False when finding out would take long.
bool PyReader::covered(std::uint32_t variable, const Sizes& shape) {
  Turn turn(mutex_);
  auto blocks = step().blocks(variable);
  std::erase_if(blocks, [](const auto& block) { return element_count(block.box.count) == 0; });
  std::uint64_t sum = 0;
  for (const auto& block : blocks) sum += element_count(block.box.count);
  if (sum != element_count(dims_of(shape)) || blocks.size() > 256) return false;
  // As large together as the array, and within it: covering when no two overlap.
  for (std::size_t a = 0; a < blocks.size(); ++a)
    for (std::size_t b = a + 1; b < blocks.size(); ++b) {
      const auto &p = blocks[a].box, &q = blocks[b].box;
      bool apart = false;
      for (std::size_t d = 0; d < p.start.size(); ++d)
        apart |= p.start[d] + p.count[d] <= q.start[d] || q.start[d] + q.count[d] <= p.start[d];
      if (!apart) return false;
    }
  return true;
}

std::vector<std::string> PyReader::attribute_names() {
  Turn turn(mutex_);
  auto& step = this->step();
  Unlocked unlocked;  // what varies from step to step is asked for when it is first looked at
  return step.attribute_names();
}

nb::object PyReader::attribute(const std::string& name) {
  Turn turn(mutex_);
  auto& step = this->step();
  const auto value = [&] {
    Unlocked unlocked;
    return step.attribute(name);
  }();
  if (!value) return nb::none();
  return nb::make_tuple(std::string(name_of(value->dtype)), value->is_array,
                        nb::bytes(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size()),
                        nb::cast(value->strings));
}

nb::object PyReader::min_max(std::uint32_t variable, std::optional<std::uint64_t> block) {
  Turn turn(mutex_);
  auto& step = this->step();
  const auto found = [&] {
    Unlocked unlocked;
    return block ? step.min_max(variable, *block) : step.min_max(variable);
  }();
  if (!found) return nb::none();
  auto size = size_of(found->dtype);
  return nb::make_tuple(nb::bytes(reinterpret_cast<const char*>(found->min), size),
                        nb::bytes(reinterpret_cast<const char*>(found->max), size));
}

std::vector<std::string> PyReader::strings(std::uint32_t variable) {
  Turn turn(mutex_);
  auto& step = this->step();
  Unlocked unlocked;
  return step.read_strings(variable);
}

nb::tuple PyReader::shape_of(std::uint32_t variable, const Selection& selection) {
  Turn turn(mutex_);
  return tuple_of(step().shape_of(variable, selection));
}

void PyReader::get(std::uint32_t variable, const Selection& selection, nb::handle out) {
  Turn turn(mutex_);
  auto& step = this->step();
  Buffer buffer(out, true);
  if (buffer.packed(Order::row)) {
    step.get(variable, selection, buffer.data(), Order::row);
  } else if (buffer.packed(Order::column)) {
    step.get(variable, selection, buffer.data(), Order::column);
  } else {
    auto strides = buffer.strides();
    step.get(variable, selection, buffer.data(), Order::row, strides);
  }
  pending_.push_back(std::move(buffer));
}

void PyReader::wait(std::int64_t timeout_ms) {
  Turn turn(mutex_);
  auto& step = this->step();
  struct Filled {
    PyReader* self;
    ~Filled() { self->pending_.clear(); }
  } filled{this};
  Unlocked unlocked;
  step.wait(timeout_of(timeout_ms));
}

std::vector<Memory> PyReader::view(std::uint32_t variable, const Selection& selection) {
  Turn turn(mutex_);
  auto& step = this->step();
  auto views = [&] {
    Unlocked unlocked;
    return step.view(variable, selection);
  }();
  std::vector<Memory> out;
  for (const auto& view : views) {
    Memory memory;
    memory.data = const_cast<std::byte*>(view.bytes().data());
    memory.size = view.bytes().size();
    memory.owner = view.owner();
    if (auto array = lent_array_at(memory.data))
      memory.owner = std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const Buffer>>>(
          view.owner(), std::move(array));
    memory.box = view.box();
    memory.order = view.order();
    memory.strides.assign(view.strides().begin(), view.strides().begin() + view.box().count.size());
    out.push_back(std::move(memory));
  }
  return out;
}

void PyReader::end_step() {
  Turn turn(mutex_);
  step();
  struct Over {
    PyReader* self;
    ~Over() {
      self->step_.reset();
      self->pending_.clear();
    }
  } over{this};
  Unlocked unlocked;
  step_->end();
}

std::exception_ptr& passed_on() {
  static thread_local std::exception_ptr passed;
  return passed;
}

void PyReader::on_step(nb::object function, bool raise) {
  Turn turn(mutex_);
  auto& reader = this->reader();
  // Dropped by whoever drops the reader, with or without the interpreter lock.
  const std::shared_ptr<nb::object> held(new nb::object(std::move(function)), [](nb::object* object) {
    nb::gil_scoped_acquire acquire;
    delete object;
  });
  const auto call = [this, held](ReadStep& step) {
    nb::gil_scoped_acquire acquire;
    const nb::object self = nb::find(this);  // the function may drop the last reference to it
    {
      Turn inside(mutex_);
      if (!reader_) return;  // closed meanwhile
      step_.emplace(std::move(step));
      in_function_ = true;
      function_thread_ = std::this_thread::get_id();
    }
    struct Over {
      PyReader* self;
      ReadStep& step;
      ~Over() {
        Turn inside(self->mutex_);
        self->in_function_ = false;
        if (self->step_) step = std::move(*self->step_);
        self->step_.reset();
        self->pending_.clear();
      }
    } over{this, step};
    try {
      (*held)();
    } catch (nb::python_error& e) {
      if (!e.matches(PyExc_Exception))
        passed_on() = std::current_exception();  // Ctrl-C, sys.exit: meant for the program, not for the analysis
      throw;
    }
  };
  reader.on_step(call, raise ? OnStepError::raise : OnStepError::report);
}

void PyReader::close() {
  std::unique_ptr<Reader> closing;
  std::optional<ReadStep> step;
  bool inside = false, elsewhere = false;  // its on_step function runs: this call is in it, or not
  {
    Turn turn(mutex_);
    if (!reader_) return;
    inside = in_function_ && function_thread_ == std::this_thread::get_id();
    elsewhere = in_function_ && !inside;
    closing = std::exchange(reader_, nullptr);
    if (!elsewhere) {
      step = std::exchange(step_, std::nullopt);
      pending_.clear();
    }
  }
  StreamStatistics statistics;
  {
    Unlocked unlocked;  // and without the mutex: close waits for a function that runs elsewhere
    step.reset();
    closing->close();
    statistics = closing->statistics();
    if (!inside) closing.reset();
  }
  Turn turn(mutex_);
  last_statistics_ = std::move(statistics);
  if (inside) closed_inside_ = std::move(closing);
}

bool PyReader::busy() { return !std::unique_lock(mutex_, std::try_to_lock); }

nb::dict PyReader::statistics() {
  Turn turn(mutex_);
  origin_.check("stream " + name_);
  return to_dict(reader_ ? reader_->statistics() : last_statistics_);
}

void PyReader::forget() {
  auto* lost = new std::pair(std::move(reader_), std::move(step_));
  static_cast<void>(lost);
  step_.reset();
  new (&mutex_) std::mutex;  // a thread that is not here may hold it
}

void bind_reader(nb::module_& m) {
  nb::class_<PyReader>(m, "Reader", "A reader of a stream. Timeouts in ms; -1: as configured.")
      .def_prop_ro("name", &PyReader::name)
      .def_prop_ro("closed", &PyReader::closed)
      .def_prop_ro("in_step", &PyReader::in_step)
      .def("try_begin_step", &PyReader::try_begin_step, "timeout_ms"_a)
      .def("begin_step", &PyReader::begin_step, "timeout_ms"_a)
      .def("seek", &PyReader::seek, "step"_a)
      .def("steps", &PyReader::steps)
      .def("step_number", &PyReader::step_number)
      .def("variables", &PyReader::variables)
      .def("variable", &PyReader::variable, "name"_a)
      .def("has", &PyReader::has, "name"_a)
      .def("blocks", &PyReader::blocks, "variable"_a)
      .def("covered", &PyReader::covered, "variable"_a, "shape"_a)
      .def("attribute_names", &PyReader::attribute_names)
      .def("attribute", &PyReader::attribute, "name"_a,
           nb::sig("def attribute(self, name: str) -> tuple[str, bool, bytes, list[str]] | None"))
      .def("min_max", &PyReader::min_max, "variable"_a, "block"_a = nb::none(),
           nb::sig("def min_max(self, variable: int, block: int | None = None) -> tuple[bytes, bytes] | None"))
      .def("strings", &PyReader::strings, "variable"_a)
      .def("shape_of", &PyReader::shape_of, "variable"_a, "selection"_a)
      .def("get", &PyReader::get, "variable"_a, "selection"_a, "out"_a)
      .def("wait", &PyReader::wait, "timeout_ms"_a)
      .def("view", &PyReader::view, "variable"_a, "selection"_a)
      .def("end_step", &PyReader::end_step)
      .def("on_step", &PyReader::on_step, "function"_a, "raise_errors"_a)
      .def("close", &PyReader::close)
      .def("busy", &PyReader::busy)
      .def("statistics", &PyReader::statistics)
      .def("place", &PyReader::place, nb::sig("def place(self) -> dict[str, str]"))
      .def("forget", &PyReader::forget);
}

}  // namespace penstock::python
