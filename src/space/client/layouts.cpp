// Layouts that shared objects supply: their registry, and puts and gets that go through rows.
#include <algorithm>
#include <array>

#include "base/plugin.hpp"
#include "base/text.hpp"
#include "model/box.hpp"
#include "penstock/layout_plugin.h"
#include "space/client/space_impl.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t most_layouts = 1024;
constexpr std::size_t longest_layout_name = 64;

struct Loaded {
  const penstock_layout* layout;
  std::string path;
};

// Of the process, as loaded libraries are.
struct LoadedLayouts {
  std::mutex mutex;
  std::map<std::string, Loaded, std::less<>> by_name;
};
LoadedLayouts& loaded_layouts() {
  static LoadedLayouts layouts;
  return layouts;
}

Loaded layout_named(std::string_view name) {
  auto& all = loaded_layouts();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.by_name.find(name); found != all.by_name.end()) return found->second;
  std::vector<std::string_view> names;
  for (const auto& [known, loaded] : all.by_name) names.push_back(known);
  if (names.empty())
    throw Error(Errc::not_found, "there is no layout '" + std::string(name) + "': no layouts were loaded");
  throw Error(Errc::not_found, base::unknown_name("layout", name, names));
}

bool is_complete(const penstock_layout& layout) {
  const std::string_view name = layout.name ? layout.name : "";
  return !name.empty() && name.size() <= longest_layout_name && layout.bytes && layout.from_rows && layout.to_rows &&
         std::ranges::all_of(name, [](char letter) { return letter > ' ' && letter <= '~'; });
}

// call: with room for the plug-in's reason.
template <class Call>
void call_layout(const Loaded& loaded, Call&& call) {
  std::array<char, 256> message{};
  if (call(message.data(), message.size()) == 0) return;
  message.back() = '\0';
  const std::string why = message[0] ? message.data() : "it gave no reason";
  throw Error(Errc::unsupported, "layout '" + std::string(loaded.layout->name) + "' of " + loaded.path + ": " + why);
}

std::uint64_t bytes_in_layout(const Loaded& loaded, const penstock_layout_box& box) {
  std::uint64_t bytes = 0;
  call_layout(loaded,
              [&](char* message, std::size_t size) { return loaded.layout->bytes(&box, &bytes, message, size); });
  return bytes;
}

penstock_layout_box layout_box(const Box& box, std::uint64_t element_bytes) {
  return {box.count.size(), box.count.begin(), element_bytes};
}

}  // namespace

std::vector<std::string> load_layouts(const std::string& path) {
  const auto refuse = [&](const std::string& why) { return Error(Errc::unsupported, path + " " + why); };
  penstock_layouts_function get = nullptr;
  try {
    get = reinterpret_cast<penstock_layouts_function>(base::plugin_function(path, "penstock_layouts"));
  } catch (const Error& error) {
    throw error.in(path + " is no plug-in of layouts");
  }
  const penstock_layout_table* table = get();
  if (table == nullptr) throw refuse("gave no table of layouts");
  if (table->abi != PENSTOCK_LAYOUT_ABI)
    throw refuse("was built for version " + std::to_string(table->abi) +
                 " of penstock/layout_plugin.h, this is version " + std::to_string(PENSTOCK_LAYOUT_ABI) +
                 ": build it again");
  if (table->count == 0 || table->count > most_layouts || table->layouts == nullptr)
    throw refuse("has " + std::to_string(table->count) + " layouts, expected 1 to " + std::to_string(most_layouts));
  const std::span layouts(table->layouts, table->count);
  auto& all = loaded_layouts();
  const std::lock_guard lock(all.mutex);
  auto now = all.by_name;
  std::vector<std::string> names;
  for (const auto& layout : layouts) {
    if (!is_complete(layout))
      throw refuse("has a layout without a name of 1 to 64 printable characters of ASCII, or without a function");
    names.emplace_back(layout.name);
    const auto [there, added] = now.try_emplace(layout.name, Loaded{&layout, path});
    if (!added && there->second.layout != &layout)
      throw Error(Errc::already_exists,
                  path + ": there is a layout '" + layout.name + "' already, of " + there->second.path);
  }
  all.by_name = std::move(now);
  return names;
}

std::uint64_t layout_bytes(std::string_view layout, const Dims& count, std::uint64_t element_bytes) {
  const Box box{Dims::filled(count.size(), 0), count};
  if (model::is_empty(box)) return 0;
  return bytes_in_layout(layout_named(layout), layout_box(box, element_bytes));
}

space::Rows::Rows(const ArrayMemory& memory, const ArrayRecord& of, const Box& box) : as(memory), box_(box) {
  if (memory.order != Order::row || !memory.strides.empty())
    throw Error(Errc::invalid_argument, "layout '" + memory.layout + "' leaves no order or strides to choose");
  as.layout.clear();
  as.fields.clear();
  // Said in full: the array may be defined anew meanwhile.
  if (of.fields.empty()) {
    if (as.dtype == DType::none) as.dtype = of.dtype;
    element_bytes_ = size_of(as.dtype);
  } else {
    for (const auto& field : stored_layout(of).fields)
      as.fields.push_back({field.name, field.dtype, static_cast<std::int64_t>(field.offset), {}});
    as.structure_bytes = element_bytes_ = space::element_bytes(of);
  }
  const bool as_expected =
      std::ranges::equal(memory.fields, as.fields, [](const FieldMemory& expected, const FieldMemory& its) {
        return expected.name == its.name && expected.dtype == its.dtype && expected.offset == its.offset;
      });
  if (!memory.fields.empty() && (!as_expected || memory.structure_bytes != as.structure_bytes))
    throw Error(Errc::invalid_argument, "the structures have other fields than the array's, without padding: layout '" +
                                            memory.layout + "' leaves none to choose");
  layout_ = memory.layout;
  // May refuse the box, before anything moves.
  const auto needed = bytes_in_layout(layout_named(layout_), layout_box(box_, element_bytes_));
  if (memory.layout_bytes > 0 && needed > memory.layout_bytes)
    throw Error(Errc::invalid_argument, "the box takes " + std::to_string(needed) + " bytes in layout '" + layout_ +
                                            "', the memory has " + std::to_string(memory.layout_bytes));
  bytes.resize(placed(as, of, box).bytes);
}

void space::Rows::from(const void* data) {
  const auto loaded = layout_named(layout_);
  const auto box = layout_box(box_, element_bytes_);
  call_layout(loaded, [&](char* message, std::size_t size) {
    return loaded.layout->to_rows(&box, data, bytes.data(), message, size);
  });
}

void space::Rows::to(void* data) const {
  const auto loaded = layout_named(layout_);
  const auto box = layout_box(box_, element_bytes_);
  call_layout(loaded, [&](char* message, std::size_t size) {
    return loaded.layout->from_rows(&box, bytes.data(), data, message, size);
  });
}

}  // namespace penstock
