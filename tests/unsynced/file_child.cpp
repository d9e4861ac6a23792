// Writes and reads a stream in files, for tests that kill it or fill its disk. T is an array of two rows, one of each of two
// ranks, whose elements are all 10 step + rank; "each" is a value of each rank.
//
//   file_child write FOLDER STEPS RESUME     step numbers on stdout as they are committed
//   file_child verify FOLDER ENDED           step numbers on stdout; fails when a value is wrong, or when the stream has not ended
//                                            with end_of_stream (ENDED 1), writer_lost (0)
//   file_child full FOLDER                   on a small file system mounted there; 77: not permitted to mount
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "penstock/penstock.hpp"
#include "stream/file/file_engine.hpp"

namespace penstock::stream {
std::span<const EngineEntry> engines() {
  static constexpr EngineEntry file[] = {{"file", &create_file, &open_file, &inspect_files, &locate_files}};
  return file;
}
}  // namespace penstock::stream

namespace {

using namespace penstock;
namespace fs = std::filesystem;

constexpr std::uint64_t elements = 1000;

StreamOptions options_of(const std::string& folder, const std::string& resume = "no") {
  StreamOptions options;
  options.engine = "file";
  options.folder = folder;
  options.resume = resume;
  options.open_timeout_ms = options.step_timeout_ms = options.close_timeout_ms = 20'000;
  return options;
}

Context context_of(const std::string& folder) {
  ContextOptions options;
  options.directory = folder + ".directory";
  options.listen = "127.0.0.1";
  return Context(options);
}

void write(Context& context, const std::string& folder, int steps, const std::string& resume) {
  run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) {
    const auto rank = static_cast<std::uint64_t>(cohort->rank());
    auto writer = context.create_stream("heat", cohort, options_of(folder, resume));
    const auto T = writer.define<double>("T", {2, elements}, {.min_max = true});
    const auto each = writer.define_value<std::int32_t>("each", Kind::local_value);
    writer.put_attribute("T/units", Attribute::of("K"));
    for (int t = 0; t < steps; ++t) {
      auto step = writer.begin_step();
      const auto number = step.number();
      const std::vector<double> row(elements, static_cast<double>(10 * number + rank));
      step.put(T, Box{{rank, 0}, {1, elements}}, row.data());
      const auto value = static_cast<std::int32_t>(rank);
      step.put(each, Box{}, &value);
      step.end();
      if (rank == 0) std::cout << number << std::endl;
    }
    writer.close();
  });
}

int verify(Context& context, const std::string& folder, bool ended) {
  auto reader = context.open_stream(folder, solo());
  for (;;) {
    auto next = reader.try_begin_step();
    if (!next.step) return next.outcome == (ended ? Outcome::end_of_stream : Outcome::writer_lost) ? 0 : 2;
    auto& step = *next.step;
    std::vector<double> got(2 * elements);
    step.get("T", Selection::all(), got.data());
    step.wait();
    for (std::uint64_t i = 0; i < got.size(); ++i)
      if (got[i] != static_cast<double>(10 * step.number() + i / elements)) return 3;
    std::cout << step.number() << std::endl;
  }
}

int full(const std::string& folder) {
  fs::create_directories(folder);
  if (::unshare(CLONE_NEWNS | (::geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=1m") != 0) {
    std::cerr << "skipped: may not mount a small file system here: " << std::strerror(errno) << "\n";
    return 77;
  }
  auto context = context_of("/tmp/penstock-full-" + std::to_string(::getpid()));
  const auto steps = folder + "/heat.steps";
  try {
    write(context, steps, 1000, "no");
    std::cerr << "the disk was not full\n";
    return 1;
  } catch (const Error& error) {
    const std::string what = error.what();
    if (what.find("No space left") == what.npos || what.find(steps) == what.npos) {
      std::cerr << "it does not say what is full: " << what << "\n";
      return 1;
    }
  }
  if (const auto code = verify(context, steps, false); code != 0) return code;
  // Where there is room again, another run goes on.
  for (int n = 0; n < 8; ++n)
    for (const auto* end : {".h5", ".rank1"}) fs::remove(steps + "/0000000" + std::to_string(n) + end);
  write(context, steps, 2, "append");
  return verify(context, steps, true);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  base::set_log_sink([](base::Level, std::string_view) {});
  try {
    if (arguments.at(0) == "full") return full(arguments.at(1));
    auto context = context_of(arguments.at(1));
    if (arguments.at(0) == "verify") return verify(context, arguments.at(1), arguments.at(2) == "1");
    write(context, arguments.at(1), std::stoi(arguments.at(2)), arguments.at(3));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "file_child: " << error.what() << "\n";
    return 1;
  }
}
