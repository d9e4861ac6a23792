/* A world communicator for each program of one MPI launch (see docs/howto/mpmd.md). After Trios' CommSplitter.

   MPI_Init splits the true world; the wrappers that generate.py writes put the part in the place of MPI_COMM_WORLD.
   Here is what a change of argument does not do: start and end, attributes and error handlers that MPI attaches to the
   true world, and Fortran.

   Fortran's functions of Open MPI call the PMPI_ functions of C and so pass by the wrappers; but they all turn their
   handles into C's with PMPI_Comm_f2c, which is replaced here. PMPI_Init and the others below are replaced because
   Fortran calls them; this library then reaches MPI's own by asking the loader for the next of that name. */
#include "world.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORTED __attribute__((visibility("default")))

MPI_Comm penstock_mpmd_own = MPI_COMM_WORLD;
static MPI_Comm true_world = MPI_COMM_WORLD; /* a duplicate, which the wrappers leave alone */

/* The next function of that name after this library, or an end with a message: there is no MPI to return an error. */
static void next_function(const char* name, void* function) {
  void* symbol = dlsym(RTLD_NEXT, name);
  if (symbol == NULL) {
    fprintf(stderr, "penstock mpmd: the MPI library has no %s\n", name);
    abort();
  }
  memcpy(function, &symbol, sizeof(symbol));
}

/* ------------------------------------------------------------------------------------------------ start and end */

/* What makes ranks one program: the number MPI gave it, or the name the user did. */
struct key {
  int number;
  char name[60];
};

static int is_on(void) {
  const char* value = getenv("PENSTOCK_MPMD");
  if (value == NULL || *value == '\0' || strcmp(value, "on") == 0) return 1;
  if (strcmp(value, "off") == 0) return 0;
  fprintf(stderr, "penstock mpmd: PENSTOCK_MPMD=%s is neither on nor off\n", value);
  abort();
}

static struct key own_key(void) {
  struct key key;
  int *number, found = 0;
  const char* name = getenv("PENSTOCK_MPMD_PROGRAM");
  memset(&key, 0, sizeof(key)); /* compared bytewise */
  if (name != NULL && *name != '\0') {
    key.number = -1;
    strncpy(key.name, name, sizeof(key.name) - 1);
  } else {
    PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &found);
    if (found) key.number = *number;
  }
  return key;
}

static long timeout_seconds(void) {
  const char* value = getenv("PENSTOCK_MPMD_TIMEOUT_S");
  const long seconds = value != NULL ? strtol(value, NULL, 10) : 0;
  return seconds > 0 ? seconds : 60;
}

/* A program of the launch without this library never joins; its neighbours would wait for ever without a word. */
static void wait_or_abort(MPI_Request* request) {
  struct timespec now, begin;
  const long seconds = timeout_seconds();
  int done = 0;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  while (!done) {
    const int code = PMPI_Test(request, &done, MPI_STATUS_IGNORE);
    clock_gettime(CLOCK_MONOTONIC, &now);
    /* An error, where it returns: another operation of the program that knows nothing of this one came in its place. */
    if (code != MPI_SUCCESS || now.tv_sec - begin.tv_sec > seconds) {
      fprintf(stderr,
              "penstock mpmd: after %ld s not every rank of the launch has joined; preload libpenstock_mpmd.so in "
              "every program, or in none\n",
              (long)(now.tv_sec - begin.tv_sec));
      PMPI_Abort(MPI_COMM_WORLD, 1);
    }
    sched_yield();
  }
}

/* Runs when MPI_Finalize deletes the attributes of MPI_COMM_SELF, ours last: the application's own callbacks, which may
   still communicate, come before. */
static int release(MPI_Comm comm, int keyval, void* value, void* extra) {
  MPI_Comm own = penstock_mpmd_own, all = true_world;
  (void)comm, (void)keyval, (void)value, (void)extra;
  penstock_mpmd_own = true_world = MPI_COMM_WORLD;
  PMPI_Comm_free(&own);
  PMPI_Comm_free(&all);
  return MPI_SUCCESS;
}

/* Collective over the launch. MPI's own error handler ends the job when one of these calls fails. */
static void split_world(void) {
  int size, rank, color, i, programs = 0, keyval = MPI_KEYVAL_INVALID;
  struct key *keys, mine = own_key();
  MPI_Comm parent, own;
  MPI_Request request;
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_get_parent(&parent);
  if (size == 1 || parent != MPI_COMM_NULL) return; /* what is spawned together shares a world on purpose */

  keys = malloc((size_t)size * sizeof(*keys));
  if (keys == NULL) PMPI_Abort(MPI_COMM_WORLD, 1);
  PMPI_Iallgather(&mine, sizeof(mine), MPI_BYTE, keys, sizeof(mine), MPI_BYTE, MPI_COMM_WORLD, &request);
  wait_or_abort(&request);
  for (color = 0; memcmp(&keys[color], &mine, sizeof(mine)) != 0;) ++color;
  for (i = 1; i < size; ++i) programs += memcmp(&keys[i], &keys[0], sizeof(mine)) != 0;
  free(keys);
  if (programs == 0) return;

  PMPI_Comm_dup(MPI_COMM_WORLD, &true_world);
  PMPI_Comm_split(MPI_COMM_WORLD, color, rank, &own);
  PMPI_Comm_set_name(own, "MPI_COMM_WORLD");
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, release, &keyval, NULL);
  PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
  penstock_mpmd_own = own;
}

/* Open MPI 4.1's osc/rdma names the shared memory behind MPI_Win_allocate after the communicator's number, which two
   programs of one launch may share: they then truncate each other's windows. Its other window components do not. */
static void avoid_osc_rdma(void) {
  const char* programs = getenv("OMPI_NUM_APP_CTX");
  if (programs != NULL && strcmp(programs, "1") != 0) setenv("OMPI_MCA_osc", "^rdma", 0);
}

EXPORTED int PMPI_Init(int* argc, char*** argv) {
  int (*next)(int*, char***);
  int code;
  next_function("PMPI_Init", &next);
  if (is_on()) avoid_osc_rdma();
  code = next(argc, argv);
  if (code == MPI_SUCCESS && is_on()) split_world();
  return code;
}

EXPORTED int PMPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  int (*next)(int*, char***, int, int*);
  int code;
  next_function("PMPI_Init_thread", &next);
  if (is_on()) avoid_osc_rdma();
  code = next(argc, argv, required, provided);
  if (code == MPI_SUCCESS && is_on()) split_world();
  return code;
}

EXPORTED int MPI_Init(int* argc, char*** argv) { return PMPI_Init(argc, argv); }

EXPORTED int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  return PMPI_Init_thread(argc, argv, required, provided);
}

EXPORTED MPI_Comm penstock_mpmd_true_world(void);
MPI_Comm penstock_mpmd_true_world(void) { return true_world; }

/* --------------------------------------------------------------------------- attributes and error handlers of MPI's */

/* Attributes that only MPI sets. They are on the true world, and on duplicates of it. */
static int is_predefined(int keyval) {
  return keyval == MPI_TAG_UB || keyval == MPI_HOST || keyval == MPI_IO || keyval == MPI_WTIME_IS_GLOBAL ||
         keyval == MPI_APPNUM || keyval == MPI_UNIVERSE_SIZE || keyval == MPI_LASTUSEDCODE;
}

EXPORTED int MPI_Comm_get_attr(MPI_Comm comm, int keyval, void* value, int* found) {
  const int code = PMPI_Comm_get_attr(own_world(comm), keyval, value, found);
  if (code != MPI_SUCCESS || *found || !is_predefined(keyval)) return code;
  return PMPI_Comm_get_attr(MPI_COMM_WORLD, keyval, value, found);
}

EXPORTED int MPI_Attr_get(MPI_Comm comm, int keyval, void* value, int* found) {
  return MPI_Comm_get_attr(comm, keyval, value, found);
}

/* Errors of no communicator, of a datatype say, are raised on the true world. */
EXPORTED int PMPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
  int (*next)(MPI_Comm, MPI_Errhandler);
  next_function("PMPI_Comm_set_errhandler", &next);
  if (comm == penstock_mpmd_own && comm != MPI_COMM_WORLD) next(MPI_COMM_WORLD, handler);
  return next(comm, handler);
}

EXPORTED int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
  return PMPI_Comm_set_errhandler(own_world(comm), handler);
}

/* ------------------------------------------------------------------------------------------------------- Fortran */

static __thread int means_true_world; /* what Fortran's MPI_COMM_WORLD is, in a call of ours */

/* Looked up once: every call in Fortran comes by. */
static MPI_Comm (*next_comm_f2c)(MPI_Fint);
static __attribute__((constructor)) void find_comm_f2c(void) { next_function("PMPI_Comm_f2c", &next_comm_f2c); }

EXPORTED MPI_Comm PMPI_Comm_f2c(MPI_Fint comm) {
  return means_true_world ? next_comm_f2c(comm) : own_world(next_comm_f2c(comm));
}

#ifdef OPEN_MPI
/* Open MPI's Fortran reads attributes without asking C. The last of these serves `use mpi_f08`. (The duplicate of the
   true world is no help: it holds the addresses of the values, which is what C wants.) */
static void get_attribute(const char* name, MPI_Fint* comm, MPI_Fint* keyval, void* value, MPI_Fint* found,
                          MPI_Fint* error) {
  void (*next)(MPI_Fint*, MPI_Fint*, void*, MPI_Fint*, MPI_Fint*);
  MPI_Fint all = PMPI_Comm_c2f(MPI_COMM_WORLD);
  next_function(name, &next);
  next(comm, keyval, value, found, error);
  if (*error != MPI_SUCCESS || *found || !is_predefined(*keyval)) return;
  means_true_world = 1;
  next(&all, keyval, value, found, error);
  means_true_world = 0;
}

#define FORTRAN_ATTRIBUTE(name)                                                                        \
  EXPORTED void name(MPI_Fint* comm, MPI_Fint* keyval, void* value, MPI_Fint* found, MPI_Fint* error); \
  void name(MPI_Fint* comm, MPI_Fint* keyval, void* value, MPI_Fint* found, MPI_Fint* error) {         \
    get_attribute(#name, comm, keyval, value, found, error);                                           \
  }
FORTRAN_ATTRIBUTE(mpi_comm_get_attr_)
FORTRAN_ATTRIBUTE(mpi_attr_get_)
FORTRAN_ATTRIBUTE(pmpi_comm_get_attr_)
#endif
