// One stream at its home, the server that owns the stream's row: takes over the writer's steps, and gives them to readers.
//
// The home joins the writer as its only consumer (stream/direct/feed). For each announced step it has the owners of the stripes pull
// them, writes the step's record once all have, in the order of the steps, and gives the step back to the writer: that is the
// acknowledgement. Readers are told of a step once its record is there. Nothing of the data passes through the home.
//
// All that counts is in the row's objects: a home that takes over (the row's owner changed) loads them, joins the writer again
// by the address in the stream's record, and passes over what the pool has. Engine thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pool/coordinator/reader_book.hpp"
#include "pool/coordinator/stripe_puller.hpp"
#include "pool/keys/stripes.hpp"
#include "pool/server/server_core.hpp"
#include "stream/direct/feed.hpp"

namespace penstock::pool {

class StreamHome : public std::enable_shared_from_this<StreamHome> {
 public:
  using Deadline = base::Deadline;
  StreamHome(std::shared_ptr<ServerCore> core, std::shared_ptr<StripePuller> puller, std::string name);
  ~StreamHome();

  // Once, before anything else: what the row's objects say. Joins the writer again if it was writing.
  Task<void> load(Deadline deadline);
  // Another server is the home now, or this one stops: whoever waits gets stale_view.
  void retire();
  bool known() const { return record_.life != 0; }  // such a stream is there, or was

  Task<fb::AttachReplyT> attach(fb::AttachRequestT request, Deadline deadline);
  Task<void> finish(fb::FinishRequestT request, Deadline deadline);
  Task<fb::OpenReaderReplyT> open_reader(fb::OpenReaderRequestT request, Deadline deadline);
  Task<fb::NextStepReplyT> next_step(std::shared_ptr<rpc::Channel> channel, fb::NextStepRequestT request,
                                     Deadline deadline);
  Task<void> end_step(fb::EndStepRequestT request, Deadline deadline);
  void close_reader(const fb::CloseReaderRequestT& request) { readers_.close(request.reader, request.rank); }
  // What a reader was given by the home before this one.
  void hold(const std::shared_ptr<rpc::Channel>& channel, const fb::HoldRequestT& request);
  // With all that it is made of. Throws wrong_state while it is written, not_found.
  Task<void> drop_stream(Deadline deadline);
  fb::StreamInfoReplyT info() const;

 private:
  enum State : std::uint8_t { open = 0, ended = 1, lost = 2 };
  // Layouts of one epoch, and how each rank's lies in stripes.
  struct Epoch {
    std::vector<std::shared_ptr<const std::string>> layouts;
    std::vector<std::vector<Stripe>> ranks;
    std::vector<bool> payloads;
  };
  struct Staging {
    std::uint32_t slot = 0;
    std::uint64_t feed = 0;         // which feed gave it last
    std::uint64_t writer_step = 0;  // its number at the writer: ours less record_.base
    std::uint64_t version = 0;      // of its stripes, wherever and how often they are pulled; 0: not chosen yet
    bool given_up = false;  // it must not come into the pool: an earlier step is missing, or the writer has left
    bool recorded = false;  // its record is being put, and may be there
  };
  struct Changed {
    void operator()(StreamHome* home) const;
  };
  using Changing = std::unique_ptr<StreamHome, Changed>;  // the right to change the record
  class KeptSteps;

  static Acknowledge safe_for(const StreamOptions& options);
  Task<Changing> change(Deadline deadline);
  void require_writer(const std::vector<std::uint8_t>& token) const;
  Task<void> become(fb::AttachRequestT request, Deadline deadline);
  void require_no_other_writer(const fb::AttachRequestT& request);
  Task<void> let_last_writer_go(Deadline deadline);
  void forget_steps();
  std::uint64_t next_number() const { return steps_.empty() ? record_.base : steps_.rbegin()->first + 1; }
  Task<void> join_writer(Deadline deadline);
  void look_for_writer();
  bool being_written() const;
  void start_feed(Deadline deadline);
  void release(Staging staging);
  void on_step(stream::ReaderProtocol::Step step, std::uint64_t feed);
  void on_end(Outcome outcome, std::string why, std::uint64_t feed);
  Task<void> settle_end(Outcome outcome, std::string why, std::uint64_t feed);
  bool steps_coming() const;
  void give_up_staging();
  Task<void> drop_given_up(std::uint64_t writer);
  Task<void> end_stream(State state, std::string why, std::function<bool()> still);
  Task<std::uint64_t> newest_epoch(Deadline deadline);
  Task<void> stage(std::uint64_t step, std::shared_ptr<const stream::EpochBlobs> blobs);
  void give_up(std::uint64_t step, const Error& why);
  Task<fb::StepRecordT> pull_until_done(std::uint64_t step, std::shared_ptr<const stream::EpochBlobs> blobs);
  Task<fb::StepRecordT> pull_once(std::uint64_t step, Staging staging, std::shared_ptr<const Epoch> epoch);
  Task<fb::PullReplyT> pull_at(Member member, std::shared_ptr<fb::PullRequestT> request, Deadline deadline);
  std::shared_ptr<Epoch> epoch_from(std::vector<std::shared_ptr<const std::string>> layouts) const;
  Task<void> keep_epoch(std::uint64_t step, std::uint64_t number, std::shared_ptr<const stream::EpochBlobs> blobs);
  Task<std::shared_ptr<const Epoch>> epoch_of(std::uint64_t life, std::uint64_t number, Deadline deadline);
  Task<void> put_object(std::string column, std::vector<std::byte> bytes, Acknowledge acknowledge, Deadline deadline);
  template <class Table>
  Task<std::optional<typename Table::NativeTableType>> get_object(std::string column, Deadline deadline);
  Task<void> keep_trying_put(std::uint64_t step, std::string column, std::vector<std::byte> bytes);
  Task<void> put_again(Deadline until);
  Task<void> put_groups(Deadline deadline);
  Task<void> keep_groups();
  Task<bool> put_state(State state, std::string why);
  Task<std::vector<std::string>> columns_of_row(Deadline deadline);
  Task<void> drop_everything(Deadline deadline);
  Task<void> trim();
  std::optional<std::uint64_t> step_to_drop() const;
  Task<void> drop_step(std::uint64_t step);
  Task<void> drop_leaving();
  Task<void> drop_remains();
  Task<void> drop_old_epochs();
  Task<void> drop_stripes(fb::StepRecordT record, Deadline deadline);
  Task<void> drop_orphans(std::uint64_t writer, Deadline deadline);
  // Whether readers have had time to say what they hold, since this server became the home.
  bool settled() const { return settled_from_.passed(); }
  void fill_layouts(fb::NextStepReplyT& reply, std::shared_ptr<const Epoch> epoch,
                    std::shared_ptr<const Epoch> base) const;
  void watch(const std::shared_ptr<rpc::Channel>& channel, std::uint64_t reader, std::uint32_t rank);
  void check_ours() const;
  bool primary() const;
  Error retired_error() const;

  std::shared_ptr<ServerCore> core_;
  std::shared_ptr<StripePuller> puller_;
  const std::string name_, row_;
  fb::StreamRecordT record_;
  bool record_safe_ = false;  // this home put it: it is not only where it was found
  bool remains_ = false;      // there is no record, but more of a stream that was to be dropped
  StreamOptions options_;
  std::map<std::uint64_t, fb::StepRecordT> steps_;   // in the pool, by number
  std::uint64_t bytes_ = 0;                          // of them
  std::uint64_t steps_taken_ = 0, bytes_taken_ = 0;  // those that this home found, and those that came since
  std::map<std::uint64_t, std::shared_ptr<const Epoch>> epochs_;  // of this life
  std::set<std::uint64_t> described_;                             // epochs of this life that have an object
  bool look_for_remains_ = false;             // an earlier home may have been dropping a step when it lost the row
  std::map<std::uint64_t, Staging> staging_;  // announced, not yet in the pool, by our number
  std::uint64_t given_up_feed_ = 0;  // one of its steps was given up: later ones wait until the writer is joined again
  std::string refused_;              // why no more of this writer's steps can come into the pool
  bool refused_launch_ = false;      // because several ranks of its launch each wrote as the whole cohort
  std::optional<fb::StepRecordT> leaving_;  // no step any more; its objects are still to be dropped
  std::uint32_t pulling_ = 0;
  std::map<std::uint64_t, std::shared_ptr<fabric::Signal>> keeping_epochs_;  // being put
  std::unique_ptr<stream::Feed> feed_;
  std::uint64_t feed_number_ = 0;
  std::optional<stream::Admission>
      admission_;  // to the writer's memory: its last steps are pulled after the feed has ended
  bool feed_joined_ = false, feed_ended_ = false;
  bool let_go_ = false;  // the feed, for one who is to take the writer's place
  std::string feed_why_;
  Deadline pull_until_{Timeout(0)};       // while a writer that is lost may still have its last steps
  std::optional<Deadline> rejoin_until_;  // since the writer does not answer
  ReaderBook readers_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::weak_ptr<rpc::Channel>> watched_;
  fabric::Signal changed_;
  bool changing_ = false, trimming_ = false, retired_ = false;
  Deadline settled_from_{Timeout(0)};
  fabric::Timer age_timer_, settled_timer_;
  std::uint64_t stall_retries_ = 0;
};

}  // namespace penstock::pool
