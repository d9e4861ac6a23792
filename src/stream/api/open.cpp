#include "stream/api/open.hpp"

#include <algorithm>
#include <atomic>
#include <new>

#include "base/log.hpp"
#include "fabric/connect.hpp"
#include "penstock/error.hpp"
#include "transport/planes.hpp"
#include "wire/control.hpp"

namespace penstock::stream {

namespace {

constexpr Timeout warning_patience(2000);

// "0 text" or "<code> message"
std::string answer_of(const std::function<std::string()>& make) {
  try {
    return "0 " + make();
  } catch (const Error& e) {
    return std::to_string(static_cast<int>(e.code())) + " " + e.what();
  } catch (const std::bad_alloc&) {
    return std::to_string(static_cast<int>(Errc::memory)) + " there is not enough memory";
  } catch (const std::exception& e) {
    return std::to_string(static_cast<int>(Errc::internal)) + " " + e.what();
  }
}

std::string text_of(const std::string& answer) {
  const auto blank = answer.find(' ');
  const int code = std::stoi(answer.substr(0, blank));
  auto text = answer.substr(blank + 1);
  if (code != 0) throw Error(static_cast<Errc>(code), text);
  return text;
}

}  // namespace

std::string share_text(Cohort& cohort, const std::function<std::string()>& make) {
  std::string answer;
  if (cohort.rank() == 0) answer = answer_of(make);
  if (cohort.size() > 1) answer = cohort.broadcast(answer, 0);
  return text_of(answer);
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

std::vector<std::string> gather_texts(Cohort& cohort, const std::function<std::string()>& make) {
  if (cohort.size() == 1) return {make()};
  const auto answers = cohort.gather(answer_of(make), 0);
  // "length text" for each rank
  const auto joined = share_text(cohort, [&] {
    std::string all;
    for (std::size_t rank = 0; rank < answers.size(); ++rank) {
      try {
        const auto text = text_of(answers[rank]);
        all += std::to_string(text.size()) + " " + text;
      } catch (const Error& e) {
        throw e.in("rank " + std::to_string(rank));
      }
    }
    return all;
  });
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < joined.size();) {
    const auto blank = joined.find(' ', at);
    const auto size = std::stoull(joined.substr(at, blank - at));
    texts.push_back(joined.substr(blank + 1, size));
    at = blank + 1 + size;
  }
  if (texts.size() != static_cast<std::size_t>(cohort.size()))
    throw Error(Errc::internal, "the cohort's gather lost what a rank said");
  return texts;
}

std::uint64_t number_made_of(const fabric::Token& token, std::string_view purpose) {
  const auto derived = token.derive(purpose);
  std::uint64_t number = 0;
  std::copy_n(derived.bytes.begin(), sizeof(number), reinterpret_cast<std::uint8_t*>(&number));
  return number;
}

std::string_view plane_name(DataPlane plane) {
  switch (plane) {
    case DataPlane::shm: return "shm";
    case DataPlane::tcp: return "tcp";
    case DataPlane::ucx: return "ucx";
    case DataPlane::automatic: break;
  }
  return {};
}

std::string_view wanted_plane(const StreamOptions& options) {
  const auto name = plane_name(options.data_plane);
  if (!name.empty()) transport::plane_named(name);
  return name;
}

std::vector<fabric::Endpoint> exchange_endpoints(Cohort& cohort, const std::function<fabric::Endpoint()>& listen) {
  if (cohort.size() == 1) return {listen()};
  std::vector<fabric::Endpoint> endpoints;
  for (const auto& text : gather_texts(cohort, [&] { return fabric::to_text(listen()); }))
    endpoints.push_back(fabric::endpoint_from_text(text));
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

void warn_other_writer(fabric::Progress& progress, Registry& registry, const fabric::Registration& mine) {
  const base::Deadline deadline(warning_patience);
  try {
    const auto other = registry.read(mine.stream, deadline);
    if (!other || fabric::forgotten_communicator(mine, *other).empty()) return;
    wire::Hello hello;
    hello.purpose = wire::Purpose::join;
    hello.stream = mine.stream;
    auto socket = fabric::connect_blocking(other->endpoint, other->token, hello, fabric::Reach::automatic, deadline);
    const auto connection = fabric::Connection::adopt(progress, std::move(socket), "the other writer");
    const auto heard = std::make_shared<std::atomic<bool>>(false);  // it closes the connection
    connection->start([](std::uint16_t, std::span<const std::byte>, fabric::UniqueFd) {},
                      [heard, &progress](const Error&) {
                        *heard = true;
                        progress.notify();
                      });
    const wire::Message message{
        .kind = wire::Kind::lost, .ranks = static_cast<std::uint32_t>(mine.launch.rank), .text = mine.launch.id};
    std::vector<std::byte> bytes;
    wire::encode(message, bytes);
    connection->send(static_cast<std::uint16_t>(message.kind), wire::name_of(message.kind), bytes);
    progress.wait_for([&] { return heard->load(); }, deadline);
    connection->close();
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "the other writer of this stream could not be told that the communicator is missing",
              {{"stream", mine.stream}, {"why", e.what()}});
  }
}

}  // namespace penstock::stream
