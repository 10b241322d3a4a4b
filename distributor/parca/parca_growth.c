/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_growth: Parca in scraper mode sends Go's heap, mutex and block profiles as it finds them.
 * Their counters grow as long as the process lives; added up, each scrape would count everything
 * since the start again. What is stored is the difference to the last profile of the series:
 *
 *   the series is new, or its last profile is too old    gauges only
 *   it is the last one, sent again                       nothing: it is stored
 *   it is older than the last one                        gauges only, and it is not remembered
 *   a profile before it is doubtful                      the doubtful one again, and its gauges
 *   its counters are below those of the last one         all of it: the process was started again
 *   else                                                 the growth
 *
 * A series is (tenant, service, labels, name, sample types). Growth of up to 15 s is a point at the
 * time of the profile, as agents send it; of more it is spread from the last profile to this one,
 * and gauges then count at the beginning, once in a leaf. What is a counter, and since when, is the
 * matter of formats/pprof/pprof_since.c; what was stored that of parca_since.c.
 */
#include "distributor/parca/parca_growth.h"

#include "common/base/mem.h"
#include "common/model/slot.h"
#include "distributor/base/window.h"
#include "distributor/formats/pprof/pprof_since.h"

#define KEY_MAX   MIB
#define NS_PER_MS INT64_C(1000000)

struct growth {
    struct parca_turn *turn;
    const struct parca_profile *p;
    const struct batch_sink *sink;
    struct parca_series *series;
    int64_t at_ms;
    bool has_time;
    struct buf tmp; /* the profile to subtract, without gzip */
};

/* The body without gzip, in g->tmp; {NULL, 0} if it cannot be read under the limits of today. */
static struct str unzip_last(struct growth *g, const struct parca_body *b)
{
    const struct inflate_limits l = limits_inflate(g->sink->limits);
    struct str body = str_n(b->bytes, b->len);
    struct err ignored;

    if (!gzip_sniff(body))
        return body;
    buf_reset(&g->tmp);
    return gunzip(body, &l, &g->tmp, &ignored) ? STR_NULL : buf_str(&g->tmp);
}

/* Gauges of one leaf add up, as those of several senders must: a series has one in each leaf. */
static void thin_gauges(struct push *push)
{
    size_t kept = 0;

    for (size_t i = 0; i < push->series_len; i++)
        if (!push->series[i].gauge)
            push->series[kept++] = push->series[i];
    push->series_len = kept;
}

/* The bytes that a push is made of. */
struct difference {
    struct str plain, prev; /* its values are those of `plain` minus those of `prev` */
    struct str identity;    /* the bytes that a retry repeats */
};

/* Makes one profile a push. `last` is the profile before it; NULL: there is not any, or only gauges
 * are stored. *at_ms is the time of the profile, and becomes that of its gauges. */
static int hand_over(struct growth *g, const struct difference *d, const struct parca_body *last,
                     int64_t *at_ms, struct err *e)
{
    const struct batch_sink *sink = g->sink;
    struct ingest *in = xmemdup(g->p->in, sizeof(*in));
    int64_t from = last ? last->at_ms : *at_ms;
    struct err why;
    int rc = 0;

    if (*at_ms - from > WINDOW_WHOLE_MS && *at_ms <= sink->now_ms && *at_ms > sink->oldest_ms) {
        in->has_from = in->has_until = true;
        in->from_ms = MAX(from, sink->oldest_ms);
        in->until_ms = *at_ms;
        *at_ms = in->from_ms;
    }
    struct push *push = sink->begin(sink->cookie, in, e);
    if (!push) {
        rc = e->code;
    } else {
        g->turn->rows++;
        const struct decode_job job = { in, sink->limits, sink->now_ms, push };
        if (formats_pprof_since(&job, d->plain, d->prev, g->p->config, &why)) {
            sink->reject(sink->cookie, push, 1, &why);
        } else {
            if (last && last->leaf == *at_ms / LEAF_MS)
                thin_gauges(push);
            rc = sink->end(sink->cookie, push, d->identity, STR_NULL, e);
        }
    }
    xfree(in);
    return rc;
}

/* The growth since `last`, or only gauges if that is NULL. */
static int push_since(struct growth *g, struct str plain, struct str identity,
                      const struct parca_body *last, int64_t *at_ms, struct err *e)
{
    struct str prev = plain;
    struct err why;

    if (last && pprof_since_choose(plain, unzip_last(g, last), g->sink->limits, &prev, &why))
        prev = plain; /* decoding it again will say what is wrong */
    return hand_over(g, &(struct difference){ plain, prev, identity }, last, at_ms, e);
}

static bool is_same(const struct growth *g, const struct parca_body *b)
{
    return b && str_eq(str_n(b->bytes, b->len), g->p->body);
}

/* Stores the doubtful profile again, with the same bytes and ids as in the first attempt. False: it
 * cannot be read any more. */
static bool push_doubt(struct growth *g, const struct parca_body *doubt,
                       const struct parca_body *last, int *ret_rc, struct err *e)
{
    const struct inflate_limits l = limits_inflate(g->sink->limits);
    struct parca_step step = { .series = g->series, .doubt_row = g->turn->rows };
    struct str body = str_n(doubt->bytes, doubt->len), plain = body;
    int64_t at_ms = doubt->at_ms;
    struct err ignored;
    struct buf tmp;

    buf_init(&tmp, l.bytes_max);
    bool ok = !gzip_sniff(body) || gunzip(body, &l, &tmp, &ignored) == 0;
    if (ok) {
        plain = tmp.len ? buf_str(&tmp) : body;
        *ret_rc = push_since(g, plain, body, last, &at_ms, e);
        parca_turn_add(g->turn, &step);
    }
    buf_deinit(&tmp);
    return ok;
}

/* Hands the profile over; it is remembered if `remember`. */
static int push_this(struct growth *g, const struct parca_body *last, bool remember, bool again,
                     struct err *e)
{
    struct parca_step step = {
        .series = g->series, .row = g->turn->rows, .doubt_row = PARCA_NO_ROW, .again = again
    };
    int64_t start_ms = g->at_ms;

    if (push_since(g, g->p->plain, g->p->body, last, &start_ms, e))
        return e->code;
    parca_turn_seen(g->series, g->at_ms);
    if (!remember)
        return 0;
    step.body = (struct parca_body){ .bytes = xmemdup(g->p->body.ptr, g->p->body.len),
                                     .len = g->p->body.len,
                                     .at_ms = g->at_ms,
                                     .leaf = start_ms / LEAF_MS,
                                     .has_time = g->has_time };
    parca_turn_add(g->turn, &step);
    return 0;
}

static int push_profile(struct growth *g, struct err *e)
{
    const struct parca_body *last = parca_turn_last(g->turn, g->series, g->at_ms);
    const struct parca_body *doubt = parca_turn_doubt(g->series);
    int rc = 0;

    if (is_same(g, last))
        return 0;
    if (last && g->at_ms <= last->at_ms)
        return push_this(g, NULL, false, false, e);
    if (!doubt || is_same(g, doubt))
        return push_this(g, last, true, doubt != NULL, e);
    if (!parca_turn_began(g->turn, g->series) && !push_doubt(g, doubt, last, &rc, e)) {
        parca_turn_forget(g->series);
        return push_this(g, NULL, true, false, e);
    }
    return rc ? rc : push_this(g, NULL, false, false, e);
}

static void add_key(struct buf *key, const struct parca_turn *t, const struct parca_profile *p)
{
    const struct str parts[] = { t->tenant, p->in->name.app, p->config->series_name };

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        (void)buf_add_str(key, parts[i]);
        (void)buf_add_c(key, '\0');
    }
    labels_encode(&p->in->name.labels, key);
}

bool parca_growth_push(struct parca_turn *t, const struct parca_profile *p,
                       const struct batch_sink *sink, int *ret_rc, struct err *e)
{
    struct growth g = { .turn = t, .p = p, .sink = sink };
    struct err why;
    struct buf key;

    buf_init(&key, KEY_MAX);
    struct pprof_claims claims = pprof_since_claims(p->plain, sink->limits, &key);
    if (!claims.counters) {
        buf_deinit(&key);
        return false;
    }
    add_key(&key, t, p);
    g.has_time = claims.time_ns > 0;
    g.at_ms = g.has_time ? claims.time_ns / NS_PER_MS : sink->now_ms;
    buf_init(&g.tmp, (size_t)sink->limits->inflated_bytes);
    int rc = parca_turn_enter(t, buf_str(&key), &g.series, &why);
    *ret_rc = 0;
    if (rc == ERR_LIMIT) { /* nothing can be subtracted: as a first one */
        *ret_rc = push_since(&g, p->plain, p->body, NULL, &g.at_ms, e);
    } else if (rc) {
        sink->reject(sink->cookie, NULL, 1, &why);
        t->rows++;
    } else {
        *ret_rc = push_profile(&g, e);
    }
    buf_deinit(&g.tmp);
    buf_deinit(&key);
    return true;
}
