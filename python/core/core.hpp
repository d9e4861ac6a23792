// What the files of the Python extension share.
//
// penstock._core is thin: it moves values across the border, holds what must outlive a call (buffers of deferred gets,
// lent arrays, the writer behind a span) and releases the interpreter lock around whatever may block. What a Python
// user sees is Python code in penstock/*.py.
//
// Threads: a mutex in each stream makes its calls take turns; it is only ever waited for without the interpreter lock.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/fork.hpp"
#include "penstock/interrupt.hpp"
#include "penstock/penstock.hpp"
#include "penstock/pool.hpp"

namespace penstock::python {

namespace nb = nanobind;
using namespace nb::literals;

using Sizes = std::vector<std::uint64_t>;

inline Dims dims_of(const Sizes& sizes) { return Dims(std::span<const std::uint64_t>(sizes)); }
nb::typed<nb::tuple, std::uint64_t, nb::ellipsis> tuple_of(const Dims& dims);

// Names at the border: "float64", "global_array", "row". Throw Error(invalid_argument).
DType dtype_named(const std::string& name);
Kind kind_named(const std::string& name);
Order order_named(const std::string& name);
const char* name_of_kind(Kind kind);
const char* name_of_order(Order order);

// -1: as configured; INT64_MAX: for ever.
inline Timeout timeout_of(std::int64_t timeout_ms) {
  if (timeout_ms < -1) throw Error(Errc::invalid_argument, "a timeout is not negative");
  return timeout_ms == INT64_MAX ? forever : Timeout(timeout_ms);
}

// Before a step begins.
template <typename Step>
void require_no_step(const std::optional<Step>& step, const std::string& stream) {
  if (!step) return;
  const auto number = std::to_string(step->number());
  throw Error(Errc::wrong_state, "step " + number + " of stream '" + stream +
                                     "' is open: leave its with block, or call its end(), before the next begins");
}

using base::Origin;

// The memory of a Python object, as long as this lives. Made and destroyed with the interpreter lock held.
class Buffer {
 public:
  Buffer(nb::handle object, bool writable);
  ~Buffer() {
    if (view_.obj) PyBuffer_Release(&view_);
  }
  Buffer(Buffer&& other) noexcept : view_(std::exchange(other.view_, Py_buffer{})) {}
  Buffer& operator=(Buffer&&) = delete;

  void* data() const { return view_.buf; }
  std::size_t bytes() const { return static_cast<std::size_t>(view_.len); }
  Dims shape() const;
  bool packed(Order order) const { return PyBuffer_IsContiguous(&view_, order == Order::row ? 'C' : 'F') != 0; }
  // Bytes between neighbours in each dimension.
  std::vector<std::int64_t> strides() const;
  bool contains(const void* address) const;

 private:
  Py_buffer view_{};
};

// An array that a writer lends. Whoever has a view of it in this process keeps it: nobody in Python says when an array may go.
std::shared_ptr<const Buffer> lent_array(Buffer buffer);
std::shared_ptr<const Buffer> lent_array_at(const void* address);  // null: no lent array is there

// Stream memory lent to Python through the buffer protocol. Views hold their step's lease; spans hold their writer.
struct Memory {
  void* data = nullptr;
  std::size_t size = 0;
  bool writable = false;
  std::shared_ptr<const void> owner;
  Box box;
  Order order = Order::row;
  std::vector<std::int64_t> strides;
  bool revoked = false;  // gives no further buffers
};

// The interpreter lock, released. Signals are looked at meanwhile where the library waits: what their handlers raise
// (KeyboardInterrupt) is kept, ends the wait, and is raised in place of the error that this gives (raise_kept), or, when the call
// gives none, as soon as Python runs again. A thread that comes back when the interpreter is about to end finds no way in, and may
// not unwind C++ frames either: it stays here until the process has ended. Where `ended` is given, the wait ends as well once it is
// true.
class Unlocked {
 public:
  explicit Unlocked(const std::atomic<bool>* ended = nullptr);
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  static bool look_at_signals(void* self);
  PyThreadState* thread_;
  InterruptHandler handler_;
  const std::atomic<bool>* const ended_;
  PyObject* kept_ = nullptr;  // what a signal's handler has raised
  const int unwinding_;
};

// Raises what a signal's handler raised in the call that has just thrown, if one did. With the interpreter lock.
bool raise_kept();

// Throws the Error that Python code, called from the library, has raised, or Error(system) with `what` and the traceback of any other
// exception. With the interpreter lock.
[[noreturn]] void throw_as_error(const nb::python_error& raised, const std::string& what);

// Called as the interpreter ends, on the thread that ends it: other threads, daemons all of them, may come back from
// where they are (waited for a little) but not in again.
void begin_exit();
// In a child after fork: threads of the parent that were inside are not here.
void forget_threads();
// Keeps daemon threads out after that.
void stop_here_when_exiting();

// Drops what the holder points to without the interpreter lock: a destructor may wait for the library's thread.
template <class T>
void drop_unlocked(T& holder) {
  T dropped = std::exchange(holder, T{});
  Unlocked unlocked;
  dropped = T{};
}

// Whether a pool or a space is open. Threads may be inside its calls when another one closes it: those calls end at once, with
// Error(wrong_state), whatever they came to.
class OpenState {
 public:
  explicit OpenState(std::string what) : what_(std::move(what)) {}
  void close() { closed_ = true; }
  // Throws Error(wrong_state) once it is closed.
  void check() const {
    if (closed_) throw Error(Errc::wrong_state, what_ + " is closed");
  }
  // The call, without the interpreter lock; its result holds nothing of Python's.
  template <class Call>
  auto run(Call&& call) const {
    check();
    try {
      Unlocked here(&closed_);
      if constexpr (std::is_void_v<decltype(call())>) {
        call();
        check();
      } else {
        auto result = call();
        check();  // refused, the result is destroyed without the lock: that may wait
        return result;
      }
    } catch (const Error&) {
      check();
      throw;
    }
  }
  // The same, with what is closed: it is destroyed before the interpreter lock is taken again, where this call was the last to
  // hold it.
  template <class T, class Call>
  auto run_with(std::shared_ptr<T> held, Call&& call) const {
    return run([&] {
      const auto last = std::move(held);
      return call(*last);
    });
  }

 private:
  const std::string what_;
  std::atomic<bool> closed_{false};
};

// One call at a time: waits for the stream's mutex without the interpreter lock, which is held again afterwards. A signal's
// handler, which may run while a call of the same thread waits, gets Error(wrong_state).
class Turn {
 public:
  explicit Turn(std::mutex& mutex) : lock_(mutex, std::defer_lock), before_(innermost) {
    stop_here_when_exiting();
    for (const Turn* turn = before_; turn != nullptr; turn = turn->before_)
      if (turn->lock_.mutex() == &mutex)
        throw Error(Errc::wrong_state, "this thread is inside a call on the same stream");
    if (!lock_.try_lock()) {
      Unlocked unlocked;
      lock_.lock();
    }
    innermost = this;
  }
  ~Turn() { innermost = before_; }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  static inline thread_local const Turn* innermost = nullptr;  // of this thread's: handlers may call within handlers
  std::unique_lock<std::mutex> lock_;
  const Turn* const before_;
};

// A cohort whose operations are methods of a Python object: rank, size, broadcast(bytes, root), gather(bytes, root), and
// leave(bytes) if it has that.
// None: solo.
std::shared_ptr<Cohort> cohort_of(nb::object object);

nb::dict to_dict(const StreamStatistics& statistics);

void bind_values(nb::module_& m);
void bind_writer(nb::module_& m);
void bind_reader(nb::module_& m);
void bind_context(nb::module_& m);
void bind_pool(nb::module_& m);
void bind_space(nb::module_& m);
void bind_mesh(nb::module_& m);
void bind_rpc(nb::module_& m);
void bind_fragments(nb::module_& m);
nb::object open_pool(const Context& context, const nb::dict& options);
nb::object open_space(const Context& context, const nb::dict& options);
nb::object open_region(const Context& context, const std::string& name, nb::object cohort, const nb::dict& options);
nb::object create_region(const Context& context, const std::string& name, nb::object cohort, const nb::dict& options);
PoolOptions pool_options_of(const nb::dict& options);
nb::list known_pools(const Context& context, const std::string& directory, std::int64_t timeout_ms);

class PyWriter {
 public:
  explicit PyWriter(Writer&& writer) : writer_(std::make_shared<Writer>(std::move(writer))) {
    name_ = writer_->name();
    address_ = writer_->address();
    engine_ = writer_->options().engine;
  }
  ~PyWriter();

  const std::string& name() const { return name_; }
  const std::string& address() const { return address_; }
  nb::dict place() const {
    nb::dict out;
    out["engine"] = engine_;
    return out;
  }
  std::uint32_t define(const std::string& name, const std::string& dtype, const Sizes& shape, const std::string& kind,
                       const std::string& order, bool min_max);
  bool try_begin_step(std::int64_t timeout_ms);
  bool keeps_waiting();
  void begin_step(std::int64_t timeout_ms);
  std::uint64_t step_number();
  bool step_dropped();
  void set_shape(std::uint32_t variable, const Sizes& shape);
  void put(std::uint32_t variable, const Sizes& start, nb::handle array);
  void lend(std::uint32_t variable, const Sizes& start, nb::handle array);
  std::vector<std::int64_t> strides_of(std::uint32_t variable, const Buffer& buffer) const;
  void put_value(std::uint32_t variable, nb::handle array);
  void put_string(std::uint32_t variable, const std::string& value);
  std::unique_ptr<Memory> put_span(std::uint32_t variable, const Sizes& start, const Sizes& count);
  void put_attribute(const std::string& name, const std::string& dtype, bool is_array, nb::bytes values,
                     std::vector<std::string> strings, bool of_step);
  void end_step();
  void abandon_step();
  // Closing may take long, so it is done by a thread that Python need not wait for: start_close, then wait_close until
  // that is true, or the user interrupts. close does it on the calling thread, as cohorts want.
  void close(std::int64_t timeout_ms);
  void start_close(std::int64_t timeout_ms);
  bool wait_close(std::int64_t slice_ms);
  void lose();  // readers are told that the writer is lost
  bool busy();  // a thread is inside
  bool closed() const { return !writer_; }
  bool in_step();
  nb::dict statistics();
  void forget();  // after fork: the memory belongs to the parent

 private:
  struct Closing;
  std::shared_ptr<Closing> take_for_closing();
  Writer& writer();
  WriteStep& step();
  Box box_of(const Sizes& start, const Dims& count) const;
  const Origin origin_;
  std::mutex mutex_;
  std::shared_ptr<Writer> writer_;  // null once closed; spans hold it too, so that their memory stays mapped
  std::optional<WriteStep> step_;
  std::vector<std::shared_ptr<const Buffer>> lent_;
  std::unordered_map<std::uint32_t, Order> orders_;
  std::string name_, address_, engine_;
  std::shared_ptr<Closing> closing_;
};

// What an on_step function has raised that the writer's end of the step raises, whatever was asked for. The calling thread's.
std::exception_ptr& passed_on();

class PyReader {
 public:
  explicit PyReader(Reader&& reader) : reader_(std::make_unique<Reader>(std::move(reader))) {
    name_ = reader_->name();
    place_ = reader_->options();
  }
  ~PyReader();

  const std::string& name() const { return name_; }
  // The options that say where it was found.
  nb::dict place() const {
    nb::dict out;
    out["engine"] = place_.engine;
    out["pool"] = place_.pool;
    out["folder"] = place_.folder;
    return out;
  }
  std::string try_begin_step(std::int64_t timeout_ms);
  void begin_step(std::int64_t timeout_ms);
  void seek(std::uint64_t step);
  std::vector<std::uint64_t> steps();
  std::uint64_t step_number();
  std::vector<VariableInfo> variables();
  VariableInfo variable(const std::string& name);
  bool has(const std::string& name);
  std::vector<BlockInfo> blocks(std::uint32_t variable);
  bool covered(std::uint32_t variable, const Sizes& shape);
  std::vector<std::string> attribute_names();
  nb::object attribute(const std::string& name);
  nb::object min_max(std::uint32_t variable, std::optional<std::uint64_t> block);
  std::vector<std::string> strings(std::uint32_t variable);
  nb::tuple shape_of(std::uint32_t variable, const Selection& selection);
  void get(std::uint32_t variable, const Selection& selection, nb::handle out);
  void wait(std::int64_t timeout_ms);
  std::vector<Memory> view(std::uint32_t variable, const Selection& selection);
  void end_step();
  // The function is called without arguments, while the step is this reader's open one.
  void on_step(nb::object function, bool raise);
  void close();
  bool busy();
  bool closed() const { return !reader_; }
  bool in_step();
  nb::dict statistics();
  void forget();

 private:
  Reader& reader();
  ReadStep& step();
  const Origin origin_;
  std::mutex mutex_;
  std::unique_ptr<Reader> reader_;         // null once closed
  std::unique_ptr<Reader> closed_inside_;  // by its own on_step function
  bool in_function_ = false;
  std::thread::id function_thread_;  // while in_function_
  std::optional<ReadStep> step_;
  std::vector<Buffer> pending_;  // what gets will fill
  StreamOptions place_;
  std::string name_;
  StreamStatistics last_statistics_;
};

}  // namespace penstock::python
