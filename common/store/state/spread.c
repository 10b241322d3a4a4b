/* SPDX-License-Identifier: Apache-2.0
 *
 * spread: what the shard thread knows of a service and type stands in activity->extra, so a push of
 * the usual length costs a comparison:
 *
 *   bits 0..7    1 + slots of the last run, 1: there is no row, 0: not read yet
 *   bits 8..15   another length that pushes had, one after the other
 *   bits 16..31  how many of them
 *
 * It is lost with the cache of names: the count of such pushes then begins again.
 */
#include "common/store/state/spread.h"

#include "common/base/rd.h"
#include "common/store/catalog/names.h"

#define VERSION 1

/* ---- the row ---- */

static void key_spread(struct key *k, const struct member *m)
{
    key_floors(k, m->tenant, m->scope, m->ptype);
    k->b[0] = KEY_SPREAD;
}

int spread_read(struct str row, struct spread *ret, struct err *e)
{
    struct rd r = rd_of(row);
    uint8_t version = 0, slots = 0;
    uint32_t since = 0;
    struct spread s = { .len = 0 };
    bool ok = rd_u8(&r, &version) && version == VERSION && rd_left(&r);

    while (ok && rd_left(&r)) {
        ok = s.len < SPREAD_RUNS_MAX && rd_u32be(&r, &since) && rd_u8(&r, &slots) && slots >= 1 &&
             slots <= SPREAD_SLOTS_MAX && (s.len ? since > s.at[s.len - 1].since : !since);
        if (ok)
            s.at[s.len++] = (struct spread_run){ since, slots };
    }
    if (!ok)
        return err_set(e, ERR_CORRUPT, "lengths of pushes: %zu bytes are not a row of version %d",
                       row.len, VERSION);
    *ret = s;
    return 0;
}

int spread_load(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                struct spread *ret, struct err *e)
{
    char bytes[2 + 5 * SPREAD_RUNS_MAX];
    struct buf row = { .ptr = bytes, .cap = sizeof(bytes), .max = sizeof(bytes) };
    struct key k;

    ret->len = 0;
    key_spread(&k, m);
    int rc = kv_get(kv, snap, KV_META, key_str(&k), &row, e);
    if (rc == ERR_NOT_FOUND)
        return 0;
    return rc ? rc : spread_read(buf_str(&row), ret, e);
}

static void put_row(struct kv_batch *b, const struct member *m, const struct spread *s)
{
    char row[1 + 5 * SPREAD_RUNS_MAX] = { VERSION };
    struct key k;
    size_t n = 1;

    for (uint32_t i = 0; i < s->len; i++, n += 5) {
        put_u32be(row + n, s->at[i].since);
        row[n + 4] = (char)s->at[i].slots;
    }
    key_spread(&k, m);
    kv_batch_put(b, KV_META, key_str(&k), str_n(row, n));
}

uint32_t spread_at(const struct spread *s, uint32_t t)
{
    uint32_t slots = 1;

    for (uint32_t i = 0; i < s->len && s->at[i].since <= t; i++)
        slots = s->at[i].slots;
    return slots;
}

bool spread_add(struct spread *s, uint32_t since, uint32_t slots)
{
    CHECK(slots >= 1 && slots <= SPREAD_SLOTS_MAX);
    if (!s->len) {
        s->at[s->len++] = (struct spread_run){ 0, slots };
        return true;
    }
    if (since <= s->at[s->len - 1].since || s->at[s->len - 1].slots == slots)
        return false;
    if (s->len == SPREAD_RUNS_MAX) {
        memmove(s->at, s->at + 1, --s->len * sizeof(*s->at));
        s->at[0].since = 0;
    }
    s->at[s->len++] = (struct spread_run){ since, slots };
    return true;
}

/* ---- pushes ---- */

static uint32_t last_of(uint32_t extra)
{
    return (extra & 0xff) - 1;
}

static uint32_t streak_of(uint32_t extra, uint32_t slots)
{
    return (extra >> 8 & 0xff) == slots ? extra >> 16 : 0;
}

int spread_plan(struct kv *kv, struct known_name *activity, struct spread_push *p, struct err *e)
{
    p->row.len = 0;
    p->slots = MIN(p->slots, SPREAD_SLOTS_MAX);
    if (!p->slots || (activity->extra && last_of(activity->extra) == p->slots))
        return 0;
    if (activity->extra && last_of(activity->extra) &&
        streak_of(activity->extra, p->slots) + 1 < SPREAD_STREAK)
        return 0;
    int rc = spread_load(kv, NULL, &p->m, &p->row, e);
    if (rc)
        return rc;
    if (!activity->extra)
        activity->extra = 1 + (p->row.len ? p->row.at[p->row.len - 1].slots : 0);
    uint32_t last = last_of(activity->extra);
    if (last == p->slots || (last && streak_of(activity->extra, p->slots) + 1 < SPREAD_STREAK) ||
        !spread_add(&p->row, p->slot, p->slots))
        p->row.len = 0;
    return 0;
}

void spread_note(struct known_name *activity, const struct spread_push *p, uint64_t seq,
                 struct kv_batch *b)
{
    uint32_t last;

    if (!p->slots || !activity->extra)
        return;
    last = last_of(activity->extra);
    if (last == p->slots) { /* unchanged; also for another series of the request that wrote it */
        activity->extra = 1 + last;
    } else if (p->row.len) {
        put_row(b, &p->m, &p->row);
        activity->extra = 1 + p->slots;
        activity->seq = seq; /* stays in memory until it is on disk */
    } else {
        uint32_t n = MIN(streak_of(activity->extra, p->slots) + 1, SPREAD_STREAK);
        activity->extra = (1 + last) | p->slots << 8 | n << 16;
    }
}
