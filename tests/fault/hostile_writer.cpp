// A writer that does not keep to the protocol, against the library's reader in this process.
//
// Attacks: every message kind in every wrong shape in place of the admission and after it; mailboxes that lie; segments,
// layouts, slot headers and replies that do not fit. The reader must come out of each with an Error, in time.
#include <cstring>
#include <mutex>

#include "fabric/connection.hpp"
#include "fabric/listener.hpp"
#include "hostile.hpp"
#include "memory/arena.hpp"
#include "transport/planes.hpp"
#include "wire/data.hpp"

namespace penstock::fault {

namespace {

using fabric::Connection;
using fabric::UniqueFd;
using memory::SlotHeader;
using wire::DataKind;
using wire::Message;

constexpr std::uint64_t elements = 100;
constexpr std::uint64_t block_bytes = elements * sizeof(double);
constexpr std::uint64_t segment_bytes = 8192;

// What this writer says when; the defaults are right.
struct Script {
  std::function<void(Connection&)> on_join;       // null: admits, announces one step
  std::function<void(Connection&)> after_admit;   // null: announces one step
  std::function<void(memory::Mailbox&)> mailbox;  // null: without rings
  std::function<void(model::RankLayout&)> layout;
  std::function<void(SlotHeader&)> header;
  bool payload = false;
  std::function<void(wire::SegmentAnnounce&)> segment;
  int segment_fd = -1;  // in place of the right one
  std::function<void(wire::DataReply&)> reply;
};

void send(Connection& to, const Message& message) {
  Bytes bytes;
  wire::encode(message, bytes);
  to.send(static_cast<std::uint16_t>(message.kind), "hostile", bytes);
}

class HostileWriter {
 public:
  HostileWriter(const std::string& directory, const Script& script)
      : script_(script),
        directory_(directory),
        segment_(memory::Segment::create(segment_bytes)),
        listener_(
            progress_, token_, "h", "127.0.0.1",
            [this](std::shared_ptr<Connection> connection, const wire::Hello& hello) { on_peer(connection, hello); }) {
    auto& header = *reinterpret_cast<SlotHeader*>(segment_.data());
    header.step = 0;
    header.payload_offset = 4096;
    header.payload_bytes = 64;
    if (script_.header) script_.header(header);
    registration_ = {.stream = "h", .endpoint = listener_.endpoint(), .token = token_, .host = "here", .ranks = 1};
    directory_.write(registration_);
  }
  ~HostileWriter() {
    directory_.remove(registration_);
    progress_.call([this] {
      for (auto& connection : connections_) connection->close();
    });
  }

 private:
  void on_peer(const std::shared_ptr<Connection>& connection, const wire::Hello& hello) {
    connections_.push_back(connection);
    const auto ignore = [](const Error&) {};
    if (hello.purpose == wire::Purpose::segments) {
      connection->start([](std::uint16_t, std::span<const std::byte>, UniqueFd) {}, ignore);
      announce_segment(*connection);
      return;
    }
    connection->start(
        [this, weak = std::weak_ptr(connection)](std::uint16_t kind, std::span<const std::byte> bytes, UniqueFd) {
          const auto self = weak.lock();
          if (self && kind == static_cast<std::uint16_t>(wire::Kind::join)) on_join(*self);
          else if (self && kind == static_cast<std::uint16_t>(DataKind::read_request)) on_read(*self, bytes);
        },
        ignore);
  }

  void on_join(Connection& reader) {
    if (script_.on_join) {
      script_.on_join(reader);
      return;
    }
    if (script_.mailbox && reader.local()) {
      mailings_.push_back(std::make_unique<Mailing>());
      auto& mailing = *mailings_.back();
      script_.mailbox(mailing.box());
      reader.send(static_cast<std::uint16_t>(wire::Kind::mailbox), "hostile", {}, mailing.segment.fd());
      reader.send(static_cast<std::uint16_t>(wire::Kind::doorbell), "hostile", {}, mailing.bell.fd());
    }
    send(reader, {.kind = wire::Kind::admit,
                  .slot = 2,
                  .ranks = 1,
                  .text = "hostile:1",
                  .addresses = {transport::addresses_of(listener_.endpoint())}});
    if (script_.after_admit) script_.after_admit(reader);
    else announce(reader);
  }

  void announce(Connection& reader) {
    model::RankLayout layout;
    layout.variables = {{.name = "array", .dtype = DType::float64, .shape = {elements}}};
    layout.blocks = {
        {.variable = 0, .box = whole({elements}), .offset = memory::slot_header_bytes, .bytes = block_bytes}};
    if (script_.layout) script_.layout(layout);
    const auto blob = std::make_shared<const std::string>(wire::encode_layout(layout, script_.payload));
    send(reader, {.kind = wire::Kind::epoch, .epoch = 1, .ranks = 1, .layouts = {{0, blob}}});
    send(reader, {.kind = wire::Kind::announce, .step = 0, .epoch = 1, .slot = 0});
  }

  void announce_segment(Connection& reader) {
    wire::SegmentAnnounce announce{.slot = 0, .segment = 0, .generation = 1, .bytes = segment_.size()};
    if (script_.segment) script_.segment(announce);
    Bytes bytes;
    encode(announce, bytes);
    const int fd = script_.segment_fd >= 0 ? script_.segment_fd : segment_.fd();
    reader.send(static_cast<std::uint16_t>(DataKind::segment_announce), "hostile", bytes, fd);
  }

  // Whatever was asked for: the block's bytes and the trailer that says they are right.
  void on_read(Connection& reader, std::span<const std::byte> bytes) {
    wire::DataRequest request;
    wire::decode_data_request(bytes, request);
    wire::DataReply reply{.id = request.id, .bytes = block_bytes};
    if (script_.reply) script_.reply(reply);
    Bytes frame;
    encode(reply, frame);
    reader.send(static_cast<std::uint16_t>(DataKind::reply), "hostile", frame);
  }

  const Script script_;
  fabric::Progress progress_;
  const fabric::Token token_ = fabric::Token::random();
  const fabric::Directory directory_;
  memory::Segment segment_;
  std::vector<std::shared_ptr<Connection>> connections_;  // the engine thread's
  std::vector<std::unique_ptr<Mailing>> mailings_;
  fabric::Registration registration_;
  fabric::Listener listener_;
};

// -------------------------------------------------------------------------------------------------------------- attacks

class Attacks {
 public:
  explicit Attacks(const Arguments& arguments)
      : directory_(arguments.text("directory")), plane_(arguments.text("data_plane")) {}

  void messages() {
    for (std::uint16_t kind = 0; kind < wire::kind_count; ++kind) {
      for (const std::string shape : shapes) {
        const auto name = std::string(wire::name_of(static_cast<wire::Kind>(kind))) + " " + shape;
        const auto say_it = [kind, bytes = message_of(kind, shape)](Connection& reader) {
          reader.send(kind, "hostile", bytes);
        };
        if (shape != "defaults") attempt("instead of admission " + name, {.on_join = say_it});
        attempt("after admission " + name, {.after_admit = say_it});
      }
    }
  }

  void mailboxes() {
    for (const auto& lie : lies()) attempt("ring " + lie.name, {.mailbox = lie.tell});
  }

  void layouts() {
    using Layout = model::RankLayout;
    const std::vector<std::pair<const char*, std::function<void(Layout&)>>> wrong = {
        {"block outside its segment", [](Layout& l) { l.blocks[0].offset = segment_bytes - 8; }},
        {"block far away", [](Layout& l) { l.blocks[0].offset = 1ull << 60; }},
        {"block at the end of the world", [](Layout& l) { l.blocks[0].offset = ~0ull - 7; }},
        {"no such segment", [](Layout& l) { l.blocks[0].segment = 63; }},
        {"impossible segment", [](Layout& l) { l.blocks[0].segment = ~0u; }},
        {"too few bytes", [](Layout& l) { l.blocks[0].bytes = 8; }},
        {"box outside the shape", [](Layout& l) { l.blocks[0].box.start[0] = 50; }},
        {"box that wraps", [](Layout& l) { l.blocks[0].box.start[0] = ~0ull; }},
        {"huge array",
         [](Layout& l) {
           l.variables[0].shape[0] = 1ull << 50;
           l.blocks[0].box.count[0] = 1ull << 50;
           l.blocks[0].bytes = 1ull << 53;
         }},
        {"overflowing shape",
         [](Layout& l) {
           l.variables[0].shape = {1ull << 40, 1ull << 40};
           l.blocks[0].box = whole(l.variables[0].shape);
         }},
        {"no such variable", [](Layout& l) { l.blocks[0].variable = 7; }},
        {"no type", [](Layout& l) { l.variables[0].dtype = DType::none; }},
        {"a variable twice", [](Layout& l) { l.variables.push_back(l.variables[0]); }},
    };
    for (const auto& [name, change] : wrong) attempt(std::string("layout ") + name, {.layout = change});
  }

  void shared_memory() {
    using Announce = wire::SegmentAnnounce;
    for (const auto& file : odd_files(segment_bytes))
      attempt(std::string("segment ") + file.name, {.segment_fd = file.fd.get()});
    attempt("segment larger than it is", {.segment = [](Announce& a) { a.bytes *= 2; }});
    attempt("segment of no bytes", {.segment = [](Announce& a) { a.bytes = 0; }});
    attempt("segment of an impossible slot", {.segment = [](Announce& a) { a.slot = ~0u; }});
    attempt("segment of another slot", {.segment = [](Announce& a) { a.slot = 1; }});
    attempt("impossible segment", {.segment = [](Announce& a) { a.segment = ~0u; }});
    attempt("slot of another step", {.header = [](SlotHeader& h) { h.step = 5; }});
    attempt("payload of noise", {.payload = true});
    attempt("payload outside its segment",
            {.header = [](SlotHeader& h) { h.payload_offset = segment_bytes; }, .payload = true});
    attempt("payload that wraps", {.header = [](SlotHeader& h) { h.payload_offset = ~0ull; }, .payload = true});
    attempt("payload without end", {.header = [](SlotHeader& h) { h.payload_bytes = ~0ull; }, .payload = true});
    attempt("payload in no segment", {.header = [](SlotHeader& h) { h.payload_segment = ~0ull; }, .payload = true});
  }

  void replies() {
    using Reply = wire::DataReply;
    attempt("reply and silence", {});
    attempt("reply to another request", {.reply = [](Reply& r) { r.id += 1; }});
    attempt("reply too short", {.reply = [](Reply& r) { r.bytes = 1; }});
    attempt("reply too long", {.reply = [](Reply& r) { r.bytes = 1ull << 40; }});
    attempt("reply with an error", {.reply = [](Reply& r) { r.status = Errc::step_gone; }});
    attempt("reply that claims a timeout", {.reply = [](Reply& r) { r.status = Errc::timeout; }});
  }

 private:
  void attempt(const std::string& name, const Script& script) {
    const HostileWriter writer(directory_, script);
    StreamOptions options;
    set_option(options, "data_plane", plane_);
    options.open_timeout_ms = options.step_timeout_ms = 60;
    const auto start = std::chrono::steady_clock::now();
    try {
      ContextOptions where;
      where.directory = directory_;
      Context context(where);
      auto reader = context.open_stream("h", solo(), options);
      auto step = reader.begin_step();
      if (script.payload) step.attribute_names();
      const auto& info = step.variable("array");
      std::vector<double> values(elements, -1);
      if (info.shape == Dims{elements}) step.get(info, Selection::all(), values.data());
      step.wait();
      const auto views = step.view(info.id);
      double sum = 0;
      for (const auto& view : views)
        for (const double value : view.as<double>()) sum += value;
      say("accepted " + name + " sum=" + std::to_string(sum));
    } catch (const Error& error) {
      say_error("attack " + name, error, start);
    }
  }

  const std::string directory_, plane_;
};

}  // namespace

int run_hostile_writer(const Arguments& arguments) {
  Attacks attacks(arguments);
  attacks.messages();
  attacks.layouts();
  if (arguments.text("data_plane") == "shm") {
    attacks.mailboxes();
    attacks.shared_memory();
  } else {
    attacks.replies();
  }
  say("attacks over");
  return 0;
}

}  // namespace penstock::fault
