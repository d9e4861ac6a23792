// The part that needs netCDF: libpenstock_exodus.so, loaded when an Exodus or Nemesis database is first opened (base/part.hpp).
#pragma once

#include <memory>
#include <string_view>

#include "base/part.hpp"
#include "mesh/database.hpp"

namespace penstock::mesh {

struct ExodusPart : base::PartHead {
  std::unique_ptr<Source> (*open)(const DatabaseRequest&);
  std::unique_ptr<Sink> (*create)(const DatabaseRequest&);
  std::unique_ptr<Source> (*open_nemesis)(const DatabaseRequest&);
  std::unique_ptr<Sink> (*create_nemesis)(const DatabaseRequest&);
  std::shared_ptr<void> (*hold)(const std::string& name);
  MeshOptions (*options_of)(const std::string& name);
  LoadBalance (*read_load_balance)(const std::string& path);
  void (*write_load_balance)(const std::string& path, std::shared_ptr<Source> whole, const LoadBalance& balance);
};

// By its ending: .e, .exo, .ex2, .exoII, .g, .gen.
bool is_exodus_name(std::string_view name);
// One file. From a cohort of several ranks: as nemesis. Throws also Error(unsupported), where the part is not there.
std::unique_ptr<Source> open_exodus(const DatabaseRequest& request);
std::unique_ptr<Sink> create_exodus(const DatabaseRequest& request);
// A file for each part: name.parts.part.
std::unique_ptr<Source> open_nemesis(const DatabaseRequest& request);
std::unique_ptr<Sink> create_nemesis(const DatabaseRequest& request);
// No writer of the region's files is accepted as long as what is returned is there. Throws Error(wrong_state) where there is one.
std::shared_ptr<void> hold_exodus_files(const std::string& name);
// With which a copy is kept as the region's files are: database, format, compression, states_per_file. Throws Error.
MeshOptions options_of_exodus_files(const std::string& name);

}  // namespace penstock::mesh

// Null where it is not linked into the program.
extern "C" [[gnu::weak]] const penstock::base::PartHead* penstock_exodus_part();
