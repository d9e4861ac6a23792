// thermo_server CONTACT-FILE: offers the service thermo.Thermo until its standard input ends.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <numeric>
#include <stdexcept>

#include "thermo_service.hpp"

namespace rpc = penstock::rpc;
using namespace thermo;

// Methods run on the engine's thread and must not block it: they wait with co_await.
class Summaries final : public ThermoService {
  rpc::Task<SummaryT> summarize(rpc::Call&, FieldT request) override { co_return summary_of(request.kelvin); }

  rpc::Task<SummaryT> summarize_exposed(rpc::Call& call, ExposedT request) override {
    // Waits until the server has so much memory to spare, and fails if it never has.
    const auto credit = co_await call.channel().budget().acquire(request.kelvin.bytes(), call.deadline());
    std::vector<double> kelvin(request.kelvin.bytes() / sizeof(double));
    const auto into = std::as_writable_bytes(std::span(kelvin));
    co_await call.channel().bulk().pull(request.kelvin, 0, into, call.deadline());
    co_return summary_of(kelvin);
  }

  static SummaryT summary_of(const std::vector<double>& kelvin) {
    if (kelvin.empty()) throw penstock::Error(penstock::Errc::invalid_argument, "the field is empty");
    SummaryT summary;
    summary.mean = std::accumulate(kelvin.begin(), kelvin.end(), 0.0) / static_cast<double>(kelvin.size());
    summary.maximum = *std::max_element(kelvin.begin(), kelvin.end());
    return summary;
  }
};

// Where the server is and its secret, for clients that may read the file. Complete when it has its name.
void write_contact(const std::string& file, const std::string& endpoint, const std::string& token) {
  umask(077);
  const std::string draft = file + ".new";
  std::ofstream out(draft);
  out << endpoint << "\n" << token << "\n";
  out.close();
  if (!out || std::rename(draft.c_str(), file.c_str()) != 0) throw std::runtime_error("cannot write " + file);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: thermo_server CONTACT-FILE\n";
    return 2;
  }
  try {
    const auto progress = rpc::Progress::create();  // the engine; it outlives what is made on it
    const auto services = std::make_shared<rpc::ServiceTable>();
    services->add(std::make_shared<Summaries>());
    const auto token = rpc::Token::random();
    const auto token_of = [token](const std::string& realm_and_role) {
      return realm_and_role == "thermo/user" ? std::optional(token) : std::nullopt;
    };
    const rpc::Server server(progress, services, token_of, "127.0.0.1");
    write_contact(argv[1], rpc::to_text(server.endpoint()), token.hex());
    std::cout << "ready" << std::endl;
    while (std::cin.get() != EOF) {
    }
  } catch (const std::exception& error) {
    std::cerr << "thermo_server: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
