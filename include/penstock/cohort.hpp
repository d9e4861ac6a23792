// A cohort is the set of ranks of one parallel program that write or read a stream together.
//
// Penstock calls a cohort's operations while a stream opens and closes, never in between: no step costs a collective
// call. All ranks must open the same streams in the same order. Adapters: solo (one rank), threads (ranks are threads of
// one process, for tests and threaded programs), MPI (penstock/mpi.hpp), mpi4py (Python).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace penstock {

class Cohort {
 public:
  virtual ~Cohort() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Collective: every rank returns root's bytes. Lengths may differ between calls. Throws Error on failure.
  virtual std::string broadcast(const std::string& bytes, int root) = 0;
  // Collective: root returns every rank's bytes in rank order, other ranks an empty list.
  virtual std::vector<std::string> gather(const std::string& bytes, int root) = 0;
  // Not collective: this rank has failed and makes no more calls; the others' next broadcast from it returns these bytes. Waits
  // for nobody. Cohorts whose calls fail by themselves when a rank does not come may do nothing, as here.
  virtual void leave(const std::string& bytes) { static_cast<void>(bytes); }
};

// A cohort of one.
std::shared_ptr<Cohort> solo();

// Runs body(cohort) on `size` threads, each with its own rank, and joins them; rethrows the first exception.
void run_thread_cohort(int size, const std::function<void(std::shared_ptr<Cohort>)>& body);

}  // namespace penstock
