// ZeroMQ over ipc on the same workloads: one PAIR socket between each writer and reader, at most --queue messages waiting
// on either side. zmq_send copies the array into a message (so the array may change at once), zmq_recv copies it out.
// W2 packs what each reader wants straight into a message. --rank numbers the programs of W2 (four programs).
#include <zmq.h>

#include <memory>

#include "common.hpp"

namespace penstock::bench {
namespace {

void check(int result, const char* call) {
  if (result < 0) throw std::runtime_error(std::string(call) + ": " + zmq_strerror(zmq_errno()));
}

struct CloseContext {
  void operator()(void* context) const { zmq_ctx_term(context); }
};
struct CloseSocket {
  void operator()(void* socket) const { zmq_close(socket); }
};
using Context = std::unique_ptr<void, CloseContext>;
using Socket = std::unique_ptr<void, CloseSocket>;

class Zmq {
 public:
  explicit Zmq(const Options& options)
      : options_(options),
        page_(options.directory),
        figures_(options, options.rank),
        writing_(options.role == "writer"),
        context_(zmq_ctx_new()) {}

  void run() {
    const int peers = options_.workload == "W2" ? w2_ranks : 1;
    for (int peer = 0; peer < peers; ++peer) sockets_.push_back(connect(peer));
    for (const Socket& socket : sockets_) greet(socket.get());
    if (options_.workload == "W1") writing_ ? w1_write() : w1_read();
    else if (options_.workload == "W2") writing_ ? w2_write() : w2_read_steps();
    else if (options_.workload == "W3") w3();
    else w4();
    sockets_.clear();
    context_.reset();  // waits until everything has left
    figures_.print();
  }

 private:
  Socket connect(int peer) {
    Socket socket(zmq_socket(context_.get(), ZMQ_PAIR));
    const int waiting = options_.workload == "W3" ? options_.queue * w3_variables : options_.queue;
    check(zmq_setsockopt(socket.get(), ZMQ_SNDHWM, &waiting, sizeof waiting), "zmq_setsockopt");
    check(zmq_setsockopt(socket.get(), ZMQ_RCVHWM, &waiting, sizeof waiting), "zmq_setsockopt");
    const int writer = writing_ ? options_.rank : peer, reader = writing_ ? peer : options_.rank;
    const std::string address =
        "ipc://" + options_.directory + "/zmq-" + std::to_string(writer) + "-" + std::to_string(reader);
    check(writing_ ? zmq_bind(socket.get(), address.c_str()) : zmq_connect(socket.get(), address.c_str()), "zmq_bind");
    return socket;
  }
  // So that both sides are connected when the clock starts.
  void greet(void* socket) {
    char hello = 1;
    if (!writing_) send(socket, &hello, 1);
    receive(socket, &hello, 1);
    if (writing_) send(socket, &hello, 1);
  }
  static void send(void* socket, const void* data, std::size_t bytes, int flags = 0) {
    check(zmq_send(socket, data, bytes, flags), "zmq_send");
  }
  static void receive(void* socket, void* data, std::size_t bytes) {
    const int got = zmq_recv(socket, data, bytes, 0);
    check(got, "zmq_recv");
    require(static_cast<std::size_t>(got) == bytes, "a message's size");
  }
  void* socket(std::size_t peer = 0) { return sockets_[peer].get(); }
  int steps() const { return steps_of(options_); }
  void start() {
    page_.meet(static_cast<std::uint32_t>(2 * sockets_.size()));
    figures_.start();
  }

  void w1_write() {
    std::vector<double> own(w1_elements);
    ramp(own.data(), own.size());
    start();
    for (int step = 0; step < steps(); ++step) {
      stamp(own.data(), own.size(), step);
      send(socket(), own.data(), own.size() * 8);
      figures_.step_done(step);
    }
    figures_.loop_done();
  }

  void w1_read() {
    std::vector<double> own(w1_elements, 0.0);
    start();
    for (int step = 0; step < steps(); ++step) {
      receive(socket(), own.data(), own.size() * 8);
      check_samples(own.data(), own.size(), step);
      figures_.step_done(step);
    }
    figures_.loop_done();
    check_all(own.data(), own.size(), steps() - 1);
  }

  void w2_write() {
    std::vector<double> own(w2_part);
    w2_ramp(own.data(), options_.rank);
    start();
    for (int step = 0; step < steps(); ++step) {
      w2_stamp(own.data(), options_.rank, step);
      for (int reader = 0; reader < w2_ranks; ++reader) {
        zmq_msg_t message;
        check(zmq_msg_init_size(&message, w2_piece * 8), "zmq_msg_init_size");
        w2_gather(own.data(), reader, static_cast<double*>(zmq_msg_data(&message)));
        check(zmq_msg_send(&message, socket(static_cast<std::size_t>(reader)), 0), "zmq_msg_send");
      }
      figures_.step_done(step);
    }
    figures_.loop_done();
  }

  void w2_read_steps() {
    std::vector<double> own(w2_part, 0.0);
    start();
    for (int step = 0; step < steps(); ++step) {
      for (std::size_t w = 0; w < w2_ranks; ++w) receive(socket(w), own.data() + w * w2_piece, w2_piece * 8);
      w2_check(own.data(), options_.rank, step);
      figures_.step_done(step);
    }
    figures_.loop_done();
    w2_check_all(own.data(), options_.rank, steps() - 1);
  }

  // One message of 500 parts.
  void w3() {
    std::vector<double> own(w3_variables * w3_elements, 0.0);
    start();
    for (int step = 0; step < steps(); ++step) {
      if (writing_) w3_stamp(own.data(), step);
      for (std::size_t v = 0; v < w3_variables; ++v) {
        double* at = own.data() + v * w3_elements;
        if (writing_) send(socket(), at, w3_elements * 8, v + 1 < w3_variables ? ZMQ_SNDMORE : 0);
        else receive(socket(), at, w3_elements * 8);
      }
      if (!writing_) w3_check(own.data(), step);
      figures_.step_done(step);
    }
    figures_.loop_done();
  }

  void w4() {
    double element = 0;
    start();
    for (int i = 0; i < steps(); ++i) {
      element = i;
      if (writing_) send(socket(), &element, 8);
      receive(socket(), &element, 8);
      require(element == i, "an element");
      if (!writing_) send(socket(), &element, 8);
      figures_.step_done(i);
    }
    figures_.loop_done();
  }

  const Options& options_;
  SharedPage page_;
  Figures figures_;
  bool writing_;
  Context context_;
  std::vector<Socket> sockets_;
};

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) {
  return penstock::bench::run_program(
      argc, argv, [](const penstock::bench::Options& options) { penstock::bench::Zmq(options).run(); });
}
