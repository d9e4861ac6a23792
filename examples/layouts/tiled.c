/* A plug-in of layouts (penstock/layout_plugin.h): "tiled16" and "tiled4". A box is cut into tiles of 16 (4) elements along each
   dimension, fewer at its end. Tiles lie one behind the other in rows of tiles, and the elements of a tile in rows, so that
   neighbours in all dimensions are near. Nothing is padded. */
#include <string.h>

#include "penstock/layout_plugin.h"

enum { most_dimensions = 8 };

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static int bytes(const penstock_layout_box* box, uint64_t* bytes, char* message, size_t message_bytes) {
  (void)message, (void)message_bytes;
  *bytes = box->element_bytes;
  for (size_t d = 0; d < box->ndims; ++d) *bytes *= box->count[d];
  return 0;
}

/* Advances `at` in row order through a box of `count`, by `step` in each dimension. Returns 0 behind the last place. */
static int next(size_t ndims, uint64_t* at, const uint64_t* count, const uint64_t* step) {
  for (size_t d = ndims; d-- > 0;) {
    at[d] += step[d];
    if (at[d] < count[d]) return 1;
    at[d] = 0;
  }
  return 0;
}

/* Copies each row of each tile, from the rows of the box to the tiles or back. */
static void move(const penstock_layout_box* box, uint64_t edge, char* rows, char* tiles, int to_rows) {
  const size_t last = box->ndims - 1;
  uint64_t step[most_dimensions], tile[most_dimensions] = {0};
  for (size_t d = 0; d <= last; ++d) step[d] = edge;
  do {
    uint64_t size[most_dimensions], by[most_dimensions], at[most_dimensions] = {0};
    for (size_t d = 0; d <= last; ++d) size[d] = least(edge, box->count[d] - tile[d]), by[d] = 1;
    by[last] = size[last];
    const size_t run = size[last] * box->element_bytes;
    do {
      uint64_t element = 0;
      for (size_t d = 0; d <= last; ++d) element = element * box->count[d] + tile[d] + at[d];
      char* row = rows + element * box->element_bytes;
      if (to_rows) memcpy(row, tiles, run);
      else memcpy(tiles, row, run);
      tiles += run;
    } while (next(box->ndims, at, size, by));
  } while (next(box->ndims, tile, box->count, step));
}

#define TILED(edge)                                                                                              \
  static int from_rows_##edge(const penstock_layout_box* box, const void* rows, void* data, char* m, size_t n) { \
    (void)m, (void)n;                                                                                            \
    move(box, edge, (char*)rows, data, 0);                                                                       \
    return 0;                                                                                                    \
  }                                                                                                              \
  static int to_rows_##edge(const penstock_layout_box* box, const void* data, void* rows, char* m, size_t n) {   \
    (void)m, (void)n;                                                                                            \
    move(box, edge, rows, (char*)data, 1);                                                                       \
    return 0;                                                                                                    \
  }
TILED(16)
TILED(4)

const penstock_layout_table* penstock_layouts(void) {
  static const penstock_layout layouts[] = {{"tiled16", bytes, from_rows_16, to_rows_16},
                                            {"tiled4", bytes, from_rows_4, to_rows_4}};
  static const penstock_layout_table table = {PENSTOCK_LAYOUT_ABI, 2, layouts};
  return &table;
}
