// Converted replicas: boxes of a part in another layout or type. This server makes them for a request and keeps them for the next.
//
// A replica is memory of the store, accounted as an object's, and no object: it is neither replicated nor written to a tier. It goes
// with its version, when the part gets another owner, and, least recently used first, when the budget or the store's memory is short, before
// any object is evicted. Requests that need the same elements wait for one conversion: what is converted is the union of what is
// asked for, once. A request holds the replicas that it needs until the rest is made, so that requests never evict each other's. A
// conversion that fails leaves its box missing, and the next request takes it over.
// Conversions run on threads of their own, one at a time while blocks arrive. In advance, whole parts are converted once all of
// their elements are there, and no block has arrived for a while, but not for ever; whoever asks before converts what it needs.
// Engine thread.
#pragma once

#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "space/conversion_choice.hpp"
#include "space/server/parts.hpp"
#include "space/server/turns.hpp"

namespace penstock::space {

class Replicas final : public Parts::Observer, public std::enable_shared_from_this<Replicas> {
 public:
  template <class T>
  using Task = fabric::Task<T>;
  struct Request {
    BlockRow row;
    std::shared_ptr<const DefinedArray> record;
    Box box;  // of the part
    Layout layout;
    bool in_place = false;                   // the reader reads this server's memory
    double convert_rate = 0, copy_rate = 0;  // of the reader, bytes per second; 0: unknown
  };
  struct Replica {
    Box box;
    std::shared_ptr<const pool::Blob> blob;
  };
  struct Given {
    std::vector<Replica> replicas;  // cover the box; none: the reader converts
    std::string why;                // empty: they were there, or under way
  };

  // budget: bytes of all replicas, those that readers still hold included.
  static std::shared_ptr<Replicas> create(std::shared_ptr<pool::ServerCore> core, std::shared_ptr<Parts> parts,
                                          std::uint64_t budget);
  // Never throws but for what ends the server; a conversion that is not possible is left to the reader.
  Task<Given> give(Request request, base::Deadline deadline);
  // What give would do now.
  std::string explain(const Request& request) const;
  fb::StatusReplyT status() const;

  void part_put(const BlockRow& row, std::shared_ptr<const DefinedArray> array, bool whole) override;
  void rows_gone(std::string_view row) override;
  void view_changed() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Shelf;
  struct UnderWay;
  struct Leave;
  struct Charge;
  struct Held;
  struct Kept {
    Replica replica;
    Shelf* shelf;
  };
  struct Covered {
    std::vector<Replica> replicas;
    std::uint64_t made = 0;  // bytes, of this request's own conversions
  };
  // What is known of the requests for an array in a layout.
  struct History {
    double server_rate = 0;  // bytes of the result, per second
    double idle_s = 0;       // from the last put to the first request
    struct Part {
      std::uint64_t version = 0, requests = 0;  // of the last version that was asked for
      std::uint64_t bytes = 0, wanted = 0;      // of these requests, and of their union
      std::vector<Box> seen;                    // some of their boxes
      double usual_requests = 0, usual_bytes = 0, usual_wanted = 0;
    };
    std::map<std::uint32_t, Part> parts;
  };
  using Kind = std::pair<std::uint64_t, std::vector<std::uint64_t>>;    // array, layout as numbers
  using ShelfKey = std::pair<std::string, std::vector<std::uint64_t>>;  // row, layout as numbers
  Replicas(std::shared_ptr<pool::ServerCore> core, std::shared_ptr<Parts> parts, std::uint64_t budget);
  static Kind kind_of(const BlockRow& row, const Layout& layout);
  static std::uint64_t tag_of(const Request& request);
  std::shared_ptr<Shelf> shelf_of(const Request& request);
  void let_go(const std::shared_ptr<Shelf>& shelf);
  void note_request(const Request& request);
  ConversionChoice choose(const Request& request, std::uint64_t bytes, bool on_put) const;
  // What is held of this is not evicted. Throws Error: not_found, timeout, pool_full (it has more bytes than the budget), overloaded.
  Task<Covered> cover(std::shared_ptr<Shelf> shelf, Request request, base::Deadline deadline);
  Task<Replica> make(std::shared_ptr<Shelf> shelf, Request request, Box box, base::Deadline deadline);
  Task<void> convert_in_advance();
  Task<std::shared_ptr<pool::Blob>> reserve(std::uint64_t bytes);
  bool evict_one();
  std::uint64_t used() const;

  std::weak_ptr<pool::ServerCore> core_;
  std::shared_ptr<Parts> parts_;
  fabric::Progress& progress_;
  const std::uint64_t budget_;
  std::unique_ptr<fabric::Workers> workers_;
  std::shared_ptr<Turns> turns_;
  std::map<ShelfKey, std::shared_ptr<Shelf>> shelves_;
  std::list<Kept> kept_;          // of all shelves, least recently used first
  std::uint64_t kept_bytes_ = 0;  // that they take
  std::map<Kind, History> histories_;
  std::size_t parts_noted_ = 0;                        // of all histories
  std::map<std::string, Clock::time_point> last_put_;  // by row, of arrays with a history
  std::shared_ptr<Charge> charge_;
  struct InAdvance {
    Request request;
    Clock::time_point since;
  };
  std::deque<InAdvance> in_advance_;
  std::size_t in_advance_tasks_ = 0;
  fabric::Signal quiet_;
  Clock::time_point last_block_;
  std::uint64_t view_ = 0;  // the last one
  std::uint64_t queued_bytes_ = 0;
  fb::StatusReplyT counted_;
};

}  // namespace penstock::space
