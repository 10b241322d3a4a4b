/* SPDX-License-Identifier: Apache-2.0
 *
 * Trees of any names through every writer: the bytes are calls (whose parent, how long a name, a
 * value, the name), the first one chooses how much is cut. What comes out must be text in its own
 * language whatever the names are, totals must be kept, and pprof must be read back.
 */
#include "common/base/mem.h"
#include "common/render/folded.h"
#include "querier/render/dot.h"
#include "querier/render/export.h"
#include "querier/render/html.h"
#include "querier/render/svg.h"
#include "querier/render/tree_bytes.h"
#include "tests/lib/roles/dist_push.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OUT_MAX (64 * MIB)

struct input {
    struct stacks stacks;
    VEC(uint32_t) nodes;
    VEC(uint64_t) values;
    uint64_t total;
};

static void read_input(struct input *in, const uint8_t *p, size_t n)
{
    uint32_t last = 0;

    stacks_init(&in->stacks, 4 * MIB, 3);
    while (n >= 3) {
        size_t len = MIN(p[1] % 40u, n - 3);
        struct frame f = { .func = stacks_string(&in->stacks, str_n(p + 3, len)),
                           .file = p[0] & 1 ? stacks_string(&in->stacks, str_n(p + 3, len / 2)) : 0,
                           .line = p[2] % 3 };
        if (f.func == 0) /* without a name */
            f.addr = 1 + p[2];
        uint32_t up = p[0] & 2 ? last : (uint32_t)(p[0] >> 2) % (last + 1);
        last = stacks_node(&in->stacks, up, stacks_frame(&in->stacks, &f));
        if (last == STACKS_FULL)
            break;
        vec_push(&in->nodes, last);
        vec_push(&in->values, p[2] % 8);
        in->total += p[2] % 8;
        p += 3 + len;
        n -= 3 + len;
    }
}

static size_t count(struct str s, const char *what)
{
    size_t found = 0, len = strlen(what);

    for (size_t i = 0; i + len <= s.len; i++)
        found += memcmp(s.ptr + i, what, len) == 0;
    return found;
}

static void check_text(struct str s)
{
    CHECK(str_utf8_valid(s));
    for (size_t i = 0; i < s.len; i++)
        CHECK((unsigned char)s.ptr[i] >= 0x20 || s.ptr[i] == '\n');
}

/* Of an SVG, what stands before the script: only our own marks, so many as bars make. */
static void check_svg(struct str s, size_t bars)
{
    static const char mark[] = "<script><![CDATA[";
    size_t end = 0;

    while (end + sizeof(mark) - 1 <= s.len && memcmp(s.ptr + end, mark, sizeof(mark) - 1) != 0)
        end++;
    struct str head = str_sub(s, 0, end);
    size_t texts = count(head, "</text>");
    CHECK(count(head, "<g><title>") == bars && count(head, "</title><rect ") == bars);
    /* xml svg style /style rect; title-less texts, foreignObject and input; g; then the bars. */
    CHECK(count(head, "<") == 5 + 2 * texts + 3 + 2 + 5 * bars);
    check_text(s);
}

static void check_pages(const struct calltree *t, size_t max_nodes, struct str title)
{
    struct viewer_head h = { title, title, STR("nanoseconds") };
    struct layout l;
    struct flame f;
    struct diff d;
    struct buf out;

    buf_init(&out, OUT_MAX);
    layout_init(&l, t, max_nodes);
    flame_init(&f, &l, t);
    svg_flame(&f, &h, &out);
    check_svg(buf_str(&out), f.bars.len / 4);
    buf_reset(&out);
    html_flame(&f, &h, &out);
    CHECK(count(buf_str(&out), "<script") == 2 && count(buf_str(&out), "</script") == 2);
    check_text(buf_str(&out));
    diff_init(&d, t, t, max_nodes);
    buf_reset(&out);
    svg_diff(&d, &h, &out);
    check_svg(buf_str(&out), d.bars.len / 7);
    buf_reset(&out);
    dot_write(t, &(struct dot_opts){ .title = title }, &out);
    check_text(buf_str(&out));
    buf_reset(&out);
    tree_bytes_write(&l, t, &out);
    buf_reset(&out);
    folded_write(&l, t, &out);
    CHECK(buf_ok(&out));
    diff_deinit(&d);
    flame_deinit(&f);
    layout_deinit(&l);
    buf_deinit(&out);
}

static void check_pprof(const struct calltree_part *part, size_t max_nodes, uint64_t total)
{
    struct limits l = limits_default();
    struct export_head h = { .time_ns = 1 };
    struct dist_summary sum;
    struct export_set x;
    struct dist_push d;
    struct buf out;
    struct err e;

    CHECK(ptype_parse(STR("process_cpu:cpu:nanoseconds:cpu:nanoseconds"), &h.type, &e) == 0);
    export_init(&x, &(struct export_how){ max_nodes % 3, max_nodes & 1 }, 64 * MIB, 5);
    CHECK(export_add(&x, part, NULL, &e) == 0 && export_cut(&x, max_nodes, &e) == 0);
    CHECK(export_total(&x) == total);
    buf_init(&out, OUT_MAX);
    CHECK(export_pprof_write(&x, &h, &out, &e) == 0);
    CHECK(dist_decode(&d, "app", "pprof", NULL, buf_str(&out), &l, &e) == 0);
    dist_summarise(&d.push, "cpu", &sum);
    CHECK(sum.total == total);
    dist_summary_deinit(&sum);
    dist_push_free(&d);
    buf_deinit(&out);
    export_deinit(&x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { 0 };
    struct calltree t;
    struct err e;

    if (size == 0)
        return 0;
    read_input(&in, data + 1, size - 1);
    struct calltree_part part = { stacks_view(&in.stacks), in.nodes.ptr, in.values.ptr,
                                  in.nodes.len };
    calltree_init(&t, 7);
    CHECK(calltree_add(&t, &part, NULL, &e) == 0);
    CHECK(calltree_total(&t) == in.total);
    check_pages(&t, data[0] % 16, str_n(data, MIN(size, 60)));
    check_pprof(&part, data[0] % 16, in.total);
    calltree_deinit(&t);
    stacks_deinit(&in.stacks);
    vec_free(&in.nodes);
    vec_free(&in.values);
    return 0;
}
