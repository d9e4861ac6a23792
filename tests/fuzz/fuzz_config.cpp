// Options as text, as the environment and configuration files give them.
#include <unistd.h>

#include "base/config.hpp"
#include "base/text.hpp"
#include "fuzz.hpp"
#include "penstock/options.hpp"

using namespace penstock;
using fuzz::Bytes;

namespace {

enum Target : std::uint8_t { short_form, option, yaml, size, targets };

constexpr auto refusals = {Errc::invalid_argument, Errc::unknown_option};

// What was accepted is valid, and its effective state reads back.
void check_options(const StreamOptions& options) {
  base::check(options);
  const std::string text = to_yaml(options);
  fuzz::check(to_yaml(from_yaml(text)) == text);
}

void check_yaml(std::string_view text) {
  static const auto path =
      (std::filesystem::temp_directory_path() / ("penstock-fuzz-" + std::to_string(::getpid()))).string();
  static const struct Remover {
    ~Remover() { std::filesystem::remove(path); }
  } remover;
  std::ofstream(path, std::ios::binary) << text;
  fuzz::refuses_with(refusals, [&] { base::settings({.config_file = path}); });
  fuzz::refuses_with(refusals, [&] { base::options_for_stream("heat", {}, path); });
  fuzz::refuses_with(refusals, [&] { base::options_for_coprocessor("heat", {}, path); });
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  return {choose(short_form, "direct,queue_steps=2,when_full=discard_oldest,queue_bytes=64MiB"),
          choose(short_form, "data_plane=tcp, delivery=latest , spin_us=0"),
          choose(option, "rendezvous_readers=0"),
          choose(option, "keep_first_step=yes"),
          choose(yaml,
                 "streams:\n  \"*\": {queue_steps: 8}\n  heat: {data_plane: tcp}\n  wake: \"direct,when_full=block\"\n"
                 "directory: /tmp\nlisten: 10.0.0.1\nlog: info\n"),
          choose(yaml, "coprocessing: {heat: {wait: automatic, every: 10, pipelines: [a.yaml, b.yaml]}, wake: drop}\n"),
          choose(size, "1.5GiB"),
          choose(size, "1000 B")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  if (bytes == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  StreamOptions options;
  switch (data[0] % targets) {
    case short_form:
      if (fuzz::refuses_with(refusals, [&] { base::apply_text(options, text); })) check_options(options);
      break;
    case option: {
      const auto equals = text.find('=');
      if (equals == std::string::npos) break;
      if (fuzz::refuses_with(refusals, [&] { set_option(options, text.substr(0, equals), text.substr(equals + 1)); }))
        check_options(options);
      break;
    }
    case yaml: check_yaml(text); break;
    case size: {
      std::uint64_t value = 0;
      if (fuzz::refuses_with({Errc::invalid_argument}, [&] { value = base::parse_size(text); }))
        fuzz::check(base::parse_size(base::format_size(value)) == value);
      break;
    }
  }
  return 0;
}
