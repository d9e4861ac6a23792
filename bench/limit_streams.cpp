// The limits of one node, without any library: what two (W2: four) processes reach over two slots of shared memory.
//
// W1  one_copy        writer copies its array into the slot, reader samples it there
//     one_copy_sum    the same, reader sums all of it there
//     two_copies      reader copies it on into its own warm array
//     fresh           the same into slots that nobody has touched before the first steps
//     fill_sum        writer fills the slot in place, reader sums it there
//     handover        nothing is touched
// W2  one_copy        readers gather straight from the writers' slots; two_copies: writers copy into them first
// W3  two_copies      500 memcpy in, 500 memcpy out
// W4  futex | eventfd | spin   a round trip of one word
//
// One command starts all processes (fork); each prints its own line.
#include <sys/eventfd.h>
#include <sys/wait.h>

#include <new>

#include "common.hpp"

namespace penstock::bench {
namespace {

constexpr int slots = 2;

struct Control {
  Word arrived;
  Word written[w2_ranks];
  Word read[w2_ranks][w2_ranks];  // [writer][reader]
};

// Shared memory made before the fork. Pages are made here; each process fills in its own page table (touch).
template <class T>
T* shared(std::size_t count) {
  void* memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map shared memory");
  return static_cast<T*>(memory);
}
void touch(double* data, std::size_t n) {
  if (madvise(data, n * sizeof(double), MADV_POPULATE_WRITE) != 0) throw std::runtime_error("cannot touch memory");
}

struct Shared {
  Control* control;
  double* memory;    // W1, W3: slots; W2: slots of writer 0, then of writer 1
  std::size_t slot;  // elements of one slot
  int doorbells[2];  // W4: eventfd of either side
  double* at(int writer, int step) const {
    return memory + (static_cast<std::size_t>(writer) * slots + static_cast<std::size_t>(step % slots)) * slot;
  }
};

class Side {
 public:
  Side(const Options& options, const Shared& all, int rank, int parties)
      : options_(options),
        all_(all),
        rank_(rank),
        parties_(parties),
        figures_(options, rank),
        spin_us_(options.spin_us >= 0 ? options.spin_us : 50) {}

  void run() {
    if (options_.workload == "W4") round_trips();
    else if (options_.role == "writer") write();
    else read();
    figures_.print();
  }

 private:
  bool is(const char* variant) const { return options_.variant == variant; }

  void meet() {
    Word& word = all_.control->arrived;
    const auto mine = word.value.fetch_add(1) + 1;
    if (static_cast<int>(mine) == parties_) publish(word, mine);
    else await(word, static_cast<std::uint32_t>(parties_), 0);
    figures_.start();
  }

  int readers() const { return options_.workload == "W2" ? w2_ranks : 1; }

  void write() {
    const bool filled = is("fill_sum"), untouched = is("handover"),
               in_place = options_.workload == "W2" && is("one_copy");
    std::vector<double> own(all_.slot);
    ramp(own.data(), own.size(), static_cast<double>(static_cast<std::size_t>(rank_) * all_.slot));
    if (!is("fresh")) {
      touch(all_.at(rank_, 0), slots * all_.slot);
      for (int s = 0; s < slots; ++s) std::memcpy(all_.at(rank_, s), own.data(), all_.slot * 8);
    }
    meet();
    for (int step = 0; step < steps_of(options_); ++step) {
      for (int r = 0; r < readers(); ++r)
        if (step >= slots) await(all_.control->read[rank_][r], static_cast<std::uint32_t>(step - slots + 1), spin_us_);
      double* slot = all_.at(rank_, step);
      if (filled) ramp(slot, all_.slot, step);
      else if (options_.workload == "W3") pack(own.data(), slot, step);
      else if (!untouched) {
        double* target = in_place ? slot : own.data();
        if (options_.workload == "W2") w2_stamp(target, rank_, step);
        else stamp(target, all_.slot, step);
        if (!in_place) std::memcpy(slot, own.data(), all_.slot * 8);
      }
      publish(all_.control->written[rank_], static_cast<std::uint32_t>(step + 1));
      figures_.step_done(step);
    }
    figures_.loop_done();
  }

  static void pack(double* own, double* slot, int step) {
    w3_stamp(own, step);
    for (int v = 0; v < w3_variables; ++v) {
      const std::size_t at = static_cast<std::size_t>(v) * w3_elements;
      std::memcpy(slot + at, own + at, w3_elements * 8);
    }
  }

  void read() {
    const int writers = options_.workload == "W2" ? w2_ranks : 1;
    std::vector<double> own(all_.slot, 0.0);
    for (int w = 0; w < writers && !is("fresh"); ++w) touch(all_.at(w, 0), slots * all_.slot);
    meet();
    for (int step = 0; step < steps_of(options_); ++step) {
      for (int w = 0; w < writers; ++w) {
        await(all_.control->written[w], static_cast<std::uint32_t>(step + 1), spin_us_);
        use(own.data(), all_.at(w, step), w, step);
        publish(all_.control->read[w][rank_], static_cast<std::uint32_t>(step + 1));
      }
      if (options_.workload == "W2") w2_check(own.data(), rank_, step);
      figures_.step_done(step);
    }
    figures_.loop_done();
    if (options_.workload == "W2") w2_check_all(own.data(), rank_, steps_of(options_) - 1);
    if (options_.workload == "W1" && (is("two_copies") || is("fresh")))
      check_all(own.data(), own.size(), steps_of(options_) - 1);
  }

  void use(double* own, const double* slot, int writer, int step) {
    const std::size_t n = all_.slot;
    if (options_.workload == "W2") return w2_gather(slot, rank_, own + static_cast<std::size_t>(writer) * w2_piece);
    if (options_.workload == "W3") {
      for (int v = 0; v < w3_variables; ++v) {
        const std::size_t at = static_cast<std::size_t>(v) * w3_elements;
        std::memcpy(own + at, slot + at, w3_elements * 8);
      }
      return w3_check(own, step);
    }
    if (is("one_copy")) check_samples(slot, n, step);
    else if (is("one_copy_sum")) require(sum(slot, n) == stamped_sum(n, step), "the sum");
    else if (is("fill_sum")) require(sum(slot, n) == ramp_sum(n, step), "the sum");
    else if (is("two_copies") || is("fresh")) {
      std::memcpy(own, slot, n * 8);
      check_samples(own, n, step);
    } else if (!is("handover")) unknown_case(options_);
  }

  // W4: both sides publish a count; the writer sends first.
  void round_trips() {
    const bool first = options_.role == "writer";
    Word& mine = all_.control->written[first ? 0 : 1];
    Word& theirs = all_.control->written[first ? 1 : 0];
    const int own_bell = all_.doorbells[first ? 0 : 1], their_bell = all_.doorbells[first ? 1 : 0];
    const int spin_us = is("spin") ? forever_us : 0;
    auto send = [&](int i) {
      if (!is("eventfd")) return publish(mine, static_cast<std::uint32_t>(i + 1));
      require(eventfd_write(their_bell, 1) == 0, "eventfd");
    };
    auto receive = [&](int i) {
      eventfd_t count = 0;
      if (!is("eventfd")) return await(theirs, static_cast<std::uint32_t>(i + 1), spin_us);
      require(eventfd_read(own_bell, &count) == 0, "eventfd");
    };
    meet();
    for (int i = 0; i < steps_of(options_); ++i) {
      if (first) send(i);
      receive(i);
      if (!first) send(i);
      figures_.step_done(i);
    }
    figures_.loop_done();
  }

  const Options& options_;
  const Shared& all_;
  int rank_;
  int parties_;
  Figures figures_;
  int spin_us_;
};

std::size_t slot_elements(const Options& options) {
  if (options.workload == "W1") return w1_elements;
  if (options.workload == "W2") return w2_part;
  return options.workload == "W3" ? w3_variables * w3_elements : 8;
}

int child(Options options, const Shared& all, int rank, int parties) {
  try {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(static_cast<unsigned>(options.deadline_s));
    if (options.workload != "W2") pin(options.role == "writer" ? 0 : 1);
    Side(options, all, rank, parties).run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "limit_streams %s: %s\n", options.role.c_str(), error.what());
    return 1;
  }
}

void run(const Options& options) {
  const int ranks = options.workload == "W2" ? w2_ranks : 1;
  Shared all{};
  all.control = new (shared<Control>(1)) Control;
  all.slot = slot_elements(options);
  all.memory = shared<double>(static_cast<std::size_t>(ranks) * slots * all.slot);
  for (int& bell : all.doorbells) bell = eventfd(0, EFD_CLOEXEC);
  int children = 0;
  for (const char* role : {"writer", "reader"})
    for (int rank = 0; rank < ranks; ++rank, ++children) {
      Options mine = options;
      mine.role = role;
      if (fork() == 0) _exit(child(mine, all, rank, 2 * ranks));
    }
  for (; children > 0; --children) {
    int status = 0;
    wait(&status);
    if (status != 0) throw std::runtime_error("a process failed");  // the others end with this one
  }
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_program(argc, argv, penstock::bench::run); }
