/* SPDX-License-Identifier: Apache-2.0
 *
 * floors: reads, writes and remembers the floors of a service and type (floors.h).
 *
 * A floor only rises. floors_read refuses a row that breaks the order between levels, and
 * floors_align makes new floors multiples of the next coarser node: otherwise a coarse node would
 * be the truth for a part of its time and a fine one for the rest, and sums would count twice or
 * not at all. The shard's thread keeps what it loaded; queries read from their snapshot.
 */
#include "common/store/state/floors.h"

#include "common/store/state/part_cache.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

/* What at[level] is a multiple of. */
static uint32_t step(uint32_t level)
{
    return LEVELS[level == 0 ? 2 : MIN(level + 1, KEY_LEVELS - 1)].node;
}

static bool sound(const struct floors *f)
{
    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        if (f->at[l] % step(l) || (l && f->at[l] > f->at[l - 1]))
            return false;
    return true;
}

void floors_align(struct floors *f)
{
    for (uint32_t l = 0; l < KEY_LEVELS; l++) {
        if (l)
            f->at[l] = MIN(f->at[l], f->at[l - 1]);
        f->at[l] -= f->at[l] % step(l);
    }
}

int floors_read(struct str row, struct floors *ret, struct err *e)
{
    if (row.len != FLOORS_ROW_LEN)
        return err_set(e, ERR_CORRUPT, "floors of a service have %zu bytes, not %d", row.len,
                       FLOORS_ROW_LEN);
    ret->end = 0;
    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        ret->at[l] = get_u32be(row.ptr + (size_t)4 * l);
    return sound(ret)
               ? 0
               : err_set(e, ERR_CORRUPT, "floors of a service are not aligned or not sorted");
}

int floors_load(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                struct floors *ret, struct err *e)
{
    char bytes[FLOORS_ROW_LEN + 1];
    struct buf row = { .ptr = bytes, .cap = sizeof(bytes), .max = sizeof(bytes) };
    struct key k;

    *ret = (struct floors){ 0 };
    key_floors(&k, m->tenant, m->scope, m->ptype);
    int rc = kv_get(kv, snap, KV_META, key_str(&k), &row, e);
    if (rc == ERR_NOT_FOUND)
        return 0;
    return rc ? rc : floors_read(buf_str(&row), ret, e);
}

int floors_end_load(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                    uint32_t *ret, struct err *e)
{
    char bytes[sizeof(uint32_t) + 1];
    struct buf row = { .ptr = bytes, .cap = sizeof(bytes), .max = sizeof(bytes) };
    struct key k;

    *ret = 0;
    key_floors_end(&k, m->tenant, m->scope, m->ptype);
    int rc = kv_get(kv, snap, KV_META, key_str(&k), &row, e);
    if (rc == ERR_NOT_FOUND)
        return 0;
    if (!rc && !key_u32_read(buf_str(&row), ret))
        rc = err_set(e, ERR_CORRUPT, "the end of retention of a service has %zu bytes", row.len);
    return rc;
}

void floors_end_put(struct kv_batch *b, const struct member *m, uint32_t end)
{
    struct key k, v;

    key_floors_end(&k, m->tenant, m->scope, m->ptype);
    key_u32(&v, end);
    kv_batch_put(b, KV_META, key_str(&k), key_str(&v));
}

/* Down to a node that is there as a whole. Floors may have moved since the row was written. */
void floors_set_end(struct floors *f, uint32_t end)
{
    uint32_t base = floors_base(f, false, end);

    f->end = base == FLOORS_GONE ? 0 : node_of(base, end);
}

int floors_load_read(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                     struct floors *ret, struct err *e)
{
    uint32_t end;
    int rc = floors_load(kv, snap, m, ret, e);

    if (!rc)
        rc = floors_end_load(kv, snap, m, &end, e);
    if (rc)
        return rc;
    floors_set_end(ret, end);
    return 0;
}

void floors_put(struct kv_batch *b, const struct member *m, const struct floors *f)
{
    char row[FLOORS_ROW_LEN];
    struct key k;

    CHECK(sound(f));
    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        put_u32be(row + (size_t)4 * l, f->at[l]);
    key_floors(&k, m->tenant, m->scope, m->ptype);
    kv_batch_put(b, KV_META, key_str(&k), str_n(row, sizeof(row)));
}

int floors_get(struct store *s, const struct member *m, struct floors *ret, struct err *e)
{
    struct part *p = part_cache_get(s->parts, m);

    if (!p->floors_known) {
        int rc = floors_load(s->kv, NULL, m, &p->floors, e);
        if (rc)
            return rc;
        p->floors_known = true;
    }
    *ret = p->floors;
    return 0;
}

void floors_know(struct store *s, const struct member *m, const struct floors *f)
{
    struct part *p = part_cache_get(s->parts, m);

    p->floors = *f;
    p->floors_known = true;
}

void floors_forget(struct store *s, const struct member *m)
{
    part_cache_get(s->parts, m)->floors_known = false;
}

uint32_t floors_base(const struct floors *f, bool group, uint32_t t)
{
    uint32_t level = 0;

    while (level < KEY_LEVELS && t < f->at[level])
        level = level_above(group, level);
    return MIN(level, FLOORS_GONE);
}
