// Fault points: places where a test may stop or kill this process, or replace what is sent by garbage.
//
// A point is named by what happens there ("send:announce", "ring-push:3", "segment-send", "data-reply"). The hook is
// called before the action, half-way through where the action has a half, and after it, in the thread that acts. Without
// a hook a point costs one relaxed load. Only tests set a hook.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace penstock::base {

enum class FaultPhase { before, half, after };

// Returns true to have the bytes replaced by garbage where the point sends any (asked in phase `before` only).
using FaultHook = bool (*)(std::string_view point, FaultPhase phase);

inline std::atomic<FaultHook> fault_hook{nullptr};

inline bool fault_point(std::string_view point, FaultPhase phase) {
  const FaultHook hook = fault_hook.load(std::memory_order_relaxed);
  return hook != nullptr && hook(point, phase);
}

// For points whose name has two parts: "prefix:name", joined only when there is a hook.
inline bool fault_point(std::string_view prefix, std::string_view name, FaultPhase phase) {
  const FaultHook hook = fault_hook.load(std::memory_order_relaxed);
  if (hook == nullptr) return false;
  return hook(std::string(prefix) + ":" + std::string(name), phase);
}

}  // namespace penstock::base
