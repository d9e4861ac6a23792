/* What the module penstock cannot say in Fortran: where the elements of an array of any type and rank lie.

   Arrays come as the C descriptors of TS 29113. Only base_addr, rank and dim are read: gfortran 12 does not fill in the
   type and the size of unlimited polymorphic arguments, so the type comes beside it, as a penstock_dtype or
   WIDE_LOGICAL. Arrays keep their order: variables are column-major, with the same indices. start and block count from
   1 on this side. */
#include <ISO_Fortran_binding.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "penstock/penstock.h"
#include "penstock/space.h"

/* A logical of four bytes. Its lowest byte is a penstock boolean, so that an array of them is an array of booleans with
   strides of four bytes. */
enum { WIDE_LOGICAL = 100, WIDE_BYTES = 4 };
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lowest byte of a logical is its first");

typedef uint64_t dims[PENSTOCK_MAX_DIMS];

/* A variable that was put or defined. */
typedef struct variable {
  char* name;
  uint32_t id;
  int dtype, kind;
  size_t ndims;
  dims shape;
  bool shape_is_known; /* no longer, after a step with a new shape was given up */
  bool reshaped;       /* in the open step */
} variable;

/* The variables of a writer, by name. */
typedef struct penstock_fortran_variables {
  variable* entries;
  size_t count;
  int ranks; /* of the cohort */
} penstock_fortran_variables;

static int fail(penstock_error* error, int code, const char* format, ...) {
  va_list arguments;
  error->code = code;
  va_start(arguments, format);
  vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return code;
}

static int dtype_of(int type) { return type == WIDE_LOGICAL ? PENSTOCK_BOOLEAN : type; }

static size_t bytes_of(int type) { return type == WIDE_LOGICAL ? WIDE_BYTES : penstock_dtype_size(type); }

/* Unsigned integers and floats of 16 bits are carried in the integer of their size, which Fortran has. */
static bool carries(int type, int dtype) {
  type = dtype_of(type);
  if (type == dtype) return true;
  if (dtype == PENSTOCK_FLOAT16 || dtype == PENSTOCK_BFLOAT16) return type == PENSTOCK_INT16;
  return dtype >= PENSTOCK_UINT8 && dtype <= PENSTOCK_UINT64 && type == dtype - PENSTOCK_UINT8 + PENSTOCK_INT8;
}

/* "(2, 3)", in one of a few places that take turns. */
static const char* text_of(size_t ndims, const uint64_t* sizes) {
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

static char* element(const CFI_cdesc_t* array, CFI_index_t index) {
  return (char*)array->base_addr + (array->rank > 0 ? index * array->dim[0].sm : 0);
}

/* gfortran leaves the extents of an array that was never allocated undefined, and gives some expressions without
   elements, as [real ::], no address. So an array without an address is empty if its extents say so. */
static bool is_allocated(const CFI_cdesc_t* array) {
  bool empty = false, sized = true;
  for (int d = 0; d < array->rank; ++d) {
    empty |= array->dim[d].extent == 0;
    sized &= array->dim[d].extent >= 0;
  }
  return array->base_addr != NULL || (empty && sized);
}

/* The sizes of an array. An array of assumed size has none. */
static int shape_of(const CFI_cdesc_t* array, const char* name, uint64_t* shape, penstock_error* error) {
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
static int read_sizes(const CFI_cdesc_t* vector, const char* name, const char* what, int64_t least, int64_t base,
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
static int strides_of(const CFI_cdesc_t* array, const char* name, size_t ndims, const uint64_t* count, int64_t* strides,
                      penstock_error* error) {
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
static int box_of(const CFI_cdesc_t* array, const char* name, const CFI_cdesc_t* start, const CFI_cdesc_t* count,
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

/* Makes each wide logical of an array one whose lowest byte is all of it. */
static void clear_upper_bytes(const CFI_cdesc_t* array) {
  CFI_index_t index[CFI_MAX_RANK] = {0};
  uint64_t elements = 1;
  for (int d = 0; d < array->rank; ++d) elements *= (uint64_t)array->dim[d].extent;
  for (; elements > 0; --elements) {
    char* place = array->base_addr;
    for (int d = 0; d < array->rank; ++d) place += index[d] * array->dim[d].sm;
    memset(place + 1, 0, WIDE_BYTES - 1);
    for (int d = 0; d < array->rank && ++index[d] == array->dim[d].extent; ++d) index[d] = 0;
  }
}

/* ------------------------------------------------------------------------------------------------------- variables */

penstock_fortran_variables* penstock_fortran_variables_create(int ranks) {
  penstock_fortran_variables* known = calloc(1, sizeof *known);
  if (known != NULL) known->ranks = ranks;
  return known;
}

void penstock_fortran_variables_destroy(penstock_fortran_variables* known) {
  if (known == NULL) return;
  for (size_t i = 0; i < known->count; ++i) free(known->entries[i].name);
  free(known->entries);
  free(known);
}

/* Called when a step is over. lost: it was given up, and with it the shapes that it brought. */
void penstock_fortran_step_is_over(penstock_fortran_variables* known, int lost) {
  for (size_t i = 0; known != NULL && i < known->count; ++i) {
    if (lost && known->entries[i].reshaped) known->entries[i].shape_is_known = false;
    known->entries[i].reshaped = false;
  }
}

static int check_open(const penstock_fortran_variables* known, penstock_error* error) {
  return known != NULL ? PENSTOCK_OK
                       : fail(error, PENSTOCK_ERR_WRONG_STATE, "the writer is not open: call create_stream first");
}

static variable* find(const penstock_fortran_variables* known, const char* name) {
  for (size_t i = 0; i < known->count; ++i)
    if (strcmp(known->entries[i].name, name) == 0) return &known->entries[i];
  return NULL;
}

static int define(penstock_writer* writer, penstock_fortran_variables* known, variable made, int min_max,
                  variable** out, penstock_error* error) {
  penstock_variable_options options = {made.kind, PENSTOCK_COLUMN, min_max};
  variable* entries = realloc(known->entries, (known->count + 1) * sizeof *entries);
  if (entries != NULL) known->entries = entries;
  char* name = entries != NULL ? malloc(strlen(made.name) + 1) : NULL;
  if (name == NULL) return fail(error, PENSTOCK_ERR_MEMORY, "out of memory");
  strcpy(name, made.name);
  int code = penstock_writer_define(writer, name, made.dtype, made.ndims, made.shape, &options, &made.id, error);
  if (code != PENSTOCK_OK) {
    free(name);
    return code;
  }
  made.name = name;
  made.shape_is_known = true;
  *out = &known->entries[known->count++];
  **out = made;
  return PENSTOCK_OK;
}

int penstock_fortran_define(penstock_writer* writer, penstock_fortran_variables* known, const char* name, int dtype,
                            const CFI_cdesc_t* shape, int kind, int min_max, penstock_error* error) {
  variable made = {.name = (char*)name, .dtype = dtype, .kind = kind};
  size_t ndims = SIZE_MAX;
  int code = check_open(known, error);
  if (code == PENSTOCK_OK) code = read_sizes(shape, name, "shape", 0, 0, &ndims, made.shape, error);
  if (code != PENSTOCK_OK) return code;
  made.ndims = shape != NULL ? ndims : 0;
  return define(writer, known, made, min_max, &(variable*){NULL}, error);
}

/* The variable of a put: defined if it is not yet, else checked to be of this type and kind. */
static int defined(penstock_writer* writer, penstock_fortran_variables* known, variable wanted, variable** out,
                   penstock_error* error) {
  static const char* const kinds[] = {"global array", "local array", "global value", "local value"};
  *out = find(known, wanted.name);
  if (*out == NULL) return define(writer, known, wanted, 0, out, error);
  if ((*out)->kind == wanted.kind && carries(wanted.dtype, (*out)->dtype)) return PENSTOCK_OK;
  return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s' is a %s of %s; what was given is a %s of %s", wanted.name,
              kinds[(*out)->kind], penstock_dtype_name((*out)->dtype), kinds[wanted.kind],
              penstock_dtype_name(wanted.dtype));
}

/* --------------------------------------------------------------------------------------------------------- writing */

int penstock_fortran_put_string(penstock_writer* writer, penstock_fortran_variables* known, const char* name,
                                const char* value, int local, penstock_error* error) {
  variable wanted = {.name = (char*)name, .dtype = PENSTOCK_STRING};
  variable* put;
  wanted.kind = local ? PENSTOCK_LOCAL_VALUE : PENSTOCK_GLOBAL_VALUE;
  int code = check_open(known, error);
  if (code == PENSTOCK_OK) code = defined(writer, known, wanted, &put, error);
  return code == PENSTOCK_OK ? penstock_writer_put_string(writer, put->id, value, error) : code;
}

/* Defines the variable, and gives a global array its shape when that is not the one known. */
static int shaped(penstock_writer* writer, penstock_fortran_variables* known, variable wanted, variable** put,
                  penstock_error* error) {
  if (wanted.kind != PENSTOCK_GLOBAL_ARRAY) wanted.ndims = 0;
  int code = defined(writer, known, wanted, put, error);
  if (code != PENSTOCK_OK || wanted.kind != PENSTOCK_GLOBAL_ARRAY) return code;
  if ((*put)->shape_is_known && (*put)->ndims == wanted.ndims &&
      memcmp((*put)->shape, wanted.shape, wanted.ndims * sizeof *wanted.shape) == 0)
    return PENSTOCK_OK;
  code = penstock_writer_set_shape(writer, (*put)->id, wanted.ndims, wanted.shape, error);
  if (code != PENSTOCK_OK) return code;
  memcpy((*put)->shape, wanted.shape, sizeof wanted.shape);
  (*put)->shape_is_known = (*put)->reshaped = true;
  return PENSTOCK_OK;
}

/* start, count, shape: vectors or NULL, as for put in penstock.f90. */
int penstock_fortran_put(penstock_writer* writer, penstock_fortran_variables* known, const char* name,
                         const CFI_cdesc_t* values, int type, const CFI_cdesc_t* start, const CFI_cdesc_t* count,
                         const CFI_cdesc_t* shape, int local, int lend, penstock_error* error) {
  const bool whole = start == NULL && count == NULL && shape == NULL;
  variable wanted = {.name = (char*)name, .dtype = dtype_of(type)};
  dims origin = {0}, sizes = {0};
  int64_t strides[PENSTOCK_MAX_DIMS];
  size_t ndims = SIZE_MAX;
  int code = check_open(known, error);
  if (code == PENSTOCK_OK) code = read_sizes(shape, name, "shape", 0, 0, &ndims, wanted.shape, error);
  if (code == PENSTOCK_OK) code = box_of(values, name, start, count, &ndims, origin, sizes, strides, error);
  if (code != PENSTOCK_OK) return code;
  wanted.ndims = ndims;
  if (local) wanted.kind = ndims > 0 ? PENSTOCK_LOCAL_ARRAY : PENSTOCK_LOCAL_VALUE;
  else wanted.kind = ndims > 0 ? PENSTOCK_GLOBAL_ARRAY : PENSTOCK_GLOBAL_VALUE;
  variable* put = find(known, name);
  if (wanted.kind == PENSTOCK_GLOBAL_ARRAY && shape == NULL) {
    if (whole && known->ranks == 1) memcpy(wanted.shape, sizes, sizeof sizes);
    else if (put != NULL && put->shape_is_known) memcpy(wanted.shape, put->shape, sizeof wanted.shape);
    else
      return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s': a part of an array needs shape= the first time", name);
  }
  code = shaped(writer, known, wanted, &put, error);
  if (code != PENSTOCK_OK) return code;
  if (ndims == 0) return penstock_writer_put_whole(writer, put->id, values->base_addr, error);
  return (lend ? penstock_writer_lend_strided : penstock_writer_put_strided)(
      writer, put->id, ndims, local ? NULL : origin, sizes, values->base_addr, strides, error);
}

int penstock_fortran_put_attribute(penstock_writer* writer, const char* name, const CFI_cdesc_t* values, int type,
                                   penstock_error* error) {
  const size_t bytes = penstock_dtype_size(dtype_of(type));
  dims shape = {1};
  int code = shape_of(values, name, shape, error);
  if (code != PENSTOCK_OK) return code;
  if (values->rank > 1)
    return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s': an attribute is a value or a vector", name);
  char* packed = malloc(shape[0] * bytes + 1);
  if (packed == NULL) return fail(error, PENSTOCK_ERR_MEMORY, "out of memory");
  for (size_t i = 0; i < shape[0]; ++i) memcpy(packed + i * bytes, element(values, (CFI_index_t)i), bytes);
  code = penstock_writer_put_attribute(writer, name, dtype_of(type), packed, shape[0], values->rank, error);
  free(packed);
  return code;
}

/* --------------------------------------------------------------------------------------------------------- reading */

static int check_type(const char* name, int type, int dtype, penstock_error* error) {
  if (carries(type, dtype)) return PENSTOCK_OK;
  return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s' has elements of %s; what was given to receive them has %s",
              name, penstock_dtype_name(dtype), penstock_dtype_name(dtype_of(type)));
}

/* Enqueues. start, count, stride: vectors or NULL; block: 0 for none; points: a contiguous matrix of indices from 0,
   one column for each point, without rows for none. */
int penstock_fortran_get(penstock_reader* reader, const char* name, const CFI_cdesc_t* values, int type,
                         const CFI_cdesc_t* start, const CFI_cdesc_t* count, const CFI_cdesc_t* stride, int64_t block,
                         const CFI_cdesc_t* points, penstock_error* error) {
  penstock_variable found;
  penstock_selection selection = {0};
  dims origin = {0}, sizes = {0}, steps, shape;
  int64_t strides[PENSTOCK_MAX_DIMS];
  uint32_t rank;
  int code = penstock_reader_variable(reader, name, &found, error);
  if (code == PENSTOCK_OK) code = check_type(name, type, found.dtype, error);
  if (code != PENSTOCK_OK) return code;
  size_t ndims = found.ndims;
  code = read_sizes(start, name, "start", 1, 1, &ndims, origin, error);
  if (code == PENSTOCK_OK) code = read_sizes(count, name, "count", 0, 0, &ndims, sizes, error);
  if (code == PENSTOCK_OK) code = read_sizes(stride, name, "stride", 1, 0, &ndims, steps, error);
  if (code != PENSTOCK_OK) return code;
  if (block != 0) {
    selection = penstock_select_block((uint64_t)(block - 1));
  } else if (points->dim[0].extent > 0) {
    if ((size_t)points->dim[0].extent != ndims)
      return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s': a column of points has %lld indices, not %zu", name,
                  (long long)points->dim[0].extent, ndims);
    selection = penstock_select_points(ndims, points->base_addr, (size_t)points->dim[1].extent);
  } else if (start != NULL || count != NULL || stride != NULL) {
    if (count == NULL) {
      for (size_t d = 0; d < ndims; ++d) sizes[d] = 1;
      code = shape_of(values, name, sizes, error);
      if (code != PENSTOCK_OK) return code;
    }
    selection = penstock_select_box(ndims, origin, sizes);
    if (stride != NULL) selection.stride = steps;
  }
  code = penstock_reader_selection_shape(reader, found.id, &selection, &rank, shape, error);
  if (code == PENSTOCK_OK) code = strides_of(values, name, rank, shape, strides, error);
  if (code != PENSTOCK_OK) return code;
  if (type == WIDE_LOGICAL) clear_upper_bytes(values);
  return penstock_reader_get(reader, found.id, &selection, values->base_addr, PENSTOCK_COLUMN,
                             rank > 0 ? strides : NULL, error);
}

int penstock_fortran_attribute(penstock_reader* reader, const char* name, const CFI_cdesc_t* values, int type,
                               penstock_error* error) {
  penstock_attribute found;
  dims shape = {1};
  int code = penstock_reader_attribute(reader, name, &found, error);
  if (code == PENSTOCK_OK) code = check_type(name, type, found.dtype, error);
  if (code == PENSTOCK_OK) code = shape_of(values, name, shape, error);
  if (code != PENSTOCK_OK) return code;
  if (values->rank > 1 || shape[0] != found.count)
    return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT,
                "attribute '%s' has %zu elements; what was given to receive them is %s", name, found.count,
                text_of((size_t)values->rank, shape));
  const size_t bytes = penstock_dtype_size(found.dtype);
  for (size_t i = 0; i < found.count; ++i) {
    char* place = element(values, (CFI_index_t)i);
    memset(place, 0, bytes_of(type));
    memcpy(place, (const char*)found.values + i * bytes, bytes);
  }
  return PENSTOCK_OK;
}

/* ---------------------------------------------------------------------------------------------------- array spaces */

int penstock_fortran_space_define(penstock_space* space, const char* name, int dtype, const CFI_cdesc_t* shape,
                                  int convert, int keep, size_t num_readers, const char* const* readers,
                                  penstock_error* error) {
  penstock_array_options options = {.struct_size = sizeof options, .convert = convert, .keep = (uint32_t)keep};
  dims sizes;
  size_t ndims = SIZE_MAX;
  options.num_readers = num_readers;
  options.readers = readers;
  int code = read_sizes(shape, name, "shape", 0, 0, &ndims, sizes, error);
  return code == PENSTOCK_OK ? penstock_space_define(space, name, dtype, ndims, sizes, &options, error) : code;
}

/* NULL where the elements of a box are packed in column order, which servers convert to; else the strides. */
static const int64_t* unless_packed(size_t ndims, const uint64_t* sizes, const int64_t* strides, int type) {
  int64_t packed = (int64_t)penstock_dtype_size(dtype_of(type));
  for (size_t d = 0; d < ndims; ++d) {
    if (sizes[d] > 1 && strides[d] != packed) return strides;
    packed *= (int64_t)sizes[d];
  }
  return NULL;
}

int penstock_fortran_space_put(penstock_space* space, const char* name, uint64_t version, const CFI_cdesc_t* values,
                               int type, const CFI_cdesc_t* start, const CFI_cdesc_t* count, int check,
                               int64_t timeout_ms, penstock_error* error) {
  int64_t strides[PENSTOCK_MAX_DIMS];
  penstock_array_memory memory = {.struct_size = sizeof memory, .dtype = dtype_of(type), .order = PENSTOCK_COLUMN};
  dims origin = {0}, sizes = {0};
  size_t ndims = SIZE_MAX;
  int code = box_of(values, name, start, count, &ndims, origin, sizes, strides, error);
  if (code != PENSTOCK_OK) return code;
  memory.check = check;
  memory.strides = unless_packed(ndims, sizes, strides, type);
  return penstock_space_put(space, name, version, ndims, origin, sizes, values->base_addr, &memory, timeout_ms, error);
}

int penstock_fortran_space_get(penstock_space* space, const char* name, uint64_t version, const CFI_cdesc_t* values,
                               int type, const CFI_cdesc_t* start, const CFI_cdesc_t* count, int check,
                               int64_t timeout_ms, penstock_error* error) {
  int64_t strides[PENSTOCK_MAX_DIMS];
  penstock_array_memory memory = {.struct_size = sizeof memory, .dtype = dtype_of(type), .order = PENSTOCK_COLUMN};
  dims origin = {0}, sizes = {0};
  size_t ndims = SIZE_MAX;
  int code = box_of(values, name, start, count, &ndims, origin, sizes, strides, error);
  if (code != PENSTOCK_OK) return code;
  memory.check = check;
  memory.strides = unless_packed(ndims, sizes, strides, type);
  if (type == WIDE_LOGICAL) clear_upper_bytes(values);
  return penstock_space_get(space, name, version, ndims, origin, sizes, values->base_addr, &memory, timeout_ms, error);
}

int penstock_fortran_space_wait(penstock_space* space, const char* name, uint64_t version, const CFI_cdesc_t* start,
                                const CFI_cdesc_t* count, int64_t timeout_ms, penstock_error* error) {
  dims origin, sizes;
  size_t ndims = SIZE_MAX;
  int code = read_sizes(start, name, "start", 1, 1, &ndims, origin, error);
  if (code == PENSTOCK_OK) code = read_sizes(count, name, "count", 0, 0, &ndims, sizes, error);
  return code == PENSTOCK_OK ? penstock_space_wait(space, name, version, ndims, origin, sizes, timeout_ms, error)
                             : code;
}
