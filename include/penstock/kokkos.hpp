// The array space as a memory space of Kokkos: a view in penstock::StagingSpace names an array of a pool, and Kokkos::deep_copy puts
// and gets boxes of it. Header only, for Kokkos 3.4 (Debian 12's); link Penstock::kokkos.
// Source: SAND2021-10271. Its names are here too: Kokkos::StagingSpace, Kokkos::Staging::initialize, ...
//
//   Kokkos::View<double**, Kokkos::StagingSpace> T("T", 100, 200);  // the box of array T that this program holds
//   Kokkos::Staging::set_version(T, 7);                             // unless 0
//   Kokkos::Staging::set_lower_bound(T, 300, 0);                    // where the box begins, unless at 0, 0
//   Kokkos::Staging::set_upper_bound(T, 399, 199);                  // its last element; optional, it must fit the extents
//   Kokkos::deep_copy(T, host);                                     // put; deep_copy(host, T) gets
//
// Shapes: views have 1 to 8 dimensions; their extents are those of the box, not of the array. A put to an array that nobody has
// defined defines it, with the view's element type and just large enough for the box (upper bound + 1): programs that put parts of a
// larger array call define first. Elements are addressed by their indices: layouts of both views may differ, and the layout of a
// staging view has no effect.
//
// Ownership: a staging view has no memory; version and bounds belong to the view, and its copies share them. deep_copy(dst, src)
// returns when the source may be changed or the destination is complete. deep_copy(exec, staging, host) copies nothing in the
// caller: the host view is read until Kokkos::fence() or Kokkos::Staging::fence() has returned, and kept alive so long (not an
// unmanaged one). exec.fence() does not wait for it. A view in a device's memory is first copied to a host mirror.
//
// A put waits for no reader; a get waits until all elements are there, up to PoolOptions::timeout_ms.
// Threads: as for a Space; one view is used by one thread at a time. Errors: those of penstock::Space; of deep_copy(exec, ...)
// to a staging view, at the fence; wrong_state before initialize. Copies between two staging views, and of one value to all elements (which could not be put again
// with other values), do not compile.
#pragma once

#include <sys/mman.h>
#include <unistd.h>
#include <Kokkos_Core.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "penstock/error.hpp"
#include "penstock/kokkos_session.hpp"
#include "penstock/space.hpp"
#include "penstock/stream.hpp"

namespace penstock {

class StagingSpace {
 public:
  using memory_space = StagingSpace;
  using execution_space = Kokkos::DefaultHostExecutionSpace;
  using device_type = Kokkos::Device<execution_space, memory_space>;
  using size_type = std::size_t;
  static constexpr const char* name() { return "Staging"; }
};

namespace staging {

template <class V>
concept StagingView = Kokkos::is_view<V>::value && std::is_same_v<typename V::memory_space, StagingSpace>;
template <class E>
concept ExecutionSpace = Kokkos::is_execution_space<E>::value;

namespace detail {

// The memory of a staging view: addresses that nothing can be read from, behind a page for Kokkos's header.
inline std::byte* map_nothing(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const begin = mmap(nullptr, page + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED || mprotect(begin, page, PROT_READ | PROT_WRITE) != 0)
    throw Error(Errc::memory, "there are no addresses for a staging view");
  return static_cast<std::byte*>(begin) + page;
}
inline void unmap_nothing(void* memory, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  munmap(static_cast<std::byte*>(memory) - page, page + bytes);
}

template <class T>
constexpr DType element_type() {
  if constexpr (std::is_same_v<T, Kokkos::complex<float>>) return DType::complex64;
  else if constexpr (std::is_same_v<T, Kokkos::complex<double>>) return DType::complex128;
  else return dtype_of<T>();
}
template <class V>
inline constexpr DType dtype = element_type<typename V::non_const_value_type>();

template <class V>
Dims extents(const V& view) {
  Dims dims = Dims::filled(unsigned(V::rank), 0);
  for (std::size_t d = 0; d < dims.size(); ++d) dims[d] = view.extent(d);
  return dims;
}
template <class V>
ArrayMemory memory(const V& view) {
  ArrayMemory memory{dtype<V>};
  for (unsigned d = 0; d < unsigned(V::rank); ++d)
    memory.strides.push_back(static_cast<std::int64_t>(view.stride(d) * sizeof(typename V::value_type)));
  return memory;
}

template <StagingView V>
Target& target(const V& view);  // of a view: below, as it is part of Kokkos's record

// The target, when the other view has the same extents.
template <StagingView V, class Other>
const Target& target_for(const V& view, const Other& other) {
  const Target& target = detail::target(view);
  if (extents(other) != target.extents)
    throw Error(Errc::invalid_argument, "array '" + target.array + "': the staging view has the extents " +
                                            to_string(target.extents) + ", the other view " +
                                            to_string(extents(other)));
  return target;
}

template <StagingView V, std::integral... I>
Dims indices(const V&, I... values) {
  static_assert(sizeof...(I) == unsigned(V::rank), "give one number for each dimension of the staging view");
  if (!(std::in_range<std::uint64_t>(values) && ...)) throw Error(Errc::invalid_argument, "an index is negative");
  return Dims{static_cast<std::uint64_t>(values)...};
}

template <class V>
inline constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename V::memory_space>::accessible;

// Of a view in a device's memory: rows in the device's memory, to which and from which Kokkos copies on the device whatever the
// view's layout is, and their mirror on the host.
template <class V>
struct Mirrored {
  using Rows = Kokkos::View<typename V::non_const_data_type, Kokkos::LayoutRight, typename V::device_type>;
  explicit Mirrored(const V& view)
      : rows(Kokkos::view_alloc(std::string("staging"), Kokkos::WithoutInitializing), layout(view)),
        host(Kokkos::create_mirror_view(rows)) {}
  Rows rows;
  typename Rows::HostMirror host;

 private:
  static Kokkos::LayoutRight layout(const V& view) {
    Kokkos::LayoutRight layout;
    for (unsigned d = 0; d < unsigned(V::rank); ++d) layout.dimension[d] = view.extent(d);
    return layout;
  }
};

template <class D, class S>
constexpr void require_copyable() {
  static_assert(!StagingView<D> || !StagingView<S>,
                "deep_copy between two staging views: get into a view in memory, and put that");
  static_assert(unsigned(D::rank) == unsigned(S::rank), "deep_copy: the views are to have the same rank");
  static_assert(unsigned(D::rank) >= 1, "deep_copy: staging views have 1 to 8 dimensions");
  static_assert(std::is_same_v<typename D::value_type, typename S::non_const_value_type>,
                "deep_copy: the views are to have the same element type, and the destination's is not const");
}

template <StagingView D, class S>
void put(const D& to, const S& from) {
  require_copyable<D, S>();
  Kokkos::fence();  // kernels may still write the source
  if constexpr (on_host<S>) {
    const Target& target = target_for(to, from);
    if (from.size() > 0) session().start_put(target, dtype<D>, from.data(), memory(from)).wait();
  } else if constexpr (!StagingView<S>) {
    const Mirrored<S> mirrored(from);
    Kokkos::deep_copy(mirrored.rows, from);
    Kokkos::deep_copy(mirrored.host, mirrored.rows);
    put(to, mirrored.host);
  }
}

template <ExecutionSpace Exec, StagingView D, class S>
void start_put(const Exec& exec, const D& to, const S& from) {
  require_copyable<D, S>();
  exec.fence();
  if constexpr (on_host<S>) {
    const Target& target = target_for(to, from);
    auto source = std::make_shared<const S>(from);
    if (from.size() > 0)
      session().keep(session().start_put(target, dtype<D>, from.data(), memory(from)), std::move(source));
  } else if constexpr (!StagingView<S>) {
    const Mirrored<S> mirrored(from);
    Kokkos::deep_copy(exec, mirrored.rows, from);
    Kokkos::deep_copy(exec, mirrored.host, mirrored.rows);
    start_put(exec, to, mirrored.host);
  }
}

template <class D, StagingView S>
void get(const D& to, const S& from) {
  require_copyable<D, S>();
  Kokkos::fence();  // kernels may still read the destination
  if constexpr (on_host<D>) {
    const Target& target = target_for(from, to);
    if (to.size() > 0) session().get(target, to.data(), memory(to));
  } else {
    const Mirrored<D> mirrored(to);
    get(mirrored.host, from);
    Kokkos::deep_copy(mirrored.rows, mirrored.host);
    Kokkos::deep_copy(to, mirrored.rows);
  }
}

template <StagingView D>
constexpr void refuse_value() {
  static_assert(!StagingView<D>,
                "deep_copy of one value to a staging view: elements are put once; fill a view in memory, and put that");
}

}  // namespace detail

// After Kokkos::initialize. The pool is the one of the context's directory, or the one that the options name.
inline void initialize(const Context& context, PoolOptions options = {}) {
  detail::session().open(context, std::move(options));
}
inline void initialize() { initialize(Context()); }
// Before Kokkos::finalize. Waits for puts as fence does; when that throws, everything is released all the same.
inline void finalize() { detail::session().close(); }
// Waits until every put of deep_copy(exec, ...) is done, of all threads. Throws the first error of one.
inline void fence() { detail::session().fence(); }
// The arrays of the pool: to define them with options, to list and drop versions. It stays until finalize.
inline Space& space() { return *detail::session().space(); }

// The version that is put or got.
template <StagingView V>
void set_version(const V& view, std::uint64_t version) {
  detail::target(view).version = version;
}
// The first element of the box in the array, and the last one: an index for each dimension. The box must have the view's extents
// when it is copied.
template <StagingView V, std::integral... I>
void set_lower_bound(const V& view, I... bounds) {
  detail::target(view).lower = detail::indices(view, bounds...);
}
template <StagingView V, std::integral... I>
void set_upper_bound(const V& view, I... bounds) {
  detail::target(view).upper = detail::indices(view, bounds...);
}
// From now on the view is of the array of another one, which has the same extents and usually another layout.
template <StagingView V, StagingView Other>
void view_bind_layout(const V& view, const Other& other) {
  static_assert(unsigned(V::rank) == unsigned(Other::rank), "view_bind_layout: the views are to have the same rank");
  static_assert(std::is_same_v<typename V::non_const_value_type, typename Other::non_const_value_type>,
                "view_bind_layout: the views are to have the same element type");
  detail::target(view).array = detail::target_for(other, view).array;
}
// Defines the array of the view with these extents: what each program calls that puts a part of it. The same again is no error.
template <StagingView V, std::integral... I>
ArrayInfo define(const V& view, I... extents) {
  return space().define(detail::target(view).array, detail::dtype<V>, detail::indices(view, extents...));
}

}  // namespace staging
}  // namespace penstock

namespace Kokkos {

using penstock::StagingSpace;
namespace Experimental {
using penstock::StagingSpace;
}
namespace Staging = penstock::staging;

namespace Impl {

// Kokkos's record of a view's memory.
template <>
class SharedAllocationRecord<StagingSpace, void> : public SharedAllocationRecord<void, void> {
 public:
  ~SharedAllocationRecord() override { Staging::detail::unmap_nothing(data(), size()); }
  std::string get_label() const override { return label_; }
  Staging::detail::Target target;
  std::size_t span = 0;  // elements; 0: not known

 protected:
  SharedAllocationRecord(const std::string& label, std::size_t bytes)
      : SharedAllocationRecord<void, void>(
#ifdef KOKKOS_ENABLE_DEBUG
            &root_,
#endif
            reinterpret_cast<SharedAllocationHeader*>(Staging::detail::map_nothing(bytes)) - 1,
            bytes + sizeof(SharedAllocationHeader), [](SharedAllocationRecord<void, void>* record) { delete record; }),
        label_(label) {
    target.array = label;
    m_alloc_ptr->m_record = this;
  }

 private:
#ifdef KOKKOS_ENABLE_DEBUG
  inline static SharedAllocationRecord<void, void> root_;
#endif
  const std::string label_;
};

// Kokkos wants to construct the elements of a view, and to destroy them: there are none.
template <class Functor>
class SharedAllocationRecord<StagingSpace, Functor> final : public SharedAllocationRecord<StagingSpace, void> {
 public:
  static SharedAllocationRecord* allocate(const StagingSpace&, const std::string& label, std::size_t bytes) {
    return new SharedAllocationRecord(label, bytes);
  }
  struct Nothing {
    void operator=(const Functor& functor) { span = functor.n; }
    void construct_shared_allocation() {}
    std::size_t& span;
  } m_destroy{this->span};

 private:
  using SharedAllocationRecord<StagingSpace, void>::SharedAllocationRecord;
};

template <class Space>
struct verify_space<Space, StagingSpace, false> {
  static void check() {
    static_assert(!std::is_same_v<Space, Space>, "a staging view has no elements in memory: deep_copy to a host view");
  }
};

}  // namespace Impl

// Preferred to Kokkos's own: a View with at least one property is more special than any View.
template <class DT, class P, class... DP, class ST, class... SP>
  requires Staging::StagingView<View<DT, P, DP...>>
void deep_copy(const View<DT, P, DP...>& dst, const View<ST, SP...>& src) { Staging::detail::put(dst, src); }
template <Staging::ExecutionSpace Exec, class DT, class P, class... DP, class ST, class... SP>
  requires Staging::StagingView<View<DT, P, DP...>>
void deep_copy(const Exec& exec, const View<DT, P, DP...>& dst, const View<ST, SP...>& src) {
  Staging::detail::start_put(exec, dst, src);
}
template <class DT, class... DP, class ST, class P, class... SP>
  requires(Staging::StagingView<View<ST, P, SP...>> && !Staging::StagingView<View<DT, DP...>>)
void deep_copy(const View<DT, DP...>& dst, const View<ST, P, SP...>& src) { Staging::detail::get(dst, src); }
template <Staging::ExecutionSpace Exec, class DT, class... DP, class ST, class P, class... SP>
  requires(Staging::StagingView<View<ST, P, SP...>> && !Staging::StagingView<View<DT, DP...>>)
void deep_copy(const Exec& exec, const View<DT, DP...>& dst, const View<ST, P, SP...>& src) {
  exec.fence();
  Staging::detail::get(dst, src);
}
template <class DT, class P, class... DP>
  requires Staging::StagingView<View<DT, P, DP...>>
void deep_copy(const View<DT, P, DP...>&, typename ViewTraits<DT, P, DP...>::const_value_type&) {
  Staging::detail::refuse_value<View<DT, P, DP...>>();
}
template <Staging::ExecutionSpace Exec, class DT, class P, class... DP>
  requires Staging::StagingView<View<DT, P, DP...>>
void deep_copy(const Exec&, const View<DT, P, DP...>&, typename ViewTraits<DT, P, DP...>::const_value_type&) {
  Staging::detail::refuse_value<View<DT, P, DP...>>();
}

}  // namespace Kokkos

namespace penstock::staging::detail {

template <StagingView V>
Target& target(const V& view) {
  using Record = Kokkos::Impl::SharedAllocationRecord<StagingSpace, void>;
  Record* const record = view.impl_track().template get_record<StagingSpace>();
  if (record == nullptr) throw Error(Errc::invalid_argument, "a staging view without a label, or an unmanaged one");
  auto& target = record->target;
  const std::size_t bytes = view.span() * sizeof(typename V::value_type);
  const bool whole = view.data() == record->data() &&
                     (record->span > 0 ? view.span() == record->span : (bytes + 7) / 8 == (record->size() + 7) / 8);
  if (whole && target.extents.empty()) target.extents = extents(view);
  if (!whole || target.extents != extents(view))
    throw Error(Errc::unsupported, "array '" + target.array +
                                       "': this is a part of a staging view; a view of its own with bounds will do");
  return target;
}

}  // namespace penstock::staging::detail
