/* SPDX-License-Identifier: Apache-2.0
 *
 * api_space: asks every ingester, adds rows of the same owner, prints.
 *
 * With several tenants a caller gets its own rows only: neither names nor bytes of others, nor the
 * files and volumes that all tenants share. With one tenant the caller is the operator and gets
 * everything.
 */
#include "querier/api/tenant/api_space.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/check/space.h"
#include "common/store/retain/retain.h"
#include "proto/space.pb-c.h"
#include "querier/merge/volumes.h"
#include "querier/query/ask_all_shards.h"

#define REQUEST_MAX  (64 * KIB)
#define SERVICE_SHOW 40

struct report {
    VEC(struct space_row) rows;
    struct volumes volumes;
    struct space files;  /* sums; rows are above */
    uint64_t shown, far; /* bytes of the rows */
};

/* ---- replies ----------------------------------------------------------------------------------*/

static int add_reply(struct report *r, const Embertree__SpaceReply *m, struct err *e)
{
    for (size_t i = 0; i < m->n_rows; i++) {
        const Embertree__SpaceRow *row = m->rows[i];

        if (row->level > KEY_LEVELS)
            return err_set(e, ERR_CORRUPT, "level %u in a space report", row->level);
        vec_push(&r->rows, ((struct space_row){
                               .tenant = str_n(row->tenant.data, row->tenant.len),
                               .service = str_n(row->service.data, row->service.len),
                               .kind = (enum space_kind)row->kind,
                               .level = row->level ? row->level - 1 : SPACE_NO_LEVEL,
                               .bytes = row->bytes,
                               .far_bytes = row->far_bytes,
                           }));
        r->shown += row->bytes;
        r->far += row->far_bytes;
    }
    r->files.tables_bytes += m->tables_bytes;
    r->files.obsolete_bytes += m->obsolete_bytes;
    r->files.log_bytes += m->log_bytes;
    r->files.other_bytes += m->other_bytes;
    r->files.memtable_bytes += m->memtable_bytes;
    return volumes_add(&r->volumes, m, e);
}

static int read_replies(struct query *q, struct report *r, struct err *e)
{
    vec_for (i, &q->calls) {
        const struct fanout_call *c = &q->calls.ptr[i];

        if (c->err.code)
            continue;
        const Embertree__SpaceReply *m = ask_all_shards_answer(
            q, c, &embertree__space_reply__descriptor, wire_cost_lists(c->reply.len), e);
        if (!m)
            return e->code;
        if (add_reply(r, m, e))
            return err_wrap(e, "ingester %zu", c->ingester);
    }
    return 0;
}

static const char *kind_name(const struct space_row *r)
{
    return (unsigned)r->kind < SPACE_KINDS_LEN ? space_kind_names[r->kind] : "other";
}

static const char *level_name(const struct space_row *r)
{
    return r->level < KEY_LEVELS ? retain_level_name(r->level) : "";
}

/* ---- JSON -------------------------------------------------------------------------------------*/

static void put_files(const struct report *r, struct json *j)
{
    const struct space *f = &r->files;

    json_key(j, "files");
    json_obj(j);
    json_put_u64(j, "tables", f->tables_bytes);
    json_put_u64(j, "obsolete", f->obsolete_bytes);
    json_put_u64(j, "log", f->log_bytes);
    json_put_u64(j, "other", f->other_bytes);
    json_put_u64(j, "total", f->tables_bytes + f->obsolete_bytes + f->log_bytes + f->other_bytes);
    json_obj_end(j);
    json_put_u64(j, "memtables", f->memtable_bytes);
    json_key(j, "ingesters");
    volumes_json(&r->volumes, j);
}

/* The rows by kind, and those that have one by level. */
static void put_sums(const struct report *r, struct json *j)
{
    uint64_t kinds[SPACE_KINDS_LEN] = { 0 }, levels[KEY_LEVELS] = { 0 };

    vec_for (i, &r->rows) {
        const struct space_row *row = &r->rows.ptr[i];

        if ((unsigned)row->kind < SPACE_KINDS_LEN)
            kinds[row->kind] += row->bytes;
        if (row->level < KEY_LEVELS)
            levels[row->level] += row->bytes;
    }
    json_key(j, "kinds");
    json_obj(j);
    for (size_t i = 0; i < SPACE_KINDS_LEN; i++)
        json_put_u64(j, space_kind_names[i], kinds[i]);
    json_obj_end(j);
    json_key(j, "levels");
    json_obj(j);
    for (uint32_t i = 0; i < KEY_LEVELS; i++)
        json_put_u64(j, retain_level_name(i), levels[i]);
    json_obj_end(j);
}

static void put_json(const struct query *q, const struct report *r, bool whole, struct json *j)
{
    json_obj(j);
    json_put_u64(j, "bytes", r->shown);
    json_put_u64(j, "farBytes", r->far);
    if (whole)
        put_files(r, j);
    put_sums(r, j);
    json_key(j, "rows");
    json_arr(j);
    vec_for (i, &r->rows) {
        const struct space_row *row = &r->rows.ptr[i];

        json_obj(j);
        json_put_str(j, "tenant", row->tenant);
        json_put_str(j, "service", row->service);
        json_put_cstr(j, "kind", kind_name(row));
        if (level_name(row)[0])
            json_put_cstr(j, "level", level_name(row));
        json_put_u64(j, "bytes", row->bytes);
        if (row->far_bytes)
            json_put_u64(j, "farBytes", row->far_bytes);
        json_obj_end(j);
    }
    json_arr_end(j);
    json_put_u64(j, "missingIngesters", q->missing.missing);
    json_obj_end(j);
}

/* ---- text -------------------------------------------------------------------------------------*/

/* The first columns: what lies here, and, if anything does, what lies in the cold tier. */
static void put_bytes(const struct report *r, uint64_t bytes, uint64_t total, uint64_t far,
                      struct buf *out)
{
    (void)buf_addf(out, "%16" PRIu64 "  %5.1f %%  ", bytes,
                   total ? 100.0 * (double)bytes / (double)total : 0.0);
    if (r->far)
        (void)buf_addf(out, "%16" PRIu64 "  ", far);
}

static void put_text(const struct query *q, const struct report *r, bool whole, struct buf *out)
{
    const struct space *f = &r->files;
    uint64_t total =
        whole ? f->tables_bytes + f->obsolete_bytes + f->log_bytes + f->other_bytes : r->shown;
    const struct {
        uint64_t bytes;
        const char *what;
    } lines[] = {
        { f->obsolete_bytes, "files that readers hold or that are being removed" },
        { f->log_bytes, "write-ahead log" },
        { f->other_bytes, "manifests and options" },
    };

    (void)buf_addf(out, "%16s  %7s  ", "bytes", "share");
    if (r->far)
        (void)buf_addf(out, "%16s  ", "in cold tier");
    (void)buf_addf(out, "%-16s %-*s %-11s %s\n", "tenant", SERVICE_SHOW, "service", "kind",
                   "level");
    vec_for (i, &r->rows) {
        const struct space_row *row = &r->rows.ptr[i];

        put_bytes(r, row->bytes, total, row->far_bytes, out);
        (void)buf_addf(out, "%-16.*s %-*.*s %-11s %s\n", STR_ARG(row->tenant), SERVICE_SHOW,
                       STR_ARG(row->service), kind_name(row), level_name(row));
    }
    for (size_t i = 0; whole && i < ARRAY_LEN(lines); i++) {
        put_bytes(r, lines[i].bytes, total, 0, out);
        (void)buf_addf(out, "%s\n", lines[i].what);
    }
    put_bytes(r, total, total, r->far, out);
    (void)buf_addf(out, "all\n");
    if (whole)
        volumes_text(&r->volumes, out);
    if (q->missing.missing)
        (void)buf_addf(out, "%zu of %zu ingesters did not answer\n", q->missing.missing,
                       q->missing.asked);
}

/* ---- steps ------------------------------------------------------------------------------------*/

static bool sees_all(const struct query *q)
{
    return !q->qr->ctx->tenancy->multi;
}

static int reply(struct query *q, struct err *e)
{
    struct report r = { 0 };
    struct str format = STR_NULL;
    struct json j;
    int rc = read_replies(q, &r, e);

    if (!rc) {
        r.rows.len = space_rows_unite(r.rows.ptr, r.rows.len);
        (void)http_param(q->http, "format", &format);
        query_json(q, &j);
        if (str_eqc(format, "text")) {
            put_text(q, &r, sees_all(q), &q->out);
            q->content_type = "text/plain; charset=utf-8";
        } else {
            put_json(q, &r, sees_all(q), &j);
        }
        rc = query_out_end(q, e);
    }
    vec_free(&r.rows);
    volumes_deinit(&r.volumes);
    return rc;
}

int api_space(struct query *q, struct err *e)
{
    Embertree__SpaceRequest m = EMBERTREE__SPACE_REQUEST__INIT;

    if (!sees_all(q)) {
        if (q->tenants_len != 1)
            return err_set(e, ERR_INPUT, "the space of one tenant at a time");
        m.tenant.len = q->tenants[0].len;
        m.tenant.data = (uint8_t *)(uintptr_t)q->tenants[0].ptr;
    }
    q->allow_partial = true;
    q->step = reply;
    const struct ask_all_message ask = { &m.base, &m.shards, &m.n_shards, REQUEST_MAX };
    return ask_all(q, RPC_SPACE, &ask, e);
}
