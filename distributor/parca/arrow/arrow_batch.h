/* SPDX-License-Identifier: Apache-2.0
 *
 * arrow_batch.h: the buffers of one record batch as columns; internal to the Arrow reader.
 */
#ifndef DISTRIBUTOR_PARCA_ARROW_ARROW_BATCH_H
#define DISTRIBUTOR_PARCA_ARROW_ARROW_BATCH_H

#include "common/base/arena.h"
#include "distributor/formats/limits.h"
#include "distributor/parca/arrow/arrow_schema.h"

/* Slices are of the message, or of the arena where they were compressed. They have all the bytes
 * that `len` elements need; what the bytes say is checked when it is used, but for run ends. */
struct arrow_col {
    const struct arrow_field *field;
    uint64_t len;
    const char *valid;        /* bitmap, or NULL: no nulls */
    const char *data;         /* values, indexes, offsets, views, or offsets of a list view */
    struct str extra;         /* bytes of ARROW_BYTES; sizes of a list view */
    const struct str *blocks; /* of views */
    uint32_t blocks_len;
    uint64_t hint; /* ARROW_RUNS: the run found last */
};
struct arrow_batch {
    uint64_t rows;
    uint32_t id;    /* of the batch among all of its stream, dictionaries' too */
    uint32_t first; /* field of cols[0] */
    struct arrow_col *cols;
};

/* What all batches of a stream may take. */
struct arrow_budget {
    struct arena *arena;
    const struct limits *limits;
    size_t body_bytes; /* of the whole stream */
    size_t inflated;   /* so far */
    size_t runs;       /* walked so far */
};

/* A record batch as it is in the stream. Borrowed. */
struct arrow_record {
    const struct arrow_schema *s;
    uint32_t from, to;             /* it has the trees of fields [from, to) */
    const struct fb_table *header; /* a RecordBatch */
    struct str body;               /* the bytes after its metadata */
};
/* Reads the buffers of a batch as columns. ERR_INPUT, ERR_LIMIT. */
NODISCARD int arrow_batch_read(const struct arrow_record *record, struct arrow_budget *budget,
                               struct arrow_batch *ret, struct err *e);

#endif
