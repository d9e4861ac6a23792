// Puts of boxes: a block for each part of the array that the box meets.
#include <algorithm>

#include "model/box.hpp"
#include "pool/keys/protocol.hpp"
#include "space/block_key.hpp"
#include "space/client/space_impl.hpp"
#include "space/cover.hpp"

namespace penstock {
namespace {

void require_all_fields(std::string_view array, const space::ArrayRecord& record, const ArrayMemory& memory) {
  if (memory.fields.empty()) return;
  for (const auto& field : record.fields)
    if (std::ranges::find(memory.fields, field.name, &FieldMemory::name) == memory.fields.end())
      throw Error(Errc::invalid_argument, "a put into array '" + std::string(array) + "' has all of its fields: '" +
                                              field.name + "' is missing");
}

}  // namespace

// The elements of a box as they lie in a block.
std::vector<std::byte> Space::Impl::packed(const Array& of, const Source& from, const Box& box) const {
  const auto block = space::block_of(of.record, box);
  std::vector<std::byte> bytes(block.bytes);
  model::ArrayConversion(block, from.array, box).run(bytes.data(), from.data);
  return bytes;
}

std::unique_ptr<Space::Impl::Putting> Space::Impl::start(ArrayPointer of, std::uint64_t version, const Box& box,
                                                         const Source& from, Deadline deadline, int rivals) {
  auto putting = std::make_unique<Putting>(std::move(of), version, from, deadline, rivals);
  const auto& array = *putting->of;
  for (auto& piece : array.partition.cut(box)) {
    const auto block = space::block_of(array.record, piece.box);
    auto pack = [lent = putting->lent, conversion = model::ArrayConversion(block, from.array, piece.box),
                 data = from.data](std::size_t, std::byte* to) { lent->read([&] { conversion.run(to, data); }); };
    PutOptions options;
    options.acknowledge = acknowledge;
    options.metadata = writer;
    options.tag = array.tag(version, piece.part);
    const Key key{space::block_row({array.record.id, version, piece.part}), space::block_column(piece.box)};
    std::vector<Pool::PutItem> items{{key, {static_cast<const std::byte*>(nullptr), block.bytes}}};
    auto task = pool.impl().put(std::move(items), std::move(options), deadline, std::move(pack));
    putting->sent.push_back({std::move(piece), begin(std::move(task))});
  }
  return putting;
}

void Space::Impl::finish(Putting& putting) {
  const auto& array = *putting.of;
  std::optional<Error> failed;
  Pieces there;
  for (auto& one : std::exchange(putting.sent, {})) {
    const auto result = end(std::move(one.done)).at(0);
    if (result.code == Errc::already_exists) there.push_back(one.piece);
    else if (result.code != Errc::ok && !failed) failed = Error(result.code, result.message);
  }
  if (failed) {
    if (failed->code() == Errc::not_found) forget(array, putting.version);
    throw failed->in("array '" + array.name + "', version " + std::to_string(putting.version));
  }
  for (const auto& piece : there) put_again(putting, piece);
}

// Some of the elements are there: they must be the same, and the others are put.
void Space::Impl::put_again(const Putting& putting, const space::Partition::Piece& piece) {
  const auto& array = *putting.of;
  const auto& from = putting.from;
  const auto refused = [&](const std::string& why) {
    return Error(Errc::already_exists,
                 "array '" + array.name + "', version " + std::to_string(putting.version) + ": " + why);
  };
  const Pieces pieces{piece};
  Blocks blocks;
  const auto compare = [&](const Box& held, const std::byte* bytes) {
    const auto both = *model::intersect(held, piece.box);
    const Source other{bytes, space::block_of(array.record, held)};
    if (packed(array, other, both) != packed(array, from, both))
      throw refused("elements of " + model::to_string(both) + " are there with other values");
  };
  do blocks = find(putting.of, putting.version, pieces, false, putting.deadline);
  while (!fetch(array, putting.version, pieces, blocks, putting.deadline, compare));
  const auto missing = space::missing(piece.box, blocks.at(0));
  if (missing.boxes.empty()) return;
  if (putting.rivals == 0) throw refused("others put elements of " + model::to_string(piece.box) + " again and again");
  for (const auto& box : missing.boxes) {
    const auto rest = start(putting.of, putting.version, box, from, putting.deadline, putting.rivals - 1);
    finish(*rest);
  }
}

void Space::Impl::verify(const Array& of, std::uint64_t version, const Box& box, const Source& from,
                         model::Check check) {
  if (check == model::Check::none) return;
  const auto whole = space::block_of(of.record, box);
  try {
    model::ArrayConversion(whole, from.array, box, check).verify(from.data);
  } catch (const Error& error) {
    throw error.in("array '" + of.name + "', version " + std::to_string(version));
  }
}

// -------------------------------------------------------------------------------------------------------- public face

struct PendingPut::State {
  std::shared_ptr<Space::Impl> space;
  std::vector<std::byte> rows;  // what is read, where the caller's memory has a layout of a plug-in
  std::unique_ptr<Space::Impl::Putting> putting;
};

PendingPut::PendingPut(std::unique_ptr<State> state) : state_(std::move(state)) {}
PendingPut::PendingPut(PendingPut&&) noexcept = default;

PendingPut& PendingPut::operator=(PendingPut&& other) noexcept {
  std::swap(state_, other.state_);  // what this had ends with the other
  return *this;
}

PendingPut::~PendingPut() {
  try {
    wait();
  } catch (const std::exception&) {  // whoever wants to know calls wait
  }
}

void PendingPut::wait() {
  const auto state = std::move(state_);
  if (state && state->putting) state->space->finish(*state->putting);
}

PendingPut Space::start_put(std::string_view name, std::uint64_t version, const Box& box, const void* data,
                            const ArrayMemory& memory, Timeout timeout) {
  const auto deadline = impl_->deadline(timeout);
  space::require_on_host(data, memory);
  auto array = impl_->array(name, box, deadline);
  if (!memory.layout.empty() && !model::is_empty(box)) {
    space::Rows rows(memory, array->record, box);
    rows.from(data);
    auto put = start_put(name, version, box, rows.bytes.data(), rows.as, Impl::left(deadline));
    put.state_->rows = std::move(rows.bytes);
    return put;
  }
  auto state = std::make_unique<PendingPut::State>();
  if (!model::is_empty(box)) {
    const auto source = [&] {
      require_all_fields(name, array->record, memory);
      return Impl::Source{data, space::placed(memory, array->record, box)};
    };
    Impl::verify(*array, version, box, source(), memory.check);
    const auto known = std::exchange(array, impl_->begin_version(array, version, deadline));
    Impl::require_within(*array, box);
    const auto from = source();
    if (array != known) Impl::verify(*array, version, box, from, memory.check);
    state->space = impl_;
    state->putting = impl_->start(array, version, box, from, deadline, space::most_rivals);
  }
  return PendingPut(std::move(state));
}

void Space::put(std::string_view name, std::uint64_t version, const Box& box, const void* data,
                const ArrayMemory& memory, Timeout timeout) {
  start_put(name, version, box, data, memory, timeout).wait();
}

}  // namespace penstock
