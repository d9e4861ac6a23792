/* Where the elements of an array of any type and rank lie, for the C part of the Fortran modules.

   Arrays come as the C descriptors of TS 29113. Only base_addr, rank and dim are read: gfortran 12 does not fill in the
   type and the size of unlimited polymorphic arguments, so the type comes beside it, as a penstock_dtype or
   WIDE_LOGICAL. start and block count from 1 on this side. Everything is static: programs may compile the modules into
   themselves, and have a function `fail` of their own. */
#ifndef PENSTOCK_DESCRIPTORS_H
#define PENSTOCK_DESCRIPTORS_H

#include <ISO_Fortran_binding.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "penstock/penstock.h"

/* A logical of four bytes. Its lowest byte is a penstock boolean, so that an array of them is an array of booleans with
   strides of four bytes. */
enum { WIDE_LOGICAL = 100, WIDE_BYTES = 4 };
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lowest byte of a logical is its first");

typedef uint64_t dims[PENSTOCK_MAX_DIMS];

static inline int fail(penstock_error* error, int code, const char* format, ...) {
  va_list arguments;
  error->code = code;
  va_start(arguments, format);
  vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return code;
}

static inline int dtype_of(int type) { return type == WIDE_LOGICAL ? PENSTOCK_BOOLEAN : type; }

static inline size_t bytes_of(int type) { return type == WIDE_LOGICAL ? WIDE_BYTES : penstock_dtype_size(type); }

/* Unsigned integers and floats of 16 bits are carried in the integer of their size, which Fortran has. */
static inline bool carries(int type, int dtype) {
  type = dtype_of(type);
  if (type == dtype) return true;
  if (dtype == PENSTOCK_FLOAT16 || dtype == PENSTOCK_BFLOAT16) return type == PENSTOCK_INT16;
  return dtype >= PENSTOCK_UINT8 && dtype <= PENSTOCK_UINT64 && type == dtype - PENSTOCK_UINT8 + PENSTOCK_INT8;
}

/* "(2, 3)", in one of a few places that take turns. */
static inline const char* text_of(size_t ndims, const uint64_t* sizes) {
  static _Thread_local char texts[2][PENSTOCK_MAX_DIMS * 22 + 3];
  static _Thread_local int turn;
  char* text = texts[turn = !turn];
  size_t used = (size_t)sprintf(text, "(");
  for (size_t d = 0; d < ndims; ++d)
    used += (size_t)sprintf(text + used, "%s%llu", d ? ", " : "", (unsigned long long)sizes[d]);
  strcpy(text + used, ")");
  return text;
}

/* ----------------------------------------------------------------------------------------------------- descriptors */

static inline char* element(const CFI_cdesc_t* array, CFI_index_t index) {
  return (char*)array->base_addr + (array->rank > 0 ? index * array->dim[0].sm : 0);
}

/* gfortran leaves the extents of an array that was never allocated undefined, and gives some expressions without
   elements, as [real ::], no address. So an array without an address is empty if its extents say so. */
static inline bool is_allocated(const CFI_cdesc_t* array) {
  bool empty = false, sized = true;
  for (int d = 0; d < array->rank; ++d) {
    empty |= array->dim[d].extent == 0;
    sized &= array->dim[d].extent >= 0;
  }
  return array->base_addr != NULL || (empty && sized);
}

/* The sizes of an array. An array of assumed size has none. */
static inline int shape_of(const CFI_cdesc_t* array, const char* name, uint64_t* shape, penstock_error* error) {
  if (array->rank > PENSTOCK_MAX_DIMS)
    return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s': arrays have at most %d dimensions", name,
                PENSTOCK_MAX_DIMS);
  if (!is_allocated(array)) return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s': the array is not allocated", name);
  for (int d = 0; d < array->rank; ++d) {
    if (array->dim[d].extent < 0)
      return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s': give a section, for an array a(*) has no size", name);
    shape[d] = (uint64_t)array->dim[d].extent;
  }
  return PENSTOCK_OK;
}

/* A vector of integers of 4 or 8 bytes, of which each is at least `least`, less `base`. NULL: nothing is done. */
static inline int read_sizes(const CFI_cdesc_t* vector, const char* name, const char* what, int64_t least, int64_t base,
                             size_t* ndims, uint64_t* out, penstock_error* error) {
  if (vector == NULL) return PENSTOCK_OK;
  if (vector->type != CFI_type_int32_t && vector->type != CFI_type_int64_t)
    return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s': %s is not a vector of integers of 4 or 8 bytes", name,
                what);
  if (vector->dim[0].extent > PENSTOCK_MAX_DIMS || (*ndims != SIZE_MAX && *ndims != (size_t)vector->dim[0].extent))
    return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s': %s has %lld elements, not one for each dimension", name,
                what, (long long)vector->dim[0].extent);
  *ndims = (size_t)vector->dim[0].extent;
  for (size_t d = 0; d < *ndims; ++d) {
    const void* place = element(vector, (CFI_index_t)d);
    int64_t size = vector->type == CFI_type_int32_t ? *(const int32_t*)place : *(const int64_t*)place;
    if (size < least)
      return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s': %s(%zu) is %lld; the least is %lld", name, what, d + 1,
                  (long long)size, (long long)least);
    out[d] = (uint64_t)(size - base);
  }
  return PENSTOCK_OK;
}

/* The bytes between neighbours in each dimension of a box which the array holds. The array may lack dimensions in which
   the box has one element. */
static inline int strides_of(const CFI_cdesc_t* array, const char* name, size_t ndims, const uint64_t* count,
                             int64_t* strides, penstock_error* error) {
  dims shape;
  size_t used = 0, rank = (size_t)array->rank;
  int code = shape_of(array, name, shape, error);
  if (code != PENSTOCK_OK) return code;
  for (size_t d = 0; d < ndims; ++d) {
    strides[d] = 0;
    if (used < rank && shape[used] == count[d]) strides[d] = array->dim[used++].sm;
    else if (count[d] != 1) used = rank + 1;
  }
  if (used == rank) return PENSTOCK_OK;
  return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s': the array is %s, and the box is %s", name,
              text_of(rank, shape), text_of(ndims, count));
}

/* The box at start that the array holds, and where its elements lie. *ndims: known, or SIZE_MAX. start, count: vectors
   or NULL, for ones and for the array's own sizes. */
static inline int box_of(const CFI_cdesc_t* array, const char* name, const CFI_cdesc_t* start, const CFI_cdesc_t* count,
                         size_t* ndims, uint64_t* origin, uint64_t* sizes, int64_t* strides, penstock_error* error) {
  int code = read_sizes(start, name, "start", 1, 1, ndims, origin, error);
  if (code == PENSTOCK_OK) code = read_sizes(count, name, "count", 0, 0, ndims, sizes, error);
  if (code != PENSTOCK_OK) return code;
  if (*ndims == SIZE_MAX) *ndims = (size_t)array->rank;
  if (count == NULL) {
    for (size_t d = 0; d < *ndims; ++d) sizes[d] = 1;
    code = shape_of(array, name, sizes, error);
  }
  return code == PENSTOCK_OK ? strides_of(array, name, *ndims, sizes, strides, error) : code;
}

static inline uint64_t elements_of(const CFI_cdesc_t* array) {
  uint64_t elements = 1;
  for (int d = 0; d < array->rank; ++d) elements *= (uint64_t)array->dim[d].extent;
  return elements;
}

/* The element of an index, which goes on to the next one in Fortran's order. */
static inline char* next_element(const CFI_cdesc_t* array, CFI_index_t* index) {
  char* place = array->base_addr;
  for (int d = 0; d < array->rank; ++d) place += index[d] * array->dim[d].sm;
  for (int d = 0; d < array->rank && ++index[d] == array->dim[d].extent; ++d) index[d] = 0;
  return place;
}

/* Makes each wide logical of an array one whose lowest byte is all of it. */
static inline void clear_upper_bytes(const CFI_cdesc_t* array) {
  CFI_index_t index[CFI_MAX_RANK] = {0};
  for (uint64_t i = elements_of(array); i > 0; --i) memset(next_element(array, index) + 1, 0, WIDE_BYTES - 1);
}

/* NULL where the elements of a box are packed in column order, which servers convert to; else the strides. */
static inline const int64_t* unless_packed(size_t ndims, const uint64_t* sizes, const int64_t* strides, int type) {
  int64_t packed = (int64_t)penstock_dtype_size(dtype_of(type));
  for (size_t d = 0; d < ndims; ++d) {
    if (sizes[d] > 1 && strides[d] != packed) return strides;
    packed *= (int64_t)sizes[d];
  }
  return NULL;
}

#endif
