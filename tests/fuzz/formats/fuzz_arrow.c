/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrow streams as parca-agent sends them, v2, all the way into checked pushes. Then
 * the same bytes are read cell by cell, whatever their schema. Small limits, so that they are met.
 */
#include "distributor/parca/arrow/arrow.h"
#include "distributor/parca/parca_labels.h"
#include "distributor/parca/parca_write.h"
#include "tests/lib/roles/parca_bed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct limits small_limits(void)
{
    struct limits l = limits_default();

    l.decode_bytes = 8 * MIB;
    l.inflated_bytes = MIB;
    l.samples = 2000;
    l.stacks = 500;
    l.frames = 256;
    l.frames_keep = 32;
    l.series = 20;
    return l;
}

static void read_cells(struct str body, const struct limits *l)
{
    struct arena *arena = arena_new(8 * MIB);
    struct arrow a;
    struct arrow_cell at;
    struct str s;
    uint64_t n, u;
    int64_t i;
    struct err e;
    bool more = true;

    int rc = arrow_open(&a, body, l, arena, &e);
    while (!rc && more && !(rc = arrow_next(&a, &more, &e)) && more)
        for (uint32_t f = 0; f < a.schema.columns_end; f++)
            for (uint64_t row = 0; row < MIN(a.batch.cols[f].len, (uint64_t)64); row++) {
                struct arrow_cell c = arrow_cell(&a, f, row);
                (void)arrow_i64(&a, c, &i);
                (void)arrow_u64(&a, c, &u);
                if (arrow_bytes(&a, c, &s) && s.len)
                    CHECK(s.ptr[0] == s.ptr[0] && s.ptr[s.len - 1] == s.ptr[s.len - 1]);
                if (arrow_list(&a, c, &at, &n) && n)
                    (void)arrow_resolve(&a, &at);
            }
    arrow_close(&a);
    arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct parca_opts o = { .drop_labels = PARCA_DROP_LABELS, .seed = 1 };
    struct parca_bed b;
    struct err e;

    parca_bed_init(&b);
    b.limits = small_limits();
    b.pushes_max = 20;
    (void)parca_arrow_push(str_n(data, size), &o, &b.sink, &e);
    read_cells(str_n(data, size), &b.limits);
    parca_bed_free(&b);
    return 0;
}
