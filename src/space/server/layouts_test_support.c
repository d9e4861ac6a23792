/* Plug-ins of layouts that are wrong, each in its own way. */
#include <string.h>

#include "penstock/layout_plugin.h"

#ifndef LAYOUTS_NONE

static int bytes(const penstock_layout_box* box, uint64_t* bytes, char* message, size_t message_bytes) {
  *bytes = box->count[0] * box->count[1] * box->element_bytes;
  if (box->ndims == 2 && box->count[0] == box->count[1]) return 0;
  strncpy(message, "only squares", message_bytes);
  return 1;
}

/* Fills all of the message, without a NUL. */
static int shouts(const penstock_layout_box* box, const void* from, void* to, char* message, size_t message_bytes) {
  (void)box, (void)from, (void)to;
  memset(message, '!', message_bytes);
  return -1;
}

static int is_silent(const penstock_layout_box* box, const void* from, void* to, char* message, size_t message_bytes) {
  (void)box, (void)from, (void)to, (void)message, (void)message_bytes;
  return 1;
}

const penstock_layout_table* penstock_layouts(void) {
#ifdef LAYOUTS_FAILING
  static const penstock_layout layouts[] = {{"failing", bytes, shouts, is_silent}};
#elif defined LAYOUTS_INCOMPLETE
  static const penstock_layout layouts[] = {{"first", bytes, shouts, is_silent}, {"second", bytes, NULL, is_silent}};
#else
  static const penstock_layout layouts[] = {{"first", bytes, shouts, is_silent}, {"tiled16", bytes, shouts, is_silent}};
#endif
#ifdef LAYOUTS_OTHER
  static const penstock_layout_table table = {PENSTOCK_LAYOUT_ABI + 1, 1, layouts};
#else
  static const penstock_layout_table table = {PENSTOCK_LAYOUT_ABI, sizeof layouts / sizeof layouts[0], layouts};
#endif
  return &table;
}

#endif
