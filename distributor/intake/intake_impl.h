/* SPDX-License-Identifier: Apache-2.0
 *
 * intake_impl.h: what intake.c (loop) and intake_decode.c (pool) share; no other folder includes
 * it.
 *
 * Thread: fields are the loop's, but for the time between pool_submit and the done call.
 */
#ifndef DISTRIBUTOR_INTAKE_INTAKE_IMPL_H
#define DISTRIBUTOR_INTAKE_INTAKE_IMPL_H

#include "common/base/vec.h"
#include "common/role/route/hedged_call.h"
#include "distributor/base/state.h"
#include "distributor/base/window.h"
#include "distributor/intake/intake.h"
#include "distributor/rules/rules.h"
#include "distributor/send/ack_audit.h"
#include "distributor/send/shard_routing.h"
#include "distributor/send/write_id.h"

#define INTAKE_MAGIC      MAGIC('i', 'n', 't', 'k')
#define ROWS_BYTES_MAX    (4 * MIB) /* ids and errors of rows */
#define INTAKE_PUSH_MAGIC MAGIC('p', 'u', 's', 'h')

struct intake_push {
    uint32_t magic;
    struct intake *k;
    size_t row;
    size_t at;               /* in k->pushes */
    const struct ingest *in; /* the decoder's; until its end */
    struct arena *arena;     /* owned; kept until the ack, to pack again */
    struct push push;
    struct leaves leaves;
    struct write_base write_base;
    uint32_t shard;
    int64_t when_ms;     /* it is placed by */
    uint32_t told_shard; /* the shard that got the numbers of `known` */
    struct buf packed;   /* the transport takes it at each attempt */
    bool told;           /* packed: with stacks by number (formats/pprof/symbol_session.h) */
    bool once;           /* it was packed before: from now on with its stacks */
    uint32_t epoch;      /* ack_audit.h: the same for all attempts */
    struct acks acks;    /* of all its series */
    bool unsure;         /* an attempt was not answered: it may have been stored */
    void *kept;          /* the tap's, or NULL */
    size_t kept_bytes;
    size_t holds;   /* of k->holds, where it is a part */
    struct err err; /* of packing; code 0: fine */
    uint64_t sent_ns, retry_ms;
    struct timer *timer;     /* between attempts, else NULL */
    struct hedged_call race; /* of the attempt */
    bool by_number;          /* what was sent straight: with stacks by number */
    bool packing;            /* the pool packs a second copy: all but the next two is the pool's */
    bool over_early;         /* the attempt ended meanwhile: */
    struct buf early;        /* its reply */
    struct err *early_err;   /* owned; NULL: there is a reply */
    /* Relabelling may send series of one push to several services: the first has the push, each
     * further one its series and its own scratch, over the stacks of the first. */
    struct intake_push *whole; /* NULL: it has the push itself */
    size_t parts;              /* that still refer to this one */
    bool over;                 /* it is freed with the last of them */
};

struct intake {
    uint32_t magic;
    struct intake *next_spare; /* while it is in d->spares */
    struct distributor *d;
    struct intake_opts o;
    struct tenant *tenant;
    struct limits limits; /* the tenant's */
    struct rules_hold rules;
    const struct map *map; /* a reference; one and the same for all attempts */
    struct str key;        /* Idempotency-Key, or {NULL, 0} */
    unsigned hops;         /* X-Embertree-Hops */
    struct labels set;     /* by the identity, on every series */
    size_t reserved;       /* of d->memory */
    struct list undecoded; /* in that of the tenant, until it is decoded */
    uint64_t began_ms;
    uint64_t deadline_ms;
    bool client_deadline;                 /* it is the client's, not ours */
    size_t next, running;                 /* pushes */
    uint64_t series, duplicates, samples; /* stored */
    bool pumping;

    /* Written on the pool. */
    struct window_accept accept;
    struct arena *arena; /* ids and errors of rows */
    VEC(struct intake_row) rows;
    VEC(struct intake_push *) open;   /* begun, not ended */
    VEC(struct intake_push *) pushes; /* to be sent */
    VEC(struct hash128) bases;        /* write bases as they came, of pushes that ended */
    struct intake_push *spare;        /* owned; NULL, or memory for the next push */
    size_t begun;
    size_t holds;               /* bytes of the pushes */
    uint64_t rejected_more;     /* profiles without a row: there are too many */
    uint64_t drops[PUSH_DROPS]; /* of pushes that became empty, and, on the loop, of stored ones */
    char drops_service[64];     /* the first service of which there are some */
    uint64_t decode_ns;
    struct err err; /* code 0: fine */
};

/* Loop: an empty one, and back when nothing of it is needed. */
struct intake *intake_take(struct distributor *d);
void intake_give(struct intake *k);
/* Pool: runs o.decode; k->err, rows and pushes are set. */
void intake_decode(struct intake *k);
/* Pool: packs again what the transport took. */
int intake_pack(struct intake_push *p, struct err *e);
void intake_push_free(struct intake_push *p); /* NULL is fine */
/* Sets the outcome of a row; *why is copied. */
void intake_reject(struct intake *k, size_t row, const struct err *why);

/* Counts the parts that were left out of an accepted push. */
void intake_add_drops(struct intake *k, const struct push *push);

#endif
