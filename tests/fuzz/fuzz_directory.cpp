// The embedded directory's journal, and what etcd answers.
#include <cstring>

#include "directory/etcd/codec.hpp"
#include "directory/journal.hpp"
#include "fuzz.hpp"
#include "storage/tier.hpp"

using namespace penstock;
using fuzz::Bytes;

namespace {

enum Target : std::uint8_t { file, records, answer, targets };

constexpr std::uint32_t salt = 0x5a17'5a17;

Bytes bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

// A small tree with everything in it, as a file.
std::string some_journal() {
  directory::DirectoryState state(7);
  std::vector<directory::DirectoryChange> changes;
  const auto lease = state.grant(std::chrono::seconds(1), {}).lease;
  state.put("/a", "1", {}, 0);
  std::string out = directory::encode_journal(state.snapshot(), salt);
  changes.push_back(*state.put("/a/b", "22", 0, lease));
  changes.push_back(*state.put("/a", "333", {}, 0));
  changes.push_back(state.grant(std::chrono::seconds(2), {}));
  changes.push_back(*state.remove("/a", {}));
  changes.push_back(*state.revoke(lease));
  return out + directory::encode_changes(changes, salt, out.size());
}

// Any file is refused or gives a state that is one: it survives being written and read again.
void check_file(std::span<const std::byte> bytes) {
  directory::ReplayedJournal replayed;
  if (!fuzz::refuses_with({Errc::protocol}, [&] { replayed = directory::replay_journal(bytes, {}, {}); })) return;
  fuzz::check(replayed.dropped_bytes <= bytes.size());
  const std::string again = directory::encode_journal(replayed.state->snapshot(), salt);
  const auto second = directory::replay_journal(std::as_bytes(std::span(again)), {}, {});
  fuzz::check(second.dropped_bytes == 0 && second.state->revision() == replayed.state->revision());
  fuzz::check(second.state->entries() == replayed.state->entries() && second.state->bytes() == replayed.state->bytes());
  fuzz::check(second.state->leases() == replayed.state->leases());
}

// Mutation hardly ever finds a checksum: records from the input, each as long as its first byte says, get theirs here.
void check_records(std::span<const std::byte> bytes) {
  std::string out = some_journal();
  while (!bytes.empty()) {
    const auto length = std::min<std::size_t>(std::to_integer<std::size_t>(bytes[0]) + 1, bytes.size() - 1);
    const auto body = fuzz::text(bytes.subspan(1, length));
    bytes = bytes.subspan(1 + length);
    const auto body_bytes = static_cast<std::uint32_t>(body.size());
    std::string checked(12, '\0');
    std::memcpy(checked.data(), &body_bytes, sizeof body_bytes);
    checked += body;
    const auto sum = storage::checksum(std::as_bytes(std::span(checked)));
    out.append(reinterpret_cast<const char*>(&salt), sizeof salt);
    out.append(reinterpret_cast<const char*>(&sum), sizeof sum);
    out += checked;
  }
  check_file(std::as_bytes(std::span(out)));
}

void check_answer(std::string_view text) {
  namespace etcd = directory::etcd;
  const auto decode = [](auto action) { fuzz::refuses_with({Errc::protocol}, action); };
  decode([&] { etcd::decode_put("/r", text, true); });
  decode([&] { etcd::decode_remove("/r", text, false); });
  decode([&] { etcd::decode_remove("/r", text, true); });
  decode([&] { etcd::decode_range("/r", text); });
  decode([&] { etcd::decode_grant(text); });
  decode([&] { etcd::decode_keepalive(text); });
  decode([&] { etcd::decode_watched("/r", text); });
  etcd::decode_refusal(text);
}

}  // namespace

std::vector<Bytes> fuzz::seeds() {
  const std::string journal = some_journal();
  std::vector<Bytes> all{choose(file, bytes_of(journal)),
                         choose(file, bytes_of(journal.substr(0, journal.size() - 3)))};
  // put "/z" = "v" as the next revision.
  directory::DirectoryChange change;
  change.revision = 6;
  change.path = "/z";
  change.value = "v";
  const std::string record = directory::encode_changes(std::span(&change, 1), salt, 0).substr(24);
  std::string sized(1, static_cast<char>(record.size() - 1));
  all.push_back(choose(records, bytes_of(sized + record)));
  all.push_back(
      choose(answer, R"({"header":{"revision":"5"},"kvs":[{"key":"L3IvYQ==","mod_revision":"4","value":"eA=="}]})"));
  all.push_back(
      choose(answer, R"({"succeeded":true,"header":{"revision":"5"},"responses":[{"response_range":{"kvs":[]}}]})"));
  all.push_back(
      choose(answer, R"({"result":{"events":[{"type":"DELETE","kv":{"key":"L3IvYQ=="}}],"compact_revision":"1"}})"));
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto rest = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % targets) {
    case file: check_file(rest); break;
    case answer: check_answer(fuzz::text(rest)); break;
    default: check_records(rest);
  }
  return 0;
}
