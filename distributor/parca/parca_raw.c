/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_raw: what Parca's scraper and clients of WriteRaw send.
 *
 * The service comes from the labels as for samples (parca_labels.c); __name__ names the profile
 * type, and without it the sample types do, as in /ingest. With `normalized` the addresses are
 * those of the ELF file already: mappings then name their files, and nothing is subtracted.
 * executable_info is not looked at: it says where segments are, which the file itself says better.
 * Counters since the start of a process become growth (parca_growth.c).
 */
#include "distributor/parca/parca_raw.h"

#include "common/base/rd.h"
#include "distributor/formats/formats.h"
#include "distributor/parca/parca_growth.h"
#include "distributor/parca/parca_labels.h"

#define LABELS_MAX   1024 /* of one series */
#define INFLATED_SUM 4    /* times the bytes one profile may inflate to */

struct raw {
    const struct parca_opts *o;
    const struct batch_sink *sink;
    bool normalized;
    uint64_t inflated;
    struct buf plain;
};
struct raw_series {
    struct label *given;
    size_t len;
    struct parca_set set;
    struct str name;
};

static int malformed(const char *what, struct err *e)
{
    return err_set(e, ERR_INPUT, "WriteRawRequest: malformed %s", what);
}

static int take_label(struct str message, struct raw_series *s, struct err *e)
{
    struct label l = { STR(""), STR("") };
    struct rd r = rd_of(message);
    struct pb_field f;
    int got;

    while ((got = rd_pb(&r, &f)) > 0) {
        if (f.number > 2)
            continue;
        if (f.wire != 2)
            return malformed("label", e);
        *(f.number == 1 ? &l.name : &l.value) = f.bytes;
    }
    if (got < 0)
        return malformed("label", e);
    if (s->len == LABELS_MAX)
        return err_set(e, ERR_LIMIT, "WriteRawRequest: a series with more than %d labels",
                       LABELS_MAX);
    if (str_eqc(l.name, "__name__"))
        s->name = l.value;
    s->given[s->len++] = l;
    return 0;
}

static int take_labels(struct str message, struct raw_series *s, struct err *e)
{
    struct rd r = rd_of(message);
    struct pb_field f;
    int got;

    while ((got = rd_pb(&r, &f)) > 0) {
        if (f.number != 1)
            continue;
        if (f.wire != 2)
            return malformed("labels", e);
        if (take_label(f.bytes, s, e))
            return e->code;
    }
    return got == 0 ? 0 : malformed("labels", e);
}

static int find_profile(struct str sample, struct str *ret, struct err *e)
{
    struct rd r = rd_of(sample);
    struct pb_field f;
    int got;

    *ret = STR("");
    while ((got = rd_pb(&r, &f)) > 0) {
        if (f.number != 1)
            continue;
        if (f.wire != 2)
            return malformed("sample", e);
        *ret = f.bytes;
    }
    return got == 0 ? 0 : malformed("sample", e);
}

/* One layer of gzip off. What all profiles inflate to is bounded, since it is time. */
static int plain_bytes(struct raw *x, struct str body, struct str *ret, struct err *why,
                       struct err *e)
{
    const struct limits *limits = x->sink->limits;
    const struct inflate_limits l = limits_inflate(limits);

    *ret = body;
    why->code = 0;
    if (gzip_sniff(body)) {
        buf_reset(&x->plain);
        if (gunzip(body, &l, &x->plain, why))
            return 0;
        *ret = buf_str(&x->plain);
        if (gzip_sniff(*ret)) {
            (void)err_set(why, ERR_INPUT, "pprof: gzip inside gzip");
            return 0;
        }
    }
    x->inflated += ret->len;
    return x->inflated <= INFLATED_SUM * limits->inflated_bytes
               ? 0
               : err_set(e, ERR_LIMIT,
                         "the profiles of this request inflate to more than %" PRIu64
                         " bytes: send it in parts",
                         INFLATED_SUM * limits->inflated_bytes);
}

/* The decoder made a row of the intake's result. */
static void count_row(const struct raw *x)
{
    if (x->o->turn)
        x->o->turn->rows++;
}

static int push_sample(struct raw *x, const struct raw_series *s, struct str sample, struct err *e)
{
    const struct sample_config config = { .series_name = s->name, .file_addresses = x->normalized };
    const struct ingest in = { .name = { .app = s->set.service, .labels = s->set.labels },
                               .format = FORMAT_PPROF,
                               .spy = STR("parca") };
    const struct batch_sink *sink = x->sink;
    struct parca_profile profile = { .in = &in, .config = &config };
    struct str body, plain;
    struct err why;
    int rc;

    if (find_profile(sample, &body, e) || plain_bytes(x, body, &plain, &why, e))
        return e->code;
    if (why.code) {
        sink->reject(sink->cookie, NULL, 1, &why);
        count_row(x);
        return 0;
    }
    profile.body = body;
    profile.plain = plain;
    if (x->o->turn && parca_growth_push(x->o->turn, &profile, sink, &rc, e))
        return rc;
    struct push *push = sink->begin(sink->cookie, &in, e);
    if (!push)
        return e->code;
    count_row(x);
    const struct decode_job job = { &in, sink->limits, sink->now_ms, push };
    if (formats_pprof(&job, plain, &config, &why)) {
        sink->reject(sink->cookie, push, 1, &why);
        return 0;
    }
    return sink->end(sink->cookie, push, body, STR_NULL, e);
}

static int push_series(struct raw *x, struct str message, struct arena *a, struct err *e)
{
    struct raw_series s = { .given = ARENA_ARRAY(a, struct label, LABELS_MAX) };
    struct rd r = rd_of(message), again = r;
    struct pb_field f;
    int got;

    CHECK(s.given);
    while ((got = rd_pb(&r, &f)) > 0) {
        if (f.number == 0 || f.number > 2)
            continue;
        if (f.wire != 2)
            return malformed("series", e);
        if (f.number == 1 && take_labels(f.bytes, &s, e))
            return e->code;
    }
    if (got < 0)
        return malformed("series", e);
    const struct labels given = { s.given, s.len };
    if (parca_set(&given, x->o->drop_labels, x->sink->limits, a, &s.set, e))
        return e->code;
    while (rd_pb(&again, &f) > 0)
        if (f.number == 2 && push_sample(x, &s, f.bytes, e))
            return e->code;
    return 0;
}

/* `normalized` may stand behind the series. */
static int find_normalized(struct str message, bool *ret, struct err *e)
{
    struct rd r = rd_of(message);
    struct pb_field f;
    int got;

    while ((got = rd_pb(&r, &f)) > 0)
        if (f.number == 3 && f.wire == 0)
            *ret = f.u64 != 0;
    return got == 0 ? 0 : malformed("message", e);
}

int parca_raw_push(struct str message, const struct parca_opts *o, const struct batch_sink *sink,
                   struct err *e)
{
    struct arena *a = arena_new(8 * MIB + (size_t)sink->limits->label_value_bytes * LABELS_MAX);
    struct raw x = { .o = o, .sink = sink };
    struct rd r = rd_of(message);
    struct pb_field f;

    buf_init(&x.plain, (size_t)sink->limits->inflated_bytes);
    int rc = find_normalized(message, &x.normalized, e);
    while (!rc && rd_pb(&r, &f) > 0) {
        if (f.number != 2)
            continue;
        rc = f.wire == 2 ? push_series(&x, f.bytes, a, e) : malformed("list of series", e);
        arena_reset(a);
    }
    buf_deinit(&x.plain);
    arena_free(a);
    return rc;
}
