// A stream's folder: what is in it, who writes it, which steps are complete. docs/internals/file-engine.md has the picture.
//
//   stream.json        who writes the stream and whether it has ended
//   stream.lock        locked while its writer lives
//   00000012.h5        the master of step 12, written by rank 0: once it is there the step is complete
//   00000012.rank3     what rank 3 wrote of it
//   .00000012.h5.part  being written, or left by a crash
//
// Functions and values; any thread. Errors name the file. Throws Error(system) with errno's text (a full disk says "no space left").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/options.hpp"
#include "storage/file.hpp"

namespace penstock::stream {

struct StreamRecord {  // stream.json
  std::string stream;
  std::string host;
  std::int64_t pid = 0;
  std::int64_t started = 0;  // seconds since 1970
  std::uint32_t ranks = 0;
  std::uint64_t incarnation = 0;  // changes when a stream is replaced, not when it is resumed
  bool ended = false;
  std::string why;  // it was given up; empty where nobody could say so
};

// Empty where there is none. Throws Error(protocol) for another version and for what is no record.
std::optional<StreamRecord> read_record(const std::string& folder);
void write_record(const std::string& folder, const StreamRecord& record, bool sync);

inline constexpr std::string_view folder_suffix = ".steps";
// The folder of a stream's options: "<stream>.steps" where they name none.
std::string folder_of(const std::string& stream, const StreamOptions& options);
// Whether all that is in it can be a stream's; a folder that is not there holds nothing else.
bool holds_only_a_stream(const std::string& folder);
// Before files are written or removed there. Throws Error(wrong_state) naming a file that no stream has written: any step's where
// there is no stream.json, else one without the header that all have.
void require_own_files(const std::string& folder);

// Held while a writer lives. Empty: another has it.
std::optional<storage::File> lock_for_writing(const std::string& folder);
// The same file for the other ranks, which do not lock it.
storage::File lock_to_watch(const std::string& folder);
// False when the folder or the lock's file was removed, renamed or replaced since: another writer may be there by now.
bool still_ours(const storage::File& lock);
// Throws Error(wrong_state) unless it is.
void require_ours(const storage::File& lock);
// The record now, and whether its writer is known to be gone without having closed the stream: this host's kernel has its
// lock free again.
struct RecordNow {
  std::optional<StreamRecord> record;
  bool lost = false;
};
RecordNow read_record_now(const std::string& folder);

std::string file_name(std::uint64_t step, std::uint32_t rank);
std::string file_path(const std::string& folder, std::uint64_t step, std::uint32_t rank);
std::string part_path(const std::string& folder, std::uint64_t step, std::uint32_t rank);  // while it is written

// Complete steps, in order.
std::vector<std::uint64_t> list_steps(const std::string& folder);
// Removes what crashes and void steps left; with every: all steps, masters first. Nothing that the engine has not written.
void remove_steps(const std::string& folder, bool every);

}  // namespace penstock::stream
