// Objects of a pool, through penstock::Pool. The pool is the one in the directory that the environment names.
//
//   pool_objects --study small [--count N] [--batch 1000] [--bytes 100] [--acknowledge memory|durable] [--threads 1]
//                put, list, get in batches; each thread has one batch under way, the list has one thread
//   pool_objects --study blocks [--total BYTES] [--bytes 4194304]     put all, then get all back and check every byte
//   pool_objects --study depth [--bytes 1024] [--count N]           put and fetched one by one, 1, 2, 4 ... 64 of them under way
//   pool_objects --study census [--namespace NAME]                    what a pool holds: counts, sizes, key bytes
//
// Keys are "rank/00001" and "var001/T"; those of blocks are placed by number. Keys and values are made before the clock
// starts; of what is read every size is checked, and of small objects the first word.
#include <map>

#include "arguments.hpp"
#include "penstock/penstock.hpp"
#include "penstock/pool.hpp"

namespace penstock::bench {
namespace {

constexpr int blocks_under_way = 4;

PutOptions put_options(const std::string& acknowledge) {
  PutOptions options;
  if (acknowledge == "durable") options.acknowledge = Acknowledge::durable;
  else if (acknowledge == "replicated") options.acknowledge = Acknowledge::replicated;
  else if (acknowledge != "memory") throw std::runtime_error("no acknowledgement level " + acknowledge);
  return options;
}

std::vector<Key> small_keys(std::size_t count, std::size_t columns) {
  std::vector<Key> keys;
  keys.reserve(count);
  char row[24], column[24];
  for (std::size_t i = 0; i < count; ++i) {
    std::snprintf(row, sizeof row, "rank/%05zu", i / columns);
    std::snprintf(column, sizeof column, "var%03zu/T", i % columns);
    keys.push_back({row, column});
  }
  return keys;
}

void small(Pool& pool, const Arguments& arguments, FigureLine& line) {
  const std::size_t count = arguments.number("count", 1'000'000), batch = arguments.number("batch", 1000);
  const std::size_t bytes = std::max<std::size_t>(8, arguments.number("bytes", 100));
  const auto options = put_options(arguments.text("acknowledge", "memory"));
  const std::size_t columns = arguments.number("columns", 1000);  // of a row
  const std::size_t threads = arguments.number("threads", 1);
  arguments.check();
  const auto keys = small_keys(count, columns);
  double start = now();
  in_batches(threads, count, batch, [&] {
    return [&, values = std::vector<std::byte>(bytes * batch, std::byte{'x'}), items = std::vector<Pool::PutItem>()](
               std::size_t first, std::size_t some) mutable {
      items.resize(some);
      for (std::size_t i = 0; i < some; ++i) {
        const std::uint64_t word = first + i;
        std::memcpy(values.data() + i * bytes, &word, sizeof word);
        items[i] = {keys[first + i], std::span<const std::byte>(values).subspan(i * bytes, bytes)};
      }
      for (const auto& result : pool.put(items, options))
        if (!result) throw std::runtime_error("put: " + result.message);
    };
  });
  line.add("put_per_s", static_cast<double>(count) / (now() - start));

  std::size_t listed = 0;
  std::string next;
  start = now();
  do {
    auto page = pool.list({"rank/*", "*"}, batch, next);
    listed += page.objects.size();
    next = std::move(page.next);
  } while (!next.empty());
  line.add("list_per_s", static_cast<double>(listed) / (now() - start));
  require(listed == count, "the list");

  start = now();
  in_batches(threads, count, batch, [&] {
    return [&](std::size_t first, std::size_t some) {
      const auto results = pool.get(std::span(keys).subspan(first, some));
      for (std::size_t i = 0; i < some; ++i) {
        if (!results[i]) throw std::runtime_error("get: " + results[i].message);
        std::uint64_t word = 0;
        require(results[i].value->bytes().size() == bytes, "an object's size");
        std::memcpy(&word, results[i].value->bytes().data(), sizeof word);
        require(word == first + i, "an object");
      }
    };
  });
  line.add("get_per_s", static_cast<double>(count) / (now() - start));
}

void blocks(Pool& pool, const Arguments& arguments, FigureLine& line) {
  const std::uint64_t bytes = arguments.number("bytes", 4 << 20);
  const std::uint64_t count = arguments.number("total", 1 << 30) / bytes;
  arguments.check();
  std::vector<std::vector<std::byte>> memory(blocks_under_way, std::vector<std::byte>(bytes));
  auto key_of = [](std::uint64_t i) { return Key{"block/" + std::to_string(i), ""}; };
  std::vector<std::optional<Pending<std::uint64_t>>> running(blocks_under_way);
  double start = now();
  for (std::uint64_t i = 0; i < count + blocks_under_way; ++i) {
    auto& slot = running[i % blocks_under_way];
    if (slot) (void)slot->get(Timeout(300'000));
    slot.reset();
    if (i >= count) continue;
    fill_words(memory[i % blocks_under_way], i);
    PutOptions options;
    options.tag = i;
    options.timeout = Timeout(300'000);  // waits for what is written behind
    slot.emplace(pool.start_put(key_of(i), memory[i % blocks_under_way], options));
  }
  const double gigabytes = static_cast<double>(count * bytes) / 1e9;
  line.add("put_gb_per_s", gigabytes / (now() - start));
  start = now();
  for (std::uint64_t i = 0; i < count; ++i) {
    GetOptions options;
    options.tag = i;
    options.timeout = Timeout(300'000);
    const auto object = pool.get(key_of(i), options);
    require(object.bytes().size() == bytes && check_words(object.bytes(), i), "a block");
  }
  line.add("get_gb_per_s", gigabytes / (now() - start));
  line.add("blocks", static_cast<double>(count));
}

// `window` calls under way, each waited for in its turn. Calls a second.
template <class Start>
double in_a_window(std::size_t count, std::size_t window, Start start_one) {
  using Running = decltype(start_one(std::size_t{0}));
  std::vector<std::optional<Running>> running(window);
  const double start = now();
  for (std::size_t i = 0; i < count + window; ++i) {
    auto& slot = running[i % window];
    if (slot) (void)slot->get(Timeout(300'000));
    slot.reset();
    if (i < count) slot.emplace(start_one(i));
  }
  return static_cast<double>(count) / (now() - start);
}

void depth(Pool& pool, const Arguments& arguments, FigureLine& line) {
  const std::size_t bytes = arguments.number("bytes", 1024), count = arguments.number("count", 4000);
  arguments.check();
  const std::vector<std::byte> value(bytes, std::byte{'x'});
  for (const std::size_t window : {0, 1, 2, 4, 8, 16, 32, 64}) {  // the first warms
    const std::string name = std::to_string(window);
    auto key_of = [&](std::size_t i) { return Key{"depth/" + name + "/" + std::to_string(i), "x"}; };
    const std::size_t under_way = std::max<std::size_t>(1, window);
    const double puts = in_a_window(count, under_way, [&](std::size_t i) { return pool.start_put(key_of(i), value); });
    const double gets = in_a_window(count, under_way, [&](std::size_t i) { return pool.want(key_of(i)); });
    pool.drop_matching({"depth/" + name + "/*", "*"});
    if (window == 0) continue;
    line.add("put_per_s_" + name, puts);
    line.add("get_per_s_" + name, gets);
  }
}

// What lies in a namespace: of stripes and of everything else apart.
void census(Pool& pool, const Arguments& arguments, FigureLine& line) {
  arguments.check();
  std::map<std::string, std::vector<double>> sizes, keys;
  std::string next;
  do {
    auto page = pool.list({"*", "*"}, 1000, next);
    for (const auto& object : page.objects) {
      std::string kind = "stripe";
      if (!object.key.row.starts_with("stripe/")) kind = object.key.column.substr(0, object.key.column.find('/'));
      sizes[kind].push_back(static_cast<double>(object.bytes));
      keys[kind].push_back(static_cast<double>(object.key.row.size() + object.key.column.size()));
    }
    next = std::move(page.next);
  } while (!next.empty());
  for (const auto& [kind, values] : sizes) {
    line.add(kind + "_bytes", values);
    line.add(kind + "_key_bytes", keys[kind]);
  }
}

void run(const Arguments& arguments) {
  const std::string study = arguments.text("study", "small");
  const Context context;
  PoolOptions options;
  options.ns = arguments.text("namespace");
  options.timeout_ms = 120'000;
  Pool pool(context, options);
  FigureLine line;
  if (study == "small") small(pool, arguments, line);
  else if (study == "blocks") blocks(pool, arguments, line);
  else if (study == "depth") depth(pool, arguments, line);
  else if (study == "census") census(pool, arguments, line);
  else throw std::runtime_error("no study " + study);
  line.add("client_rss_mb", peak_rss_mb());
  line.print();
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_with_arguments(argc, argv, penstock::bench::run); }
