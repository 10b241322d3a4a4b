/* SPDX-License-Identifier: Apache-2.0
 *
 * push_msg: a PushRequest to profiles, and those to pushes.
 *
 *   message ─ series ─┬─ labels ──> checked ──> service, base labels, __name__ ─┐
 *                     └─ samples ─> gunzip ───> pprof ──────────────────────────┴─> push
 *
 * Memory: a label or a sample of two bytes must not cost many: of a series no more labels are kept
 * than any limit allows, series without samples leave nothing behind, and the number of profiles is
 * bounded by the caller. Profiles are unzipped one after the other into one buffer; what all of
 * them inflate to is bounded as well, since that is time.
 *
 * What differs from /ingest: the type's name is the label __name__, whatever the sample types are;
 * the time is the body's; labels are not parsed out of a name, so that values may hold anything.
 * Names that start with __ are the inside's: __name__ is used, the others left out. A name with the
 * prefix that Alloy gives to deltas of Go is the name without it.
 */
#include "distributor/formats/push_msg.h"

#include "common/base/base64.h"
#include "common/base/rd.h"
#include "distributor/formats/formats.h"

#define LABELS_KEPT  1024 /* of one series; no limit on label names is higher */
#define INFLATED_SUM 4    /* times the bytes one profile may inflate to */
#define DELTA_PREFIX "godeltaprof_"
#define SERVICE_NONE "unknown_service"
#define SERIES_FIRST 8

struct parse {
    struct arena *a;
    size_t most;
    struct push_msg *m;
    size_t cap;
    struct err *e;
};

static int no_room(struct err *e)
{
    return err_set(
        e, ERR_LIMIT,
        "the PushRequest takes more memory than one push may (distributor.decode_bytes)");
}

static bool malformed(const struct parse *s, const char *what)
{
    (void)err_set(s->e, ERR_INPUT, "PushRequest: malformed %s", what);
    return false;
}

/* Adds a profile; labels come when its series is over. */
static struct push_msg_profile *add_profile(struct parse *s)
{
    struct push_msg *m = s->m;

    if (m->len == s->most) {
        (void)err_set(s->e, ERR_LIMIT,
                      "a request with more than %zu profiles (distributor.request_profiles): send "
                      "it in parts",
                      s->most);
        return NULL;
    }
    if (m->len == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : SERIES_FIRST;
        struct push_msg_profile *p = ARENA_ARRAY(s->a, struct push_msg_profile, cap);
        if (!p) {
            (void)no_room(s->e);
            return NULL;
        }
        if (m->len)
            memcpy(p, m->profiles, m->len * sizeof(*p));
        m->profiles = p;
        s->cap = cap;
    }
    return &m->profiles[m->len++];
}

static bool keep_id(struct parse *s, struct push_msg_profile *p, struct str id)
{
    p->id = arena_strdup(s->a, str_sub(id, 0, PUSH_MSG_ID_MAX));
    return p->id.ptr || no_room(s->e) == 0;
}

/* ---- proto ---------------------------------------------------------------------------------- */

static bool parse_pair(const struct parse *s, struct str message, struct label *ret)
{
    struct rd r = rd_of(message);
    struct pb_field f;
    int got;

    *ret = (struct label){ STR(""), STR("") };
    while ((got = rd_pb(&r, &f)) > 0) {
        if (f.number > 2)
            continue;
        if (f.wire != 2)
            return malformed(s, "label");
        *(f.number == 1 ? &ret->name : &ret->value) = f.bytes;
    }
    return got == 0 || malformed(s, "label");
}

static bool parse_sample(struct parse *s, struct str message)
{
    struct push_msg_profile *p = add_profile(s);
    struct rd r = rd_of(message);
    struct pb_field f;
    int got;

    if (!p)
        return false;
    p->raw = STR("");
    p->id = STR("");
    while ((got = rd_pb(&r, &f)) > 0) {
        if (f.number > 2)
            continue;
        if (f.wire != 2)
            return malformed(s, "sample");
        if (f.number == 1)
            p->raw = f.bytes;
        else if (!keep_id(s, p, f.bytes))
            return false;
    }
    return got == 0 || malformed(s, "sample");
}

static bool parse_series(struct parse *s, struct str message)
{
    size_t first = s->m->len, labels = 0;
    struct rd r = rd_of(message), again = r;
    struct pb_field f;
    int got;

    while ((got = rd_pb(&r, &f)) > 0) {
        if (f.number == 0 || f.number > 2)
            continue;
        if (f.wire != 2)
            return malformed(s, "series");
        if (f.number == 1)
            labels++;
        else if (!parse_sample(s, f.bytes))
            return false;
    }
    if (got < 0)
        return malformed(s, "series");
    if (s->m->len == first)
        return true; /* without samples it leaves nothing behind */
    size_t keep = MIN(labels, LABELS_KEPT);
    struct labels list = { ARENA_ARRAY(s->a, struct label, keep + 1), 0 };
    if (!list.ptr)
        return no_room(s->e) == 0;
    while (list.len < keep && rd_pb(&again, &f) > 0)
        if (f.number == 1 && !parse_pair(s, f.bytes, &list.ptr[list.len++]))
            return false;
    for (size_t i = first; i < s->m->len; i++) {
        s->m->profiles[i].labels = list;
        s->m->profiles[i].labels_more = labels - keep;
    }
    return true;
}

static int parse_end(const struct parse *s)
{
    return s->m->len ? 0 : err_set(s->e, ERR_INPUT, "no profiles received");
}

int push_msg_proto(struct str message, size_t most, struct arena *a, struct push_msg *ret,
                   struct err *e)
{
    struct push_msg m = { 0 };
    struct parse s = { .a = a, .most = most, .m = &m, .e = e };
    struct rd r = rd_of(message);
    struct pb_field f;
    int got;

    while ((got = rd_pb(&r, &f)) > 0) {
        if (f.number != 1)
            continue;
        if (f.wire != 2)
            return err_set(e, ERR_INPUT, "PushRequest: malformed list of series");
        if (!parse_series(&s, f.bytes))
            return e->code;
    }
    if (got < 0)
        return err_set(e, ERR_INPUT, "PushRequest: malformed at byte %zu of %zu",
                       message.len - rd_left(&r), message.len);
    if (parse_end(&s))
        return e->code;
    *ret = m;
    return 0;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static int json_labels(struct parse *s, const struct json_val *v, struct labels *ret,
                       size_t *ret_more)
{
    size_t n = json_len(v), keep = MIN(n, LABELS_KEPT);
    struct labels list = { ARENA_ARRAY(s->a, struct label, keep + 1), keep };

    if (v && !json_is_arr(v))
        return err_set(s->e, ERR_INPUT, "labels is no list");
    if (!list.ptr)
        return no_room(s->e);
    for (size_t i = 0; i < keep; i++) {
        const struct json_val *pair = json_at(v, i);
        struct label *to = &list.ptr[i];
        *to = (struct label){ STR(""), STR("") };
        if (json_take_str(json_get(pair, "name", NULL), "name of a label", &to->name, s->e) ||
            json_take_str(json_get(pair, "value", NULL), "value of a label", &to->value, s->e))
            return s->e->code;
    }
    *ret = list;
    *ret_more = n - keep;
    return 0;
}

static int json_series(struct parse *s, const struct json_val *v)
{
    const struct json_val *samples = json_get(v, "samples", NULL);
    struct labels labels;
    struct str id;
    size_t more = 0;

    if (!json_is_obj(v) || (samples && !json_is_arr(samples)))
        return err_set(s->e, ERR_INPUT, "a series is no object, or its samples are no list");
    if (json_len(samples) == 0)
        return 0;
    if (json_labels(s, json_get(v, "labels", NULL), &labels, &more))
        return s->e->code;
    for (size_t i = 0; i < json_len(samples); i++) {
        const struct json_val *sample = json_at(samples, i);
        struct push_msg_profile *p = add_profile(s);
        if (!p)
            return s->e->code;
        *p = (struct push_msg_profile){
            .labels = labels, .labels_more = more, .raw = STR(""), .base64 = true
        };
        id = STR("");
        if (json_take_str(json_get(sample, "rawProfile", "raw_profile"), "rawProfile", &p->raw,
                          s->e) ||
            json_take_str(json_get(sample, "ID", "id"), "ID", &id, s->e) || !keep_id(s, p, id))
            return s->e->code;
    }
    return 0;
}

int push_msg_json(const struct json_val *root, size_t most, struct arena *a, struct push_msg *ret,
                  struct err *e)
{
    const struct json_val *series = json_get(root, "series", NULL);
    struct push_msg m = { 0 };
    struct parse s = { .a = a, .most = most, .m = &m, .e = e };

    if (series && !json_is_arr(series))
        return err_set(e, ERR_INPUT, "PushRequest: series is no list");
    for (size_t i = 0; i < json_len(series); i++)
        if (json_series(&s, json_at(series, i)))
            return err_wrap(e, "PushRequest: series %zu", i);
    if (parse_end(&s))
        return e->code;
    *ret = m;
    return 0;
}

/* ---- profiles to pushes ---------------------------------------------------------------------- */

/* In the order of proto/WIRE.md, "Push labels". */
static int check_labels(const struct push_msg_profile *p, const struct limits *l, struct err *e)
{
    size_t n = p->labels.len + p->labels_more;

    if (n == 0)
        return err_set(e, ERR_INPUT, "missing_labels: the series has no labels");
    if (n > l->label_names)
        return err_set(e, ERR_LIMIT,
                       "max_label_names_per_series: the series has %zu labels, at most %" PRIu64, n,
                       l->label_names);
    for (size_t i = 0; i < p->labels.len; i++) {
        const struct label *at = &p->labels.ptr[i];
        if (at->name.len > l->label_name_bytes)
            return err_set(e, ERR_LIMIT, "label_name_too_long: %zu bytes, at most %" PRIu64,
                           at->name.len, l->label_name_bytes);
        if (at->value.len > l->label_value_bytes)
            return err_set(
                e, ERR_LIMIT, "label_value_too_long: %zu bytes of %.*s, at most %" PRIu64,
                at->value.len, (int)MIN(at->name.len, 100), at->name.ptr, l->label_value_bytes);
        if (at->name.len == 0 || !str_utf8_valid(at->name) || !str_utf8_valid(at->value))
            return err_set(e, ERR_INPUT,
                           "invalid_labels: a name is empty, or it or its value is no UTF-8");
    }
    return 0;
}

/* The labels as the name of a push would give them; those without a value are left out. */
static int take_labels(const struct push_msg_profile *p, struct arena *a, struct ingest *in,
                       struct str *ret_name, struct err *e)
{
    struct labels out = { ARENA_ARRAY(a, struct label, p->labels.len + 1), 0 };

    if (!out.ptr)
        return no_room(e);
    for (size_t i = 0; i < p->labels.len; i++)
        if (p->labels.ptr[i].value.len)
            out.ptr[out.len++] = p->labels.ptr[i];
    if (labels_sort(&out, e))
        return err_wrap(e, "duplicate_label_names");
    struct str name = labels_get(&out, STR("__name__"));
    if (!name.len)
        return err_set(e, ERR_INPUT, "invalid_labels: there is no __name__, the kind of profile");
    if (str_starts(name, STR(DELTA_PREFIX)) && name.len > strlen(DELTA_PREFIX))
        name = str_sub(name, strlen(DELTA_PREFIX), name.len);
    *ret_name = name;
    in->name.app = labels_get(&out, STR("service_name"));
    if (!in->name.app.len)
        in->name.app = STR(SERVICE_NONE);
    labels_del(&out, STR("service_name"));
    in->name.labels = out;
    in->format = FORMAT_PPROF;
    return 0;
}

struct decode {
    const struct batch_sink *sink;
    struct buf text;  /* out of base64 */
    struct buf plain; /* out of gzip */
    uint64_t inflated;
};

static int raw_bytes(struct decode *d, const struct push_msg_profile *p, struct str *ret,
                     struct err *e)
{
    *ret = p->raw;
    if (!p->base64)
        return 0;
    buf_reset(&d->text);
    if (!base64_decode(p->raw, &d->text))
        return err_set(e, ERR_INPUT, "rawProfile is no base64, or more than %zu bytes of it",
                       d->text.max);
    *ret = buf_str(&d->text);
    return 0;
}

static int plain_bytes(struct decode *d, struct str raw, struct str *ret, struct err *e)
{
    const struct inflate_limits l = limits_inflate(d->sink->limits);

    *ret = raw;
    if (!gzip_sniff(raw))
        return 0;
    buf_reset(&d->plain);
    if (gunzip(raw, &l, &d->plain, e))
        return err_wrap(e, "profile_size_limit or no gzip");
    *ret = buf_str(&d->plain);
    return gzip_sniff(*ret) ? err_set(e, ERR_INPUT, "pprof: gzip inside gzip") : 0;
}

/* The sum is what a request may cost: over it all of it is refused. */
static int count_inflated(struct decode *d, size_t bytes, struct err *e)
{
    uint64_t most = INFLATED_SUM * d->sink->limits->inflated_bytes;

    d->inflated += bytes;
    if (d->inflated <= most)
        return 0;
    return err_set(e, ERR_LIMIT,
                   "body_size_limit_exceeded: the profiles of this request inflate to more than "
                   "%" PRIu64 " bytes (%d times distributor.inflated_bytes): send it in parts",
                   most, INFLATED_SUM);
}

static int push_one(struct decode *d, const struct push_msg_profile *p, struct arena *a,
                    struct err *e)
{
    const struct batch_sink *sink = d->sink;
    struct sample_config config = { 0 };
    struct ingest in = { 0 };
    struct str raw, plain;
    struct push *push;
    struct err why;

    if (check_labels(p, sink->limits, &why) || take_labels(p, a, &in, &config.series_name, &why) ||
        raw_bytes(d, p, &raw, &why) || plain_bytes(d, raw, &plain, &why)) {
        sink->reject(sink->cookie, NULL, 1, &why);
        return 0;
    }
    if (count_inflated(d, plain.len, e))
        return e->code;
    push = sink->begin(sink->cookie, &in, e);
    if (!push)
        return e->code;
    const struct decode_job job = { &in, sink->limits, sink->now_ms, push };
    if (formats_pprof(&job, plain, &config, &why)) {
        sink->reject(sink->cookie, push, 1, &why);
        return 0;
    }
    return sink->end(sink->cookie, push, raw, p->id, e);
}

int push_msg_push(const struct push_msg *m, const struct batch_sink *sink, struct err *e)
{
    struct decode d = { .sink = sink };
    struct arena *a = arena_new(4 * MIB);
    int rc = 0;

    buf_init(&d.text, (size_t)sink->limits->inflated_bytes);
    buf_init(&d.plain, (size_t)sink->limits->inflated_bytes);
    for (size_t i = 0; i < m->len && !rc; i++) {
        rc = push_one(&d, &m->profiles[i], a, e);
        arena_reset(a);
    }
    buf_deinit(&d.text);
    buf_deinit(&d.plain);
    arena_free(a);
    return rc;
}
