/* Mesh regions: the C API of penstock/region.hpp and penstock/mesh_database.hpp, with the same verbs, in the conventions of
   penstock/penstock.h.

   A model describes one part of a region: entities (blocks, sets, ...) with fields and properties. Entities of a model and fields
   of an entity are numbers, in the order in which they were added, from 0. A sink writes the model of this rank and its states, a
   source reads those of all ranks. Values are packed, row by row, in the field's dtype.

   Models that functions make are the caller's: free them with penstock_model_destroy. What is given to a model is copied. Strings and
   arrays that a model returns live until it is changed or destroyed. Models, sinks and sources are used by one thread at a time.
   Errors name the entity and the field. */
#ifndef PENSTOCK_REGION_H
#define PENSTOCK_REGION_H

#include <string.h>

#include "penstock/penstock.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------------------------------- model */

typedef struct penstock_model penstock_model;

typedef enum penstock_entity_type {
  PENSTOCK_REGION = 0, /* has the fields of the whole */
  PENSTOCK_NODE_BLOCK,
  PENSTOCK_EDGE_BLOCK,
  PENSTOCK_FACE_BLOCK,
  PENSTOCK_ELEMENT_BLOCK,
  PENSTOCK_NODE_SET,
  PENSTOCK_EDGE_SET,
  PENSTOCK_FACE_SET,
  PENSTOCK_ELEMENT_SET,
  PENSTOCK_SIDE_SET,
  PENSTOCK_COMM_SET, /* what this part shares with others */
  PENSTOCK_STRUCTURED_BLOCK,
  PENSTOCK_ASSEMBLY,
  PENSTOCK_BLOB
} penstock_entity_type;

/* Model fields: mesh, attribute, map, communication. In each state: reduction (a value for the entity), transient. */
typedef enum penstock_role {
  PENSTOCK_ROLE_MESH = 0,
  PENSTOCK_ROLE_ATTRIBUTE,
  PENSTOCK_ROLE_MAP,
  PENSTOCK_ROLE_COMMUNICATION,
  PENSTOCK_ROLE_REDUCTION,
  PENSTOCK_ROLE_TRANSIENT
} penstock_role;

/* "element_block", "transient"; "unknown" for a number that is none. */
const char* penstock_entity_type_name(int type);
const char* penstock_role_name(int role);

/* Start from penstock_entity_of, set what it has, leave the rest 0. */
typedef struct penstock_entity {
  size_t struct_size;
  int type; /* penstock_entity_type */
  const char* name;
  int64_t id;
  uint64_t count;       /* nodes, elements, cells, members or sides of this part */
  const char* topology; /* of blocks: "hex8" */
  int member_type;      /* of an assembly: a penstock_entity_type */
  size_t num_members;
  const char* const* members; /* names of entities */
  size_t num_fields;          /* of an entity that is read; otherwise ignored */
  size_t num_properties;
} penstock_entity;

static inline penstock_entity penstock_entity_of(int type, const char* name, int64_t id, uint64_t count) {
  penstock_entity entity;
  memset(&entity, 0, sizeof entity);
  entity.struct_size = sizeof entity;
  entity.type = type;
  entity.name = name;
  entity.id = id;
  entity.count = count;
  entity.member_type = PENSTOCK_ELEMENT_BLOCK;
  return entity;
}

/* Start from penstock_field_of. penstock/region.hpp lists the fields of role mesh that each type of entity has. */
typedef struct penstock_field {
  size_t struct_size;
  const char* name;
  int dtype;           /* int32, int64, float32, float64 or complex128 */
  const char* storage; /* "vector_3d", "sym_tensor_33", "[7]": an array of 7; NULL: "scalar" */
  int role;            /* penstock_role */
  uint64_t count; /* model fields: how many rows, where there is not one for each node, element or member; else 0 */
  size_t num_component_names; /* 0: the names follow from name and storage */
  const char* const* component_names;
  uint64_t rows; /* of a field that is read; otherwise ignored. It has rows x components values. */
  uint32_t components;
} penstock_field;

static inline penstock_field penstock_field_of(const char* name, int dtype, const char* storage, int role) {
  penstock_field field;
  memset(&field, 0, sizeof field);
  field.struct_size = sizeof field;
  field.name = name;
  field.dtype = dtype;
  field.storage = storage;
  field.role = role;
  return field;
}

/* A model is checked when it is given to a sink; until then it may contradict itself. title: may be NULL. dimensions: at most 3. */
int penstock_model_create(const char* title, uint32_t dimensions, penstock_model** model, penstock_error* error);
void penstock_model_destroy(penstock_model* model);

/* First the region itself, then the others by type. entity: its number. */
int penstock_model_add_entity(penstock_model* model, const penstock_entity* entity, size_t* number,
                              penstock_error* error);
int penstock_model_add_field(penstock_model* model, size_t entity, const penstock_field* field, size_t* number,
                             penstock_error* error);

/* Nodes that a structured block shares with another one, or with itself; as ZoneConnectivity in penstock/region.hpp. Ranges are
   nodes from first to last, both included, counted from 0 in the whole block. */
typedef struct penstock_zone_connectivity {
  const char* name;
  const char* donor;
  int32_t transform[3];
  int64_t owner_first[3], owner_last[3];
  int64_t donor_first[3], donor_last[3];
  int decomposition; /* the block continues in another part */
} penstock_zone_connectivity;

/* face: 0 to 2: least i, j, k; 3 to 5: greatest i, j, k. family: may be NULL. */
typedef struct penstock_boundary_condition {
  const char* name;
  const char* family;
  int64_t first[3], last[3];
  int32_t face;
} penstock_boundary_condition;

/* The cells of a structured block along i, j, k; as Structured in penstock/region.hpp. */
typedef struct penstock_structured {
  size_t struct_size; /* sizeof(penstock_structured) */
  int64_t cells[3];   /* of this part */
  int64_t whole[3];   /* of all parts */
  int64_t offset[3];  /* of this part in the whole */
  size_t num_connectivities;
  const penstock_zone_connectivity* connectivities;
  size_t num_boundaries;
  const penstock_boundary_condition* boundaries;
} penstock_structured;

/* Each structured block has one. */
int penstock_model_put_structured(penstock_model* model, size_t entity, const penstock_structured* structured,
                                  penstock_error* error);
/* structured: its struct_size is set by the caller. PENSTOCK_ERR_NOT_FOUND where the entity has none. */
int penstock_model_structured(penstock_model* model, size_t entity, penstock_structured* structured,
                              penstock_error* error);
int penstock_model_add_qa(penstock_model* model, const char* code, const char* version, const char* date,
                          const char* time, penstock_error* error);
int penstock_model_add_information(penstock_model* model, const char* line, penstock_error* error);

/* In place of an entity's number: the properties of the model itself. */
#define PENSTOCK_WHOLE_MODEL SIZE_MAX
/* Sets a property. dtype: int64 or float64. values: `count` elements; is_array tells an array of one from a scalar (count 1). */
int penstock_model_put_property(penstock_model* model, size_t entity, const char* name, int dtype, const void* values,
                                size_t count, int is_array, penstock_error* error);
int penstock_model_put_property_string(penstock_model* model, size_t entity, const char* name, const char* value,
                                       penstock_error* error);

typedef struct penstock_model_info {
  size_t struct_size; /* set by the caller to sizeof(penstock_model_info) */
  const char* title;
  uint32_t dimensions;
  size_t num_entities;
  size_t num_properties;
  size_t num_qa;
  size_t num_information;
  const char* const* information;
} penstock_model_info;

/* The struct_size of what is written is set by the caller, here and in the next two. */
int penstock_model_get_info(penstock_model* model, penstock_model_info* info, penstock_error* error);
int penstock_model_entity(penstock_model* model, size_t number, penstock_entity* entity, penstock_error* error);
int penstock_model_field(penstock_model* model, size_t entity, size_t number, penstock_field* field,
                         penstock_error* error);
/* PENSTOCK_ERR_NOT_FOUND names the nearest one. find_field: the first of the name. */
int penstock_model_find_entity(penstock_model* model, int type, const char* name, size_t* number,
                               penstock_error* error);
int penstock_model_find_field(penstock_model* model, size_t entity, const char* name, size_t* number,
                              penstock_error* error);
/* Properties are in the order of their names. A string is one of `strings`. */
int penstock_model_property_name(penstock_model* model, size_t entity, size_t index, const char** name,
                                 penstock_error* error);
int penstock_model_property(penstock_model* model, size_t entity, const char* name, penstock_attribute* value,
                            penstock_error* error);

typedef struct penstock_qa_record {
  const char *code, *version, *date, *time;
} penstock_qa_record;
int penstock_model_qa(penstock_model* model, size_t index, penstock_qa_record* record, penstock_error* error);

/* ------------------------------------------------------------------------------------------------------- writing */

typedef struct penstock_region_sink penstock_region_sink;

/* Collective. cohort: copied; NULL for a program of one rank. options: "exodus,path=plate.e", or NULL; the keys are those of
   MeshOptions in penstock/options.hpp, a word without "=" names the database. penstock.yaml and the environment have the last
   word. The context outlives the sink. After an error a sink can only be closed, except after PENSTOCK_ERR_INVALID_ARGUMENT and
   PENSTOCK_ERR_WRONG_STATE from _write, _begin_state and _end_state, which change nothing. */
int penstock_context_create_region(penstock_context* context, const char* name, const penstock_cohort* cohort,
                                   const char* options, penstock_region_sink** sink, penstock_error* error);
/* Frees. Without penstock_region_sink_close the region is abandoned: readers do not see what is incomplete. On a stream it waits
   as penstock_writer_destroy does. */
void penstock_region_sink_destroy(penstock_region_sink* sink);
/* Before anything else, and again between states where the topology has changed. Collective: a model that is refused on one rank is an error on all. The model is copied. */
int penstock_region_sink_define(penstock_region_sink* sink, const penstock_model* model, penstock_error* error);
/* The whole field; values are copied or written before it returns, and NULL only where there are none. Model fields come before the
   first state, each once, those of role communication first (collective on nemesis); the others in each state. */
int penstock_region_sink_write(penstock_region_sink* sink, size_t entity, size_t field, const void* values,
                               penstock_error* error);
/* PENSTOCK_ERR_WRONG_STATE names a field that was not written. The state is complete when _end_state has returned on all ranks. */
int penstock_region_sink_begin_state(penstock_region_sink* sink, double time, penstock_error* error);
int penstock_region_sink_end_state(penstock_region_sink* sink, penstock_error* error);
/* The state that was begun is given up, and another one can begin; after an error of the sink it does nothing. All ranks give up the same
   state: of a stream none is seen that a rank has given up; files of several ranks that differ in that are not read. */
int penstock_region_sink_abandon_state(penstock_region_sink* sink, penstock_error* error);
/* Collective. */
int penstock_region_sink_close(penstock_region_sink* sink, penstock_error* error);

/* ------------------------------------------------------------------------------------------------------- reading */

typedef struct penstock_region_source penstock_region_source;

typedef enum penstock_state_outcome {
  PENSTOCK_STATE_READY = 0,
  PENSTOCK_STATE_NOT_READY, /* the deadline passed */
  PENSTOCK_STATE_END,       /* of a file: for now, a later call looks again */
  PENSTOCK_STATE_NEW_MODEL  /* the topology has changed: ask for the model; its states follow */
} penstock_state_outcome;

/* Collective. As _create_region; the context outlives the source. */
int penstock_context_open_region(penstock_context* context, const char* name, const penstock_cohort* cohort,
                                 const char* options, penstock_region_source** source, penstock_error* error);
void penstock_region_source_destroy(penstock_region_source* source);
/* How many ranks wrote it. */
int penstock_region_source_parts(penstock_region_source* source, uint32_t* parts, penstock_error* error);
/* A copy of the model of a part. On a stream each part that is read is asked for before the first state. */
int penstock_region_source_model(penstock_region_source* source, uint32_t part, penstock_model** model,
                                 penstock_error* error);
/* Goes on to the next complete state. time: written when there is one. PENSTOCK_ERR_WRITER_LOST: the writer of a stream died. */
int penstock_region_source_next_state(penstock_region_source* source, int64_t timeout_ms,
                                      penstock_state_outcome* outcome, double* time, penstock_error* error);
/* Of the states that can be sought: the first `capacity` of them; count: how many there are. PENSTOCK_ERR_UNSUPPORTED: states come
   in order only. */
int penstock_region_source_times(penstock_region_source* source, size_t capacity, double* times, size_t* count,
                                 penstock_error* error);
/* The next state is this one. */
int penstock_region_source_seek(penstock_region_source* source, uint64_t state, penstock_error* error);
/* Rows first .. first + count - 1 of a field of the model, or of the present state. out: count x components values. */
int penstock_region_source_read(penstock_region_source* source, uint32_t part, size_t entity, size_t field,
                                uint64_t first, uint64_t count, void* out, penstock_error* error);
/* All parts as one, in a source of its own: nodes and elements with equal ids are merged. The two share their states: use one of
   them, and destroy both, in any order. */
int penstock_region_source_join(penstock_region_source* source, penstock_region_source** joined, penstock_error* error);

#ifdef __cplusplus
}
#endif

#endif
