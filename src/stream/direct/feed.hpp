// A direct writer's only consumer, as events on the engine thread: joins the writer as a reader of one rank, says which steps
// it announces, and gives them back. No thread waits and nothing is read: whoever owns the feed has the bytes fetched.
//
// For what takes steps over as they come (the home of a stream in a pool). Engine thread only. The callbacks may destroy the
// feed. After ended nothing comes any more; steps that are not released then are the writer's to keep (WriterUse) or to lose.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "fabric/connect.hpp"
#include "fabric/registration.hpp"
#include "stream/direct/reader_node.hpp"

namespace penstock::stream {

class Feed {
 public:
  struct Events {
    std::function<void(const Admission&)> joined;
    std::function<void(ReaderProtocol::Step)> step;
    // end_of_stream: the writer has closed, and every step was released or given. writer_lost: it is gone, or says that it is
    // broken. not_ready: it could not be joined in time, or lets another take over; it may still be there.
    std::function<void(Outcome, const std::string& why)> ended;
  };
  Feed(std::shared_ptr<fabric::Progress> progress, fabric::Registration writer, fabric::Reach reach,
       base::Deadline deadline, Events events);
  ~Feed();  // leaves

  // Of steps that were given, in any order.
  void release(std::uint64_t step, std::uint32_t slot);
  std::uint64_t dropped() const;  // by the writer's policy, as far as it has told

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace penstock::stream
