#include "pool/compute/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::pool::compute {

namespace {

using memory::UniqueFd;

void check(int code, const std::string& what) {
  if (code != 0) throw Error(Errc::system, what + ": " + std::generic_category().message(code));
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const auto& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

struct Actions {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  Actions() {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawnattr_init(&attributes);
  }
  ~Actions() {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  }
};

void prepare(Actions& actions, int socket) {
  check(::posix_spawn_file_actions_adddup2(&actions.files, socket, worker_descriptor), "posix_spawn");
  check(::posix_spawn_file_actions_addopen(&actions.files, 0, "/dev/null", O_RDONLY, 0), "posix_spawn");
  check(::posix_spawn_file_actions_adddup2(&actions.files, 2, 1), "posix_spawn");
  check(::posix_spawn_file_actions_addclosefrom_np(&actions.files, worker_descriptor + 1), "posix_spawn");
  check(::posix_spawn_file_actions_addchdir_np(&actions.files, "/"), "posix_spawn");
  sigset_t every, blocked;
  sigfillset(&every);
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGXFSZ);
  ::posix_spawnattr_setsigdefault(&actions.attributes, &every);
  ::posix_spawnattr_setsigmask(&actions.attributes, &blocked);
  ::posix_spawnattr_setpgroup(&actions.attributes, 0);
  ::posix_spawnattr_setflags(&actions.attributes,
                             POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
}

std::string describe(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return "ended with status " + std::to_string(info.si_status);
  const char* name = ::sigabbrev_np(info.si_status);
  std::string text = "was killed by ";
  text += name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(info.si_status);
  const char* words = ::sigdescr_np(info.si_status);
  if (words != nullptr) text += " (" + std::string(words) + ")";
  return text;
}

bool wait_end(int pidfd, int timeout_ms) {
  pollfd one{pidfd, POLLIN, 0};
  int count = 0;
  do {
    count = ::poll(&one, 1, timeout_ms);
  } while (count < 0 && errno == EINTR);
  return count > 0;
}

}  // namespace

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(socket_, other.socket_);
  return *this;
}

Process::~Process() {
  if (pid_ <= 0) return;
  kill();
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0 && errno == EINTR) {
  }
}

Process Process::start(const std::vector<std::string>& argv, const std::vector<std::string>& environment) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) check(errno, "socketpair");
  UniqueFd ours(pair[0]);
  UniqueFd theirs(pair[1]);
  // Descriptors 0 to 3 may be free in a server without standard streams; the file actions would overwrite each other.
  if (theirs.get() <= worker_descriptor) {
    UniqueFd higher(::fcntl(theirs.get(), F_DUPFD_CLOEXEC, worker_descriptor + 1));
    if (!higher) check(errno, "fcntl");
    theirs = std::move(higher);
  }
  Actions actions;
  prepare(actions, theirs.get());
  Process process;
  pid_t pid = -1;
  const int code = ::posix_spawnp(&pid, argv.front().c_str(), &actions.files, &actions.attributes,
                                  pointers(argv).data(), pointers(environment).data());
  check(code, "starting " + argv.front());
  process.pid_ = pid;
  process.socket_ = std::move(ours);
  process.pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.pidfd_) check(errno, "pidfd_open");
  return process;
}

void Process::kill() {
  if (pid_ > 0) ::kill(-pid_, SIGKILL);  // with whatever it started
  if (pid_ > 0) ::kill(pid_, SIGKILL);   // it may not be in its group yet
}

std::string Process::how_it_ended(std::chrono::milliseconds grace) {
  const bool ended = wait_end(pidfd_.get(), static_cast<int>(grace.count()));
  kill();
  siginfo_t info{};
  int result = 0;
  do {
    result = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED);
  } while (result != 0 && errno == EINTR);
  pid_ = -1;
  if (result != 0) return "ended";  // the application takes its children's statuses away
  return ended ? describe(info) : "closed its connection";
}

std::chrono::nanoseconds Process::cpu_time() const {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

Process::Sizes Process::sizes() const {
  Sizes sizes;
  const auto path = "/proc/" + std::to_string(pid_) + "/statm";
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 256> text{};
  if (!file || ::read(file.get(), text.data(), text.size() - 1) <= 0) return sizes;
  unsigned long long total = 0, data = 0;
  if (std::sscanf(text.data(), "%llu %*u %*u %*u %*u %llu", &total, &data) != 2) return sizes;
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  sizes.address_space = total * page;
  sizes.data = data * page;
  return sizes;
}

bool Process::limit_memory(std::uint64_t address_space, std::uint64_t data) const {
  const rlimit space{address_space, RLIM_INFINITY};
  const rlimit writable{data, RLIM_INFINITY};
  return ::prlimit(pid_, RLIMIT_AS, &space, nullptr) == 0 && ::prlimit(pid_, RLIMIT_DATA, &writable, nullptr) == 0;
}

std::vector<std::string> worker_environment() {
  std::vector<std::string> all{"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1", "OPENBLAS_NUM_THREADS=1",
                               "OMP_NUM_THREADS=1",         "MKL_NUM_THREADS=1",  "MALLOC_ARENA_MAX=1"};
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "LC_ALL", "LC_CTYPE", "TZ"})
    if (const char* value = std::getenv(name)) all.push_back(std::string(name) + "=" + value);
  return all;
}

std::string find_program(const std::string& name) {
  std::error_code error;
  std::vector<std::filesystem::path> folders;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(self.parent_path());
  const char* path = std::getenv("PATH");
  for (const auto folder : base::split(path != nullptr ? path : "", ':')) folders.emplace_back(folder);
  for (const auto& folder : folders)
    if (const auto file = folder / name; ::access(file.c_str(), X_OK) == 0) return file.string();
  return "";
}

}  // namespace penstock::pool::compute
