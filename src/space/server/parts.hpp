// Which blocks of arrays this server owns, by part: the puts that may be done, and the boxes that are covered.
//
// The index of a part is made from the object table at its first use, and kept by the table's events. Blocks of one part are
// disjoint: a put is admitted before its object is put, and until it has ended no other put of its elements is. Engine thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pool/server/object_service.hpp"
#include "space/block_index.hpp"
#include "space/block_key.hpp"
#include "space/partition.hpp"
#include "space/protocol.hpp"

namespace penstock::space {

struct DefinedArray : ArrayRecord {
  // Throws Error(invalid_argument).
  explicit DefinedArray(ArrayRecord record) : ArrayRecord(std::move(record)), partition(shape, parts) {}
  const Partition partition;
};

class Parts final : public pool::PutGuard, public std::enable_shared_from_this<Parts> {
 public:
  template <class T>
  using Task = fabric::Task<T>;

  static std::shared_ptr<Parts> create(std::shared_ptr<pool::ServerCore> core);
  ~Parts() override;

  const Namespace& of() const override;
  // Throws Error: already_exists (another block has some of the elements), not_found (the version or the array is not there, or goes),
  // timeout (another put of the elements does not end), protocol, invalid_argument (it is nothing of an array).
  Task<std::shared_ptr<pool::PutToken>> admit(const pool::ServerCore::Put& put, IfExists if_exists,
                                              base::Deadline deadline) override;

  // Receives block events, after the index knows of them. part_put: a block of a part that this server owns; whole: all of its
  // elements are there now. rows_gone: some block of the row was dropped.
  struct Observer {
    virtual ~Observer() = default;
    virtual void part_put(const BlockRow& row, std::shared_ptr<const DefinedArray> array, bool whole) = 0;
    virtual void rows_gone(std::string_view row) = 0;
    virtual void view_changed() = 0;
  };
  void observe(std::weak_ptr<Observer> observer) { observer_ = std::move(observer); }
  std::size_t puts_under_way() const { return *admitted_; }

  // As it was defined. Throws Error(not_found): it was dropped.
  Task<std::shared_ptr<const DefinedArray>> record(std::uint64_t array, base::Deadline deadline);

  struct Found {
    std::vector<Box> blocks;
    bool covered = false;
  };
  // The blocks that meet the box. wait: when they cover it, or at the deadline. Throws Error: stale_view (the view is another
  // one), not_found (the version was dropped meanwhile).
  Task<Found> find(BlockRow row, Box box, std::uint64_t view, bool wait, base::Deadline deadline);
  struct Room {
    std::vector<std::uint64_t> go;  // versions that are to be dropped first
    bool begin = false;             // it may begin then, or it has begun; false: ask again then
  };
  // Whether the version may begin. Waits until the readers of the oldest one have read it. Throws Error: stale_view, not_found,
  // timeout (names the readers), wrong_state (it is older than those that are kept).
  Task<Room> room_for(std::uint64_t array, std::uint64_t version, std::uint64_t view, base::Deadline deadline);
  // The lowest version that is `first` or some steps above it, is there and does not go; none at the deadline. Throws Error:
  // stale_view, not_found (the array was dropped).
  Task<std::optional<std::uint64_t>> next_version(std::uint64_t array, std::uint64_t first, std::uint64_t step,
                                                  std::uint64_t view, base::Deadline deadline);
  // Drops the blocks that this server owns of a version that goes, once puts of such blocks have ended; how many there were.
  // tag_base: of the version's part 0. Throws Error(stale_view): the view is another one now, and others may own some.
  Task<std::uint64_t> drop(std::uint64_t array, std::uint64_t version, std::uint64_t tag_base, std::uint64_t view,
                           base::Deadline deadline);
  // Until the puts of the array's versions that are under way have ended.
  Task<void> settle(std::uint64_t array, base::Deadline deadline);

 private:
  using Version = std::pair<std::uint64_t, std::uint64_t>;  // array, version
  struct Part;
  struct Home;
  struct Block;
  class Admitted;
  class Begun;
  enum class VersionState : std::uint8_t { absent, open, going };
  explicit Parts(std::shared_ptr<pool::ServerCore> core);
  void begin();
  void changed(bool dropped, std::string_view row, std::string_view column);
  void tell_of_put(const Part& part);
  void view_changed();
  std::shared_ptr<Part> kept(const std::string& row);
  std::shared_ptr<Home> home_of(const std::string& row);
  Task<void> settle_blocks(std::string prefix, base::Deadline deadline);
  // With its index.
  Task<std::shared_ptr<Part>> part_of(std::string row, base::Deadline deadline);
  Task<void> fill(std::shared_ptr<Part> part, base::Deadline deadline);
  Task<std::uint64_t> drop_blocks(std::vector<Block> blocks, base::Deadline deadline);
  Task<VersionState> state_of(Version version, base::Deadline deadline);
  // After this one; "": all. In ascending order.
  Task<std::vector<std::string>> columns_of(std::string row, std::string after, base::Deadline deadline);
  Task<std::shared_ptr<const DefinedArray>> open_array(std::string row, base::Deadline deadline);
  Task<std::optional<std::uint64_t>> read_until(std::uint64_t array, std::string reader, base::Deadline deadline);
  Task<std::vector<std::string>> unread_by(std::shared_ptr<const DefinedArray> record, std::uint64_t version,
                                           base::Deadline deadline);
  // The lowest versions below this one that are older than versions are kept for, and were read.
  Task<std::vector<std::uint64_t>> old_ones(std::shared_ptr<const DefinedArray> record,
                                            std::vector<std::uint64_t> there, std::uint64_t version,
                                            base::Deadline deadline);
  Task<bool> is_old(std::shared_ptr<const DefinedArray> record, std::uint64_t version, base::Deadline deadline);
  Task<void> require_version(Version version, base::Deadline deadline);
  Task<void> forget_readers(std::shared_ptr<const DefinedArray> record, std::uint64_t version, base::Deadline deadline);
  Task<std::shared_ptr<pool::PutToken>> admit_read(const pool::ServerCore::Put& put, base::Deadline deadline);
  Task<std::shared_ptr<pool::PutToken>> admit_version(const pool::ServerCore::Put& put, IfExists if_exists,
                                                      base::Deadline deadline);

  std::weak_ptr<pool::ServerCore> core_;  // which owns this
  fabric::Progress& progress_;
  pool::ObjectTable::WaiterId events_ = 0;
  std::map<std::string, std::shared_ptr<Part>, std::less<>> parts_;  // by row
  std::map<std::string, std::weak_ptr<Home>, std::less<>> homes_;    // by row
  std::set<Version> known_;                                          // are there; forgotten when the view changes
  std::set<Version> dropping_;
  std::map<std::uint64_t, std::shared_ptr<const DefinedArray>> records_;  // by array
  std::shared_ptr<std::size_t> admitted_ = std::make_shared<std::size_t>(0);
  std::weak_ptr<Observer> observer_;
};

}  // namespace penstock::space
