// Uses a tier in ways that are told by a seed, until it is killed, and checks what is left.
//
//   tier_child run KIND PATH SEED FIRST          operations FIRST, FIRST + 1, ...: prints "start N" and "done N" for each
//   tier_child verify KIND PATH SEED kill|loss   reads "base KEY VERSION" and then start and done lines from stdin; fails when
//                                                the tier is not what they allow; prints "state KEY VERSION" for what is there
//   tier_child full KIND PATH PART               fills a small file system mounted at PATH, by objects of PART bytes or by
//                                                another's file (PART is "ballast"); 77: not permitted to mount
//
// A version is "N.I": the I-th object of operation N, whose metadata and data follow from seed and version; "-" is no object.
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "storage/tier.hpp"

namespace {

namespace fs = std::filesystem;
using namespace penstock;
using storage::Tier;
using Bytes = std::vector<std::byte>;

constexpr int keys = 12;
const std::string absent = "-";

[[noreturn]] void fail(const std::string& why) {
  std::cerr << "tier_child: " << why << "\n";
  std::exit(1);
}
void check(bool holds, const std::string& why) {
  if (!holds) fail(why);
}

Bytes bytes_of(std::uint64_t seed, const std::string& version, std::size_t size) {
  std::mt19937_64 random(std::hash<std::string>()(version) ^ seed);
  Bytes out((size + 7) / 8 * 8);
  for (std::size_t i = 0; i < out.size(); i += 8) {
    const std::uint64_t word = random();
    std::memcpy(out.data() + i, &word, 8);
  }
  out.resize(size);
  return out;
}

struct Put {
  std::string key, version;
  std::size_t size = 0;
};

struct Operation {
  enum class Kind { put, erase, sync } kind = Kind::put;
  bool sync = false;
  std::vector<Put> puts;
  std::string erased;
};

Operation operation(std::uint64_t seed, std::uint64_t number) {
  std::mt19937_64 random(seed * 1'000'003 + number);
  const auto some_key = [&] { return "row/" + std::to_string(random() % keys) + std::string("\0x", 2); };
  Operation result;
  const auto what = random() % 100;
  result.sync = random() % 100 < 35;
  if (what < 5) {
    result.kind = Operation::Kind::sync;
  } else if (what < 17) {
    result.kind = Operation::Kind::erase;
    result.erased = some_key();
  } else {
    std::set<std::string> used;
    const std::size_t count = what < 37 ? 2 + random() % 4 : 1;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string key = some_key();
      const auto shape = random() % 10;
      const std::size_t size = shape < 4 ? random() % 600 : shape < 7 ? random() % 10'000 : 60'000 + random() % 300'000;
      if (used.insert(key).second) result.puts.push_back({key, std::to_string(number) + "." + std::to_string(i), size});
    }
  }
  return result;
}

void perform(Tier& tier, std::uint64_t seed, const Operation& operation) {
  if (operation.kind == Operation::Kind::sync) return tier.sync();
  if (operation.kind == Operation::Kind::erase) {
    tier.erase(operation.erased, operation.sync);
    return;
  }
  std::vector<Bytes> data;
  std::vector<std::string> metadata;
  for (const Put& put : operation.puts) {
    data.push_back(bytes_of(seed, put.version, put.size));
    metadata.push_back(put.version + " " + std::to_string(put.size));
  }
  std::vector<storage::TierWrite> writes;
  for (std::size_t i = 0; i < data.size(); ++i) writes.push_back({operation.puts[i].key, metadata[i], data[i], {}});
  tier.put(writes, operation.sync);
}

std::unique_ptr<Tier> open(const std::string& kind, const std::string& path) {
  storage::TierOptions options;
  options.kind = kind;
  options.path = path;
  options.rocksdb_cache_bytes = 4 << 20;
  return storage::open_tier(options);
}

void say(const char* what, std::uint64_t number) {
  const std::string line = std::string(what) + " " + std::to_string(number) + "\n";
  if (::write(1, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    std::_Exit(2);  // the listener went away
}

int run(const std::string& kind, const std::string& path, std::uint64_t seed, std::uint64_t first) {
  const auto tier = open(kind, path);
  for (std::uint64_t number = first;; ++number) {
    say("start", number);
    perform(*tier, seed, operation(seed, number));
    say("done", number);
  }
}

// What each key may be. An operation that was started and not done is the last one.
class Expected {
 public:
  Expected(std::uint64_t seed, bool loss) : seed_(seed), loss_(loss) {
    for (int i = 0; i < keys; ++i) set("row/" + std::to_string(i) + std::string("\0x", 2), absent);
  }
  void read(std::istream& in) {
    std::string word;
    while (in >> word) {
      if (word == "base") {
        int key = 0;
        std::string version;
        in >> key >> version;
        set("row/" + std::to_string(key) + std::string("\0x", 2), version);
      } else {
        std::uint64_t number = 0;
        in >> number;
        if (word == "done") done(operation(seed_, number));
        started_ = word == "start" ? operation(seed_, number) : Operation();
      }
    }
    for (const auto& [key, version] : changes(started_)) possible_[key].insert(version);
  }
  void check_state(const std::map<std::string, std::string>& state) const {
    for (const auto& [key, version] : state) {
      std::string allowed;
      for (const auto& one : possible_.at(key)) allowed += " " + one;
      check(possible_.at(key).contains(version), key.substr(0, 6) + " is " + version + ", may be" + allowed);
    }
    // All or none of one call: whatever became of it where only the process died; when it was to be synced in any case.
    if (loss_ && !started_.sync) return;
    std::size_t there = 0;
    for (const auto& put : started_.puts) there += state.at(put.key) == put.version ? 1 : 0;
    check(there == 0 || there == started_.puts.size(), "a put is there in part");
  }

 private:
  static std::map<std::string, std::string> changes(const Operation& operation) {
    std::map<std::string, std::string> out;
    for (const Put& put : operation.puts) out[put.key] = put.version;
    if (operation.kind == Operation::Kind::erase) out[operation.erased] = absent;
    return out;
  }
  void set(const std::string& key, const std::string& version) {
    latest_[key] = version;
    possible_[key] = {version};
  }
  void done(const Operation& operation) {
    for (const auto& [key, version] : changes(operation)) {
      if (!loss_ || operation.sync) possible_[key].clear();
      possible_[key].insert(version);
      latest_[key] = version;
    }
    if (operation.kind != Operation::Kind::sync) return;
    for (auto& [key, versions] : possible_) versions = {latest_[key]};
  }

  const std::uint64_t seed_;
  const bool loss_;
  std::map<std::string, std::string> latest_;
  std::map<std::string, std::set<std::string>> possible_;
  Operation started_;
};

// Reads an object and checks that it is the version that it says.
std::string version_of(Tier& tier, std::uint64_t seed, const std::string& key) {
  const auto entry = tier.find(key);
  if (!entry) return absent;
  std::istringstream metadata(entry->metadata);
  std::string version;
  std::size_t size = 0;
  metadata >> version >> size;
  check(entry->data_bytes == size, "the size of " + version + " is wrong");
  Bytes data(size);
  tier.get(key, data);
  check(data == bytes_of(seed, version, size), "the data of " + version + " is wrong");
  return version;
}

int verify(const std::string& kind, const std::string& path, std::uint64_t seed, bool loss) {
  Expected expected(seed, loss);
  expected.read(std::cin);
  const auto tier = open(kind, path);
  check(tier->statistics().errors == 0, "there is a damaged file");
  std::map<std::string, std::string> state;
  std::size_t present = 0;
  for (int i = 0; i < keys; ++i) {
    const std::string key = "row/" + std::to_string(i) + std::string("\0x", 2);
    state[key] = version_of(*tier, seed, key);
    present += state[key] == absent ? 0 : 1;
    std::cout << "state " << i << " " << state[key] << "\n";
  }
  std::cout << "dropped " << tier->statistics().dropped << "\n";
  expected.check_state(state);
  std::size_t seen = 0;
  tier->scan("", [&](const storage::TierEntry& entry) {
    check(state.contains(entry.key) && state[entry.key] != absent, "a key that nobody put, or that is not found");
    ++seen;
    return true;
  });
  check(seen == present && tier->statistics().objects == present, "the objects are miscounted");
  return 0;
}

constexpr std::size_t disk_bytes = 64 << 20;

// Puts until the disk is full. How many objects are there then.
int fill(Tier& tier, const std::string& name, std::size_t size, int most) {
  for (int i = 0; i < most; ++i) {
    const std::string version = name + std::to_string(i);
    const Bytes data = bytes_of(0, version, size);
    const storage::TierWrite write{version, version, data, {}};
    try {
      tier.put({&write, 1}, i % 4 == 0);
    } catch (const storage::TierFull& error) {
      check(std::strstr(error.what(), "no space left") != nullptr, std::string("not a clear error: ") + error.what());
      check(std::strstr(error.what(), tier.path().c_str()) != nullptr, std::string("no path: ") + error.what());
      check(!tier.find(version), "a failed put left something");
      return i;
    }
  }
  fail("the disk did not fill");
}

void check_filled(Tier& tier, const std::string& name, std::size_t size, int count, int first = 0) {
  Bytes data(size);
  for (int i = first; i < count; ++i) {
    tier.get(name + std::to_string(i), data);
    check(data == bytes_of(0, name + std::to_string(i), size), "the data of an object is wrong");
  }
}

void put_one(Tier& tier, const std::string& key, std::size_t size) {
  const Bytes data = bytes_of(0, key, size);
  const storage::TierWrite write{key, "", data, {}};
  tier.put({&write, 1}, true);
}

// Several objects of which only the first fit: none may stay.
void put_too_many(Tier& tier) {
  const Bytes data = bytes_of(0, "many", 4 << 20);
  std::vector<std::string> names;
  for (int i = 0; i < 32; ++i) names.push_back("many" + std::to_string(i));
  std::vector<storage::TierWrite> writes;
  for (const auto& name : names) writes.push_back({name, "", data, {}});
  bool refused = false;
  try {
    tier.put(writes, true);
  } catch (const storage::TierFull&) {
    refused = true;
  }
  check(refused, "more than the disk was put");
  tier.scan("many", [](const storage::TierEntry&) -> bool { fail("a part of a failed put is there"); });
}

void fill_and_free(const std::string& kind, const std::string& path, std::size_t size) {
  const std::string name = "object" + std::to_string(size) + "-";
  int count = 0;
  {
    const auto tier = open(kind, path + "/tier" + std::to_string(size));
    put_too_many(*tier);
    count = fill(*tier, name, size, static_cast<int>(4 * disk_bytes / size));
    check(count > static_cast<int>(disk_bytes / size / 8), "the disk is full too soon: " + std::to_string(count));
    check_filled(*tier, name, size, count);
    check(tier->statistics().objects == static_cast<std::uint64_t>(count), "the objects are miscounted");
  }
  const auto tier =
      open(kind, path + "/tier" + std::to_string(size));  // it opens on a disk that is full, and lost nothing
  check_filled(*tier, name, size, count);
  for (int i = 0; i < count / 2; ++i) tier->erase(name + std::to_string(i), false);
  tier->sync();
  int again = 0;
  try {
    for (; again < count / 4; ++again) put_one(*tier, "again" + std::to_string(again), size);
  } catch (const storage::TierFull&) {
    // RocksDB may keep what was erased in one file with what was not, without the space to write that anew.
    check(kind == "rocksdb" || kind == "disk", "no space after an erase");
  }
  check_filled(*tier, name, size, count, count / 2);
  for (int i = count / 2; i < count; ++i) tier->erase(name + std::to_string(i), false);
  for (int i = 0; i < again; ++i) tier->erase("again" + std::to_string(i), false);
  tier->sync();
  for (int i = 0; i < count / 4; ++i) put_one(*tier, "last" + std::to_string(i), size);
  check_filled(*tier, "last", size, count / 4);
}

// Space that others take and give back.
void with_ballast(const std::string& kind, const std::string& path) {
  auto tier = open(kind, path + "/tier");
  put_one(*tier, "erased", 200'000);
  put_one(*tier, "before", 200'000);
  {
    std::ofstream ballast(path + "/ballast", std::ios::binary);
    const std::string zeros(1 << 16, '\0');
    while (ballast.write(zeros.data(), static_cast<std::streamsize>(zeros.size())).flush()) continue;
  }
  for (const std::size_t size : {100, 5'000, 1'000'000}) {
    int round = 0;
    try {
      for (; round < 10'000; ++round) put_one(*tier, "full" + std::to_string(size) + "-" + std::to_string(round), size);
      fail("the disk did not fill");
    } catch (const storage::TierFull&) {
      check(!tier->find("full" + std::to_string(size) + "-" + std::to_string(round)), "a failed put left something");
    }
  }
  check_filled(*tier, "before", 200'000, 0);
  // Opened again it needs a little to begin with; then what it has can be erased.
  tier.reset();
  check(
      ::truncate((path + "/ballast").c_str(), static_cast<off_t>(fs::file_size(path + "/ballast") - (600 << 10))) == 0,
      "the ballast does not shrink");
  tier = open(kind, path + "/tier");
  check(tier->erase("erased", true), "what was put is not there");
  ::unlink((path + "/ballast").c_str());
  for (const std::size_t size : {100, 5'000, 1'000'000}) put_one(*tier, "after" + std::to_string(size), size);
  Bytes data(200'000);
  tier->get("before", data);
  check(data == bytes_of(0, "before", 200'000), "the data of an object is wrong");
}

bool mount_small(const std::string& path) {
  if (::unshare(CLONE_NEWNS | (::geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0) return false;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  const std::string options = "size=" + std::to_string(disk_bytes);
  return ::mount("tmpfs", path.c_str(), "tmpfs", 0, options.c_str()) == 0;
}

// One part in a process: threads that RocksDB keeps would not see what is mounted later.
int full(const std::string& kind, const std::string& path, const std::string& part) {
  if (!mount_small(path)) {
    std::cerr << "skipped: may not mount a small file system here: " << std::strerror(errno) << "\n";
    return 77;
  }
  if (part == "ballast") with_ballast(kind, path);
  else fill_and_free(kind, path, std::stoull(part));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  base::set_log_sink([](base::Level, std::string_view) {});  // recovery is what is tested
  try {
    if (arguments.size() == 5 && arguments[0] == "run")
      return run(arguments[1], arguments[2], std::stoull(arguments[3]), std::stoull(arguments[4]));
    if (arguments.size() == 5 && arguments[0] == "verify")
      return verify(arguments[1], arguments[2], std::stoull(arguments[3]), arguments[4] == "loss");
    if (arguments.size() == 4 && arguments[0] == "full") return full(arguments[1], arguments[2], arguments[3]);
  } catch (const Error& error) {
    fail(error.what());
  }
  fail("usage: run KIND PATH SEED FIRST | verify KIND PATH SEED kill|loss | full KIND PATH PART");
}
