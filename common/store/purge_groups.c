/* SPDX-License-Identifier: Apache-2.0
 *
 * purge_groups: roll-ups of services that lose some of their series.
 *
 * A row of a group holds what all its members did; of the deleted ones nothing may stay in it. What
 * would be left could be found by taking the members' rows away, but not everywhere: below floor[0]
 * the minutes of groups are older than any leaf of a member, and a node over the edge of a grouping
 * rule has its members in two groups. So the service's roll-ups begin anew: `since` of its
 * dimensions moves behind all data there are, the rows before it go, and queries of that time read
 * members, as they do for services from before there were roll-ups. Every answer is exact, none is
 * partial; the price is paid by long queries over the past of a service that had a label set
 * deleted, never by whole-service deletes, and never by what comes after.
 *
 * The service's row is changed by staging, too, so this runs quiet.
 */
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/group.h"
#include "common/store/names.h"
#include "common/store/purge.h"
#include "common/store/store_impl.h"

/* Column families that groups have rows in; in `tl` they are told by a flag of the level. */
static const struct purge_cf OF_GROUPS[] = { { KV_RU, 1 }, { KV_FN, 1 }, { KV_TL, 1 } };

/* The first slot behind all data of the service, at least behind now. */
static int behind_all(struct purge_step *x, uint32_t scope, uint32_t *ret, struct err *e)
{
    uint32_t day = slot_of_ms(store_now(x->s)) / DAY_SLOTS;
    struct key from, to;
    struct days d;
    int rc = 0;

    key_active(&from, x->t->tenant, scope, 0);
    from.len -= 2;
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(x->s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        rc = days_read(kv_iter_value(it), &d, e);
        if (!rc)
            day = MAX(day, d.last);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    *ret = (day + 1) * DAY_SLOTS;
    return rc;
}

static int move_since(struct purge_step *x, uint32_t scope, struct err *e)
{
    struct group_service g;
    struct buf row;
    uint32_t since;
    struct key k;

    if (behind_all(x, scope, &since, e) ||
        group_service_get(x->s->kv, NULL, x->t->tenant, scope, &g, e))
        return e->code;
    bool any = false;
    for (size_t i = 0; i < GROUP_DIMS; i++) {
        if (g.since[i] == GROUP_NEVER)
            continue;
        g.since[i] = MAX(g.since[i], since);
        any = true;
    }
    if (!any)
        return 0;
    buf_init(&row, KIB);
    group_service_put(&g, &row);
    key_rule(&k, x->t->tenant, scope);
    kv_batch_put(x->b, KV_META, key_str(&k), buf_str(&row));
    buf_deinit(&row);
    groups_drop(x->s->groups);
    return 0;
}

static int drop_rows(struct purge_step *x, uint32_t scope, const struct purge_cf *cf, struct err *e)
{
    struct purge_span span = { .cf = cf->cf, .head = cf->head };
    int more;

    while ((more = purge_next_span(x->s->kv, NULL, x->t->tenant, scope, &span, e)) > 0) {
        if (cf->cf != KV_TL || span.lead & KEY_TL_GROUP) {
            if (purge_drop_span(x, scope, &span, e))
                return e->code;
        }
        purge_span_step(&span);
    }
    return more < 0 ? e->code : 0;
}

static bool in_part(const struct masks *m, uint32_t scope)
{
    vec_for (i, &m->at)
        if (m->at.ptr[i].scope == scope && m->at.ptr[i].series_len)
            return true;
    return false;
}

int purge_groups(struct purge_step *x, bool *ret_done, struct err *e)
{
    const struct masks *m = &x->t->masks;
    size_t i = x->t->cursor.len == 4 ? get_u32be(x->t->cursor.ptr) : 0;
    char at[4];

    while (i < m->at.len && !in_part(m, m->at.ptr[i].scope))
        i++;
    if (i < m->at.len) {
        uint32_t scope = m->at.ptr[i].scope;
        x->wants_quiet = !store_quiet(x->s);
        if (x->wants_quiet)
            return 0;
        if (move_since(x, scope, e))
            return e->code;
        for (size_t c = 0; c < ARRAY_LEN(OF_GROUPS); c++)
            if (drop_rows(x, scope, &OF_GROUPS[c], e))
                return e->code;
        while (i < m->at.len && m->at.ptr[i].scope == scope)
            i++;
        x->full = true;
    }
    put_u32be(at, (uint32_t)i);
    buf_reset(&x->t->cursor);
    buf_add(&x->t->cursor, at, sizeof(at));
    *ret_done = i >= m->at.len;
    return 0;
}
