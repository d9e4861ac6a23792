#include "peer.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/fault.hpp"
#include "base/text.hpp"
#include "wire/control.hpp"
#include "wire/data.hpp"
#include "wire/handshake.hpp"

namespace penstock::fault {

// ----------------------------------------------------------------------------------------------------------- talking

Arguments::Arguments(int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const auto at = word.find('=');
    if (at == std::string::npos) throw Error(Errc::invalid_argument, "not key=value: " + word);
    values_[word.substr(0, at)] = word.substr(at + 1);
  }
}

std::string Arguments::text(const std::string& key, const std::string& fallback) const {
  const auto found = values_.find(key);
  return found == values_.end() ? fallback : found->second;
}

std::uint64_t Arguments::number(const std::string& key, std::uint64_t fallback) const {
  const auto found = values_.find(key);
  return found == values_.end() ? fallback : std::stoull(found->second);
}

void say(const std::string& line) {
  std::string text = line;
  std::replace(text.begin(), text.end(), '\n', ' ');
  text += '\n';
  for (std::size_t at = 0; at < text.size();) {
    const auto count = ::write(STDOUT_FILENO, text.data() + at, text.size() - at);
    if (count < 0 && errno != EINTR) std::_Exit(5);  // the driver is gone
    if (count > 0) at += static_cast<std::size_t>(count);
  }
}

void say_error(const std::string& what, const Error& error, std::chrono::steady_clock::time_point start) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
  say(what + " code=" + std::string(name_of(error.code())) + " ms=" + std::to_string(ms.count()) + " " + error.what());
}

void await_driver() {
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') {
  }
}

// ------------------------------------------------------------------------------------------------------------ faults

namespace {

using base::FaultPhase;

constexpr const char* phase_names[] = {"before", "half", "after"};

struct Fault {
  std::string point, action;
  FaultPhase phase = FaultPhase::before;
  std::uint64_t occurrence = 1;
};

// Points are visited by several threads.
struct Visits {
  std::mutex mutex;
  std::map<std::pair<std::string, FaultPhase>, std::uint64_t> counts;
};

Fault armed;
bool recording = false;
Visits& visits() {
  static auto* all = new Visits;  // never destroyed: threads may act until the end
  return *all;
}

bool on_point(std::string_view point, FaultPhase phase) {
  std::unique_lock lock(visits().mutex);
  const auto count = ++visits().counts[{std::string(point), phase}];
  lock.unlock();
  if (point != armed.point || phase != armed.phase || count != armed.occurrence) return false;
  say("fault");
  if (armed.action == "kill") ::kill(::getpid(), SIGKILL);
  if (armed.action == "stop") ::raise(SIGSTOP);
  return armed.action == "garbage";
}

}  // namespace

void arm(const Arguments& arguments) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  recording = arguments.number("record", 0) != 0;
  armed.point = arguments.text("fault");
  armed.action = arguments.text("action", "kill");
  armed.occurrence = arguments.number("occurrence", 1);
  const auto phase = arguments.text("phase", "before");
  const auto* found = std::find(std::begin(phase_names), std::end(phase_names), phase);
  if (found == std::end(phase_names)) throw Error(Errc::invalid_argument, "no phase " + phase);
  armed.phase = static_cast<FaultPhase>(found - std::begin(phase_names));
  if (recording || !armed.point.empty()) base::fault_hook = &on_point;
}

void report_visits() {
  if (!recording) return;
  std::unique_lock lock(visits().mutex);
  const auto counts = visits().counts;
  lock.unlock();
  for (const auto& [at, count] : counts)
    say("visited " + at.first + " " + phase_names[static_cast<int>(at.second)] + " " + std::to_string(count));
}

int list_points() {
  for (std::uint16_t k = 1; k < wire::kind_count; ++k) {
    const std::string name(wire::name_of(static_cast<wire::Kind>(k)));
    say("send:" + name);
    say("ring-push:" + std::to_string(k) + " " + name);
  }
  using enum wire::HandshakeKind;
  for (const auto kind : {hello, challenge, proof, welcome, refused}) say(std::string("send:") + wire::name_of(kind));
  // Data: the segments of shared memory, the requests for bytes and their replies; and the ring's other end.
  for (const char* name : {"segment-send", "send:segment", "receive:segment", "send:read_request", "data-request",
                           "data-reply", "ring-pop"})
    say(name);
  return 0;
}

// ------------------------------------------------------------------------------------------------------------ cohort

namespace {

class PipeCohort final : public Cohort {
 public:
  PipeCohort(int rank, int from, int to, std::uint64_t garble) : rank_(rank), from_(from), to_(to), garble_(garble) {}
  ~PipeCohort() override {
    ::close(from_);
    ::close(to_);
  }
  int rank() const override { return rank_; }
  int size() const override { return 2; }
  std::string broadcast(const std::string& bytes, int root) override {
    if (rank_ == root) {
      send(bytes);
      return bytes;
    }
    std::string text = receive();
    garble(text);
    return text;
  }
  std::vector<std::string> gather(const std::string& bytes, int root) override {
    if (rank_ != root) {
      send(bytes);
      return {};
    }
    std::vector<std::string> all(2);
    all[static_cast<std::size_t>(rank_)] = bytes;
    all[static_cast<std::size_t>(1 - rank_)] = receive();
    return all;
  }

 private:
  static constexpr int patience_ms = 5000;

  void send(const std::string& bytes) {
    const std::uint64_t length = bytes.size();
    std::string all(reinterpret_cast<const char*>(&length), sizeof length);
    all += bytes;
    for (std::size_t at = 0; at < all.size();) {
      const auto count = ::write(to_, all.data() + at, all.size() - at);
      if (count <= 0) throw Error(Errc::peer_lost, "the cohort's other rank is gone");
      at += static_cast<std::size_t>(count);
    }
  }

  std::string receive() {
    std::uint64_t length = 0;
    receive(reinterpret_cast<char*>(&length), sizeof length);
    std::string bytes(length, '\0');
    receive(bytes.data(), bytes.size());
    return bytes;
  }

  void receive(char* into, std::size_t size) {
    for (std::size_t at = 0; at < size;) {
      pollfd entry{from_, POLLIN, 0};
      if (::poll(&entry, 1, patience_ms) == 0) throw Error(Errc::timeout, "the cohort's other rank says nothing");
      const auto count = ::read(from_, into + at, size - at);
      if (count <= 0) throw Error(Errc::peer_lost, "the cohort's other rank is gone");
      at += static_cast<std::size_t>(count);
    }
  }

  // Changes the last digit of the garble_-th token that passes.
  void garble(std::string& text) {
    constexpr std::size_t digits = 64;
    const std::string alphabet = "0123456789abcdef";
    for (std::size_t at = 0; at + digits <= text.size(); ++at) {
      const auto end = text.find_first_not_of(alphabet, at);
      if ((end == std::string::npos ? text.size() : end) - at < digits) continue;
      if (++tokens_ == garble_) text[at + digits - 1] = text[at + digits - 1] == '0' ? '1' : '0';
      return;
    }
  }

  const int rank_, from_, to_;
  const std::uint64_t garble_;
  std::uint64_t tokens_ = 0;
};

}  // namespace

std::shared_ptr<Cohort> cohort_of(const Arguments& arguments) {
  if (arguments.text("from").empty()) return solo();
  ::signal(SIGPIPE, SIG_IGN);  // this program's pipes; the library must not need it
  return std::make_shared<PipeCohort>(static_cast<int>(arguments.number("rank", 0)),
                                      static_cast<int>(arguments.number("from", 0)),
                                      static_cast<int>(arguments.number("to", 0)), arguments.number("garble", 0));
}

// ----------------------------------------------------------------------------------------------------------- options

ContextOptions context_of(const Arguments& arguments) {
  ContextOptions options;
  options.directory = arguments.text("directory");
  options.listen = arguments.text("listen", "127.0.0.1");
  return options;
}

StreamOptions options_of(const Arguments& arguments) {
  StreamOptions options;
  for (const char* key : {"data_plane", "queue_steps", "queue_bytes", "when_full", "rendezvous_readers", "delivery",
                          "open_timeout_ms", "step_timeout_ms", "close_timeout_ms", "step_bytes"})
    if (const auto value = arguments.text(key); !value.empty()) set_option(options, key, value);
  return options;
}

// More than one batch of a reply over tcp; twice that from the middle on.
std::uint64_t length_of(std::uint64_t step, std::uint64_t steps) {
  constexpr std::uint64_t first = 150'000;
  return step < steps / 2 ? first : 2 * first;
}

}  // namespace penstock::fault
