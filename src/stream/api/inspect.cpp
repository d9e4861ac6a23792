#include "stream/api/inspect.hpp"

#include <mutex>
#include <optional>

#include "fabric/connect.hpp"
#include "wire/control.hpp"

namespace penstock::stream {

std::string inspect_writer(fabric::Progress& progress, const fabric::Registration& registration,
                           base::Deadline deadline) {
  struct Answer {
    std::mutex mutex;  // guards both
    std::optional<std::string> text;
    std::optional<Error> failed;
  };
  const auto answer = std::make_shared<Answer>();
  wire::Hello hello;
  hello.purpose = wire::Purpose::inspect;
  hello.stream = registration.stream;
  std::shared_ptr<fabric::Connection> connection;
  try {
    connection = fabric::Connection::adopt(
        progress,
        fabric::connect_blocking(registration.endpoint, registration.token, hello, fabric::Reach::automatic, deadline),
        "writer");
  } catch (const Error& e) {
    if (e.code() != Errc::peer_lost) throw;
    throw Error(Errc::not_found, "stream " + registration.stream + ": nobody answers (" + e.what() + ")");
  }
  connection->start(
      [answer, &progress](std::uint16_t, std::span<const std::byte> bytes, fabric::UniqueFd) {
        auto message = wire::decode_message(bytes);
        {
          std::lock_guard lock(answer->mutex);
          answer->text = std::move(message.text);
        }
        progress.notify();
      },
      [answer, &progress](const Error& why) {
        {
          std::lock_guard lock(answer->mutex);
          answer->failed = why;
        }
        progress.notify();
      });
  progress.wait_for(
      [&] {
        std::lock_guard lock(answer->mutex);
        return answer->text || answer->failed;
      },
      deadline);
  connection->close();
  std::lock_guard lock(answer->mutex);
  if (answer->text) return *answer->text;
  if (answer->failed) throw answer->failed->in("stream " + registration.stream);
  throw Error(Errc::timeout, "stream " + registration.stream + ": its writer did not answer in time");
}

}  // namespace penstock::stream
