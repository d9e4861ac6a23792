// What penstock/kokkos.hpp keeps in a process between Kokkos::Staging::initialize and finalize: the space, and the puts under way. Not
// to be included by itself.
//
// Ownership: the views of puts under way live until fence() has waited for their puts. Threads: all may call. Errors: those of
// penstock::Space.
#pragma once

#include <Kokkos_Core.hpp>

#if KOKKOS_VERSION / 100 != 304
#error "penstock/kokkos.hpp uses internals of Kokkos 3.4; it has not been ported to this version"
#endif

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/space.hpp"
#include "penstock/stream.hpp"

namespace penstock::staging::detail {

// Which box of which array a view is.
struct Target {
  std::string array;
  std::uint64_t version = 0;
  Dims extents, lower, upper;  // empty: not known yet

  Box box() const {
    const Box box{lower.empty() ? Dims::filled(extents.size(), 0) : lower, extents};
    for (std::size_t d = 0; d < upper.size(); ++d)
      if (upper[d] + 1 != box.start[d] + extents[d])
        throw Error(Errc::invalid_argument, "array '" + array + "': the bounds of dimension " + std::to_string(d) +
                                                ", " + std::to_string(box.start[d]) + " to " +
                                                std::to_string(upper[d]) + ", do not fit the view's extent " +
                                                std::to_string(extents[d]));
    return box;
  }
};

// What a process has between initialize and finalize.
class Session {
 public:
  void open(const Context& context, PoolOptions options) {
    if (!Kokkos::is_initialized())
      throw Error(Errc::wrong_state, "Kokkos is to be initialized before its staging space");
    const std::lock_guard lock(mutex_);
    if (space_) throw Error(Errc::wrong_state, "the staging space is initialized already");
    space_ = std::make_shared<Space>(context, std::move(options));
    hook();
  }
  void close() {
    space();
    release();
    fence();
  }
  void release() {
    const std::lock_guard lock(mutex_);
    space_.reset();
  }
  std::shared_ptr<Space> space() {
    const std::lock_guard lock(mutex_);
    if (!space_) throw Error(Errc::wrong_state, "Kokkos::Staging::initialize has not been called");
    return space_;
  }

  PendingPut start_put(const Target& to, DType dtype, const void* data, const ArrayMemory& memory) {
    const Box box = to.box();
    const auto space = this->space();
    define_missing(*space, to.array, dtype, box);
    return space->start_put(to.array, to.version, box, data, memory);
  }
  void get(const Target& from, void* data, const ArrayMemory& memory) {
    fence();  // the elements may be those of a put that has not ended
    space()->get(from.array, from.version, from.box(), data, memory);
  }

  void keep(PendingPut put, std::shared_ptr<const void> source) {
    const std::lock_guard lock(mutex_);
    pending_.push_back({std::move(source), std::move(put)});
  }
  // Waits for every put, and throws the first error.
  void fence() {
    std::vector<Pending> pending;  // its views go after the lock
    const std::lock_guard one(fencing_);
    {
      const std::lock_guard lock(mutex_);
      pending.swap(pending_);
    }
    std::optional<Error> first;
    for (auto& [source, put] : pending) {
      try {
        put.wait();
      } catch (const Error& error) {
        if (!first) first = error.in("deep_copy");
      }
    }
    if (first) throw *first;
  }

 private:
  struct Pending {
    std::shared_ptr<const void> source;
    PendingPut put;  // goes before its source
  };
  struct Hook final : Kokkos::Impl::ExecSpaceInitializerBase {
    explicit Hook(Session& of) : session(of) {}
    void initialize(const Kokkos::InitArguments&) override {}
    void finalize(bool) override { session.release(); }
    void fence() override { session.fence(); }
    void print_configuration(std::ostream&, bool) override {}
    Session& session;
  };
  // From now on Kokkos::fence() calls us.
  void hook() {
    if (std::exchange(hooked_, true)) return;
    Kokkos::Impl::ExecSpaceManager::get_instance().register_space_factory("900_PenstockStaging",
                                                                          std::make_unique<Hook>(*this));
  }
  // Each time: an array may be dropped, and a put would wait until it is defined again.
  static void define_missing(Space& space, const std::string& array, DType dtype, const Box& box) {
    try {
      space.info(array);
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;
      Dims shape = box.count;
      for (std::size_t d = 0; d < shape.size(); ++d) shape[d] += box.start[d];
      try {
        space.define(array, dtype, shape);
      } catch (const Error& other) {
        if (other.code() != Errc::already_exists) throw;  // else another program was faster
      }
    }
  }

  std::mutex fencing_;  // held while puts are waited for; before mutex_
  std::mutex mutex_;    // guards what follows
  std::shared_ptr<Space> space_;
  std::vector<Pending> pending_;
  bool hooked_ = false;
};

inline Session& session() {
  static Session session;
  return session;
}

}  // namespace penstock::staging::detail
