/* SPDX-License-Identifier: Apache-2.0
 *
 * api_delete.c: real deletes.
 *
 *   parameters ─> RPC_DELETE to every ingester ─> their answers as one
 *
 * Deleting wants to be meant: either `confirm` repeats what is to be deleted, or it is a dry run.
 * Every ingester must answer, whatever the client allows: a delete that is done in part is an
 * error that says so, and the same request with the same id completes it. An ingester that has done
 * it already does nothing. Every answer and error therefore contains the id.
 *
 * An identity that may delete some series only (its grant has `match`) deletes what both the query
 * and its matchers select, and never everything. What is stored of such a delete says so: its text
 * has the matchers, and its id begins with the id of the key. So two identities that use the same
 * id do not meet, and neither learns what the other deleted.
 *
 * A delete is of one tenant. Shards of a tenant know different parts of it, so numbers of services
 * and series are sums over shards: what is spread over several counts on each, but for a service
 * that the query names.
 */
#include "querier/api/tenant/api_delete.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "proto/delete.pb-c.h"
#include "querier/query/ask_all_shards.h"
#include "querier/select/api_time.h"
#include "querier/select/query_spec.h"

#define REQUEST_BYTES_MAX (256 * KIB)
#define ID_MAX            64
#define WHAT_MAX          8192

enum op { OP_DELETE, OP_DRY_RUN, OP_LIST };
/* As common/store/mask/tomb.h numbers them. */
static const char *const kinds[] = { "nothing", "tenant", "services", "series", "range" };
static const char *const states[] = { "purging", "purged", "done" };

struct deletion {
    enum op op;
    struct str id, what;
    struct query_spec spec;
    int64_t from_ms, to_ms;
};

/* ---- parameters ------------------------------------------------------------------------------ */

static bool flag(const struct query *q, const char *name)
{
    struct str text;

    return http_param(q->http, name, &text) && (str_eqc(text, "1") || str_eqc(text, "true"));
}

static int read_id(struct query *q, struct deletion *d, struct err *e)
{
    char text[33];
    uint64_t r[2];

    if (http_param(q->http, "id", &d->id) && d->id.len) {
        if (d->id.len > ID_MAX)
            return err_set(e, ERR_INPUT, "id has %zu bytes: want at most %d", d->id.len, ID_MAX);
        return 0;
    }
    q->qr->ctx->env->random(q->qr->ctx->env, r, sizeof(r));
    (void)snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64, r[0], r[1]);
    d->id = arena_strdup(q->arena, str_c(text));
    CHECK(d->id.ptr);
    return 0;
}

/* What to delete: query=, or all=1. */
static int read_what(struct query *q, struct deletion *d, struct err *e)
{
    struct str text = STR_NULL;
    bool all = flag(q, "all");

    (void)http_param(q->http, "query", &text);
    text = str_trim(text);
    if (all == (text.len > 0))
        return err_set(e, ERR_INPUT,
                       all ? "all=1 and query exclude each other"
                           : "query is missing: what is to be deleted? all=1 deletes the tenant");
    if (text.len > WHAT_MAX)
        return err_set(e, ERR_LIMIT, "query has %zu bytes, at most %d are allowed", text.len,
                       WHAT_MAX);
    d->what = text;
    if (all)
        return 0;
    if (query_spec_labels(text, false, q->arena, &d->spec, e))
        return err_wrap(e, "query");
    size_t n = 0;
    for (size_t i = 0; i < d->spec.len; i++)
        n += d->spec.selectors[i].len;
    if (!n)
        return err_set(e, ERR_INPUT,
                       "query selects everything: say so with all=1, without a query");
    return 0;
}

static int read_confirm(struct query *q, struct deletion *d, struct err *e)
{
    struct str text = STR_NULL, want = d->what.len ? d->what : q->tenants[0];

    if (flag(q, "dry_run")) {
        d->op = OP_DRY_RUN;
        return 0;
    }
    if (!http_param(q->http, "confirm", &text))
        return err_set(e, ERR_INPUT,
                       "confirm is missing: repeat %s in it to delete, or ask with dry_run=1 what "
                       "would go",
                       d->what.len ? "the query" : "the tenant's name");
    if (!str_eq(str_trim(text), want))
        return err_set(e, ERR_INPUT, "confirm is not %s, which is %.*s",
                       d->what.len ? "the query" : "the tenant's name", (int)MIN(want.len, 200),
                       want.ptr);
    return 0;
}

static int read_range(struct query *q, struct deletion *d, struct err *e)
{
    if (api_time(q, "from", 0, &d->from_ms, e) || api_time(q, "until", 0, &d->to_ms, e))
        return e->code;
    if (d->to_ms && d->from_ms >= d->to_ms)
        return err_set(e, ERR_INPUT,
                       "from is not before until: %" PRId64 ", %" PRId64 " (milliseconds)",
                       d->from_ms, d->to_ms);
    return 0;
}

/* ---- questions ------------------------------------------------------------------------------- */

static void *out_ptr(const void *p)
{
    return (void *)(uintptr_t)p;
}

static ProtobufCBinaryData out_str(struct str s)
{
    return (ProtobufCBinaryData){ s.len, out_ptr(s.ptr) };
}

/* Text and id in the form that is stored and listed. */
static int put_names(const struct query *q, const struct deletion *d, const struct selector *added,
                     Embertree__DeleteRequest *r, struct err *e)
{
    struct buf id, what;

    r->id = out_str(d->id);
    r->what = out_str(d->what);
    if (!added || d->op == OP_LIST)
        return 0;
    buf_init(&id, ID_MAX);
    buf_init(&what, WHAT_MAX);
    buf_addf(&id, "%.*s/%.*s", STR_ARG(q->identity->id), STR_ARG(d->id));
    buf_addf(&what, "%.*s and ", STR_ARG(d->what));
    selector_format(added, &what);
    r->id = out_str(arena_strdup(q->arena, buf_str(&id)));
    r->what = out_str(arena_strdup(q->arena, buf_str(&what)));
    bool id_fits = buf_ok(&id), what_fits = buf_ok(&what);
    buf_deinit(&id);
    buf_deinit(&what);
    if (!id_fits)
        return err_set(e, ERR_INPUT,
                       "id has %zu bytes: want at most %zu, since this key may delete some series "
                       "only, and its own id stands in front",
                       d->id.len, ID_MAX - q->identity->id.len - 1);
    if (!what_fits || !r->id.data || !r->what.data)
        return err_set(e, ERR_LIMIT, "the query has more matchers than fit");
    return 0;
}

static int check_all(const struct deletion *d, const struct selector *added, struct err *e)
{
    if (!added || d->what.len || d->op == OP_LIST)
        return 0;
    return err_set(e, ERR_FORBIDDEN,
                   "scoped_key: this key may delete some series of the tenant only, so not all=1; "
                   "say which ones in query");
}

static int ask(struct query *q, const struct deletion *d, struct err *e)
{
    Embertree__DeleteRequest r = EMBERTREE__DELETE_REQUEST__INIT;
    struct scoped_ask scope = { q->identity, d->op == OP_LIST ? ROLE_READ : ROLE_DELETE,
                                q->tenants[0], d->spec.selectors, d->spec.len };
    const struct scoped_matchers *of;

    if (scoped_matchers_make(&scope, q->arena, &of, e))
        return e->code;
    const struct selector *added = scoped_matchers_added(of);
    if (check_all(d, added, e) || put_names(q, d, added, &r, e))
        return e->code;
    r.op = (uint32_t)d->op;
    r.tenant = out_str(scoped_matchers_tenant(of));
    r.from_ms = d->from_ms;
    r.to_ms = d->to_ms;
    r.matchers = scoped_matchers_pack(of, q->arena, &r.n_matchers);
    if (!r.matchers)
        return err_set(e, ERR_LIMIT, "the query has more matchers than fit");
    q->allow_partial = false;
    return ask_all(q, RPC_DELETE, &r.base, &r.shards, &r.n_shards, REQUEST_BYTES_MAX, e);
}

/* ---- answers --------------------------------------------------------------------------------- */

static const Embertree__DeleteReply *read_reply(struct query *q, const struct fanout_call *c,
                                                struct err *e)
{
    return ask_all_shards_answer(q, c, &embertree__delete_reply__descriptor,
                                 ASK_ALL_SHARDS_COST * c->reply.len, e);
}

static struct str in_str(ProtobufCBinaryData b)
{
    return str_n((const char *)b.data, b.len);
}

static const char *kind_name(uint32_t kind)
{
    return kinds[kind < ARRAY_LEN(kinds) ? kind : 0];
}

struct sum { /* over shards */
    uint32_t kind;
    uint64_t services, series, raw_rows, bytes;
    int64_t from_ms, to_ms;
    size_t shards, repeated;
};

static void add_bounds(struct sum *s, int64_t from_ms, int64_t to_ms)
{
    s->from_ms = s->from_ms ? MIN(s->from_ms, from_ms) : from_ms;
    s->to_ms = MAX(s->to_ms, to_ms);
}

static void add_shard(struct sum *s, const Embertree__DeleteShard *x)
{
    s->shards++;
    s->repeated += x->repeated;
    if (!x->series && !x->services)
        return;
    s->kind = MAX(s->kind, x->kind);
    s->services += x->services;
    s->series += x->series;
    s->raw_rows += x->raw_rows;
    s->bytes += x->bytes;
    add_bounds(s, x->from_ms, x->to_ms);
}

static int reply_delete(struct query *q, struct err *e)
{
    const struct deletion *d = q->state;
    struct sum s = { 0 };
    struct str named;
    struct json j;

    vec_for (i, &q->calls) {
        const Embertree__DeleteReply *r = read_reply(q, &q->calls.ptr[i], e);
        if (!r)
            return e->code;
        for (size_t k = 0; k < r->n_shards; k++)
            add_shard(&s, r->shards[k]);
    }
    if (plan_service(d->spec.selectors, d->spec.len, &named))
        s.services = MIN(s.services, 1);
    query_json(q, &j);
    json_obj(&j);
    json_put_str(&j, "id", d->id);
    json_put_str(&j, "tenant", q->tenants[0]);
    json_put_str(&j, "what", d->what);
    json_put_bool(&j, "dryRun", d->op == OP_DRY_RUN);
    json_put_bool(&j, "repeated", s.repeated == s.shards);
    json_put_str(&j, "kind", str_c(kind_name(s.kind)));
    json_put_i64(&j, "services", (int64_t)s.services);
    json_put_i64(&j, "series", (int64_t)s.series);
    json_put_i64(&j, "unsealedRows", (int64_t)s.raw_rows);
    json_put_i64(&j, "bytesEstimate", (int64_t)s.bytes);
    json_put_i64(&j, "from", s.from_ms);
    json_put_i64(&j, "until", s.to_ms);
    json_put_i64(&j, "shards", (int64_t)s.shards);
    json_obj_end(&j);
    return query_out_end(q, e);
}

/* ---- the list -------------------------------------------------------------------------------- */

typedef VEC(Embertree__DeleteTomb *) tombs;

static int by_id(const void *a, const void *b)
{
    const Embertree__DeleteTomb *x = *(Embertree__DeleteTomb *const *)a;
    const Embertree__DeleteTomb *y = *(Embertree__DeleteTomb *const *)b;
    int d = str_cmp(in_str(x->id), in_str(y->id));

    return d ? d : x->shard < y->shard ? -1 : x->shard > y->shard;
}

/* One delete: its tombs of all shards. */
struct one {
    Embertree__DeleteTomb **at;
    size_t len;
    int64_t created_ms;
};

static int newest_first(const void *a, const void *b)
{
    const struct one *x = a, *y = b;

    return x->created_ms > y->created_ms ? -1 : x->created_ms < y->created_ms;
}

/* The shard that is furthest behind. */
static bool is_behind(const Embertree__DeleteTomb *x, const Embertree__DeleteTomb *than)
{
    if (x->state != than->state)
        return x->state < than->state;
    return (uint64_t)x->done * MAX(than->of, 1u) < (uint64_t)than->done * MAX(x->of, 1u);
}

static void put_one(struct json *j, const struct one *o)
{
    const Embertree__DeleteTomb *behind = NULL;
    struct sum s = { 0 };
    uint64_t rows = 0, bytes = 0, done = 0, of = 0;
    uint32_t state = ARRAY_LEN(states) - 1, copies = 0;
    int64_t ended = 0;

    for (size_t i = 0; i < o->len; i++) {
        const Embertree__DeleteTomb *t = o->at[i];
        state = MIN(state, t->state);
        ended = MAX(ended, t->ended_ms);
        copies = MAX(copies, t->copies_behind);
        if (!t->services && !t->series)
            continue;
        behind = !behind || is_behind(t, behind) ? t : behind;
        s.kind = MAX(s.kind, t->kind);
        s.services += t->services;
        s.series += t->series;
        s.raw_rows += t->raw_rows;
        add_bounds(&s, t->from_ms, t->to_ms);
        rows += t->rows;
        bytes += t->bytes;
        done += t->done;
        of += MAX(t->of, 1u);
    }
    json_obj(j);
    json_put_str(j, "id", in_str(o->at[0]->id));
    json_put_str(j, "what", in_str(o->at[0]->what));
    json_put_str(j, "kind", str_c(kind_name(s.kind)));
    json_put_str(j, "state", str_c(states[state]));
    json_put_str(j, "phase", behind ? in_str(behind->phase) : STR_NULL);
    json_put_i64(j, "created", o->created_ms);
    json_put_i64(j, "ended", state ? ended : 0);
    json_put_i64(j, "from", s.from_ms);
    json_put_i64(j, "until", s.to_ms);
    json_put_i64(j, "services", (int64_t)s.services);
    json_put_i64(j, "series", (int64_t)s.series);
    json_put_i64(j, "unsealedRows", (int64_t)s.raw_rows);
    json_put_i64(j, "deletedRows", (int64_t)rows);
    json_put_i64(j, "deletedBytes", (int64_t)bytes);
    json_put_i64(j, "percent", state ? 100 : of ? (int64_t)(done * 100 / of) : 0);
    json_put_i64(j, "copiesBehind", (int64_t)copies);
    json_put_i64(j, "shards", (int64_t)o->len);
    json_obj_end(j);
}

static int put_list(struct query *q, tombs *all, struct err *e)
{
    VEC(struct one) list = { 0 };
    struct json j;

    if (all->len)
        qsort(all->ptr, all->len, sizeof(*all->ptr), by_id);
    for (size_t i = 0, end; i < all->len; i = end) {
        struct one o = { .at = &all->ptr[i] };
        for (end = i; end < all->len && str_eq(in_str(all->ptr[end]->id), in_str(o.at[0]->id));
             end++)
            o.created_ms = MAX(o.created_ms, all->ptr[end]->created_ms);
        o.len = end - i;
        vec_push(&list, o);
    }
    if (list.len)
        qsort(list.ptr, list.len, sizeof(*list.ptr), newest_first);
    query_json(q, &j);
    json_obj(&j);
    json_key(&j, "deletes");
    json_arr(&j);
    vec_for (i, &list)
        put_one(&j, &list.ptr[i]);
    json_arr_end(&j);
    json_obj_end(&j);
    vec_free(&list);
    return query_out_end(q, e);
}

static int reply_list(struct query *q, struct err *e)
{
    tombs all = { 0 };
    int rc = 0;

    for (size_t i = 0; !rc && i < q->calls.len; i++) {
        const Embertree__DeleteReply *r = read_reply(q, &q->calls.ptr[i], e);
        rc = r ? 0 : e->code;
        for (size_t k = 0; r && k < r->n_tombs; k++)
            vec_push(&all, r->tombs[k]);
    }
    if (!rc)
        rc = put_list(q, &all, e);
    vec_free(&all);
    return rc;
}

/* ---- routes ---------------------------------------------------------------------------------- */

static int check_tenant(const struct query *q, struct err *e)
{
    if (q->tenants_len != 1)
        return err_set(e, ERR_INPUT, "deletes are of one tenant, the request names %zu",
                       q->tenants_len);
    return 0;
}

static struct deletion *begin(struct query *q, query_step_fn then)
{
    struct deletion *d = ARENA_NEW(q->arena, struct deletion);

    CHECK(d);
    q->state = d;
    q->step = then;
    return d;
}

int api_delete(struct query *q, struct err *e)
{
    struct deletion *d = begin(q, reply_delete);

    if (check_tenant(q, e) || read_what(q, d, e) || read_confirm(q, d, e) || read_range(q, d, e) ||
        read_id(q, d, e))
        return e->code;
    return ask(q, d, e);
}

int api_deletes(struct query *q, struct err *e)
{
    struct deletion *d = begin(q, reply_list);

    d->op = OP_LIST;
    d->id = STR("list");
    return check_tenant(q, e) ? e->code : ask(q, d, e);
}
