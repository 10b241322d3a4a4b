/* SPDX-License-Identifier: Apache-2.0
 *
 * forward_make: what was accepted becomes what a profiler would have sent.
 *
 * Series that have the same labels and kind of profile are the sample types of one pprof. Samples
 * under an id of a span (or of a trace, where there are no spans) get their sample label back; what
 * remains of the series is written without, so that the sums are those of the series. Samples that
 * are under both keep their span only, since which belong together was not stored.
 *
 * An id is made of the push's own write base, so that the same push makes the same requests, here
 * and after a retry of its sender: the receiver counts it once.
 */
#include "distributor/forward/forward_make.h"

#include <stdio.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/model/pprof_out.h"
#include "distributor/base/window.h"
#include "distributor/forward/forward_req.h"

#define SCRATCH_MAX   (256 * MIB)
#define REQUEST_BYTES (4 * MIB) /* a request of push.v1 gets no more profiles beyond that */
#define GZIP_LEVEL    1
#define UUID_CHARS    36
#define SPY_LABEL     "pyroscope_spy"

struct group {
    struct labels labels; /* with __name__, without what belongs to a type */
    const struct push_series *series;
    size_t len; /* its types: series that stand behind each other */
    struct ptype first;
    struct buf profile; /* gzip'd */
    char uuid[UUID_CHARS + 1];
};
struct forward_made {
    const struct intake_packed *p;
    struct arena *arena;
    VEC(struct group) groups;
};

/* ---- groups --------------------------------------------------------------------------------- */

static bool of_type(struct str name)
{
    return str_starts(name, STR("__")) && !str_eqc(name, "__name__");
}

static bool same_labels(const struct labels *l, const struct labels *kept)
{
    size_t at = 0;

    for (size_t i = 0; i < l->len; i++) {
        if (of_type(l->ptr[i].name))
            continue;
        if (at == kept->len || !str_eq(l->ptr[i].name, kept->ptr[at].name) ||
            !str_eq(l->ptr[i].value, kept->ptr[at].value))
            return false;
        at++;
    }
    return at == kept->len;
}

static bool belongs(const struct group *g, const struct push_series *s, const struct ptype *t)
{
    return g->len < PPROF_OUT_TYPES_MAX && str_eq(g->first.name, t->name) &&
           str_eq(g->first.period_type, t->period_type) &&
           str_eq(g->first.period_unit, t->period_unit) && same_labels(&s->labels, &g->labels);
}

static int keep_labels(struct forward_made *m, const struct labels *from, struct labels *to,
                       struct err *e)
{
    to->ptr = ARENA_ARRAY(m->arena, struct label, from->len + 1);
    if (!to->ptr)
        return err_set(e, ERR_LIMIT, "forwarding it takes more than %zu bytes",
                       arena_limit(m->arena));
    for (size_t i = 0; i < from->len; i++)
        if (!of_type(from->ptr[i].name))
            to->ptr[to->len++] = from->ptr[i];
    return 0;
}

static int make_groups(struct forward_made *m, struct err *e)
{
    const struct push *p = m->p->push;

    for (size_t i = 0; i < p->series_len; i++) {
        const struct push_series *s = &p->series[i];
        struct ptype t;
        if (ptype_parse(s->profile_type, &t, e))
            return e->code;
        struct group *last = m->groups.len ? &m->groups.ptr[m->groups.len - 1] : NULL;
        if (last && belongs(last, s, &t)) {
            last->len++;
            continue;
        }
        struct group g = { .series = s, .len = 1, .first = t };
        if (keep_labels(m, &s->labels, &g.labels, e))
            return e->code;
        buf_init(&g.profile, FORWARD_RECORD_MAX);
        vec_push(&m->groups, g);
    }
    return 0;
}

/* ---- a group as pprof ----------------------------------------------------------------------- */

struct parts {
    struct forward_made *m;
    const struct group *g;
    VEC(struct pprof_out_part) all;
    struct map_str *ids; /* packed id -> position in all, plus 1; owned */
};

static struct pprof_out_values *new_part(struct parts *ps, const struct label *label)
{
    struct arena *a = ps->m->arena;
    struct pprof_out_values *v = ARENA_ARRAY(a, struct pprof_out_values, ps->g->len);
    struct label *kept = label ? ARENA_NEW(a, struct label) : NULL;

    if (!v || (label && !kept))
        return NULL;
    if (label)
        *kept = *label;
    vec_push(&ps->all, ((struct pprof_out_part){ kept, label ? 1 : 0, v }));
    return v;
}

static bool add_exemplar(struct parts *ps, size_t type, const struct push_exemplar *x)
{
    size_t at = (size_t)(uintptr_t)map_str_get(ps->ids, x->id);
    struct pprof_out_values *v;

    if (at) {
        v = (struct pprof_out_values *)(uintptr_t)ps->all.ptr[at - 1].by_type;
    } else {
        char text[EXID_BYTES_MAX];
        struct str id = arena_strdup(ps->m->arena, str_n(text, exid_text(x->id, text)));
        struct label l = { x->kind == EXID_SPAN ? STR("span_id") : STR("trace_id"), id };
        v = id.ptr ? new_part(ps, &l) : NULL;
        if (!v)
            return false;
        (void)map_str_put(ps->ids, x->id, (void *)(uintptr_t)ps->all.len);
    }
    v[type] = (struct pprof_out_values){ x->nodes, x->values, x->len };
    return true;
}

/* Takes the exemplars of this kind off the copied values. False: they are not part of them. */
static bool subtract(const struct push_series *s, enum exid_kind kind, uint64_t *values)
{
    for (size_t i = 0; i < s->exemplars_len; i++) {
        const struct push_exemplar *x = &s->exemplars[i];
        size_t at = 0;
        for (size_t k = 0; x->kind == kind && k < x->len; k++) {
            if (k && x->nodes[k] <= x->nodes[k - 1])
                return false;
            while (at < s->len && s->nodes[at] < x->nodes[k])
                at++;
            if (at == s->len || s->nodes[at] != x->nodes[k] || values[at] < x->values[k])
                return false;
            values[at] -= x->values[k];
        }
    }
    return true;
}

/* What no id covers. */
static bool rest_of(struct parts *ps, const struct push_series *s, enum exid_kind kind,
                    struct pprof_out_values *ret)
{
    uint32_t *nodes = arena_alloc(ps->m->arena, (s->len + 1) * sizeof(*nodes));
    uint64_t *values = arena_alloc(ps->m->arena, (s->len + 1) * sizeof(*values));
    size_t n = 0;

    if (!nodes || !values)
        return false;
    memcpy(values, s->values, s->len * sizeof(*values));
    if (!subtract(s, kind, values))
        return false;
    for (size_t i = 0; i < s->len; i++) {
        if (!values[i])
            continue;
        nodes[n] = s->nodes[i];
        values[n++] = values[i];
    }
    *ret = (struct pprof_out_values){ nodes, values, n };
    return true;
}

static enum exid_kind kind_of(const struct group *g)
{
    enum exid_kind best = EXID_NONE;

    for (size_t i = 0; i < g->len; i++)
        for (size_t k = 0; k < g->series[i].exemplars_len; k++) {
            enum exid_kind kind = g->series[i].exemplars[k].kind;
            if (kind == EXID_SPAN)
                return EXID_SPAN;
            if (kind == EXID_TRACE)
                best = EXID_TRACE;
        }
    return best;
}

static bool make_parts(struct parts *ps, enum exid_kind kind)
{
    struct pprof_out_values *rest = new_part(ps, NULL);

    if (!rest)
        return false;
    for (size_t i = 0; i < ps->g->len; i++) {
        const struct push_series *s = &ps->g->series[i];
        rest[i] = (struct pprof_out_values){ s->nodes, s->values, s->len };
        if (kind != EXID_NONE && !rest_of(ps, s, kind, &rest[i]))
            return false;
        for (size_t k = 0; k < s->exemplars_len; k++)
            if (s->exemplars[k].kind == kind && kind != EXID_NONE &&
                !add_exemplar(ps, i, &s->exemplars[k]))
                return false;
    }
    return true;
}

static int write_profile(struct forward_made *m, const struct group *g, const struct parts *ps,
                         struct buf *plain, struct err *e)
{
    const struct window *w = m->p->window;
    struct stacks_view view = stacks_view(&m->p->push->stacks);
    struct pprof_out_type types[PPROF_OUT_TYPES_MAX];
    struct pprof_out out = {
        .stacks = &view,
        .types = types,
        .types_len = g->len,
        .parts = ps->all.ptr,
        .parts_len = ps->all.len,
        .period_type = { g->first.period_type, g->first.period_unit },
        .time_ns = w->start_ms * 1000000,
        .duration_ns = (w->end_ms - w->start_ms) * 1000000,
    };

    for (size_t i = 0; i < g->len; i++) {
        struct ptype t;
        if (ptype_parse(g->series[i].profile_type, &t, e))
            return e->code;
        types[i] = (struct pprof_out_type){ t.sample_type, t.sample_unit };
        if (g->series[i].unit > 1 && g->series[i].unit <= INT64_MAX)
            out.period = (int64_t)g->series[i].unit;
    }
    return pprof_out_write(&out, plain, e);
}

static int make_profile(struct forward_made *m, struct group *g, struct err *e)
{
    struct arena_mark mark = arena_mark(m->arena);
    struct parts ps = { .m = m, .g = g, .ids = map_str_new() };
    struct buf plain;

    buf_init(&plain, FORWARD_RECORD_MAX);
    if (!make_parts(&ps, kind_of(g))) { /* ids that do not add up are left out */
        ps.all.len = 0;
        int ok = make_parts(&ps, EXID_NONE);
        if (!ok)
            (void)err_set(e, ERR_LIMIT, "forwarding it takes more than %zu bytes",
                          arena_limit(m->arena));
        else
            err_clear(e);
    } else {
        err_clear(e);
    }
    int rc = e->code;
    if (!rc)
        rc = write_profile(m, g, &ps, &plain, e);
    if (!rc)
        rc = gzip(buf_str(&plain), GZIP_LEVEL, &g->profile, e);
    buf_deinit(&plain);
    vec_free(&ps.all);
    map_str_free(ps.ids);
    arena_rewind(m->arena, mark);
    return rc;
}

/* The version and variant of a UUID made of a hash (RFC 9562, version 8). */
static void make_uuid(struct hash128 id, uint64_t n, char ret[UUID_CHARS + 1])
{
    const uint64_t in[3] = { id.lo, id.hi, n };
    struct hash128 h = hash128(in, sizeof(in), 0x666f7277617264);

    (void)snprintf(ret, UUID_CHARS + 1, "%08x-%04x-8%03x-%04x-%012" PRIx64, (unsigned)(h.hi >> 32),
                   (unsigned)(h.hi >> 16) & 0xffffu, (unsigned)h.hi & 0xfffu,
                   ((unsigned)(h.lo >> 48) & 0x3fffu) | 0x8000u, h.lo & UINT64_C(0xffffffffffff));
}

int forward_made_new(const struct intake_packed *p, struct forward_made **ret, struct err *e)
{
    struct forward_made *m = XNEW(struct forward_made);

    m->p = p;
    m->arena = arena_new(SCRATCH_MAX);
    int rc = make_groups(m, e);
    for (size_t i = 0; !rc && i < m->groups.len; i++) {
        make_uuid(p->id, i, m->groups.ptr[i].uuid);
        rc = make_profile(m, &m->groups.ptr[i], e);
    }
    if (rc)
        forward_made_free(m);
    else
        *ret = m;
    return rc;
}

void forward_made_free(struct forward_made *m)
{
    if (!m)
        return;
    vec_for (i, &m->groups)
        buf_deinit(&m->groups.ptr[i].profile);
    vec_free(&m->groups);
    arena_free(m->arena);
    xfree(m);
}

/* ---- requests: push.v1 ---------------------------------------------------------------------- */

static void put_bytes(struct buf *b, uint32_t field, struct str s)
{
    wr_varint(b, field << 3 | 2);
    wr_varint(b, s.len);
    buf_add_str(b, s);
}

static void put_series(const struct group *g, const struct labels *l, struct buf *one,
                       struct buf *series, struct buf *body)
{
    buf_reset(series);
    for (size_t i = 0; i < l->len; i++) {
        buf_reset(one);
        put_bytes(one, 1, l->ptr[i].name);
        put_bytes(one, 2, l->ptr[i].value);
        put_bytes(series, 1, buf_str(one));
    }
    buf_reset(one);
    put_bytes(one, 1, buf_str(&g->profile));
    put_bytes(one, 2, str_c(g->uuid));
    put_bytes(series, 2, buf_str(one));
    put_bytes(body, 1, buf_str(series));
}

struct sender {
    struct forward_made *m;
    struct forward_target_conf *t;
    struct buf record, body, one, series;
    void (*add)(void *cookie, struct str record);
    void *cookie;
    bool failed;
};

static void send_request(struct sender *s, const char *path, const char *type, struct str key)
{
    struct forward_req r = { .hops = s->m->p->hops + 1,
                             .tenant = s->m->p->tenant,
                             .key = key,
                             .path = str_c(path),
                             .content_type = str_c(type),
                             .body = buf_str(&s->body) };

    buf_reset(&s->record);
    forward_req_write(&r, &s->record);
    s->failed |=
        !buf_ok(&s->record) || !buf_ok(&s->body) || !buf_ok(&s->one) || !buf_ok(&s->series);
    if (!s->failed)
        s->add(s->cookie, buf_str(&s->record));
    buf_reset(&s->body);
}

static void send_push(struct sender *s)
{
    if (s->body.len)
        send_request(s, "/push.v1.PusherService/Push", "application/proto", STR(""));
}

/* ---- requests: /ingest ---------------------------------------------------------------------- */

/* The grammar of names has no quoting: what it gives a meaning becomes '_'. */
enum part { PART_NAME, PART_KEY, PART_VALUE };
static void name_text(struct str s, enum part part, struct buf *out)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '_' || (part != PART_KEY && (c == '.' || c == '-'));
        bool bad = part == PART_VALUE ? c == ',' || c == '}' || c == '{' : !plain;
        if (bad)
            c = '_';
        if (plain || bad)
            buf_add_c(out, c);
        else
            buf_addf(out, "%%%02X", (unsigned)(unsigned char)c);
    }
}

/* The profiler's name; not of profilers whose function names the server would rewrite again. */
static struct str spy_of(const struct labels *l)
{
    static const char *const changed[] = { "pyspy", "rbspy", "scripting", "dotnetspy" };
    struct str spy = labels_get(l, STR(SPY_LABEL));

    for (size_t i = 0; i < ARRAY_LEN(changed); i++)
        if (str_eqc(spy, changed[i]))
            return STR("unknown");
    return spy.len ? spy : STR("unknown");
}

static void ingest_path(const struct sender *s, const struct labels *l, struct buf *out)
{
    const struct window *w = s->m->p->window;
    struct str service = labels_get(l, STR("service_name"));
    bool first = true;

    buf_add_str(out, STR("/ingest?name="));
    name_text(service.len ? service : s->m->p->push->service, PART_NAME, out);
    buf_add_str(out, STR("%7B"));
    for (size_t i = 0; i < l->len; i++) {
        const struct label *at = &l->ptr[i];
        if (str_starts(at->name, STR("__")) || str_eqc(at->name, "service_name") ||
            str_eqc(at->name, SPY_LABEL))
            continue;
        if (!first)
            buf_add_str(out, STR("%2C"));
        first = false;
        name_text(at->name, PART_KEY, out);
        buf_add_str(out, STR("%3D"));
        name_text(at->value, PART_VALUE, out);
    }
    buf_addf(out,
             "%%7D&from=%" PRId64 "&until=%" PRId64 "&sampleRate=100&spyName=", w->start_ms / 1000,
             MAX(w->end_ms / 1000, w->start_ms / 1000));
    name_text(spy_of(l), PART_KEY, out);
}

/* What old servers must be told of each type: they know a few of Go only. */
static void ingest_config(const struct group *g, struct buf *out)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    for (size_t i = 0; i < g->len; i++) {
        struct ptype t;
        struct err e;
        if (ptype_parse(g->series[i].profile_type, &t, &e))
            continue;
        json_key_str(&j, t.sample_type);
        json_obj(&j);
        json_put_str(&j, "units",
                     str_eqc(t.sample_unit, "bytes")   ? STR("bytes")
                     : str_eqc(t.sample_type, "delay") ? STR("lock_nanoseconds")
                                                       : STR("samples"));
        json_put_cstr(&j, "aggregation", g->series[i].gauge ? "average" : "sum");
        json_put_str(&j, "display-name", t.sample_type);
        json_put_bool(&j, "sampled", false);
        json_obj_end(&j);
    }
    json_obj_end(&j);
}

static void send_ingest(struct sender *s, const struct group *g, const struct labels *l)
{
    static const char part[] = "Content-Disposition: form-data; name=\"%s\"; filename=\"%s\"\r\n"
                               "Content-Type: application/octet-stream\r\n\r\n";
    char type[128];

    buf_reset(&s->one);
    ingest_path(s, l, &s->one);
    buf_add_c(&s->one, '\0');
    buf_reset(&s->series);
    ingest_config(g, &s->series);
    buf_reset(&s->body);
    buf_addf(&s->body, "--%s\r\n", g->uuid);
    buf_addf(&s->body, part, "profile", "profile.pprof");
    buf_add_str(&s->body, buf_str(&g->profile));
    buf_addf(&s->body, "\r\n--%s\r\n", g->uuid);
    buf_addf(&s->body, part, "sample_type_config", "sample_type_config.json");
    buf_add_str(&s->body, buf_str(&s->series));
    buf_addf(&s->body, "\r\n--%s--\r\n", g->uuid);
    (void)snprintf(type, sizeof(type), "multipart/form-data; boundary=%s", g->uuid);
    if (buf_ok(&s->one))
        send_request(s, s->one.ptr, type, str_c(g->uuid));
    else
        s->failed = true;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int send_group(struct sender *s, const struct group *g, uint64_t *ret_left_out,
                      struct err *e)
{
    struct labels l = { .len = g->labels.len };

    l.ptr = ARENA_ARRAY(s->m->arena, struct label, l.len + 1);
    if (!l.ptr)
        return err_set(e, ERR_LIMIT, "forwarding it takes more than %zu bytes",
                       arena_limit(s->m->arena));
    memcpy(l.ptr, g->labels.ptr, l.len * sizeof(*l.ptr));
    int rc = forward_conf_labels(s->t, &l, s->m->arena, e);
    if (rc < 0)
        return e->code;
    if (rc == 0) {
        (*ret_left_out)++;
        return 0;
    }
    if (s->t->mode == FORWARD_INGEST) {
        send_ingest(s, g, &l);
        return 0;
    }
    put_series(g, &l, &s->one, &s->series, &s->body);
    if (s->body.len >= REQUEST_BYTES)
        send_push(s);
    return 0;
}

int forward_make(struct forward_made *m, struct forward_target_conf *t,
                 void (*add)(void *cookie, struct str record), void *cookie, uint64_t *ret_left_out,
                 struct err *e)
{
    struct sender s = { .m = m, .t = t, .add = add, .cookie = cookie };
    struct arena_mark mark = arena_mark(m->arena);
    struct buf *const all[] = { &s.record, &s.body, &s.one, &s.series };
    int rc = 0;

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        buf_init(all[i], FORWARD_RECORD_MAX);
    *ret_left_out = 0;
    for (size_t i = 0; !rc && i < m->groups.len; i++)
        rc = send_group(&s, &m->groups.ptr[i], ret_left_out, e);
    if (!rc && t->mode == FORWARD_PUSH)
        send_push(&s);
    if (!rc && s.failed)
        rc = err_set(e, ERR_LIMIT, "a request of more than %zu bytes", (size_t)FORWARD_RECORD_MAX);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        buf_deinit(all[i]);
    arena_rewind(m->arena, mark);
    return rc;
}
