#include "analysis/fragments/part.hpp"

#include <bit>
#include <limits>

#include "penstock/error.hpp"
#include "storage/little_endian.hpp"

namespace penstock::analysis {
namespace {

// "PSFR", and the format's version.
constexpr std::uint64_t part_mark = 0x0001'0000'5246'5350;

class PartWriter {
 public:
  void put(std::uint64_t value) { storage::append_little(bytes_, value); }
  void put(std::int32_t value) { storage::append_little(bytes_, static_cast<std::uint32_t>(value)); }
  void put(double value) { put(std::bit_cast<std::uint64_t>(value)); }
  void put(const Point3& point) {
    for (const double each : point) put(each);
  }
  void put(const RegionSums& region) {
    put(region.cells);
    for (const auto& sum : region.sums) {
      storage::append_little(bytes_, static_cast<std::uint16_t>(sum.terms().size()));
      for (const double term : sum.terms()) put(term);
    }
  }
  void put(const Part::Common& common) {
    put(common.origin);
    put(common.spacing);
    put(common.depth);
    put(common.threshold);
    put(std::uint64_t{common.averages});
    put(std::uint64_t{common.velocity});
  }
  void put(const Part::Component& component) {
    put(component.lowest);
    put(component.sums);
  }
  void put(const Components::Alias& alias) {
    put(alias.name);
    put(alias.component);
  }
  void put(const Components::Pair& pair) {
    put(pair.own);
    put(pair.foreign);
  }
  void put(const ExtremePoint& point) {
    put(point.component);
    put(point.vertex);
    put(point.at);
  }
  template <class T>
  void put(const std::vector<T>& list) {
    put(std::uint64_t{list.size()});
    for (const auto& each : list) put(each);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

[[noreturn]] void refuse_part(const char* why) {
  throw Error(Errc::protocol, std::string("the fragments of a part cannot be decoded: ") + why);
}

class PartReader {
 public:
  explicit PartReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  void get(std::uint64_t& value) { value = little<std::uint64_t>(); }
  void get(double& value) { value = std::bit_cast<double>(little<std::uint64_t>()); }
  void get(Point3& point) {
    for (double& each : point) get(each);
  }
  // Below the end.
  void get(std::int32_t& value, std::size_t end, std::size_t first = 0) {
    const auto found = little<std::uint32_t>();
    if (found < first || found >= end) refuse_part("a number is out of range");
    value = static_cast<std::int32_t>(found);
  }
  void get(RegionSums& region, std::size_t averages) {
    region = RegionSums(averages);
    get(region.cells);
    for (auto& sum : region.sums)
      for (auto left = little<std::uint16_t>(); left > 0; --left) {
        double term = 0;
        get(term);
        sum.add(term);
      }
  }
  void get(Part::Common& common) {
    std::uint64_t averages = 0, velocity = 0;
    get(common.origin);
    get(common.spacing);
    get(common.depth, max_amr_depth + 1);
    get(common.threshold);
    get(averages);
    get(velocity);
    if (averages > max_averages || velocity > 1) refuse_part("its counts are out of range");
    common.averages = static_cast<std::uint32_t>(averages);
    common.velocity = velocity == 1;
  }
  // least: bytes of an entry.
  template <class T, class Read>
  void list(std::vector<T>& out, std::size_t least, Read&& read) {
    const auto size = little<std::uint64_t>();
    if (size > bytes_.size() / least) refuse_part("a list is longer than the bytes");
    out.resize(size);
    for (auto& each : out) read(each);
  }
  void end() const {
    if (!bytes_.empty()) refuse_part("bytes follow its end");
  }

 private:
  template <class T>
  T little() {
    if (bytes_.size() < sizeof(T)) refuse_part("it is too short");
    const auto value = storage::read_little<T>(bytes_, 0);
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }

  std::span<const std::byte> bytes_;
};

}  // namespace

std::string encode(const Part& part) {
  PartWriter out;
  out.put(part_mark);
  out.put(part.common);
  out.put(part.above);
  out.put(part.below);
  out.put(part.components);
  out.put(part.foreign);
  out.put(part.aliases);
  out.put(part.pairs);
  out.put(part.extremes);
  return out.take();
}

Part decode(std::span<const std::byte> bytes) {
  PartReader in(bytes);
  Part part;
  std::uint64_t mark = 0;
  in.get(mark);
  if (mark != part_mark) refuse_part("it is none, or of another version of Penstock");
  in.get(part.common);
  const std::size_t averages = part.common.averages;
  in.get(part.above, averages);
  in.get(part.below, averages);
  in.list(part.components, 16 + 2 * (Sum::averages + averages), [&](auto& each) {
    in.get(each.lowest);
    in.get(each.sums, averages);
  });
  in.list(part.foreign, 8, [&](auto& name) { in.get(name); });
  const std::size_t own = part.components.size(), all = part.size();
  if (all > std::size_t{std::numeric_limits<std::int32_t>::max()}) refuse_part("it has too many components");
  in.list(part.aliases, 12, [&](auto& alias) {
    in.get(alias.name);
    in.get(alias.component, own);
  });
  in.list(part.pairs, 8, [&](auto& pair) {
    in.get(pair.own, own);
    in.get(pair.foreign, all, own);
  });
  in.list(part.extremes, 36, [&](auto& point) {
    in.get(point.component, all);
    in.get(point.vertex);
    in.get(point.at);
  });
  in.end();
  return part;
}

}  // namespace penstock::analysis
