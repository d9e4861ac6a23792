/* How blocks come and go, scenario by scenario, in C: spans, views, selections, redistribution, planes, epochs. */
#include "scenarios_c.h"

/* ------------------------------------------------------------------------------------------------ puts and views */

enum { many = 1000 };

static void write_spans(penstock_writer* writer, int rank) {
  static double array[many];
  const double backwards[] = {3, 0, 2, 0, 1, 0};
  const int64_t stride[] = {-16};
  (void)rank;
  const uint32_t filled = define(writer, "filled", PENSTOCK_FLOAT64, 1, DIMS(many));
  const uint32_t lent = define(writer, "lent", PENSTOCK_FLOAT64, 1, DIMS(many));
  const uint32_t strided = define(writer, "strided", PENSTOCK_FLOAT64, 1, DIMS(3));
  const uint32_t inside = define(writer, "inside", PENSTOCK_FLOAT64, 2, DIMS(2, 3));
  for (uint64_t t = 0; t < 5; ++t) {
    void* span = NULL;
    size_t size = 0;
    double halos[20] = {0}; /* 4 x 5, of which the inside is lent */
    const int64_t rows[] = {40, 8};
    begin_write(writer);
    OK(penstock_writer_put_span(writer, filled, 1, DIMS(0), DIMS(many), &span, &size, &error));
    CHECK(size == many * sizeof(double) && (uintptr_t)span % 64 == 0);
    number(array, many, t + 1);
    OK(penstock_writer_lend(writer, lent, 1, DIMS(0), DIMS(many), array, &error));
    array[0] = -1; /* still ours to change until the step ends */
    number(span, many, t);
    OK(penstock_writer_put_strided(writer, strided, 1, DIMS(0), DIMS(3), backwards + 4, stride, &error));
    OK(penstock_writer_lend_strided(writer, inside, 2, DIMS(0, 0), DIMS(2, 3), halos + 6, rows, &error));
    number(halos, 20, t);
    end_write(writer);
  }
}

static void read_spans(penstock_reader* reader, int rank) {
  static double out[many];
  (void)rank;
  for (uint64_t t = 0; t < 5; ++t) {
    begin_read(reader);
    get(reader, "filled", NULL, out);
    CHECK(is_numbered(out, many, t));
    get(reader, "lent", NULL, out);
    CHECK(out[0] == -1 && out[1] == 1 + 1000 * (double)(t + 1) && out[many - 1] == many - 1 + 1000 * (double)(t + 1));
    get(reader, "strided", NULL, out);
    CHECK(out[0] == 1 && out[1] == 2 && out[2] == 3);
    get(reader, "inside", NULL, out);
    for (int i = 0; i < 6; ++i) CHECK(out[i] == 6 + i % 3 + 5 * (i / 3) + 1000 * (double)t);
    end_read(reader);
  }
}

static void put_span_lend_and_strided_put(void) { cohorts(1, 1, write_spans, read_spans); }

static void write_halves(penstock_writer* writer, int rank) {
  double all[12];
  (void)rank;
  const uint32_t v = define(writer, "v", PENSTOCK_FLOAT64, 2, DIMS(4, 3));
  for (uint64_t t = 0; t < 4; ++t) {
    number(all, 12, t);
    begin_write(writer);
    put(writer, v, 2, DIMS(0, 0), DIMS(2, 3), all);
    put(writer, v, 2, DIMS(2, 0), DIMS(2, 3), all + 6);
    end_write(writer);
  }
}

static void read_views(penstock_reader* reader, int rank) {
  penstock_view* kept[2] = {NULL, NULL};
  (void)rank;
  for (uint64_t t = 0; t < 4; ++t) {
    penstock_view *views = NULL, *part = NULL;
    size_t count = 0;
    begin_read(reader);
    OK(penstock_reader_view(reader, find(reader, "v").id, NULL, &views, &count, &error));
    CHECK(count == 2 && views[1].start[0] == 2 && views[1].count[0] == 2 && views[1].size == 6 * sizeof(double));
    CHECK(*(const double*)views[1].data == 6 + 1000 * (double)t);
    const penstock_selection box = penstock_select_box(2, DIMS(1, 1), DIMS(1, 2));
    OK(penstock_reader_view(reader, find(reader, "v").id, &box, &part, &count, &error));
    CHECK(count == 1 && *(const double*)part[0].data == 4 + 1000 * (double)t);
    penstock_views_release(part, 1);
    if (t < 2) kept[t] = views;
    else penstock_views_release(views, 2);
    end_read(reader);
  }
  OK(penstock_reader_close(reader, &error));
  CHECK(((const double*)kept[1][0].data)[5] == 1005);             /* after the step and the stream */
  for (int t = 0; t < 2; ++t) penstock_views_release(kept[t], 2); /* the writer's close waits for this */
}

static void views(void) { cohorts(1, 1, write_halves, read_views); }

/* ----------------------------------------------------------------------------------------------------- selections */

static void write_for_selections(penstock_writer* writer, int rank) {
  int32_t halves[2][12];
  (void)rank;
  const uint32_t v = define(writer, "v", PENSTOCK_INT32, 2, DIMS(4, 6));
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 6; ++j) halves[j / 3][i * 3 + j % 3] = i * 6 + j;
  for (int t = 0; t < 2; ++t) {
    begin_write(writer);
    put(writer, v, 2, DIMS(0, 0), DIMS(4, 3), halves[0]);
    put(writer, v, 2, DIMS(0, 3), DIMS(4, 3), halves[1]);
    end_write(writer);
  }
}

static void expect_selection(penstock_reader* reader, penstock_selection selection, size_t count,
                             const int32_t* expected) {
  int32_t out[24];
  get(reader, "v", &selection, out);
  CHECK(memcmp(out, expected, count * sizeof *out) == 0);
}

static void read_selections(penstock_reader* reader, int rank) {
  int32_t out[24];
  (void)rank;
  for (int t = 0; t < 2; ++t) {
    begin_read(reader);
    expect_selection(reader, penstock_select_box(2, DIMS(1, 2), DIMS(2, 2)), 4, (const int32_t[]){8, 9, 14, 15});
    expect_selection(reader, penstock_select_strided(2, DIMS(0, 1), DIMS(2, 3), DIMS(3, 2)), 6,
                     (const int32_t[]){1, 3, 5, 19, 21, 23});
    expect_selection(reader, penstock_select_block(1), 3, (const int32_t[]){3, 4, 5});
    expect_selection(reader, penstock_select_points(2, DIMS(3, 5, 0, 0, 1, 3, 0, 0), 4), 4,
                     (const int32_t[]){23, 0, 9, 0});
    const penstock_selection outside = penstock_select_box(2, DIMS(1, 2), DIMS(2, 5));
    FAILS(PENSTOCK_ERR_INVALID_ARGUMENT,
          penstock_reader_get(reader, find(reader, "v").id, &outside, out, PENSTOCK_ROW, NULL, &error));
    penstock_variable none;
    FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_reader_variable(reader, "w", &none, &error));
    end_read(reader);
  }
  CHECK(read_so_far(reader).plans_reused > 0);
}

static void selections(void) { cohorts(1, 1, write_for_selections, read_selections); }

static void write_overlaps(penstock_writer* writer, int rank) {
  const int32_t first[] = {1, 1, 1}, second[] = {2, 2};
  (void)rank;
  const uint32_t v = define(writer, "v", PENSTOCK_INT32, 1, DIMS(6));
  begin_write(writer);
  put(writer, v, 1, DIMS(0), DIMS(3), first);
  put(writer, v, 1, DIMS(2), DIMS(2), second);
  end_write(writer);
}

static void read_overlaps(penstock_reader* reader, int rank) {
  int32_t out[] = {-9, -9, -9, -9, -9, -9};
  const int32_t expected[] = {1, 1, 2, 2, -9, -9};
  (void)rank;
  begin_read(reader);
  get(reader, "v", NULL, out);
  CHECK(memcmp(out, expected, sizeof out) == 0);
  end_read(reader);
}

static void overlaps_and_holes(void) { cohorts(1, 1, write_overlaps, read_overlaps); }

/* -------------------------------------------------------------------------------------------------- redistribution */

/* Slabs of a cube over M ranks along the first dimension, read along the last by N. */
enum { n = 15 };
static int writers_now, readers_now;

static void write_slab(penstock_writer* writer, int rank) {
  const uint64_t low = (uint64_t)(n * rank / writers_now), high = (uint64_t)(n * (rank + 1) / writers_now);
  double* all = malloc(n * n * n * sizeof *all);
  const uint32_t v = define(writer, "v", PENSTOCK_FLOAT64, 3, DIMS(n, n, n));
  for (uint64_t t = 0; t < 4; ++t) {
    number(all, n * n * n, t);
    begin_write(writer);
    put(writer, v, 3, DIMS(low, 0, 0), DIMS(high - low, n, n), all + low * n * n);
    end_write(writer);
  }
  free(all);
}

static void read_slab(penstock_reader* reader, int rank) {
  const uint64_t low = (uint64_t)(n * rank / readers_now), high = (uint64_t)(n * (rank + 1) / readers_now);
  double* out = malloc(n * n * n * sizeof *out);
  for (uint64_t t = 0; t < 4; ++t) {
    const penstock_selection box = penstock_select_box(3, DIMS(0, 0, low), DIMS(n, n, high - low));
    begin_read(reader);
    get(reader, "v", &box, out);
    for (uint64_t i = 0, at = 0; i < n * n; ++i)
      for (uint64_t k = low; k < high; ++k, ++at) CHECK(out[at] == (double)(i * n + k + 1000 * t));
    end_read(reader);
  }
  free(out);
}

static void redistribution_m_to_n(void) {
  const int shapes[][2] = {{1, 1}, {2, 1}, {1, 2}, {3, 5}, {5, 3}};
  for (int i = 0; i < 5; ++i) {
    writers_now = shapes[i][0];
    readers_now = shapes[i][1];
    cohorts(writers_now, readers_now, write_slab, read_slab);
  }
}

/* ---------------------------------------------------------------------------------------------- planes and epochs */

/* The last value of an option counts, so this overrides the plane of the run. */
static void plane_chosen_reported_and_forced(void) {
  penstock_context* context = new_context(NULL);
  const bool tcp = strcmp(plane, "tcp") == 0;
  const char* const asked[] = {"data_plane=automatic", tcp ? "data_plane=tcp" : "data_plane=shm"};
  const char* const got[] = {"shm", plane}; /* on one host */
  for (int i = 0; i < 2; ++i) {
    penstock_writer* writer = create(context, "s", "data_plane=automatic");
    penstock_reader* reader = join(context, "s", asked[i]);
    penstock_peer_statistics peer = {.struct_size = sizeof peer};
    size_t peers = 0;
    write_eight(writer, define_eight(writer), 0);
    read_eight(reader, 0);
    CHECK(strcmp(read_so_far(reader).data_plane, got[i]) == 0);
    OK(penstock_writer_peer_statistics(writer, 1, &peer, &peers, &error));
    /* Of its peers a writer knows where they are; a pool's writer knows the pool only. */
    CHECK(peers == 1 && strcmp(peer.data_plane, engine_is("pool") ? "shm" : got[i]) == 0);
    leave(reader);
    finish(writer);
  }
  penstock_context_destroy(context);
}

static uint64_t announced_per_step(int blocks) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", NULL);
  penstock_reader* reader = join(context, "s", NULL);
  double values[64] = {0};
  uint64_t before = 0;
  const uint32_t v = define(writer, "v", PENSTOCK_FLOAT64, 1, DIMS(64));
  for (int t = 0; t < 24; ++t) {
    if (t == 4) before = read_so_far(reader).announcement_bytes;
    begin_write(writer);
    for (int b = 0; b < blocks; ++b) put(writer, v, 1, DIMS((uint64_t)b), DIMS(1), values + b);
    end_write(writer);
    begin_read(reader);
    get(reader, "v", NULL, values);
    end_read(reader);
  }
  CHECK(written(writer).epochs == 1 && read_so_far(reader).epochs == 1);
  CHECK(read_so_far(reader).plans_built <= 2 && read_so_far(reader).plans_reused >= 22);
  const uint64_t bytes = read_so_far(reader).announcement_bytes - before;
  CHECK((bytes == 0) == engine_is("file") && bytes % 20 == 0); /* readers of files are told nothing: they look */
  leave(reader);
  finish(writer);
  penstock_context_destroy(context);
  return bytes / 20;
}

/* What a step in a known epoch is announced with does not grow with its blocks. */
static void epochs_and_plans(void) {
  const uint64_t few = announced_per_step(1);
  CHECK(few == announced_per_step(64) && few <= 256);
}

const scenario access_scenarios[] = {
    {"put_span_lend_and_strided_put", put_span_lend_and_strided_put},
    {"views", views},
    {"selections", selections},
    {"overlaps_and_holes", overlaps_and_holes},
    {"redistribution_m_to_n", redistribution_m_to_n},
    {"plane_chosen_reported_and_forced", plane_chosen_reported_and_forced},
    {"epochs_and_plans", epochs_and_plans},
    {NULL, NULL},
};
