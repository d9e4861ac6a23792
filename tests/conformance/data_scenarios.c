/* The data model, scenario by scenario, in C. Names are those of the scenario table. */
#include <math.h>

#include "scenarios_c.h"

/* -------------------------------------------------------------------------------------------------- element types */

/* Bytes of no regular pattern; booleans are 0 and 1. */
static void sample(int dtype, unsigned char* out, size_t elements) {
  const size_t size = elements * penstock_dtype_size(dtype);
  for (size_t i = 0; i < size; ++i) out[i] = (unsigned char)(dtype == PENSTOCK_BOOLEAN ? i % 3 == 0 : i * 37 + 1);
}

static void write_element_types(penstock_writer* writer, int rank) {
  unsigned char data[3 * 16];
  uint32_t variables[PENSTOCK_STRING];
  (void)rank;
  for (int dtype = PENSTOCK_BOOLEAN; dtype < PENSTOCK_STRING; ++dtype)
    variables[dtype] = define(writer, penstock_dtype_name(dtype), dtype, 1, DIMS(3));
  for (int t = 0; t < 3; ++t) {
    begin_write(writer);
    for (int dtype = PENSTOCK_BOOLEAN; dtype < PENSTOCK_STRING; ++dtype) {
      sample(dtype, data, 3);
      OK(penstock_writer_put_whole(writer, variables[dtype], data, &error));
    }
    end_write(writer);
  }
}

static void read_element_types(penstock_reader* reader, int rank) {
  unsigned char expected[3 * 16], out[3 * 16];
  (void)rank;
  for (int t = 0; t < 3; ++t) {
    begin_read(reader);
    for (int dtype = PENSTOCK_BOOLEAN; dtype < PENSTOCK_STRING; ++dtype) {
      CHECK(find(reader, penstock_dtype_name(dtype)).dtype == dtype);
      sample(dtype, expected, 3);
      get(reader, penstock_dtype_name(dtype), NULL, out);
      CHECK(memcmp(out, expected, 3 * penstock_dtype_size(dtype)) == 0);
    }
    end_read(reader);
  }
  CHECK(outcome_within(reader, wait_ms) == PENSTOCK_END_OF_STREAM);
}

static void element_types(void) { cohorts(1, 1, write_element_types, read_element_types); }

/* --------------------------------------------------------------------------------------------------------- shapes */

static void write_eight_dimensions(penstock_writer* writer, int rank) {
  double data[1 << PENSTOCK_MAX_DIMS];
  char name[8];
  (void)rank;
  number(data, 1 << PENSTOCK_MAX_DIMS, 0);
  begin_write(writer);
  for (size_t d = 1; d <= PENSTOCK_MAX_DIMS; ++d) {
    snprintf(name, sizeof name, "v%zu", d);
    const uint32_t v = define(writer, name, PENSTOCK_FLOAT64, d, DIMS(2, 2, 2, 2, 2, 2, 2, 2));
    put(writer, v, d, NULL, DIMS(2, 2, 2, 2, 2, 2, 2, 2), data);
  }
  end_write(writer);
}

static void read_eight_dimensions(penstock_reader* reader, int rank) {
  double out[1 << PENSTOCK_MAX_DIMS];
  char name[8];
  (void)rank;
  begin_read(reader);
  for (size_t d = 1; d <= PENSTOCK_MAX_DIMS; ++d) {
    snprintf(name, sizeof name, "v%zu", d);
    CHECK(find(reader, name).ndims == d);
    get(reader, name, NULL, out);
    CHECK(is_numbered(out, UINT64_C(1) << d, 0));
  }
  end_read(reader);
}

static void up_to_eight_dimensions(void) { cohorts(1, 1, write_eight_dimensions, read_eight_dimensions); }

static void write_changing_shape(penstock_writer* writer, int rank) {
  double data[24];
  (void)rank;
  const uint32_t v = define(writer, "v", PENSTOCK_FLOAT64, 2, DIMS(4, 1));
  for (uint64_t t = 0; t < 6; ++t) {
    number(data, 4 * (t + 1), t);
    begin_write(writer);
    OK(penstock_writer_set_shape(writer, v, 2, DIMS(4, t + 1), &error));
    OK(penstock_writer_put_whole(writer, v, data, &error));
    end_write(writer);
  }
}

static void read_changing_shape(penstock_reader* reader, int rank) {
  double out[24];
  (void)rank;
  for (uint64_t t = 0; t < 6; ++t) {
    begin_read(reader);
    CHECK(find(reader, "v").shape[0] == 4 && find(reader, "v").shape[1] == t + 1);
    get(reader, "v", NULL, out);
    CHECK(is_numbered(out, 4 * (t + 1), t));
    end_read(reader);
  }
}

static void changing_shape(void) { cohorts(1, 1, write_changing_shape, read_changing_shape); }

/* Rows of a 12 x 5 array, cut differently each step. */
static void write_changing_decomposition(penstock_writer* writer, int rank) {
  double all[60];
  const uint32_t v = define(writer, "v", PENSTOCK_FLOAT64, 2, DIMS(12, 5));
  for (uint64_t t = 0; t < 6; ++t) {
    const uint64_t cut[] = {0, 1 + t, 7 + t % 3, 12};
    number(all, 60, t);
    begin_write(writer);
    put(writer, v, 2, DIMS(cut[rank], 0), DIMS(cut[rank + 1] - cut[rank], 5), all + cut[rank] * 5);
    end_write(writer);
  }
}

static void read_changing_decomposition(penstock_reader* reader, int rank) {
  double out[60];
  const uint64_t first = rank == 0 ? 0 : 5, rows = rank == 0 ? 5 : 7;
  for (uint64_t t = 0; t < 6; ++t) {
    const penstock_selection box = penstock_select_box(2, DIMS(first, 0), DIMS(rows, 5));
    begin_read(reader);
    get(reader, "v", &box, out);
    for (uint64_t i = 0; i < rows * 5; ++i) CHECK(out[i] == (double)(first * 5 + i + 1000 * t));
    end_read(reader);
  }
}

static void changing_decomposition(void) { cohorts(3, 2, write_changing_decomposition, read_changing_decomposition); }

static void write_several_blocks(penstock_writer* writer, int rank) {
  double all[8];
  const uint32_t v = define(writer, "v", PENSTOCK_FLOAT64, 1, DIMS(8));
  number(all, 8, 0);
  for (int t = 0; t < 3; ++t) {
    begin_write(writer);
    if (rank == 0)
      for (uint64_t i = 0; i < 8; i += 2) put(writer, v, 1, DIMS(i), DIMS(1), all + i);
    if (rank == 1) put(writer, v, 1, DIMS(4), DIMS(0), NULL);
    if (rank == 2)
      for (uint64_t i = 4; i-- > 0;) put(writer, v, 1, DIMS(2 * i + 1), DIMS(1), all + 2 * i + 1);
    end_write(writer);
  }
}

static void read_several_blocks(penstock_reader* reader, int rank) {
  double out[8];
  penstock_block blocks[9];
  size_t count = 0;
  (void)rank;
  for (int t = 0; t < 3; ++t) {
    const penstock_selection fifth = penstock_select_block(5);
    begin_read(reader);
    CHECK(find(reader, "v").blocks == 9);
    OK(penstock_reader_blocks(reader, find(reader, "v").id, 0, 9, blocks, &count, &error));
    CHECK(count == 9 && blocks[3].start[0] == 6 && blocks[4].count[0] == 0 && blocks[4].writer_rank == 1);
    CHECK(blocks[5].start[0] == 7 && blocks[5].writer_rank == 2);
    get(reader, "v", NULL, out);
    CHECK(is_numbered(out, 8, 0));
    get(reader, "v", &fifth, out);
    CHECK(out[0] == 7);
    end_read(reader);
  }
}

static void several_blocks_and_empty_contributions(void) { cohorts(3, 1, write_several_blocks, read_several_blocks); }

/* --------------------------------------------------------------------------------------------------------- values */

static void write_values(penstock_writer* writer, int rank) {
  const uint32_t time = define_kind(writer, "time", PENSTOCK_FLOAT64, PENSTOCK_GLOBAL_VALUE);
  const uint32_t load = define_kind(writer, "load", PENSTOCK_INT32, PENSTOCK_LOCAL_VALUE);
  const uint32_t label = define_kind(writer, "label", PENSTOCK_STRING, PENSTOCK_GLOBAL_VALUE);
  const uint32_t host = define_kind(writer, "host", PENSTOCK_STRING, PENSTOCK_LOCAL_VALUE);
  char text[400] = "step ";
  memset(text + 5, 'x', 300);
  for (int t = 0; t < 4; ++t) {
    const double now = 0.5 * t;
    const int32_t busy = 10 * rank + t;
    begin_write(writer);
    if (rank == 0) {
      text[5 + 100 * t] = '\0';
      OK(penstock_writer_put_whole(writer, time, &now, &error));
      OK(penstock_writer_put_string(writer, label, text, &error));
      text[5 + 100 * t] = 'x';
    }
    OK(penstock_writer_put_whole(writer, load, &busy, &error));
    OK(penstock_writer_put_string(writer, host, rank == 0 ? "rank0" : "rank1", &error));
    end_write(writer);
  }
}

static void read_values(penstock_reader* reader, int rank) {
  const char* const* strings = NULL;
  size_t count = 0;
  (void)rank;
  for (int t = 0; t < 4; ++t) {
    double now = -1;
    int32_t busy[2] = {-1, -1};
    begin_read(reader);
    get(reader, "time", NULL, &now);
    get(reader, "load", NULL, busy);
    CHECK(now == 0.5 * t && busy[0] == t && busy[1] == 10 + t);
    CHECK(find(reader, "load").ndims == 1 && find(reader, "load").shape[0] == 2);
    OK(penstock_reader_strings(reader, find(reader, "label").id, &strings, &count, &error));
    CHECK(count == 1 && strlen(strings[0]) == 5 + 100 * (size_t)t);
    OK(penstock_reader_strings(reader, find(reader, "host").id, &strings, &count, &error));
    CHECK(count == 2 && strcmp(strings[0], "rank0") == 0 && strcmp(strings[1], "rank1") == 0);
    end_read(reader);
  }
}

static void values(void) { cohorts(2, 2, write_values, read_values); }

static void write_local_arrays(penstock_writer* writer, int rank) {
  double data[7 * 3];
  const uint32_t particles = define_kind(writer, "particles", PENSTOCK_FLOAT64, PENSTOCK_LOCAL_ARRAY);
  for (uint64_t t = 0; t < 3; ++t) {
    const uint64_t n = 2 + (uint64_t)rank + t;
    number(data, n * 3, (uint64_t)rank);
    begin_write(writer);
    put(writer, particles, 2, NULL, DIMS(n, 3), data);
    end_write(writer);
  }
}

static void read_local_arrays(penstock_reader* reader, int rank) {
  double out[7 * 3];
  (void)rank;
  for (uint64_t t = 0; t < 3; ++t) {
    begin_read(reader);
    for (uint64_t r = 0; r < 3; ++r) {
      const uint64_t n = 2 + r + t;
      const penstock_selection block = penstock_select_block(r);
      penstock_block info;
      size_t count = 0;
      OK(penstock_reader_blocks(reader, find(reader, "particles").id, r, 1, &info, &count, &error));
      CHECK(count == 1 && info.ndims == 2 && info.count[0] == n && info.count[1] == 3);
      get(reader, "particles", &block, out);
      CHECK(is_numbered(out, n * 3, r));
    }
    end_read(reader);
  }
}

static void local_arrays(void) { cohorts(3, 1, write_local_arrays, read_local_arrays); }

/* ----------------------------------------------------------------------------------------------------- attributes */

static const char* const dims[] = {"z", "", "a long name with \"quotes\""};

static void write_attributes(penstock_writer* writer, int rank) {
  const int16_t sevens[] = {7, 7, 7};
  const double one = 0;
  (void)rank;
  OK(penstock_writer_put_attribute_string(writer, "program", "heat", &error));
  OK(penstock_writer_put_attribute_strings(writer, "dims", dims, 3, &error));
  const uint32_t v = define(writer, "T", PENSTOCK_FLOAT64, 1, DIMS(1));
  for (int t = 0; t < 4; ++t) {
    const double time = 0.1 * t;
    begin_write(writer);
    OK(penstock_writer_put_whole(writer, v, &one, &error));
    OK(penstock_writer_put_attribute(writer, "time", PENSTOCK_FLOAT64, &time, 1, 0, &error));
    OK(penstock_writer_put_attribute(writer, "growing", PENSTOCK_INT16, sevens, (size_t)t, 1, &error));
    if (t == 1) OK(penstock_writer_put_attribute_string(writer, "T/units", "K", &error));
    end_write(writer);
  }
}

static bool has_name(penstock_reader* reader, const char* name) {
  size_t count = 0;
  OK(penstock_reader_attribute_count(reader, &count, &error));
  for (size_t i = 0; i < count; ++i) {
    const char* found = NULL;
    OK(penstock_reader_attribute_name(reader, i, &found, &error));
    if (strcmp(found, name) == 0) return true;
  }
  return false;
}

static void read_attributes(penstock_reader* reader, int rank) {
  penstock_attribute a;
  (void)rank;
  for (int t = 0; t < 4; ++t) {
    begin_read(reader);
    OK(penstock_reader_attribute(reader, "program", &a, &error));
    CHECK(a.dtype == PENSTOCK_STRING && !a.is_array && strcmp(a.strings[0], "heat") == 0);
    OK(penstock_reader_attribute(reader, "dims", &a, &error));
    CHECK(a.is_array && a.count == 3);
    for (int i = 0; i < 3; ++i) CHECK(strcmp(a.strings[i], dims[i]) == 0);
    OK(penstock_reader_attribute(reader, "time", &a, &error));
    CHECK(a.dtype == PENSTOCK_FLOAT64 && *(const double*)a.values == 0.1 * t);
    OK(penstock_reader_attribute(reader, "growing", &a, &error));
    CHECK(a.is_array && a.count == (size_t)t && has_name(reader, "growing"));
    if (t >= 1) {
      OK(penstock_reader_attribute(reader, "T/units", &a, &error));
      CHECK(strcmp(a.strings[0], "K") == 0);
    } else {
      FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_reader_attribute(reader, "T/units", &a, &error));
    }
    FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_reader_attribute(reader, "nothing", &a, &error));
    end_read(reader);
  }
}

static void attributes(void) { cohorts(1, 1, write_attributes, read_attributes); }

/* A scalar "float64" and an array "float64[]" of every type. */
static void write_attributes_of_every_type(penstock_writer* writer, int rank) {
  unsigned char data[3 * 16];
  char name[24];
  (void)rank;
  for (int t = 0; t < 2; ++t) {
    begin_write(writer);
    for (int dtype = PENSTOCK_BOOLEAN; t == 0 && dtype < PENSTOCK_STRING; ++dtype) {
      sample(dtype, data, 3);
      OK(penstock_writer_put_attribute(writer, penstock_dtype_name(dtype), dtype, data, 1, 0, &error));
      snprintf(name, sizeof name, "%s[]", penstock_dtype_name(dtype));
      OK(penstock_writer_put_attribute(writer, name, dtype, data, 3, 1, &error));
    }
    OK(penstock_writer_put_attribute_string(writer, "string",
                                            "gr\xc3\xbc\xc3\x9f"
                                            "e",
                                            &error));
    OK(penstock_writer_put_attribute_strings(writer, "string[]", dims, (size_t)t + 2, &error));
    end_write(writer);
  }
}

static void read_attributes_of_every_type(penstock_reader* reader, int rank) {
  unsigned char expected[3 * 16];
  char name[24];
  penstock_attribute a;
  (void)rank;
  for (int t = 0; t < 2; ++t) {
    begin_read(reader);
    for (int dtype = PENSTOCK_BOOLEAN; dtype < PENSTOCK_STRING; ++dtype) {
      const size_t size = penstock_dtype_size(dtype);
      sample(dtype, expected, 3);
      OK(penstock_reader_attribute(reader, penstock_dtype_name(dtype), &a, &error));
      CHECK(a.dtype == dtype && !a.is_array && a.count == 1 && memcmp(a.values, expected, size) == 0);
      snprintf(name, sizeof name, "%s[]", penstock_dtype_name(dtype));
      OK(penstock_reader_attribute(reader, name, &a, &error));
      CHECK(a.dtype == dtype && a.is_array && a.count == 3 && memcmp(a.values, expected, 3 * size) == 0);
    }
    OK(penstock_reader_attribute(reader, "string", &a, &error));
    CHECK(!a.is_array && strcmp(a.strings[0],
                                "gr\xc3\xbc\xc3\x9f"
                                "e") == 0);
    OK(penstock_reader_attribute(reader, "string[]", &a, &error));
    CHECK(a.is_array && a.count == (size_t)t + 2 && strcmp(a.strings[a.count - 1], dims[a.count - 1]) == 0);
    end_read(reader);
  }
}

static void attributes_of_every_type(void) {
  cohorts(1, 1, write_attributes_of_every_type, read_attributes_of_every_type);
}

/* --------------------------------------------------------------------------------------------- min, max and order */

static void write_min_max(penstock_writer* writer, int rank) {
  const penstock_variable_options with = {PENSTOCK_GLOBAL_ARRAY, PENSTOCK_ROW, 1};
  uint32_t v = 0;
  OK(penstock_writer_define(writer, "v", PENSTOCK_FLOAT64, 1, DIMS(6), &with, &v, &error));
  const uint32_t plain = define(writer, "plain", PENSTOCK_FLOAT64, 1, DIMS(6));
  for (int t = 0; t < 2; ++t) {
    const double low[] = {3.0 + t, -1, NAN}, high[] = {8, 9.5, 7};
    begin_write(writer);
    put(writer, v, 1, DIMS(3 * (uint64_t)rank), DIMS(3), rank == 0 ? low : high);
    put(writer, plain, 1, DIMS(3 * (uint64_t)rank), DIMS(3), low);
    end_write(writer);
  }
}

static void read_min_max(penstock_reader* reader, int rank) {
  double min[2], max[2];
  int present = 0;
  (void)rank;
  for (int t = 0; t < 2; ++t) {
    begin_read(reader);
    const uint32_t v = find(reader, "v").id;
    OK(penstock_reader_min_max(reader, v, PENSTOCK_ALL_BLOCKS, min, max, &present, &error));
    CHECK(present && min[0] == -1 && max[0] == 9.5);
    OK(penstock_reader_min_max(reader, v, 1, min, max, &present, &error));
    CHECK(present && min[0] == 7 && max[0] == 9.5);
    OK(penstock_reader_min_max(reader, find(reader, "plain").id, PENSTOCK_ALL_BLOCKS, min, max, &present, &error));
    CHECK(!present);
    end_read(reader);
  }
}

static void min_max(void) { cohorts(2, 1, write_min_max, read_min_max); }

/* Element (i, j) is 10 i + j. */
static const int32_t columns[] = {0, 10, 1, 11, 2, 12};
static const int32_t rows[] = {0, 1, 2, 10, 11, 12};

static void write_column_major(penstock_writer* writer, int rank) {
  const penstock_variable_options options = {PENSTOCK_GLOBAL_ARRAY, PENSTOCK_COLUMN, 0};
  uint32_t v = 0;
  (void)rank;
  OK(penstock_writer_define(writer, "v", PENSTOCK_INT32, 2, DIMS(2, 3), &options, &v, &error));
  begin_write(writer);
  OK(penstock_writer_put_whole(writer, v, columns, &error));
  end_write(writer);
}

static void read_both_orders(penstock_reader* reader, int rank) {
  int32_t out[6];
  (void)rank;
  begin_read(reader);
  CHECK(find(reader, "v").order == PENSTOCK_COLUMN);
  get(reader, "v", NULL, out);
  CHECK(memcmp(out, rows, sizeof out) == 0);
  OK(penstock_reader_get(reader, find(reader, "v").id, NULL, out, PENSTOCK_COLUMN, NULL, &error));
  OK(penstock_reader_wait(reader, wait_ms, &error));
  CHECK(memcmp(out, columns, sizeof out) == 0);
  end_read(reader);
}

static void row_and_column_major(void) { cohorts(1, 1, write_column_major, read_both_orders); }

const scenario data_scenarios[] = {
    {"element_types", element_types},
    {"up_to_eight_dimensions", up_to_eight_dimensions},
    {"changing_shape", changing_shape},
    {"changing_decomposition", changing_decomposition},
    {"several_blocks_and_empty_contributions", several_blocks_and_empty_contributions},
    {"values", values},
    {"local_arrays", local_arrays},
    {"attributes", attributes},
    {"attributes_of_every_type", attributes_of_every_type},
    {"min_max", min_max},
    {"row_and_column_major", row_and_column_major},
    {NULL, NULL},
};
