// The exchange as one would write it by hand in MPI, with the decomposition of both sides known: the lower half of the
// ranks writes, the upper half reads, in one launch.
//
// W1  send        the application's array goes out as it is; it may change again when the send has completed
//     copy_send   copied into one of two buffers and sent from there while the application goes on
// W2  packed      each writer packs what each reader wants into one of two sets of buffers, and sends while it goes on;
//                 pieces arrive in their final place, in one of two arrays used in turn
//     derived     the same without packing, by derived datatypes
// W3  messages    500 nonblocking messages a step
// W4  spin        MPI_Send and MPI_Recv (Open MPI spins while it waits)
#include <mpi.h>

#include <array>

#include "common.hpp"

namespace penstock::bench {
namespace {

class Exchange {
 public:
  Exchange(const Options& options, int rank, int size)
      : options_(options), half_(size / 2), mine_(rank % half_), figures_(options_, mine_) {
    options_.role = rank < half_ ? "writer" : "reader";
    if (options_.workload != "W2") pin(rank);
  }

  void run() {
    const bool writing = options_.role == "writer";
    if (options_.workload == "W1") writing ? w1_write() : w1_read();
    else if (options_.workload == "W2") writing ? w2_write() : w2_read_steps();
    else if (options_.workload == "W3") w3(writing);
    else w4(writing);
    figures_.print();
  }

 private:
  using Requests = std::vector<MPI_Request>;
  static void finish(Requests& requests) {
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    requests.clear();
  }
  void start() {
    MPI_Barrier(MPI_COMM_WORLD);
    figures_.start();
  }
  int steps() const { return steps_of(options_); }
  int reader(int r) const { return half_ + r; }

  void w1_write() {
    constexpr int n = w1_elements;
    const bool copying = options_.variant == "copy_send";
    if (!copying && options_.variant != "send") unknown_case(options_);
    std::vector<double> own(n);
    ramp(own.data(), n);
    std::vector<double> buffers[2];
    MPI_Request pending[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    if (copying) buffers[0] = buffers[1] = own;
    start();
    for (int step = 0; step < steps(); ++step) {
      stamp(own.data(), n, step);
      if (!copying) {
        MPI_Send(own.data(), n, MPI_DOUBLE, reader(0), 0, MPI_COMM_WORLD);
        figures_.step_done(step);
        continue;
      }
      MPI_Wait(&pending[step % 2], MPI_STATUS_IGNORE);
      std::memcpy(buffers[step % 2].data(), own.data(), n * sizeof(double));
      MPI_Isend(buffers[step % 2].data(), n, MPI_DOUBLE, reader(0), 0, MPI_COMM_WORLD, &pending[step % 2]);
      int done = 0;  // gives MPI a chance to move the previous step
      MPI_Test(&pending[(step + 1) % 2], &done, MPI_STATUS_IGNORE);
      figures_.step_done(step);
    }
    MPI_Waitall(2, pending, MPI_STATUSES_IGNORE);
    figures_.loop_done();
  }

  void w1_read() {
    constexpr int n = w1_elements;
    std::vector<double> own[2] = {std::vector<double>(n, 0.0), std::vector<double>(n, 0.0)};
    MPI_Request pending[2];
    start();
    for (int step = 0; step < std::min(2, steps()); ++step) receive_w1(own[step], pending[step]);
    for (int step = 0; step < steps(); ++step) {
      MPI_Wait(&pending[step % 2], MPI_STATUS_IGNORE);
      check_samples(own[step % 2].data(), n, step);
      if (step + 2 < steps()) receive_w1(own[step % 2], pending[step % 2]);
      figures_.step_done(step);
    }
    figures_.loop_done();
    check_all(own[(steps() - 1) % 2].data(), n, steps() - 1);
  }
  static void receive_w1(std::vector<double>& into, MPI_Request& request) {
    MPI_Irecv(into.data(), w1_elements, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD, &request);
  }

  void w2_write() {
    const bool packed = options_.variant == "packed";
    if (!packed && options_.variant != "derived") unknown_case(options_);
    std::vector<double> own(w2_part);
    w2_ramp(own.data(), mine_);
    std::vector<double> buffers[2][w2_ranks];
    MPI_Datatype piece[w2_ranks];
    for (int r = 0; r < w2_ranks; ++r) {
      for (auto& set : buffers) set[r].assign(packed ? w2_piece : 0, 0.0);
      const int sizes[3] = {w2_half, w2_side, w2_side}, counts[3] = {w2_half, w2_side, w2_half};
      const int starts[3] = {0, 0, static_cast<int>(static_cast<std::uint64_t>(r) * w2_half)};
      MPI_Type_create_subarray(3, sizes, counts, starts, MPI_ORDER_C, MPI_DOUBLE, &piece[r]);
      MPI_Type_commit(&piece[r]);
    }
    Requests pending[2];
    start();
    for (int step = 0; step < steps(); ++step) {
      w2_stamp(own.data(), mine_, step);
      finish(pending[step % 2]);
      for (int i = 0; i < w2_ranks; ++i) {
        const int r = (mine_ + i) % w2_ranks;  // writers begin with different readers
        double* buffer = buffers[step % 2][r].data();
        MPI_Request& request = pending[step % 2].emplace_back();
        if (packed) {
          w2_gather(own.data(), r, buffer);
          MPI_Isend(buffer, w2_piece, MPI_DOUBLE, reader(r), 0, MPI_COMM_WORLD, &request);
        } else {
          MPI_Isend(own.data(), 1, piece[r], reader(r), 0, MPI_COMM_WORLD, &request);
        }
      }
      if (!packed) finish(pending[step % 2]);  // the array itself is being sent
      figures_.step_done(step);
    }
    for (auto& requests : pending) finish(requests);
    figures_.loop_done();
    for (auto& type : piece) MPI_Type_free(&type);
  }

  void w2_read_steps() {
    std::vector<double> own[2] = {std::vector<double>(w2_part, 0.0), std::vector<double>(w2_part, 0.0)};
    Requests pending[2];
    auto receive = [&](int step) {
      for (int w = 0; w < w2_ranks; ++w)
        MPI_Irecv(own[step % 2].data() + static_cast<std::size_t>(w) * w2_piece, w2_piece, MPI_DOUBLE, w, 0,
                  MPI_COMM_WORLD, &pending[step % 2].emplace_back());
    };
    start();
    for (int step = 0; step < std::min(2, steps()); ++step) receive(step);
    for (int step = 0; step < steps(); ++step) {
      finish(pending[step % 2]);
      w2_check(own[step % 2].data(), mine_, step);
      if (step + 2 < steps()) receive(step + 2);
      figures_.step_done(step);
    }
    figures_.loop_done();
    w2_check_all(own[(steps() - 1) % 2].data(), mine_, steps() - 1);
  }

  void w3(bool writing) {
    std::vector<double> own(w3_variables * w3_elements, 0.0);
    Requests requests(w3_variables);
    start();
    for (int step = 0; step < steps(); ++step) {
      if (writing) w3_stamp(own.data(), step);
      for (int v = 0; v < w3_variables; ++v) {
        double* at = own.data() + static_cast<std::size_t>(v) * w3_elements;
        const auto index = static_cast<std::size_t>(v);
        if (writing) MPI_Isend(at, w3_elements, MPI_DOUBLE, reader(0), v, MPI_COMM_WORLD, &requests[index]);
        else MPI_Irecv(at, w3_elements, MPI_DOUBLE, 0, v, MPI_COMM_WORLD, &requests[index]);
      }
      MPI_Waitall(w3_variables, requests.data(), MPI_STATUSES_IGNORE);
      if (!writing) w3_check(own.data(), step);
      figures_.step_done(step);
    }
    figures_.loop_done();
  }

  void w4(bool first) {
    double element = 0;
    const int peer = first ? 1 : 0;
    start();
    for (int i = 0; i < steps(); ++i) {
      if (first) {
        element = i;
        MPI_Send(&element, 1, MPI_DOUBLE, peer, 0, MPI_COMM_WORLD);
      }
      MPI_Recv(&element, 1, MPI_DOUBLE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      require(element == i, "an element");
      if (!first) MPI_Send(&element, 1, MPI_DOUBLE, peer, 0, MPI_COMM_WORLD);
      figures_.step_done(i);
    }
    figures_.loop_done();
  }

  Options options_;
  int half_;
  int mine_;
  Figures figures_;
};

void run(const Options& options) {
  MPI_Init(nullptr, nullptr);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int needed = options.workload == "W2" ? 2 * w2_ranks : 2;
  if (size != needed) throw std::runtime_error("needs " + std::to_string(needed) + " ranks");
  Exchange(options, rank, size).run();
  MPI_Finalize();
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_program(argc, argv, penstock::bench::run); }
