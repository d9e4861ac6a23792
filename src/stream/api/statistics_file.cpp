#include "stream/api/statistics_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/log.hpp"

namespace penstock::stream {

std::string to_json(const StreamStatistics& s, const std::string& stream, const std::string& side) {
  std::ostringstream out;
  out << "{\"stream\": \"" << stream << "\", \"side\": \"" << side << "\", \"pid\": " << getpid();
  const auto field = [&](const char* name, auto value) { out << ", \"" << name << "\": " << value; };
  field("steps", s.steps);
  field("steps_dropped", s.steps_dropped);
  field("steps_voided", s.steps_voided);
  field("analysis_errors", s.analysis_errors);
  field("bytes", s.bytes);
  field("bytes_copied", s.bytes_copied);
  field("copies", s.copies);
  field("copy_s", s.copy_s);
  field("wait_s", s.wait_s);
  field("announcement_bytes", s.announcement_bytes);
  field("epochs", s.epochs);
  field("plans_built", s.plans_built);
  field("plans_reused", s.plans_reused);
  field("queue_depth", s.queue_depth);
  field("memory_bytes", s.memory_bytes);
  out << ", \"data_plane\": \"" << s.data_plane << "\", \"peers\": [";
  for (std::size_t i = 0; i < s.peers.size(); ++i) {
    const auto& p = s.peers[i];
    std::string name;
    for (const char c : p.name)
      if (c >= ' ' && c != '"' && c != '\\') name += c;
    out << (i ? ", " : "") << "{\"name\": \"" << name << "\"";
    field("ranks", p.ranks);
    out << ", \"data_plane\": \"" << p.data_plane << "\"";
    field("steps_delivered", p.steps_delivered);
    field("steps_released", p.steps_released);
    field("steps_dropped", p.steps_dropped);
    field("steps_held", p.steps_held);
    out << "}";
  }
  out << "]}\n";
  return out.str();
}

StatisticsFile::StatisticsFile(const std::string& stream, const std::string& side, int rank)
    : stream_(stream), side_(side) {
  const char* directory = std::getenv("PENSTOCK_STATISTICS");
  if (rank != 0 || directory == nullptr || *directory == '\0') return;
  std::error_code failed;  // then the first write warns
  std::filesystem::create_directories(directory, failed);
  path_ = std::string(directory) + "/" + stream + "." + side + "." + std::to_string(getpid()) + ".json";
}

void StatisticsFile::write(const StreamStatistics& statistics) {
  due_ = base::Clock::now() + std::chrono::milliseconds(200);
  const auto temporary = path_ + ".new";
  std::ofstream(temporary) << to_json(statistics, stream_, side_);
  if (std::rename(temporary.c_str(), path_.c_str()) != 0) {
    base::log(base::Level::warn, "statistics cannot be written", {{"file", path_}, {"why", std::strerror(errno)}});
    path_.clear();
  }
}

}  // namespace penstock::stream
