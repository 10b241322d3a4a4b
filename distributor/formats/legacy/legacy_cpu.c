/* SPDX-License-Identifier: Apache-2.0
 *
 * legacy_cpu: the CPU profile of gperftools, of old Go programs, and of Java agents.
 *
 *   0 | 3 | 0 native, 1 Java | period, us | 0           words of 4 or 8 bytes, either order
 *   count | n | pc[n], leaf first                       any number of them
 *   0 | 1 | 0                                           the end
 *   text: a memory map; Java: a table of names          pcs are numbers of that table there
 *
 * All pcs but the leaf are return addresses. The leaf comes from the signal's context, the others
 * from unwinding, which may begin with the handler: a second frame that (nearly) all samples share
 * is it, twice at most; so is a second frame that repeats the leaf.
 *
 * Format: gperftools, cpuprofile-fileformat.html; google/pprof at b9395ee17fa0 (proto/FORMATS.md,
 * "Legacy pprof").
 */
#include "common/base/rd.h"
#include "distributor/formats/legacy/legacy_impl.h"

#define HEADER_WORDS 5
#define HANDLERS_MAX 2
#define SIMILAR      32 /* of so many samples one may lack the frame */

struct words {
    struct rd r;
    bool big, wide;
};

static bool word(struct words *w, uint64_t *ret)
{
    uint32_t v;

    if (w->wide)
        return w->big ? rd_u64be(&w->r, ret) : rd_u64le(&w->r, ret);
    if (!(w->big ? rd_u32be(&w->r, &v) : rd_u32le(&w->r, &v)))
        return false;
    *ret = v;
    return true;
}

/* Tries the four ways in which words may be written. */
static bool header(struct str body, struct words *w, bool *ret_java, uint64_t *ret_period_us)
{
    for (int i = 0; i < 4; i++) {
        uint64_t h[HEADER_WORDS];
        size_t n = 0;
        *w = (struct words){ .r = rd_of(body), .big = i & 1, .wide = i & 2 };
        while (n < HEADER_WORDS && word(w, &h[n]))
            n++;
        if (n == HEADER_WORDS && h[0] == 0 && h[1] == 3 && h[2] <= 1 && h[3] > 0 && h[4] == 0) {
            *ret_java = h[2] == 1;
            *ret_period_us = h[3];
            return true;
        }
    }
    return false;
}

static int too_short(struct legacy *g)
{
    return err_set(g->e, ERR_INPUT, "pprof, CPU: the body ends within sample %zu",
                   g->samples.len + 1);
}

static int read_sample(struct legacy *g, struct words *w, uint64_t count, uint64_t n, bool java)
{
    size_t from = g->pcs.len;
    uint64_t pc;

    for (uint64_t i = 0; i < n; i++) {
        if (!word(w, &pc))
            return too_short(g);
        if (!java && i > 0 && pc > 0)
            pc--;
        if (legacy_pc(g, pc))
            return g->e->code;
    }
    int64_t samples = count > INT64_MAX ? INT64_MAX : (int64_t)count;
    return legacy_sample(g, from, (int64_t[]){ samples, legacy_mul(samples, g->period) });
}

static int read_samples(struct legacy *g, struct words *w, bool java)
{
    uint64_t count, n;

    while (word(w, &count)) {
        if (!word(w, &n))
            return too_short(g);
        if (n == 0 || n > rd_left(&w->r) / (w->wide ? 8 : 4))
            return err_set(g->e, ERR_INPUT,
                           "pprof, CPU: sample %zu has %" PRIu64 " addresses, %zu bytes are left",
                           g->samples.len + 1, n, rd_left(&w->r));
        struct words ahead = *w;
        uint64_t pc;
        if (count == 0 && n == 1 && word(&ahead, &pc) && pc == 0) {
            *w = ahead;
            return 0;
        }
        if (read_sample(g, w, count, n, java))
            return g->e->code;
    }
    return 0;
}

/* ---- the signal handler's frames ------------------------------------------------------------- */

static uint64_t second(const struct legacy *g, const struct legacy_sample *s)
{
    return s->len > 1 ? g->pcs.ptr[s->from + 1] : 0;
}

static void drop_second(struct legacy *g, struct legacy_sample *s)
{
    g->pcs.ptr[s->from + 1] = g->pcs.ptr[s->from];
    s->from++;
    s->len--;
}

/* It must be in nearly all samples, so only an address that can have a majority is a candidate. */
static bool drop_handler(struct legacy *g)
{
    size_t votes = 0, has = 0;
    uint64_t pc = 0;

    vec_for (i, &g->samples) {
        uint64_t here = second(g, &g->samples.ptr[i]);
        if (votes == 0)
            pc = here;
        votes = here == pc ? votes + 1 : votes - 1;
    }
    vec_for (i, &g->samples)
        has += pc && second(g, &g->samples.ptr[i]) == pc;
    if (!pc || has < g->samples.len - g->samples.len / SIMILAR)
        return false;
    vec_for (i, &g->samples)
        if (second(g, &g->samples.ptr[i]) == pc)
            drop_second(g, &g->samples.ptr[i]);
    return true;
}

static void clean(struct legacy *g)
{
    for (int i = 0; i < HANDLERS_MAX && drop_handler(g); i++)
        ;
    vec_for (i, &g->samples) {
        struct legacy_sample *s = &g->samples.ptr[i];
        if (s->len > 1 && g->pcs.ptr[s->from] == second(g, s) + 1)
            drop_second(g, s);
    }
}

int legacy_cpu(struct legacy *g)
{
    struct words w;
    uint64_t period_us;
    bool java;

    if (!header(g->rest, &w, &java, &period_us) || period_us > INT64_MAX / 1000)
        return err_set(g->e, ERR_INPUT, "pprof, CPU: the header is malformed");
    g->period = (int64_t)period_us * 1000;
    g->period_type = (struct legacy_type){ STR("cpu"), STR("nanoseconds") };
    legacy_type(g, STR("samples"), STR("count"));
    legacy_type(g, STR("cpu"), STR("nanoseconds"));
    if (read_samples(g, &w, java))
        return g->e->code;
    g->rest = str_n(w.r.p, rd_left(&w.r));
    if (java)
        return legacy_java_names(g);
    clean(g);
    return legacy_maps(g);
}
