#include "penstock/interrupt.hpp"

namespace penstock {
namespace {

thread_local InterruptHandler* present = nullptr;

}  // namespace

InterruptHandler::InterruptHandler(bool (*ask)(void*), void* context) : ask_(ask), context_(context), before_(present) {
  present = this;
}

InterruptHandler::~InterruptHandler() { present = before_; }

bool interrupted() {
  if (present == nullptr) return false;
  if (!present->said_yes_) present->said_yes_ = present->ask_(present->context_);
  return present->said_yes_;
}

}  // namespace penstock
