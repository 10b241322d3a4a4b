/* SPDX-License-Identifier: Apache-2.0
 *
 * dirty: marks.
 *
 * Marks of open nodes have entry 0 whatever is sealed, so they are put blindly, or not at all when
 * the part remembers them. Marks of nodes that were due already carry the entry and keep the slot
 * at which the first one came, which is read unless remembered. Engine time never goes back: an
 * entry that finds a node open is older than every entry that finds it due, so 0 never comes after
 * another value as long as the mark stands.
 *
 * Late data of a node that was built gather a little before it is built again: build_due.c adds a
 * pace to `since`. A node that was never built has nothing to be built again: data of the past that
 * are imported, or come after an outage, must not wait longer than those of today. So its mark gets
 * a `since` that lies back by the pace, and it is due after the delay of any node.
 */
#include "common/store/state/dirty.h"

#include "common/model/slot.h"
#include "common/store/state/due.h"
#include "common/store/state/floors.h"
#include "common/store/state/part_cache.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

#define VERSION    1
#define ENTRY_BITS 48
#define ENTRY_MASK ((UINT64_C(1) << ENTRY_BITS) - 1)

/* ---- rows ---- */

void dirty_row_put(const struct dirty_mark *m, char out[DIRTY_ROW_LEN])
{
    out[0] = VERSION;
    put_u64be(out + 1, m->entry);
    put_u32be(out + 9, m->since);
}

int dirty_row_read(struct str row, struct dirty_mark *ret, struct err *e)
{
    if (row.len != DIRTY_ROW_LEN || row.ptr[0] != VERSION)
        return err_set(e, ERR_CORRUPT, "mark of a node of %zu bytes is not one of version %d",
                       row.len, VERSION);
    *ret = (struct dirty_mark){ get_u64be(row.ptr + 1), get_u32be(row.ptr + 9) };
    return 0;
}

int dirty_get(const struct kv_view *v, const struct member *m, uint32_t level, uint32_t t,
              struct dirty_mark *ret, struct err *e)
{
    char bytes[DIRTY_ROW_LEN + 1];
    struct buf row = { .ptr = bytes, .cap = sizeof(bytes), .max = sizeof(bytes) };
    struct key k;

    key_dirty(&k, m, level, t);
    int rc = kv_get(v->kv, v->snap, KV_META, key_str(&k), &row, e);
    return rc ? rc : dirty_row_read(buf_str(&row), ret, e);
}

/* ---- marking ---- */

uint64_t dirty_entry(struct store *s)
{
    s->dirty_steps++;
    return (atomic_load(&s->applied) & ENTRY_MASK) | s->dirty_steps << ENTRY_BITS;
}

#define GROUPS_LOOKED_AT 64

/* Has a group a row of this node? Each node above level 1 that was built has one, if any row at all
 * is in it; but for times before its service had groups, which count as never built. With more
 * groups than are looked at it counts as built. */
static int was_built(struct store *s, const struct member *m, uint32_t level, uint32_t t, bool *ret,
                     struct err *e)
{
    struct member group = { m->tenant, m->scope, m->ptype, 0 }, got;
    struct key from, to;
    uint32_t n = 0, at_level, at, entry;

    key_ru(&from, level, &group, t);
    to = from;
    to.len = KEY_MEMBER_HEAD - sizeof(uint64_t);
    key_end(&to);
    *ret = false;
    struct kv_iter *it = kv_iter_new(s->kv, NULL, KV_RU, key_str(&from), key_str(&to));
    while (kv_iter_valid(it) && !*ret) {
        if (!key_ru_read(kv_iter_key(it), &at_level, &got, &at, &entry))
            break; /* the build will say so */
        *ret = at == t || ++n > GROUPS_LOOKED_AT;
        group.series = got.series + (at > t);
        key_ru(&from, level, &group, t);
        if (!*ret)
            kv_iter_seek(it, key_str(&from));
    }
    int rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

/* When the node, due already, became dirty, as far as its pace goes. */
static int since_of(struct store *s, const struct dirty_change *c, uint32_t level, bool is_open,
                    uint32_t *ret, struct err *e)
{
    int64_t prompt = c->engine_ms + s->o.build_delay_ms - build_pace_ms(s, level);
    bool built = false;

    *ret = slot_of_ms(c->engine_ms);
    if (!is_open && was_built(s, &c->m, level, node_of(level, c->t), &built, e))
        return e->code;
    if (!built)
        *ret = MIN(*ret, MAX(slot_of_ms(prompt), 1));
    return 0;
}

static int mark_level(struct store *s, struct kv_batch *b, const struct dirty_change *c,
                      uint32_t level, struct err *e)
{
    uint32_t t = node_of(level, c->t);
    struct part_mark *known = &part_cache_get(s->parts, &c->m)->marks[level];
    bool stands = known->known && known->t == t, due = dirty_due_ms(s, level, t) <= c->engine_ms;
    struct dirty_mark new = { 0 }, old = stands ? known->mark : (struct dirty_mark){ 0 };
    char row[DIRTY_ROW_LEN];
    struct key k;

    if (stands && (!due || old.entry == c->entry))
        return 0;
    if (due) {
        int rc = stands ? 0 : dirty_get(&(struct kv_view){ .kv = s->kv }, &c->m, level, t, &old, e);
        if (rc && rc != ERR_NOT_FOUND)
            return rc;
        new = (struct dirty_mark){ c->entry, old.since };
        /* A mark of entry 0 is older than its due time: it waits for its first build. */
        if (!old.entry && since_of(s, c, level, !rc, &new.since, e))
            return e->code;
    }
    dirty_row_put(&new, row);
    key_dirty(&k, &c->m, level, t);
    kv_batch_put(b, KV_META, key_str(&k), str_n(row, sizeof(row)));
    *known = (struct part_mark){ true, t, new };
    build_schedule(s, level, build_due_ms(s, level, t, &new));
    return 0;
}

int dirty_mark(struct store *s, struct kv_batch *b, const struct dirty_change *c, struct err *e)
{
    for (uint32_t level = MAX(c->base + 1, DIRTY_FIRST); level < KEY_LEVELS; level++) {
        int rc = mark_level(s, b, c, level, e);
        if (rc)
            return rc;
    }
    return 0;
}

void dirty_clean(struct store *s, struct kv_batch *b, const struct member *m, uint32_t level,
                 uint32_t t)
{
    struct part_mark *known = &part_cache_get(s->parts, m)->marks[level];
    struct key k;

    key_dirty(&k, m, level, t);
    kv_batch_del(b, KV_META, key_str(&k));
    if (known->t == t)
        known->known = false;
}

/* ---- sets ---- */

/* Adds marks of the level before slot `to`, from where `it` is. */
static int load_level(struct dirty_set *d, struct kv_iter *it, uint32_t level, uint32_t to,
                      struct err *e)
{
    struct member at;
    uint32_t row_level, t;

    for (; kv_iter_valid(it); kv_iter_next(it)) {
        if (!key_dirty_read(kv_iter_key(it), &at, &row_level, &t))
            return err_set(e, ERR_CORRUPT, "key of a mark has %zu bytes", kv_iter_key(it).len);
        if (row_level != level || t >= to)
            return 0;
        vec_push(&d->at[level], t);
    }
    return kv_iter_status(it, e);
}

int dirty_load(struct dirty_set *d, const struct kv_view *v, const struct member *m, uint32_t from,
               uint32_t to, struct err *e)
{
    struct key first, end, k;
    int rc = 0;

    for (uint32_t level = 0; level < KEY_LEVELS; level++)
        d->at[level].len = 0;
    key_dirty(&first, m, DIRTY_FIRST, 0);
    key_dirty(&end, m, KEY_LEVELS - 1, UINT32_MAX);
    key_end(&end);
    struct kv_iter *it = kv_iter_new(v->kv, v->snap, KV_META, key_str(&first), key_str(&end));
    for (uint32_t level = DIRTY_FIRST; !rc && level < KEY_LEVELS; level++) {
        key_dirty(&k, m, level, from - from % LEVELS[level].node);
        kv_iter_seek(it, key_str(&k));
        rc = load_level(d, it, level, to, e);
    }
    kv_iter_free(it);
    return rc;
}

/* Index of the first mark of the level at or behind t. */
static size_t find(const struct dirty_set *d, uint32_t level, uint32_t t)
{
    return vec_lower_u32(d->at[level].ptr, d->at[level].len, t);
}

bool dirty_any(const struct dirty_set *d, uint32_t level, uint32_t from, uint32_t to)
{
    size_t i = find(d, level, from);

    return i < d->at[level].len && d->at[level].ptr[i] < to;
}

bool dirty_has(const struct dirty_set *d, uint32_t level, uint32_t t)
{
    return dirty_any(d, level, t, t + 1);
}

void dirty_deinit(struct dirty_set *d)
{
    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        vec_free(&d->at[l]);
}
