// How a step comes into the pool: the home's orders to the owners of its stripes, and its record.
#include <algorithm>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "pool/coordinator/stream_home.hpp"
#include "pool/coordinator/stream_objects.hpp"
#include "pool/keys/stream_keys.hpp"

namespace penstock::pool {
namespace {

constexpr std::uint32_t max_pulling = 4;  // steps whose stripes are being pulled at once
constexpr auto retry_pause = std::chrono::milliseconds(50);
constexpr Timeout pull_within(10'000);

// Errors of a pull that trying again does not mend.
bool is_final(const Error& error) {
  return error.code() == Errc::invalid_argument || error.code() == Errc::unsupported;
}

}  // namespace

void StreamHome::on_step(stream::ReaderProtocol::Step step, std::uint64_t feed) {
  if (retired_ || feed != feed_number_) return;
  Staging staging{step.slot, feed, step.step};
  const auto number = record_.base + step.step;
  // Steps come into the pool in order: what is not newer than its newest was there, and may be gone by retention.
  if (!steps_.empty() && number <= steps_.rbegin()->first) return release(staging);
  if (feed == given_up_feed_) return;  // an earlier one is missing: both are said again to the next feed
  if (const auto at = staging_.find(number); at != staging_.end()) staging.version = at->second.version;
  const auto [entry, fresh] = staging_.insert_or_assign(number, staging);
  // One that is under way (the writer was joined again) goes on with the new feed.
  if (fresh) fabric::spawn(*core_->progress(), stage(number, std::move(step.epoch)));
}

void StreamHome::release(Staging staging) {
  if (feed_ && staging.feed == feed_number_) feed_->release(staging.writer_step, staging.slot);
}

// Takes a step over: its stripes, in parallel with other steps', then its record, when all earlier steps have theirs.
// Its entry in staging_ is there until the end; nobody else takes the same step over.
Task<void> StreamHome::stage(std::uint64_t step, std::shared_ptr<const stream::EpochBlobs> blobs) {
  auto self = shared_from_this();
  struct Out {
    StreamHome& home;
    std::uint64_t step;
    ~Out() {
      home.staging_.erase(step);
      home.changed_.notify_all();
    }
  } out{*this, step};
  try {
    auto record = co_await pull_until_done(step, std::move(blobs));
    const Deadline never = Deadline::never();
    while (!retired_ && staging_.begin()->first < step) co_await changed_.wait(never);
    check_ours();
    if (record_.writer != record.writer) co_return;  // of a writer before the present one
    record.put_us = base::unix_time_us();
    staging_.at(step).recorded = true;
    co_await keep_trying_put(step, step_column(step), encode_object<fb::StepRecord>(record));
    bytes_ += record.bytes;
    ++steps_taken_;
    bytes_taken_ += record.bytes;
    steps_[step] = std::move(record);
    release(staging_.at(step));
    fabric::spawn(*core_->progress(), trim());
  } catch (const Error& e) {
    give_up(step, e);
  } catch (const std::exception& e) {
    give_up(step, Error(Errc::internal, e.what()));
  }
}

// The home has moved (the next one takes the step over), or the writer is gone (then nobody has seen it), or the pool can
// never take it. Steps come into the pool in order: those after it must not be there without it.
void StreamHome::give_up(std::uint64_t step, const Error& why) {
  base::log(base::Level::info, "a step did not come into the pool",
            {{"stream", name_}, {"step", step}, {"why", why.what()}});
  for (auto later = staging_.upper_bound(step); later != staging_.end(); ++later) later->second.given_up = true;
  const auto staging = staging_.at(step);
  if (retired_ || staging.feed != feed_number_) return;
  given_up_feed_ = staging.feed;
  if (is_final(why)) {  // the writer hears of it when it attaches the next time
    if (refused_.empty()) refused_ = "step " + std::to_string(step) + " cannot be kept by the pool: " + why.what();
  } else if (feed_ && feed_joined_) {
    on_end(Outcome::not_ready, why.what(), staging.feed);  // joined again, the writer says it again
  }
}

Task<fb::StepRecordT> StreamHome::pull_until_done(std::uint64_t step, std::shared_ptr<const stream::EpochBlobs> blobs) {
  auto self = shared_from_this();
  const auto number = record_.epoch_base + blobs->number;
  const Deadline never = Deadline::never();
  while (!retired_ && pulling_ >= max_pulling) co_await changed_.wait(never);
  ++pulling_;
  struct Pulled {
    StreamHome& home;
    ~Pulled() {
      --home.pulling_;
      home.changed_.notify_all();
    }
  } pulled{*this};
  check_ours();
  co_await keep_epoch(step, number, std::move(blobs));
  const auto epoch = epochs_.at(number);
  for (int failures = 0;; ++failures) {
    const auto placement = core_->placement();
    const auto view = placement->view().number;
    try {
      const auto staging = staging_.at(step);
      auto record = co_await pull_once(step, staging, epoch);
      record.epoch = number;
      co_return record;
    } catch (const Error& e) {
      check_ours();
      const bool writer_there = feed_ && feed_joined_ && staging_.at(step).feed == feed_number_;
      const bool too_late = !writer_there && failures > 0 && pull_until_.passed();
      if (e.code() == Errc::step_gone || is_final(e) || too_late) throw;
      if (!primary()) throw retired_error();
      ++stall_retries_;
      if (failures % 20 == 0)
        base::log(base::Level::info, "stripes are to be pulled again",
                  {{"stream", name_}, {"step", step}, {"why", e.what()}});
    }
    const Deadline soon(std::chrono::duration_cast<Timeout>(retry_pause * (1 + std::min(failures, 9))));
    co_await core_->members().newer_than(view, soon);
    check_ours();
  }
}

std::shared_ptr<StreamHome::Epoch> StreamHome::epoch_from(
    std::vector<std::shared_ptr<const std::string>> layouts) const {
  auto epoch = std::make_shared<Epoch>();
  epoch->layouts = std::move(layouts);
  for (std::uint32_t rank = 0; rank < epoch->layouts.size(); ++rank) {
    const auto& text = epoch->layouts[rank];
    if (!text) throw Error(Errc::protocol, "rank " + std::to_string(rank) + " is not described");
    const auto decoded = wire::decode_layout(rank, std::as_bytes(std::span(*text)));
    model::validate(decoded.layout);
    epoch->ranks.push_back(stripes_of(decoded.layout, options_.stripe_bytes, decoded.has_payload));
    epoch->payloads.push_back(decoded.has_payload);
  }
  return epoch;
}

// The epoch's object is there before any step of it.
Task<void> StreamHome::keep_epoch(std::uint64_t step, std::uint64_t number,
                                  std::shared_ptr<const stream::EpochBlobs> blobs) {
  auto self = shared_from_this();
  const Deadline never = Deadline::never();
  while (keeping_epochs_.contains(number)) {
    auto signal = keeping_epochs_[number];
    co_await signal->wait(never);
  }
  if (epochs_.contains(number)) co_return;
  auto signal = std::make_shared<fabric::Signal>(*core_->progress());
  keeping_epochs_[number] = signal;
  struct Kept {
    StreamHome& home;
    std::uint64_t number;
    std::shared_ptr<fabric::Signal> signal;
    ~Kept() {
      home.keeping_epochs_.erase(number);
      signal->notify_all();
    }
  } kept{*this, number, signal};
  auto epoch = epoch_from(blobs->layouts);
  fb::EpochRecordT record;
  for (std::uint32_t rank = 0; rank < blobs->layouts.size(); ++rank) {
    auto blob = std::make_unique<fb::RankLayoutBlobT>();
    blob->rank = rank;
    blob->layout.assign(blobs->layouts[rank]->begin(), blobs->layouts[rank]->end());
    record.layouts.push_back(std::move(blob));
  }
  co_await keep_trying_put(step, epoch_column(record_.life, number), encode_object<fb::EpochRecord>(record));
  epochs_[number] = std::move(epoch);
  described_.insert(number);
}

Task<std::shared_ptr<const StreamHome::Epoch>> StreamHome::epoch_of(std::uint64_t life, std::uint64_t number,
                                                                    Deadline deadline) {
  auto self = shared_from_this();
  if (const auto found = epochs_.find(number); found != epochs_.end()) co_return found->second;
  auto record = co_await get_object<fb::EpochRecord>(epoch_column(life, number), deadline);
  if (!record || life != record_.life) co_return nullptr;
  std::vector<std::shared_ptr<const std::string>> layouts;
  for (const auto& blob : record->layouts)
    layouts.push_back(std::make_shared<const std::string>(blob->layout.begin(), blob->layout.end()));
  std::shared_ptr<const Epoch> epoch = epoch_from(std::move(layouts));
  epochs_.emplace(number, epoch);
  co_return epoch;
}

// One message to each server that owns stripes of the step, all at once.
Task<fb::StepRecordT> StreamHome::pull_once(std::uint64_t step, Staging staging, std::shared_ptr<const Epoch> epoch) {
  auto self = shared_from_this();
  const auto placement = core_->placement();
  if (!admission_) throw Error(Errc::peer_lost, "the writer is not there");
  const auto admission = *admission_;
  auto& version = staging_.at(step).version;
  if (version == 0) version = core_->first_version();
  struct Order {
    std::shared_ptr<fb::PullRequestT> request;
    fabric::Future<fb::PullReplyT> reply;
  };
  std::map<std::uint32_t, Order> orders;  // by index of the member
  fb::StepRecordT record;
  record.life = record_.life;
  record.writer = record_.writer;
  record.step = step;
  record.payload_bytes.resize(epoch->ranks.size());
  for (std::uint32_t rank = 0; rank < epoch->ranks.size(); ++rank) {
    const auto& stripes = epoch->ranks[rank];
    for (std::uint32_t number = 0; number < stripes.size(); ++number) {
      const auto tag = stripe_tag(record_.tag_base, step, rank, number);
      const auto owners = placement->owners(streams_namespace(), "", tag);
      record.bytes += stripes[number].bytes;
      for (const auto owner : owners.all()) {
        auto& request = orders[owner].request;
        if (!request) request = std::make_shared<fb::PullRequestT>();
        auto stripe = std::make_unique<fb::PullStripeT>();
        stripe->rank = rank;
        stripe->stripe = number;
        stripe->tag = tag;
        stripe->payload = number == 0 && epoch->payloads[rank];
        stripe->first_range = static_cast<std::uint32_t>(request->ranges.size());
        stripe->ranges = static_cast<std::uint32_t>(stripes[number].ranges.size());
        for (const auto& from : stripes[number].ranges) {
          auto range = std::make_unique<fb::PullRangeT>();
          range->segment = from.segment;
          range->offset = from.offset;
          range->bytes = from.bytes;
          stripe->bytes += from.bytes;
          request->ranges.push_back(std::move(range));
        }
        request->stripes.push_back(std::move(stripe));
      }
    }
  }
  const Deadline deadline(pull_within);
  for (auto& [owner, order] : orders) {
    auto& request = *order.request;
    request.view = placement->view().number;
    request.stream = name_;
    request.addresses = admission.addresses;
    request.token = record_.token;
    request.step = step;
    request.writer_step = staging.writer_step;
    request.slot = staging.slot;
    request.acknowledge = static_cast<std::uint8_t>(options_.acknowledge);
    request.life = record_.writer;
    request.version = version;
    order.reply = fabric::spawn(*core_->progress(), pull_at(placement->view().members[owner], order.request, deadline));
  }
  std::optional<Error> failed;
  for (auto& [owner, order] : orders) {
    try {
      const auto reply = co_await std::move(order.reply);
      if (reply.payload_bytes.size() != order.request->stripes.size())
        throw Error(Errc::protocol, "an answer of another number of stripes");
      for (std::size_t i = 0; i < reply.payload_bytes.size(); ++i) {
        const auto& stripe = *order.request->stripes[i];
        if (stripe.payload) record.payload_bytes[stripe.rank] = reply.payload_bytes[i];
      }
    } catch (const Error& e) {
      if (!failed || e.code() == Errc::step_gone) failed = e.in(placement->view().members[owner].name);
    }
  }
  if (failed) throw *failed;
  for (const auto bytes : record.payload_bytes) record.bytes += bytes;
  co_return record;
}

Task<fb::PullReplyT> StreamHome::pull_at(Member member, std::shared_ptr<fb::PullRequestT> request, Deadline deadline) {
  auto self = shared_from_this();
  if (member.id == core_->self()) co_return co_await puller_->pull(*request, deadline);
  auto channel = co_await core_->members().channel(std::move(member), deadline);
  fb::PeersClient client(std::move(channel));
  rpc::CallOptions options;
  options.deadline = deadline;
  co_return co_await client.pull(*request, options);
}

bool StreamHome::steps_coming() const {
  return std::ranges::any_of(staging_,
                             [](const auto& entry) { return !entry.second.given_up || entry.second.recorded; });
}

}  // namespace penstock::pool
