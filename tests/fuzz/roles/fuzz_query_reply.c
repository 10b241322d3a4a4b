/* SPDX-License-Identifier: Apache-2.0
 *
 * Replies of ingesters as the querier decodes them: refused, or good for what is done with them.
 * The first byte picks the message.
 */
#include "common/base/mem.h"
#include "common/base/size.h"
#include "querier/merge/timeline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define POINTS     16
#define LEAVES_SUM (1u << 16) /* more takes its time, and shows nothing new */

/* United with itself a part is what it was. */
static void look(const struct leaf_part *p)
{
    struct leaf_part twice[] = { *p, *p };
    uint32_t count[POINTS];
    uint64_t sum = 0;
    struct leaf_items out = { 0 };
    struct err e = { 0 };

    CHECK(p->len <= POINTS);
    for (size_t i = 0; i < p->len; i++)
        sum += p->count[i];
    if (!p->items_len || sum > LEAVES_SUM)
        return;
    leaf_unite(twice, 2, p->point, p->len, count, &out);
    CHECK(memcmp(count, p->count, p->len * sizeof(*count)) == 0);
    struct leaf_part again = { p->point, count, p->len, out.ptr, out.len };
    CHECK(leaf_part_check(&again, &e) == 0);
    vec_free(&out);
}

static int read_timelines(struct str in, struct arena *a, struct err *e)
{
    struct wire_timelines w;
    struct timeline t;
    int code = wire_get_timelines(in, POINTS, a, &w, e);

    if (code)
        return code;
    for (size_t i = 0; i < w.len; i++)
        look(&w.series[i].items);
    timeline_init(&t, a);
    for (size_t i = 0; i < 2 && !code; i++)
        code = timeline_add(&t, &w, e);
    timeline_deinit(&t);
    return code;
}

static int read_functions(struct str in, struct arena *a, struct err *e)
{
    struct wire_function_list w;
    int code = wire_get_functions(in, POINTS, a, &w, e);

    if (!code)
        look(&w.items);
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct arena *a = arena_new(wire_cost_lists(size) + MIB);
    struct str in = str_n(data + 1, size - 1);
    struct wire_merged m;
    struct wire_label_lists l;
    struct wire_exm_list x;
    struct err e = { 0 };
    int code;

    switch (data[0] % 5) {
    case 0:
        code = read_timelines(in, a, &e);
        break;
    case 1:
        code = read_functions(in, a, &e);
        break;
    case 2:
        code = wire_get_merged(in, a, &m, &e);
        break;
    case 3:
        code = wire_get_labels(in, a, &l, &e);
        break;
    default:
        code = wire_get_exemplars(in, a, &x, &e);
        break;
    }
    CHECK(code == 0 || ((code == ERR_CORRUPT || code == ERR_LIMIT) && e.text[0]));
    arena_free(a);
    return 0;
}
