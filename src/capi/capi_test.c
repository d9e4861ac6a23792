/* The C API from C: each function, with a writer and a reader in one process.

   test_capi CASE runs one case, test_capi all those that need no server. These write and read on one thread, which the API allows; the
   cases about waiting and cohorts are in capi_threads_test.c. */
#include "capi/capi_test_pair.h"
#include "penstock/space.h"

char capi_test_directory[] = "/tmp/penstock-capi-XXXXXX";

/* ---------------------------------------------------------------------------------------------------------- cases */

static void test_names(void) {
  CHECK(strcmp(penstock_code_name(PENSTOCK_ERR_STEP_TOO_LARGE), "step_too_large") == 0);
  CHECK(strcmp(penstock_dtype_name(PENSTOCK_FLOAT64), "float64") == 0);
  CHECK(strcmp(penstock_dtype_name(99), "none") == 0);
  CHECK(penstock_dtype_size(PENSTOCK_COMPLEX64) == 8 && penstock_dtype_size(PENSTOCK_STRING) == 0);
  CHECK(penstock_dtype_size(-1) == 0);
  CHECK(strlen(penstock_version()) >= 5);
}

/* With a pool: tests/python/test_space_c.py. */
static void test_space(void) {
  char options[512];
  penstock_context* context = NULL;
  penstock_space* space = NULL;
  snprintf(options, sizeof options, "directory=%s", capi_test_directory);
  OK(penstock_context_create(options, &context, &error));
  FAILS(PENSTOCK_ERR_UNKNOWN_OPTION, penstock_space_create(context, "pol=stage", &space, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_space_create(context, "timeout_ms=soon", &space, &error));
  FAILS(PENSTOCK_ERR_PEER_LOST, penstock_space_create(context, "pool=stage,timeout_ms=100", &space, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_space_define(space, "T", PENSTOCK_FLOAT64, 0, NULL, NULL, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_pending_put_wait(NULL, &error));
  penstock_pending_put_destroy(NULL);
  penstock_space_destroy(space);
  penstock_context_destroy(context);
}

static void test_errors(void) {
  pair p = new_pair();
  const uint64_t shape[] = {4};
  double data[4] = {0};
  uint32_t variable = define(&p, "T", PENSTOCK_FLOAT64, PENSTOCK_GLOBAL_ARRAY, 1, shape);
  uint64_t number = 0;
  size_t count = 0;
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_writer_put_whole(p.writer, variable, data, &error));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_writer_step_number(p.writer, &number, &error));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_writer_end_step(p.writer, &error));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_reader_variable_count(p.reader, &count, &error));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_reader_end_step(p.reader, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_writer_end_step(NULL, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_writer_define(p.writer, "x", 99, 1, shape, NULL, &variable, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT,
        penstock_writer_define(p.writer, NULL, PENSTOCK_INT32, 1, shape, NULL, &variable, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_writer_begin_step(p.writer, -7, &error));
  FAILS(PENSTOCK_ERR_UNSUPPORTED, penstock_reader_seek(p.reader, 0, &error));
  FAILS(PENSTOCK_ERR_UNSUPPORTED, penstock_reader_steps(p.reader, 0, NULL, &count, &error));
  begin_write(&p);
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_writer_begin_step(p.writer, 0, &error));
  {
    const uint64_t start[] = {3}, size[] = {2};
    FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_writer_put(p.writer, variable, 1, start, size, data, &error));
  }
  OK(penstock_writer_put_whole(p.writer, variable, data, &error));
  hand_over(&p);
  {
    penstock_variable found;
    penstock_attribute attribute;
    penstock_error error;
    CHECK(penstock_reader_variable(p.reader, "t", &found, &error) == PENSTOCK_ERR_NOT_FOUND);
    CHECK(strstr(error.message, "T") != NULL);
    FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_reader_attribute(p.reader, "none", &attribute, &error));
    FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_reader_variable_at(p.reader, 1, &found, &error));
  }
  CHECK(penstock_reader_step_number(p.reader, &number, NULL) == PENSTOCK_OK); /* an error struct is not needed */
  end_read(&p);
  end_pair(&p);
}

static void test_options(void) {
  penstock_context* context = NULL;
  penstock_writer* writer = NULL;
  penstock_reader* reader = NULL;
  penstock_stream_entry* entries = NULL;
  size_t count = 0;
  char* text = NULL;
  int ran = 0;
  FAILS(PENSTOCK_ERR_UNKNOWN_OPTION, penstock_context_create("directori=/tmp", &context, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_context_create("explicit_progress=perhaps", &context, &error));
  context = new_context();
  FAILS(PENSTOCK_ERR_UNKNOWN_OPTION,
        penstock_context_create_stream(context, "heat", NULL, "queue_step=2", &writer, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT,
        penstock_context_create_stream(context, "heat", NULL, "when_full=sometimes", &writer, &error));
  FAILS(PENSTOCK_ERR_TIMEOUT,
        penstock_context_open_stream(context, "heat", NULL, "open_timeout_ms=50", &reader, &error));
  OK(penstock_context_create_stream(context, "heat", NULL, "direct, queue_steps=2, when_full=discard_oldest", &writer,
                                    &error));
  CHECK(strcmp(penstock_writer_name(writer), "heat") == 0);
  CHECK(strncmp(penstock_writer_address(writer), "tcp://", 6) == 0);
  OK(penstock_context_list_streams(context, &entries, &count, &error));
  CHECK(count == 1 && strcmp(entries[0].name, "heat") == 0 && entries[0].alive && entries[0].pid == getpid());
  penstock_stream_entries_free(entries);
  OK(penstock_context_inspect(context, "heat", deadline_ms, &text, &error));
  CHECK(text[0] == '{');
  penstock_text_free(text);
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_context_inspect(context, "cold", 1000, &text, &error));
  OK(penstock_context_open_stream(context, penstock_writer_address(writer), NULL, "data_plane=tcp", &reader, &error));
  CHECK(strcmp(penstock_reader_name(reader), "heat") == 0);
  (void)penstock_context_progress(context, &ran, NULL);
  penstock_reader_destroy(reader);
  penstock_writer_destroy(writer);
  penstock_context_destroy(context);
  penstock_context_destroy(NULL);
  penstock_writer_destroy(NULL);
  penstock_reader_destroy(NULL);
}

static void test_values(void) {
  pair p = new_pair();
  uint32_t global = define(&p, "time", PENSTOCK_FLOAT64, PENSTOCK_GLOBAL_VALUE, 0, NULL);
  uint32_t local = define(&p, "load", PENSTOCK_INT32, PENSTOCK_LOCAL_VALUE, 0, NULL);
  double time = 0.5;
  int32_t load = 7;
  uint64_t number = 99;
  int dropped = 1;
  begin_write(&p);
  OK(penstock_writer_step_number(p.writer, &number, &error));
  OK(penstock_writer_step_dropped(p.writer, &dropped, &error));
  CHECK(number == 0 && !dropped);
  OK(penstock_writer_put_whole(p.writer, global, &time, &error));
  OK(penstock_writer_put_whole(p.writer, local, &load, &error));
  hand_over(&p);
  time = 0;
  load = 0;
  CHECK(find(&p, "time").kind == PENSTOCK_GLOBAL_VALUE && find(&p, "load").kind == PENSTOCK_LOCAL_VALUE);
  get(&p, "time", NULL, &time);
  get(&p, "load", NULL, &load);
  CHECK(time == 0.5 && load == 7);
  OK(penstock_reader_step_number(p.reader, &number, &error));
  CHECK(number == 0);
  end_read(&p);
  end_pair(&p);
}

static void test_types(void) {
  pair p = new_pair();
  unsigned char data[3 * 16], out[3 * 16];
  uint32_t variables[PENSTOCK_STRING];
  const uint64_t shape[] = {3};
  for (size_t i = 0; i < sizeof data; ++i) data[i] = (unsigned char)(i * 37 + 1);
  for (int dtype = PENSTOCK_BOOLEAN; dtype < PENSTOCK_STRING; ++dtype)
    variables[dtype] = define(&p, penstock_dtype_name(dtype), dtype, PENSTOCK_GLOBAL_ARRAY, 1, shape);
  begin_write(&p);
  for (int dtype = PENSTOCK_BOOLEAN; dtype < PENSTOCK_STRING; ++dtype)
    OK(penstock_writer_put_whole(p.writer, variables[dtype], data, &error));
  hand_over(&p);
  {
    size_t count = 0;
    OK(penstock_reader_variable_count(p.reader, &count, &error));
    CHECK(count == PENSTOCK_STRING - 1);
  }
  for (int dtype = PENSTOCK_BOOLEAN; dtype < PENSTOCK_STRING; ++dtype) {
    penstock_variable found = find(&p, penstock_dtype_name(dtype));
    CHECK(found.dtype == dtype && found.ndims == 1 && found.shape[0] == 3 && found.blocks == 1);
    memset(out, 0, sizeof out);
    get(&p, found.name, NULL, out);
    CHECK(memcmp(out, data, 3 * penstock_dtype_size(dtype)) == 0);
  }
  end_read(&p);
  end_pair(&p);
}

static void test_blocks(void) {
  pair p = new_pair();
  const uint64_t shape[] = {2, 6};
  uint32_t variable = define(&p, "T", PENSTOCK_INT32, PENSTOCK_GLOBAL_ARRAY, 2, shape);
  const int32_t left[] = {0, 1, 6, 7};
  /* the right part lies transposed in the caller's memory, among other things */
  const int32_t right[] = {2, 8, -1, 3, 9, -1, 4, 10, -1, 5, 11, -1};
  const int64_t strides[] = {4, 12};
  const uint64_t left_start[] = {0, 0}, left_count[] = {2, 2}, right_start[] = {0, 2}, right_count[] = {2, 4};
  const uint64_t nothing[] = {0, 6};
  penstock_block blocks[4];
  size_t written = 0;
  int32_t out[12];
  begin_write(&p);
  OK(penstock_writer_put(p.writer, variable, 2, left_start, left_count, left, &error));
  OK(penstock_writer_put_strided(p.writer, variable, 2, right_start, right_count, right, strides, &error));
  OK(penstock_writer_put(p.writer, variable, 2, NULL, nothing, NULL, &error));
  hand_over(&p);
  OK(penstock_reader_blocks(p.reader, find(&p, "T").id, 0, 4, blocks, &written, &error));
  CHECK(written >= 2 && blocks[1].ndims == 2 && blocks[1].start[1] == 2 && blocks[1].count[1] == 4);
  CHECK(blocks[0].writer_rank == 0);
  OK(penstock_reader_blocks(p.reader, find(&p, "T").id, 1, 1, blocks, &written, &error));
  CHECK(written == 1 && blocks[0].start[1] == 2);
  get(&p, "T", NULL, out);
  for (int i = 0; i < 12; ++i) CHECK(out[i] == i);
  end_read(&p);
  end_pair(&p);
}

static void test_spans(void) {
  pair p = new_pair();
  const uint64_t shape[] = {4};
  const uint64_t low[] = {0}, high[] = {2}, two[] = {2};
  const uint32_t filled = define(&p, "span", PENSTOCK_FLOAT32, PENSTOCK_GLOBAL_ARRAY, 1, shape);
  const uint32_t lent = define(&p, "lent", PENSTOCK_FLOAT32, PENSTOCK_GLOBAL_ARRAY, 1, shape);
  float mine[] = {1, 2, 3, 4}, out[4];
  void* span = NULL;
  size_t size = 0;
  begin_write(&p);
  OK(penstock_writer_put_span(p.writer, filled, 1, low, two, &span, &size, &error));
  CHECK(size == 8 && (uintptr_t)span % 64 == 0);
  memcpy(span, mine, 8);
  OK(penstock_writer_put(p.writer, filled, 1, high, two, mine + 2, &error));
  OK(penstock_writer_lend(p.writer, lent, 1, NULL, shape, mine, &error));
  hand_over(&p);
  mine[0] = -1; /* ours again */
  get(&p, "span", NULL, out);
  CHECK(out[0] == 1 && out[1] == 2 && out[2] == 3 && out[3] == 4);
  get(&p, "lent", NULL, out);
  CHECK(out[0] == 1 && out[3] == 4);
  end_read(&p);
  end_pair(&p);
}

static void test_attributes(void) {
  pair p = new_pair();
  const double spacing[] = {0.1, 0.2, 0.3};
  const char* const axes[] = {"x", "", "z axis"};
  const int32_t answer = 42;
  const bool on = true;
  penstock_attribute a;
  size_t count = 0;
  OK(penstock_writer_put_attribute(p.writer, "spacing", PENSTOCK_FLOAT64, spacing, 3, 1, &error));
  OK(penstock_writer_put_attribute(p.writer, "on", PENSTOCK_BOOLEAN, &on, 1, 0, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT,
        penstock_writer_put_attribute(p.writer, "bad", PENSTOCK_STRING, axes, 3, 1, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT,
        penstock_writer_put_attribute(p.writer, "bad", PENSTOCK_FLOAT64, spacing, 3, 0, &error));
  for (int step = 0; step < 2; ++step) {
    begin_write(&p);
    if (step == 0) {
      OK(penstock_writer_put_attribute_strings(p.writer, "axes", axes, 3, &error));
      OK(penstock_writer_put_attribute(p.writer, "answer", PENSTOCK_INT32, &answer, 1, 0, &error));
    }
    OK(penstock_writer_put_attribute_string(p.writer, "phase", step == 0 ? "start" : "run", &error));
    hand_over(&p);
    OK(penstock_reader_attribute_count(p.reader, &count, &error));
    CHECK(count == 5);
    for (size_t i = 0; i < count; ++i) {
      const char* name = NULL;
      OK(penstock_reader_attribute_name(p.reader, i, &name, &error));
      OK(penstock_reader_attribute(p.reader, name, &a, &error));
    }
    OK(penstock_reader_attribute(p.reader, "axes", &a, &error)); /* stays in force */
    CHECK(a.dtype == PENSTOCK_STRING && a.is_array && a.count == 3 && a.values == NULL);
    CHECK(strcmp(a.strings[0], "x") == 0 && strcmp(a.strings[1], "") == 0 && strcmp(a.strings[2], "z axis") == 0);
    OK(penstock_reader_attribute(p.reader, "phase", &a, &error));
    CHECK(!a.is_array && a.count == 1 && strcmp(a.strings[0], step == 0 ? "start" : "run") == 0);
    OK(penstock_reader_attribute(p.reader, "spacing", &a, &error));
    CHECK(a.dtype == PENSTOCK_FLOAT64 && a.is_array && a.count == 3 && memcmp(a.values, spacing, 24) == 0);
    OK(penstock_reader_attribute(p.reader, "answer", &a, &error));
    CHECK(!a.is_array && *(const int32_t*)a.values == 42);
    end_read(&p);
  }
  end_pair(&p);
}

static void test_strings(void) {
  pair p = new_pair();
  uint32_t note = define(&p, "note", PENSTOCK_STRING, PENSTOCK_GLOBAL_VALUE, 0, NULL);
  uint32_t host = define(&p, "host", PENSTOCK_STRING, PENSTOCK_LOCAL_VALUE, 0, NULL);
  const char* const* strings = NULL;
  size_t count = 0;
  begin_write(&p);
  OK(penstock_writer_put_string(p.writer, note, "caf\xc3\xa9", &error));
  OK(penstock_writer_put_string(p.writer, host, "node1", &error));
  hand_over(&p);
  OK(penstock_reader_strings(p.reader, find(&p, "note").id, &strings, &count, &error));
  CHECK(count == 1 && strcmp(strings[0], "caf\xc3\xa9") == 0);
  OK(penstock_reader_strings(p.reader, find(&p, "host").id, &strings, &count, &error));
  CHECK(count == 1 && strcmp(strings[0], "node1") == 0);
  end_read(&p);
  end_pair(&p);
}

static void test_selections(void) {
  pair p = new_pair();
  const uint64_t shape[] = {4, 6};
  uint32_t variable = define(&p, "T", PENSTOCK_INT32, PENSTOCK_GLOBAL_ARRAY, 2, shape);
  int32_t data[24], out[24];
  const uint64_t start[] = {1, 2}, two[] = {2, 2}, stride[] = {2, 3}, points[] = {3, 5, 0, 0, 2, 1};
  uint64_t found[PENSTOCK_MAX_DIMS];
  uint32_t ndims = 0;
  for (int i = 0; i < 24; ++i) data[i] = i;
  begin_write(&p);
  OK(penstock_writer_put_whole(p.writer, variable, data, &error));
  hand_over(&p);

  penstock_selection box = penstock_select_box(2, start, two);
  get(&p, "T", &box, out);
  CHECK(out[0] == 8 && out[1] == 9 && out[2] == 14 && out[3] == 15);
  OK(penstock_reader_get(p.reader, find(&p, "T").id, &box, out, PENSTOCK_COLUMN, NULL, &error));
  OK(penstock_reader_wait(p.reader, PENSTOCK_CONFIGURED, &error));
  CHECK(out[0] == 8 && out[1] == 14 && out[2] == 9 && out[3] == 15);
  const int64_t spread[] = {16, 8};
  memset(out, 0xff, sizeof out);
  OK(penstock_reader_get(p.reader, find(&p, "T").id, &box, out, PENSTOCK_ROW, spread, &error));
  OK(penstock_reader_wait(p.reader, PENSTOCK_FOREVER, &error));
  CHECK(out[0] == 8 && out[1] == -1 && out[2] == 9 && out[4] == 14 && out[6] == 15);

  penstock_selection strided = penstock_select_strided(2, start, two, stride);
  OK(penstock_reader_selection_shape(p.reader, find(&p, "T").id, &strided, &ndims, found, &error));
  CHECK(ndims == 2 && found[0] == 2 && found[1] == 2);
  get(&p, "T", &strided, out);
  CHECK(out[0] == 8 && out[1] == 11 && out[2] == 20 && out[3] == 23);

  penstock_selection block = penstock_select_block(0);
  get(&p, "T", &block, out);
  CHECK(memcmp(out, data, sizeof data) == 0);
  penstock_selection some = penstock_select_points(2, points, 3);
  get(&p, "T", &some, out);
  CHECK(out[0] == 23 && out[1] == 0 && out[2] == 13);

  const uint64_t far[] = {4, 6};
  penstock_selection outside = penstock_select_box(2, far, two);
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT,
        penstock_reader_get(p.reader, find(&p, "T").id, &outside, out, PENSTOCK_ROW, NULL, &error));
  end_read(&p);
  end_pair(&p);
}

static void test_views(void) {
  pair p = new_pair();
  const uint64_t shape[] = {4};
  uint32_t variable = define(&p, "T", PENSTOCK_INT64, PENSTOCK_GLOBAL_ARRAY, 1, shape);
  const uint64_t low[] = {0}, high[] = {2}, two[] = {2};
  const int64_t data[] = {10, 11, 12, 13};
  penstock_view* views = NULL;
  size_t count = 0;
  begin_write(&p);
  OK(penstock_writer_put(p.writer, variable, 1, low, two, data, &error));
  OK(penstock_writer_put(p.writer, variable, 1, high, two, data + 2, &error));
  hand_over(&p);
  OK(penstock_reader_view(p.reader, find(&p, "T").id, NULL, &views, &count, &error));
  CHECK(count == 2 && views[1].ndims == 1 && views[1].start[0] == 2 && views[1].count[0] == 2);
  CHECK(views[0].size == 16 && views[0].strides[0] == 8 && views[0].order == PENSTOCK_ROW);
  end_read(&p);
  penstock_reader_destroy(p.reader);
  p.reader = NULL;
  CHECK(((const int64_t*)views[0].data)[1] == 11 && ((const int64_t*)views[1].data)[1] == 13);
  penstock_views_release(views, count);
  penstock_views_release(NULL, 0);
  OK(penstock_writer_close(p.writer, deadline_ms, &error));
  penstock_writer_destroy(p.writer);
  penstock_context_destroy(p.context);
}

static void test_min_max(void) {
  pair p = new_pair();
  const uint64_t shape[] = {4};
  const uint64_t low[] = {0}, high[] = {2}, two[] = {2};
  const float data[] = {3, -1, 7, 2};
  penstock_variable_options options = {PENSTOCK_GLOBAL_ARRAY, PENSTOCK_ROW, 1};
  uint32_t with = 0, without = define(&p, "without", PENSTOCK_FLOAT32, PENSTOCK_GLOBAL_ARRAY, 1, shape);
  float min[4], max[4];
  int present = 0;
  OK(penstock_writer_define(p.writer, "with", PENSTOCK_FLOAT32, 1, shape, &options, &with, &error));
  begin_write(&p);
  OK(penstock_writer_put_whole(p.writer, without, data, &error));
  OK(penstock_writer_put(p.writer, with, 1, low, two, data, &error));
  OK(penstock_writer_put(p.writer, with, 1, high, two, data + 2, &error));
  hand_over(&p);
  OK(penstock_reader_min_max(p.reader, find(&p, "with").id, PENSTOCK_ALL_BLOCKS, min, max, &present, &error));
  CHECK(present && min[0] == -1 && max[0] == 7);
  OK(penstock_reader_min_max(p.reader, find(&p, "with").id, 1, min, max, &present, &error));
  CHECK(present && min[0] == 2 && max[0] == 7);
  OK(penstock_reader_min_max(p.reader, find(&p, "without").id, PENSTOCK_ALL_BLOCKS, min, max, &present, &error));
  CHECK(!present);
  end_read(&p);
  end_pair(&p);
}

static void test_shapes(void) {
  pair p = new_pair();
  uint32_t global = 0, local = define(&p, "particles", PENSTOCK_UINT8, PENSTOCK_LOCAL_ARRAY, 0, NULL);
  const uint64_t first[] = {2}, data_shape[] = {3};
  const uint8_t data[] = {1, 2, 3};
  uint8_t out[3];
  OK(penstock_writer_define(p.writer, "T", PENSTOCK_UINT8, 1, first, NULL, &global, &error));
  for (uint64_t size = 1; size <= 3; ++size) {
    begin_write(&p);
    OK(penstock_writer_set_shape(p.writer, global, 1, &size, &error));
    OK(penstock_writer_put_whole(p.writer, global, data, &error));
    OK(penstock_writer_put(p.writer, local, 1, NULL, &size, data, &error));
    OK(penstock_writer_put(p.writer, local, 1, NULL, data_shape, data, &error));
    hand_over(&p);
    CHECK(find(&p, "T").shape[0] == size && find(&p, "particles").ndims == 0 && find(&p, "particles").blocks == 2);
    penstock_selection block = penstock_select_block(1);
    get(&p, "T", NULL, out);
    CHECK(out[size - 1] == size);
    get(&p, "particles", &block, out);
    CHECK(memcmp(out, data, 3) == 0);
    end_read(&p);
  }
  end_pair(&p);
}

static void test_statistics(void) {
  pair p = new_pair();
  const uint64_t shape[] = {1000};
  uint32_t variable = define(&p, "T", PENSTOCK_FLOAT64, PENSTOCK_GLOBAL_ARRAY, 1, shape);
  static double data[1000];
  penstock_statistics statistics = {.struct_size = sizeof statistics};
  penstock_peer_statistics peers[2] = {{.struct_size = sizeof peers[0]}, {0}};
  size_t written = 0;
  struct {
    size_t struct_size;
    uint64_t steps;
    uint64_t guard;
  } old = {16, 0, 77};
  begin_write(&p);
  OK(penstock_writer_put_whole(p.writer, variable, data, &error));
  hand_over(&p);
  OK(penstock_writer_statistics(p.writer, &statistics, &error));
  CHECK(statistics.struct_size == sizeof statistics && statistics.steps == 1 && statistics.bytes == 8000);
  CHECK(statistics.peers == 1 && statistics.queue_depth >= 1);
  OK(penstock_writer_peer_statistics(p.writer, 2, peers, &written, &error));
  CHECK(written == 1 && peers[0].ranks == 1 && peers[0].struct_size == sizeof peers[0]);
  get(&p, "T", NULL, data);
  OK(penstock_reader_statistics(p.reader, &statistics, &error));
  CHECK(statistics.steps == 1 && statistics.bytes == 8000 && statistics.data_plane[0] != '\0');
  /* a caller compiled against a shorter struct */
  OK(penstock_reader_statistics(p.reader, (penstock_statistics*)&old, &error));
  CHECK(old.steps == 1 && old.guard == 77);
  statistics.struct_size = 0;
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_reader_statistics(p.reader, &statistics, &error));
  end_read(&p);
  end_pair(&p);
}

/* ------------------------------------------------------------------------------------------------------------ main */

typedef struct analysis {
  int calls;
  int fail;
  const void* seen;
} analysis;

static int analyse(penstock_reader* reader, void* user, penstock_error* why) {
  analysis* a = user;
  penstock_variable variable;
  penstock_view* views = NULL;
  size_t count = 0;
  ++a->calls;
  OK(penstock_reader_variable(reader, "v", &variable, &error));
  OK(penstock_reader_view(reader, variable.id, NULL, &views, &count, &error));
  CHECK(count == 1 && views[0].strides[0] == 3 * (int64_t)sizeof(double));
  a->seen = views[0].data;
  penstock_views_release(views, count);
  if (!a->fail) return PENSTOCK_OK;
  snprintf(why->message, sizeof why->message, "no convergence");
  return PENSTOCK_ERR_INTERNAL;
}

/* One thread: the writer's end calls the reader's function with the array that was lent. */
static void test_on_step(void) {
  const char* options = "insitu,open_timeout_ms=20000";
  pair p = {new_context(), NULL, NULL};
  analysis a = {0, 0, NULL};
  double all[4 * 3] = {0};
  const uint64_t shape[] = {4, 2}, start[] = {0, 0};
  const int64_t strides[] = {3 * (int64_t)sizeof(double), (int64_t)sizeof(double)};
  OK(penstock_context_create_stream(p.context, "heat", NULL, options, &p.writer, &error));
  OK(penstock_context_open_stream(p.context, "heat", NULL, options, &p.reader, &error));
  uint32_t v = define(&p, "v", PENSTOCK_FLOAT64, PENSTOCK_GLOBAL_ARRAY, 2, shape);
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_reader_on_step(p.reader, NULL, NULL, 0, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_reader_on_step(p.reader, analyse, &a, 7, &error));
  OK(penstock_reader_on_step(p.reader, analyse, &a, PENSTOCK_ON_ERROR_RAISE, &error));
  for (int t = 0; t < 3; ++t) {
    a.fail = t == 1;
    begin_write(&p);
    OK(penstock_writer_lend_strided(p.writer, v, 2, start, shape, all + 1, strides, &error));
    if (a.fail) {
      penstock_error error;
      CHECK(penstock_writer_end_step(p.writer, &error) == PENSTOCK_ERR_INTERNAL);
      CHECK(strstr(error.message, "no convergence") != NULL);
    } else {
      OK(penstock_writer_end_step(p.writer, &error));
    }
    CHECK(a.calls == t + 1 && a.seen == all + 1);
  }
  penstock_statistics statistics = {.struct_size = sizeof statistics};
  OK(penstock_reader_statistics(p.reader, &statistics, &error));
  CHECK(statistics.steps == 3 && statistics.analysis_errors == 1);
  end_pair(&p);
}

static const struct {
  const char* name;
  void (*run)(void);
} cases[] = {
    {"names", test_names},
    {"space", test_space},
    {"errors", test_errors},
    {"options", test_options},
    {"values", test_values},
    {"types", test_types},
    {"blocks", test_blocks},
    {"spans", test_spans},
    {"attributes", test_attributes},
    {"strings", test_strings},
    {"selections", test_selections},
    {"views", test_views},
    {"min_max", test_min_max},
    {"shapes", test_shapes},
    {"cohort", test_cohort},
    {"outcomes", test_outcomes},
    {"statistics", test_statistics},
    {"on_step", test_on_step},
    {"coprocessor", test_coprocessor},
    {"pool_arguments", test_pool_arguments},
    {"pool", test_pool},
    {"pool_stream", test_pool_stream},
    {"model", test_model},
    {"region_file", test_region_file},
    {"region_stream", test_region_stream},
    {"region_parts", test_region_parts},
    {"region_structured", test_region_structured},
    {"region_errors", test_region_errors},
};

static bool needs_server(const char* name) { return strcmp(name, "pool") == 0 || strcmp(name, "pool_stream") == 0; }

int main(int argc, char** argv) {
  int ran = 0;
  CHECK(mkdtemp(capi_test_directory) != NULL);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    if (argc > 1 ? strcmp(argv[1], cases[i].name) != 0 : needs_server(cases[i].name)) continue;
    cases[i].run();
    ++ran;
  }
  CHECK(ran > 0);
  rmdir(capi_test_directory); /* fails, and says nothing, when a stream left something behind */
  return 0;
}
