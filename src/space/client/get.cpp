// Gets of boxes: blocks are fetched and converted here, or boxes of them converted by servers are.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>

#include "model/box.hpp"
#include "pool/keys/protocol.hpp"
#include "space/block_key.hpp"
#include "space/client/space_impl.hpp"
#include "space/names.hpp"

namespace penstock {

using fabric::Task;
using pool::PoolClient;
namespace fb = space::fb;

namespace {

constexpr std::size_t boxes_at_once = 1024;  // of one request for converted ones

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

// The order of dimensions of one element says nothing: they count as the slowest.
std::optional<space::Layout> space::layout_of(const ArrayMemory& memory, const ArrayRecord& of, const Box& box,
                                              std::string* why) {
  const auto left_to_reader = [&](const char* reason) {
    if (why) *why = std::string("the reader converts: ") + reason;
    return std::nullopt;
  };
  const std::size_t rank = box.count.size();
  Layout layout{memory.dtype == DType::none ? of.dtype : memory.dtype, model::dimensions_in(memory.order, rank)};
  if (!of.fields.empty()) return left_to_reader("servers do not convert structures");
  if (memory.check != ConversionCheck::none && layout.dtype != of.dtype)
    return left_to_reader("servers convert without a check");
  if (memory.strides.size() == rank) {
    for (std::size_t i = 0; i < rank; ++i) layout.order[i] = i;
    std::stable_sort(layout.order.begin(), layout.order.end(), [&](std::uint64_t a, std::uint64_t b) {
      return std::llabs(memory.strides[a]) > std::llabs(memory.strides[b]);
    });
  }
  std::stable_partition(layout.order.begin(), layout.order.end(), [&](std::uint64_t d) { return box.count[d] == 1; });
  const auto several =
      std::find_if(layout.order.begin(), layout.order.end(), [&](std::uint64_t d) { return box.count[d] > 1; });
  if (layout.dtype == of.dtype && std::is_sorted(several, layout.order.end())) {
    if (why) *why = "nothing is converted: the elements are asked for as the array has them";
    return std::nullopt;
  }
  return layout;
}

// By server, some megabytes at a time. Of a large block of which little is wanted, only those rows that are.
std::vector<Space::Impl::Fetch> Space::Impl::fetches(const Array& of, std::uint64_t version, const Pieces& pieces,
                                                     const Blocks& blocks) {
  const auto placement = pool.impl().client->members().placement();
  const std::uint64_t element = space::element_bytes(of.record);
  std::vector<Fetch> all;
  std::map<std::uint32_t, Fetch> open;  // by server
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto tag = of.tag(version, pieces[i].part);
    const auto server = placement->owners(space::arrays_namespace(), "", tag).index[0];
    const auto row = space::block_row({of.record.id, version, pieces[i].part});
    for (const auto& block : blocks[i]) {
      Key key{row, space::block_column(block)};
      const auto wanted = *model::intersect(block, pieces[i].box);
      const std::uint64_t plane = element_count(block.count) / block.count[0] * element;
      if (wanted.count[0] <= block.count[0] / 2 && plane * block.count[0] > space::smallest_part_bytes) {
        Fetch part;
        part.options.tag = tag;
        part.options.offset = (wanted.start[0] - block.start[0]) * plane;
        part.options.bytes = part.bytes = wanted.count[0] * plane;
        auto rows = block;
        rows.start[0] = wanted.start[0];
        rows.count[0] = wanted.count[0];
        part.keys.push_back(std::move(key));
        part.boxes.push_back(rows);
        all.push_back(std::move(part));
        continue;
      }
      auto& group = open[server];
      const std::uint64_t bytes = plane * block.count[0];
      if (!group.keys.empty() &&
          (group.bytes + bytes > space::fetched_at_once || group.keys.size() == space::keys_at_once))
        all.push_back(std::exchange(group, {}));
      // Keys of one server: what holds for the tag of one holds for all.
      group.options.tag = tag;
      group.keys.push_back(std::move(key));
      group.boxes.push_back(block);
      group.bytes += bytes;
    }
  }
  for (auto& [server, group] : open)
    if (!group.keys.empty()) all.push_back(std::move(group));
  return all;
}

bool Space::Impl::fetch(const Array& of, std::uint64_t version, const Pieces& pieces, const Blocks& blocks,
                        Deadline deadline, const See& see) {
  const auto all = fetches(of, version, pieces, blocks);
  std::vector<fabric::Future<Objects>> asked(all.size());
  const auto ask = [&](std::size_t i) {
    if (i < all.size()) asked[i] = begin(pool.impl().get(all[i].keys, all[i].options, false, false, deadline));
  };
  for (std::size_t i = 0; i < space::requests_at_once; ++i) ask(i);
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto objects = end(std::move(asked[i]));
    ask(i + space::requests_at_once);
    for (std::size_t k = 0; k < objects.size(); ++k) {
      auto& object = objects[k];
      if (object.code == Errc::not_found && !deadline.passed()) return false;
      if (!object.value) throw Error(object.code, object.message);
      if (object.value->bytes().size() != element_count(all[i].boxes[k].count) * space::element_bytes(of.record))
        throw Error(Errc::protocol, "a block of array '" + of.name + "' has another number of bytes than its box");
      see(all[i].boxes[k], object.value->bytes().data());
      object.value.reset();
    }
  }
  return true;
}

// ------------------------------------------------------------------------------------------------- converted by servers

struct Space::Impl::Conversion {
  pool::Member member;
  std::vector<std::size_t> pieces;
  fb::ConvertRequestT request;
  std::uint64_t bytes = 0;
};

struct Space::Impl::Converted {
  fb::ConvertReplyT reply;
  std::vector<Box> boxes;
  std::vector<Object> objects;  // as many
};

// A server converts a part, or what is wanted of it: in one request some megabytes.
std::vector<Space::Impl::Conversion> Space::Impl::conversions(const Wanted& wanted) {
  const auto placement = pool.impl().client->members().placement();
  const auto& view = placement->view();
  const auto& of = *wanted.of;
  std::vector<Conversion> all;
  std::map<std::uint32_t, Conversion> open;  // by server
  for (std::size_t i = 0; i < wanted.pieces.size(); ++i) {
    const auto& piece = wanted.pieces[i];
    const auto server = placement->owners(space::arrays_namespace(), "", of.tag(wanted.version, piece.part)).index[0];
    const std::uint64_t bytes = element_count(piece.box.count) * size_of(wanted.layout->dtype);
    auto& group = open[server];
    if (!group.pieces.empty() && (group.bytes + bytes > space::fetched_at_once || group.pieces.size() == boxes_at_once))
      all.push_back(std::exchange(group, {}));
    if (group.pieces.empty()) {
      group.member = view.members[server];
      auto& request = group.request;
      request.view = view.number;
      request.array = of.record.id;
      request.version = wanted.version;
      request.dimensions = static_cast<std::uint8_t>(of.record.shape.size());
      request.dtype = static_cast<std::uint8_t>(wanted.layout->dtype);
      for (const auto dimension : wanted.layout->order) request.order.push_back(static_cast<std::uint8_t>(dimension));
      const std::lock_guard lock(mutex);
      request.convert_rate = rates.convert;
      request.copy_rate = rates.copy;
    }
    group.pieces.push_back(i);
    group.request.parts.push_back(piece.part);
    space::append_box(group.request.boxes, piece.box);
    group.bytes += bytes;
  }
  for (auto& [server, group] : open)
    if (!group.pieces.empty()) all.push_back(std::move(group));
  return all;
}

Task<Space::Impl::Converted> Space::Impl::convert_at(pool::Member member, fb::ConvertRequestT request,
                                                     Deadline deadline) {
  const std::size_t dimensions = request.dimensions, parts = request.parts.size();
  const auto element = size_of(static_cast<DType>(request.dtype));
  auto channel = co_await pool.impl().client->members().channel(std::move(member), deadline);
  request.in_place = channel->shares_memory();
  const rpc::CallOptions options{deadline};
  Converted converted;
  converted.reply = co_await fb::SpaceClient(channel).convert(std::move(request), options);
  auto& reply = converted.reply;
  converted.boxes = space::unpack_boxes(reply.boxes, dimensions);
  std::size_t count = 0;
  for (const auto boxes : reply.counts) count += boxes;
  const std::shared_ptr<pool::fb::GetReplyT> given = std::move(reply.given);
  if (reply.counts.size() != parts || count != converted.boxes.size() || count != (given ? given->got.size() : 0))
    throw Error(Errc::protocol, "a reply of another length");
  for (std::size_t i = 0; i < count; ++i) {
    Object object;
    co_await pool.impl().fetch_bytes(channel, given, *given->got[i], object, deadline);
    if (object.bytes().size() != element_count(converted.boxes[i].count) * element)
      throw Error(Errc::protocol, "converted elements of another number of bytes than their box");
    converted.objects.push_back(std::move(object));
  }
  co_return converted;
}

void Space::Impl::measure(double Rates::*rate, std::uint64_t bytes, double seconds) {
  if (seconds <= 0 || bytes < space::smallest_part_bytes) return;
  const std::lock_guard lock(mutex);
  auto& known = rates.*rate;
  const double now = static_cast<double>(bytes) / seconds;
  known = known > 0 ? 0.7 * known + 0.3 * now : now;
}

// The pieces that are left to this program; none: the servers are others now, look again. Whatever else keeps a server
// from converting, this program can do it alone, and says what is wrong if it cannot.
std::optional<std::vector<std::size_t>> Space::Impl::take_converted(const Wanted& wanted, Deadline deadline) {
  auto all = conversions(wanted);
  std::vector<fabric::Future<Converted>> asked(all.size());
  const auto ask = [&](std::size_t i) {
    if (i < all.size()) asked[i] = begin(convert_at(all[i].member, std::move(all[i].request), deadline));
  };
  for (std::size_t i = 0; i < space::requests_at_once; ++i) ask(i);
  std::vector<std::size_t> left;
  bool moved = false;
  auto layout = model::scalar_layout(wanted.layout->dtype, wanted.layout->order);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Converted converted;
    const auto begun = std::chrono::steady_clock::now();
    try {
      converted = end(std::move(asked[i]));
    } catch (const Error& error) {
      if (error.code() == Errc::cancelled) throw;
      moved = moved || error.code() == Errc::stale_view;
      converted.reply.counts.assign(all[i].pieces.size(), 0);
    }
    ask(i + space::requests_at_once);
    std::uint64_t bytes = 0;
    for (std::size_t k = 0; k < converted.boxes.size(); ++k) {
      const auto both = model::intersect(converted.boxes[k], wanted.box);
      if (!both) throw Error(Errc::protocol, "converted elements of a box that was not asked for");
      const auto from = model::place(layout, converted.boxes[k]);
      model::ArrayConversion(wanted.into, from, *both)
          .run(wanted.data, converted.objects[k].bytes().data(), {}, wanted.into.bytes);
      bytes += converted.objects[k].bytes().size();
    }
    measure(&Rates::copy, bytes, seconds_since(begun));
    for (std::size_t k = 0; k < all[i].pieces.size(); ++k)
      if (converted.reply.counts[k] == 0) left.push_back(all[i].pieces[k]);
  }
  if (moved && !deadline.passed()) return std::nullopt;
  return left;
}

bool Space::Impl::take(const Wanted& wanted, const Blocks& blocks, Deadline deadline) {
  const auto& of = *wanted.of;
  std::uint64_t bytes = 0;
  std::optional<model::ArrayConversion::Refusal> refused;
  const auto convert = [&](const Box& held, const std::byte* from) {
    const auto both = *model::intersect(held, wanted.box);
    auto refusal = model::ArrayConversion(wanted.into, space::block_of(of.record, held), both, wanted.check)
                       .try_run(wanted.data, from, {}, wanted.into.bytes);
    if (refusal && (!refused || std::ranges::lexicographical_compare(refusal->index, refused->index)))
      refused = std::move(refusal);
    bytes += element_count(both.count) * space::element_bytes(of.record);
  };
  if (!wanted.layout) {
    const bool taken = fetch(of, wanted.version, wanted.pieces, blocks, deadline, convert);
    if (taken && refused)
      throw Error(Errc::invalid_argument,
                  "array '" + of.name + "', version " + std::to_string(wanted.version) + ": " + refused->text);
    return taken;
  }
  Pieces pieces;
  Blocks their;
  if (of.record.options.convert == ConvertAt::at_reader) {
    pieces = wanted.pieces;
    their = blocks;
  } else {
    const auto left = take_converted(wanted, deadline);
    if (!left) return false;
    for (const auto i : *left) {
      pieces.push_back(wanted.pieces[i]);
      their.push_back(blocks[i]);
    }
  }
  const auto begun = std::chrono::steady_clock::now();
  const bool taken = fetch(of, wanted.version, pieces, their, deadline, convert);
  measure(&Rates::convert, bytes, seconds_since(begun));
  return taken;
}

std::vector<std::string> Space::Impl::explain(const Wanted& wanted, Deadline deadline) {
  std::vector<std::string> lines;
  for (auto& one : conversions(wanted)) {
    one.request.explain_only = true;
    const auto answer = end(begin(convert_at(one.member, std::move(one.request), deadline)));
    lines.push_back("server " + one.member.name + ": " + answer.reply.why);
  }
  return lines;
}

void Space::Impl::get(const ArrayPointer& of, std::uint64_t version, const Box& box, void* data,
                      const ArrayMemory& memory, Deadline deadline) {
  const auto& record = of->record;
  Wanted wanted{
      of,          version, {}, box, space::placed(memory, record, box), data, space::layout_of(memory, record, box),
      memory.check};
  // Throws now, and not when the box is there.
  model::ArrayConversion(wanted.into, space::block_of(record, box), box, memory.check);
  if (model::is_empty(box)) return;
  wanted.pieces = of->partition.cut(box);
  auto blocks = known_whole(*of, version, wanted.pieces);
  if (!blocks) blocks = find_whole(of, version, wanted.pieces, deadline);
  while (!take(wanted, *blocks, deadline)) {
    forget_blocks(*of, version);
    blocks = find_whole(of, version, wanted.pieces, deadline);
  }
}

// --------------------------------------------------------------------------------------------------------- public face

void Space::get(std::string_view name, std::uint64_t version, const Box& box, void* data, const ArrayMemory& memory,
                Timeout timeout) {
  const auto deadline = impl_->deadline(timeout);
  space::require_on_host(data, memory);
  if (!memory.layout.empty() && !model::is_empty(box)) {
    space::Rows rows(memory, impl_->array(name, box, deadline)->record, box);
    get(name, version, box, rows.bytes.data(), rows.as, Impl::left(deadline));
    rows.to(data);
    return;
  }
  for (;;) {
    try {
      impl_->get(impl_->array(name, box, deadline), version, box, data, memory, deadline);
      return;
    } catch (const Impl::Replaced&) {
    }
  }
}

std::vector<std::string> Space::explain(std::string_view name, std::uint64_t version, const Box& box,
                                        const ArrayMemory& memory) {
  const auto deadline = impl_->deadline(configured);
  const auto array = impl_->array(name, box, deadline);
  const auto& record = array->record;
  if (model::is_empty(box)) return {};
  std::string why;
  auto layout = space::layout_of(memory, record, box, &why);
  const Impl::Wanted wanted{
      array, version, array->partition.cut(box), box, space::placed(memory, record, box), nullptr, std::move(layout)};
  if (wanted.layout && record.options.convert == ConvertAt::at_reader)
    why = "the reader converts: the array was defined so";
  if (!why.empty()) return {why};
  return impl_->explain(wanted, deadline);
}

}  // namespace penstock
