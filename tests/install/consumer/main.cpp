// Writes a stream in one thread, reads it in another, with nothing but the installed headers and library.
#include <penstock/penstock.hpp>
#include <penstock/version.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t steps = 3;
constexpr std::uint64_t length = 1000;

void write(penstock::Context& context) {
  auto writer = context.create_stream("heat");
  auto temperature = writer.define<double>("T", {length});
  for (std::uint64_t number = 0; number < steps; ++number) {
    auto step = writer.begin_step();
    step.put(temperature, std::vector<double>(length, static_cast<double>(number)).data());
    step.end();
  }
  writer.close();
}

std::uint64_t read(penstock::Context& context) {
  auto reader = context.open_stream("heat");
  std::uint64_t good = 0;
  for (auto outcome = reader.try_begin_step(penstock::configured); outcome.outcome == penstock::Outcome::ready;
       outcome = reader.try_begin_step(penstock::configured)) {
    const auto values = outcome.step->read<double>("T");
    if (values == std::vector<double>(length, static_cast<double>(outcome.step->number()))) ++good;
    outcome.step->end();
  }
  return good;
}

// A directory service that is not there: prints how opening a stream fails.
int fail_to_open(const std::string& directory) {
  penstock::Context context({.directory = directory, .listen = "127.0.0.1"});
  try {
    context.open_stream("heat", penstock::solo(), {.open_timeout_ms = 1000});
  } catch (const penstock::Error& error) {
    std::printf("%s\n", error.what());
    return 0;
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 1) return fail_to_open(argv[1]);
    std::string folder = (std::filesystem::temp_directory_path() / "penstock-consumer-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return 1;
    std::uint64_t good = 0;
    {
      penstock::Context context({.directory = folder, .listen = "127.0.0.1"});
      auto writing = std::async(std::launch::async, [&] { write(context); });
      good = read(context);
      writing.get();
    }
    std::filesystem::remove_all(folder);
    std::printf("penstock %s, %s: %llu of %llu steps\n", penstock::version,
                penstock::to_string(penstock::Dims{length}).c_str(), static_cast<unsigned long long>(good),
                static_cast<unsigned long long>(steps));
    return good == steps ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
