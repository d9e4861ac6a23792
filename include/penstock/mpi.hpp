// The MPI cohort. Header only, so that the library itself never links MPI: whichever MPI the application uses serves.
//
// mpi_cohort(comm) duplicates the communicator (collective) and frees the duplicate with the cohort, which must happen
// before MPI_Finalize. Calls follow MPI_THREAD_FUNNELED rules: they are made by the thread that opens or closes.
#pragma once

// Open MPI 4's own C++ bindings are neither needed nor free of warnings.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <climits>
#include <memory>
#include <string>
#include <vector>

#include "penstock/cohort.hpp"
#include "penstock/error.hpp"

namespace penstock {

class MpiCohort final : public Cohort {
 public:
  explicit MpiCohort(MPI_Comm comm) {
    check(MPI_Comm_dup(comm, &comm_), "MPI_Comm_dup");
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  }
  ~MpiCohort() override {
    int finalized = 0;
    if (MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized) MPI_Comm_free(&comm_);
  }
  MpiCohort(const MpiCohort&) = delete;
  MpiCohort& operator=(const MpiCohort&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::string broadcast(const std::string& bytes, int root) override {
    unsigned long long length = bytes.size();
    check(MPI_Bcast(&length, 1, MPI_UNSIGNED_LONG_LONG, root, comm_), "MPI_Bcast");
    std::string result = rank_ == root ? bytes : std::string(length, '\0');
    for (std::size_t done = 0; done < length; done += chunk)
      check(MPI_Bcast(result.data() + done, piece(length - done), MPI_BYTE, root, comm_), "MPI_Bcast");
    return result;
  }

  std::vector<std::string> gather(const std::string& bytes, int root) override {
    unsigned long long length = bytes.size();
    std::vector<unsigned long long> lengths(rank_ == root ? size_ : 0);
    check(MPI_Gather(&length, 1, MPI_UNSIGNED_LONG_LONG, lengths.data(), 1, MPI_UNSIGNED_LONG_LONG, root, comm_),
          "MPI_Gather");
    std::vector<std::string> result(lengths.size());
    if (rank_ != root) {
      for (std::size_t done = 0; done < length; done += chunk)
        check(MPI_Send(bytes.data() + done, piece(length - done), MPI_BYTE, root, 0, comm_), "MPI_Send");
      return result;
    }
    for (int r = 0; r < size_; ++r) {
      if (r == root) {
        result[r] = bytes;
        continue;
      }
      result[r].resize(lengths[r]);
      for (std::size_t done = 0; done < lengths[r]; done += chunk)
        check(MPI_Recv(result[r].data() + done, piece(lengths[r] - done), MPI_BYTE, r, 0, comm_, MPI_STATUS_IGNORE),
              "MPI_Recv");
    }
    return result;
  }

  // The others wait in MPI_Bcast without a deadline. The root of a short one waits for nobody.
  void leave(const std::string& bytes) override { broadcast(bytes, rank_); }

 private:
  static constexpr std::size_t chunk = std::size_t{1} << 30;  // MPI counts are int
  static int piece(std::size_t left) { return static_cast<int>(left < chunk ? left : chunk); }
  static void check(int code, const char* call) {
    if (code != MPI_SUCCESS) throw Error(Errc::system, std::string(call) + " failed with code " + std::to_string(code));
  }
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

// Collective over comm. Throws Error(system) when MPI fails.
inline std::shared_ptr<Cohort> mpi_cohort(MPI_Comm comm) { return std::make_shared<MpiCohort>(comm); }

}  // namespace penstock
