// Array spaces: the extension's part. python/penstock/space.py makes of it what users see.
#include "penstock/space.hpp"

#include "core.hpp"

namespace penstock::python {
namespace {

class PySpace {
  // The call, without the interpreter lock; another thread may close this meanwhile.
  template <class Call>
  auto unlocked(Call&& call) {
    const auto keep = space_;
    if (!keep) throw Error(Errc::wrong_state, "the space is closed");
    Unlocked unlocked;
    return call(*keep);
  }

 public:
  PySpace(const Context& context, PoolOptions options) {
    Unlocked unlocked;
    space_ = std::make_shared<Space>(context, std::move(options));
  }
  ~PySpace() { close(); }
  void close() {
    if (space_) drop_unlocked(space_);
  }
  void forget() { static_cast<void>(new std::shared_ptr<Space>(std::move(space_))); }

  // Each as (name, dtype, shape, parts).
  nb::tuple define(const std::string& name, const std::string& dtype, const Sizes& shape) {
    const auto type = dtype_named(dtype);
    const auto dims = dims_of(shape);
    return tuple_of_info(unlocked([&](Space& space) { return space.define(name, type, dims); }));
  }
  nb::tuple info(const std::string& name) {
    return tuple_of_info(unlocked([&](Space& space) { return space.info(name); }));
  }
  nb::tuple wait_defined(const std::string& name, std::int64_t timeout_ms) {
    return tuple_of_info(unlocked([&](Space& space) { return space.wait(name, timeout_of(timeout_ms)); }));
  }
  nb::list list() {
    nb::list out;
    for (const auto& info : unlocked([](Space& space) { return space.list(); })) out.append(tuple_of_info(info));
    return out;
  }

  // array: of the box's shape. dtype: its elements', which the buffer may not know (bfloat16).
  void put(const std::string& name, std::uint64_t version, const Sizes& start, const std::string& dtype,
           nb::handle array, std::int64_t timeout_ms) {
    const Buffer buffer(array, false);
    const auto memory = memory_of(buffer, dtype);
    const Box box{dims_of(start), buffer.shape()};
    unlocked([&](Space& space) { space.put(name, version, box, buffer.data(), memory, timeout_of(timeout_ms)); });
  }
  void get(const std::string& name, std::uint64_t version, const Sizes& start, const std::string& dtype, nb::handle out,
           std::int64_t timeout_ms) {
    const Buffer buffer(out, true);
    const auto memory = memory_of(buffer, dtype);
    const Box box{dims_of(start), buffer.shape()};
    unlocked([&](Space& space) { space.get(name, version, box, buffer.data(), memory, timeout_of(timeout_ms)); });
  }
  void wait(const std::string& name, std::uint64_t version, const Sizes& start, const Sizes& count,
            std::int64_t timeout_ms) {
    const Box box{dims_of(start), dims_of(count)};
    unlocked([&](Space& space) { space.wait(name, version, box, timeout_of(timeout_ms)); });
  }
  std::vector<std::uint64_t> versions(const std::string& name) {
    return unlocked([&](Space& space) { return space.versions(name); });
  }
  // (start, count) of each.
  nb::list blocks(const std::string& name, std::uint64_t version) {
    nb::list out;
    for (const auto& box : unlocked([&](Space& space) { return space.blocks(name, version); }))
      out.append(nb::make_tuple(tuple_of(box.start), tuple_of(box.count)));
    return out;
  }
  bool drop(const std::string& name, std::optional<std::uint64_t> version) {
    return unlocked([&](Space& space) { return version ? space.drop(name, *version) : space.drop(name); });
  }

 private:
  static nb::tuple tuple_of_info(const ArrayInfo& info) {
    return nb::make_tuple(info.name, std::string(name_of(info.dtype)), tuple_of(info.shape), info.parts);
  }
  static ArrayMemory memory_of(const Buffer& buffer, const std::string& dtype) {
    return {dtype_named(dtype), Order::row, buffer.strides()};
  }
  std::shared_ptr<Space> space_;
};

}  // namespace

nb::object open_space(const Context& context, const nb::dict& options) {
  return nb::cast(std::make_unique<PySpace>(context, pool_options_of(options)));
}

void bind_space(nb::module_& m) {
  nb::class_<PySpace>(m, "Space")
      .def("define", &PySpace::define, "name"_a, "dtype"_a, "shape"_a)
      .def("info", &PySpace::info, "name"_a)
      .def("wait_defined", &PySpace::wait_defined, "name"_a, "timeout_ms"_a)
      .def("list", &PySpace::list)
      .def("put", &PySpace::put, "name"_a, "version"_a, "start"_a, "dtype"_a, "array"_a, "timeout_ms"_a)
      .def("get", &PySpace::get, "name"_a, "version"_a, "start"_a, "dtype"_a, "out"_a, "timeout_ms"_a)
      .def("wait", &PySpace::wait, "name"_a, "version"_a, "start"_a, "count"_a, "timeout_ms"_a)
      .def("versions", &PySpace::versions, "name"_a)
      .def("blocks", &PySpace::blocks, "name"_a, "version"_a)
      .def("drop", &PySpace::drop, "name"_a, "version"_a.none())
      .def("close", &PySpace::close)
      .def("forget", &PySpace::forget);
}

}  // namespace penstock::python
