// gray-scott-fields: runs the physics alone and writes the fields as raw doubles, for tests of the decomposition that
// need no Penstock.
//
//   gray-scott-fields SETTINGS FOLDER      writes FOLDER/U.<step>.raw and V.<step>.raw every plot_every time steps
#include <mpi.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "settings.hpp"
#include "simulation.hpp"

namespace {

using gray_scott::FieldView;
using gray_scott::Index;

MPI_Datatype box_type(const Index& whole, const Index& part, const Index& start) {
  int sizes[3], subsizes[3], starts[3];
  for (int d = 0; d < 3; ++d) {
    sizes[d] = static_cast<int>(whole[d]);
    subsizes[d] = static_cast<int>(part[d]);
    starts[d] = static_cast<int>(start[d]);
  }
  MPI_Datatype type;
  MPI_Type_create_subarray(3, sizes, subsizes, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
  MPI_Type_commit(&type);
  return type;
}

void write(const std::string& path, const FieldView& field, const Index& shape, const gray_scott::Simulation& sim) {
  const Index& count = sim.count();
  const Index ghosted{count[0] + 2, count[1] + 2, count[2] + 2};
  MPI_Datatype in_file = box_type(shape, count, sim.start());
  MPI_Datatype in_memory = box_type(ghosted, count, {1, 1, 1});
  const auto* base =
      reinterpret_cast<const char*>(field.first) - field.strides[0] - field.strides[1] - field.strides[2];
  MPI_File file;
  MPI_File_open(MPI_COMM_WORLD, path.c_str(), MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
  MPI_File_set_errhandler(file, MPI_ERRORS_ARE_FATAL);
  MPI_File_set_view(file, 0, MPI_DOUBLE, in_file, "native", MPI_INFO_NULL);
  MPI_File_write_all(file, base, 1, in_memory, MPI_STATUS_IGNORE);
  MPI_File_close(&file);
  MPI_Type_free(&in_file);
  MPI_Type_free(&in_memory);
}

void run(const std::string& settings_path, const std::string& folder) {
  const auto settings = gray_scott::load_settings(settings_path);
  gray_scott::Simulation simulation(settings, MPI_COMM_WORLD);
  for (std::int64_t output = 0; output < settings.outputs(); ++output) {
    for (std::int64_t i = 0; i < settings.plot_every; ++i) simulation.advance();
    const auto name = [&](const char* field) {
      return folder + "/" + field + "." + std::to_string(simulation.step()) + ".raw";
    };
    write(name("U"), simulation.u(), settings.shape, simulation);
    write(name("V"), simulation.v(), settings.shape, simulation);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    if (argc != 3) throw simulation::UsageError("usage: gray-scott-fields SETTINGS FOLDER");
    run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::cerr << "gray-scott-fields: " << error.what() << "\n";
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Finalize();
}
