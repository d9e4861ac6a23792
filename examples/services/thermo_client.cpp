// thermo_client CONTACT-FILE: asks the service thermo.Thermo for summaries of a field of 1000 temperatures.
#include <fstream>
#include <iostream>
#include <numeric>
#include <stdexcept>

#include "thermo_service.hpp"

namespace rpc = penstock::rpc;
using namespace thermo;

std::shared_ptr<rpc::Channel> connect_to(const std::string& contact, const std::shared_ptr<rpc::Progress>& progress) {
  std::ifstream in(contact);
  std::string endpoint, token;
  if (!std::getline(in, endpoint) || !std::getline(in, token)) throw std::runtime_error("no server in " + contact);
  const rpc::Deadline deadline(std::chrono::seconds(10));
  return rpc::run_task(*progress,
                       rpc::connect(progress, rpc::endpoint_from_text(endpoint), rpc::Token::from_hex(token),
                                    "thermo/user", nullptr, deadline),
                       deadline, "no connection");
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: thermo_client CONTACT-FILE\n";
    return 2;
  }
  try {
    const auto progress = rpc::Progress::create();
    const auto channel = connect_to(argv[1], progress);
    ThermoClient client(channel);
    std::vector<double> kelvin(1000);
    std::iota(kelvin.begin(), kelvin.end(), 273.0);

    FieldT field;
    field.kelvin = kelvin;
    const rpc::Deadline deadline(std::chrono::seconds(5));
    const SummaryT sent = client.start_summarize(field, {deadline}).get(deadline);
    std::cout << "sent: mean " << sent.mean << ", maximum " << sent.maximum << "\n";

    const auto exposure = channel->bulk().expose(std::as_bytes(std::span(kelvin)));  // until the end of its scope
    ExposedT exposed;
    exposed.kelvin = exposure.descriptor();
    const SummaryT pulled = client.start_summarize_exposed(exposed, {deadline}).get(deadline);
    std::cout << "exposed: mean " << pulled.mean << ", maximum " << pulled.maximum << "\n";

    try {
      client.start_summarize({}, {deadline}).get(deadline);
    } catch (const penstock::Error& error) {  // what the method threw, with where
      std::cout << name_of(error.code()) << "\n";
    }
  } catch (const std::exception& error) {
    std::cerr << "thermo_client: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
