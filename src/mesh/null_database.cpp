#include "mesh/null_database.hpp"

namespace penstock::mesh {
namespace {

class NullSink final : public Sink {
  void define(const Model&) override {}
  void write(Slot, const void*) override {}
  void begin_state(double) override {}
  void end_state() override {}
  void abandon_state() override {}
  void close() override {}
};

}  // namespace

std::unique_ptr<Sink> create_null(const DatabaseRequest&) { return std::make_unique<NullSink>(); }

}  // namespace penstock::mesh
