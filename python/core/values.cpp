// Values at the border: names, buffers, cohorts, statistics, errors.
#include "core.hpp"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <thread>

#include "memory/kind.hpp"
#include "storage/checksum.hpp"

namespace penstock::python {

nb::typed<nb::tuple, std::uint64_t, nb::ellipsis> tuple_of(const Dims& dims) {
  nb::list out;
  for (auto value : dims) out.append(value);
  return nb::tuple(out);
}

DType dtype_named(const std::string& name) {
  auto dtype = dtype_from_name(name);
  if (dtype == DType::none) throw Error(Errc::invalid_argument, "penstock has no element type '" + name + "'");
  return dtype;
}

namespace {
constexpr std::array kinds = {"global_array", "local_array", "global_value", "local_value"};
constexpr std::array orders = {"row", "column"};

template <std::size_t N>
std::size_t position(const std::array<const char*, N>& names, const std::string& name, const char* what) {
  for (std::size_t i = 0; i < N; ++i)
    if (name == names[i]) return i;
  std::string known;
  for (auto each : names) known += (known.empty() ? "'" : ", '") + std::string(each) + "'";
  throw Error(Errc::invalid_argument, std::string(what) + " '" + name + "' is not one of " + known);
}
}  // namespace

Kind kind_named(const std::string& name) { return static_cast<Kind>(position(kinds, name, "the kind")); }
Order order_named(const std::string& name) { return static_cast<Order>(position(orders, name, "the order")); }
const char* name_of_kind(Kind kind) { return kinds.at(static_cast<std::size_t>(kind)); }
const char* name_of_order(Order order) { return orders.at(static_cast<std::size_t>(order)); }

// ------------------------------------------------------------------------------------------------------------- threads

namespace {

std::atomic<int> inside = 0;  // threads without the interpreter lock
std::atomic<bool> exiting = false;
std::atomic<bool> too_late = false;
std::thread::id exiting_thread;  // written before exiting

[[noreturn]] void stay() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

bool is_outsider() { return std::this_thread::get_id() != exiting_thread; }

}  // namespace

namespace {

thread_local PyObject* kept = nullptr;  // by an Unlocked that an error has left

// Called by the interpreter in the main thread, where alone signals are handled.
int raise_later(void* exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), static_cast<PyObject*>(exception));
  Py_DECREF(static_cast<PyObject*>(exception));
  return -1;
}

PyObject* take_raised() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return value;
}

}  // namespace

Unlocked::Unlocked(const std::atomic<bool>* ended)
    : handler_(look_at_signals, this), ended_(ended), unwinding_(std::uncaught_exceptions()) {
  ++inside;
  thread_ = PyEval_SaveThread();
}

Unlocked::~Unlocked() {
  if (too_late && is_outsider()) stay();
  PyEval_RestoreThread(thread_);
  --inside;
  if (!kept_) return;
  if (std::uncaught_exceptions() > unwinding_) Py_XDECREF(std::exchange(kept, kept_));
  else if (Py_AddPendingCall(raise_later, kept_) != 0) Py_DECREF(kept_);
}

bool Unlocked::look_at_signals(void* context) {
  auto& self = *static_cast<Unlocked*>(context);
  if (too_late && is_outsider()) return true;
  if (self.ended_ != nullptr && *self.ended_) return true;
  PyEval_RestoreThread(self.thread_);
  if (PyErr_CheckSignals() != 0) self.kept_ = take_raised();
  self.thread_ = PyEval_SaveThread();
  return self.kept_ != nullptr;
}

bool raise_kept() {
  auto* exception = std::exchange(kept, nullptr);
  if (!exception) return false;
  raise_later(exception);
  return true;
}

void begin_exit() {
  exiting_thread = std::this_thread::get_id();
  exiting = true;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  auto* thread = PyEval_SaveThread();
  while (inside > 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  PyEval_RestoreThread(thread);
  too_late = true;
}

void forget_threads() { inside = 0; }

void stop_here_when_exiting() {
  if (!exiting || !is_outsider()) return;
  PyEval_SaveThread();
  stay();
}

Buffer::Buffer(nb::handle object, bool writable) {
  if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_STRIDES | (writable ? PyBUF_WRITABLE : 0)) != 0)
    throw nb::python_error();
}

Dims Buffer::shape() const {
  Dims out = Dims::filled(static_cast<std::size_t>(view_.ndim), 0);
  for (int d = 0; d < view_.ndim; ++d) out[d] = static_cast<std::uint64_t>(view_.shape[d]);
  return out;
}

std::vector<std::int64_t> Buffer::strides() const { return {view_.strides, view_.strides + view_.ndim}; }

bool Buffer::contains(const void* address) const {
  const auto* first = static_cast<const std::byte*>(view_.buf);
  const auto* last = first;  // where the last element begins
  for (int d = 0; d < view_.ndim; ++d) {
    if (view_.shape[d] == 0) return false;
    (view_.strides[d] < 0 ? first : last) += (view_.shape[d] - 1) * view_.strides[d];
  }
  return !std::less<>{}(address, first) && !std::less<>{}(last, address);
}

namespace {

// Those that are there; under the interpreter lock. Never destroyed: buffers may outlive the module.
std::vector<std::weak_ptr<const Buffer>>& lent_arrays() {
  static auto* const arrays = new std::vector<std::weak_ptr<const Buffer>>;
  return *arrays;
}

}  // namespace

std::shared_ptr<const Buffer> lent_array(Buffer buffer) {
  static std::size_t sweep_at = 64;
  auto& arrays = lent_arrays();
  if (arrays.size() >= sweep_at) {
    std::erase_if(arrays, [](const auto& array) { return array.expired(); });
    sweep_at = std::max<std::size_t>(64, 2 * arrays.size());
  }
  auto array = std::make_shared<const Buffer>(std::move(buffer));
  arrays.push_back(array);
  return array;
}

std::shared_ptr<const Buffer> lent_array_at(const void* address) {
  for (const auto& each : lent_arrays())
    if (auto array = each.lock(); array && array->contains(address)) return array;
  return nullptr;
}

// ---------------------------------------------------------------------------------------------------------- cohorts

void throw_as_error(const nb::python_error& raised, const std::string& what) {
  if (nb::isinstance(raised.value(), nb::module_::import_("penstock.errors").attr("Error"))) {
    const auto name = nb::cast<std::string>(raised.value().attr("code"));
    auto code = Errc::internal;
    for (int each = 1; each < static_cast<int>(Errc::internal); ++each)
      if (name_of(static_cast<Errc>(each)) == name) code = static_cast<Errc>(each);
    throw Error(code, nb::str(raised.value()).c_str());
  }
  throw Error(Errc::system, what + ": " + raised.what());
}

namespace {

// What Python raises becomes an Error before it crosses the library, which may not hold the interpreter lock.
template <class Body>
auto with_interpreter(Body&& body) {
  nb::gil_scoped_acquire acquire;
  try {
    return body();
  } catch (nb::python_error& e) {
    throw_as_error(e, "the cohort failed");
  } catch (nb::cast_error&) {
    throw Error(Errc::system, "the cohort returned something else than bytes");
  }
}

class PythonCohort final : public Cohort {
 public:
  explicit PythonCohort(nb::object object)
      : object_(std::move(object)),
        rank_(nb::cast<int>(object_.attr("rank"))),
        size_(nb::cast<int>(object_.attr("size"))) {}
  ~PythonCohort() override {
    // The library's thread may be the last holder, even after the interpreter has gone.
    if (!Py_IsInitialized()) {
      object_.release();
      return;
    }
    nb::gil_scoped_acquire acquire;
    object_.reset();
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::string broadcast(const std::string& bytes, int root) override {
    return with_interpreter([&] {
      auto result = nb::cast<nb::bytes>(object_.attr("broadcast")(nb::bytes(bytes.data(), bytes.size()), root));
      return std::string(result.c_str(), result.size());
    });
  }

  std::vector<std::string> gather(const std::string& bytes, int root) override {
    return with_interpreter([&] {
      std::vector<std::string> out;
      nb::object all = object_.attr("gather")(nb::bytes(bytes.data(), bytes.size()), root);
      if (rank_ != root || all.is_none()) return out;
      for (nb::handle each : all) {
        auto one = nb::cast<nb::bytes>(each);
        out.emplace_back(one.c_str(), one.size());
      }
      return out;
    });
  }

  void leave(const std::string& bytes) override {
    with_interpreter([&] {
      if (nb::hasattr(object_, "leave")) object_.attr("leave")(nb::bytes(bytes.data(), bytes.size()));
    });
  }

 private:
  nb::object object_;
  int rank_, size_;
};

}  // namespace

std::shared_ptr<Cohort> cohort_of(nb::object object) {
  if (object.is_none()) return solo();
  return std::make_shared<PythonCohort>(std::move(object));
}

// ------------------------------------------------------------------------------------------------------- statistics

nb::dict to_dict(const StreamStatistics& s) {
  nb::list peers;
  for (const auto& p : s.peers) {
    nb::dict peer;
    peer["name"] = p.name;
    peer["ranks"] = p.ranks;
    peer["data_plane"] = p.data_plane;
    peer["steps_delivered"] = p.steps_delivered;
    peer["steps_released"] = p.steps_released;
    peer["steps_dropped"] = p.steps_dropped;
    peer["steps_held"] = p.steps_held;
    peers.append(peer);
  }
  nb::dict out;
  out["steps"] = s.steps;
  out["steps_dropped"] = s.steps_dropped;
  out["steps_voided"] = s.steps_voided;
  out["analysis_errors"] = s.analysis_errors;
  out["bytes"] = s.bytes;
  out["bytes_copied"] = s.bytes_copied;
  out["copies"] = s.copies;
  out["copy_s"] = s.copy_s;
  out["wait_s"] = s.wait_s;
  out["announcement_bytes"] = s.announcement_bytes;
  out["epochs"] = s.epochs;
  out["plans_built"] = s.plans_built;
  out["plans_reused"] = s.plans_reused;
  out["queue_depth"] = s.queue_depth;
  out["memory_bytes"] = s.memory_bytes;
  out["data_plane"] = s.data_plane;
  out["peers"] = peers;
  return out;
}

// ---------------------------------------------------------------------------------------------------------- binding

namespace {

int memory_get_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto& memory = *nb::inst_ptr<Memory>(nb::handle(self));
  if (memory.revoked) {
    PyErr_SetString(PyExc_BufferError, "this memory belonged to a step that has ended");
    view->obj = nullptr;
    return -1;
  }
  return PyBuffer_FillInfo(view, self, memory.data, static_cast<Py_ssize_t>(memory.size), !memory.writable, flags);
}

// What a DLPack capsule holds: memory, our name of its type (empty where we have none, or the memory is not where it was said to be),
// shape, strides in bytes.
nb::tuple dlpack_array(const nb::ndarray<>& array, bool on_device) {
  static constexpr std::pair<nb::dlpack::dtype_code, const char*> codes[] = {
      {nb::dlpack::dtype_code::Int, "int"},         {nb::dlpack::dtype_code::UInt, "uint"},
      {nb::dlpack::dtype_code::Float, "float"},     {nb::dlpack::dtype_code::Bfloat, "bfloat"},
      {nb::dlpack::dtype_code::Complex, "complex"},
  };
  const auto type = array.dtype();
  const bool truth = type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bool) && type.bits == 8;
  std::string name = truth ? "bool" : "";
  for (const auto& [code, word] : codes)
    if (type.code == static_cast<std::uint8_t>(code)) name = word + std::to_string(type.bits);
  if (type.lanes != 1 || dtype_from_name(name) == DType::none) name.clear();
  const auto size = static_cast<std::int64_t>(array.itemsize());
  std::int64_t last = size;
  bool fits = true;
  nb::list shape, strides;
  for (std::size_t d = 0; d < array.ndim(); ++d) {
    const auto count = static_cast<std::int64_t>(array.shape(d));
    shape.append(count);
    std::int64_t stride = 0, reach = 0;
    fits = fits && !__builtin_mul_overflow(array.stride(d), size, &stride) &&
           !__builtin_mul_overflow(count - 1, stride, &reach) && !__builtin_add_overflow(last, reach, &last);
    strides.append(stride);
  }
  const bool is_there = array.size() == 0 || (array.data() != nullptr && memory::on_device(array.data()) == on_device);
  if (!fits || !is_there) name.clear();
  auto memory = std::make_unique<Memory>();
  memory->data = array.data();
  memory->size = array.size() > 0 && last > 0 ? static_cast<std::size_t>(last) : 0;
  memory->writable = true;
  memory->owner = std::make_shared<nb::ndarray<>>(array);
  return nb::make_tuple(std::move(memory), name, nb::tuple(shape), nb::tuple(strides));
}

PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(memory_get_buffer)}, {0, nullptr}};

// Becomes the subclass of penstock.Error that goes with the code.
void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& e) {
    if (raise_kept()) return;
    // The text may quote what a peer has sent.
    const std::string_view what = e.what();
    const auto text = nb::steal(PyUnicode_DecodeUTF8(what.data(), static_cast<Py_ssize_t>(what.size()), "replace"));
    try {
      nb::object exception =
          nb::module_::import_("penstock.errors").attr("error_of")(std::string(name_of(e.code())), text);
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    } catch (nb::python_error& raised) {  // by a signal's handler, which ran in there
      raised.restore();
    }
  }
}

}  // namespace

void bind_values(nb::module_& m) {
  nb::register_exception_translator(translate);
  m.def("error_names", [] {
    constexpr int last = static_cast<int>(Errc::internal);
    nb::dict names;
    for (int code = 0; code <= last; ++code)
      if (const auto name = name_of(static_cast<Errc>(code)); name != "unknown")
        names[nb::int_(code)] = nb::str(name.data(), name.size());
    return names;
  });
  m.def("checksum", [](nb::bytes data) {
    return storage::checksum({static_cast<const std::byte*>(data.data()), data.size()});
  });

  nb::class_<Memory>(m, "Memory", nb::type_slots(memory_slots), nb::sig("class Memory(typing_extensions.Buffer)"),
                     "Memory of a stream or of a device, through the buffer protocol.")
      .def(
          "__init__",
          [](Memory* self, nb::object owner, std::uintptr_t address, std::size_t size) {
            new (self) Memory{.data = reinterpret_cast<void*>(address), .size = size, .writable = true};
            self->owner = std::make_shared<nb::object>(std::move(owner));
          },
          "owner"_a, "address"_a, "size"_a)
      .def_prop_ro("start", [](const Memory& self) { return tuple_of(self.box.start); })
      .def_prop_ro("count", [](const Memory& self) { return tuple_of(self.box.count); })
      .def_prop_ro("strides",
                   [](const Memory& self) -> nb::typed<nb::tuple, std::int64_t, nb::ellipsis> {
                     nb::list out;
                     for (auto stride : self.strides) out.append(stride);
                     return nb::tuple(out);
                   })
      .def_prop_ro("order", [](const Memory& self) { return name_of_order(self.order); })
      .def_ro("size", &Memory::size)
      .def("revoke", [](Memory& self) { self.revoked = true; });

  m.def("dlpack_array", dlpack_array, "capsule"_a, "on_device"_a);
  m.def(
      "on_device", [](std::uintptr_t address) { return memory::on_device(reinterpret_cast<const void*>(address)); },
      "address"_a);
  m.def(
      "wait_for_stream",
      [](std::uintptr_t memory, std::uintptr_t stream) {
        Unlocked unlocked;
        memory::wait_for_stream(reinterpret_cast<const void*>(memory), reinterpret_cast<void*>(stream));
      },
      "memory"_a, "stream"_a);

  nb::class_<Selection>(m, "Selection")
      .def_static("all", [] { return Selection::all(); })
      .def_static(
          "box", [](const Sizes& start, const Sizes& count) { return Selection::box(dims_of(start), dims_of(count)); },
          "start"_a, "count"_a)
      .def_static(
          "strided",
          [](const Sizes& start, const Sizes& count, const Sizes& stride) {
            return Selection::strided(dims_of(start), dims_of(count), dims_of(stride));
          },
          "start"_a, "count"_a, "stride"_a)
      .def_static(
          "block", [](std::uint64_t number) { return Selection::block(number); }, "number"_a)
      .def_static(
          "points",
          [](nb::handle coordinates, std::size_t dimensions) {
            // uint64, one tuple of indices after the other
            Buffer buffer(coordinates, false);
            auto* first = static_cast<const std::uint64_t*>(buffer.data());
            const auto size = buffer.bytes() / sizeof *first;
            return Selection::points(std::vector<std::uint64_t>(first, first + size), dimensions);
          },
          "coordinates"_a, "dimensions"_a);

  nb::class_<VariableInfo>(m, "VariableInfo")
      .def_ro("id", &VariableInfo::id)
      .def_ro("name", &VariableInfo::name)
      .def_prop_ro("dtype", [](const VariableInfo& self) { return std::string(name_of(self.dtype)); })
      .def_prop_ro("kind", [](const VariableInfo& self) { return name_of_kind(self.kind); })
      .def_prop_ro("order", [](const VariableInfo& self) { return name_of_order(self.order); })
      .def_prop_ro("shape", [](const VariableInfo& self) { return tuple_of(self.shape); })
      .def_ro("blocks", &VariableInfo::blocks);

  nb::class_<BlockInfo>(m, "BlockInfo")
      .def_prop_ro("start", [](const BlockInfo& self) { return tuple_of(self.box.start); })
      .def_prop_ro("count", [](const BlockInfo& self) { return tuple_of(self.box.count); })
      .def_ro("writer_rank", &BlockInfo::writer_rank);

  nb::class_<StreamEntry>(m, "StreamEntry", "A stream found in the directory.")
      .def_ro("name", &StreamEntry::name)
      .def_ro("address", &StreamEntry::address, "With the stream's token: for the owner's eyes.")
      .def_ro("host", &StreamEntry::host)
      .def_ro("pid", &StreamEntry::pid)
      .def_ro("ranks", &StreamEntry::ranks)
      .def_ro("alive", &StreamEntry::alive)
      .def("__repr__", [](const StreamEntry& self) {
        return "<stream '" + self.name + "' " + (self.alive ? "alive" : "gone") + " on " + self.host + ">";
      });
}

}  // namespace penstock::python
