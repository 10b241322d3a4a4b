/* SPDX-License-Identifier: Apache-2.0
 *
 * arrow.h: an Arrow IPC stream, record batch by record batch.
 *
 *   arrow_open ─> arrow_next ─> cells of a->batch by arrow_get and the like ─> arrow_next ... close
 *
 * Cells are resolved when they are read: through run ends and dictionaries, each step checked. A
 * fault that is found there makes the cell read as null and is kept in a->fault; the caller checks
 * it after a row or the batch. Thread: one at a time.
 */
#ifndef DISTRIBUTOR_PARCA_ARROW_ARROW_H
#define DISTRIBUTOR_PARCA_ARROW_ARROW_H

#include "distributor/parca/arrow/arrow_batch.h"

#define ARROW_MESSAGES_MAX 8192

struct arrow_chunk {
    struct arrow_batch batch;
    uint64_t base; /* entries of the dictionary before it */
};
struct arrow_dict {
    VEC(struct arrow_chunk) chunks; /* several: it grew by deltas */
    uint64_t len;
};
struct arrow {
    struct arrow_schema schema;
    struct arrow_budget budget;
    struct arrow_batch batch; /* the record batch read last */
    struct arrow_dict *dicts; /* owned; by their place in schema.dicts */
    struct str left;          /* of the stream */
    uint32_t messages;
    bool ended;
    struct err fault; /* the first fault that reading a cell met; code 0: no fault */
};

/* A cell: a row of the column of a field. */
struct arrow_cell {
    struct arrow_batch *batch;
    uint32_t field;
    uint64_t row;
};

/* Reads up to the schema. `body`, the arena and the limits must outlive it. ERR_INPUT, ERR_LIMIT;
 * arrow_close it after failure too. */
NODISCARD int arrow_open(struct arrow *a, struct str body, const struct limits *l,
                         struct arena *arena, struct err *e);
/* The next record batch to a->batch; *ret_more = false: no batch is left. Cells of the previous one
 * must not be read any more: dictionaries may have been replaced. */
NODISCARD int arrow_next(struct arrow *a, bool *ret_more, struct err *e);
void arrow_close(struct arrow *a);

static inline struct arrow_cell arrow_cell(struct arrow *a, uint32_t field, uint64_t row)
{
    return (struct arrow_cell){ &a->batch, field, row };
}
/* Moves *c to where its value is. False: null, or a fault. */
bool arrow_resolve(struct arrow *a, struct arrow_cell *c);
/* Values; false for null, for a fault, and (a fault) for another kind of column. Numbers that do
 * not fit are a fault; bool counts as 0 and 1. */
bool arrow_i64(struct arrow *a, struct arrow_cell c, int64_t *ret);
bool arrow_u64(struct arrow *a, struct arrow_cell c, uint64_t *ret);
bool arrow_bytes(struct arrow *a, struct arrow_cell c, struct str *ret);
/* Any kind of list: its first element, and how many there are. */
bool arrow_list(struct arrow *a, struct arrow_cell c, struct arrow_cell *ret_first,
                uint64_t *ret_n);
/* A struct: moves *c to the cell that has the children of this row. */
bool arrow_struct(struct arrow *a, struct arrow_cell *c);
/* The child of a struct that arrow_struct has found. */
static inline struct arrow_cell arrow_in(struct arrow_cell c, uint32_t child)
{
    return (struct arrow_cell){ c.batch, child, c.row };
}
/* Keeps the first fault; returns false. */
bool arrow_fault(struct arrow *a, uint32_t field, const char *what, int64_t n);

#endif
