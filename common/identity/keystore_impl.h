/* SPDX-License-Identifier: Apache-2.0
 *
 * keystore_impl.h: what the files of the keystore share: keystore.c (calls), keystore_local.c (the
 * file, signatures), keystore_coord.c (the coordination service).
 */
#ifndef COMMON_IDENTITY_KEYSTORE_IMPL_H
#define COMMON_IDENTITY_KEYSTORE_IMPL_H

#include "common/base/list.h"
#include "common/base/vec.h"
#include "common/cluster/coord/keyspace.h"
#include "common/identity/keystore.h"

#define KEYSTORE_SIGNS_MAX 16 /* keys that records may be signed by */

enum op_kind { OP_ADD, OP_REPLACE, OP_BLOCK };
enum op_state {
    OP_SAVING,  /* waits for the file */
    OP_STORING, /* waits for the service */
    OP_AGAIN,   /* another process changed the head: soon again */
};
struct op { /* one call */
    struct list node;
    struct keystore *k;
    enum op_kind kind;
    enum op_state state;
    bool put;                      /* the registry has it already */
    bool once;                     /* not again where another process was faster */
    struct key_record *r, *before; /* a reference each; before: what a replacement replaced */
    char id[KEY_ID_LEN + 1];
    struct buf block; /* its JSON */
    uint64_t version; /* that its transaction gives the head */
    uint64_t wants;   /* the change that the file must have */
    uint32_t tries;
    bool saved;      /* a block: the file has it */
    struct err disk; /* a block: the file could not be written */
    keystore_fn fn;
    void *cookie;
};
struct pending { /* what this process knows and the service does not */
    char id[KEY_ID_LEN + 1];
    bool block;
    struct str json; /* owned */
};
struct keystore_head {
    uint64_t version;
    uint8_t pepper[KEY_PEPPER_BYTES];
    bool known;
};
struct keystore_save;

struct keystore {
    uint32_t magic;
    struct keystore_opts o;                              /* the cluster's keys are not kept */
    char *path;                                          /* owned; of the file */
    uint8_t sign[KEYSTORE_SIGNS_MAX][RECORD_SIGN_BYTES]; /* the first signs */
    size_t sign_len;
    bool own_sign; /* no cluster key: the pepper signs */
    struct keystore_head head;
    struct list ops;

    struct timer *save_timer;
    struct keystore_save *saving;   /* NULL: none */
    bool due;                       /* the timer runs */
    uint64_t changes, tried, saved; /* of what the file has: made, last begun, on the disk */

    struct coord_watch *watch;
    struct timer *tick;
    int64_t head_rev;   /* of the service's head; 0: it has none */
    int64_t listed_rev; /* events up to here were in the last list */
    uint64_t heard_ms;  /* monotonic */
    bool listed;        /* everything was read once, and its head believed */
    bool relist, listing, sending;
    bool resign; /* the next list: what a former key of the cluster signed is signed again */
    size_t sent; /* of `out`, under way */
    bool raise;  /* the service holds an older state: `out`, then a new head */
    VEC(struct pending) out;
    VEC(uint64_t) said; /* hashes of keys whose bad value was logged */

    bool bootstrapped;
    char *bootstrap_key; /* owned; while it is being stored */
};

/* ---- keystore.c */
void keystore_op_end(struct op *op, const struct err *e, bool away);
static inline int64_t keystore_now_ms(const struct keystore *k)
{
    return clock_wall_ms(loop_clock(k->o.loop));
}

/* ---- keystore_local.c */
void keystore_signs(struct keystore *k, struct str cluster_key, const struct str *others, size_t n);
void keystore_pepper(struct keystore *k, const uint8_t pepper[KEY_PEPPER_BYTES]);
/* Which of the keys signed it; -1: none. */
int keystore_signed_by(const struct keystore *k, struct str json);
void keystore_head_write(const struct keystore *k, uint64_t version, struct buf *out);
/* Which of the keys signed it; -1: no head can be read, or no key of this
 * cluster signed it. */
int keystore_head_read(const struct keystore *k, struct str json, struct keystore_head *ret);
/* ERR_NOT_FOUND: no file is there. */
NODISCARD int keystore_load(struct keystore *k, struct err *e);
/* Something changed; `now`: a caller waits for the disk. Returns the number of the change. */
uint64_t keystore_changed(struct keystore *k, bool now);
void keystore_on_save(void *cookie); /* of save_timer */
void keystore_local_stop(struct keystore *k);

/* ---- keystore_coord.c */
void keystore_coord_start(struct keystore *k);
void keystore_coord_stop(struct keystore *k);
/* This process knows it, and the service does not: it is to be written. */
void keystore_owe(struct keystore *k, struct str id, bool block, struct str json);

/* ---- keystore_store.c */
void keystore_settle(struct keystore *k); /* writes some of `out`; not while k->sending */
void keystore_store(struct op *op);       /* its record or block goes to the service */

#endif
