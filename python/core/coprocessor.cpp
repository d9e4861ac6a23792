// Co-processing at the border.
#include "coprocessor.hpp"

#include "base/config.hpp"

namespace penstock::python {
namespace {

// A Python object that the library may drop on any thread, and after the interpreter has gone.
class Held {
 public:
  explicit Held(nb::object object) : object_(std::move(object)) {}
  ~Held() {
    if (!Py_IsInitialized()) {
      object_.release();
      return;
    }
    nb::gil_scoped_acquire acquire;
    object_.reset();
  }
  Held(const Held&) = delete;
  const nb::object& object() const { return object_; }

 private:
  nb::object object_;
};

// Calls into Python from the library, which holds no interpreter lock; what Python raises becomes an Error.
template <class Body>
auto in_python(const char* what, Body body) {
  nb::gil_scoped_acquire acquire;
  try {
    return body();
  } catch (nb::python_error& error) {
    throw_as_error(error, what);
  }
}

// An object with wait(seconds or None), which gives the status, or None when the time is up.
class PyAnalysis final : public RunningAnalysis {
 public:
  explicit PyAnalysis(nb::object object) : held_(std::move(object)) {}
  int wait(Timeout deadline) override {
    const auto status = in_python("the analysis", [&] {
      nb::object seconds = nb::none();
      if (deadline != forever) seconds = nb::float_(static_cast<double>(deadline.count()) / 1000);
      nb::object said = held_.object().attr("wait")(seconds);
      return said.is_none() ? std::optional<int>() : nb::cast<int>(said);
    });
    if (!status) throw Error(Errc::timeout, "the analysis of this process has not ended in time");
    return *status;
  }

 private:
  Held held_;
};

StartAnalysis starter(nb::object start) {
  return [held = std::make_shared<Held>(std::move(start))](std::vector<std::string> arguments) {
    return in_python("the analysis did not start", [&]() -> std::unique_ptr<RunningAnalysis> {
      return std::make_unique<PyAnalysis>(held->object()(arguments));
    });
  };
}

template <class T>
T of(const nb::dict& from, const char* key, T otherwise = {}) {
  return from.contains(key) ? nb::cast<T>(from[key]) : otherwise;
}

using Strings = std::vector<std::string>;

Vector3 vector_of(const nb::dict& from, const char* key, Vector3 otherwise) {
  const auto values = of<std::vector<double>>(from, key, {otherwise.begin(), otherwise.end()});
  if (values.size() > 3) throw Error(Errc::invalid_argument, std::string(key) + " has at most three values");
  std::ranges::copy(values, otherwise.begin());
  return otherwise;
}

std::vector<ElementBlock> blocks_of(const nb::dict& from) {
  std::vector<ElementBlock> blocks;
  for (const auto& block : of<std::vector<nb::dict>>(from, "blocks"))
    blocks.push_back({of<std::string>(block, "name"), of<std::int64_t>(block, "id"), of<std::string>(block, "topology"),
                      of<std::string>(block, "connectivity"), of<std::string>(block, "offsets"),
                      of<std::string>(block, "topologies")});
  return blocks;
}

MeshShape shape_of(const std::string& type, const nb::dict& d) {
  const auto dims = [&](const char* key) { return dims_of(of<Sizes>(d, key)); };
  const auto axes = of<std::string>(d, "axes");
  const auto coordinates = [&] { return of<Strings>(d, "coordinates"); };
  const auto origin = vector_of(d, "origin", {});
  const auto spacing = vector_of(d, "spacing", {1, 1, 1});
  if (type == "uniform") return UniformMesh{dims("shape"), axes, origin, spacing};
  if (type == "rectilinear") return RectilinearMesh{dims("shape"), axes, coordinates()};
  if (type == "curvilinear") return CurvilinearMesh{dims("shape"), axes, coordinates()};
  if (type == "unstructured") return UnstructuredMesh{coordinates(), blocks_of(d)};
  if (type == "particles") return ParticleMesh{coordinates()};
  if (type == "multiblock") return MultiblockMesh{of<Strings>(d, "blocks")};
  if (type != "amr")
    throw Error(Errc::invalid_argument, "'" + type +
                                            "' is no type of meshes; there are uniform, rectilinear, curvilinear, "
                                            "unstructured, particles, amr and multiblock");
  return AmrMesh{dims("cells"),
                 axes,
                 of<std::uint32_t>(d, "ghost_layers"),
                 origin,
                 spacing,
                 of<std::uint32_t>(d, "refinement", 2),
                 of<std::string>(d, "levels"),
                 of<std::string>(d, "indices"),
                 of<std::string>(d, "splits"),
                 of<std::uint32_t>(d, "depth")};
}

}  // namespace

PyCoprocessor::PyCoprocessor(std::shared_ptr<Context> context, const std::string& channel, nb::object cohort,
                             const nb::dict& options, nb::object start)
    : context_(std::move(context)), name_(channel) {
  CoprocessorOptions chosen;
  StreamOptions stream;
  for (auto [key, text] : options) {
    const auto name = nb::cast<std::string>(key), value = nb::cast<std::string>(text);
    try {
      set_option(chosen, name, value);
    } catch (const Error& error) {
      if (error.code() != Errc::unknown_option) throw;
      base::set_option(stream, name, value, base::Side::writer);
    }
  }
  auto ranks = cohort_of(std::move(cohort));
  auto begin = starter(std::move(start));
  Unlocked unlocked;
  coprocessor_ = std::make_shared<Coprocessor>(*context_, channel, std::move(ranks), chosen, stream, std::move(begin));
}

PyCoprocessor::~PyCoprocessor() {
  if (!coprocessor_ || origin_.leave(coprocessor_, step_, context_)) return;
  try {
    if (!ended_) lose();  // it was not finalized: readers must not take what they have for all there is
  } catch (const Error&) {
    // Nobody is left to tell.
  }
  drop_unlocked(coprocessor_);
}

Coprocessor& PyCoprocessor::coprocessor() {
  origin_.check("channel " + name_);
  if (ended_) throw Error(Errc::wrong_state, "channel '" + name_ + "' is finalized");
  return *coprocessor_;
}

CoprocessStep& PyCoprocessor::step() {
  coprocessor();
  if (!step_) throw Error(Errc::wrong_state, "channel '" + name_ + "' has no step open");
  return *step_;
}

void PyCoprocessor::add_pipeline(const std::string& path) {
  Turn turn(mutex_);
  coprocessor().add_pipeline(path);
}

void PyCoprocessor::set_mesh(const std::string& name, const std::string& type, const nb::dict& description) {
  Turn turn(mutex_);
  const auto text = [&](const char* key) { return of<std::string>(description, key); };
  coprocessor().set_mesh(name, {shape_of(type, description), text("ghosts"), text("node_ids"), text("element_ids")});
}

std::uint32_t PyCoprocessor::field(const std::string& mesh, const std::string& name, const std::string& dtype,
                                   const nb::dict& options) {
  Turn turn(mutex_);
  FieldOptions chosen;
  const auto association = of<std::string>(options, "association", "node");
  if (association != "node" && association != "element")
    throw Error(Errc::invalid_argument, "the association '" + association + "' is neither 'node' nor 'element'");
  if (association == "element") chosen.association = Association::element;
  chosen.components = of<std::uint32_t>(options, "components", 1);
  chosen.units = of<std::string>(options, "units");
  chosen.variable = of<std::string>(options, "variable");
  chosen.order = order_named(of<std::string>(options, "order", "row"));
  chosen.min_max = of<bool>(options, "min_max");
  const auto id = coprocessor().field(mesh, name, dtype_named(dtype), chosen);
  orders_[id] = chosen.order;
  return id;
}

std::uint32_t PyCoprocessor::structure(const std::string& mesh, const std::string& variable, const std::string& dtype,
                                       const std::string& order) {
  Turn turn(mutex_);
  const auto id = coprocessor().structure(mesh, variable, dtype_named(dtype), order_named(order));
  orders_[id] = order_named(order);
  return id;
}

// Types of parameters, in types_.
enum : int { boolean, integer, number, text };

void PyCoprocessor::declare(const std::string& name, nb::handle value, nb::handle least, nb::handle greatest) {
  Turn turn(mutex_);
  auto& coprocessor = this->coprocessor();
  int type = text;
  if (nb::isinstance<nb::bool_>(value)) {
    coprocessor.declare(name, nb::cast<bool>(value));
    type = boolean;
  } else if (nb::isinstance<nb::int_>(value)) {
    coprocessor.declare(name, nb::cast<std::int64_t>(value), nb::cast<std::int64_t>(least),
                        nb::cast<std::int64_t>(greatest));
    type = integer;
  } else if (nb::isinstance<nb::float_>(value)) {
    coprocessor.declare(name, nb::cast<double>(value), nb::cast<double>(least), nb::cast<double>(greatest));
    type = number;
  } else {
    coprocessor.declare(name, nb::cast<std::string>(value));
  }
  types_[name] = type;
}

nb::object PyCoprocessor::value(const std::string& name) {
  Turn turn(mutex_);
  auto& coprocessor = this->coprocessor();
  const auto type = types_.find(name);
  switch (type == types_.end() ? text : type->second) {
    case boolean: return nb::cast(coprocessor.value<bool>(name));
    case integer: return nb::cast(coprocessor.value<std::int64_t>(name));
    case number: return nb::cast(coprocessor.value<double>(name));
    default: return nb::cast(coprocessor.value<std::string>(name));  // which says what is not declared
  }
}

bool PyCoprocessor::request(std::int64_t cycle, double time) {
  Turn turn(mutex_);
  auto& coprocessor = this->coprocessor();
  if (step_) throw Error(Errc::wrong_state, "channel '" + name_ + "' has a step open");
  Unlocked unlocked;
  auto begun = coprocessor.request(cycle, time);
  if (begun) step_.emplace(std::move(*begun));
  return step_.has_value();
}

bool PyCoprocessor::in_step() {
  Turn turn(mutex_);
  return step_.has_value();
}

bool PyCoprocessor::wants(std::uint32_t field) {
  Turn turn(mutex_);
  return step().wants(field);
}

void PyCoprocessor::put(std::uint32_t field, const Sizes& start, nb::handle array, bool lend) {
  Turn turn(mutex_);
  auto& step = this->step();
  if (!step.wants(field)) return;
  Buffer buffer(array, false);
  const auto count = buffer.shape();
  const Box box{start.empty() ? Dims::filled(count.size(), 0) : dims_of(start), count};
  const auto order = orders_.find(field);
  const bool packed = order != orders_.end() && buffer.packed(order->second);
  const auto strides = packed ? std::vector<std::int64_t>() : buffer.strides();
  {
    Unlocked unlocked;
    if (lend) step.lend(field, box, buffer.data(), strides);
    else step.put(field, box, buffer.data(), strides);
  }
  if (lend) lent_.push_back(lent_array(std::move(buffer)));
}

// Null when the field is not asked for.
std::unique_ptr<Memory> PyCoprocessor::put_span(std::uint32_t field, const Sizes& start, const Sizes& count) {
  Turn turn(mutex_);
  auto& step = this->step();
  if (!step.wants(field)) return nullptr;
  const Box box{start.empty() ? Dims::filled(count.size(), 0) : dims_of(start), dims_of(count)};
  const auto span = [&] {
    Unlocked unlocked;
    return step.put_span(field, box);
  }();
  auto out = std::make_unique<Memory>();
  out->data = span.data();
  out->size = span.size();
  out->writable = true;
  out->owner = coprocessor_;
  out->box = box;
  out->order = orders_.at(field);
  return out;
}

void PyCoprocessor::put_attribute(const std::string& name, const std::string& dtype, bool is_array, nb::bytes values,
                                  std::vector<std::string> strings) {
  Turn turn(mutex_);
  auto* first = reinterpret_cast<const std::byte*>(values.c_str());
  coprocessor().writer().put_attribute(
      name, Attribute{dtype_named(dtype), is_array, {first, first + values.size()}, std::move(strings)});
}

// The step is over also when this throws; lent arrays are free then.
void PyCoprocessor::end_step(void (*how)(CoprocessStep&)) {
  Turn turn(mutex_);
  step();
  struct Over {
    PyCoprocessor* self;
    ~Over() {
      self->step_.reset();
      self->lent_.clear();
    }
  } over{this};
  passed_on() = nullptr;
  try {
    Unlocked unlocked;
    how(*step_);
  } catch (...) {
    if (!passed_on()) throw;
  }
  if (const auto passed = std::exchange(passed_on(), nullptr)) std::rethrow_exception(passed);
}

void PyCoprocessor::coprocess() {
  end_step([](CoprocessStep& step) { step.coprocess(); });
}
void PyCoprocessor::abandon() {
  end_step([](CoprocessStep& step) { const auto given_up = std::move(step); });
}

int PyCoprocessor::finalize(std::int64_t timeout_ms) {
  Turn turn(mutex_);
  const auto deadline = timeout_of(timeout_ms);
  auto& coprocessor = this->coprocessor();
  ended_ = true;
  lent_.clear();
  Unlocked unlocked;
  step_.reset();
  return coprocessor.finalize(deadline);
}

void PyCoprocessor::lose() {
  Turn turn(mutex_);
  origin_.check("channel " + name_);
  if (std::exchange(ended_, true)) return;
  lent_.clear();
  Unlocked unlocked;
  step_.reset();
  coprocessor_->lose();
}

bool PyCoprocessor::busy() { return !std::unique_lock(mutex_, std::try_to_lock); }

nb::dict PyCoprocessor::statistics() {
  Turn turn(mutex_);
  origin_.check("channel " + name_);
  const auto s = coprocessor_->statistics();
  nb::dict out;
  out["requests"] = s.requests;
  out["steps"] = s.steps;
  out["skipped_every"] = s.skipped_every;
  out["skipped_trigger"] = s.skipped_trigger;
  out["skipped_not_ready"] = s.skipped_not_ready;
  out["skipped_dropped"] = s.skipped_dropped;
  out["replaced"] = s.replaced;
  out["demands"] = s.demands;
  out["demands_refused"] = s.demands_refused;
  out["demand_number"] = s.demand_number;
  out["request_s"] = s.request_s;
  out["put_s"] = s.put_s;
  out["end_s"] = s.end_s;
  return out;
}

void PyCoprocessor::forget() {
  ended_ = true;
  auto* lost = new std::tuple(std::move(coprocessor_), std::move(step_), std::move(context_));
  static_cast<void>(lost);
  step_.reset();
  new (&mutex_) std::mutex;  // a thread that is not here may hold it
}

void bind_coprocessor(nb::module_& m) {
  nb::class_<PyCoprocessor>(m, "Coprocessor", "The simulation's side of a channel. Timeouts in ms; -1: as configured.")
      .def_prop_ro("name", &PyCoprocessor::name)
      .def_prop_ro("closed", &PyCoprocessor::closed)
      .def_prop_ro("in_step", &PyCoprocessor::in_step)
      .def("add_pipeline", &PyCoprocessor::add_pipeline, "path"_a)
      .def("set_mesh", &PyCoprocessor::set_mesh, "name"_a, "type"_a, "description"_a)
      .def("field", &PyCoprocessor::field, "mesh"_a, "name"_a, "dtype"_a, "options"_a)
      .def("structure", &PyCoprocessor::structure, "mesh"_a, "variable"_a, "dtype"_a, "order"_a)
      .def("declare", &PyCoprocessor::declare, "name"_a, "value"_a, "least"_a.none(), "greatest"_a.none())
      .def("value", &PyCoprocessor::value, "name"_a, nb::sig("def value(self, name: str) -> bool | int | float | str"))
      .def("request", &PyCoprocessor::request, "cycle"_a, "time"_a)
      .def("wants", &PyCoprocessor::wants, "field"_a)
      .def("put", &PyCoprocessor::put, "field"_a, "start"_a, "array"_a, "lend"_a)
      .def("put_span", &PyCoprocessor::put_span, "field"_a, "start"_a, "count"_a)
      .def("put_attribute", &PyCoprocessor::put_attribute, "name"_a, "dtype"_a, "is_array"_a, "values"_a, "strings"_a)
      .def("coprocess", &PyCoprocessor::coprocess)
      .def("abandon", &PyCoprocessor::abandon)
      .def("finalize", &PyCoprocessor::finalize, "timeout_ms"_a)
      .def("lose", &PyCoprocessor::lose)
      .def("busy", &PyCoprocessor::busy)
      .def("statistics", &PyCoprocessor::statistics)
      .def("forget", &PyCoprocessor::forget);
}

}  // namespace penstock::python
