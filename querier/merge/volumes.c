/* SPDX-License-Identifier: Apache-2.0
 *
 * volumes: a node has one data folder, so one volume; replies of a node are united by its id.
 *
 * Its shards grow together: a forecast of one shard alone would give it the whole volume. So
 * ingesters tell what a forecast is made of, and the one of the volume is made here. Ingesters of
 * the version before tell neither id nor that: each reply is a volume, with the forecast it has.
 */
#include "querier/merge/volumes.h"

#include "common/base/size.h"

/* ---- uniting -------------------------------------------------------------------------------- */

static int read_in(const Embertree__SpaceForecast *m, struct forecast_in *ret, struct err *e)
{
    *ret = (struct forecast_in){ .bytes = m->bytes };
    if (m->n_levels > KEY_LEVELS || m->n_days > FORECAST_DAYS)
        return err_set(e, ERR_CORRUPT, "a forecast of %zu levels and %zu days", m->n_levels,
                       m->n_days);
    for (size_t i = 0; i < m->n_levels; i++)
        ret->levels[i] = (struct forecast_level){ m->levels[i]->bytes, m->levels[i]->span_ms,
                                                  m->levels[i]->keep_ms };
    for (size_t i = 0; i < m->n_days; i++) {
        if (m->days[i]->day > UINT16_MAX || (i && m->days[i]->day <= m->days[i - 1]->day))
            return err_set(e, ERR_CORRUPT, "day %" PRIu32 " of a forecast stands wrong",
                           m->days[i]->day);
        ret->history.at[ret->history.len++] =
            (struct forecast_day){ (uint16_t)m->days[i]->day, m->days[i]->bytes };
    }
    return 0;
}

static struct volume *volume_of(struct volumes *v, const Embertree__SpaceReply *m)
{
    vec_for (i, &v->at)
        if (m->node_id && v->at.ptr[i].node_id == m->node_id)
            return &v->at.ptr[i];
    vec_push(&v->at, ((struct volume){ .node_id = m->node_id,
                                       .node = str_n(m->node.data, m->node.len),
                                       .free_bytes = m->free_bytes,
                                       .reserve_bytes = m->reserve_bytes }));
    return &v->at.ptr[v->at.len - 1];
}

static void told_forecast(const Embertree__SpaceReply *m, struct volume *v)
{
    v->forecast_known = m->forecast;
    v->forecast = (struct forecast){ .growth_per_day = m->growth_per_day,
                                     .freed_per_day = m->freed_per_day,
                                     .settles_bytes = m->settles_bytes,
                                     .days_left = m->days_left };
}

int volumes_add(struct volumes *v, const Embertree__SpaceReply *m, struct err *e)
{
    struct forecast_in in = { 0 };

    if (m->forecast_in && read_in(m->forecast_in, &in, e))
        return e->code;
    struct volume *one = volume_of(v, m);
    one->shards += m->shards;
    one->free_bytes = MIN(one->free_bytes, m->free_bytes);
    one->replies++;
    if (m->forecast && m->forecast_in) {
        forecast_unite(&one->in, &in);
        one->summed++;
    }
    if (one->replies == 1) {
        told_forecast(m, one);
        return 0;
    }
    one->forecast_known = one->summed == one->replies;
    if (one->forecast_known)
        forecast_make(&one->in, one->free_bytes - MIN(one->free_bytes, one->reserve_bytes),
                      &one->forecast);
    return 0;
}

void volumes_deinit(struct volumes *v)
{
    vec_free(&v->at);
}

/* ---- printing ------------------------------------------------------------------------------- */

static void forecast_json(const struct forecast *f, struct json *j)
{
    json_key(j, "forecast");
    json_obj(j);
    json_put_i64(j, "growthPerDay", f->growth_per_day);
    json_put_u64(j, "freedPerDay", f->freed_per_day);
    if (f->settles_bytes)
        json_put_u64(j, "settlesBytes", f->settles_bytes);
    if (f->days_left != FORECAST_FOREVER)
        json_put_u64(j, "daysLeft", f->days_left);
    json_obj_end(j);
}

void volumes_json(const struct volumes *v, struct json *j)
{
    json_arr(j);
    vec_for (i, &v->at) {
        const struct volume *one = &v->at.ptr[i];

        json_obj(j);
        if (one->node.len)
            json_put_str(j, "node", one->node);
        json_put_u64(j, "shards", one->shards);
        json_put_u64(j, "freeBytes", one->free_bytes);
        json_put_u64(j, "reserveBytes", one->reserve_bytes);
        if (one->forecast_known)
            forecast_json(&one->forecast, j);
        json_obj_end(j);
    }
    json_arr_end(j);
}

void volumes_text(const struct volumes *v, struct buf *out)
{
    vec_for (i, &v->at) {
        const struct volume *one = &v->at.ptr[i];
        const struct forecast *f = &one->forecast;

        if (one->node.len)
            (void)buf_addf(out, "volume of %.*s", STR_ARG(one->node));
        else
            (void)buf_addf(out, "volume %zu", i);
        (void)buf_addf(out, ": %" PRIu64 " MiB free, %" PRIu64 " MiB kept free",
                       one->free_bytes / MIB, one->reserve_bytes / MIB);
        if (one->forecast_known && f->days_left == FORECAST_FOREVER)
            (void)buf_addf(out, ", all that retention keeps will fit");
        else if (one->forecast_known)
            (void)buf_addf(out, ", %" PRId64 " MiB more a day, %" PRIu32 " days left",
                           f->growth_per_day / (int64_t)MIB, f->days_left);
        (void)buf_addf(out, "\n");
    }
}
