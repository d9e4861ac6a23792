/* What the module penstock_regions cannot say in Fortran: values of fields in arrays of any type and rank. Numbers
   count from 0. */
#include "penstock/region.h"
#include "penstock_descriptors.h"

/* A field of the model that a sink writes. */
typedef struct region_field {
  size_t entity, number;
  char name[80]; /* for messages */
  int dtype;
  uint64_t rows;
  uint32_t components;
} region_field;

typedef struct penstock_fortran_fields {
  region_field* all;
  size_t count;
} penstock_fortran_fields;

void penstock_fortran_fields_destroy(penstock_fortran_fields* fields) {
  if (fields != NULL) free(fields->all);
  free(fields);
}

static region_field described(size_t entity, size_t number, const penstock_field* field) {
  region_field out = {.entity = entity, .number = number, .dtype = field->dtype, .rows = field->rows};
  out.components = field->components;
  snprintf(out.name, sizeof out.name, "%s", field->name);
  return out;
}

/* The fields of an entity, behind those that there are. */
static int add_fields(penstock_model* model, size_t number, penstock_fortran_fields* fields, penstock_error* error) {
  penstock_entity entity = {.struct_size = sizeof entity};
  int code = penstock_model_entity(model, number, &entity, error);
  if (code != PENSTOCK_OK || entity.num_fields == 0) return code;
  region_field* all = realloc(fields->all, (fields->count + entity.num_fields) * sizeof *all);
  if (all == NULL) return fail(error, PENSTOCK_ERR_MEMORY, "out of memory");
  fields->all = all;
  for (size_t i = 0; code == PENSTOCK_OK && i < entity.num_fields; ++i) {
    penstock_field field = {.struct_size = sizeof field};
    code = penstock_model_field(model, number, i, &field, error);
    if (code == PENSTOCK_OK) all[fields->count++] = described(number, i, &field);
  }
  return code;
}

/* Defines the model. *fields: what write checks values against; those of the model before are replaced. */
int penstock_fortran_region_define(penstock_region_sink* sink, penstock_model* model, penstock_fortran_fields** fields,
                                   penstock_error* error) {
  penstock_model_info info = {.struct_size = sizeof info};
  penstock_fortran_fields* made = calloc(1, sizeof *made);
  int code =
      made != NULL ? penstock_model_get_info(model, &info, error) : fail(error, PENSTOCK_ERR_MEMORY, "out of memory");
  for (size_t i = 0; code == PENSTOCK_OK && i < info.num_entities; ++i) code = add_fields(model, i, made, error);
  if (code == PENSTOCK_OK) code = penstock_region_sink_define(sink, model, error);
  if (code != PENSTOCK_OK) {
    penstock_fortran_fields_destroy(made);
    return code;
  }
  penstock_fortran_fields_destroy(*fields);
  *fields = made;
  return PENSTOCK_OK;
}

/* *rows: how many the array holds. The components are its leading dimension, or several of them. */
static int rows_in(const CFI_cdesc_t* values, int type, const region_field* field, uint64_t* rows,
                   penstock_error* error) {
  dims shape;
  uint64_t leading = 1;
  int code = shape_of(values, field->name, shape, error);
  if (code != PENSTOCK_OK) return code;
  if (dtype_of(type) != field->dtype)
    return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s' has values of %s; the array has %s", field->name,
                penstock_dtype_name(field->dtype), penstock_dtype_name(dtype_of(type)));
  for (int d = 0; d < values->rank && leading < field->components; ++d) leading *= shape[d];
  *rows = elements_of(values) / field->components;
  if (*rows * field->components == elements_of(values) && (values->rank < 2 || leading == field->components))
    return PENSTOCK_OK;
  return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT,
              "'%s' has %u components, which are the first dimension of its array; this one is %s", field->name,
              (unsigned)field->components, text_of((size_t)values->rank, shape));
}

static int all_rows(const CFI_cdesc_t* values, const region_field* field, uint64_t rows, penstock_error* error) {
  dims shape;
  int code = shape_of(values, field->name, shape, error);
  if (code != PENSTOCK_OK || rows == field->rows) return code;
  return fail(error, PENSTOCK_ERR_INVALID_ARGUMENT, "'%s' has %llu rows of %u components; the array is %s", field->name,
              (unsigned long long)field->rows, (unsigned)field->components, text_of((size_t)values->rank, shape));
}

static bool is_packed(const CFI_cdesc_t* values, int type) {
  dims shape;
  int64_t strides[PENSTOCK_MAX_DIMS];
  for (int d = 0; d < values->rank; ++d) {
    shape[d] = (uint64_t)values->dim[d].extent;
    strides[d] = values->dim[d].sm;
  }
  return unless_packed((size_t)values->rank, shape, strides, type) == NULL;
}

/* The values, packed: those of the array where it is, else room for them, which the caller frees. */
static char* packed_room(const CFI_cdesc_t* values, int type, penstock_error* error) {
  if (is_packed(values, type)) return values->base_addr;
  char* room = malloc(elements_of(values) * bytes_of(type) + 1);
  if (room == NULL) fail(error, PENSTOCK_ERR_MEMORY, "out of memory");
  return room;
}

int penstock_fortran_region_write(penstock_region_sink* sink, const penstock_fortran_fields* fields, size_t entity,
                                  size_t field, const CFI_cdesc_t* values, int type, penstock_error* error) {
  const region_field* its = NULL;
  CFI_index_t index[CFI_MAX_RANK] = {0};
  const size_t bytes = bytes_of(type);
  uint64_t rows;
  for (size_t i = 0; fields != NULL && i < fields->count; ++i)
    if (fields->all[i].entity == entity && fields->all[i].number == field) its = &fields->all[i];
  if (its == NULL) return penstock_region_sink_write(sink, entity, field, NULL, error); /* says what is wrong */
  int code = rows_in(values, type, its, &rows, error);
  if (code == PENSTOCK_OK) code = all_rows(values, its, rows, error);
  if (code != PENSTOCK_OK) return code;
  char* packed = packed_room(values, type, error);
  if (packed == NULL && rows > 0) return error->code;
  for (uint64_t i = 0; packed != values->base_addr && i < elements_of(values); ++i)
    memcpy(packed + i * bytes, next_element(values, index), bytes);
  code = penstock_region_sink_write(sink, entity, field, packed, error);
  if (packed != values->base_addr) free(packed);
  return code;
}

static int read_rows(penstock_region_source* source, uint32_t part, const region_field* field, uint64_t first,
                     uint64_t rows, const CFI_cdesc_t* values, int type, penstock_error* error) {
  CFI_index_t index[CFI_MAX_RANK] = {0};
  const size_t bytes = bytes_of(type);
  char* packed = packed_room(values, type, error);
  if (packed == NULL && rows > 0) return error->code;
  int code = penstock_region_source_read(source, part, field->entity, field->number, first, rows, packed, error);
  if (packed == values->base_addr) return code;
  for (uint64_t i = 0; code == PENSTOCK_OK && i < elements_of(values); ++i)
    memcpy(next_element(values, index), packed + i * bytes, bytes);
  free(packed);
  return code;
}

/* first: of the rows, or -1 for all of them. */
int penstock_fortran_region_read(penstock_region_source* source, int part, size_t entity, size_t field,
                                 const CFI_cdesc_t* values, int type, int64_t first, penstock_error* error) {
  penstock_field found = {.struct_size = sizeof found};
  penstock_model* model = NULL;
  region_field its;
  uint64_t rows;
  int code = penstock_region_source_model(source, (uint32_t)part, &model, error);
  if (code == PENSTOCK_OK) code = penstock_model_field(model, entity, field, &found, error);
  if (code == PENSTOCK_OK) {
    its = described(entity, field, &found);
    code = rows_in(values, type, &its, &rows, error);
  }
  if (code == PENSTOCK_OK && first < 0) code = all_rows(values, &its, rows, error);
  if (code == PENSTOCK_OK)
    code = read_rows(source, (uint32_t)part, &its, (uint64_t)(first < 0 ? 0 : first), rows, values, type, error);
  penstock_model_destroy(model);
  return code;
}
