// A cohort over C callbacks. Those move a fixed number of bytes, known to every rank; ours are strings of any length,
// so lengths travel first, and long strings in pieces that fit an int.
#include <cstdint>
#include <limits>

#include "capi/capi.hpp"

namespace penstock::capi {
namespace {

constexpr std::size_t broadcast_piece = std::size_t{1} << 30;
// Root receives this much from every rank at once.
constexpr std::size_t gather_piece = std::size_t{1} << 16;

class CallbackCohort final : public Cohort {
 public:
  explicit CallbackCohort(const penstock_cohort& c) : c_(c) {}
  ~CallbackCohort() override {
    if (c_.release) c_.release(c_.user);
  }
  CallbackCohort(const CallbackCohort&) = delete;
  CallbackCohort& operator=(const CallbackCohort&) = delete;

  int rank() const override { return c_.rank; }
  int size() const override { return c_.size; }

  std::string broadcast(const std::string& bytes, int root) override {
    std::uint64_t length = bytes.size();
    broadcast_bytes(&length, sizeof length, root);
    std::string result = c_.rank == root ? bytes : std::string(length, '\0');
    for (std::size_t done = 0; done < length; done += broadcast_piece)
      broadcast_bytes(result.data() + done, std::min<std::size_t>(broadcast_piece, length - done), root);
    return result;
  }

  std::vector<std::string> gather(const std::string& bytes, int root) override {
    const bool is_root = c_.rank == root;
    std::uint64_t length = bytes.size();
    std::vector<std::uint64_t> lengths(is_root ? c_.size : 0);
    gather_bytes(&length, sizeof length, lengths.data(), root);
    std::uint64_t longest = is_root ? *std::max_element(lengths.begin(), lengths.end()) : 0;
    broadcast_bytes(&longest, sizeof longest, root);

    std::vector<std::string> result(lengths.size());
    std::string piece, all;
    for (std::size_t done = 0; done < longest; done += gather_piece) {
      std::size_t size = std::min<std::size_t>(gather_piece, longest - done);
      piece.assign(bytes, std::min(done, bytes.size()), size);
      piece.resize(size);
      if (is_root) all.resize(size * c_.size);
      gather_bytes(piece.data(), size, is_root ? all.data() : nullptr, root);
      for (std::size_t r = 0; r < result.size(); ++r)
        if (lengths[r] > done) result[r].append(all, r * size, std::min<std::size_t>(size, lengths[r] - done));
    }
    return result;
  }

  void leave(const std::string& bytes) override {
    if (c_.broadcast_is_local) broadcast(bytes, c_.rank);
  }

 private:
  void broadcast_bytes(void* data, std::size_t size, int root) { check(c_.broadcast(c_.user, data, size, root)); }
  void gather_bytes(const void* data, std::size_t size, void* all, int root) {
    check(c_.gather(c_.user, data, size, all, root));
  }
  static void check(int code) {
    if (code != 0) throw Error(Errc::system, "the cohort's callback failed with code " + std::to_string(code));
  }
  penstock_cohort c_;
};

}  // namespace

std::shared_ptr<Cohort> cohort_of(const penstock_cohort* cohort) {
  if (!cohort) return solo();
  auto result = std::make_shared<CallbackCohort>(*cohort);
  if (cohort->size < 1 || cohort->rank < 0 || cohort->rank >= cohort->size)
    throw Error(Errc::invalid_argument,
                "the cohort has rank " + std::to_string(cohort->rank) + " of " + std::to_string(cohort->size));
  if (!cohort->broadcast || !cohort->gather)
    throw Error(Errc::invalid_argument, "the cohort lacks broadcast or gather");
  return result;
}

}  // namespace penstock::capi
