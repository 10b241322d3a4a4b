/* SPDX-License-Identifier: Apache-2.0
 *
 * legacy_text: pages that count things: Go's goroutines and threads, contention, threads.
 *
 *   NAME profile: total N            Go, debug=1
 *   n @ 0xpc 0xpc ...                all return addresses
 *   #  0xpc name+0x12 file:line      names, used where they are there
 *
 *   --- contentionz 1 ---            also --- mutex: and --- contention:, as Go writes them
 *   cycles/second = N   sampling period = N   ms since reset = N   discarded samples = N
 *   delay count @ 0xpc ...           in cycles; both times the sampling period
 *
 *   --- threadz 1 ---
 *   --- Thread HEX (name: X/ID) stack: ---
 *     PC: 0xpc: name                 the leaf is no return address
 *     0xpc: name
 *     [same as previous thread]
 *
 * Format: profile/legacy_profile.go of google/pprof at b9395ee17fa0 (proto/FORMATS.md,
 * "Legacy pprof").
 */
#include "distributor/formats/legacy/legacy_impl.h"

static int count_line(struct legacy *g, struct str line)
{
    size_t from = g->pcs.len;
    int64_t n;

    if (line.ptr[0] == '#')
        return scan_go_name(g, line);
    if (!scan_i64(&line, &n) || !scan_text(&line, "@")) {
        g->left_out++;
        return 0;
    }
    if (scan_pcs(g, line, 1, false, from))
        return g->e->code;
    return legacy_sample(g, from, (int64_t[]){ n });
}

int legacy_count(struct legacy *g)
{
    struct str line, name;

    while (legacy_line(g, &line) && (legacy_blank(line) || line.ptr[0] == '#'))
        ;
    name = str_sub(line, 0, (size_t)MAX(str_find(line, ' '), 0));
    legacy_type(g, name, STR("count"));
    g->period_type = (struct legacy_type){ name, STR("count") };
    g->period = 1;
    while (legacy_line(g, &line) && !legacy_map_begins(line)) {
        if (!legacy_blank(line) && count_line(g, line))
            return g->e->code;
    }
    return legacy_maps(g);
}

/* ---- contention ------------------------------------------------------------------------------ */

static int contention_attribute(struct legacy *g, struct str key, struct str value,
                                int64_t *cycles_per_s)
{
    static const char *const others[] = { "discarded samples" };
    int64_t v;

    if (!str_i64(value, &v) || v < 0)
        return err_set(g->e, ERR_INPUT, "pprof, contention: %.*s is not a number",
                       STR_ARG(str_sub(key, 0, 64)));
    if (str_eqc(key, "cycles/second"))
        *cycles_per_s = v;
    else if (str_eqc(key, "sampling period"))
        g->period = v;
    else if (str_eqc(key, "ms since reset"))
        g->duration_ns = legacy_mul(v, 1000000);
    else if (!str_eqc(key, others[0]))
        g->left_out++;
    return 0;
}

static int contention_sample(struct legacy *g, struct str line, int64_t cycles_per_s)
{
    size_t from = g->pcs.len;
    int64_t delay, count;

    if (!scan_i64(&line, &delay) || !scan_i64(&line, &count) || !scan_text(&line, "@")) {
        g->left_out++;
        return 0;
    }
    if (g->period > 0) {
        if (cycles_per_s > 0)
            delay = legacy_i64((double)delay * (double)g->period / ((double)cycles_per_s / 1e9));
        count = legacy_mul(count, g->period);
    }
    if (scan_pcs(g, line, 1, false, from))
        return g->e->code;
    return legacy_sample(g, from, (int64_t[]){ count, delay });
}

int legacy_contention(struct legacy *g)
{
    struct str line, key, value;
    int64_t cycles_per_s = 0;
    int rc = 0;

    while (legacy_line(g, &line) && (legacy_blank(line) || line.ptr[0] == '#'))
        ;
    legacy_type(g, STR("contentions"), STR("count"));
    legacy_type(g, STR("delay"), STR("nanoseconds"));
    g->period_type = (struct legacy_type){ STR("contentions"), STR("count") };
    g->period = 1;
    while (!rc && legacy_line(g, &line) && !legacy_map_begins(line)) {
        if (legacy_blank(line))
            continue;
        if (line.ptr[0] == '#')
            rc = scan_go_name(g, line);
        else if (!g->samples.len && scan_attribute(line, &key, &value))
            rc = contention_attribute(g, key, value, &cycles_per_s);
        else
            rc = contention_sample(g, line, cycles_per_s);
    }
    return rc ? rc : legacy_maps(g);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Lines up to the next thread; a stack that is said to be the same counts for the one before. */
static int thread_stack(struct legacy *g)
{
    size_t from = g->pcs.len;
    struct str line;
    bool same = false;

    while (legacy_peek(g, &line) && !str_starts(str_trim(line), STR("---"))) {
        same = same || str_contains(line, STR("same as previous thread"));
        if (!same && scan_pcs(g, line, 1, true, from))
            return g->e->code;
        (void)legacy_line(g, &line);
    }
    if (same && g->samples.len) {
        struct legacy_sample *last = &g->samples.ptr[g->samples.len - 1];
        last->values[0] += last->values[0] < INT64_MAX;
        g->pcs.len = from;
        return 0;
    }
    if (g->pcs.len > from)
        return legacy_sample(g, from, (int64_t[]){ 1 });
    g->left_out++;
    return 0;
}

int legacy_thread(struct legacy *g)
{
    struct str line;

    legacy_type(g, STR("thread"), STR("count"));
    g->period_type = (struct legacy_type){ STR("thread"), STR("count") };
    g->period = 1;
    while (legacy_line(g, &line) && !legacy_map_begins(line)) {
        if (scan_text(&line, "---") && scan_text(&line, "Thread") && thread_stack(g))
            return g->e->code;
    }
    return legacy_maps(g);
}
