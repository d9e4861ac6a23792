/* What the module penstock_coprocessing cannot say in Fortran. */
#include "penstock/coprocessor.h"
#include "penstock_descriptors.h"

/* mesh: all but its shape and the names that are given beside it, of which "" is none. */
int penstock_fortran_set_mesh(penstock_coprocessor* coprocessor, const char* name, const penstock_mesh* mesh,
                              const CFI_cdesc_t* shape, const char* axes, const char* levels, const char* indices,
                              const char* ghosts, const char* node_ids, const char* element_ids, const char* splits,
                              penstock_error* error) {
  penstock_mesh all = *mesh;
  size_t ndims = SIZE_MAX;
  int code = read_sizes(shape, name, "shape", 0, 0, &ndims, all.shape, error);
  if (code != PENSTOCK_OK) return code;
  all.struct_size = sizeof all;
  all.ndims = shape != NULL ? ndims : 0;
  all.axes = axes;
  all.levels = levels;
  all.indices = indices;
  all.ghosts = ghosts;
  all.node_ids = node_ids;
  all.element_ids = element_ids;
  all.splits = splits;
  return penstock_coprocessor_set_mesh(coprocessor, name, &all, error);
}

int penstock_fortran_field(penstock_coprocessor* coprocessor, const char* mesh, const char* name, int dtype,
                           int association, int components, const char* units, const char* variable, int order,
                           int min_max, uint32_t* field, penstock_error* error) {
  const penstock_field_options options = {association, (uint32_t)components, units, variable, order, min_max};
  if (components < 1)
    return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "field '%s' has at least one component, not %d", name,
                components);
  return penstock_coprocessor_field(coprocessor, mesh, name, dtype, &options, field, error);
}

static void reverse(size_t count, void* values) {
  uint64_t* all = values;
  for (size_t i = 0; 2 * i + 1 < count; ++i) {
    const uint64_t kept = all[i];
    all[i] = all[count - 1 - i];
    all[count - 1 - i] = kept;
  }
}

/* order: of the variable. In row order it has the dimensions of the array in reverse. */
int penstock_fortran_coprocessor_put(penstock_coprocessor* coprocessor, uint32_t field, const char* name, int dtype,
                                     int order, const CFI_cdesc_t* values, int type, const CFI_cdesc_t* start,
                                     const CFI_cdesc_t* count, int lend, penstock_error* error) {
  dims origin = {0}, sizes = {0};
  int64_t strides[PENSTOCK_MAX_DIMS];
  size_t ndims = SIZE_MAX;
  if (!carries(type, dtype))
    return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s' has elements of %s; what was given has %s", name,
                penstock_dtype_name(dtype), penstock_dtype_name(dtype_of(type)));
  int code = box_of(values, name, start, count, &ndims, origin, sizes, strides, error);
  if (code != PENSTOCK_OK) return code;
  if (ndims == 0) return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s': a field is an array, not a scalar", name);
  if (order == PENSTOCK_ROW) {
    reverse(ndims, origin);
    reverse(ndims, sizes);
    reverse(ndims, strides);
  }
  return (lend ? penstock_coprocessor_lend : penstock_coprocessor_put)(coprocessor, field, ndims, origin, sizes,
                                                                       values->base_addr, strides, error);
}
