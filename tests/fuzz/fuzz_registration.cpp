// Registration files, and the addresses and endpoints that users write.
#include <sys/stat.h>
#include <unistd.h>

#include "base/test_support.hpp"
#include "base/uri.hpp"
#include "fabric/registration.hpp"
#include "fuzz.hpp"

using namespace penstock;
using fuzz::Bytes;

namespace {

enum Target : std::uint8_t { file, address, uri, endpoint, targets };

fabric::Registration some_registration() {
  fabric::Registration r;
  r.stream = "heat";
  r.endpoint = {"penstock-17", {"10.0.0.1", "::1"}, 4711};
  r.pid = 17;
  r.host = "node";
  r.ranks = 4;
  r.started = 1'700'000'000;
  return r;
}

void check_file(std::string_view text) {
  static const TestFolder folder;
  static const auto path = folder / "heat.json";
  std::ofstream(path, std::ios::binary) << text;
  ::chmod(path.c_str(), 0600);
  fuzz::refuses_with({Errc::protocol}, [&] { fabric::Directory(folder.path()).read("heat"); });
}

// What is understood is written back to mean the same.
void check_uri(const std::string& text) {
  base::StreamUri parsed;
  if (fuzz::refuses_with({Errc::invalid_argument}, [&] { parsed = base::parse_uri(text); }))
    fuzz::check(base::parse_uri(base::format_uri(parsed)) == parsed);
}

void check_endpoint(const std::string& text) {
  std::string host, again_host;
  std::uint16_t port = 0, again_port = 0;
  if (!fuzz::refuses_with({Errc::invalid_argument}, [&] { base::parse_endpoint(text, host, port); })) return;
  base::parse_endpoint(base::format_endpoint(host, port), again_host, again_port);
  fuzz::check(host == again_host && port == again_port);
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  const auto address_text = fabric::to_address(some_registration());
  const TestFolder folder;
  const fabric::Directory directory(folder.path());
  directory.write(some_registration());
  std::ifstream written(folder / "heat.json", std::ios::binary);
  const std::string json((std::istreambuf_iterator<char>(written)), {});
  return {choose(file, json),
          choose(address, address_text),
          choose(uri, address_text),
          choose(uri, "tcp://[fe80::1%25eth0]:4711/a%20b?token=00ff"),
          choose(endpoint, "node:4711"),
          choose(endpoint, "[::1]:80")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % targets) {
    case file: check_file(text); break;
    case address: fuzz::refuses_with({Errc::invalid_argument}, [&] { fabric::parse_address(text); }); break;
    case uri: check_uri(text); break;
    case endpoint: check_endpoint(text); break;
  }
  return 0;
}
