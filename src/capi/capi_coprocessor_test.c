/* Co-processing through the C API: a demand, fields, steering and policies, in one process. */
#include "capi/capi_test_pair.h"
#include "penstock/coprocessor.h"

static const char* const grid_text =
    "{\"version\":1,\"meshes\":{\"grid\":{\"type\":\"uniform\",\"shape\":[4,3],\"axes\":\"yx\",\"origin\":[0.0,0.0,0.0]"
    ","
    "\"spacing\":[1.0,2.0,1.0],\"fields\":{\"T\":{\"association\":\"node\",\"variables\":[\"T\"],\"units\":\"K\"},"
    "\"v\":{\"association\":\"element\",\"variables\":[\"v\"],\"components\":2}}}}}";

typedef struct watcher {
  int steps;
  int64_t cycle;
  size_t variables;
  double last;
  int described;
} watcher;

static int watch(penstock_reader* reader, void* user, penstock_error* error) {
  watcher* w = user;
  penstock_attribute attribute;
  penstock_variable variable;
  double all[12];
  (void)error;
  ++w->steps;
  OK(penstock_reader_variable_count(reader, &w->variables, &error));
  OK(penstock_reader_attribute(reader, "cycle", &attribute, &error));
  w->cycle = *(const int64_t*)attribute.values;
  OK(penstock_reader_variable(reader, "T", &variable, &error));
  OK(penstock_reader_get(reader, variable.id, NULL, all, PENSTOCK_ROW, NULL, &error));
  OK(penstock_reader_wait(reader, deadline_ms, &error));
  w->last = all[11];
  OK(penstock_reader_attribute(reader, "meshes", &attribute, &error));
  w->described = strcmp(attribute.strings[0], grid_text) == 0;
  return PENSTOCK_OK;
}

static void ask(penstock_writer* requests, uint32_t variable, const char* text) {
  OK(penstock_writer_begin_step(requests, deadline_ms, &error));
  OK(penstock_writer_put_string(requests, variable, text, &error));
  OK(penstock_writer_end_step(requests, &error));
}

static penstock_coprocessor_statistics statistics_of(const penstock_coprocessor* coprocessor) {
  penstock_coprocessor_statistics statistics = {.struct_size = sizeof statistics};
  OK(penstock_coprocessor_get_statistics(coprocessor, &statistics, &error));
  return statistics;
}

void test_coprocessor(void) {
  penstock_context* context = new_context();
  penstock_coprocessor* c = NULL;
  penstock_reader* reader = NULL;
  penstock_writer* requests = NULL;
  penstock_variable_options value = {PENSTOCK_GLOBAL_VALUE, PENSTOCK_ROW, 0};
  penstock_mesh mesh = penstock_mesh_of(PENSTOCK_MESH_UNIFORM);
  penstock_field_options vector = {PENSTOCK_ELEMENT, 2, NULL, NULL, PENSTOCK_ROW, 0};
  penstock_field_options kelvin = {.units = "K"};
  uint32_t t = 0, v = 0, request = 0, none = 0;
  int wanted = 0, status = -1, on = 0;
  double f = 0, T[4][5] = {{0}};
  int64_t n = 0;
  const char* name = NULL;
  void* span = NULL;
  size_t size = 1;
  watcher seen = {0};
  const char* options = "insitu, wait=drop, every=1, rendezvous_readers=0";

  FAILS(PENSTOCK_ERR_UNKNOWN_OPTION, penstock_coprocessor_create(context, "heat", NULL, "evry=2", &c, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_coprocessor_create(context, "heat", NULL, "every=0", &c, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_coprocessor_create(NULL, "heat", NULL, NULL, &c, &error));
  OK(penstock_coprocessor_create(context, "heat", NULL, options, &c, &error));
  OK(penstock_context_open_stream(context, "heat", NULL, "insitu", &reader, &error));
  OK(penstock_reader_on_step(reader, watch, &seen, PENSTOCK_ON_ERROR_RAISE, &error));

  mesh.ndims = 2;
  mesh.shape[0] = 4;
  mesh.shape[1] = 3;
  mesh.axes = "yx";
  mesh.spacing[1] = 2;
  OK(penstock_coprocessor_set_mesh(c, "grid", &mesh, &error));
  OK(penstock_coprocessor_field(c, "grid", "T", PENSTOCK_FLOAT64, &kelvin, &t, &error));
  OK(penstock_coprocessor_field(c, "grid", "v", PENSTOCK_FLOAT32, &vector, &v, &error));
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_coprocessor_structure(c, "grid", "x", PENSTOCK_FLOAT64, 0, &none, &error));
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_coprocessor_field(c, "gird", "T", PENSTOCK_FLOAT64, NULL, &none, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_coprocessor_field(c, "grid", "w", 99, NULL, &none, &error));
  {
    penstock_mesh bad = penstock_mesh_of(PENSTOCK_MESH_UNSTRUCTURED);
    const char* points = "points";
    penstock_element_block block = {"b", 1, "hex9", "c", NULL, NULL};
    bad.coordinates_count = 1;
    FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_coprocessor_set_mesh(c, "body", &bad, &error));
    bad.coordinates = &points;
    bad.blocks_count = 1;
    bad.blocks = &block;
    FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_coprocessor_set_mesh(c, "body", &bad, &error));
    bad.type = 99;
    FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_coprocessor_set_mesh(c, "body", &bad, &error));
    bad = penstock_mesh_of(PENSTOCK_MESH_AMR);
    bad.ndims = 1;
    bad.shape[0] = 8;
    bad.levels = "l";
    bad.indices = "i";
    bad.depth = 3;
    FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_coprocessor_set_mesh(c, "tree", &bad, &error)); /* no splits */
    bad.struct_size = 0;
    FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_coprocessor_set_mesh(c, "body", &bad, &error));
  }

  OK(penstock_coprocessor_declare_double(c, "F", 0.02, 0, 1, &error));
  OK(penstock_coprocessor_declare_int(c, "n", 5, 1, 9, &error));
  OK(penstock_coprocessor_declare_bool(c, "on", 0, &error));
  OK(penstock_coprocessor_declare_string(c, "name", "red", &error));
  FAILS(PENSTOCK_ERR_ALREADY_EXISTS, penstock_coprocessor_declare_bool(c, "on", 0, &error));

  /* Everything, until somebody asks: the inside of an array with halos, lent. */
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_coprocessor_coprocess(c, &error));
  OK(penstock_coprocessor_request(c, 0, 0.0, &wanted, &error));
  CHECK(wanted);
  OK(penstock_coprocessor_wants(c, v, &wanted, &error));
  CHECK(wanted);
  {
    const uint64_t count[] = {4, 3};
    const int64_t strides[] = {sizeof T[0], sizeof(double)};
    T[3][3] = 7;
    OK(penstock_coprocessor_lend(c, t, 2, NULL, count, &T[0][1], strides, &error));
  }
  OK(penstock_coprocessor_put_span(c, v, 0, NULL, NULL, &span, &size, &error));
  CHECK(span && size == 3 * 2 * 2 * sizeof(float));
  memset(span, 0, size);
  OK(penstock_coprocessor_coprocess(c, &error));
  CHECK(seen.steps == 1 && seen.variables == 2 && seen.last == 7 && seen.described);

  OK(penstock_context_create_stream(context, "heat.requests", NULL,
                                    "rendezvous_readers=0,reserve_steps=1,when_full=discard_newest", &requests,
                                    &error));
  OK(penstock_writer_define(requests, "request", PENSTOCK_STRING, 0, NULL, &value, &request, &error));
  ask(requests, request,
      "{\"version\": 1, \"number\": 4, \"rules\": [{\"fields\": [\"T\"], \"when\": [\"step\", 2, \"%\"]}],"
      " \"steering\": {\"F\": 0.5, \"n\": 7, \"on\": true, \"name\": \"blue\"}}");
  for (int64_t cycle = 1; statistics_of(c).demand_number != 4; ++cycle) {
    OK(penstock_coprocessor_request(c, 2, 0.0, &wanted, &error));
    if (wanted) OK(penstock_coprocessor_abandon(c, &error));
    CHECK(cycle < 1000000000);
  }
  OK(penstock_coprocessor_double(c, "F", &f, &error));
  OK(penstock_coprocessor_int(c, "n", &n, &error));
  OK(penstock_coprocessor_bool(c, "on", &on, &error));
  OK(penstock_coprocessor_string(c, "name", &name, &error));
  CHECK(f == 0.5 && n == 7 && on && strcmp(name, "blue") == 0);
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_coprocessor_double(c, "G", &f, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_coprocessor_int(c, "F", &n, &error));

  OK(penstock_coprocessor_request(c, 4, 0.0, &wanted, &error));
  CHECK(!wanted);
  OK(penstock_coprocessor_request(c, 5, 2.5, &wanted, &error));
  CHECK(wanted);
  {
    double whole[12] = {0};
    whole[11] = 8;
    OK(penstock_coprocessor_put(c, t, 0, NULL, NULL, whole, NULL, &error));
  }
  OK(penstock_coprocessor_put_span(c, v, 0, NULL, NULL, &span, &size, &error));
  CHECK(span == NULL && size == 0);
  OK(penstock_coprocessor_coprocess(c, &error));
  CHECK(seen.steps == 2 && seen.cycle == 5 && seen.variables == 1 && seen.last == 8);
  CHECK(statistics_of(c).steps == 2 && statistics_of(c).skipped_trigger > 0 && statistics_of(c).demands == 1);

  OK(penstock_reader_close(reader, &error));
  OK(penstock_coprocessor_finalize(c, deadline_ms, &status, &error));
  CHECK(status == 0);
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_coprocessor_request(c, 6, 0.0, &wanted, &error));
  penstock_coprocessor_destroy(c);
  penstock_coprocessor_destroy(NULL);
  penstock_reader_destroy(reader);
  OK(penstock_writer_close(requests, 0, &error));
  penstock_writer_destroy(requests);
  penstock_context_destroy(context);
}
