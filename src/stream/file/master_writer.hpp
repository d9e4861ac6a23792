// Rank 0's half of the file engine: takes each committed step over from the direct sink as its only reader, writes the step's
// master, and gives the step back. Only then may the writers begin another step in its place.
//
// Steps come on the engine thread; masters are written by a thread of its own. `failed` is called there, once: after that no
// master is written any more, and no step is given back.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "fabric/registration.hpp"
#include "fabric/task.hpp"
#include "stream/direct/feed.hpp"
#include "stream/file/hdf5_part.hpp"

namespace penstock::stream {

struct StepPlaces {  // of a stream's steps
  std::string stream, folder;
  std::uint64_t incarnation = 0;
  std::uint64_t base = 0;           // number of this writer's first step
  std::set<std::uint64_t> present;  // steps from there on that an earlier writer has completed: they stay
  bool sync = false;
};

class MasterWriter {
 public:
  // lock: the folder's; outlives this.
  MasterWriter(std::shared_ptr<fabric::Progress> progress, fabric::Registration writer, StepPlaces places,
               const storage::File& lock, base::Deadline deadline, std::function<void(const Error&)> failed);
  ~MasterWriter();

 private:
  void on_step(ReaderProtocol::Step step);
  void write(std::uint64_t step, const EpochBlobs& blobs);
  void describe(const EpochBlobs& blobs);

  const std::shared_ptr<fabric::Progress> progress_;
  const StepPlaces places_;
  const storage::File& lock_;
  const std::function<void(const Error&)> failed_;
  // Of the thread that writes.
  bool broken_ = false;
  std::shared_ptr<const model::Epoch> epoch_;
  std::shared_ptr<const EpochBlobs> blobs_;
  std::vector<bool> with_payload_;
  std::string layouts_;

  fabric::Workers thread_;
  std::shared_ptr<Feed> feed_;  // engine thread
};

}  // namespace penstock::stream
