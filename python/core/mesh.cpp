// Mesh regions: the extension's part. Models cross the border as text (mesh/model_text.hpp); python/penstock/mesh makes of it what
// users see.
#include <algorithm>

#include "mesh/database.hpp"
#include "mesh/exodus_part.hpp"
#include "mesh/file_series.hpp"
#include "mesh/model_text.hpp"
#include "mesh/numbering.hpp"

#include "core.hpp"
#include "penstock/mesh_database.hpp"

namespace penstock::python {
namespace {

MeshOptions mesh_options_of(const nb::dict& from) {
  MeshOptions options;
  for (auto [name, value] : from) set_option(options, nb::cast<std::string>(name), nb::cast<std::string>(value));
  return options;
}

void check_bytes(const mesh::Entity& entity, const mesh::Field& field, std::uint64_t rows, const Buffer& buffer) {
  const auto bytes = rows * mesh::components_of(field) * size_of(field.dtype);
  if (!buffer.packed(Order::row) || buffer.bytes() != bytes)
    throw Error(Errc::invalid_argument, "field '" + field.name + "' of " + std::string(mesh::name_of(entity.type)) +
                                            " '" + entity.name + "' takes a packed array of " + std::to_string(bytes) +
                                            " bytes");
}

// uint32, packed: an element each.
mesh::Assignment assignment_of(nb::handle array) {
  const Buffer buffer(array, false);
  if (buffer.shape().size() != 1 || !buffer.packed(Order::row) || buffer.bytes() != 4 * buffer.shape()[0])
    throw Error(Errc::invalid_argument, "the parts of elements are a packed array of uint32");
  const auto* first = static_cast<const std::uint32_t*>(buffer.data());
  return {first, first + buffer.bytes() / sizeof *first};
}

class PyRegionSource {
 public:
  explicit PyRegionSource(std::shared_ptr<mesh::Source> source) : source_(std::move(source)) {}
  ~PyRegionSource() { drop(); }
  void close() {
    const Turn turn(mutex_);  // another thread may be inside
    drop();
  }
  std::uint32_t parts() {
    const Turn turn(mutex_);
    return source().parts();
  }
  std::string model(std::uint32_t part) {
    const Turn turn(mutex_);
    auto& source = this->source();
    Unlocked unlocked;
    return mesh::to_text(source.model(part));
  }
  // Number and time, None (none is ready), False (there are no more), or True (the model is another one).
  nb::object next_state(std::int64_t timeout_ms) {
    const Turn turn(mutex_);
    auto& source = this->source();
    mesh::StateOutcome outcome;
    {
      Unlocked unlocked;
      outcome = source.next_state(timeout_of(timeout_ms));
    }
    if (outcome.kind == mesh::StateOutcome::Kind::not_ready) return nb::none();
    if (outcome.kind == mesh::StateOutcome::Kind::end) return nb::bool_(false);
    if (outcome.kind == mesh::StateOutcome::Kind::model) return nb::bool_(true);
    return nb::make_tuple(outcome.number, outcome.time);
  }
  std::vector<double> times() {
    const Turn turn(mutex_);
    auto& source = this->source();
    Unlocked unlocked;
    return source.times();
  }
  void seek(std::uint64_t state) {
    const Turn turn(mutex_);
    source().seek(state);
  }
  void read(std::uint32_t part, std::size_t entity, std::size_t field, std::uint64_t first, std::uint64_t count,
            nb::handle out) {
    const Turn turn(mutex_);
    auto& source = this->source();
    const Buffer buffer(out, true);
    const auto& its = source.model(part).entities.at(entity);
    check_bytes(its, its.fields.at(field), count, buffer);
    Unlocked unlocked;
    source.read(part, {entity, field}, {first, count}, buffer.data());
  }
  std::unique_ptr<PyRegionSource> join() {
    const Turn turn(mutex_);
    auto source = shared();
    Unlocked unlocked;
    return std::make_unique<PyRegionSource>(mesh::join(std::move(source)));
  }
  // As parts: with as many elements each, or those that an assignment gives them.
  std::unique_ptr<PyRegionSource> spread(std::uint32_t parts, nb::object assignment, std::uint64_t nodes) {
    const Turn turn(mutex_);
    auto source = shared();
    if (!assignment.is_none()) {
      mesh::LoadBalance balance{assignment_of(assignment), parts, nodes};
      Unlocked unlocked;
      return std::make_unique<PyRegionSource>(mesh::spread(std::move(source), std::move(balance)));
    }
    Unlocked unlocked;
    const auto assign = [parts](const mesh::Model& model) { return mesh::assign_linear(model, parts); };
    return std::make_unique<PyRegionSource>(mesh::spread(std::move(source), assign, parts));
  }
  void write_load_balance(const std::string& path, std::uint32_t parts, nb::object assignment) {
    const Turn turn(mutex_);
    const auto source = shared();
    mesh::LoadBalance balance{{}, parts, 0};
    if (!assignment.is_none()) balance.assignment = assignment_of(assignment);
    Unlocked unlocked;
    if (assignment.is_none()) balance.assignment = mesh::assign_linear(source->model(0), parts);
    mesh::write_load_balance(path, source, balance);
  }
  // With the elements of these blocks alone, of all if none is named, but not of those.
  std::unique_ptr<PyRegionSource> select(const std::vector<std::string>& blocks,
                                         const std::vector<std::string>& without) {
    const Turn turn(mutex_);
    auto source = shared();
    Unlocked unlocked;
    const auto has = [](const std::vector<std::string>& names, const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    const auto assign = [blocks, without, has](const mesh::Model& model) {
      std::vector<std::string> kept;
      for (const auto& each : model.entities)
        if (each.type == mesh::EntityType::element_block && (blocks.empty() || has(blocks, each.name)) &&
            !has(without, each.name))
          kept.push_back(each.name);
      return mesh::assign_blocks(model, kept);
    };
    return std::make_unique<PyRegionSource>(mesh::spread(std::move(source), assign, 1));
  }

 private:
  std::shared_ptr<mesh::Source> shared() {
    if (!source_) throw Error(Errc::wrong_state, "the region is closed");
    return source_;
  }
  mesh::Source& source() { return *shared(); }
  void drop() {
    if (source_) drop_unlocked(source_);
  }
  std::mutex mutex_;
  std::shared_ptr<mesh::Source> source_;
};

class PyRegionSink {
 public:
  explicit PyRegionSink(std::unique_ptr<mesh::Sink> sink) : sink_(std::move(sink)) {}
  ~PyRegionSink() { drop(); }
  void abandon() {
    const Turn turn(mutex_);
    drop();
  }
  void define(const std::string& text) {
    const Turn turn(mutex_);
    auto& sink = this->sink();
    model_ = mesh::unchecked_model_from_text(text);  // checked where all ranks hear of it
    Unlocked unlocked;
    sink.define(model_);
  }
  void write(std::size_t entity, std::size_t field, nb::handle values) {
    const Turn turn(mutex_);
    auto& sink = this->sink();
    const Buffer buffer(values, false);
    const auto& its = model_.entities.at(entity);
    check_bytes(its, its.fields.at(field), mesh::rows_of(its, its.fields.at(field)), buffer);
    Unlocked unlocked;
    sink.write({entity, field}, buffer.data());
  }
  void begin_state(double time) {
    const Turn turn(mutex_);
    auto& sink = this->sink();
    Unlocked unlocked;
    sink.begin_state(time);
  }
  void end_state() {
    const Turn turn(mutex_);
    auto& sink = this->sink();
    Unlocked unlocked;
    sink.end_state();
  }
  void abandon_state() {
    const Turn turn(mutex_);
    auto& sink = this->sink();
    Unlocked unlocked;
    sink.abandon_state();
  }
  void close() {
    const Turn turn(mutex_);
    auto& sink = this->sink();
    {
      Unlocked unlocked;
      sink.close();
    }
    drop_unlocked(sink_);
  }

 private:
  mesh::Sink& sink() {
    if (!sink_) throw Error(Errc::wrong_state, "the region is closed");
    return *sink_;
  }
  void drop() {
    if (sink_) drop_unlocked(sink_);
  }
  std::mutex mutex_;
  std::unique_ptr<mesh::Sink> sink_;
  mesh::Model model_;
};

// Released with the object, or by release().
class PyHeldFiles {
 public:
  explicit PyHeldFiles(const std::string& name) {
    Unlocked unlocked;
    held_ = mesh::hold_exodus_files(name);
  }
  void release() { held_.reset(); }

 private:
  std::shared_ptr<void> held_;
};

}  // namespace

nb::object open_region(const Context& context, const std::string& name, nb::object cohort, const nb::dict& options) {
  const auto chosen = mesh_options_of(options);
  auto ranks = cohort_of(std::move(cohort));
  std::unique_ptr<PyRegionSource> source;
  {
    Unlocked unlocked;
    source = std::make_unique<PyRegionSource>(mesh::open_region(context, name, std::move(ranks), chosen));
  }
  return nb::cast(std::move(source));
}

nb::object create_region(const Context& context, const std::string& name, nb::object cohort, const nb::dict& options) {
  const auto chosen = mesh_options_of(options);
  auto ranks = cohort_of(std::move(cohort));
  std::unique_ptr<PyRegionSink> sink;
  {
    Unlocked unlocked;
    sink = std::make_unique<PyRegionSink>(mesh::create_region(context, name, std::move(ranks), chosen));
  }
  return nb::cast(std::move(sink));
}

void bind_mesh(nb::module_& m) {
  nb::class_<PyRegionSource>(m, "RegionSource")
      .def("parts", &PyRegionSource::parts)
      .def("model", &PyRegionSource::model, "part"_a)
      .def("next_state", &PyRegionSource::next_state, "timeout_ms"_a,
           nb::sig("def next_state(self, timeout_ms: int) -> tuple[int, float] | bool | None"))
      .def("times", &PyRegionSource::times)
      .def("seek", &PyRegionSource::seek, "state"_a)
      .def("read", &PyRegionSource::read, "part"_a, "entity"_a, "field"_a, "first"_a, "count"_a, "out"_a)
      .def("join", &PyRegionSource::join)
      .def("spread", &PyRegionSource::spread, "parts"_a, "assignment"_a.none(), "nodes"_a)
      .def("write_load_balance", &PyRegionSource::write_load_balance, "path"_a, "parts"_a, "assignment"_a.none())
      .def("select", &PyRegionSource::select, "blocks"_a, "without"_a)
      .def("close", &PyRegionSource::close);
  nb::class_<PyRegionSink>(m, "RegionSink")
      .def("define", &PyRegionSink::define, "model"_a)
      .def("write", &PyRegionSink::write, "entity"_a, "field"_a, "values"_a)
      .def("begin_state", &PyRegionSink::begin_state, "time"_a)
      .def("end_state", &PyRegionSink::end_state)
      .def("abandon_state", &PyRegionSink::abandon_state)
      .def("close", &PyRegionSink::close)
      .def("abandon", &PyRegionSink::abandon);
  nb::class_<PyHeldFiles>(m, "HeldMeshFiles")
      .def(nb::init<const std::string&>(), "name"_a)
      .def("release", &PyHeldFiles::release);
  // Parts, the part of each element as uint32, nodes.
  m.def(
      "read_load_balance",
      [](const std::string& path) {
        const auto balance = [&] {
          Unlocked unlocked;
          return mesh::read_load_balance(path);
        }();
        const auto& parts = balance.assignment;
        return nb::make_tuple(balance.parts, nb::bytes(reinterpret_cast<const char*>(parts.data()), 4 * parts.size()),
                              balance.nodes);
      },
      "path"_a);
  // As YAML, a line each.
  m.def(
      "mesh_options_of_files",
      [](const std::string& name) {
        Unlocked unlocked;
        return mesh_options_to_yaml(mesh::options_of_exodus_files(name));
      },
      "name"_a);
  m.def(
      "mesh_name_of_file", [](const std::string& name) { return mesh::is_exodus_name(name); }, "name"_a);
  m.def(
      "mesh_files_of",
      [](const std::string& name) {
        std::vector<std::string> paths;
        for (auto& each : mesh::files_of_series(name)) paths.push_back(std::move(each.path));
        return paths;
      },
      "name"_a);
  m.def(
      "mesh_database_of", [](const std::string& name) { return std::string(mesh::database_of(name)); }, "name"_a);
  m.def(
      "mesh_suffixes", [](const std::string& storage) { return mesh::storage_named(storage).suffixes; }, "storage"_a);
  m.def(
      "mesh_topology",
      [](const std::string& name) {
        const auto* found = mesh::find_topology(name);
        return std::string(found != nullptr ? found->name : "");
      },
      "name"_a);
  // Of each: name, nodes, dimension, VTK's cell type (0: none), for each node of VTK's cell which node it is here.
  m.def("mesh_topologies", [] {
    nb::list out;
    for (const auto& each : mesh::topologies())
      out.append(nb::make_tuple(std::string(each.name), each.nodes, each.dimension, each.vtk,
                                std::vector<int>(each.vtk_order.begin(), each.vtk_order.end())));
    return out;
  });
  // The type of entity whose members a field numbers, or "", and whether all components do, or the first one.
  m.def(
      "mesh_reference",
      [](const std::string& type, const std::string& topology, const std::string& role, const std::string& field) {
        const auto found = mesh::reference_of({.type = mesh::entity_type_from_name(type), .topology = topology},
                                              {.name = field, .role = mesh::role_from_name(role)});
        const bool none = found.type == mesh::EntityType::region;
        return nb::make_tuple(none ? std::string() : std::string(mesh::name_of(found.type)), found.all);
      },
      "type"_a, "topology"_a, "role"_a, "field"_a);
}

}  // namespace penstock::python
