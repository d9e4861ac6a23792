#include "stream/file/hdf5/master.hpp"

#include <hdf5_hl.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/text.hpp"
#include "stream/file/folder.hpp"
#include "stream/file/hdf5/handles.hpp"

namespace penstock::stream {
namespace {

using h5::check;
using h5::Extents;
using h5::Id;
using model::VariableLayout;

constexpr std::string_view dims_suffix = "/dims";

class MasterContents {
 public:
  MasterContents(hid_t file, const Master& master) : file_(file), master_(master) {}

  std::uint64_t write() {
    h5::write_text(file_, "penstock_stream", master_.stream);
    note_attributes();
    const auto number = static_cast<std::int64_t>(master_.step);
    Id step = dataset(add_name("step"), H5T_STD_I64LE, {1});
    check(H5Dwrite(step, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &number), "write the step's number");
    check(H5DSset_scale(step, "step"), "make a dimension");
    h5::write_text(step, "long_name", "number of the step");
    scales_.emplace("step", std::move(step));
    for (const auto& variable : master_.epoch.defined())  // before any dimension takes one of their names
      if (!variable.blocks.empty()) objects_.emplace(variable.info.name, add_name(variable.info.name));
    for (const auto& variable : master_.epoch.defined())
      if (!variable.blocks.empty()) add(variable);
    for (const auto& [name, value] : attributes_) add_attribute(name, *value);
    const Id layouts =
        h5::make_dataset(file_, "/penstock/layouts", H5T_STD_U8LE, {std::max<hsize_t>(1, master_.layouts.size())});
    check(H5Dwrite(layouts, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, master_.layouts.data()),
          "write the layouts");
    return h5::offset_of(layouts);
  }

 private:
  // The first rank's that has it; all mean the same.
  void note_attributes() {
    for (const auto& payload : master_.payloads)
      for (const auto& [name, value] : payload.attributes)
        if (known_.insert(name).second) attributes_.emplace_back(name, &value);
  }

  const Attribute* attribute(const std::string& name) const {
    for (const auto& [have, value] : attributes_)
      if (have == name) return value;
    return nullptr;
  }

  // A path for this name that is free. A name with a slash is in a group, unless that is a variable.
  std::string add_name(const std::string& wanted) {
    std::string path;
    for (const auto part : base::split(wanted, '/'))
      path.append(path.empty() ? "" : "/").append(part.empty() || part == "." ? "_" : std::string(part));
    while (true) {
      if (is_below_another(path)) std::ranges::replace(path, '/', '_');
      if (!is_taken(path)) break;
      path.insert(0, "_");
    }
    paths_.insert(path);
    return path;
  }
  bool is_below_another(const std::string& path) const {
    for (auto slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
      if (paths_.contains(path.substr(0, slash))) return true;
    return false;
  }
  // Also as the group of a name below it.
  bool is_taken(const std::string& path) const {
    const auto below = paths_.lower_bound(path + "/");
    return paths_.contains(path) || (below != paths_.end() && below->starts_with(path + "/"));
  }

  Id dataset(const std::string& name, hid_t type, const Extents& shape, hid_t creation = H5P_DEFAULT) const {
    const Id space = h5::space_of(shape), names = h5::names_list();
    return {H5Dcreate2(file_, name.c_str(), type, space, names, creation, H5P_DEFAULT), H5Dclose, "make a dataset"};
  }

  static std::string file_of(const model::Block& block, std::uint64_t step) {
    return block.writer_rank == 0 ? "." : file_name(step, static_cast<std::uint32_t>(block.writer_rank));
  }

  void add(const VariableLayout& v) {
    const auto& info = v.info;
    const auto& name = objects_.at(info.name);
    const model::VariableDefinition definition{info.name, info.dtype, info.kind, info.order, info.shape};
    if (info.dtype == DType::string) return add_strings(name, v);
    switch (info.kind) {
      case Kind::local_array: return add_local(name, v);
      case Kind::global_value: return add_value(name, v);
      case Kind::local_value: return add_array(name, v, definition, {1, v.blocks.size()});
      case Kind::global_array: return add_array(name, v, definition, h5::in_file(info.shape, definition, 1));
    }
  }

  void add_local(const std::string& name, const VariableLayout& v) {
    const Id names = h5::names_list();
    const Id group(H5Gcreate2(file_, name.c_str(), names, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "make a group");
    for (std::size_t b = 0; b < v.blocks.size(); ++b) {
      const auto& block = v.blocks[b];
      const auto link = std::to_string(b), from = h5::block_name(block.rank_block);
      if (block.bytes == 0) continue;
      const auto file = file_of(block, master_.step);
      check(file == "." ? H5Lcreate_hard(file_, from.c_str(), group, link.c_str(), H5P_DEFAULT, H5P_DEFAULT)
                        : H5Lcreate_external(file.c_str(), from.c_str(), group, link.c_str(), H5P_DEFAULT, H5P_DEFAULT),
            "link a block");
    }
  }

  void add_value(const std::string& name, const VariableLayout& v) {
    const auto& block = v.blocks.back();  // as readers see it
    std::vector<std::byte> bytes(block.bytes);
    master_.read(block, bytes);
    const Id type = h5::type_of(v.info.dtype);
    const Id set = dataset(name, type, {1});
    h5::mark_type(set, v.info.dtype);
    check(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), "write a value");
    attach_scales(set, v);
  }

  void add_strings(const std::string& name, const VariableLayout& v) {
    std::vector<const char*> texts(v.blocks.size(), "");
    for (std::size_t b = 0; b < v.blocks.size(); ++b)
      for (const auto& s : master_.payloads[static_cast<std::size_t>(v.blocks[b].writer_rank)].strings)
        if (s.block == v.blocks[b].rank_block) texts[b] = s.text.c_str();
    if (v.info.kind == Kind::global_value) texts.erase(texts.begin(), texts.end() - 1);
    const Id type = h5::text_type();
    Extents shape{1};
    if (v.info.kind == Kind::local_value) shape.push_back(texts.size());
    const Id set = dataset(name, type, shape);
    check(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts.data()), "write strings");
    attach_scales(set, v);
  }

  // The block's own dataset where one is the whole array and in this file, else a virtual dataset over the blocks.
  void add_array(const std::string& name, const VariableLayout& v, const model::VariableDefinition& definition,
                 const Extents& shape) {
    std::vector<const model::Block*> blocks;
    for (const auto& block : v.blocks)
      if (block.bytes > 0) blocks.push_back(&block);
    const Id names = h5::names_list();
    const bool whole = blocks.size() == 1 && blocks[0]->writer_rank == 0 && definition.kind == Kind::global_array &&
                       blocks[0]->box.count == definition.shape;
    if (whole) {
      check(
          H5Lcreate_hard(file_, h5::block_name(blocks[0]->rank_block).c_str(), file_, name.c_str(), names, H5P_DEFAULT),
          "link a block");
      attach_scales(Id(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose, "open a block"), v);
      return;
    }
    const Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "make properties");
    const Id space = h5::space_of(shape);
    for (const auto* block : blocks) {
      const auto start = h5::in_file(block->box.start, definition, 0),
                 count = h5::in_file(block->box.count, definition, 1);
      check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr), "select a block");
      const Id source = h5::space_of(definition.kind == Kind::local_value ? Extents{1} : count);
      check(H5Pset_virtual(creation, space, file_of(*block, master_.step).c_str(),
                           h5::block_name(block->rank_block).c_str(), source),
            "make a virtual dataset");
    }
    const Id type = h5::type_of(definition.dtype);
    const Id set = dataset(name, type, shape, blocks.empty() ? static_cast<hid_t>(H5P_DEFAULT) : creation);
    h5::mark_type(set, definition.dtype);
    attach_scales(set, v);
  }

  // A dimension without coordinates, as netCDF-4 has them.
  hid_t scale(std::string name, hsize_t length) {
    const auto found = scales_.find(name);
    if (found != scales_.end() && lengths_[name] != length) name += "_" + std::to_string(length);
    if (const auto same = scales_.find(name); same != scales_.end()) return same->second;
    Id set = dataset(add_name(name), H5T_IEEE_F32BE, {length});
    auto digits = std::to_string(length);
    digits.insert(0, digits.size() < 10 ? 10 - digits.size() : 0, ' ');
    check(H5DSset_scale(set, ("This is a netCDF dimension but not a netCDF variable." + digits).c_str()),
          "make a dimension");
    lengths_[name] = length;
    return scales_.emplace(name, std::move(set)).first->second;
  }

  void attach_scales(hid_t set, const VariableLayout& v) {
    check(H5DSattach_scale(set, scales_.at("step"), 0), "name a dimension");
    const auto* dims = attribute(v.info.name + std::string(dims_suffix));
    const auto given = dims && dims->dtype == DType::string ? dims->strings : std::vector<std::string>{};
    const auto shape = v.info.kind == Kind::local_value ? Dims{v.blocks.size()} : v.info.shape;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const auto name = d < given.size() && !given[d].empty() ? given[d] : v.info.name + "_dim_" + std::to_string(d);
      const auto place = v.info.order == Order::column ? shape.size() - d : d + 1;
      check(H5DSattach_scale(set, scale(name, shape[d]), static_cast<unsigned>(place)), "name a dimension");
    }
  }

  void add_attribute(const std::string& name, const Attribute& value) {
    const auto slash = name.rfind('/');
    const auto owner = slash == std::string::npos ? objects_.end() : objects_.find(name.substr(0, slash));
    if (owner != objects_.end() && name.ends_with(dims_suffix)) return;  // the dimensions' names
    std::string key = owner == objects_.end() ? name : name.substr(slash + 1);
    if (owner == objects_.end()) std::ranges::replace(key, '/', '_');
    const Id object(H5Oopen(file_, owner == objects_.end() ? "/" : owner->second.c_str(), H5P_DEFAULT), H5Oclose,
                    "open a variable");
    while (key.empty() || H5Aexists(object, key.c_str()) > 0) key += '_';
    const Id type = h5::type_of(value.dtype), space = h5::space_of(value.is_array ? Extents{value.size()} : Extents{});
    const Id attribute(H5Acreate2(object, key.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                       "make an attribute");
    if (value.size() == 0) return;
    std::vector<const char*> texts;
    for (const auto& text : value.strings) texts.push_back(text.c_str());
    const void* data = value.dtype == DType::string ? static_cast<const void*>(texts.data()) : value.bytes.data();
    check(H5Awrite(attribute, type, data), "write an attribute");
  }

  const hid_t file_;
  const Master& master_;
  std::vector<std::pair<std::string, const Attribute*>> attributes_;
  std::set<std::string> known_, paths_{"penstock"};  // the group of blocks and layouts has this name
  std::map<std::string, std::string> objects_;       // the variables' paths
  std::map<std::string, Id> scales_;
  std::map<std::string, hsize_t> lengths_;
};

}  // namespace

std::uint64_t add_master(const std::string& path, const Master& master) {
  return h5::with(path, [&] {
    const Id access = h5::access_list();
    Id file(H5Fopen(path.c_str(), H5F_ACC_RDWR, access), H5Fclose, "open the file");
    const auto layouts = MasterContents(file, master).write();
    file.close("write the file");
    return layouts;
  });
}

}  // namespace penstock::stream
