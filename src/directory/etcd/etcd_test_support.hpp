// Real etcd members on the loopback, each a process with its data in a temporary folder; all end with the object.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/test_support.hpp"
#include "base/text.hpp"

namespace penstock::directory {

inline std::string find_etcd() {
  const char* path = std::getenv("PATH");
  for (const auto folder : base::split(path != nullptr ? path : "/usr/bin", ':')) {
    const std::string file = std::string(folder) + "/etcd";
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

class EtcdCluster {
 public:
  explicit EtcdCluster(int members) {
    const auto ports = free_ports(2 * members);
    for (int i = 0; i < members; ++i) {
      members_.push_back({ports[2 * static_cast<std::size_t>(i)], ports[2 * static_cast<std::size_t>(i) + 1], -1});
      cluster_ += (i == 0 ? "m" : ",m") + std::to_string(i) + "=" + url(members_.back().peer_port);
    }
    for (int i = 0; i < members; ++i) start(i);
  }
  ~EtcdCluster() {
    for (int i = 0; i < static_cast<int>(members_.size()); ++i) kill(i);
  }
  EtcdCluster(const EtcdCluster&) = delete;

  // Without a root.
  std::string address() const {
    std::string text = "etcd://";
    for (const auto& m : members_) text += (&m == members_.data() ? "" : ",") + ("127.0.0.1:" + std::to_string(m.port));
    return text;
  }
  // Again after kill, with the same data.
  void start(int i) {
    auto& m = members_.at(static_cast<std::size_t>(i));
    const std::string name = "m" + std::to_string(i), data = folder_.path() + "/" + name, log = data + ".log";
    const std::vector<std::string> words{program_,
                                         "--name",
                                         name,
                                         "--data-dir",
                                         data,
                                         "--listen-client-urls",
                                         url(m.port),
                                         "--advertise-client-urls",
                                         url(m.port),
                                         "--listen-peer-urls",
                                         url(m.peer_port),
                                         "--initial-advertise-peer-urls",
                                         url(m.peer_port),
                                         "--initial-cluster",
                                         cluster_,
                                         "--initial-cluster-token",
                                         folder_.path(),
                                         "--heartbeat-interval",
                                         "50",
                                         "--election-timeout",
                                         "500",
                                         "--logger",
                                         "zap"};
    std::vector<char*> arguments;
    for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    char* const environment[] = {nullptr};
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    m.pid = ::fork();
    if (m.pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(out, 1);
      ::dup2(out, 2);
      ::execve(program_.c_str(), arguments.data(), environment);
      ::_exit(127);
    }
    ::close(out);
    if (m.pid < 0) throw std::runtime_error("fork");
  }
  // SIGKILL.
  void kill(int i) {
    auto& m = members_.at(static_cast<std::size_t>(i));
    if (m.pid <= 0) return;
    ::kill(m.pid, SIGKILL);
    ::waitpid(m.pid, nullptr, 0);
    m.pid = -1;
  }

 private:
  struct Member {
    int port = 0, peer_port = 0;
    pid_t pid = -1;
  };
  static std::string url(int port) { return "http://127.0.0.1:" + std::to_string(port); }

  // All bound at once, so that they differ.
  static std::vector<int> free_ports(int count) {
    std::vector<int> sockets, ports;
    for (int i = 0; i < count; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
      socklen_t length = sizeof address;
      if (::bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
          ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
        throw std::runtime_error("bind");
      sockets.push_back(fd);
      ports.push_back(::ntohs(address.sin_port));
    }
    for (const int fd : sockets) ::close(fd);
    return ports;
  }

  TestFolder folder_;
  std::string program_ = find_etcd();
  std::string cluster_;
  std::vector<Member> members_;
};

}  // namespace penstock::directory
