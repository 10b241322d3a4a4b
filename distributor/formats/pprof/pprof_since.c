/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_since: counters of a process, from one profile to the next.
 *
 * Go's profiles of allocations, locks and blocking count since the start of the process. What is
 * stored is their growth. A process that was started again counts from 0, which its totals tell:
 * within one process no total falls. Its stacks cannot tell, since a process may count a stack less
 * (the runtime dropped samples) while its total grows.
 *
 * Profiles of a duration are growth already: Go measures it itself if it is asked with seconds=.
 */
#include "distributor/formats/pprof/pprof_since.h"

#include "distributor/formats/kinds.h"
#include "distributor/formats/pprof/pprof.h"

static int totals_of(struct str plain, const struct limits *l, struct pprof *p, uint64_t *totals,
                     struct err *e)
{
    struct pprof_sample sample = { 0 };
    int rc = pprof_parse(p, plain, l, e);

    for (size_t i = 0; !rc && i < p->samples.len; i++) {
        rc = pprof_sample_read(p, i, l, &sample, e);
        if (!rc && sample.values_len == p->types_len)
            for (size_t k = 0; k < p->types_len; k++)
                totals[k] += sample.values[k] > 0 ? (uint64_t)sample.values[k] : 0;
    }
    pprof_sample_deinit(&sample);
    return rc;
}

int pprof_since_choose(struct str plain, struct str last, const struct limits *l, struct str *ret,
                       struct err *e)
{
    uint64_t now[PPROF_TYPES_MAX] = { 0 }, before[PPROF_TYPES_MAX] = { 0 };
    struct pprof p = { 0 }, q = { 0 };
    bool same, fewer = false;
    struct err why;
    int rc = totals_of(plain, l, &p, now, e);

    same =
        !rc && last.ptr && totals_of(last, l, &q, before, &why) == 0 && p.types_len == q.types_len;
    for (size_t i = 0; same && i < p.types_len; i++) {
        struct str type = pprof_str(&p, p.types[i].type);
        same = str_eq(type, pprof_str(&q, q.types[i].type));
        fewer = fewer || (kind_cumulative(type) && now[i] < before[i]);
    }
    *ret = !same ? plain : fewer ? STR_NULL : last;
    pprof_deinit(&p);
    pprof_deinit(&q);
    return rc;
}

/* True if the text of a counter's type is anywhere in the body: a look at bytes, which spares most
 * profiles a second parsing. */
static bool may_have_counters(struct str plain)
{
    return str_contains(plain, STR("alloc_")) || str_contains(plain, STR("contentions")) ||
           str_contains(plain, STR("delay"));
}

struct pprof_claims pprof_since_claims(struct str plain, const struct limits *l, struct buf *types)
{
    struct pprof_claims c = { 0 };
    struct pprof p = { 0 };
    struct err ignored;

    if (!may_have_counters(plain))
        return c;
    if (pprof_parse(&p, plain, l, &ignored) == 0) {
        for (uint32_t i = 0; i < p.types_len; i++) {
            struct str type = pprof_str(&p, p.types[i].type);
            c.counters |= kind_cumulative(type);
            (void)buf_add_str(types, type);
            (void)buf_add_c(types, '/');
            (void)buf_add_str(types, pprof_str(&p, p.types[i].unit));
            (void)buf_add_c(types, '\n');
        }
        c.counters &= p.duration_ns == 0;
        c.time_ns = p.has_time && p.time_ns > 0 ? p.time_ns : 0;
    }
    pprof_deinit(&p);
    return c;
}
