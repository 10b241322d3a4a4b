/* SPDX-License-Identifier: Apache-2.0
 *
 * year: which stacks a pod shows, and how often.
 *
 * Stack i has the weight (i + q)^-s (Zipf-Mandelbrot): for many samples the number of different
 * stacks grows like n^(1/s), up to the number there is; q is chosen so that the samples of 10 s hit
 * as many different ones as was measured. Stacks belong to 16 moods whose shares swing with
 * periods from half an hour to nine hours, a little different in each pod, so that neighbours in
 * time are alike and hours are not. Drawing is by Vose's alias method (IEEE TSE 1991), one table
 * per mood.
 */
#include "tests/lib/gen/year.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/hash.h"
#include "common/model/slot.h"
#include "tests/lib/gen/year_impl.h"

#define RESTART_DAYS 9

/* ---- weights ---- */

static double distinct(const double *p, size_t n, double samples)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += -expm1(samples * log1p(-p[i]));
    return sum;
}

static void weigh(double *p, size_t n, double q, double s)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += p[i] = pow((double)i + q, -s);
    for (size_t i = 0; i < n; i++)
        p[i] = MIN(p[i] / sum, 0.999);
}

static void choose_weights(struct year *y, double *p, size_t n)
{
    const struct year_kind_row *row = y->stacks.row;
    double lo = 0.5, hi = 1e6;

    for (int i = 0; i < 60; i++) {
        double mid = sqrt(lo * hi);
        weigh(p, n, mid, 1 / row->beta);
        if (distinct(p, n, row->samples) < row->stacks)
            lo = mid;
        else
            hi = mid;
    }
}

static void fill_alias(struct year_mood *m, double *w)
{
    uint32_t *low = XNEW_ARRAY(uint32_t, m->len), *high = XNEW_ARRAY(uint32_t, m->len);
    size_t lows = 0, highs = 0;

    for (size_t i = 0; i < m->len; i++) {
        w[i] *= (double)m->len / m->share;
        m->at[i].cut = UINT32_MAX;
        if (w[i] < 1)
            low[lows++] = (uint32_t)i;
        else
            high[highs++] = (uint32_t)i;
    }
    while (lows && highs) {
        uint32_t l = low[--lows], h = high[highs - 1];
        m->at[l].cut = (uint32_t)(w[l] * 4294967295.0);
        m->at[l].other = m->at[h].stack;
        w[h] -= 1 - w[l];
        if (w[h] < 1) {
            highs--;
            low[lows++] = h;
        }
    }
    xfree(low);
    xfree(high);
}

static void make_moods(struct year *y)
{
    size_t n = y->stacks.node.len;
    double *p = XNEW_ARRAY(double, n), *w = XNEW_ARRAY(double, n);

    choose_weights(y, p, n);
    for (uint32_t g = 0; g < YEAR_MOODS; g++) {
        struct year_mood *m = &y->moods[g];
        m->at = XNEW_ARRAY(struct year_alias, n / YEAR_MOODS + 1);
        for (size_t i = g; i < n; i += YEAR_MOODS) {
            m->at[m->len].stack = m->at[m->len].other = (uint32_t)i;
            w[m->len++] = p[i];
            m->share += p[i];
        }
        fill_alias(m, w);
        m->period_slots = 360.0 * pow(18.0, (double)g / (YEAR_MOODS - 1));
    }
    xfree(p);
    xfree(w);
}

/* ---- time ---- */

static uint64_t mix(const struct year *y, uint64_t a, uint64_t b, uint64_t c)
{
    return hash_u64(y->o.seed ^ hash_u64(a + hash_u64(b + hash_u64(c + 77))));
}

static uint32_t deploy_at(const struct year *y, uint32_t slot)
{
    return y->o.deploy_days ? (slot - y->o.start) / (y->o.deploy_days * YEAR_DAY_SLOTS) : 0;
}

/* Share of the nominal load. */
static double activity(const struct year *y, uint32_t slot)
{
    uint32_t day = slot / YEAR_DAY_SLOTS % 7;
    double hour = (double)(slot % YEAR_DAY_SLOTS) / 720.0;

    if (y->o.no_nights)
        return 1;
    double wave = 0.5 - 0.5 * cos((hour - 3) / 24 * 2 * M_PI); /* 0 at 3 h, 1 at 15 h */
    return (0.12 + 0.98 * wave) * (day >= 5 ? 0.6 : 1.0);
}

static void deploys_until(struct year *y, uint32_t slot)
{
    uint32_t want = deploy_at(y, slot);

    CHECK(want >= y->stacks.deploy);
    for (; y->stacks.deploy < want; y->ranked = false)
        year_stacks_deploy(&y->stacks, y->o.moved);
}

/* ---- drawing ---- */

static int by_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Stacks in the order of their nodes since the last deploy: values counted by rank come out
 * sorted. */
static void rank_stacks(struct year *y)
{
    size_t n = y->stacks.node.len;
    uint64_t *order = XNEW_ARRAY(uint64_t, n);

    for (size_t i = 0; i < n; i++)
        order[i] = (uint64_t)y->stacks.node.ptr[i] << 32 | i;
    qsort(order, n, sizeof(*order), by_u64);
    for (size_t i = 0; i < n; i++) {
        y->rank_node[i] = (uint32_t)(order[i] >> 32);
        y->rank_of[(uint32_t)order[i]] = (uint32_t)i;
    }
    xfree(order);
    for (uint32_t g = 0; g < YEAR_MOODS; g++) {
        struct year_mood *m = &y->moods[g];
        for (size_t i = 0; i < m->len; i++) {
            m->at[i].rank[0] = y->rank_of[m->at[i].stack];
            m->at[i].rank[1] = y->rank_of[m->at[i].other];
        }
    }
    y->ranked = true;
}

static void draw(struct year *y, const struct year_mood *m, struct prng *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t r = prng_u64(p);
        const struct year_alias *a = &m->at[(r >> 32) * m->len >> 32];
        uint32_t rank = a->rank[(uint32_t)r > a->cut];
        y->counts[rank]++;
        y->hit[rank / 64] |= UINT64_C(1) << rank % 64;
    }
}

/* Two stacks may have become one node: a deploy can move a line to where another one was. */
static size_t collect(struct year *y)
{
    uint64_t unit = y->stacks.row->unit;
    size_t words = (y->stacks.node.len + 63) / 64, len = 0;

    for (size_t w = 0; w < words; w++) {
        for (uint64_t bits = y->hit[w]; bits; bits &= bits - 1) {
            size_t rank = w * 64 + (size_t)__builtin_ctzll(bits);
            uint32_t node = y->rank_node[rank];
            uint64_t value = y->counts[rank] * unit;
            y->counts[rank] = 0;
            if (len && y->nodes[len - 1] == node) {
                y->values[len - 1] += value;
                continue;
            }
            y->nodes[len] = node;
            y->values[len++] = value;
        }
        y->hit[w] = 0;
    }
    return len;
}

struct year_profile year_profile(struct year *y, uint32_t pod, uint32_t slot, uint32_t slots)
{
    double shares[YEAR_MOODS], sum = 0, left = 0;
    struct prng p;

    deploys_until(y, slot);
    if (!y->ranked)
        rank_stacks(y);
    prng_init(&p, mix(y, pod, slot, slots));
    double mood = 0.85 + 0.3 * (double)(mix(y, pod, 1, 2) % 1000) / 1000;
    double samples = activity(y, slot) * mood * y->o.samples * slots / LEAF_SLOTS;
    uint64_t n = (uint64_t)(samples * (0.9 + 0.2 * prng_unit(&p))) + 1, total = 0;
    for (uint32_t g = 0; g < YEAR_MOODS; g++) {
        const struct year_mood *m = &y->moods[g];
        double phase = (double)(mix(y, g, pod / 4, 3) % 1000) / 1000;
        shares[g] = m->share * (1 + 0.9 * sin((slot / m->period_slots + phase) * 2 * M_PI));
        sum += shares[g];
    }
    for (uint32_t g = 0; g < YEAR_MOODS; g++) {
        left += shares[g] / sum * (double)n;
        uint64_t here = (uint64_t)left + prng_chance(&p, left - floor(left));
        left -= (double)here;
        if (left <= -2)
            continue;
        draw(y, &y->moods[g], &p, here);
        total += here;
    }
    if (!total) {
        draw(y, &y->moods[0], &p, 1);
        total = 1;
    }
    size_t len = collect(y);
    return (struct year_profile){ y->nodes, y->values, len, total };
}

/* ---- labels ---- */

void year_labels(const struct year *y, uint32_t pod, uint32_t slot, struct year_labels *ret)
{
    uint32_t born = (slot - y->o.start +
                     (uint32_t)(mix(y, pod, 4, 4) % YEAR_DAY_SLOTS) * (pod % RESTART_DAYS)) /
                    (RESTART_DAYS * YEAR_DAY_SLOTS);
    uint32_t deploy = deploy_at(y, slot);
    if (y->o.no_restarts)
        born = 0;
    int n = snprintf(ret->pod, sizeof(ret->pod), "%s-%08x-%010" PRIx64, y->o.service,
                     (unsigned)(mix(y, deploy, 5, 5) & 0xffffffff),
                     mix(y, pod, born, deploy) & 0xffffffffff);
    size_t len = 0;

    ret->at[len++] = (struct label){ STR("namespace"), STR("production") };
    ret->at[len++] = (struct label){ STR("pod"), str_n(ret->pod, (size_t)n) };
    ret->at[len++] = (struct label){ STR("service_name"), str_c(y->o.service) };
    if (y->o.zones) {
        n = snprintf(ret->zone, sizeof(ret->zone), "zone-%u", pod % y->o.zones);
        ret->at[len++] = (struct label){ STR("zone"), str_n(ret->zone, (size_t)n) };
    }
    ret->labels = (struct labels){ ret->at, len };
}

/* ---- begin and end ---- */

struct year *year_new(const struct year_opts *o)
{
    struct year *y = XNEW(struct year);

    y->o = *o;
    if (!y->o.service)
        y->o.service = year_kinds[o->kind].name;
    if (!y->o.samples)
        y->o.samples = year_kinds[o->kind].samples;
    CHECK(o->pods && o->stacks && o->start % YEAR_DAY_SLOTS == 0);
    year_stacks_init(&y->stacks, o->kind, o->stacks, o->seed);
    size_t n = y->stacks.node.len;
    y->counts = XNEW_ARRAY(uint32_t, n);
    y->rank_of = XNEW_ARRAY(uint32_t, n);
    y->rank_node = XNEW_ARRAY(uint32_t, n);
    y->hit = XNEW_ARRAY(uint64_t, (n + 63) / 64);
    y->nodes = XNEW_ARRAY(uint32_t, n);
    y->values = XNEW_ARRAY(uint64_t, n);
    y->member_of = XNEW_ARRAY(uint32_t, o->pods);
    make_moods(y);
    year_request_init(y);
    return y;
}

void year_free(struct year *y)
{
    if (!y)
        return;
    for (uint32_t g = 0; g < YEAR_MOODS; g++)
        xfree(y->moods[g].at);
    year_stacks_deinit(&y->stacks);
    xfree(y->counts);
    xfree(y->member_of);
    xfree(y->rank_of);
    xfree(y->rank_node);
    xfree(y->hit);
    xfree(y->nodes);
    xfree(y->values);
    year_request_deinit(y);
    xfree(y);
}

const struct year_stacks *year_stacks(const struct year *y)
{
    return &y->stacks;
}

/* ---- the fit ---- */

static size_t union_len(struct year *y, uint32_t slot, uint32_t windows, uint8_t *seen)
{
    size_t n = 0;

    memset(seen, 0, y->stacks.all.node_parent.len + 1);
    for (uint32_t i = 0; i < windows; i++) {
        struct year_profile p = year_profile(y, 0, slot + i * LEAF_SLOTS, LEAF_SLOTS);
        for (size_t k = 0; k < p.len; k++)
            n += !seen[p.nodes[k]]++;
    }
    return n;
}

void year_print_fit(struct year *y, FILE *to)
{
    const struct year_kind_row *row = y->stacks.row;
    uint32_t slot = y->o.start + 15 * 720, depth = 0;
    uint8_t *seen = XNEW_ARRAY(uint8_t, y->stacks.all.node_parent.len + 1);
    uint64_t samples = 0, stacks = 0;
    struct buf body;

    buf_init(&body, 64 * MIB);
    for (uint32_t i = 0; i < 32; i++) {
        struct year_profile p = year_profile(y, i % y->o.pods, slot + 2 * i, 2);
        samples += p.samples;
        stacks += p.len;
        for (size_t k = 0; k < p.len; k++)
            depth += year_stacks_depth(&y->stacks, p.nodes[k]);
    }
    double mean = (double)depth / (double)stacks;
    year_pprof(y, 0, slot, 2, &body);
    fprintf(
        to,
        "%-7s                 measured     simulated (%zu real stacks%s, %zu in all, %zu nodes)\n",
        row->name, y->stacks.real, y->stacks.synthetic ? ", MADE UP" : "", y->stacks.node.len,
        y->stacks.all.node_parent.len);
    fprintf(to, "  samples per 10 s      %9u     %9.0f\n", row->samples, (double)samples / 32);
    fprintf(to, "  stacks per 10 s       %9u     %9.0f\n", row->stacks, (double)stacks / 32);
    fprintf(to, "  mean depth            %9u     %9.1f\n", row->depth, mean);
    fprintf(to, "  gzip'd pprof, bytes   %9u     %9zu\n", row->gzip, body.len);
    fprintf(to, "  stacks of n windows     ~ n^%.2f    ", row->beta);
    double first = (double)union_len(y, slot, 1, seen), last = 0;
    for (uint32_t n = 8; n <= 512; n *= 8) {
        last = (double)union_len(y, slot, n, seen);
        fprintf(to, " %u: %.0f (n^%.2f)", n, last, log(last / first) / log(n));
    }
    fprintf(to, "\n");
    buf_deinit(&body);
    xfree(seen);
}
