#include "http.hpp"

#include <nlohmann/json.hpp>

#include "base/uri.hpp"
#include "penstock/error.hpp"

#ifdef PENSTOCK_HAVE_HTTPLIB
#include <httplib.h>

#include <optional>

#include "fabric/socket.hpp"
#include "http_front.hpp"
#endif

namespace penstock::server {
namespace {

// One figure of the state: where it is in the JSON, and what Prometheus calls it.
struct Metric {
  const char* pointer;
  const char* name;
  const char* kind;
  const char* help;
};
constexpr Metric metrics[]{
    {"/objects", "penstock_objects", "gauge", "Objects that the server has, in memory or on disk."},
    {"/bytes", "penstock_object_bytes", "gauge", "Bytes of these objects, all versions."},
    {"/memory/used", "penstock_memory_used_bytes", "gauge", "Memory that objects take, reservations included."},
    {"/memory/peak", "penstock_memory_peak_bytes", "gauge", "The most that they have taken."},
    {"/memory/limit", "penstock_memory_limit_bytes", "gauge", "The most that they may take."},
    {"/memory/segments", "penstock_memory_segment_bytes", "gauge", "Shared memory that is mapped."},
    {"/memory/index", "penstock_memory_index_bytes", "gauge", "Memory of the index."},
    {"/memory/metadata", "penstock_memory_metadata_bytes", "gauge", "Metadata of objects."},
    {"/memory/unwritten", "penstock_memory_unwritten_bytes", "gauge", "Bytes that are to be written behind."},
    {"/evictions", "penstock_evictions_total", "counter", "Objects whose memory was given up; a tier has them."},
    {"/recalls", "penstock_recalls_total", "counter", "Objects read back from a tier."},
    {"/waiting", "penstock_waiting", "gauge", "Requests that wait for memory."},
    {"/leases", "penstock_leases", "gauge", "Objects that clients read in place."},
    {"/subscriptions", "penstock_subscriptions", "gauge", "Subscriptions that clients have."},
    {"/puts", "penstock_puts_total", "counter", "Objects put."},
    {"/gets", "penstock_gets_total", "counter", "Objects given."},
    {"/drops", "penstock_drops_total", "counter", "Objects dropped."},
    {"/bytes_in", "penstock_received_bytes_total", "counter", "Bytes of objects put."},
    {"/bytes_out", "penstock_sent_bytes_total", "counter", "Bytes of objects given."},
    {"/replicated_bytes", "penstock_replicated_bytes_total", "counter", "Bytes sent to replicas."},
    {"/rebalanced_bytes", "penstock_rebalanced_bytes_total", "counter", "Bytes passed on because the servers changed."},
    {"/view", "penstock_view_number", "gauge", "The number of the pool's present view."},
    {"/settled", "penstock_view_settled", "gauge", "1 when every owner holds what it owns."},
};
constexpr Metric tier_metrics[]{
    {"/objects", "penstock_tier_objects", "gauge", "Objects in the tier."},
    {"/bytes", "penstock_tier_bytes", "gauge", "Bytes of data in the tier."},
    {"/free", "penstock_tier_free_bytes", "gauge", "Free bytes of the tier's file system."},
    {"/written", "penstock_tier_written_bytes_total", "counter", "Bytes written."},
    {"/read", "penstock_tier_read_bytes_total", "counter", "Bytes read."},
    {"/syncs", "penstock_tier_syncs_total", "counter", "Syncs."},
    {"/errors", "penstock_tier_errors_total", "counter", "Calls that failed, and damaged files."},
};

std::string label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string number(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  return value.dump();
}

void describe(std::string& out, const Metric& metric) {
  out.append("# HELP ").append(metric.name).append(" ").append(metric.help).append("\n");
  out.append("# TYPE ").append(metric.name).append(" ").append(metric.kind).append("\n");
}

}  // namespace

std::string metrics_of(const std::string& status_json) {
  try {
    const auto status = nlohmann::json::parse(status_json);
    const std::string labels = "pool=\"" + label(status.at("pool").get<std::string>()) + "\",server=\"" +
                               label(status.at("name").get<std::string>()) + "\"";
    std::string out;
    for (const Metric& metric : metrics) {
      const nlohmann::json::json_pointer pointer(metric.pointer);
      if (!status.contains(pointer)) continue;  // without a view there is no number of one
      describe(out, metric);
      out.append(metric.name).append("{").append(labels).append("} ").append(number(status.at(pointer))).append("\n");
    }
    const auto& tiers = status.at("tiers");
    for (const Metric& metric : tier_metrics) {
      if (tiers.empty()) break;
      describe(out, metric);
      for (std::size_t i = 0; i < tiers.size(); ++i)
        out.append(metric.name)
            .append("{")
            .append(labels)
            .append(",tier=\"")
            .append(std::to_string(i))
            .append("\"} ")
            .append(number(tiers[i].at(nlohmann::json::json_pointer(metric.pointer))))
            .append("\n");
    }
    return out;
  } catch (const nlohmann::json::exception& error) {
    throw Error(Errc::internal, std::string("a state that cannot be read: ") + error.what());
  }
}

#ifdef PENSTOCK_HAVE_HTTPLIB
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

// The state as nested tables; nothing to load, nothing that runs.
void rows(std::string& out, const nlohmann::json& value) {
  if (!value.is_structured()) {
    out += escaped(value.is_string() ? value.get<std::string>() : value.dump());
    return;
  }
  out += "<table>";
  for (const auto& [key, entry] : value.items()) {
    out += "<tr><th>" + escaped(key) + "</th><td>";
    rows(out, entry);
    out += "</td></tr>";
  }
  out += "</table>";
}

std::string page_of(const std::string& status_json) {
  const auto status = nlohmann::json::parse(status_json);
  const std::string title = "Penstock: pool " + escaped(status.at("pool").get<std::string>()) + ", server " +
                            escaped(status.at("name").get<std::string>());
  std::string out =
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"5\"><title>" +
      title +
      "</title><style>body{font-family:sans-serif;margin:2em}table{border-collapse:collapse}"
      "th{text-align:left;font-weight:normal;color:#555}td,th{padding:.1em .8em .1em 0;vertical-align:top}"
      "</style><h1>" +
      title + "</h1><p><a href=\"status\">status</a> <a href=\"metrics\">metrics</a></p>";
  rows(out, status);
  return out;
}

// In time that does not depend on where they differ.
bool same(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

// As base::parse_endpoint, and port 0, which is no place to connect to but one to listen at.
std::pair<std::string, std::uint16_t> parse_address(const std::string& address) {
  std::string host;
  std::uint16_t port = 0;
  const bool any = address.ends_with(":0");
  try {
    base::parse_endpoint(any ? address.substr(0, address.size() - 1) + "1" : address, host, port);
  } catch (const Error& error) {
    throw error.in("http");
  }
  return {host, any ? std::uint16_t{0} : port};
}

// A request and its response in memory.
class MemoryStream final : public httplib::Stream {
 public:
  explicit MemoryStream(std::string_view request) : request_(request) {}
  std::string response;

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override {
    const std::size_t count = request_.copy(to, size);
    request_.remove_prefix(count);
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* from, size_t size) override {
    response.append(from, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return INVALID_SOCKET; }

 private:
  std::string_view request_;
};

// The library's requests, routes and responses without its sockets and threads, which one idle connection each may hold.
class Pages : public httplib::Server {
 public:
  std::string answer(std::string_view request) {
    MemoryStream stream(request);
    bool closed = false;
    try {
      process_request(stream, true, closed, nullptr);
    } catch (const std::exception&) {  // a number in a header that is too long, say
      return "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    }
    return std::move(stream.response);
  }
};

}  // namespace

struct HttpServer::Impl {
  HttpSource source;
  Pages server;
  std::string address;
  std::optional<HttpFront> front;  // last: it calls in

  void answer(httplib::Response& response, const char* type, const std::function<std::string()>& make) const {
    try {
      response.set_content(make(), type);
    } catch (const std::exception& error) {
      response.status = 503;
      response.set_content(std::string(error.what()) + "\n", "text/plain");
    }
  }

  void routes() {
    server.Get("/", [this](const httplib::Request&, httplib::Response& response) {
      answer(response, "text/html; charset=utf-8", [this] { return page_of(source.status()); });
    });
    server.Get("/status", [this](const httplib::Request&, httplib::Response& response) {
      answer(response, "application/json", source.status);
    });
    server.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      answer(response, "text/plain; version=0.0.4; charset=utf-8", [this] { return metrics_of(source.status()); });
    });
    // Before routing, which would ask for a body.
    server.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      using Handled = httplib::Server::HandlerResponse;
      if (request.method != "POST" || request.path != "/drain") return Handled::Unhandled;
      const std::string given = request.get_header_value("Authorization");
      if (!same(given, "Bearer " + source.admin_token)) {
        response.status = given.empty() ? 401 : 403;
        response.set_header("WWW-Authenticate", "Bearer");
        response.set_content("this needs the pool's admin token: penstock pool token --role admin\n", "text/plain");
        return Handled::Handled;
      }
      try {
        source.drain();
        response.status = 202;
        response.set_content("{\"draining\":true}\n", "application/json");
      } catch (const std::exception& error) {
        response.status = 409;
        response.set_content(std::string(error.what()) + "\n", "text/plain");
      }
      return Handled::Handled;
    });
  }
};

HttpServer::HttpServer(const std::string& address, HttpSource source) : impl_(std::make_unique<Impl>()) {
  const auto [host, port] = parse_address(address);
  impl_->source = std::move(source);
  impl_->routes();
  std::uint16_t bound = port;
  auto listening = fabric::listen_tcp(host, bound, port);
  if (port != 0 && bound != port) throw Error(Errc::system, "http: nothing can listen at " + address);
  impl_->address = base::format_endpoint(host, bound);
  impl_->front.emplace(std::move(listening),
                       [impl = impl_.get()](std::string_view request) { return impl->server.answer(request); });
}

HttpServer::~HttpServer() = default;

#else

struct HttpServer::Impl {
  std::string address;
};

HttpServer::HttpServer(const std::string&, HttpSource) {
  throw Error(Errc::unsupported, "http: this Penstock was built without cpp-httplib; set http=off");
}
HttpServer::~HttpServer() = default;

#endif

const std::string& HttpServer::address() const { return impl_->address; }

}  // namespace penstock::server
