/* A plain MPI program, which knows nothing of other programs in its launch. Each rank writes what it saw.

     plain FOLDER [SCENARIO]...       FOLDER/c.<scenario>.<rank>; all scenarios without names */
#include <mpi.h>
#if defined(__has_include)
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE* report;
static int rank, size;
static const char *program, *folder;

static void say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(report, format, arguments);
  va_end(arguments);
}

static void say_ints(const char* name, const int* values, int count) {
  int i;
  say("%s", name);
  for (i = 0; i < count; ++i) say(" %d", values[i]);
  say("\n");
}

static int* ints(int count) { return calloc((size_t)count, sizeof(int)); }

static int sum_over(MPI_Comm comm, int value) {
  int sum = -1;
  MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
  return sum;
}

static void world(void) {
  char name[MPI_MAX_OBJECT_NAME];
  int length, result, found = 0, keyval, *value, mine = 7 + rank;
  MPI_Comm copy;
  MPI_Group group;
  say("size %d rank %d\n", size, rank);
  MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
  say("name %s\n", name);
  MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_WORLD, &result);
  say("same %d\n", result == MPI_IDENT);
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_compare(MPI_COMM_WORLD, copy, &result);
  say("congruent %d\n", result == MPI_CONGRUENT);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
  say("tag bound %d %d\n", found, found && *value >= 32767);
  MPI_Comm_get_attr(copy, MPI_TAG_UB, &value, &found);
  say("of the copy %d\n", found);
  MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
  MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &mine);
  MPI_Comm_get_attr(MPI_COMM_WORLD, keyval, &value, &found);
  say("attribute %d %d\n", found, found ? *value : -1);
  MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval);
  MPI_Comm_free_keyval(&keyval);
  MPI_Comm_group(MPI_COMM_WORLD, &group);
  MPI_Group_size(group, &result);
  say("group %d\n", result);
  MPI_Group_free(&group);
  MPI_Comm_free(&copy);
  say("handle %d\n", MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_WORLD)) == MPI_COMM_WORLD);
}

static void collectives(void) {
  int i, one = 10 + rank, out = -1, *all = ints(2 * size), *counts = ints(size), *starts = ints(size);
  double x = rank == size - 1 ? 2.5 : 0;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Bcast(&x, 1, MPI_DOUBLE, size - 1, MPI_COMM_WORLD);
  say("bcast %g\n", x);
  say("allreduce %d\n", sum_over(MPI_COMM_WORLD, one));
  MPI_Reduce(&one, &out, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) say("reduce %d\n", out);
  MPI_Scan(&one, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  say("scan %d\n", out);
  MPI_Allgather(&one, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
  say_ints("allgather", all, size);
  MPI_Alltoall(MPI_IN_PLACE, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
  say_ints("alltoall", all, size);
  for (i = 0; i < size; ++i) counts[i] = 1, starts[i] = size - 1 - i;
  MPI_Gatherv(&one, 1, MPI_INT, all, counts, starts, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank == 0) say_ints("gatherv", all, size);
  MPI_Scatter(all, 1, MPI_INT, &out, 1, MPI_INT, 0, MPI_COMM_WORLD);
  say("scatter %d\n", out);
  MPI_Reduce_scatter(all, &out, counts, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  free(all), free(counts), free(starts);
}

static void point_to_point(void) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  int in = -1, out = 100 + rank, i, flag, *all = ints(size);
  MPI_Status status;
  MPI_Request requests[2];
  MPI_Sendrecv(&out, 1, MPI_INT, right, 3, &in, 1, MPI_INT, left, 3, MPI_COMM_WORLD, &status);
  say("ring %d from %d\n", in, status.MPI_SOURCE);
  MPI_Irecv(&in, 1, MPI_INT, right, 4, MPI_COMM_WORLD, &requests[0]);
  MPI_Issend(&rank, 1, MPI_INT, left, 4, MPI_COMM_WORLD, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  say("back %d\n", in);
  if (rank != 0) MPI_Send(&out, 1, MPI_INT, 0, 5, MPI_COMM_WORLD);
  for (i = 1; rank == 0 && i < size; ++i) {
    MPI_Probe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &status);
    MPI_Recv(&all[status.MPI_SOURCE], 1, MPI_INT, status.MPI_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  if (rank == 0) say_ints("from anyone", all, size);
  MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  say("nothing else %d\n", flag);
  free(all);
}

static void say_comm(const char* name, MPI_Comm comm) {
  int own = -1, count = -1;
  MPI_Comm_rank(comm, &own);
  MPI_Comm_size(comm, &count);
  say("%s %d of %d, sum %d\n", name, own, count, sum_over(comm, 1000 + rank));
}

static void split_dup(void) {
  MPI_Comm part, copy, node, between, whole;
  MPI_Request request;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part);
  say_comm("split", part);
  MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  say_comm("copy", copy);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  say_comm("host", node);
  /* Odd and even ranks, led by the world's ranks 0 and 1, over the world as the bridge. */
  if (size > 1) {
    int members, others = -1;
    MPI_Comm_size(part, &members); /* the world's lowest rank is the last, as the order is turned round */
    MPI_Intercomm_create(part, members - 1, MPI_COMM_WORLD, rank % 2 == 0 ? 1 : 0, 6, &between);
    MPI_Comm_remote_size(between, &others);
    say("others %d\n", others);
    MPI_Intercomm_merge(between, rank % 2, &whole);
    say_comm("merged", whole);
    MPI_Comm_free(&whole);
    MPI_Comm_free(&between);
  }
  MPI_Comm_free(&node);
  MPI_Comm_free(&copy);
  MPI_Comm_free(&part);
}

static void cartesian(void) {
  int dims[2] = {0, 0}, periods[2] = {1, 0}, coords[2], from, to, in = -1, neighbours[2], kind;
  int left = (rank + size - 1) % size, right = (rank + 1) % size;
  int sources[2] = {left, right}, targets[2] = {left, right}, weights[2] = {1, 1};
  MPI_Comm grid, row, graph;
  MPI_Dims_create(size, 2, dims);
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid);
  MPI_Cart_coords(grid, rank, 2, coords);
  say("grid %d x %d, at %d %d\n", dims[0], dims[1], coords[0], coords[1]);
  MPI_Cart_shift(grid, 0, 1, &from, &to);
  MPI_Sendrecv(&rank, 1, MPI_INT, to, 0, &in, 1, MPI_INT, from, 0, grid, MPI_STATUS_IGNORE);
  say("from %d: %d\n", from, in);
  MPI_Cart_sub(grid, (int[]){0, 1}, &row);
  say_comm("row", row);
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources, weights, 2, targets, weights, MPI_INFO_NULL, 0, &graph);
  MPI_Neighbor_allgather(&rank, 1, MPI_INT, neighbours, 1, MPI_INT, graph);
  say_ints("neighbours", neighbours, 2);
  MPI_Topo_test(MPI_COMM_WORLD, &kind);
  say("no topology %d\n", kind == MPI_UNDEFINED);
  MPI_Comm_free(&graph);
  MPI_Comm_free(&row);
  MPI_Comm_free(&grid);
}

static void window(void) {
  int *memory, *theirs, *exposed = ints(size), one = 1, i, members, unit;
  MPI_Aint bytes;
  MPI_Win win, counter, shared;
  MPI_Group group;
  MPI_Win_create(exposed, (MPI_Aint)size * (MPI_Aint)sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Win_fence(0, win);
  for (i = 0; i < size; ++i) MPI_Put(&rank, 1, MPI_INT, i, rank, 1, MPI_INT, win);
  MPI_Win_fence(0, win);
  say_ints("put by", exposed, size);
  MPI_Win_get_group(win, &group);
  MPI_Group_size(group, &members);
  say("ranks of the window %d\n", members);
  MPI_Group_free(&group);
  MPI_Win_free(&win);
  free(exposed);
  MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &counter);
  *memory = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, counter);
  MPI_Accumulate(&one, 1, MPI_INT, size - 1, 0, 1, MPI_INT, MPI_SUM, counter);
  MPI_Win_unlock_all(counter);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, counter);
  say("counted %d\n", *memory);
  MPI_Win_unlock(rank, counter);
  MPI_Win_free(&counter);
  MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &shared);
  MPI_Win_fence(0, shared);
  *memory = 50 + rank;
  MPI_Win_fence(0, shared);
  MPI_Win_shared_query(shared, (rank + 1) % size, &bytes, &unit, &theirs);
  say("beside me %d\n", *theirs);
  MPI_Win_fence(0, shared);
  MPI_Win_free(&shared);
}

static void file(void) {
  char path[4096];
  int mine[3] = {rank, rank * rank, -rank}, i, *all = ints(3 * size);
  MPI_Offset bytes;
  MPI_File out;
  MPI_Datatype part;
  snprintf(path, sizeof(path), "%s/c.data", folder);
  MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &out);
  MPI_File_set_size(out, 0);
  MPI_Type_create_subarray(1, (int[]){3 * size}, (int[]){3}, (int[]){3 * rank}, MPI_ORDER_C, MPI_INT, &part);
  MPI_Type_commit(&part);
  MPI_File_set_view(out, 0, MPI_INT, part, "native", MPI_INFO_NULL);
  MPI_File_write_all(out, mine, 3, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_sync(out);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_set_view(out, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
  MPI_File_get_size(out, &bytes);
  MPI_File_read_at_all(out, 0, all, 3 * size, MPI_INT, MPI_STATUS_IGNORE);
  say("bytes %lld\n", (long long)bytes);
  for (i = 0; i < size; ++i) say_ints("part", all + 3 * i, 3);
  MPI_Type_free(&part);
  MPI_File_seek_shared(out, 0, MPI_SEEK_SET);
  MPI_File_write_ordered(out, &mine[1], 1, MPI_INT, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_read_at_all(out, 0, all, 3 * size, MPI_INT, MPI_STATUS_IGNORE);
  say_ints("ordered", all, size);
  MPI_File_close(&out);
  free(all);
}

static void non_blocking(void) {
  int x = rank == 0 ? 5 : 0, sum, *all = ints(size), one = 3 * rank;
  MPI_Request requests[4];
  MPI_Ibcast(&x, 1, MPI_INT, 0, MPI_COMM_WORLD, &requests[0]);
  MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[1]);
  MPI_Iallgather(&one, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD, &requests[2]);
  MPI_Ibarrier(MPI_COMM_WORLD, &requests[3]);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
  say("bcast %d sum %d\n", x, sum);
  say_ints("all", all, size);
  free(all);
}

static void persistent(void) {
  int i, in = -1, out = rank;
  MPI_Request requests[2];
  MPI_Recv_init(&in, 1, MPI_INT, (rank + size - 1) % size, 8, MPI_COMM_WORLD, &requests[0]);
  MPI_Send_init(&out, 1, MPI_INT, (rank + 1) % size, 8, MPI_COMM_WORLD, &requests[1]);
  for (i = 0; i < 4; ++i) {
    out = 10 * i + rank;
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    say("round %d: %d\n", i, in);
  }
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
#ifdef OMPI_HAVE_MPI_EXT_PCOLLREQ
  MPIX_Allreduce_init(&out, &in, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
  for (i = 0; i < 3; ++i) {
    out = i * i + rank;
    MPI_Start(&requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    say("sum %d\n", in);
  }
  MPI_Request_free(&requests[0]);
#endif
}

static void groups(void) {
  MPI_Group all, most, last;
  MPI_Comm comm, few;
  int first = 0, translated, *ranks = ints(size), i;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_excl(all, 1, &first, &most);
  MPI_Group_range_incl(all, 1, (int[1][3]){{size - 1, 0, -1}}, &last);
  for (i = 0; i < size; ++i) {
    MPI_Group_translate_ranks(all, 1, &i, last, &translated);
    ranks[i] = translated;
  }
  say_ints("turned round", ranks, size);
  MPI_Comm_create(MPI_COMM_WORLD, last, &comm);
  say_comm("created", comm);
  if (rank != 0) {
    MPI_Comm_create_group(MPI_COMM_WORLD, most, 9, &few);
    say_comm("without the first", few);
    MPI_Comm_free(&few);
  }
  MPI_Comm_free(&comm);
  MPI_Group_free(&last);
  MPI_Group_free(&most);
  MPI_Group_free(&all);
  free(ranks);
}

static void errors(void) {
  int code, kind = -1, nothing = 0;
  MPI_Datatype none = MPI_DATATYPE_NULL;
  MPI_Errhandler handler;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  code = MPI_Send(&nothing, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
  MPI_Error_class(code, &kind);
  say("no such rank %d\n", kind == MPI_ERR_RANK);
  code = MPI_Type_commit(&none);
  MPI_Error_class(code, &kind);
  say("no such type %d\n", kind == MPI_ERR_TYPE);
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
  say("handler %d\n", handler == MPI_ERRORS_RETURN);
  MPI_Errhandler_free(&handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  say("goes on %d\n", sum_over(MPI_COMM_WORLD, rank));
}

/* Two more ranks, which are a world of their own. */
static void spawn(void) {
  char* arguments[] = {"child", NULL};
  int all, others;
  MPI_Comm children, whole;
  MPI_Comm_spawn(program, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
  MPI_Comm_remote_size(children, &others);
  MPI_Intercomm_merge(children, 0, &whole);
  MPI_Comm_size(whole, &all);
  say("children %d, together %d, their world %d\n", others, all, sum_over(whole, 0));
  MPI_Comm_free(&whole);
  MPI_Comm_disconnect(&children);
}

static void be_a_child(void) {
  MPI_Comm parent, whole;
  MPI_Comm_get_parent(&parent);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Intercomm_merge(parent, 1, &whole);
  sum_over(whole, size);
  MPI_Comm_free(&whole);
  MPI_Comm_disconnect(&parent);
}

static const struct {
  const char* name;
  void (*run)(void);
} scenarios[] = {
    {"world", world},
    {"collectives", collectives},
    {"point-to-point", point_to_point},
    {"split-dup", split_dup},
    {"cartesian", cartesian},
    {"window", window},
    {"file", file},
    {"non-blocking", non_blocking},
    {"persistent", persistent},
    {"groups", groups},
    {"errors", errors},
    {"spawn", spawn},
};

static int wanted(int argc, char** argv, const char* name) {
  int i;
  for (i = 2; i < argc; ++i)
    if (strcmp(argv[i], name) == 0) return 1;
  return argc == 2;
}

int main(int argc, char** argv) {
  char path[4096];
  size_t i;
  MPI_Init(&argc, &argv);
  if (argc < 2) MPI_Abort(MPI_COMM_WORLD, 2);
  if (strcmp(argv[1], "child") == 0) {
    be_a_child();
    MPI_Finalize();
    return 0;
  }
  program = argv[0];
  folder = argv[1];
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); ++i) {
    if (!wanted(argc, argv, scenarios[i].name)) continue;
    snprintf(path, sizeof(path), "%s/c.%s.%d", folder, scenarios[i].name, rank);
    report = fopen(path, "w");
    if (report == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
    scenarios[i].run();
    say("end\n");
    fclose(report);
  }
  MPI_Finalize();
  return 0;
}
