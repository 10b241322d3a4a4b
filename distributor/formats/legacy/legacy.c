/* SPDX-License-Identifier: Apache-2.0
 *
 * legacy: which of the old formats a body is, and off to its reader.
 *
 *   body ── legacy_kind_of ── legacy_x.c ── struct legacy ── legacy_out.c ── pprof message
 *                             (samples, map,  (stacks of
 *                              names)          addresses)
 *
 * Why a message in between: addresses become offsets in mapped files, names are normalised, stacks
 * and label sets limited, profile types named by one piece of code (pprof_walk.c and what follows),
 * for these formats as for the new one. The message is as large as the body, about.
 *
 * Every reader follows what google/pprof makes of the format, since the totals of both must agree:
 * return addresses less one, heap samples scaled up, the frames of the signal handler left out.
 * Lines that are nothing are left out and counted; a body that has only such lines is refused.
 *
 * The order is that of google/pprof: binary first, then by the first line that says something.
 *
 * Formats: profile/legacy_profile.go of google/pprof at b9395ee17fa0 (proto/FORMATS.md,
 * "Legacy pprof").
 */
#include "distributor/formats/legacy/legacy_impl.h"

#include "common/base/rd.h"

#define SNIFF_BYTES 4096
#define SNIFF_LINES 32

/* Five words: 0, 3, 0 or 1, a period, 0; of four or eight bytes, in either order. legacy_cpu.c */
static bool is_cpu(struct str body)
{
    static const uint8_t low[] = { 3, 0, 0, 0 };
    const uint8_t *p = (const uint8_t *)(const void *)body.ptr;

    if (body.len < 20)
        return false;
    for (size_t word = 4; word <= 8; word += 4) {
        if (body.len < 5 * word)
            continue;
        bool zero = true, little, big;
        for (size_t i = 0; i < word; i++)
            zero = zero && p[i] == 0 && p[4 * word + i] == 0;
        little = memcmp(p + word, low, 4) == 0 && p[2 * word] <= 1;
        big = p[2 * word - 1] == 3 && p[3 * word - 1] <= 1;
        for (size_t i = 0; i < word - 1; i++) {
            big = big && p[word + i] == 0 && p[2 * word + i] == 0;
            little = little && p[word + 1 + i] == 0 && p[2 * word + 1 + i] == 0;
        }
        if (zero && (little || big))
            return true;
    }
    return false;
}

/* "NAME profile: total 7" */
static bool is_count(struct str line)
{
    ptrdiff_t blank = str_find(line, ' ');
    struct str rest;
    uint64_t total;

    if (blank <= 0)
        return false;
    rest = str_sub(line, (size_t)blank, line.len);
    return scan_text(&rest, "profile: total") && scan_u64(&rest, &total) && legacy_blank(rest);
}

/* Attributes follow the first line; Java's pages say what they are. */
static bool says_java(struct legacy *g)
{
    struct str line, key, value;

    for (int i = 0; i < SNIFF_LINES && legacy_line(g, &line); i++) {
        if (legacy_blank(line))
            continue;
        if (!scan_attribute(line, &key, &value))
            return false;
        if (str_eqc(key, "format"))
            return str_eqc(value, "java");
    }
    return false;
}

static enum legacy_kind kind_of_line(struct legacy *g, struct str line)
{
    struct str s = line;

    if (scan_text(&s, "heap profile:"))
        return LEGACY_HEAP;
    if (scan_text(&s, "heap_v2/"))
        return LEGACY_JEMALLOC;
    if (is_count(line))
        return LEGACY_COUNT;
    if (!scan_text(&s, "---"))
        return LEGACY_NONE;
    if (scan_text(&s, "heapz"))
        return says_java(g) ? LEGACY_JAVA : LEGACY_NONE;
    if (scan_text(&s, "contentionz"))
        return says_java(g) ? LEGACY_JAVA : LEGACY_CONTENTION;
    if (scan_text(&s, "mutex:") || scan_text(&s, "contention:"))
        return LEGACY_CONTENTION;
    if (scan_text(&s, "threadz") || scan_text(&s, "Thread"))
        return LEGACY_THREAD;
    return LEGACY_NONE;
}

enum legacy_kind legacy_kind_of(struct str body)
{
    struct legacy g = { .rest = str_sub(body, 0, SNIFF_BYTES) };
    struct str line;

    if (is_cpu(body))
        return LEGACY_CPU;
    for (int i = 0; i < SNIFF_LINES && legacy_line(&g, &line); i++)
        if (!legacy_blank(line) && line.ptr[0] != '#')
            return kind_of_line(&g, line);
    return LEGACY_NONE;
}

bool legacy_sniff(struct str body)
{
    return legacy_kind_of(body) != LEGACY_NONE;
}

int legacy_to_pprof(struct str body, const struct limits *l, struct buf *out,
                    uint64_t *ret_left_out, struct err *e)
{
    static int (*const readers[])(struct legacy *) = {
        [LEGACY_CPU] = legacy_cpu,
        [LEGACY_HEAP] = legacy_heap,
        [LEGACY_JEMALLOC] = legacy_jemalloc,
        [LEGACY_COUNT] = legacy_count,
        [LEGACY_CONTENTION] = legacy_contention,
        [LEGACY_THREAD] = legacy_thread,
        [LEGACY_JAVA] = legacy_java,
    };
    struct legacy g = { .l = l, .rest = body, .e = e };
    enum legacy_kind kind = legacy_kind_of(body);
    int rc;

    if (kind == LEGACY_NONE)
        return err_set(e, ERR_INPUT, "pprof: none of the old formats");
    map_u64_init(&g.name_of);
    rc = readers[kind](&g);
    if (!rc && g.samples.len == 0 && g.left_out)
        rc = err_set(e, ERR_INPUT, "pprof, an old format: no line of %" PRIu64 " is a sample",
                     g.left_out);
    if (!rc)
        rc = legacy_write(&g, out);
    if (!rc)
        *ret_left_out = g.left_out;
    legacy_deinit(&g);
    return rc;
}
