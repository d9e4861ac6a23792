// A link over UCX. It begins with an authenticated connection, over which the accepting side says where UCX finds it; the end of
// that connection tells that the peer has ended.
//
// Transfers are cut into pieces of about 1 MiB, each of which is one question, a few of them at a time. A question is one active
// message; bytes that lie together are sent from where they lie and received where they belong, others are packed. What UCX
// is at work on is held: a region by hold(), a transfer's memory by its count `busy`.
#pragma once

#include <ucp/api/ucp.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/piece_chunks.hpp"
#include "transport/served_link.hpp"
#include "transport/ucx/ucx_worker.hpp"

namespace penstock::transport {

class UcxLink final : public ServedLink, public SocketLoop::Handler, public std::enable_shared_from_this<UcxLink> {
 public:
  explicit UcxLink(LinkSide side);
  ~UcxLink() override;
  void start() override;
  void submit(TransferPtr transfer) override;
  void close() override;
  void end(const Error& error) override;

  enum class Kind : std::uint32_t {
    hello = 0,   // first; of the side that connected, with its own number of the link as id
    read = 1,    // a wire::DataRequest of one piece is the data
    write = 2,   // likewise, of a range of bytes; it lies behind the head, the bytes are the data
    body = 3,    // the bytes that were asked for
    answer = 4,  // ends a question; code: 0, or an Errc with its text as data. Data with code 0: the bytes
  };
  struct Head {
    std::uint64_t link = 0;  // the receiver's number of it
    std::uint64_t id = 0;    // of the question
    Kind kind = Kind::hello;
    std::uint32_t code = 0;
  };
  static_assert(sizeof(Head) == 24);
  // A message's data: its bytes, or what UCX knows them by while they are still with the peer.
  struct Data {
    void* data = nullptr;
    std::size_t bytes = 0;
    bool rendezvous = false;
    std::span<const std::byte> here() const { return {static_cast<const std::byte*>(data), bytes}; }
  };
  // Whether the peer's first message is still to come. The loop's thread.
  bool awaited() const { return accepted_ && !begun_; }
  // Within UCX's progress.
  void on_hello(const Head& head, ucp_ep_h endpoint);
  ucs_status_t on_message(const Head& head, std::span<const std::byte> behind, Data data);
  void fail_later(Error error);

 private:
  using Done = std::function<void(ucs_status_t)>;
  // What UCX is at work on.
  struct Operation {
    std::shared_ptr<UcxLink> link;
    std::vector<std::byte> header, bytes;
    Done done;
  };
  struct Asking {
    TransferPtr transfer;
    std::optional<PieceChunks> chunks;  // of the part that is asked for next
  };
  struct Question {
    TransferPtr transfer;
    model::Piece piece;
    std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
    bool came = false, receiving = false, answered = false;
    std::optional<Error> error;
  };
  using Questions = std::map<std::uint64_t, Question>;

  void on_events(std::uint32_t events) override;
  Error in_words(const Error& error) const;  // with the peer's name
  void greet();
  void read_socket();
  void send(Head head, std::span<const std::byte> behind, std::vector<std::byte> owned,
            std::span<const std::byte> bytes, Done done);
  void receive(const Data& data, std::span<std::byte> into, std::vector<std::byte> owned, Done done);
  void settle(std::unique_ptr<Operation> operation, void* request, ucs_status_t status);

  void ask();
  bool ask_next(Asking& next);
  void take_body(Questions::iterator at, const Data& data);
  void take_answer(Questions::iterator at, const Head& head, const Data& data);
  void finish(Questions::iterator at);

  void take_request(std::vector<std::byte> frame);
  void serve();
  void answer_read(const std::vector<std::byte>& frame);
  void take_write(const Head& head, std::span<const std::byte> frame, const Data& data);
  void answer(std::uint64_t id, const std::optional<Error>& error, std::vector<std::byte> body = {});

  const std::shared_ptr<SocketLoop> loop_ = SocketLoop::shared();
  const std::shared_ptr<Source> source_;
  const std::string peer_name_;
  const bool accepted_;
  // The loop's thread.
  memory::UniqueFd socket_;
  std::function<void(const Error&)> on_end_;
  std::shared_ptr<UcxWorker> worker_;
  std::uint64_t number_ = 0, peer_number_ = 0;
  ucp_ep_h endpoint_ = nullptr;
  std::vector<std::byte> greeting_;  // the accepting side's, as far as it has come
  bool begun_ = false, asking_ = false;
  std::optional<Error> ended_;  // with what
  unsigned operations_ = 0;

  std::deque<Asking> waiting_;
  Questions questions_;
  std::uint64_t next_id_ = 1, outstanding_ = 0;  // bytes

  std::deque<std::vector<std::byte>> requests_;  // the peer's, that wait
  std::size_t requests_bytes_ = 0, answering_ = 0, answering_bytes_ = 0;
};

}  // namespace penstock::transport
