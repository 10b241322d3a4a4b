/* SPDX-License-Identifier: Apache-2.0
 *
 * legacy_java: heap and contention pages of Java agents, and their table of names.
 *
 *   --- heapz 1 ---  or  --- contentionz 1 ---
 *   format = java   resolution = bytes   sampling period = N   ms since reset = N
 *     bytes-or-delay  count @ 0xid 0xid ...
 *
 *     0xid name (file:line)      or  name (library)  or  name
 *
 * The numbers of a stack are no addresses but rows of the table. Heap samples are scaled up as if
 * taken every 512 KiB, which is what the agents do.
 *
 * Format: profile/legacy_java_profile.go of google/pprof at b9395ee17fa0 (proto/FORMATS.md,
 * "Legacy pprof").
 */
#include "distributor/formats/legacy/legacy_impl.h"

#define HEAP_RATE 524288

struct java {
    bool heap;
    struct str resolution;
};

/* ---- the table ------------------------------------------------------------------------------- */

static struct legacy_line parse_name(struct str s)
{
    struct legacy_line to = { .func = str_trim(s) };
    uint64_t number;

    if (str_contains(to.func, STR("generated stub/JIT"))) {
        to.func = STR("STUB");
        return to;
    }
    ptrdiff_t open = str_rfind(to.func, '(');
    if (open <= 0 || !str_ends(to.func, STR(")")) ||
        (to.func.ptr[open - 1] != ' ' && to.func.ptr[open - 1] != '\t'))
        return to;
    to.file = str_sub(to.func, (size_t)open + 1, to.func.len - 1);
    to.func = str_trim(str_sub(to.func, 0, (size_t)open));
    ptrdiff_t colon = str_rfind(to.file, ':');
    if (colon > 0) {
        struct str line = str_sub(to.file, (size_t)colon + 1, to.file.len);
        bool minus = str_starts(line, STR("-"));
        if (str_u64(minus ? str_sub(line, 1, line.len) : line, &number)) {
            to.line = minus || number >= UINT32_MAX ? 0 : (uint32_t)number;
            to.file = str_sub(to.file, 0, (size_t)colon);
        }
    }
    return to;
}

static bool is_name(struct str line, uint64_t *ret_id, struct str *ret_text)
{
    struct str s = line;

    if (!scan_text(&s, "0x") || !scan_hex(&s, ret_id) || legacy_blank(s))
        return false;
    *ret_text = s;
    return true;
}

int legacy_java_names(struct legacy *g)
{
    struct str line, text;
    uint64_t id;

    g->ids = true;
    while (legacy_line(g, &line)) {
        if (!is_name(line, &id, &text))
            continue;
        struct legacy_line to = parse_name(text);
        if (map_u64_get(&g->name_of, id) == MAP_U64_EMPTY && legacy_name(g, id, &to))
            return g->e->code;
    }
    return 0;
}

/* ---- pages ----------------------------------------------------------------------------------- */

static int attribute(struct legacy *g, struct java *j, struct str key, struct str value)
{
    int64_t v;

    if (str_eqc(key, "format"))
        return 0;
    if (str_eqc(key, "resolution")) {
        j->resolution = value;
        return 0;
    }
    if (!str_i64(value, &v) || v < 0)
        return err_set(g->e, ERR_INPUT, "pprof, Java: %.*s is not a number",
                       STR_ARG(str_sub(key, 0, 64)));
    if (str_eqc(key, "sampling period"))
        g->period = v;
    else if (str_eqc(key, "ms since reset"))
        g->duration_ns = legacy_mul(v, 1000000);
    else
        g->left_out++;
    return 0;
}

static void add_types(struct legacy *g, const struct java *j)
{
    struct str unit = j->resolution.len ? j->resolution : STR("nanoseconds");

    if (j->heap) {
        legacy_type(g, STR("inuse_objects"), STR("count"));
        legacy_type(g, STR("inuse_space"), STR("bytes"));
        return;
    }
    legacy_type(g, STR("contentions"), STR("count"));
    legacy_type(g, STR("delay"), unit);
    g->period_type = (struct legacy_type){ STR("contentions"), STR("count") };
}

static int sample(struct legacy *g, const struct java *j, struct str line)
{
    size_t from = g->pcs.len;
    int64_t value, count;

    if (!scan_i64(&line, &value) || !scan_i64(&line, &count) || !scan_text(&line, "@")) {
        g->left_out++;
        return 0;
    }
    if (j->heap) {
        legacy_unsample(&count, &value, HEAP_RATE);
    } else if (g->period > 0) {
        count = legacy_mul(count, g->period);
        value = legacy_mul(value, g->period);
    }
    if (scan_pcs(g, line, 0, false, from))
        return g->e->code;
    return legacy_sample(g, from, (int64_t[]){ count, value });
}

int legacy_java(struct legacy *g)
{
    struct java j = { 0 };
    struct str line, key, value, text;
    uint64_t id;
    int rc = 0;

    while (legacy_line(g, &line) && !scan_text(&line, "---"))
        ;
    j.heap = scan_text(&line, "heapz");
    while (!rc && legacy_peek(g, &line)) {
        if (legacy_blank(line)) {
            ;
        } else if (!g->types_len && scan_attribute(line, &key, &value)) {
            rc = attribute(g, &j, key, value);
        } else if (is_name(line, &id, &text)) {
            break;
        } else {
            if (!g->types_len)
                add_types(g, &j);
            rc = sample(g, &j, line);
        }
        (void)legacy_line(g, &line);
    }
    if (!g->types_len)
        add_types(g, &j);
    return rc ? rc : legacy_java_names(g);
}
