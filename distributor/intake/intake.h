/* SPDX-License-Identifier: Apache-2.0
 *
 * intake.h: one request of any protocol, from its body to the acks of what was in it.
 *
 *   loop  START ─> pool  decode ─┬ push ─> rules ─> window ─> write ids ─> pack ─┐
 *          │                     ├ push ...                                      │
 *          └ error: reply it     └ rejected: a row, its reason                 v
 *   loop  done(result) <── rows: stored, empty, rejected <── acks <── sends, again until timeout
 *
 * A protocol says how its body becomes pushes (`decode`, which speaks to a struct batch_sink) and
 * how its client gets the result (`done`). Everything between is the same for all protocols.
 */
#ifndef DISTRIBUTOR_INTAKE_INTAKE_H
#define DISTRIBUTOR_INTAKE_INTAKE_H

#include "common/base/hash.h"
#include "common/net/http.h"
#include "distributor/formats/batch.h"

struct distributor;
struct key_record;
struct intake;
struct tenant;

enum intake_outcome {
    INTAKE_STORED,
    INTAKE_EMPTY, /* taken, and had nothing to store */
    INTAKE_REJECTED,
};
/* One per begin of the decoder, and one per reject of what never began, in that order. */
struct intake_row {
    enum intake_outcome outcome;
    uint64_t profiles;     /* 1; more where several were rejected at once */
    struct str id;         /* the sender's own, if it came to that */
    const struct err *err; /* of what was rejected */
};
struct intake_result {
    const struct err *err; /* the request as a whole failed, nothing of it is stored; or NULL */
    const struct intake_row *rows;
    size_t rows_len;
    uint64_t stored, empty, rejected;     /* profiles */
    uint64_t series, duplicates, samples; /* of what was stored */
    const uint64_t *left_out;             /* by enum push_drop, of what was taken: see left_out.h */
};

struct intake_opts {
    struct http_req *http; /* tenant, Idempotency-Key, gone; lives until done. NULL: what we fetched
                              ourselves; then the tenant is given */
    struct str tenant;     /* from intake_check; {NULL, 0}: checked by intake_start */
    struct tenant *entered; /* of that name, held by the caller, who paid its rates; or NULL */
    struct str key;         /* without http: in place of an Idempotency-Key, or {NULL, 0} */
    /* Without http: the identity that pushes, or NULL. With http it is that of the request. */
    const struct key_record *identity;
    const char *format; /* label of embertree_distributor_requests_total */
    struct str body;    /* what came over the wire: its size is charged and counted */
    uint32_t grows;     /* by how much the body grows when it is unzipped, usually; 0: by gzip */
    uint64_t left_ms;   /* until the client's own deadline; 0: it has none */
    /* Pool. Pushes what is in the body; an error fails all of it. */
    int (*decode)(void *cookie, const struct batch_sink *sink, struct err *e);
    /* Loop, exactly once after intake_start returned 0. *r is gone when it returns. */
    void (*done)(void *cookie, const struct intake_result *r);
    void *cookie;
};

/* Draining, memory, tenant, Idempotency-Key: what is asked before the body is looked at. */
NODISCARD int intake_check(struct distributor *d, const struct http_req *r, struct str *ret_tenant,
                           struct err *e);
/* An error is the caller's to tell: done is not called then. It is counted already. */
NODISCARD int intake_start(struct distributor *d, const struct intake_opts *o, struct err *e);

/* For who forwards what came in. A push that fails to be stored is sent again by its sender, and is
 * then told again, with the same id. */
#define INTAKE_HOPS_HEADER "X-Embertree-Hops" /* of a forwarded request: by how many servers */
struct window;
struct intake_packed {
    struct str tenant;
    const struct push *push;
    const struct window *window;
    struct str message; /* a WriteRequest (proto/ingest.proto) */
    struct hash128 id;  /* of the push: the same when it is sent again */
    unsigned hops;      /* how many servers forwarded it until here */
};
struct intake_tap {
    /* Pool; slices live for the call. Returns what it keeps for the push, with the bytes of it, or
     * NULL. It comes back through exactly one of the other two. */
    void *(*packed)(void *cookie, const struct intake_packed *p, size_t *ret_bytes);
    /* Loop: the push is stored. Its answer waits until done(done_cookie) is called, on the loop,
     * later. */
    void (*stored)(void *cookie, void *kept, void (*done)(void *done_cookie), void *done_cookie);
    void (*failed)(void *cookie, void *kept); /* loop or pool */
    void *cookie;
};

/* The HTTP status of an error of intake_error: 422 where the Idempotency-Key is that of another
 * push, as its draft wants it, else that of the code. */
int intake_status(const struct err *e);
/* What to tell a client that wants one answer: 0 if nothing was rejected; else the code that makes
 * it do the right thing (what may work another time goes before what never will) and the texts,
 * "3 errors: a; b; ..." if there are several, each with `prefix` formatted by text_of if given. */
int intake_error(const struct intake_result *r,
                 void (*text_of)(void *cookie, size_t row, struct buf *out), void *cookie,
                 struct err *e);
/* Frees the requests that ended and are kept for the next ones. Loop. */
void intake_pool_free(struct distributor *d);
size_t intake_spares_bytes(const struct distributor *d);

#endif
