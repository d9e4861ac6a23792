#include "mesh/exodus/load_balance.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "mesh/exodus/classic_header.hpp"
#include "mesh/exodus/netcdf_file.hpp"
#include "mesh/spread.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

using Numbers = std::vector<std::int64_t>;

constexpr std::size_t most_parts = std::size_t{1} << 20;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(Errc::invalid_argument, path + ": " + why);
}

// None where the file does not have it: nothing of this kind is there.
Numbers read_numbers(const NetcdfFile& file, const std::string& name) {
  const auto* variable = file.find(name);
  if (variable == nullptr) return {};
  if (variable->dimensions.size() != 1) refuse(file.path(), name + " is no list");
  Numbers out(file.rows_of(*variable));
  file.read(variable->id, DType::int64, {0}, {out.size()}, out.data());
  return out;
}

// Adds the elements of each part: those inside, or those at its border. base: the first element's number in the file.
void assign(LoadBalance& balance, const NetcdfFile& file, const Numbers& elements, Numbers ends, std::int64_t base) {
  if (ends.empty() && balance.parts == 1) ends.push_back(static_cast<std::int64_t>(elements.size()));
  if (ends.size() != balance.parts) refuse(file.path(), "its index of elements is not of all parts");
  std::int64_t at = 0;
  for (std::uint32_t part = 0; part < balance.parts; ++part) {
    const auto end = ends[part];
    if (end < at || end > static_cast<std::int64_t>(elements.size()))
      refuse(file.path(), "the index of elements of part " + std::to_string(part) + " is damaged");
    for (; at < end; ++at) {
      const auto number = elements[static_cast<std::size_t>(at)];
      const auto element = static_cast<std::uint64_t>(number - base);
      if (number < base || element >= balance.assignment.size())
        refuse(file.path(), "part " + std::to_string(part) + " has element " + std::to_string(number - base + 1) +
                                " of " + std::to_string(balance.assignment.size()));
      auto& owner = balance.assignment[element];
      if (owner != no_part)
        refuse(file.path(), "element " + std::to_string(element + 1) + " is in part " + std::to_string(owner) +
                                " and in part " + std::to_string(part) + ": only elements can be balanced, not nodes");
      owner = part;
    }
  }
  if (at != static_cast<std::int64_t>(elements.size()))
    refuse(file.path(), "the index of elements names " + std::to_string(at) + " of " + std::to_string(elements.size()));
}

// Of each part, one after the other.
struct Lists {
  Numbers values, ends;
  void end() { ends.push_back(static_cast<std::int64_t>(values.size())); }
};

struct Shares {
  Lists inner_nodes, border_nodes, elements;
  Numbers map_ends;       // by part: how many lists of shared nodes it and those before it have
  Lists shared;           // for each part that shares nodes: these
  Numbers shared_owners;  // another part that has each of them
};

Shares lists_of(const std::vector<Share>& shares) {
  Shares out;
  for (const auto& share : shares) {
    std::set<std::uint64_t> border;
    for (const auto& [node, part] : share.shared) {
      border.insert(node);
      out.shared.values.push_back(static_cast<std::int64_t>(node));
      out.shared_owners.push_back(part);
    }
    if (!border.empty()) out.shared.end();
    out.map_ends.push_back(static_cast<std::int64_t>(out.shared.ends.size()));
    for (const auto node : share.nodes)
      (border.contains(node) ? out.border_nodes : out.inner_nodes).values.push_back(static_cast<std::int64_t>(node));
    out.elements.values.insert(out.elements.values.end(), share.elements.begin(), share.elements.end());
    for (auto* lists : {&out.inner_nodes, &out.border_nodes, &out.elements}) lists->end();
  }
  return out;
}

// For each part: whether it has any.
Numbers status_of(const Numbers& ends) {
  Numbers out;
  std::int64_t before = 0;
  for (const auto end : ends) out.push_back(std::exchange(before, end) != end ? 1 : 0);
  return out;
}

struct Variable {
  const char *name, *dimension;
  Numbers values;
};

std::vector<Variable> variables_of(const Model& model, Shares shares) {
  const Numbers none(shares.map_ends.size(), 0);
  Numbers blocks, sizes;
  for (const auto& entity : model.entities)
    if (entity.type == EntityType::element_block) {
      blocks.push_back(entity.id);
      sizes.push_back(static_cast<std::int64_t>(entity.count));
    }
  const Numbers ones(shares.shared.ends.size(), 1);
  return {{"nem_ftype", nullptr, {1}},  // of all parts
          {"el_blk_ids_global", "num_el_blk_global", std::move(blocks)},
          {"el_blk_cnt_global", "num_el_blk_global", std::move(sizes)},
          {"int_n_stat", "num_procs_file", status_of(shares.inner_nodes.ends)},
          {"bor_n_stat", "num_procs_file", status_of(shares.border_nodes.ends)},
          {"ext_n_stat", "num_procs_file", none},
          {"int_e_stat", "num_procs_file", status_of(shares.elements.ends)},
          {"bor_e_stat", "num_procs_file", none},
          {"elem_mapi", "num_int_elem", std::move(shares.elements.values)},
          {"elem_mapi_idx", "num_procs_file", std::move(shares.elements.ends)},
          {"node_mapi", "num_int_node", std::move(shares.inner_nodes.values)},
          {"node_mapi_idx", "num_procs_file", std::move(shares.inner_nodes.ends)},
          {"node_mapb", "num_bor_node", std::move(shares.border_nodes.values)},
          {"node_mapb_idx", "num_procs_file", std::move(shares.border_nodes.ends)},
          {"n_comm_ids", "num_n_cmaps", ones},
          {"n_comm_stat", "num_n_cmaps", ones},
          {"n_comm_info_idx", "num_procs_file", std::move(shares.map_ends)},
          {"n_comm_data_idx", "num_n_cmaps", std::move(shares.shared.ends)},
          {"n_comm_nids", "ncnt_cmap", std::move(shares.shared.values)},
          {"n_comm_proc", "ncnt_cmap", std::move(shares.shared_owners)}};
}

bool is_load_balance(const NetcdfFile& file) {
  return file.dimension("num_processors") && file.dimension("num_procs_file") && !file.dimension("num_nodes") &&
         (file.find("elem_mapi") != nullptr || file.find("elem_mapb") != nullptr);
}

void require_regular(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    refuse(path, "it is no file");
}

// A mesh that has the name by mistake is not lost.
void require_replaceable(const std::string& path) {
  require_regular(path);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !is_load_balance(NetcdfFile::open(path)))
    refuse(path, "there is a file of another kind: give the load-balance file another name");
}

// A file beside another one, until it has that one's name; goes where it does not get it.
class Unfinished {
 public:
  explicit Unfinished(const std::string& path) : path_(path), name_(path + ".XXXXXX") {
    const int fd = ::mkstemp(name_.data());
    if (fd < 0) throw Error(Errc::system, name_ + ": " + std::generic_category().message(errno));
    ::fchmod(fd, S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH);
    ::close(fd);
  }
  Unfinished(const Unfinished&) = delete;
  ~Unfinished() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }
  const std::string& name() const { return name_; }
  void take_name() {
    std::error_code error;
    std::filesystem::rename(name_, path_, error);
    if (error) throw Error(Errc::system, path_ + ": cannot be given its name: " + error.message());
    name_.clear();
  }

 private:
  const std::string path_;
  std::string name_;
};

}  // namespace

LoadBalance read_load_balance_file(const std::string& path) {
  require_regular(path);
  require_whole(path);  // netCDF would read zeros, and not every damaged header is an error to it
  const auto file = NetcdfFile::open(path);
  const auto parts = file.dimension("num_processors"), described = file.dimension("num_procs_file");
  if (!is_load_balance(file))
    refuse(path, "it is no load-balance file, as nem_slice and penstock mesh balance write them");
  if (*parts != *described || *parts == 0 || *parts > most_parts)
    refuse(path, "it describes " + std::to_string(*described) + " of " + std::to_string(*parts) + " parts");
  const auto inside = read_numbers(file, "elem_mapi"), border = read_numbers(file, "elem_mapb");
  LoadBalance balance{Assignment(inside.size() + border.size(), no_part), static_cast<std::uint32_t>(*parts), 0};
  const auto wanted = file.dimension("num_elems_global");
  if (wanted && *wanted != balance.assignment.size())
    refuse(path, "its parts have " + std::to_string(balance.assignment.size()) + " elements of " +
                     std::to_string(*wanted) + ": only elements can be balanced, not nodes");
  // nem_slice counts from 0, other programs from 1. Every element is listed, so the least number tells.
  const auto least = [](const Numbers& list) { return list.empty() ? INT64_MAX : *std::ranges::min_element(list); };
  const std::int64_t base = std::min(least(inside), least(border)) <= 0 ? 0 : 1;
  const auto ends = [&](const char* name, const Numbers& list) {
    return list.empty() ? Numbers(balance.parts, 0) : read_numbers(file, name);
  };
  assign(balance, file, inside, ends("elem_mapi_idx", inside), base);
  assign(balance, file, border, ends("elem_mapb_idx", border), base);
  // As many entries as elements, none twice: each has its part.
  balance.nodes = file.dimension("num_nodes_global").value_or(0);
  return balance;
}

void write_load_balance_file(const std::string& path, std::shared_ptr<Source> whole, const LoadBalance& balance) {
  const auto& model = whole->model(0);
  if (balance.parts > most_parts)
    throw Error(Errc::invalid_argument, "a load-balance file has at most " + std::to_string(most_parts) + " parts");
  require_replaceable(path);
  if (std::ranges::find(balance.assignment, no_part) != balance.assignment.end())
    throw Error(Errc::invalid_argument, "a load-balance file has every element in a part");
  const auto shares = shares_of(whole, balance);
  const auto nodes = model.count_of(EntityType::node_block), elements = model.count_of(EntityType::element_block);
  const auto variables = variables_of(model, lists_of(shares));
  const bool wide = std::max(nodes, elements) >= INT32_MAX;

  Unfinished unfinished(path);
  auto file = NetcdfFile::create(unfinished.name(), wide ? NetcdfFile::Format::cdf5 : NetcdfFile::Format::offset64);
  for (const auto& [name, size] : {std::pair<const char*, std::uint64_t>{"num_processors", balance.parts},
                                   {"num_procs_file", balance.parts},
                                   {"num_nodes_global", nodes},
                                   {"num_elems_global", elements}})
    if (size > 0) file.define_dimension(name, size);
  std::vector<int> ids;
  for (const auto& each : variables) {
    std::vector<int> dimensions;
    if (each.dimension != nullptr && !each.values.empty())
      dimensions.push_back(file.define_dimension(each.dimension, each.values.size()));
    ids.push_back(
        each.values.empty() ? -1 : file.define_variable(each.name, wide ? DType::int64 : DType::int32, dimensions));
  }
  constexpr int global = NetcdfFile::global_attribute;
  file.put_attribute(global, "title", model.title);
  file.put_real(global, "api_version", 8.03F);
  file.put_real(global, "version", 8.03F);
  file.put_real(global, "nemesis_api_version", 8.03F);
  file.put_real(global, "nemesis_file_version", 2.6F);
  file.put_attribute(global, "floating_point_word_size", std::int64_t{8});
  file.put_attribute(global, "file_size", std::int64_t{1});
  file.end_definitions();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (ids[i] < 0) continue;
    const Extent count(variables[i].dimension != nullptr ? 1 : 0, variables[i].values.size());
    file.write(ids[i], DType::int64, Extent(count.size(), 0), count, variables[i].values.data());
  }
  file.close();
  unfinished.take_name();
}

}  // namespace penstock::mesh
