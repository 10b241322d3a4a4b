/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_space: adds up the space reports of all shards of this process, and packs the reply.
 *
 * The same owner may appear in several shards: equal rows are united at the end. A shard with more
 * than OWNERS_MAX owners is ERR_LIMIT. It runs in the queue of rpc_read.c, on a pool thread, with
 * one view of a store at a time. The forecast of the volume is sent only if all shards have one.
 */
#include "ingester/read/rpc_space.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/vec.h"
#include "common/store/check/space.h"
#include "common/store/retain/forecast.h"
#include "ingester/base/unpack.h"
#include "proto/space.pb-c.h"

#define OWNERS_MAX 100000

typedef VEC(struct space_row) space_rows;

int space_decode(struct str payload, struct arena *a, struct read_msg *ret, struct err *e)
{
    ProtobufCAllocator allocator = unpack_allocator(a);
    const Embertree__SpaceRequest *in = embertree__space_request__unpack(
        &allocator, payload.len, (const uint8_t *)(const void *)payload.ptr);

    if (!in)
        return unpack_failed("SpaceRequest", payload, a, e);
    ret->detail = !in->tenants;
    return read_take_head(&(struct read_head){ in->shards, in->n_shards, .tenant = in->tenant },
                          ret, e);
}

static Embertree__SpaceForecast *pack_forecast(const struct forecast_in *in, struct arena *a)
{
    Embertree__SpaceForecast *m = ARENA_NEW(a, Embertree__SpaceForecast);
    Embertree__SpaceForecastLevel *levels =
        ARENA_ARRAY(a, Embertree__SpaceForecastLevel, KEY_LEVELS);
    Embertree__SpaceForecastDay *days = ARENA_ARRAY(a, Embertree__SpaceForecastDay, FORECAST_DAYS);
    Embertree__SpaceForecastLevel **at =
        ARENA_ARRAY(a, Embertree__SpaceForecastLevel *, KEY_LEVELS);
    Embertree__SpaceForecastDay **day_at =
        ARENA_ARRAY(a, Embertree__SpaceForecastDay *, FORECAST_DAYS);

    if (!m || !levels || !days || !at || !day_at)
        return NULL;
    embertree__space_forecast__init(m);
    m->bytes = in->bytes;
    m->levels = at;
    m->days = day_at;
    for (; m->n_levels < KEY_LEVELS; m->n_levels++) {
        Embertree__SpaceForecastLevel *l = at[m->n_levels] = &levels[m->n_levels];

        embertree__space_forecast_level__init(l);
        l->bytes = in->levels[m->n_levels].bytes;
        l->span_ms = in->levels[m->n_levels].span_ms;
        l->keep_ms = in->levels[m->n_levels].keep_ms;
    }
    for (; m->n_days < in->history.len; m->n_days++) {
        Embertree__SpaceForecastDay *d = day_at[m->n_days] = &days[m->n_days];

        embertree__space_forecast_day__init(d);
        d->day = in->history.at[m->n_days].day;
        d->bytes = in->history.at[m->n_days].bytes;
    }
    return m;
}

/* What becomes of the volume, if all shards know. */
static int put_forecast(const struct forecast_in *in, struct arena *a, Embertree__SpaceReply *r,
                        struct err *e)
{
    struct forecast f;

    forecast_make(in, r->free_bytes > r->reserve_bytes ? r->free_bytes - r->reserve_bytes : 0, &f);
    r->forecast = true;
    r->growth_per_day = f.growth_per_day;
    r->freed_per_day = f.freed_per_day;
    r->settles_bytes = f.settles_bytes;
    r->days_left = f.days_left;
    r->forecast_in = pack_forecast(in, a);
    return r->forecast_in
               ? 0
               : err_set(e, ERR_LIMIT, "the space report needs over %zu bytes", arena_limit(a));
}

/* Of all shards. */
struct totals {
    space_rows rows;
    struct forecast_in forecast;
    uint32_t forecasts;           /* shards that have one */
    Embertree__SpaceReply *reply; /* borrowed; its sums */
};

static int read_shard(struct store *s, const struct read_msg *m, const struct read_source *src,
                      struct arena *a, struct totals *t, struct err *e)
{
    Embertree__SpaceReply *r = t->reply;
    struct space_opts o = { .owners_max = OWNERS_MAX,
                            .cancel = src->cancel,
                            .tenants = !m->detail };
    struct store_view *v = store_view_get(s);
    struct space sp;
    struct forecast_in in;
    int rc = store_space(v, &o, a, &sp, e);

    if (m->detail && store_forecast(v, &in)) {
        forecast_unite(&t->forecast, &in);
        t->forecasts++;
    }
    store_view_put(v);
    if (rc)
        return rc;
    for (size_t i = 0; i < sp.len; i++)
        if (!m->query.tenant.len || str_eq(sp.rows[i].tenant, m->query.tenant))
            vec_push(&t->rows, sp.rows[i]);
    r->shards++;
    if (m->query.tenant.len)
        return 0; /* the sums cover other tenants, too */
    r->tables_bytes += sp.tables_bytes;
    r->obsolete_bytes += sp.obsolete_bytes;
    r->log_bytes += sp.log_bytes;
    r->other_bytes += sp.other_bytes;
    r->memtable_bytes += sp.memtable_bytes;
    return 0;
}

static int pack(Embertree__SpaceReply *r, const space_rows *rows, struct arena *a, struct buf *out,
                struct err *e)
{
    Embertree__SpaceRow *all = ARENA_ARRAY(a, Embertree__SpaceRow, rows->len + 1);

    r->rows = ARENA_ARRAY(a, Embertree__SpaceRow *, rows->len + 1);
    if (!all || !r->rows)
        return err_set(e, ERR_LIMIT, "%zu rows of the space report are too many", rows->len);
    r->n_rows = rows->len;
    vec_for (i, rows) {
        const struct space_row *row = &rows->ptr[i];

        embertree__space_row__init(&all[i]);
        all[i].tenant = pack_str(row->tenant);
        all[i].service = pack_str(row->service);
        all[i].kind = row->kind;
        all[i].level = row->level == SPACE_NO_LEVEL ? 0 : row->level + 1;
        all[i].bytes = row->bytes;
        all[i].far_bytes = row->far_bytes;
        r->rows[i] = &all[i];
    }
    char *p = buf_room(out, embertree__space_reply__get_packed_size(r));
    if (!p)
        return err_set(e, ERR_LIMIT, "%zu rows of the space report do not fit %zu bytes", rows->len,
                       out->max);
    out->len += embertree__space_reply__pack(r, (uint8_t *)(void *)p);
    return 0;
}

int space_run(const struct read_msg *m, const struct read_source *src, struct arena *a,
              struct buf *out, struct err *e)
{
    Embertree__SpaceReply r = EMBERTREE__SPACE_REPLY__INIT;
    struct totals t = { .reply = &r };
    int rc = 0;

    r.free_bytes = src->disk_free;
    r.reserve_bytes = src->disk_reserve;
    r.node_id = src->node_id;
    r.node = pack_str(src->node);
    for (size_t i = 0; i < src->len && !rc; i++)
        rc = read_shard(src->stores[i], m, src, a, &t, e);
    if (!rc && !m->query.tenant.len && t.forecasts == src->len && src->len)
        rc = put_forecast(&t.forecast, a, &r, e);
    t.rows.len = space_rows_unite(t.rows.ptr, t.rows.len);
    if (!rc)
        rc = pack(&r, &t.rows, a, out, e);
    vec_free(&t.rows);
    return rc;
}
