/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/roles/parca_bed.h"

#include "tests/lib/roles/dist_push.h"

#define ROWS_MAX (256 * MIB)

static struct push *bed_begin(void *cookie, const struct ingest *in, struct err *e)
{
    struct parca_bed *b = cookie;

    CHECK(!b->open && in);
    if (b->begun == b->pushes_max) {
        (void)err_set(e, ERR_LIMIT, "more than %zu pushes", b->pushes_max);
        return NULL;
    }
    b->begun++;
    b->arena = arena_new((size_t)b->limits.decode_bytes);
    b->open = XNEW(struct push);
    push_init(b->open, b->arena, &b->limits, UINT64_C(0x5eed));
    return b->open;
}

static void bed_close(struct parca_bed *b)
{
    if (b->open)
        push_deinit(b->open);
    xfree(b->open);
    b->open = NULL;
    arena_free(b->arena);
    b->arena = NULL;
}

static int bed_end(void *cookie, struct push *p, struct str identity, struct str id, struct err *e)
{
    struct parca_bed *b = cookie;
    struct str rest, line;
    struct buf rows;
    bool more = true;

    (void)identity;
    (void)id;
    (void)e;
    CHECK(p == b->open);
    dist_check(p, &b->limits);
    dist_rows(p, &rows);
    rest = buf_str(&rows);
    while (str_next(&rest, '\n', &more, &line))
        if (line.len)
            buf_addf(&b->rows, "%.*s\t%.*s\n", STR_ARG(p->service), STR_ARG(line));
    buf_deinit(&rows);
    for (int i = 0; i < PUSH_DROPS; i++)
        b->drops[i] += p->drops[i];
    b->exemplars += p->exemplars;
    b->first_ns = b->ended ? MIN(b->first_ns, p->time_ns) : p->time_ns;
    b->last_ns = b->ended ? MAX(b->last_ns, p->time_ns) : p->time_ns;
    b->ended++;
    bed_close(b);
    return 0;
}

static void bed_reject(void *cookie, struct push *p, uint64_t profiles, const struct err *why)
{
    struct parca_bed *b = cookie;

    CHECK(p == b->open);
    b->why = *why;
    b->rejected += profiles;
    bed_close(b);
}

void parca_bed_init(struct parca_bed *b)
{
    *b = (struct parca_bed){ .limits = limits_default(), .pushes_max = 1000 };
    buf_init(&b->rows, ROWS_MAX);
    b->sink = (struct batch_sink){ .begin = bed_begin,
                                   .end = bed_end,
                                   .reject = bed_reject,
                                   .limits = &b->limits,
                                   .now_ms = DIST_NOW_MS,
                                   .cookie = b };
}

void parca_bed_free(struct parca_bed *b)
{
    bed_close(b);
    buf_deinit(&b->rows);
}

void parca_bed_reset(struct parca_bed *b)
{
    struct limits l = b->limits;

    parca_bed_free(b);
    parca_bed_init(b);
    b->limits = l;
}
