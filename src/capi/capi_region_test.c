/* Mesh regions through the C API: models, a strip of quadrilaterals in a file, on a stream and in parts, and errors. */
#include <pthread.h>

#include "capi/capi_test_pair.h"
#include "penstock/region.h"

enum { quads = 4, columns = quads + 1, nodes = 2 * columns, states = 3 };
/* Numbers of the entities, and of their fields. */
enum { whole, points, plate, left, all };
enum { coordinates, point_ids, temperature };
enum { connectivity, plate_ids, flux };

static size_t add(penstock_model* model, penstock_entity entity) {
  size_t number = 0;
  OK(penstock_model_add_entity(model, &entity, &number, &error));
  return number;
}

static void add_field(penstock_model* model, size_t entity, const char* name, int dtype, const char* storage,
                      int role) {
  const penstock_field field = penstock_field_of(name, dtype, storage, role);
  OK(penstock_model_add_field(model, entity, &field, NULL, &error));
}

static penstock_model* new_strip(void) {
  static const char* const members[] = {"plate"};
  const int64_t material = 3;
  const double density[] = {7.8, 2.7};
  penstock_model* model = NULL;
  penstock_entity block = penstock_entity_of(PENSTOCK_ELEMENT_BLOCK, "plate", 10, quads);
  penstock_entity assembly = penstock_entity_of(PENSTOCK_ASSEMBLY, "all", 1000, 1);
  block.topology = "quad4";
  assembly.num_members = 1;
  assembly.members = members;
  OK(penstock_model_create("a strip", 2, &model, &error));
  CHECK(add(model, penstock_entity_of(PENSTOCK_REGION, "region", 0, 1)) == whole);
  CHECK(add(model, penstock_entity_of(PENSTOCK_NODE_BLOCK, "nodeblock_1", 1, nodes)) == points);
  CHECK(add(model, block) == plate);
  CHECK(add(model, penstock_entity_of(PENSTOCK_NODE_SET, "left", 100, 2)) == left);
  CHECK(add(model, assembly) == all);
  add_field(model, whole, "energy", PENSTOCK_FLOAT64, NULL, PENSTOCK_ROLE_REDUCTION);
  add_field(model, points, "coordinates", PENSTOCK_FLOAT64, "vector_2d", PENSTOCK_ROLE_MESH);
  add_field(model, points, "ids", PENSTOCK_INT64, NULL, PENSTOCK_ROLE_MESH);
  add_field(model, points, "temperature", PENSTOCK_FLOAT64, NULL, PENSTOCK_ROLE_TRANSIENT);
  add_field(model, plate, "connectivity", PENSTOCK_INT32, "[4]", PENSTOCK_ROLE_MESH);
  add_field(model, plate, "ids", PENSTOCK_INT64, NULL, PENSTOCK_ROLE_MESH);
  add_field(model, plate, "flux", PENSTOCK_FLOAT64, "vector_2d", PENSTOCK_ROLE_TRANSIENT);
  add_field(model, left, "members", PENSTOCK_INT32, NULL, PENSTOCK_ROLE_MESH);
  OK(penstock_model_put_property(model, plate, "material", PENSTOCK_INT64, &material, 1, 0, &error));
  OK(penstock_model_put_property(model, PENSTOCK_WHOLE_MODEL, "density", PENSTOCK_FLOAT64, density, 2, 1, &error));
  OK(penstock_model_put_property_string(model, PENSTOCK_WHOLE_MODEL, "kind", "steel", &error));
  OK(penstock_model_add_qa(model, "test", "1", "2026/11/27", "12:00:00", &error));
  OK(penstock_model_add_information(model, "first line", &error));
  OK(penstock_model_add_information(model, "second line", &error));
  return model;
}

static penstock_entity entity_at(penstock_model* model, size_t number) {
  penstock_entity entity = {.struct_size = sizeof entity};
  OK(penstock_model_entity(model, number, &entity, &error));
  return entity;
}

static penstock_field field_at(penstock_model* model, size_t entity, size_t number) {
  penstock_field field = {.struct_size = sizeof field};
  OK(penstock_model_field(model, entity, number, &field, &error));
  return field;
}

static size_t find_entity(penstock_model* model, int type, const char* name) {
  size_t number = 0;
  OK(penstock_model_find_entity(model, type, name, &number, &error));
  return number;
}

static size_t find_field(penstock_model* model, size_t entity, const char* name) {
  size_t number = 0;
  OK(penstock_model_find_field(model, entity, name, &number, &error));
  return number;
}

/* What new_strip has described, wherever it was kept. */
static void check_strip(penstock_model* model) {
  penstock_model_info info = {.struct_size = sizeof info};
  penstock_attribute value;
  penstock_qa_record qa;
  const char* name = NULL;
  const size_t block = find_entity(model, PENSTOCK_ELEMENT_BLOCK, "plate");
  const penstock_entity its = entity_at(model, block);
  const penstock_entity assembly = entity_at(model, find_entity(model, PENSTOCK_ASSEMBLY, "all"));
  const penstock_field vector = field_at(model, block, find_field(model, block, "flux"));
  OK(penstock_model_get_info(model, &info, &error));
  CHECK(strcmp(info.title, "a strip") == 0 && info.dimensions == 2 && info.num_entities == 5);
  CHECK(info.num_properties == 2 && info.num_qa == 1 && info.num_information == 2);
  CHECK(strcmp(info.information[1], "second line") == 0);
  OK(penstock_model_qa(model, 0, &qa, &error));
  CHECK(strcmp(qa.code, "test") == 0 && strcmp(qa.time, "12:00:00") == 0);
  CHECK(its.type == PENSTOCK_ELEMENT_BLOCK && its.id == 10 && its.count == quads && its.num_fields == 3);
  CHECK(strcmp(its.name, "plate") == 0 && strcmp(its.topology, "quad4") == 0);
  CHECK(assembly.num_members == 1 && strcmp(assembly.members[0], "plate") == 0);
  CHECK(assembly.member_type == PENSTOCK_ELEMENT_BLOCK);
  CHECK(strcmp(vector.storage, "vector_2d") == 0 && vector.role == PENSTOCK_ROLE_TRANSIENT);
  CHECK(vector.dtype == PENSTOCK_FLOAT64 && vector.rows == quads && vector.components == 2);
  OK(penstock_model_property(model, block, "material", &value, &error));
  CHECK(value.dtype == PENSTOCK_INT64 && !value.is_array && *(const int64_t*)value.values == 3);
  OK(penstock_model_property(model, PENSTOCK_WHOLE_MODEL, "density", &value, &error));
  CHECK(value.dtype == PENSTOCK_FLOAT64 && value.is_array && value.count == 2);
  CHECK(((const double*)value.values)[1] == 2.7);
  OK(penstock_model_property_name(model, PENSTOCK_WHOLE_MODEL, 1, &name, &error));
  CHECK(strcmp(name, "kind") == 0);
  OK(penstock_model_property(model, PENSTOCK_WHOLE_MODEL, name, &value, &error));
  CHECK(value.dtype == PENSTOCK_STRING && value.count == 1 && strcmp(value.strings[0], "steel") == 0);
}

void test_model(void) {
  penstock_model* model = new_strip();
  penstock_field named = penstock_field_of("stress", PENSTOCK_FLOAT32, "[2]", PENSTOCK_ROLE_TRANSIENT);
  const char* const names[] = {"xx", "yy"};
  size_t number = 0;
  check_strip(model);
  named.num_component_names = 2;
  named.component_names = names;
  OK(penstock_model_add_field(model, plate, &named, &number, &error));
  CHECK(number == 3 && strcmp(field_at(model, plate, number).component_names[1], "yy") == 0);
  CHECK(field_at(model, whole, 0).rows == 1);
  CHECK(strcmp(penstock_entity_type_name(PENSTOCK_SIDE_SET), "side_set") == 0);
  CHECK(strcmp(penstock_entity_type_name(99), "unknown") == 0);
  CHECK(strcmp(penstock_role_name(PENSTOCK_ROLE_MAP), "map") == 0 && strcmp(penstock_role_name(-1), "unknown") == 0);
  penstock_model_destroy(model);
  penstock_model_destroy(NULL);
}

/* A strip whose first column of nodes is the given one of all; shared nodes have the same ids. */
static void write_model(penstock_region_sink* sink, int first) {
  double x[nodes][2];
  int64_t id[nodes], element[quads];
  int32_t corners[quads][4];
  const int32_t members[] = {0, 1};
  for (int n = 0; n < nodes; ++n) {
    x[n][0] = first + n / 2;
    x[n][1] = n % 2;
    id[n] = 2 * first + n + 1;
  }
  for (int q = 0; q < quads; ++q) {
    element[q] = first + q + 1;
    corners[q][0] = 2 * q;
    corners[q][1] = 2 * q + 2;
    corners[q][2] = 2 * q + 3;
    corners[q][3] = 2 * q + 1;
  }
  OK(penstock_region_sink_write(sink, points, coordinates, x, &error));
  OK(penstock_region_sink_write(sink, points, point_ids, id, &error));
  OK(penstock_region_sink_write(sink, plate, connectivity, corners, &error));
  OK(penstock_region_sink_write(sink, plate, plate_ids, element, &error));
  OK(penstock_region_sink_write(sink, left, 0, members, &error));
}

static void write_state(penstock_region_sink* sink, int first, int state) {
  const double energy = 10 * state;
  double T[nodes], q[quads][2];
  for (int n = 0; n < nodes; ++n) T[n] = 100 * state + 2 * first + n;
  for (int e = 0; e < quads; ++e) q[e][0] = -(q[e][1] = 100 * state + first + e);
  OK(penstock_region_sink_begin_state(sink, 0.5 * state, &error));
  OK(penstock_region_sink_write(sink, whole, 0, &energy, &error));
  OK(penstock_region_sink_write(sink, points, temperature, T, &error));
  OK(penstock_region_sink_write(sink, plate, flux, q, &error));
  OK(penstock_region_sink_end_state(sink, &error));
}

static void write_region(penstock_context* context, const char* name, const penstock_cohort* cohort,
                         const char* options) {
  const int first = cohort ? quads * cohort->rank : 0;
  penstock_model* model = new_strip();
  penstock_region_sink* sink = NULL;
  OK(penstock_context_create_region(context, name, cohort, options, &sink, &error));
  OK(penstock_region_sink_define(sink, model, &error));
  penstock_model_destroy(model);
  write_model(sink, first);
  for (int state = 0; state < states; ++state) write_state(sink, first, state);
  OK(penstock_region_sink_close(sink, &error));
  penstock_region_sink_destroy(sink);
}

/* The states of a strip with so many elements, which is part 0. */
static void check_states(penstock_region_source* source, int elements) {
  penstock_state_outcome outcome = PENSTOCK_STATE_READY;
  penstock_model* model = NULL;
  double time = -1;
  size_t block, field, energy;
  OK(penstock_region_source_model(source, 0, &model, &error));
  block = find_entity(model, PENSTOCK_ELEMENT_BLOCK, "plate");
  field = find_field(model, block, "flux");
  energy = find_entity(model, PENSTOCK_REGION, "region");
  CHECK(entity_at(model, block).count == (uint64_t)elements);
  for (int state = 0;; ++state) {
    double q[2][2], total = -1;
    OK(penstock_region_source_next_state(source, deadline_ms, &outcome, &time, &error));
    if (outcome == PENSTOCK_STATE_END && state == states) break;
    CHECK(outcome == PENSTOCK_STATE_READY && time == 0.5 * state);
    OK(penstock_region_source_read(source, 0, block, field, elements - 2, 2, q, &error));
    CHECK(q[1][1] == 100 * state + elements - 1 && q[0][0] == -(100 * state + elements - 2));
    OK(penstock_region_source_read(source, 0, energy, 0, 0, 1, &total, &error));
    CHECK(total == 10 * state);
  }
  penstock_model_destroy(model);
}

void test_region_file(void) {
#ifdef PENSTOCK_HAVE_NETCDF
  char path[128], options[256];
  penstock_context* context = new_context();
  penstock_region_source* source = NULL;
  penstock_model* model = NULL;
  uint32_t parts = 0;
  double times[2] = {-1, -1}, time = -1;
  int32_t corners[4];
  size_t count = 0;
  penstock_state_outcome outcome = PENSTOCK_STATE_END;
  snprintf(path, sizeof path, "%s/strip.e", capi_test_directory);
  snprintf(options, sizeof options, "exodus, path=%s, integers=32", path);
  write_region(context, "strip", NULL, options);
  OK(penstock_context_open_region(context, path, NULL, NULL, &source, &error)); /* by its ending */
  OK(penstock_region_source_parts(source, &parts, &error));
  CHECK(parts == 1);
  OK(penstock_region_source_model(source, 0, &model, &error));
  check_strip(model);
  OK(penstock_region_source_read(source, 0, find_entity(model, PENSTOCK_ELEMENT_BLOCK, "plate"), 0, 1, 1, corners,
                                 &error));
  CHECK(corners[0] == 2 && corners[1] == 4 && corners[2] == 5 && corners[3] == 3);
  check_states(source, quads);
  OK(penstock_region_source_times(source, 2, times, &count, &error));
  CHECK(count == states && times[0] == 0 && times[1] == 0.5);
  OK(penstock_region_source_times(source, 0, NULL, &count, &error));
  OK(penstock_region_source_seek(source, 2, &error));
  OK(penstock_region_source_next_state(source, 0, &outcome, &time, &error));
  CHECK(outcome == PENSTOCK_STATE_READY && time == 1);
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_region_source_seek(source, 3, &error));
  penstock_region_source_destroy(source);
  check_strip(model); /* it is the caller's */
  penstock_model_destroy(model);
  penstock_context_destroy(context);
  CHECK(unlink(path) == 0);
#endif
}

static void* write_strip(void* context) {
  write_region(context, "strip", NULL, NULL);
  return NULL;
}

void test_region_stream(void) {
  penstock_context* context = new_context();
  penstock_region_source* source = NULL;
  penstock_model* model = NULL;
  pthread_t thread;
  size_t count = 0;
  CHECK(pthread_create(&thread, NULL, write_strip, context) == 0);
  OK(penstock_context_open_region(context, "strip", NULL, "stream", &source, &error));
  OK(penstock_region_source_model(source, 0, &model, &error));
  check_strip(model);
  penstock_model_destroy(model);
  FAILS(PENSTOCK_ERR_UNSUPPORTED, penstock_region_source_times(source, 0, NULL, &count, &error));
  FAILS(PENSTOCK_ERR_UNSUPPORTED, penstock_region_source_seek(source, 0, &error));
  check_states(source, quads);
  penstock_region_source_destroy(source);
  pthread_join(thread, NULL);
  penstock_context_destroy(context);
}

static void* write_part(void* argument) {
  const penstock_cohort cohort = cohort_of_threads(argument);
  penstock_context* context = new_context();
  write_region(context, "wide", &cohort, NULL);
  penstock_context_destroy(context);
  return NULL;
}

void test_region_parts(void) {
  penstock_context* context = new_context();
  penstock_region_source *source = NULL, *joined = NULL;
  penstock_model* model = NULL;
  uint32_t parts = 0;
  double x[2];
  start_ranks(write_part);
  OK(penstock_context_open_region(context, "wide", NULL, NULL, &source, &error));
  OK(penstock_region_source_parts(source, &parts, &error));
  CHECK(parts == ranks);
  OK(penstock_region_source_model(source, 2, &model, &error));
  CHECK(entity_at(model, points).count == nodes);
  OK(penstock_region_source_read(source, 2, points, coordinates, 0, 1, x, &error));
  CHECK(x[0] == 2 * quads && x[1] == 0);
  penstock_model_destroy(model);
  OK(penstock_region_source_join(source, &joined, &error));
  penstock_region_source_destroy(source);
  OK(penstock_region_source_parts(joined, &parts, &error));
  CHECK(parts == 1);
  OK(penstock_region_source_model(joined, 0, &model, &error));
  CHECK(entity_at(model, points).count == 2 * (ranks * quads + 1)); /* shared nodes are there once */
  penstock_model_destroy(model);
  check_states(joined, ranks * quads);
  penstock_region_source_destroy(joined);
  join_ranks();
  penstock_context_destroy(context);
}

/* ---------------------------------------------------------------------------------------------------------- errors */

/* The call failed with the code, and its message has both words. */
static void check_says(int code, int expected, const penstock_error* error, const char* one, const char* other) {
  if (code == expected && strstr(error->message, one) && strstr(error->message, other)) return;
  fprintf(stderr, "%s: '%s' does not say %s and %s\n", penstock_code_name(code), error->message, one, other);
  exit(1);
}
#define SAYS(expected, one, other, call)            \
  do {                                              \
    penstock_error error;                           \
    const int code = call;                          \
    check_says(code, expected, &error, one, other); \
  } while (0)

static void check_model_errors(penstock_model* model) {
  penstock_model* none = NULL;
  penstock_entity entity = penstock_entity_of(PENSTOCK_ASSEMBLY, "all", 2, 1);
  penstock_field field = penstock_field_of("flux", PENSTOCK_FLOAT64, "vector_7d", PENSTOCK_ROLE_TRANSIENT);
  penstock_attribute value;
  const char* name = NULL;
  double number = 0;
  size_t found = 0;
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_create("flat", 4, &none, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_create("none", 3, NULL, &error));
  SAYS(PENSTOCK_ERR_INVALID_ARGUMENT, "element_block 'plate'", "field 'flux'",
       penstock_model_add_field(model, plate, &field, NULL, &error));
  field.storage = NULL;
  field.dtype = 99;
  SAYS(PENSTOCK_ERR_INVALID_ARGUMENT, "element_block 'plate'", "field 'flux'",
       penstock_model_add_field(model, plate, &field, NULL, &error));
  field = penstock_field_of("flux", PENSTOCK_FLOAT64, NULL, 6);
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_add_field(model, plate, &field, NULL, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_add_field(model, 5, &field, NULL, &error));
  field.name = NULL;
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_add_field(model, plate, &field, NULL, &error));
  field.struct_size = 0;
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_add_field(model, plate, &field, NULL, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_field(model, plate, 3, &field, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_field(model, plate, 0, &field, &error));
  entity.num_members = 1;
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_add_entity(model, &entity, NULL, &error));
  entity = penstock_entity_of(14, "all", 2, 1);
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_add_entity(model, &entity, NULL, &error));
  entity = penstock_entity_of(PENSTOCK_BLOB, NULL, 2, 1);
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_add_entity(model, &entity, NULL, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_add_entity(NULL, &entity, NULL, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_entity(model, SIZE_MAX, &entity, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_entity(model, 0, NULL, &error));
  SAYS(PENSTOCK_ERR_NOT_FOUND, "element_block", "plate",
       penstock_model_find_entity(model, PENSTOCK_ELEMENT_BLOCK, "plat", &found, &error));
  SAYS(PENSTOCK_ERR_NOT_FOUND, "element_block 'plate'", "flux",
       penstock_model_find_field(model, plate, "flix", &found, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_find_field(model, plate, NULL, &found, &error));
  SAYS(PENSTOCK_ERR_INVALID_ARGUMENT, "element_block 'plate'", "'seed'",
       penstock_model_put_property(model, plate, "seed", PENSTOCK_INT32, &number, 1, 0, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT,
        penstock_model_put_property(model, plate, "seed", PENSTOCK_FLOAT64, NULL, 1, 0, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT,
        penstock_model_put_property(model, plate, "seed", PENSTOCK_FLOAT64, &number, 2, 0, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_put_property_string(model, 9, "seed", "x", &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_property_name(model, plate, 1, &name, &error));
  SAYS(PENSTOCK_ERR_NOT_FOUND, "element_block 'plate'", "'seed'",
       penstock_model_property(model, plate, "seed", &value, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_qa(model, 1, NULL, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_add_information(model, NULL, &error));
}

static void check_sink_errors(penstock_context* context, penstock_model* model) {
  const double numbers[2 * nodes] = {0};
  penstock_region_sink* sink = NULL;
  OK(penstock_context_create_region(context, "nowhere", NULL, "null", &sink, &error));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_region_sink_begin_state(sink, 0, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_sink_define(sink, NULL, &error));
  OK(penstock_region_sink_define(sink, model, &error));
  SAYS(PENSTOCK_ERR_INVALID_ARGUMENT, "node_block 'nodeblock_1'", "field 'coordinates'",
       penstock_region_sink_write(sink, points, coordinates, NULL, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_sink_write(sink, 5, 0, numbers, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_sink_write(sink, points, SIZE_MAX, numbers, &error));
  SAYS(PENSTOCK_ERR_WRONG_STATE, "element_block 'plate'", "field 'flux'",
       penstock_region_sink_write(sink, plate, flux, numbers, &error));
  SAYS(PENSTOCK_ERR_WRONG_STATE, "node_block 'nodeblock_1'", "field 'coordinates'",
       penstock_region_sink_begin_state(sink, 0, &error));
  write_model(sink, 0);
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_region_sink_abandon_state(sink, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_sink_abandon_state(NULL, &error));
  OK(penstock_region_sink_begin_state(sink, 0, &error));
  SAYS(PENSTOCK_ERR_WRONG_STATE, "region 'region'", "field 'energy'", penstock_region_sink_end_state(sink, &error));
  OK(penstock_region_sink_abandon_state(sink, &error));
  OK(penstock_region_sink_begin_state(sink, 0, &error));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_region_sink_close(sink, &error));
  penstock_region_sink_destroy(sink); /* abandons the state */
  penstock_region_sink_destroy(NULL);
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_sink_close(NULL, &error));

  (void)add(model, penstock_entity_of(PENSTOCK_NODE_SET, "left", 7, 1));
  OK(penstock_context_create_region(context, "nowhere", NULL, "null", &sink, &error));
  SAYS(PENSTOCK_ERR_INVALID_ARGUMENT, "node_set 'left'", "twice", penstock_region_sink_define(sink, model, &error));
  penstock_region_sink_destroy(sink);
  FAILS(PENSTOCK_ERR_UNKNOWN_OPTION, penstock_context_create_region(context, "x", NULL, "pat=x", &sink, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_context_create_region(context, "x", NULL, "exodos", &sink, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_context_create_region(context, NULL, NULL, NULL, &sink, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_context_create_region(context, "x", NULL, "null", NULL, &error));
  FAILS(PENSTOCK_ERR_UNSUPPORTED, penstock_context_create_region(context, "2x2x2", NULL, "generated", &sink, &error));
}

static void check_source_errors(penstock_context* context) {
  penstock_region_source* source = NULL;
  penstock_model* model = NULL;
  penstock_state_outcome outcome = PENSTOCK_STATE_END;
  double time = 0, values[8];
  size_t count = 0, block, pressure;
  OK(penstock_context_open_region(context, "2x2x2|times:1|element:1", NULL, "generated", &source, &error));
  OK(penstock_region_source_model(source, 0, &model, &error));
  block = find_entity(model, PENSTOCK_ELEMENT_BLOCK, "block_1");
  pressure = find_field(model, block, "element0");
  penstock_model_destroy(model);
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_source_model(source, 1, &model, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_source_model(source, 0, NULL, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_source_times(source, 1, NULL, &count, &error));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_region_source_read(source, 0, block, pressure, 0, 8, values, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_source_next_state(source, -2, &outcome, &time, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_source_next_state(source, 0, NULL, &time, &error));
  OK(penstock_region_source_next_state(source, 0, &outcome, &time, &error));
  SAYS(PENSTOCK_ERR_INVALID_ARGUMENT, "element_block 'block_1'", "field 'element0'",
       penstock_region_source_read(source, 0, block, pressure, 1, 8, values, &error));
  SAYS(PENSTOCK_ERR_INVALID_ARGUMENT, "element_block 'block_1'", "field 'element0'",
       penstock_region_source_read(source, 0, block, pressure, 0, 8, NULL, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_source_read(source, 1, block, pressure, 0, 8, values, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_source_read(source, 0, 9, 0, 0, 1, values, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_source_read(source, 0, block, 9, 0, 1, values, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_source_join(source, NULL, &error));
  penstock_region_source_destroy(source);
  penstock_region_source_destroy(NULL);
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_region_source_parts(NULL, NULL, &error));
  FAILS(PENSTOCK_ERR_UNSUPPORTED, penstock_context_open_region(context, "x", NULL, "null", &source, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_context_open_region(NULL, "x", NULL, NULL, &source, &error));
}

enum { fluid_nodes, fluid };

static void check_structured(penstock_model* model) {
  penstock_structured read = {.struct_size = sizeof read};
  OK(penstock_model_structured(model, fluid, &read, &error));
  CHECK(read.cells[0] == 2 && read.whole[0] == 4 && read.offset[0] == 2 && read.cells[1] == 3 && read.cells[2] == 0);
  CHECK(read.num_connectivities == 1 && read.num_boundaries == 1);
  CHECK(strcmp(read.connectivities[0].donor, "fluid") == 0 && read.connectivities[0].decomposition == 1);
  CHECK(read.connectivities[0].transform[1] == 2 && read.connectivities[0].owner_last[1] == 3);
  CHECK(strcmp(read.boundaries[0].family, "outflow") == 0 && read.boundaries[0].face == 3);
  CHECK(read.boundaries[0].first[0] == 4);
}

/* A part of a structured block of two dimensions. */
static penstock_model* new_fluid(void) {
  const penstock_zone_connectivity cut = {.name = "cut",
                                          .donor = "fluid",
                                          .transform = {1, 2, 3},
                                          .owner_first = {2, 0, 0},
                                          .owner_last = {2, 3, 0},
                                          .donor_first = {2, 0, 0},
                                          .donor_last = {2, 3, 0},
                                          .decomposition = 1};
  const penstock_boundary_condition end = {
      .name = "end", .family = "outflow", .first = {4, 0, 0}, .last = {4, 3, 0}, .face = 3};
  const penstock_structured cells = {.struct_size = sizeof cells,
                                     .cells = {2, 3, 0},
                                     .whole = {4, 3, 0},
                                     .offset = {2, 0, 0},
                                     .num_connectivities = 1,
                                     .connectivities = &cut,
                                     .num_boundaries = 1,
                                     .boundaries = &end};
  penstock_model* model = NULL;
  penstock_structured none = {.struct_size = sizeof none};
  OK(penstock_model_create("structured", 2, &model, &error));
  CHECK(add(model, penstock_entity_of(PENSTOCK_NODE_BLOCK, "fluid", 1, 12)) == fluid_nodes);
  CHECK(add(model, penstock_entity_of(PENSTOCK_STRUCTURED_BLOCK, "fluid", 1, 6)) == fluid);
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_model_structured(model, fluid, &none, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_put_structured(model, 9, &cells, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_model_put_structured(model, fluid, NULL, &error));
  OK(penstock_model_put_structured(model, fluid, &cells, &error));
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_model_structured(model, fluid_nodes, &none, &error));
  return model;
}

static void* write_fluid(void* context) {
  penstock_model* model = new_fluid();
  penstock_region_sink* sink = NULL;
  OK(penstock_context_create_region(context, "fluid", NULL, NULL, &sink, &error));
  OK(penstock_region_sink_define(sink, model, &error));
  OK(penstock_region_sink_close(sink, &error));
  penstock_region_sink_destroy(sink);
  penstock_model_destroy(model);
  return NULL;
}

void test_region_structured(void) {
  penstock_context* context = new_context();
  penstock_model* model = new_fluid();
  penstock_region_source* source = NULL;
  pthread_t thread;
  check_structured(model);
  penstock_model_destroy(model);
  CHECK(pthread_create(&thread, NULL, write_fluid, context) == 0);
  OK(penstock_context_open_region(context, "fluid", NULL, "stream", &source, &error));
  OK(penstock_region_source_model(source, 0, &model, &error));
  check_structured(model);
  penstock_model_destroy(model);
  penstock_region_source_destroy(source);
  pthread_join(thread, NULL);
  penstock_context_destroy(context);
}

void test_region_errors(void) {
  penstock_context* context = new_context();
  penstock_model* model = new_strip();
  check_model_errors(model);
  check_strip(model); /* errors have changed nothing */
  check_sink_errors(context, model);
  check_source_errors(context);
  penstock_model_destroy(model);
  penstock_context_destroy(context);
}
