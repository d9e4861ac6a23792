/* Layouts of arrays that a shared object supplies: elements that lie neither in rows nor in columns nor with strides, as in
   tiles or along a curve. Source: SAND2021-10271, plug-in transposition and registry of layouts.

   The shared object needs this header and no library. It exports

     const penstock_layout_table* penstock_layouts(void);

   and is loaded by programs that ask for it: penstock::load_layouts(path), penstock.layouts.load(path). It stays loaded; the
   table and what it points to stay unchanged. A box of an array is then put and got in the layout, by its name: the program
   that puts or gets converts the whole box, from rows or to rows, in memory of its own.

   The functions are called by any threads, several at once. They return 0, or anything else for a failure, of which they may
   write a reason into message: at most message_bytes with the final NUL. They must not throw. examples/layouts/tiled.c is
   an example. */
#ifndef PENSTOCK_LAYOUT_PLUGIN_H
#define PENSTOCK_LAYOUT_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a struct here does. */
#define PENSTOCK_LAYOUT_ABI 1

typedef struct penstock_layout_box {
  size_t ndims;          /* 1 to 8 */
  const uint64_t* count; /* elements in each dimension, dimension 0 the slowest in rows; none is 0 */
  size_t element_bytes;  /* elements are moved, and not looked at */
} penstock_layout_box;

typedef struct penstock_layout {
  const char* name; /* 1 to 64 bytes */
  /* How many bytes the box takes in the layout, with all padding. */
  int (*bytes)(const penstock_layout_box* box, uint64_t* bytes, char* message, size_t message_bytes);
  /* All elements of the box, which lie in rows without gaps, into the layout. Bytes of padding may stay as they are. */
  int (*from_rows)(const penstock_layout_box* box, const void* rows, void* data, char* message, size_t message_bytes);
  int (*to_rows)(const penstock_layout_box* box, const void* data, void* rows, char* message, size_t message_bytes);
} penstock_layout;

typedef struct penstock_layout_table {
  uint32_t abi; /* PENSTOCK_LAYOUT_ABI */
  uint32_t count;
  const penstock_layout* layouts;
} penstock_layout_table;

typedef const penstock_layout_table* (*penstock_layouts_function)(void);

#ifdef __cplusplus
}
#endif

#endif
