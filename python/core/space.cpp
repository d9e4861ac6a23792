// Array spaces: the extension's part. python/penstock/space.py makes of it what users see.
#include "penstock/space.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include "core.hpp"

namespace penstock::python {
namespace {

ConversionCheck check_named(const std::string& name) {
  if (name == "none") return ConversionCheck::none;
  return name == "exact" ? ConversionCheck::exact : ConversionCheck::range;
}

// Arrays of fields, or one of elements that have none, held while their memory is used.
class Fields {
 public:
  Fields(const std::vector<std::tuple<std::string, std::string, nb::object>>& arrays, bool writable,
         const std::string& check) {
    memory.check = check_named(check);
    for (const auto& [name, dtype, array] : arrays) {
      const auto& buffer = buffers_.emplace_back(array, writable);
      if (buffer.shape() != shape()) throw Error(Errc::invalid_argument, "arrays of fields have different shapes");
      const auto address = reinterpret_cast<std::intptr_t>(buffer.data());
      const auto offset = address - reinterpret_cast<std::intptr_t>(data());
      if (!name.empty()) memory.fields.push_back({name, dtype_named(dtype), offset, buffer.strides()});
      else memory.dtype = dtype_named(dtype), memory.strides = buffer.strides();
    }
    if (buffers_.empty()) throw Error(Errc::invalid_argument, "no field is named");
  }
  void* data() const { return buffers_.front().data(); }
  Dims shape() const { return buffers_.front().shape(); }
  ArrayMemory memory;

 private:
  std::vector<Buffer> buffers_;
};

class PySpace {
  // The call, without the interpreter lock; another thread may close this meanwhile.
  template <class Call>
  auto unlocked(Call&& call) {
    return open_->run_with(space_, std::forward<Call>(call));
  }

 public:
  PySpace(const Context& context, PoolOptions options) {
    Unlocked unlocked;
    space_ = std::make_shared<Space>(context, std::move(options));
  }
  ~PySpace() { close(); }
  void close() {
    open_->close();
    if (space_) drop_unlocked(space_);
  }
  void forget() {
    open_->close();
    static_cast<void>(new std::shared_ptr<Space>(std::move(space_)));
  }

  using Named = std::vector<std::pair<std::string, std::string>>;

  // Each as (name, dtype, shape, parts, convert, fields).
  // fields: (name, dtype) of each, instead of dtype. layouts: (dtype, whether in columns) of each.
  nb::tuple define(const std::string& name, const std::string& dtype, const Named& fields, const Sizes& shape,
                   const std::string& convert, const std::vector<std::pair<std::string, bool>>& layouts,
                   std::uint32_t keep, std::uint64_t keep_bytes, std::uint64_t keep_ms,
                   const std::vector<std::string>& readers) {
    const auto type = fields.empty() ? dtype_named(dtype) : DType::none;
    const auto dims = dims_of(shape);
    std::vector<ArrayField> structure;
    for (const auto& [field, kind] : fields) structure.push_back({field, dtype_named(kind)});
    ArrayOptions options;
    options.convert = convert_at_named(convert);
    options.keep = keep;
    options.keep_bytes = keep_bytes;
    options.keep_ms = keep_ms;
    options.readers = readers;
    for (const auto& [kind, columns] : layouts)
      options.layouts.push_back({dtype_named(kind), columns ? Order::column : Order::row});
    return tuple_of_info(unlocked([&](Space& space) {
      return structure.empty() ? space.define(name, type, dims, options) : space.define(name, structure, dims, options);
    }));
  }
  std::vector<std::string> explain(const std::string& name, std::uint64_t version, const Sizes& start,
                                   const Sizes& count, const std::string& dtype, bool columns) {
    ArrayMemory memory;
    if (!dtype.empty()) memory.dtype = dtype_named(dtype);
    memory.order = columns ? Order::column : Order::row;
    const Box box{dims_of(start), dims_of(count)};
    return unlocked([&](Space& space) { return space.explain(name, version, box, memory); });
  }
  nb::list status() {
    nb::list out;
    for (const auto& one : unlocked([](Space& space) { return space.status(); })) {
      nb::dict fields;
      fields["server"] = one.server;
      fields["conversions"] = one.conversions;
      fields["converted_bytes"] = one.converted_bytes;
      fields["conversion_s"] = one.conversion_s;
      fields["requests"] = one.requests;
      fields["given_bytes"] = one.given_bytes;
      fields["shared_bytes"] = one.shared_bytes;
      fields["left_to_readers"] = one.left_to_readers;
      fields["replica_bytes"] = one.replica_bytes;
      fields["replica_peak"] = one.replica_peak;
      fields["replica_limit"] = one.replica_limit;
      fields["evictions"] = one.evictions;
      out.append(fields);
    }
    return out;
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

  // arrays: (field, dtype, array of the box's shape) of each field that is moved; one without a name where elements have none. The
  // buffer may not know the dtype (bfloat16).
  using Arrays = std::vector<std::tuple<std::string, std::string, nb::object>>;
  void put(const std::string& name, std::uint64_t version, const Sizes& start, const Arrays& arrays,
           const std::string& check, std::int64_t timeout_ms) {
    const Fields from(arrays, false, check);
    const Box box{dims_of(start), from.shape()};
    unlocked([&](Space& space) { space.put(name, version, box, from.data(), from.memory, timeout_of(timeout_ms)); });
  }
  nb::object start_put(const std::string& name, std::uint64_t version, const Sizes& start, const Arrays& arrays,
                       const std::string& check, std::int64_t timeout_ms);
  void get(const std::string& name, std::uint64_t version, const Sizes& start, const Arrays& arrays,
           const std::string& check, std::int64_t timeout_ms) {
    const Fields into(arrays, true, check);
    const Box box{dims_of(start), into.shape()};
    unlocked([&](Space& space) { space.get(name, version, box, into.data(), into.memory, timeout_of(timeout_ms)); });
  }
  // array: the bytes of the box of `count` in the layout, packed.
  void put_in_layout(const std::string& name, std::uint64_t version, const Sizes& start, const Sizes& count,
                     const std::string& dtype, const Named& fields, const std::string& layout, nb::handle array,
                     const std::string& check, std::int64_t timeout_ms) {
    const Buffer from(array, false);
    const Box box{dims_of(start), dims_of(count)};
    const auto memory = memory_in_layout(layout, dtype, fields, check, from);
    unlocked([&](Space& space) { space.put(name, version, box, from.data(), memory, timeout_of(timeout_ms)); });
  }
  void get_in_layout(const std::string& name, std::uint64_t version, const Sizes& start, const Sizes& count,
                     const std::string& dtype, const Named& fields, const std::string& layout, nb::handle array,
                     const std::string& check, std::int64_t timeout_ms) {
    const Buffer into(array, true);
    const Box box{dims_of(start), dims_of(count)};
    const auto memory = memory_in_layout(layout, dtype, fields, check, into);
    unlocked([&](Space& space) { space.get(name, version, box, into.data(), memory, timeout_of(timeout_ms)); });
  }
  void wait(const std::string& name, std::uint64_t version, const Sizes& start, const Sizes& count,
            std::int64_t timeout_ms) {
    const Box box{dims_of(start), dims_of(count)};
    unlocked([&](Space& space) { space.wait(name, version, box, timeout_of(timeout_ms)); });
  }
  void done(const std::string& name, std::uint64_t version, const std::string& reader, std::int64_t timeout_ms) {
    unlocked([&](Space& space) { space.done(name, version, reader, timeout_of(timeout_ms)); });
  }
  nb::object subscribe(const std::string& name, const Sizes& start, const Sizes& count, std::uint64_t first,
                       std::uint64_t step, std::optional<std::uint64_t> stop, std::int64_t timeout_ms);
  std::vector<std::uint64_t> versions(const std::string& name) {
    return unlocked([&](Space& space) { return space.versions(name); });
  }
  // (start, count, writer, microseconds since 1970) of each.
  nb::list blocks(const std::string& name, std::uint64_t version) {
    nb::list out;
    for (const auto& block : unlocked([&](Space& space) { return space.blocks(name, version); }))
      out.append(nb::make_tuple(tuple_of(block.box.start), tuple_of(block.box.count), block.writer, block.put_us));
    return out;
  }
  bool drop(const std::string& name, std::optional<std::uint64_t> version) {
    return unlocked([&](Space& space) { return version ? space.drop(name, *version) : space.drop(name); });
  }

 private:
  static nb::tuple tuple_of_info(const ArrayInfo& info) {
    nb::list fields;
    for (const auto& field : info.fields) fields.append(nb::make_tuple(field.name, std::string(name_of(field.dtype))));
    return nb::make_tuple(info.name, std::string(name_of(info.dtype)), tuple_of(info.shape), info.parts,
                          std::string(name_of(info.options.convert)), fields);
  }
  static ArrayMemory memory_in_layout(const std::string& layout, const std::string& dtype, const Named& fields,
                                      const std::string& check, const Buffer& buffer) {
    ArrayMemory memory;
    if (!dtype.empty()) memory.dtype = dtype_named(dtype);
    for (const auto& [field, kind] : fields) {
      memory.fields.push_back({field, dtype_named(kind), static_cast<std::int64_t>(memory.structure_bytes), {}});
      memory.structure_bytes += size_of(memory.fields.back().dtype);
    }
    memory.layout = layout;
    memory.layout_bytes = buffer.bytes();
    memory.check = check_named(check);
    return memory;
  }
  const std::shared_ptr<OpenState> open_ = std::make_shared<OpenState>("the space");
  std::shared_ptr<Space> space_;
};

// A put that goes on: it reads the arrays until it has ended.
class PySpacePut {
 public:
  PySpacePut(PendingPut put, Fields from) : from_(std::move(from)), put_(std::move(put)) {}
  PySpacePut(PySpacePut&&) = default;
  ~PySpacePut() {
    if (!put_) return;
    Unlocked unlocked;
    put_.reset();
  }
  void wait() {
    Unlocked unlocked;
    if (auto put = std::exchange(put_, std::nullopt)) put->wait();
  }

 private:
  Fields from_;
  std::optional<PendingPut> put_;
};

nb::object PySpace::start_put(const std::string& name, std::uint64_t version, const Sizes& start, const Arrays& arrays,
                              const std::string& check, std::int64_t timeout_ms) {
  Fields from(arrays, false, check);
  const Box box{dims_of(start), from.shape()};
  auto put = unlocked([&](Space& space) {
    return space.start_put(name, version, box, from.data(), from.memory, timeout_of(timeout_ms));
  });
  return nb::cast(PySpacePut(std::move(put), std::move(from)));
}

// Iterated in Python, by one thread at a time.
struct PyVersions {
  VersionSubscription versions;
  std::shared_ptr<const OpenState> open;
  std::optional<std::uint64_t> next(std::int64_t timeout_ms) {
    return open->run([&] { return versions.next(timeout_of(timeout_ms)); });
  }
  std::uint64_t skipped() const { return versions.skipped(); }
};

nb::object PySpace::subscribe(const std::string& name, const Sizes& start, const Sizes& count, std::uint64_t first,
                              std::uint64_t step, std::optional<std::uint64_t> stop, std::int64_t timeout_ms) {
  const Box box{dims_of(start), dims_of(count)};
  auto versions = unlocked([&](Space& space) {
    return space.subscribe(name, box, {first, step, stop}, timeout_of(timeout_ms));
  });
  return nb::cast(PyVersions{std::move(versions), open_});
}

}  // namespace

nb::object open_space(const Context& context, const nb::dict& options) {
  return nb::cast(std::make_unique<PySpace>(context, pool_options_of(options)));
}

void bind_space(nb::module_& m) {
  m.def("load_layouts", [](const std::string& path) {
    Unlocked unlocked;
    return load_layouts(path);
  });
  m.def("layout_bytes", [](const std::string& layout, const Sizes& count, std::uint64_t element_bytes) {
    return layout_bytes(layout, dims_of(count), element_bytes);
  });
  nb::class_<PyVersions>(m, "Versions")
      .def("next", &PyVersions::next, "timeout_ms"_a)
      .def_prop_ro("skipped", &PyVersions::skipped);
  nb::class_<PySpacePut>(m, "SpacePut").def("wait", &PySpacePut::wait);
  nb::class_<PySpace>(m, "Space")
      .def("define", &PySpace::define, "name"_a, "dtype"_a, "fields"_a, "shape"_a, "convert"_a, "layouts"_a, "keep"_a,
           "keep_bytes"_a, "keep_ms"_a, "readers"_a)
      .def("done", &PySpace::done, "name"_a, "version"_a, "reader"_a, "timeout_ms"_a)
      .def("explain", &PySpace::explain, "name"_a, "version"_a, "start"_a, "count"_a, "dtype"_a, "columns"_a)
      .def("status", &PySpace::status)
      .def("info", &PySpace::info, "name"_a)
      .def("wait_defined", &PySpace::wait_defined, "name"_a, "timeout_ms"_a)
      .def("list_arrays", &PySpace::list)
      .def("put", &PySpace::put, "name"_a, "version"_a, "start"_a, "arrays"_a, "check"_a, "timeout_ms"_a)
      .def("start_put", &PySpace::start_put, "name"_a, "version"_a, "start"_a, "arrays"_a, "check"_a, "timeout_ms"_a,
           nb::sig("def start_put(self, name: str, version: int, start: Sequence[int], "
                   "arrays: Sequence[tuple[str, str, object]], check: str, timeout_ms: int) -> SpacePut"))
      .def("get", &PySpace::get, "name"_a, "version"_a, "start"_a, "arrays"_a, "check"_a, "timeout_ms"_a)
      .def("put_in_layout", &PySpace::put_in_layout, "name"_a, "version"_a, "start"_a, "count"_a, "dtype"_a, "fields"_a,
           "layout"_a, "array"_a, "check"_a, "timeout_ms"_a)
      .def("get_in_layout", &PySpace::get_in_layout, "name"_a, "version"_a, "start"_a, "count"_a, "dtype"_a, "fields"_a,
           "layout"_a, "array"_a, "check"_a, "timeout_ms"_a)
      .def("wait", &PySpace::wait, "name"_a, "version"_a, "start"_a, "count"_a, "timeout_ms"_a)
      .def("subscribe", &PySpace::subscribe, "name"_a, "start"_a, "count"_a, "first"_a, "step"_a, "stop"_a.none(),
           "timeout_ms"_a,
           nb::sig("def subscribe(self, name: str, start: Sequence[int], count: Sequence[int], first: int, step: int, "
                   "stop: int | None, timeout_ms: int) -> Versions"))
      .def("versions", &PySpace::versions, "name"_a)
      .def("blocks", &PySpace::blocks, "name"_a, "version"_a)
      .def("drop", &PySpace::drop, "name"_a, "version"_a.none())
      .def("close", &PySpace::close)
      .def("forget", &PySpace::forget);
}

}  // namespace penstock::python
