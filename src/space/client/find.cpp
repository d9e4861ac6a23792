// Which blocks hold a box: asked of the servers that own its parts.
#include <algorithm>

#include "model/box.hpp"
#include "pool/keys/protocol.hpp"
#include "space/client/space_impl.hpp"
#include "space/cover.hpp"
#include "space/names.hpp"

namespace penstock {

using fabric::Task;
using pool::PoolClient;
namespace fb = space::fb;

namespace {

constexpr Timeout last_look(1000);      // beyond the deadline
constexpr std::size_t named_boxes = 8;  // in an error's message

std::string text_of(const std::vector<Box>& boxes, bool complete) {
  std::string text;
  for (std::size_t i = 0; i < std::min(boxes.size(), named_boxes); ++i)
    text += (i == 0 ? "" : ", ") + model::to_string(boxes[i]);
  return boxes.size() > named_boxes || !complete ? text + ", ..." : text;
}

}  // namespace

Space::Impl::Blocks Space::Impl::find(ArrayPointer of, std::uint64_t version, const Pieces& pieces, bool wait,
                                      Deadline deadline) {
  auto shared = std::make_shared<const Pieces>(pieces);
  return end(begin(find_blocks(std::move(of), version, std::move(shared), wait, deadline)));
}

Space::Impl::Blocks Space::Impl::find_whole(ArrayPointer of, std::uint64_t version, const Pieces& pieces,
                                            Deadline deadline) {
  for (auto look = space::first_look;; look = std::min(2 * look, space::longest_look)) {
    Blocks blocks;
    try {
      blocks = find(of, version, pieces, true, earlier(deadline, Deadline(look)));
    } catch (const Error& error) {
      if (error.code() == Errc::not_found) forget(*of, version);
      // Within this look nobody answered for a server that is gone: another one will.
      if (error.code() != Errc::timeout && !PoolClient::may_retry(error)) throw;
      if (!deadline.passed()) {
        require_kept(*of, version, deadline);
        continue;
      }
      blocks = find(of, version, pieces, false, Deadline(last_look));  // only to say what is missing
    }
    std::vector<Box> lacking;
    bool complete = true;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      auto missing = space::missing(pieces[i].box, blocks[i], named_boxes);
      lacking.insert(lacking.end(), missing.boxes.begin(), missing.boxes.end());
      complete = complete && missing.complete;
    }
    if (lacking.empty()) {
      remember(*of, version, pieces, blocks);
      return blocks;
    }
    const Error late(Errc::timeout, "array '" + of->name + "', version " + std::to_string(version) +
                                        ": not there in time: " + text_of(lacking, complete));
    if (deadline.passed()) throw late;
    require_kept(*of, version, deadline);
    try {
      if (defined(of->name, deadline)->record != of->record) throw Replaced{};
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
      throw late;
    }
  }
}

// A stream puts its steps in their order: a version that is not there, where later ones are, was dropped and does not come.
void Space::Impl::require_kept(const Array& of, std::uint64_t version, Deadline deadline) {
  if (of.record.stream == 0) return;
  try {
    const auto stays = pool.info({space::versions_row(of.record.id), space::version_column(version)}, until(deadline));
    if (stays.bytes == 0) return;
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) return;  // the servers do not say it now
    const auto is_later = [&](const ObjectInfo& object) {
      return *space::version_of_column(object.key.column) > version;
    };
    if (!std::ranges::any_of(version_objects(of), is_later)) return;
  }
  throw Error(Errc::not_found, "array '" + of.name + "', version " + std::to_string(version) + " was dropped");
}

std::optional<Space::Impl::Blocks> Space::Impl::known_whole(const Array& of, std::uint64_t version,
                                                            const Pieces& pieces) {
  const std::lock_guard lock(mutex);
  const auto parts = known.find({of.record.id, version});
  if (parts == known.end()) return std::nullopt;
  Blocks blocks;
  for (const auto& piece : pieces) {
    const auto one = parts->second.find(piece.part);
    if (one == parts->second.end() || model::intersect(one->second.box, piece.box) != piece.box) return std::nullopt;
    auto& meeting = blocks.emplace_back();
    std::ranges::copy_if(one->second.blocks, std::back_inserter(meeting),
                         [&](const Box& block) { return model::intersect(block, piece.box).has_value(); });
  }
  return blocks;
}

void Space::Impl::remember(const Array& of, std::uint64_t version, const Pieces& pieces, const Blocks& blocks) {
  const std::lock_guard lock(mutex);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (blocks[i].size() > space::most_known_of_part) continue;
    if (known_blocks + blocks[i].size() > space::most_known) {
      known.clear();
      known_blocks = 0;
    }
    auto& one = known[{of.record.id, version}][pieces[i].part];
    known_blocks += blocks[i].size() - one.blocks.size();
    one = {pieces[i].box, blocks[i]};
  }
}

void Space::Impl::forget_blocks(const Array& of, std::uint64_t version) {
  const std::lock_guard lock(mutex);
  const auto parts = known.find({of.record.id, version});
  if (parts == known.end()) return;
  for (const auto& [part, one] : parts->second) known_blocks -= one.blocks.size();
  known.erase(parts);
}

Task<Space::Impl::Blocks> Space::Impl::find_blocks(ArrayPointer of, std::uint64_t version,
                                                   std::shared_ptr<const Pieces> pieces, bool wait, Deadline deadline) {
  auto& client = *pool.impl().client;
  const auto dimensions = of->record.shape.size();
  Blocks blocks(pieces->size());
  std::vector<std::size_t> left(pieces->size());
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = i;
  for (PoolClient::Attempt attempt = 0; !left.empty();) {
    const auto placement = co_await client.members().at_least(1, deadline);
    const auto& view = placement->view();
    std::map<std::uint32_t, std::vector<std::size_t>> groups;
    for (const auto i : left)
      groups[placement->owners(space::arrays_namespace(), "", of->tag(version, (*pieces)[i].part)).index[0]].push_back(
          i);
    struct Asked {
      std::vector<std::size_t> pieces;
      std::string server;
      fabric::Future<fb::FindReplyT> reply;
    };
    std::vector<Asked> asked;
    for (auto& [member, indices] : groups) {
      fb::FindRequestT request;
      request.view = view.number;
      request.array = of->record.id;
      request.version = version;
      request.tag_base = of->tag(version, 0);
      request.dimensions = static_cast<std::uint8_t>(dimensions);
      request.wait = wait;
      for (const auto i : indices) {
        request.parts.push_back((*pieces)[i].part);
        space::append_box(request.boxes, (*pieces)[i].box);
      }
      auto task = find_at(view.members[member], std::move(request), deadline);
      asked.push_back({std::move(indices), view.members[member].name, begin(std::move(task))});
    }
    left.clear();
    std::optional<Error> last;
    for (auto& one : asked) {
      std::size_t answered = 0;
      try {
        const auto reply = co_await std::move(one.reply);
        const auto found = space::unpack_boxes(reply.blocks, dimensions);
        std::size_t taken = 0;
        if (reply.counts.empty() || reply.counts.size() > one.pieces.size())
          throw Error(Errc::protocol, "a reply of another length");
        for (; answered < reply.counts.size(); ++answered) {
          const std::size_t count = reply.counts[answered];
          if (count > found.size() - taken) throw Error(Errc::protocol, "a reply of another length");
          const auto from = found.begin() + static_cast<std::ptrdiff_t>(taken);
          blocks[one.pieces[answered]].assign(from, from + static_cast<std::ptrdiff_t>(count));
          taken += count;
        }
      } catch (const Error& error) {
        last = error.in("server " + one.server);
        PoolClient::throw_unless_retry(*last, deadline);
      }
      left.insert(left.end(), one.pieces.begin() + static_cast<std::ptrdiff_t>(answered), one.pieces.end());
    }
    if (!last) continue;
    const Error why = *last;
    co_await client.before_retry(view.number, attempt++, why, deadline);
  }
  co_return blocks;
}

Task<fb::FindReplyT> Space::Impl::find_at(pool::Member member, fb::FindRequestT request, Deadline deadline) {
  auto channel = co_await pool.impl().client->members().channel(std::move(member), deadline);
  const rpc::CallOptions options{deadline};
  co_return co_await fb::SpaceClient(channel).find(std::move(request), options);
}

}  // namespace penstock
