/* SPDX-License-Identifier: Apache-2.0
 *
 * jfr_impl.h: what the files of this folder share: one recording being read, and of it one chunk.
 *
 * Offsets are of the chunk. All that grows is charged (jfr_charge) against limits.decode_bytes.
 */
#ifndef DISTRIBUTOR_FORMATS_JFR_JFR_IMPL_H
#define DISTRIBUTOR_FORMATS_JFR_JFR_IMPL_H

#include "common/base/map.h"
#include "common/base/vec.h"
#include "distributor/formats/jfr/jfr.h"
#include "distributor/formats/jfr/jfr_rd.h"
#include "distributor/formats/paths.h"

#define JFR_HEADER_BYTES 68
#define JFR_CHUNKS_MAX   1000
#define JFR_CLASSES_MAX  10000
#define JFR_FIELDS_MAX   256   /* of a class */
#define JFR_NESTING_MAX  8     /* structs in structs */
#define JFR_OPS_MAX      1024  /* of one class, with all structs in it */
#define JFR_OPS_ALL_MAX  65536 /* of one chunk */
#define JFR_ELEMENTS_MAX 16    /* depth of the metadata's tree */
#define JFR_PLANS_MAX    64    /* event classes of one chunk that are read */
#define JFR_TYPES_DENSE  4096  /* type ids below it are found by index */
#define JFR_READ_TIMES   32    /* so many times the bytes of the recording, and JFR_READ_LEAST */
#define JFR_READ_LEAST   (16 * MIB)
#define JFR_NONE         UINT32_MAX

/* ---- classes (jfr_meta.c) ----- */

enum jfr_kind { /* what a class is to us, by its name */
                JFR_OTHER,
                JFR_BYTE, /* boolean, byte */
                JFR_SHORT,
                JFR_CHAR,
                JFR_INT,
                JFR_LONG,
                JFR_FLOAT,
                JFR_DOUBLE,
                JFR_STRING,
                JFR_PRIMITIVES,              /* so far */
                JFR_SYMBOL = JFR_PRIMITIVES, /* from here on: looked up in their pools */
                JFR_TRACE,
                JFR_FRAME,
                JFR_METHOD,
                JFR_CLASS,
                JFR_STATE,
};
enum jfr_unit { JFR_TICKS, JFR_NS, JFR_US, JFR_MS, JFR_S }; /* of a field; ticks by default */
struct jfr_field {
    struct str name;
    uint64_t class_id;
    bool pool;         /* a key of its class's pool, else inline */
    uint8_t dimension; /* 255: more than one byte can say */
    uint8_t unit;
};
struct jfr_class {
    uint64_t id;
    struct str name;
    enum jfr_kind kind;
    uint32_t fields_from, fields_len; /* of classes' fields */
    uint32_t prog;                    /* JFR_NONE until compiled */
    uint32_t pool;                    /* JFR_NONE: none seen */
};

/* ---- programs (jfr_prog.c): a class as a flat list of steps over bytes ----- */

enum jfr_op_kind {
    JFR_OP_BYTE,
    JFR_OP_I16,
    JFR_OP_U16,
    JFR_OP_I32,
    JFR_OP_I64,
    JFR_OP_SKIP4,
    JFR_OP_SKIP8,
    JFR_OP_STRING, /* the slot gets where it starts */
    JFR_OP_ARRAY,  /* the same; the next `body` steps are one element */
};
struct jfr_op {
    uint8_t kind;
    uint8_t slot; /* 0: the value is not used */
    uint16_t body;
};
enum jfr_slot { /* where the values of wanted fields go */
                JFR_SLOT_NONE,
                JFR_SLOT_A, /* constants: frames, method, type, name, string */
                JFR_SLOT_B, /* lineNumber, name */
                JFR_SLOT_STACK = 1,
                JFR_SLOT_STATE,
                JFR_SLOT_CONTEXT,
                JFR_SLOT_SPAN,
                JFR_SLOT_SPAN_NAME,
                JFR_SLOT_TRACE_HI,
                JFR_SLOT_TRACE_LO,
                JFR_SLOT_VALUE,
                JFR_SLOT_VALUE2, /* where there is no VALUE; value of a setting */
                JFR_SLOT_TIME,   /* of the event, in ticks */
                JFR_SLOT_ID,     /* of a setting: the class of events that it is for */
                JFR_SLOTS,
};
struct jfr_want {
    const char *field;
    enum jfr_slot slot;
};
struct jfr_bind { /* what a slot holds */
    bool here;
    bool pool;      /* a key of the pool of `class` */
    bool array;     /* offset of an array of these */
    uint8_t unit;   /* enum jfr_unit */
    uint32_t class; /* index into classes */
};
struct jfr_prog {
    uint32_t from, len; /* of ops */
    struct jfr_bind bind[JFR_SLOTS];
};

/* ---- pools (jfr_pools.c) ----- */

struct jfr_entry { /* a constant of a pool that is looked up */
    uint32_t offset;
    uint32_t memo;         /* JFR_NONE until asked for: node, string of stacks, enum jfr_state */
    uint32_t row_key, row; /* traces: family and tag counted last, and their row */
};
struct jfr_pool {
    struct map_u64 keys; /* key ^ seed -> entries */
};
enum jfr_state { JFR_STATE_UNKNOWN, JFR_STATE_OTHER, JFR_STATE_RUNNABLE, JFR_STATE_SLEEPING };

struct jfr_chunk { /* memory is kept from chunk to chunk */
    const uint8_t *base;
    size_t size;
    uint64_t checkpoint, metadata; /* offsets */
    int64_t start_ns, duration_ns;
    uint64_t ticks_per_s;
    struct buf text; /* strings of the metadata */
    VEC(struct str) strings;
    VEC(struct jfr_class) classes;
    VEC(struct jfr_field) fields;
    struct map_u64 class_ids; /* id ^ seed -> classes */
    VEC(struct jfr_op) ops;
    VEC(struct jfr_prog) progs;
    VEC(struct jfr_entry) entries;
    VEC(struct jfr_pool) pools; /* pools_len are in use */
    size_t pools_len;
};

/* ---- what is counted (jfr_events.c) ----- */

enum jfr_family {
    JFR_CPU,
    JFR_WALL,
    JFR_NATIVE,
    JFR_CPU_TIME,
    JFR_ALLOC_IN_TLAB,
    JFR_ALLOC_OUTSIDE_TLAB,
    JFR_ALLOC_SAMPLE,
    JFR_MUTEX,
    JFR_BLOCK,
    JFR_LIVE,
    JFR_MALLOC,
    JFR_NATIVE_LOCK,
    JFR_FAMILIES,
};
struct jfr_row { /* events of one family, stack and tag, added up */
    uint32_t node, tag;
    uint8_t family;
    uint64_t count, amount;
};
/* ---- periods (jfr_period.c) ----- */

struct jfr_period { /* the setting of jdk.ExecutionSample, from this time on */
    uint64_t ticks, ns;
};

struct jfr_tag { /* what an event says besides its stack; tag 0 is nothing */
    uint64_t context, span_name, span, trace_hi, trace_lo;
};

/* ---- labels (jfr_labels.c) ----- */

struct jfr_pair {
    uint64_t key, value; /* string ids of the snapshot */
};
struct jfr_context {
    uint32_t from, len; /* of pairs */
};
struct jfr_labels {
    VEC(struct str) strings; /* 0 is "" */
    struct map_u64 string_ids;
    VEC(struct jfr_context) contexts;
    struct map_u64 context_ids;
    VEC(struct jfr_pair) pairs;
};

struct jfr {
    const struct limits *l;
    const struct ingest *in;
    struct push *push;
    uint64_t seed;
    size_t bytes;       /* charged */
    uint64_t read_left; /* bytes of constants that may be read where they are referred to */
    struct jfr_chunk chunk;
    struct paths paths;
    uint32_t *path;   /* frames of one stack: limits.frames of them */
    struct buf name;  /* scratch: a class and method */
    struct buf tmp;   /* scratch: its normal form */
    struct buf event; /* setting "event", as the last recording has it */
    bool wall;        /* it is "wall" */
    uint64_t period;  /* nanoseconds of a sample by the URL's sampleRate; 1: samples are counted */
    VEC(struct jfr_period) periods; /* of this chunk, by time; none: `period` */
    uint64_t units[JFR_FAMILIES];   /* all samples are multiples of it; 0: no samples */
    struct jfr_labels labels;
    VEC(struct jfr_tag) tags;
    struct map_u64 tag_ids;
    uint32_t tag_last;
    VEC(struct jfr_row) rows;
    struct map_u64 row_ids;
};

/* False, with *e set, where the budget does not allow n bytes more. */
NODISCARD bool jfr_charge(struct jfr *j, size_t n, struct err *e);

/* Classes and fields of the chunk. */
NODISCARD int jfr_meta_read(struct jfr *j, struct err *e);
/* JFR_NONE: no such class. */
uint32_t jfr_class_find(const struct jfr *j, uint64_t id);

/* Compiles a class, once; `wants` are its fields of interest. */
NODISCARD int jfr_compile(struct jfr *j, uint32_t class, const struct jfr_want *wants, size_t n,
                          struct err *e);
/* Runs n steps; false: past the end, or bytes that are no value. */
NODISCARD bool jfr_run(const struct jfr_op *ops, size_t n, const uint8_t *base, struct rd *r,
                       uint64_t slots[JFR_SLOTS]);

/* All pools of the chunk, along the chain of checkpoints. */
NODISCARD int jfr_pools_read(struct jfr *j, struct err *e);
void jfr_pools_reset(struct jfr_chunk *c);
/* The constant of that key, or NULL. */
struct jfr_entry *jfr_pool_find(const struct jfr *j, uint32_t class, uint64_t key);
/* Its fields. False: no such constant, or j->read_left is at its end. */
bool jfr_pool_load(struct jfr *j, uint32_t class, const struct jfr_entry *entry,
                   uint64_t slots[JFR_SLOTS]);
/* Appends the text that `value` stands for, directly or through pools; nothing for null. */
void jfr_text(struct jfr *j, const struct jfr_bind *bind, uint64_t value, struct buf *out);

/* The node of a stack trace. */
NODISCARD int jfr_trace_node(struct jfr *j, uint32_t class, struct jfr_entry *entry, uint32_t *ret,
                             struct err *e);

/* One event of jdk.ActiveSetting with the name "period", for jdk.ExecutionSample. */
NODISCARD int jfr_period_add(struct jfr *j, uint64_t ticks, struct str value, struct err *e);
void jfr_periods_sort(struct jfr *j);
/* Nanoseconds of a sample of jdk.ExecutionSample that was taken at this time. */
uint64_t jfr_period_at(const struct jfr *j, uint64_t ticks);

/* Counts the events of the chunk into j->rows. */
NODISCARD int jfr_events_read(struct jfr *j, struct err *e);

NODISCARD int jfr_labels_read(struct jfr *j, struct str snapshot, struct err *e);
void jfr_labels_deinit(struct jfr_labels *l);

/* j->rows and j->tags to series of j->push. */
NODISCARD int jfr_series(struct jfr *j, struct err *e);

#endif
