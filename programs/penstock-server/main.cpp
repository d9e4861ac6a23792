// penstock-server: one server of a staging pool, in the foreground, until SIGTERM or SIGINT.
//
//   penstock-server [--config FILE] [--print-config] [--ready-fd N] [--with-parent] [KEY=VALUE]...
//   penstock-server --directory --ready-fd N [KEY=VALUE]...       started by servers only (directory_process.hpp)
//
// Options: options.hpp, docs/howto/serve.md. Exit codes: 0 ended in order, 1 failed, 2 wrong configuration.
//
// The main thread waits for signals, for the end of an administrator's drain and for the one thing that is under way (start,
// handing on after a signal, stop), which a thread of its own does.
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "base/text.hpp"
#include "data_folder.hpp"
#include "directory_process.hpp"
#include "events.hpp"
#include "fabric/task.hpp"
#include "http.hpp"
#include "notice.hpp"
#include "options.hpp"
#include "penstock/version.hpp"
#include "pool/node/server.hpp"

using namespace penstock;
using base::Level;
using DrainState = pool::ServerCore::DrainState;

namespace {

constexpr Timeout follow_pause(200);
constexpr std::chrono::seconds followed_lately(5), say_left_within(2);

constexpr const char* usage =
    "usage: penstock-server [--config FILE] [--print-config] [--ready-fd N] [--with-parent] [KEY=VALUE]...\n"
    "\n"
    "Runs one server of a staging pool in the foreground, until SIGTERM or SIGINT: then it hands its objects on to "
    "the\n"
    "other servers for up to drain_timeout_ms, writes to its tiers what they should hold, and ends (a second signal\n"
    "ends it at once). To remove a server without losing objects: penstock pool drain.\n"
    "\n"
    "  --config FILE    YAML, KEY: VALUE a line; $PENSTOCK_SERVER_<KEY> and KEY=VALUE here win over it\n"
    "  --print-config   print the configuration in effect, and leave\n"
    "  --ready-fd N     write the line \"ready {...}\", with the directory's address, to this descriptor (else to "
    "standard\n"
    "                   output, without the address's token)\n"
    "  --with-parent    end when the process that started this one dies\n"
    "  --version        print the version, and leave\n"
    "\n"
    "Keys: penstock-server --print-config lists them; docs/howto/serve.md explains them.\n";

struct Arguments {
  std::string config;
  bool print_config = false, with_parent = false, directory = false;
  int ready_fd = STDOUT_FILENO;
  std::vector<std::string> settings;
};

// Empty: everything asked for was printed.
std::optional<Arguments> parse_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) throw Error(Errc::invalid_argument, word + " needs a value");
      return argv[i];
    };
    if (word == "--help" || word == "-h") {
      std::fputs(usage, stdout);
      return {};
    }
    if (word == "--version") {
      std::printf("penstock-server %s\n", version);
      return {};
    }
    if (word == "--config") arguments.config = value();
    else if (word == "--print-config") arguments.print_config = true;
    else if (word == "--with-parent") arguments.with_parent = true;
    else if (word == "--directory") arguments.directory = true;
    else if (word == "--ready-fd") arguments.ready_fd = static_cast<int>(base::parse_integer(value(), 0, 65535));
    else if (word.starts_with("-"))
      throw Error(Errc::unknown_option,
                  base::unknown_name("option", word,
                                     std::array<std::string_view, 6>{"--config", "--print-config", "--ready-fd",
                                                                     "--with-parent", "--version", "--help"}));
    else arguments.settings.push_back(word);
  }
  return arguments;
}

class Program {
 public:
  Program(server::ServeOptions options, int ready_fd)
      : options_(std::move(options)), ready_fd_(ready_fd), folder_(options_.folder) {}

  int run() {
    const std::string configuration = server::to_yaml(options_);
    for (const std::string_view line : base::split(configuration, '\n'))
      if (!line.empty()) base::log(Level::info, "configuration: " + std::string(line));
    progress_ = fabric::Progress::create();
    auto admin = [this](std::string command, std::string) { return answer(this, std::move(command)); };
    server_ =
        std::make_unique<pool::PoolServer>(progress_, server::complete_node(options_, folder_.id()), std::move(admin));
    if (!during("start", [this] { start(); })) return 1;
    announce();
    while (!drained_ && !stopping_)
      if (events_.wait().value_or(0) != 0) stopping_ = true;
    return end() ? 0 : 1;
  }

 private:
  static fabric::Task<std::string> answer(Program* program, std::string command) {
    if (command != "drain_status") co_return program->administer(command);
    const auto core = program->server_->core().shared_from_this();
    const auto state = core->drain_status().state;
    if (state == DrainState::handing_on || state == DrainState::handed_on) {
      const base::Deadline soon(follow_pause);
      co_await core->drain_moved(soon);
    }
    program->followed_at_ = base::Clock::now();
    const auto status = core->drain_status();
    program->said_left_ = status.state == DrainState::left;
    co_return pool::drain_json(status).dump();
  }

  // Engine thread.
  std::string administer(const std::string& command) {
    if (command == "drain") {
      server_->core().begin_drain([this] {
        drained_ = true;
        events_.wake();
      });
      return drain_status();
    }
    if (command == "cancel_drain") {
      server_->core().cancel_drain("it was cancelled");
      return drain_status();
    }
    if (command == "stop") {
      told_ = stopping_ = true;
      events_.wake();
      return nlohmann::json{{"stopping", true}}.dump();
    }
    if (command == "config") return nlohmann::json{{"config", server::to_yaml(options_)}}.dump();
    throw Error(
        Errc::unknown_option,
        base::unknown_name("command", command,
                           std::array<std::string_view, 5>{"drain", "drain_status", "cancel_drain", "stop", "config"}));
  }

  std::string drain_status() { return pool::drain_json(server_->core().drain_status()).dump(); }

  // Whoever follows the drain is told how it has ended before the connection ends.
  static fabric::Task<void> say_left(Program* program) {
    const auto begun = base::Clock::now();
    while (!program->said_left_ && begun - program->followed_at_ < followed_lately &&
           base::Clock::now() - begun < say_left_within)
      co_await fabric::pause_for(*program->progress_, std::chrono::milliseconds(10));
  }

  // Does it on a thread of its own; a signal meanwhile ends the process. False when it failed, which has been said.
  bool during(const char* what, const std::function<void()>& work) {
    std::exception_ptr error;
    std::atomic<bool> done = false;
    std::thread thread([&] {
      try {
        work();
      } catch (...) {
        error = std::current_exception();
      }
      done = true;
      events_.wake();
    });
    while (!done) {
      if (events_.wait().value_or(0) == 0) continue;
      base::log(Level::warn, "stopped at once", {{"during", what}});
      ::_exit(1);
    }
    thread.join();
    if (!error) return true;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      base::log(Level::error, e.what(), {{"during", what}});
    }
    return false;
  }

  void start() {
    const base::Deadline deadline(Timeout(options_.start_timeout_ms));
    directory_ = std::make_unique<server::DirectoryKeeper>(options_, deadline);
    server_->start(deadline.remaining());
    server::HttpSource source;
    source.status = [this] { return status(); };
    source.drain = [this] { progress_->call([this] { administer("drain"); }); };
    source.admin_token = server_->token("admin").hex();
    if (options_.http != "off" && !options_.http.empty())
      http_ = std::make_unique<server::HttpServer>(options_.http, std::move(source));
  }

  std::string status() {
    std::string json;
    progress_->call([&] { json = pool::status_json(server_->core()); });
    return json;
  }

  void announce() {
    const std::string& directory = directory_->address();
    nlohmann::json json{{"pool", options_.node.server.pool},
                        {"id", std::to_string(server_->core().self())},
                        {"name", server_->core().options().name},
                        {"pid", ::getpid()},
                        {"directory", ready_fd_ == STDOUT_FILENO ? server::without_token(directory) : directory},
                        {"http", http_ ? http_->address() : ""}};
    base::log(Level::info, "ready",
              {{"pool", options_.node.server.pool},
               {"id", server_->core().self()},
               {"directory", server::without_token(directory)},
               {"http", http_ ? http_->address() : "off"}});
    server::write_ready_line(ready_fd_, json.dump());
    server::notify_manager("READY=1");
  }

  // After an administrator's drain there is nothing to hand on. A signal says that the process must end: what the other servers
  // have not taken within drain_timeout_ms stays in the tiers, if there are any.
  bool end() {
    server::notify_manager("STOPPING=1");
    bool handed_on = drained_;
    if (drained_) {
      fabric::run_task(*progress_, say_left(this), base::Deadline::never());
    } else if (options_.drain_timeout_ms > 0 && !told_) {
      bool others = false;
      progress_->call([&] { others = server_->core().others_active(); });
      if (others) {
        base::log(Level::info, "handing objects on before the end", {{"pool", options_.node.server.pool}});
        handed_on = during("drain", [this] { server_->drain(Timeout(options_.drain_timeout_ms)); });
      }
    }
    http_.reset();
    const bool stopped = during("stop", [this] {
      if (!server_->stopped()) server_->stop(Timeout(options_.stop_timeout_ms));
    });
    server_.reset();
    directory_.reset();
    base::log(Level::info, "ended", {{"pool", options_.node.server.pool}, {"handed on", handed_on}});
    return stopped;
  }

  server::ServeOptions options_;
  int ready_fd_;
  server::Events events_;
  server::DataFolder folder_;
  std::shared_ptr<fabric::Progress> progress_;
  std::unique_ptr<server::DirectoryKeeper> directory_;  // outlives the server, which needs the directory to the last
  std::unique_ptr<pool::PoolServer> server_;
  std::unique_ptr<server::HttpServer> http_;
  std::atomic<bool> drained_ = false, stopping_ = false;
  std::atomic<bool> told_ = false;         // an administrator told it to stop: nothing is handed on
  base::Clock::time_point followed_at_{};  // when somebody asked how the drain goes. Engine thread, as the next
  bool said_left_ = false;                 // and was told that this server has left
};

int serve(int argc, char** argv) {
  std::optional<server::ServeOptions> options;
  Arguments arguments;
  try {
    const auto parsed = parse_arguments(argc, argv);
    if (!parsed) return 0;
    arguments = *parsed;
    if (arguments.directory) return server::run_directory(arguments.settings, arguments.ready_fd);
    options = server::load_options(arguments.config, arguments.settings);
  } catch (const Error& error) {
    std::fprintf(stderr, "penstock-server: %s\n", error.what());
    return 2;
  }
  if (arguments.print_config) {
    std::fputs(server::to_yaml(*options).c_str(), stdout);
    return 0;
  }
  if (!options->log.empty()) base::set_log_level(base::parse_level(options->log));
  else if (std::getenv("PENSTOCK_LOG") == nullptr) base::set_log_level(Level::info);
  if (arguments.with_parent) ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  try {
    return Program(std::move(*options), arguments.ready_fd).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "penstock-server: %s\n", error.what());
    return 1;
  }
}

// Small objects are on malloc's heap, and one thread makes them all. glibc's heaps for further threads grow page by page, with
// a system call each; the one for the main thread grows by a megabyte. Buffers of messages stay mapped, too.
void prepare_malloc() {
#ifdef __GLIBC__
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_TOP_PAD, 1 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 16 << 20);
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
#endif
}

// A client takes two descriptors and more; the usual soft limit of 1024 is meant for programs that call select().
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  prepare_malloc();
  raise_descriptor_limit();
  return serve(argc, argv);
}
