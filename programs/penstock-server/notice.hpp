// Telling whoever started the server how it goes: a line on standard output or a descriptor, and the service manager.
#pragma once

#include <string>
#include <string_view>

namespace penstock::server {

// "READY=1", "STOPPING=1", "STATUS=..." to $NOTIFY_SOCKET (sd_notify(3)); nothing without one.
void notify_manager(std::string_view state);

// Writes "ready {...}" and closes the descriptor, unless it is standard output. Throws Error(system).
void write_ready_line(int fd, const std::string& json);

}  // namespace penstock::server
