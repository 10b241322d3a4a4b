/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the columns of a set of stacks: refused by stacks_view_check, or it can be merged,
 * twice to the same nodes, within any budget, and the result is sound.
 *
 * Input: u8 counts of strings, frames, nodes; u16 budget / 16; the columns; the rest is the data of
 * the strings.
 */
#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/model/stacks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Columns of u8 in the input, but 255 stands for a number far out. */
static bool column(struct rd *r, uint32_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t v;
        if (!rd_u8(r, &v))
            return false;
        to[i] = v == 255 ? UINT32_MAX - 1 : v;
    }
    return true;
}

static void merge(const struct stacks_view *v, size_t budget)
{
    uint32_t map[257], again[257];
    struct stacks s;
    struct err e;

    stacks_init(&s, budget, 7);
    int rc = stacks_merge(&s, v, map, &e);
    CHECK(rc == 0 || rc == ERR_LIMIT);
    struct stacks_view out = stacks_view(&s);
    CHECK(stacks_view_check(&out, &e) == 0 && stacks_bytes(&s) <= budget);
    CHECK(out.nodes <= v->nodes && out.frames <= v->frames && out.strings <= v->strings + 1);
    if (!rc) {
        CHECK(stacks_merge(&s, v, again, &e) == 0);
        CHECK(memcmp(map, again, (v->nodes + 1) * sizeof(*map)) == 0);
        CHECK(stacks_view(&s).nodes == out.nodes && stacks_view(&s).strings == out.strings);
        /* What came out merges into itself unchanged: ids are in order of first sight. */
        struct stacks t;
        stacks_init(&t, 64 * MIB, 8);
        out = stacks_view(&s);
        CHECK(stacks_merge(&t, &out, again, &e) == 0);
        for (uint32_t i = 0; i <= out.nodes; i++)
            CHECK(again[i] == i);
        stacks_deinit(&t);
    }
    stacks_deinit(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rd r = rd_of(str_n(data, size));
    uint8_t strings, frames, nodes;
    uint16_t budget;
    uint32_t col[8][256];
    uint64_t addr[256];
    struct err e;

    if (!rd_u8(&r, &strings) || !rd_u8(&r, &frames) || !rd_u8(&r, &nodes) || !rd_u16be(&r, &budget))
        return 0;
    if (!column(&r, col[0], strings) || !column(&r, col[1], frames) ||
        !column(&r, col[2], frames) || !column(&r, col[3], frames) || !column(&r, col[4], frames) ||
        !column(&r, col[5], frames) || !column(&r, col[6], nodes) || !column(&r, col[7], nodes))
        return 0;
    for (size_t i = 0; i < frames; i++)
        addr[i] = col[5][i];
    struct stacks_view v = {
        .string_data = str_n(r.p, rd_left(&r)),
        .string_len = col[0],
        .strings = strings,
        .frame_func = col[1],
        .frame_file = col[2],
        .frame_line = col[3],
        .frame_module = col[4],
        .frame_addr = addr,
        .frames = frames,
        .node_parent = col[6],
        .node_frame = col[7],
        .nodes = nodes,
    };
    if (stacks_view_check(&v, &e)) {
        CHECK(e.code == ERR_INPUT);
        return 0;
    }
    merge(&v, (size_t)budget * 16);
    merge(&v, 64 * MIB);
    return 0;
}
