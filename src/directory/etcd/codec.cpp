#include "directory/etcd/codec.hpp"

#include <array>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::directory::etcd {
namespace {

using Json = nlohmann::json;

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

Error strange(const std::string& what) {
  return Error(Errc::protocol, "etcd answered with something strange: " + what);
}

template <class F>
auto decode(std::string_view body, F use) {
  try {
    return use(Json::parse(body));
  } catch (const Json::exception& error) {
    throw strange(error.what());
  }
}

// Zeros and empty texts are left out by the gateway.
std::uint64_t number(const Json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end()) return 0;
  if (at->is_number_unsigned()) return at->get<std::uint64_t>();
  try {
    return base::parse_integer(at->get<std::string>(), 0, INT64_MAX);
  } catch (const Error& error) {
    throw strange(error.what());
  }
}

bool flag(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->get<bool>();
}

std::uint64_t revision_of(const Json& object) {
  const auto header = object.find("header");
  return header == object.end() ? 0 : number(*header, "revision");
}

std::string key_of(std::string_view root, std::string_view path) {
  return to_base64(std::string(root) + std::string(path));
}

// The least key that is greater than all with the prefix.
std::string end_of(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');  // etcd: everything from the key on
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

std::string text_of(const Json& kv, const char* name) {
  const auto at = kv.find(name);
  return at == kv.end() ? std::string() : from_base64(at->get_ref<const std::string&>());
}

DirectoryEntry entry_of(std::string_view root, const Json& kv) {
  DirectoryEntry entry;
  entry.path = text_of(kv, "key");
  if (!entry.path.starts_with(root)) throw strange("a key of another tree");
  entry.path.erase(0, root.size());
  entry.value = text_of(kv, "value");
  entry.revision = number(kv, "mod_revision");
  entry.created = number(kv, "create_revision");
  entry.lease = number(kv, "lease");
  return entry;
}

std::optional<DirectoryEntry> first_of(std::string_view root, const Json& range) {
  const auto kvs = range.find("kvs");
  if (kvs == range.end() || kvs->empty()) return {};
  return entry_of(root, kvs->front());
}

std::string transaction(const std::string& key, std::uint64_t expected, Json success) {
  const Json compare = {
      {"key", key}, {"target", "MOD"}, {"result", "EQUAL"}, {"mod_revision", std::to_string(expected)}};
  const Json otherwise = {{"requestRange", {{"key", key}}}};
  return Json{{"compare", Json::array({compare})},
              {"success", Json::array({std::move(success)})},
              {"failure", Json::array({otherwise})}}
      .dump();
}

const Json* response_of(const Json& json, const char* name) {
  const auto responses = json.find("responses");
  if (responses == json.end() || responses->empty()) return nullptr;
  const auto at = responses->front().find(name);
  return at == responses->front().end() ? nullptr : &*at;
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const std::size_t have = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t j = 0; j < 3; ++j) group = group << 8 | (j < have ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) text.push_back(j <= have ? alphabet[group >> (18 - 6 * j) & 63] : '=');
  }
  return text;
}

std::string from_base64(std::string_view text) {
  static const auto values = [] {
    std::array<std::int8_t, 256> table;
    table.fill(-1);
    for (std::size_t i = 0; i < alphabet.size(); ++i)
      table[static_cast<unsigned char>(alphabet[i])] = static_cast<std::int8_t>(i);
    return table;
  }();
  if (text.size() % 4 != 0) throw strange("base64 of a wrong length");
  while (text.size() % 4 != 1 && text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    const int value = values[static_cast<unsigned char>(c)];
    if (value < 0) throw strange("text that is not base64");
    group = group << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<char>(group >> bits & 255));
  }
  return bytes;
}

std::string put_request(std::string_view root, std::string_view path, std::string_view value,
                        std::optional<std::uint64_t> expected, std::uint64_t lease) {
  const std::string key = key_of(root, path);
  const Json put = {{"key", key}, {"value", to_base64(value)}, {"lease", std::to_string(lease)}};
  return expected ? transaction(key, *expected, {{"requestPut", put}}) : put.dump();
}

std::string remove_request(std::string_view root, std::string_view path, std::optional<std::uint64_t> expected) {
  const std::string key = key_of(root, path);
  const Json remove = {{"key", key}};
  return expected ? transaction(key, *expected, {{"requestDeleteRange", remove}}) : remove.dump();
}

std::string get_request(std::string_view root, std::string_view path) {
  return Json{{"key", key_of(root, path)}}.dump();
}

std::string list_request(std::string_view root, std::string_view prefix, std::string_view after, std::size_t limit) {
  const std::string all = std::string(root) + std::string(prefix);
  // The least key after `after` is that with a zero byte behind it. Without a sort order etcd gives keys in order.
  const std::string begin = after < prefix ? all : std::string(root) + std::string(after) + '\0';
  return Json{{"key", to_base64(begin)}, {"range_end", to_base64(end_of(all))}, {"limit", std::to_string(limit)}}
      .dump();
}

std::string grant_request(std::int64_t ttl_seconds) { return Json{{"TTL", std::to_string(ttl_seconds)}}.dump(); }

std::string lease_request(std::uint64_t lease) { return Json{{"ID", std::to_string(lease)}}.dump(); }

std::string watch_request(std::string_view root, std::string_view prefix, std::uint64_t from_revision) {
  const std::string all = std::string(root) + std::string(prefix);
  return Json{{"create_request",
               {{"key", to_base64(all)},
                {"range_end", to_base64(end_of(all))},
                {"start_revision", std::to_string(from_revision)},
                {"progress_notify", true},
                {"fragment", true}}}}
      .dump();
}

Written decode_put(std::string_view root, std::string_view body, bool conditional) {
  return decode(body, [&](const Json& json) {
    Written result;
    result.revision = revision_of(json);
    result.done = !conditional || flag(json, "succeeded");
    if (result.revision == 0) throw strange("no revision");
    if (result.done) return result;
    if (const Json* range = response_of(json, "response_range")) result.current = first_of(root, *range);
    return result;
  });
}

Removed decode_remove(std::string_view root, std::string_view body, bool conditional) {
  return decode(body, [&](const Json& json) {
    Removed result;
    if (!conditional) {
      result.done = number(json, "deleted") != 0;
    } else if (flag(json, "succeeded")) {
      const Json* removed = response_of(json, "response_delete_range");
      result.done = removed != nullptr && number(*removed, "deleted") != 0;
    } else if (const Json* range = response_of(json, "response_range")) {
      result.current = first_of(root, *range);
    }
    return result;
  });
}

Range decode_range(std::string_view root, std::string_view body) {
  return decode(body, [&](const Json& json) {
    Range range;
    range.revision = revision_of(json);
    range.more = flag(json, "more");
    if (const auto kvs = json.find("kvs"); kvs != json.end())
      for (const auto& kv : *kvs) range.entries.push_back(entry_of(root, kv));
    return range;
  });
}

std::uint64_t decode_grant(std::string_view body) {
  return decode(body, [&](const Json& json) {
    const auto id = number(json, "ID");
    if (id == 0) throw strange("a lease without a number");
    return id;
  });
}

bool decode_keepalive(std::string_view body) {
  return decode(body, [&](const Json& json) {
    const Json& result = json.at("result");
    if (number(result, "ID") == 0) throw strange("a heartbeat for no lease");
    return number(result, "TTL") != 0;
  });
}

Watched decode_watched(std::string_view root, std::string_view line) {
  return decode(line, [&](const Json& json) {
    Watched result;
    if (const auto error = json.find("error"); error != json.end()) {
      result.cancelled = true;
      result.reason = error->dump();
      return result;
    }
    const Json& body = json.at("result");
    result.cancelled = flag(body, "canceled");
    result.compacted = number(body, "compact_revision") != 0;
    if (const auto reason = body.find("cancel_reason"); reason != body.end())
      result.reason = reason->get<std::string>();
    if (const auto events = body.find("events"); events != body.end()) {
      for (const auto& e : *events) {
        DirectoryEvent event;
        const auto type = e.find("type");
        event.removed = type != e.end() && type->get_ref<const std::string&>() == "DELETE";
        event.entry = entry_of(root, e.at("kv"));
        result.revision = std::max(result.revision, event.entry.revision);
        result.events.push_back(std::move(event));
      }
    } else if (!flag(body, "created") && !result.cancelled) {
      result.revision = revision_of(body);
    }
    return result;
  });
}

Refusal decode_refusal(std::string_view body) {
  const Json json = Json::parse(body, nullptr, false);
  Refusal refusal;
  if (!json.is_object()) return refusal;
  const auto code = json.find("code");
  const auto message = json.find("message") != json.end() ? json.find("message") : json.find("error");
  if (code != json.end() && code->is_number_integer()) refusal.code = code->get<int>();
  if (message != json.end() && message->is_string()) refusal.message = message->get<std::string>();
  return refusal;
}

}  // namespace penstock::directory::etcd
