// The state machines of both sides fed with messages of any content, from any link: each is obeyed or refused.
#include "fuzz.hpp"
#include "stream/protocol/reader_protocol.hpp"
#include "stream/protocol/writer_protocol.hpp"

using namespace penstock;
using namespace penstock::stream;
using fuzz::Bytes;

namespace {

struct Nowhere : Sink {
  void send(LinkId, const wire::Message&) override {}
};

class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto b = std::to_integer<std::uint8_t>(bytes_[0]);
    bytes_ = bytes_.subspan(1);
    return b;
  }
  // Mostly small; 255 stands for the largest.
  std::uint64_t number() {
    const auto b = byte();
    return b == 255 ? ~std::uint64_t{0} : b;
  }
  wire::Message message() {
    wire::Message m;
    m.kind = static_cast<wire::Kind>(1 + byte() % (wire::kind_count - 1));
    m.step = number();
    m.slot = static_cast<std::uint32_t>(number() % (wire::max_slots + 1));
    const auto extras = byte();
    m.flag = (extras & 1) != 0;
    if (extras & 2) m.epoch = number();
    if (extras & 4) m.value = number();
    if (extras & 8) m.text = "why";
    static const auto blob = std::make_shared<const std::string>("layout");
    for (int i = extras >> 6; i > 0; --i)
      m.layouts.push_back({static_cast<std::uint32_t>(number() % wire::max_ranks), blob});
    return m;
  }

 private:
  std::span<const std::byte> bytes_;
};

LedgerSettings settings(std::uint8_t choice) {
  LedgerSettings s;
  s.ranks = 3;
  s.queue_steps = 1 + choice % 4;
  s.reserve_steps = choice / 4 % 3;
  s.keep_first_step = choice / 12 % 2 != 0;
  s.when_full = static_cast<WhenFull>(choice / 24 % 3);
  s.rendezvous_readers = choice / 72 % 2;
  return s;
}

void run_writer(Input in) {
  Nowhere sink;
  const auto setup = settings(in.byte());
  WriterProtocol writer(in.byte() % 2, setup, sink, 1);  // the root, or a rank with a parent and a child
  LinkId readers = 0;
  static const auto blob = std::make_shared<const std::string>("layout");
  std::optional<Ledger::Grant> grant;
  while (!in.empty()) {
    const auto what = in.byte();
    if (what < 32 && writer.is_root() && readers < 4) {
      writer.ledger().join(first_reader_link + readers++, 1 + what % 3, what % 2 != 0, "reader");
    } else if (what < 96) {
      if (grant && !grant->dropped) writer.record(*grant, what % 8 == 0, blob);
      grant = writer.take_grant();
      if (!grant) writer.want();
    } else if (what < 104) {
      writer.on_link_lost(writer.is_root() ? first_reader_link + what % 4 : parent_link, "fuzz");
    } else {
      const LinkId link =
          what % 2 != 0 && writer.is_root() ? first_reader_link + what / 2 % 4 : writer.rank() + (what / 2 % 2);
      const auto message = in.message();
      fuzz::refuses_with({Errc::protocol},
                         [&] { writer.on_message(link == writer.rank() ? parent_link : link, message); });
    }
    if (writer.is_root()) fuzz::check(writer.ledger().retained_steps() <= setup.slots());
    while (writer.take_freed_slot()) {
    }
    writer.awaited();
  }
}

void run_reader(Input in) {
  Nowhere sink;
  const std::uint32_t slots = 1 + in.byte() % 4;
  ReaderProtocol reader(in.byte() % 2, 5, 2, slots, in.byte() % 2 != 0, sink, 2);
  std::vector<ReaderProtocol::Step> held;
  while (!in.empty()) {
    const auto what = in.byte();
    if (what < 48) {
      if (auto step = reader.take()) held.push_back(std::move(*step));
      else reader.want();
    } else if (what < 64 && !held.empty()) {
      reader.release(held.back().step, held.back().slot);
      held.pop_back();
    } else if (what < 68) {
      reader.on_link_lost(what % 2 != 0 ? parent_link : 3, "fuzz");
    } else if (what < 70 && held.empty()) {
      reader.leave();
    } else {
      const auto message = in.message();
      fuzz::refuses_with({Errc::protocol}, [&] { reader.on_message(what % 4 == 0 ? 3 : parent_link, message); });
    }
    fuzz::check(held.size() <= slots);
  }
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  return {choose(0, std::string_view("\x0d\0\x01\x28\x29\x70\x05\0\0\x40\x28", 11)),
          choose(1, std::string_view("\x03\0\0\x80\x0b\x01\x01\x42\x01\0\x01\x80\x0a\x01\0\x02\x01\x10\x34", 19))};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  data[0] % 2 == 0 ? run_writer(Input(bytes)) : run_reader(Input(bytes));
  return 0;
}
