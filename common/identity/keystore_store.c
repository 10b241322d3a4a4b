/* SPDX-License-Identifier: Apache-2.0
 *
 * keystore_store: what is written to the coordination service: the record of a call, a block, and
 * (`out`) what this process knows and the service lacks.
 *
 *   record   compares the head, raises its version, puts head and record   failed compare: again
 *   block    puts it, whatever the head: blocks are only added
 *   out      in batches; those with a record in them compare the head, and a failed compare has all
 *            be read and judged again (keystore_coord.c). At last the head gets a higher version.
 *
 * A transaction whose answer is lost may have happened. A record is then reported as unknown: its
 * key was given to no caller, so it opens nothing. A block is written again, which does no harm.
 */
#include "common/base/mem.h"
#include "common/cluster/coord/coord.h"
#include "common/identity/keystore_impl.h"

#define TRIES_MAX 20
#define BATCH     32

/* ---- calls ----------------------------------------------------------------------------------- */

static void store_again(struct op *op)
{
    struct keystore *k = op->k;
    struct err e;

    if (op->once || (op->kind == OP_ADD && registry_find(k->o.registry, str_c(op->id))))
        (void)err_set(&e, ERR_CONFLICT, "another process changed the keys at the same time");
    else if (++op->tries >= TRIES_MAX)
        (void)err_set_again(&e, ERR_BUSY, 2, "other processes change keys all the time; try again");
    else {
        op->state = OP_AGAIN; /* on_tick, once the watch brought the new head */
        return;
    }
    keystore_op_end(op, &e, false);
}

static void block_stored(struct op *op, const struct err *e)
{
    struct keystore *k = op->k;
    struct err both;

    if (e)
        keystore_owe(k, str_c(op->id), true, buf_str(&op->block));
    if (!e || op->saved) {
        keystore_op_end(op, NULL, e != NULL);
        return;
    }
    (void)err_set(&both, ERR_IO,
                  "it is revoked in this process only, until that ends: the file says %.150s; the "
                  "coordination service: %.150s",
                  op->disk.text, e->text);
    keystore_op_end(op, &both, true);
}

static void on_stored(void *cookie, const struct coord_reply *r)
{
    struct op *op = cookie;
    struct keystore *k = op->k;
    struct err e;

    if (op->kind == OP_BLOCK) {
        block_stored(op, r->err);
        return;
    }
    if (r->err) {
        e = *r->err;
        (void)err_wrap(&e, "the coordination service did not say whether it has the key (keys list "
                           "shows it then)");
        e.code = ERR_UNAVAILABLE;
        keystore_op_end(op, &e, false);
        return;
    }
    k->heard_ms = clock_mono_ms(loop_clock(k->o.loop));
    if (!r->done) {
        store_again(op);
        return;
    }
    k->head_rev = MAX(k->head_rev, r->rev);
    k->head.version = MAX(k->head.version, op->version);
    int code = registry_put(k->o.registry, op->r, &e);
    (void)keystore_changed(k, false);
    keystore_op_end(op, code ? &e : NULL, false);
}

static void store_block(struct op *op)
{
    struct coord_key key = key_identity_of(op->k->o.prefix, true, str_c(op->id));
    struct coord_change chg = { .key = key_str(&key), .value = buf_str(&op->block) };

    coord_txn(op->k->o.coord, &(struct coord_txn){ .chg = &chg, .chg_len = 1 }, on_stored, op);
}

static void store_record(struct op *op)
{
    struct keystore *k = op->k;
    struct coord_key head = key_identity_head(k->o.prefix);
    struct coord_key key = key_identity_of(k->o.prefix, false, str_c(op->id));
    struct coord_compare cmp[2] = { { .key = key_str(&head), .rev = k->head_rev },
                                    { .key = key_str(&key), .create = true } };
    struct buf h, b;

    buf_init(&h, KIB);
    buf_init(&b, 2 * KEY_RECORD_BYTES_MAX);
    op->version = k->head.version + 1;
    keystore_head_write(k, op->version, &h);
    record_key_write(op->r, k->sign[0], &b);
    CHECK(buf_ok(&h) && buf_ok(&b));
    struct coord_change chg[2] = { { .key = key_str(&head), .value = buf_str(&h) },
                                   { .key = key_str(&key), .value = buf_str(&b) } };
    coord_txn(k->o.coord,
              &(struct coord_txn){
                  .cmp = cmp, .cmp_len = op->kind == OP_ADD ? 2 : 1, .chg = chg, .chg_len = 2 },
              on_stored, op);
    buf_deinit(&h);
    buf_deinit(&b);
}

void keystore_store(struct op *op)
{
    op->state = OP_STORING;
    if (op->kind == OP_BLOCK)
        store_block(op);
    else
        store_record(op);
}

/* ---- what the service lacks ------------------------------------------------------------------ */

static void on_sent(void *cookie, const struct coord_reply *r)
{
    struct keystore *k = cookie;
    size_t n = k->sent;

    k->sending = false;
    k->sent = 0;
    if (r->err || !r->done) {
        k->relist |= !r->err; /* the head is another one: judge again */
        return;
    }
    for (size_t i = 0; i < n; i++)
        xfree((void *)(uintptr_t)k->out.ptr[i].json.ptr);
    if (n)
        memmove(k->out.ptr, k->out.ptr + n, (k->out.len - n) * sizeof(*k->out.ptr));
    k->out.len -= n;
}

static void on_raised(void *cookie, const struct coord_reply *r)
{
    struct keystore *k = cookie;

    k->sending = false;
    k->relist |= !r->err; /* in either case all is read again, and judged */
}

static void raise_head(struct keystore *k)
{
    struct coord_key key = key_identity_head(k->o.prefix);
    struct coord_compare cmp = { .key = key_str(&key), .rev = k->head_rev };
    struct buf b;

    buf_init(&b, KIB);
    keystore_head_write(k, k->head.version + 1, &b);
    struct coord_change chg = { .key = key_str(&key), .value = buf_str(&b) };
    k->sending = true;
    coord_txn(k->o.coord,
              &(struct coord_txn){ .cmp = &cmp, .cmp_len = 1, .chg = &chg, .chg_len = 1 },
              on_raised, k);
    buf_deinit(&b);
}

static void send_out(struct keystore *k)
{
    struct coord_key head = key_identity_head(k->o.prefix);
    struct coord_compare cmp = { .key = key_str(&head), .rev = k->head_rev };
    struct coord_key *keys = XNEW_ARRAY(struct coord_key, BATCH);
    struct coord_change chg[BATCH];
    size_t n = MIN(k->out.len, (size_t)BATCH);
    bool guarded = false;

    for (size_t i = 0; i < n; i++) {
        const struct pending *p = &k->out.ptr[i];

        keys[i] = key_identity_of(k->o.prefix, p->block, str_c(p->id));
        chg[i] = (struct coord_change){ .key = key_str(&keys[i]), .value = p->json };
        guarded |= !p->block;
    }
    k->sending = true;
    k->sent = n;
    coord_txn(k->o.coord,
              &(struct coord_txn){ .cmp = &cmp, .cmp_len = guarded, .chg = chg, .chg_len = n },
              on_sent, k);
    xfree(keys);
}

void keystore_settle(struct keystore *k)
{
    if (k->out.len)
        send_out(k);
    else if (k->raise)
        raise_head(k);
}
