/* SPDX-License-Identifier: Apache-2.0
 *
 * entry: one entry of the replication log, made, copied and checked.
 *
 * An entry is one allocation that several users share by reference: the log that writes it, the
 * senders, and the database that applies it. ENTRY_ROOM_APPLY bytes behind its data let it be
 * applied without a copy. The checksum of the data is computed once, when the entry is made; that
 * of the head each time the head is written, since index and term are set late and each file has a
 * seed of its own.
 */
#include "common/repl/log/entry.h"

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/kv/kv_impl.h"

enum { HEAD_SUMMED = 40 };

static struct repl_entry *entry_alloc(enum repl_kind kind, size_t len)
{
    struct repl_entry *e = xmalloc(sizeof(*e) + len + ENTRY_ROOM_APPLY);

    *e = (struct repl_entry){ .kind = kind, .len = len };
    atomic_init(&e->refs, 1);
    return e;
}

static uint64_t data_sum(enum repl_kind kind, struct str data)
{
    return hash64(data.len ? data.ptr : "", data.len, (uint64_t)kind);
}

struct repl_entry *entry_new(enum repl_kind kind, struct str data)
{
    struct repl_entry *e = entry_alloc(kind, data.len);

    CHECK(data.len <= REPL_BYTES_MAX);
    if (data.len)
        memcpy(e->data, data.ptr, data.len);
    e->sum = data_sum(kind, data);
    return e;
}

struct repl_entry *entry_ref(struct repl_entry *e)
{
    atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    return e;
}

void entry_unref(struct repl_entry *e)
{
    if (e && atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) == 1)
        xfree(e);
}

void entry_head_put(const struct repl_entry *e, uint64_t seed, char ret[ENTRY_HEAD])
{
    put_u32le(ret, ENTRY_MARK | (uint32_t)e->kind);
    put_u32le(ret + 4, (uint32_t)e->len);
    put_u64le(ret + 8, e->index);
    put_u64le(ret + 16, e->term);
    put_u64le(ret + 24, e->prev_term);
    put_u64le(ret + 32, e->sum);
    put_u64le(ret + HEAD_SUMMED, hash64(ret, HEAD_SUMMED, seed));
}

bool entry_head_read(const char *p, uint64_t seed, struct entry_head *ret)
{
    uint32_t mark = get_u32le(p);

    *ret = (struct entry_head){
        .kind = (enum repl_kind)(mark & 0xff),
        .len = get_u32le(p + 4),
        .index = get_u64le(p + 8),
        .term = get_u64le(p + 16),
        .prev_term = get_u64le(p + 24),
        .sum = get_u64le(p + 32),
    };
    return (mark & ~UINT32_C(0xff)) == ENTRY_MARK && ret->kind >= REPL_NOOP &&
           ret->kind < REPL_KINDS && ret->len <= REPL_BYTES_MAX && ret->index > 0 &&
           get_u64le(p + HEAD_SUMMED) == hash64(p, HEAD_SUMMED, seed);
}

int entry_read(struct rd *r, uint64_t seed, struct repl_entry **ret, struct err *e)
{
    struct entry_head h;
    struct str head, data;

    if (rd_left(r) < ENTRY_HEAD || !entry_head_read((const char *)r->p, seed, &h))
        return err_set(e, ERR_CORRUPT, "no entry of a log begins here, %zu bytes before the end",
                       rd_left(r));
    if (rd_left(r) < entry_bytes(h.len))
        return err_set(e, ERR_CORRUPT, "entry %" PRIu64 " has %" PRIu32 " bytes, %zu are there",
                       h.index, h.len, rd_left(r) - ENTRY_HEAD);
    CHECK(rd_bytes(r, ENTRY_HEAD, &head) && rd_bytes(r, h.len, &data) &&
          rd_skip(r, entry_bytes(h.len) - ENTRY_HEAD - h.len));
    if (data_sum(h.kind, data) != h.sum)
        return err_set(e, ERR_CORRUPT, "the checksum of entry %" PRIu64 " is wrong", h.index);
    if (!entry_check(h.kind, data))
        return err_set(e, ERR_CORRUPT, "entry %" PRIu64 " holds no operations of kind %d", h.index,
                       (int)h.kind);
    struct repl_entry *x = entry_alloc(h.kind, data.len);
    if (data.len)
        memcpy(x->data, data.ptr, data.len);
    x->sum = h.sum;
    x->index = h.index;
    x->term = h.term;
    x->prev_term = h.prev_term;
    *ret = x;
    return 0;
}

void entry_write(const struct repl_entry *e, struct buf *out)
{
    static const char zeros[8];
    char head[ENTRY_HEAD];

    entry_head_put(e, 0, head);
    buf_add(out, head, sizeof(head));
    buf_add(out, e->data, e->len);
    buf_add(out, zeros, entry_bytes(e->len) - ENTRY_HEAD - e->len);
}

/* ---- what the data of a kind look like ---- */

static bool skip_str(struct rd *r, size_t max)
{
    uint64_t n;

    return rd_varint(r, &n) && n <= max && n <= rd_left(r) && rd_skip(r, (size_t)n);
}

static bool batch_check(struct rd *r)
{
    uint8_t head;

    while (rd_u8(r, &head)) {
        unsigned op = head >> 4;

        if (op > KV_DEL_RANGE || (head & 15) >= KV_CFS || !skip_str(r, KV_KEY_BYTES_MAX))
            return false;
        if (op != KV_DEL && !skip_str(r, op == KV_PUT ? KV_BATCH_BYTES_MAX : KV_KEY_BYTES_MAX))
            return false;
    }
    return true;
}

bool entry_check(enum repl_kind kind, struct str data)
{
    struct rd r = rd_of(data);
    uint8_t cf;

    switch (kind) {
    case REPL_NOOP:
    case REPL_DIGEST:
        return data.len <= 64;
    case REPL_BATCH:
        return batch_check(&r);
    case REPL_DROP_FILES:
        return rd_u8(&r, &cf) && cf < KV_CFS && skip_str(&r, KV_KEY_BYTES_MAX + 64) &&
               skip_str(&r, KV_KEY_BYTES_MAX + 64) && rd_left(&r) == 0;
    case REPL_FLUSH:
        return rd_u8(&r, &cf) && cf < KV_CFS && rd_left(&r) == 0;
    case REPL_KINDS:
        break;
    }
    return false;
}
