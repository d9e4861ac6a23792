#include "stream/open.hpp"

#include <unistd.h>

#include "fabric/connect.hpp"
#include "penstock/error.hpp"

namespace penstock::stream {

std::string share_text(Cohort& cohort, const std::function<std::string()>& make) {
  // "0 text" or "<code> message"
  std::string answer;
  if (cohort.rank() == 0) {
    try {
      answer = "0 " + make();
    } catch (const Error& e) {
      answer = std::to_string(static_cast<int>(e.code())) + " " + e.what();
    } catch (const std::exception& e) {
      answer = std::to_string(static_cast<int>(Errc::internal)) + " " + e.what();
    }
  }
  if (cohort.size() > 1) answer = cohort.broadcast(answer, 0);
  const auto blank = answer.find(' ');
  const int code = std::stoi(answer.substr(0, blank));
  auto text = answer.substr(blank + 1);
  if (code != 0) throw Error(static_cast<Errc>(code), text);
  return text;
}

void share_outcome(Cohort& cohort, const std::function<void()>& action) {
  share_text(cohort, [&] {
    action();
    return std::string();
  });
}

fabric::Token shared_token(Cohort& cohort) {
  return fabric::Token::from_hex(share_text(cohort, [] { return fabric::Token::random().hex(); }));
}

std::vector<fabric::Endpoint> exchange_endpoints(Cohort& cohort, const fabric::Endpoint& own) {
  if (cohort.size() == 1) return {own};
  const auto texts = cohort.gather(fabric::to_text(own), 0);
  const auto joined = share_text(cohort, [&] {
    std::string lines;
    for (const auto& text : texts) lines += text + "\n";
    return lines;
  });
  std::vector<fabric::Endpoint> endpoints;
  for (std::size_t at = 0; at < joined.size();) {
    const auto end = joined.find('\n', at);
    endpoints.push_back(fabric::endpoint_from_text(std::string_view(joined).substr(at, end - at)));
    at = end + 1;
  }
  if (endpoints.size() != static_cast<std::size_t>(cohort.size()))
    throw Error(Errc::internal, "the cohort's gather lost a rank's endpoint");
  return endpoints;
}

std::shared_ptr<fabric::Connection> connect_tree(fabric::Progress& progress, const fabric::Endpoint& parent,
                                                 const fabric::Token& token, const std::string& stream,
                                                 std::uint32_t rank, base::Deadline deadline) {
  wire::Hello hello;
  hello.purpose = wire::Purpose::tree;
  hello.rank = rank;
  hello.stream = stream;
  auto socket = fabric::connect_blocking(parent, token, hello, fabric::Reach::automatic, deadline);
  return fabric::Connection::adopt(progress, std::move(socket), "rank " + std::to_string(rank));
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace penstock::stream
