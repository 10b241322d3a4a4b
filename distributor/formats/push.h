/* SPDX-License-Identifier: Apache-2.0
 *
 * push.h: what every format decodes to: one set of stacks, and series over it.
 */
#ifndef DISTRIBUTOR_FORMATS_PUSH_H
#define DISTRIBUTOR_FORMATS_PUSH_H

#include "common/base/arena.h"
#include "common/model/exid.h"
#include "common/model/label.h"
#include "common/model/ptype.h"
#include "common/model/stacks.h"
#include "distributor/formats/ingest.h"
#include "distributor/formats/pprof/symbol_session_counts.h"

struct push;

/* The samples of a series that have one id, for exemplars: they are in the series, too. */
struct push_exemplar {
    enum exid_kind kind;
    struct str id; /* packed, exid.h */
    const uint32_t *nodes;
    const uint64_t *values;
    size_t len;
};
/* Self values by node, ascending, all of 1 .. INT64_MAX. */
struct push_series {
    struct labels labels; /* canonical: sorted, unique, with the __*__ ones */
    struct str profile_type;
    bool gauge;
    uint64_t unit;  /* a long push is divided in multiples of it */
    uint64_t total; /* stays at INT64_MAX */
    const uint32_t *nodes;
    const uint64_t *values;
    size_t len;
    struct push_exemplar *exemplars; /* in no order; of each kind an id at most once, and each
                                        sample under at most one */
    size_t exemplars_len, exemplars_cap;
};

/* Kinds of parts that were left out of an accepted push, or changed in it. Names: push_drop_name.
 * */
enum push_drop {
    DROP_LINE, /* a text line without a count */
    DROP_UNKNOWN_LOCATION,
    DROP_VALUE_COUNT, /* a sample with more or fewer values than sample types */
    DROP_NEGATIVE,
    DROP_DELTA_NEGATIVE, /* prev_profile had more than the profile */
    DROP_NO_STACK,       /* an event without a stack */
    DROP_UNFINISHED,     /* bytes of a recording whose writer died */
    DROP_LABEL,          /* a sample label that cannot be a series label */
    CHANGE_OVERFLOW,     /* a label set went to [overflow] */
    CHANGE_TRUNCATED,    /* the middle of a stack was collapsed */
    CHANGE_STACKS,       /* a stack over the number of them went to [overflow] */
    CHANGE_SYMBOL,       /* a symbol was cut */
    CHANGE_SATURATED,    /* a value stays at INT64_MAX */
    CHANGE_STRING,       /* a string index pointed nowhere */
    CHANGE_EXEMPLAR,     /* an id was left out: too many, or none that can be stored */
    CHANGE_RATE,         /* a sampleRate that is not a number: the default was taken */
    PUSH_DROPS,
};
const char *push_drop_name(enum push_drop d);
#define PUSH_OVERFLOW "[overflow]" /* frame below the known part of such a stack */

/* Gives the symbol session of a service, for stacks that were sent before: symbol_session.h. */
struct push_memory {
    /* After push_base. NULL: nothing is known of this service, or it is in use. */
    struct symbol_session *(*take)(void *cookie, const struct push *p);
    void (*put)(void *cookie, struct symbol_session *k); /* back; the push keeps a reference */
    void *cookie;
};

struct push {
    struct arena *arena;       /* borrowed; everything but the stacks is in it */
    struct stacks stacks;      /* owned */
    struct push_memory memory; /* take NULL: none */
    /* NULL, or what the stacks are in, and `stacks` is empty: node i + 1 of the push is
     * known_nodes[i] there. */
    struct symbol_session *known;
    const uint32_t *known_nodes;
    size_t known_len;
    struct symbol_session_counts known_upto; /* what must have been told */
    bool known_taken, known_grew;            /* still ours alone; by this push */
    struct str service;
    struct labels base;          /* labels that all series have */
    struct exid ids[EXID_KINDS]; /* by kind: of the whole push, from its name; len 0: none */
    uint64_t exemplars;          /* of all series */
    struct push_series *series;
    size_t series_len, series_cap;
    bool has_time;     /* the body says when it was taken */
    bool has_identity; /* and says it so finely that equal bodies are retries */
    int64_t time_ns, duration_ns;
    uint64_t samples;
    uint64_t drops[PUSH_DROPS];
};

/* One body to decode: how it was sent, what it may cost, and where its series go. Everything is
 * borrowed for the call. */
struct decode_job {
    const struct ingest *in; /* the parsed request */
    const struct limits *l;
    int64_t now_ms;    /* Unix time, for checks of the times that a body says */
    struct push *push; /* initialised (push_init); gets the series, keeps nothing of the body */
};

/* The arena and the stacks share limits->decode_bytes: push_stacks_full says which was hit. */
void push_init(struct push *p, struct arena *a, const struct limits *l, uint64_t seed);
void push_deinit(struct push *p);
/* Puts the symbol session back for other pushes; the numbers stay valid. Twice is fine. */
void push_known_put(struct push *p);
/* Into the ordinary form: stacks of its own, nodes of all series renumbered. ERR_LIMIT. */
NODISCARD int push_known_expand(struct push *p, struct err *e);
/* Sets service and base, to copies. `app` is the service as the format understands the name: text
 * formats cut the kind off, pprof does not. No spy: no such label. */
NODISCARD int push_base(struct push *p, const struct ingest *in, struct str app,
                        const struct limits *l, struct err *e);
/* What the body says about its time. One in 1970 is an unset clock, or microseconds taken for
 * nanoseconds: as if there were none. ERR_INPUT before 1990 or over a day ahead. */
NODISCARD int push_time(struct push *p, int64_t time_ns, int64_t duration_ns, int64_t now_ms,
                        struct err *e);
/* Adds a series; t's parts are made fit for a profile type id. `extra` are labels besides base. */
NODISCARD int push_add(struct push *p, const struct ptype *t, const struct labels *extra,
                       const struct push_series *values, struct err *e);
/* Adds an exemplar to p->series[series]; slices are kept. False: the arena is full. */
NODISCARD bool push_exemplar(struct push *p, size_t series, const struct push_exemplar *x);
/* ERR_LIMIT with the sentence for an arena or stacks that are full. */
int push_full(const struct push *p, struct err *e);
/* A name as it is stored: normalised, and cut to its last keep bytes. *tmp is scratch. */
struct str push_symbol(struct push *p, struct str name, size_t keep, struct buf *tmp);
struct str push_path(struct push *p, struct str path, size_t keep, struct buf *tmp); /* a file */
/* a + b, or INT64_MAX and counted; both are at most INT64_MAX. */
static inline uint64_t push_sum(struct push *p, uint64_t a, uint64_t b)
{
    if (LIKELY(a + b <= INT64_MAX))
        return a + b;
    p->drops[CHANGE_SATURATED]++;
    return INT64_MAX;
}
/* Cut to the last `keep` bytes, not inside a UTF-8 sequence. */
struct str str_tail(struct str s, size_t keep);
/* True for names that come from inside (__*__) or would be a label per request. */
bool push_label_hidden(struct str name);

#endif
