/* What the modules penstock and penstock_space cannot say in Fortran. Arrays keep their order: variables are
   column-major, with the same indices. */
#include "penstock/space.h"
#include "penstock_descriptors.h"

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
