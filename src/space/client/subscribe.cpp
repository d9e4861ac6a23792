// Versions of an array, one after the other: each is asked of their home, then its box is waited for as a get does.
#include <atomic>

#include "model/box.hpp"
#include "space/client/space_impl.hpp"
#include "space/names.hpp"

namespace penstock {

namespace fb = space::fb;

struct VersionSubscription::State {
  std::weak_ptr<Space::Impl> space;
  Space::Impl::ArrayPointer of;
  Space::Impl::Pieces pieces;  // none: of an empty box
  VersionPattern pattern;
  std::optional<std::uint64_t> next;  // the lowest that may come; none: beyond all numbers
  std::optional<std::uint64_t> awaited, given;
  std::atomic<std::uint64_t> skipped = 0;

  bool ended() const { return !next || ended_at(*next); }
  bool ended_at(std::uint64_t version) const { return pattern.stop && version >= *pattern.stop; }
  void give(std::uint64_t version) {
    awaited.reset();
    given = version;
    next = version > UINT64_MAX - pattern.step ? std::nullopt : std::optional(version + pattern.step);
  }
  Error none_began() const {
    const auto since = given ? "after " + std::to_string(*given) : "from " + std::to_string(*next) + " on";
    const auto steps = pattern.step > 1 ? ", in steps of " + std::to_string(pattern.step) + "," : "";
    return Error(Errc::timeout, "array '" + of->name + "': no version " + since + steps + " began in time");
  }
};

VersionSubscription::VersionSubscription(std::unique_ptr<State> state) : state_(std::move(state)) {}
VersionSubscription::VersionSubscription(VersionSubscription&&) noexcept = default;
VersionSubscription& VersionSubscription::operator=(VersionSubscription&&) noexcept = default;
VersionSubscription::~VersionSubscription() = default;
std::uint64_t VersionSubscription::skipped() const { return state_->skipped; }

VersionSubscription Space::subscribe(std::string_view name, const Box& box, const VersionPattern& pattern,
                                     Timeout timeout) {
  if (pattern.step == 0) throw Error(Errc::invalid_argument, "versions come in steps of at least 1, not 0");
  const auto of = impl_->defined(name, impl_->deadline(timeout));
  Impl::require_within(*of, box);
  auto pieces = model::is_empty(box) ? Impl::Pieces() : of->partition.cut(box);
  return VersionSubscription(
      std::make_unique<VersionSubscription::State>(impl_, of, std::move(pieces), pattern, pattern.start));
}

std::optional<std::uint64_t> VersionSubscription::next(Timeout timeout) {
  auto& s = *state_;
  std::optional<Space::Impl::Deadline> ends;
  for (auto look = space::first_look; !s.ended(); look = std::min(2 * look, space::longest_look)) {
    const auto space = s.space.lock();  // each time: it may be closed meanwhile
    if (!space) throw Error(Errc::wrong_state, "the space of this subscription is closed");
    if (!ends) ends = space->deadline(timeout);
    const auto deadline = *ends;
    const auto until = earlier(deadline, base::Deadline(look));
    const auto version = space->next_version(*s.of, *s.next, s.pattern.step, until);
    if (!version) {
      if (deadline.passed()) throw s.none_began();
      continue;
    }
    if (s.awaited && *s.awaited < *version) ++s.skipped;
    s.awaited = version;
    try {
      if (!s.pieces.empty()) space->find_whole(s.of, *version, s.pieces, until);
    } catch (const Error& error) {
      // It was dropped, or this look has ended, perhaps beside a server that is gone: the home says what comes next.
      const bool look_ended = error.code() == Errc::timeout || pool::PoolClient::may_retry(error);
      if (error.code() != Errc::not_found && (!look_ended || deadline.passed())) throw;
      continue;
    } catch (const Space::Impl::Replaced&) {
      continue;
    }
    s.give(*version);
    if (s.ended_at(*version)) break;
    return version;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Space::Impl::next_version(const Array& of, std::uint64_t first, std::uint64_t step,
                                                       Deadline deadline) {
  auto ask = [id = of.record.id, first, step, deadline](std::shared_ptr<rpc::Channel> channel, std::uint64_t view,
                                                        pool::PoolClient::Attempt) -> Task<fb::NextReplyT> {
    fb::NextRequestT request;
    request.view = view;
    request.array = id;
    request.first = first;
    request.step = step;
    const rpc::CallOptions options{deadline};
    co_return co_await fb::SpaceClient(channel).next(std::move(request), options);
  };
  try {
    const auto reply = end(begin(pool.impl().client->at_primary<fb::NextReplyT>(
        space::arrays_namespace(), space::versions_row(of.record.id), std::nullopt, deadline, std::move(ask))));
    return reply.found ? std::optional(reply.version) : std::nullopt;
  } catch (const Error& error) {
    if (error.code() == Errc::timeout) return std::nullopt;
    throw error.in("array '" + of.name + "'");
  }
}

}  // namespace penstock
