/* SPDX-License-Identifier: Apache-2.0
 *
 * jfr_pools: the constants that events refer to by key.
 *
 *   checkpoint = size | type 1 | start | duration | delta | mask | n | n pools
 *   pool       = class | n | n (key, fields of the class)
 *
 * The header names the last checkpoint, `delta` leads from each to the one before it, 0 ends. Of a
 * key that is there twice the newest counts, which is met first. Only the classes that stacks and
 * states are made of are kept, as offsets: the contents of a constant are read when they are used.
 *
 * Hostile chains: honest checkpoints do not overlap, so together they have no more bytes than the
 * chunk; a cycle runs over that after one round, and nothing is read twice for long. Keys are
 * anything, so they are mixed with the seed of the push. A constant may be as long as the chunk and
 * be referred to by every few bytes of it: what is read for references is counted (read_left). In
 * honest recordings that is less than their own bytes.
 *
 * Format: JDK 11 to 25 and async-profiler at b583d82c2aa9 (proto/FORMATS.md, "JFR metadata").
 */
#include "distributor/formats/jfr/jfr_impl.h"

#define MAP_KEEP_SLOTS 65536 /* larger tables are given back before the next chunk */
#define HOPS_MAX       8     /* from one pool to the next, for one text */

struct reader {
    struct jfr *j;
    struct jfr_chunk *c;
    struct rd r;
    struct err *e;
};

static int bad(struct reader *m, const char *what)
{
    return err_set(m->e, ERR_INPUT, "constants: %s, at byte %td of the chunk", what,
                   m->r.p - m->c->base);
}

void jfr_pools_reset(struct jfr_chunk *c)
{
    for (size_t i = 0; i < c->pools_len; i++) {
        struct map_u64 *m = &c->pools.ptr[i].keys;
        if (m->mask >= MAP_KEEP_SLOTS)
            map_u64_deinit(m);
        else
            map_u64_reset(m);
    }
    c->pools_len = 0;
    c->entries.len = 0;
}

static struct jfr_pool *pool_of(struct jfr_chunk *c, struct jfr_class *class)
{
    if (class->pool == JFR_NONE) {
        struct jfr_pool none = { 0 };
        if (c->pools_len == c->pools.len)
            vec_push(&c->pools, none);
        class->pool = (uint32_t)c->pools_len++;
    }
    return &c->pools.ptr[class->pool];
}

static int compile_constant(struct reader *m, uint32_t class)
{
    static const struct {
        enum jfr_kind kind;
        struct jfr_want wants[2];
    } rows[] = {
        { JFR_SYMBOL, { { "string", JFR_SLOT_A } } },
        { JFR_TRACE, { { "frames", JFR_SLOT_A } } },
        { JFR_FRAME, { { "method", JFR_SLOT_A }, { "lineNumber", JFR_SLOT_B } } },
        { JFR_METHOD, { { "type", JFR_SLOT_A }, { "name", JFR_SLOT_B } } },
        { JFR_CLASS, { { "name", JFR_SLOT_A } } },
        { JFR_STATE, { { "name", JFR_SLOT_A } } },
    };
    enum jfr_kind kind = m->c->classes.ptr[class].kind;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].kind == kind)
            return jfr_compile(m->j, class, rows[i].wants, 1 + (rows[i].wants[1].field != NULL),
                               m->e);
    return jfr_compile(m->j, class, NULL, 0, m->e);
}

static bool kept(enum jfr_kind kind)
{
    return kind == JFR_STRING || kind >= JFR_SYMBOL;
}

static int read_pool(struct reader *m)
{
    struct jfr_chunk *c = m->c;
    uint64_t id, n, key, slots[JFR_SLOTS];
    struct jfr_pool *pool = NULL;

    if (!jfr_varint(&m->r, &id) || !jfr_varint(&m->r, &n) || n > rd_left(&m->r))
        return bad(m, "a pool of more entries than bytes");
    uint32_t at = jfr_class_find(m->j, id);
    if (at == JFR_NONE)
        return bad(m, "a pool of a class that is not there");
    if (compile_constant(m, at))
        return m->e->code;
    struct jfr_class *class = &c->classes.ptr[at];
    const struct jfr_prog *prog = &c->progs.ptr[class->prog];
    if (kept(class->kind)) {
        /* As much as it takes in the worst case: the table may just have doubled. */
        size_t each = sizeof(struct jfr_entry) * 2 + (sizeof(uint64_t) + sizeof(uint32_t)) * 3;
        if (!jfr_charge(m->j, (size_t)n * each + sizeof(*pool), m->e))
            return m->e->code;
        pool = pool_of(c, class);
        map_u64_reserve(&pool->keys, pool->keys.len + (size_t)n);
        vec_reserve(&c->entries, c->entries.len + (size_t)n);
    }
    for (uint64_t i = 0; i < n; i++) {
        if (!jfr_varint(&m->r, &key))
            return bad(m, "a pool that is cut");
        struct jfr_entry entry = { (uint32_t)(m->r.p - c->base), JFR_NONE, JFR_NONE, 0 };
        if (!jfr_run(c->ops.ptr + prog->from, prog->len, c->base, &m->r, slots))
            return bad(m, "a constant that is cut or malformed");
        if (pool &&
            map_u64_put(&pool->keys, key ^ m->j->seed, (uint32_t)c->entries.len) == MAP_U64_EMPTY)
            vec_push(&c->entries, entry);
    }
    return 0;
}

/* The checkpoint at `at`; *ret_delta leads to the one before. */
static int read_checkpoint(struct reader *m, uint64_t at, uint64_t *room, int64_t *ret_delta)
{
    struct jfr_chunk *c = m->c;
    uint64_t size, type, skipped, delta, pools;
    uint8_t mask;

    m->r = (struct rd){ c->base + at, c->base + c->size };
    if (!jfr_varint(&m->r, &size) || size == 0 || size > c->size - at)
        return bad(m, "a checkpoint of an impossible size");
    if (size > *room)
        return bad(m, "checkpoints that overlap or go in a circle");
    *room -= size;
    m->r.end = c->base + at + size;
    if (!jfr_varint(&m->r, &type) || type != 1)
        return bad(m, "no checkpoint where one should be");
    if (!jfr_varint(&m->r, &skipped) || !jfr_varint(&m->r, &skipped) ||
        !jfr_varint(&m->r, &delta) || !rd_u8(&m->r, &mask) || !jfr_varint(&m->r, &pools) ||
        pools > rd_left(&m->r))
        return bad(m, "a checkpoint of more pools than bytes");
    for (; pools > 0; pools--)
        if (read_pool(m))
            return m->e->code;
    *ret_delta = (int64_t)delta;
    return 0;
}

int jfr_pools_read(struct jfr *j, struct err *e)
{
    struct jfr_chunk *c = &j->chunk;
    struct reader m = { .j = j, .c = c, .e = e };
    uint64_t at = c->checkpoint, room = c->size;
    int64_t delta = 0;

    do {
        at += (uint64_t)delta;
        if (at < JFR_HEADER_BYTES || at >= c->size)
            return err_set(e, ERR_INPUT, "constants: a checkpoint outside of the chunk");
        if (read_checkpoint(&m, at, &room, &delta))
            return e->code;
    } while (delta != 0);
    return 0;
}

struct jfr_entry *jfr_pool_find(const struct jfr *j, uint32_t class, uint64_t key)
{
    const struct jfr_chunk *c = &j->chunk;
    uint32_t pool = c->classes.ptr[class].pool;

    if (pool == JFR_NONE)
        return NULL;
    uint32_t at = map_u64_get(&c->pools.ptr[pool].keys, key ^ j->seed);
    return at == MAP_U64_EMPTY ? NULL : &c->entries.ptr[at];
}

static void count_read(struct jfr *j, size_t n)
{
    j->read_left -= MIN(n, j->read_left);
}

bool jfr_pool_load(struct jfr *j, uint32_t class, const struct jfr_entry *entry,
                   uint64_t slots[JFR_SLOTS])
{
    const struct jfr_chunk *c = &j->chunk;
    struct rd r = { c->base + entry->offset, c->base + c->size };
    const struct jfr_prog *prog = &c->progs.ptr[c->classes.ptr[class].prog];

    memset(slots, 0, JFR_SLOTS * sizeof(*slots));
    if (j->read_left == 0)
        return false;
    bool ok = jfr_run(c->ops.ptr + prog->from, prog->len, c->base, &r, slots);
    count_read(j, (size_t)(r.p - c->base) - entry->offset);
    return ok;
}

void jfr_text(struct jfr *j, const struct jfr_bind *bind, uint64_t value, struct buf *out)
{
    const struct jfr_chunk *c = &j->chunk;
    uint64_t slots[JFR_SLOTS];
    struct jfr_string s;

    for (int hops = 0; hops < HOPS_MAX && bind->here && !bind->array; hops++) {
        uint32_t class = bind->class;
        if (!bind->pool) {
            struct rd r = { c->base + value, c->base + c->size };
            if (c->classes.ptr[class].kind != JFR_STRING || !jfr_string_read(&r, &s))
                return;
            jfr_string_append(&s, out);
            if (s.encoding != JFR_KEY)
                return;
            value = s.key;
        }
        const struct jfr_entry *entry = jfr_pool_find(j, class, value);
        if (!entry || !jfr_pool_load(j, class, entry, slots))
            return;
        bind = &c->progs.ptr[c->classes.ptr[class].prog].bind[JFR_SLOT_A];
        value = slots[JFR_SLOT_A];
    }
}
