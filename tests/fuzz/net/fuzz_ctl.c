/* SPDX-License-Identifier: Apache-2.0
 *
 * What a server answers, as embertreectl reads and prints it: the first byte says which answer it
 * is and how wide the terminal. Nothing that a terminal would obey may come out.
 */
#include <stdlib.h>

#include "common/net/json_in.h"
#include "deploy/ctl/ask/costs.h"
#include "deploy/ctl/ask/graph.h"
#include "deploy/ctl/commands.h"
#include "deploy/ctl/server/versus.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct buf *b)
{
    CHECK(buf_ok(b) && str_utf8_valid(buf_str(b)));
    for (size_t i = 0; i < b->len; i++)
        CHECK(((uint8_t)b->ptr[i] >= 0x20 || b->ptr[i] == '\n') && b->ptr[i] != 0x7f);
    for (size_t i = 0; i + 1 < b->len; i++)
        CHECK((uint8_t)b->ptr[i] != 0xc2 || (uint8_t)b->ptr[i + 1] >= 0xa0);
}

static void graph(const struct cli *c, const struct term *t, struct str s, struct buf *out)
{
    struct graph_show show = { STR("bytes"), 0, UINT64_MAX, 2000 };
    struct graph g;
    struct json j;
    struct buf json;
    struct err e;

    if (graph_read(c, s, "flamebearer", &g, &e))
        return;
    graph_text(&g, t, &show, out);
    buf_init(&json, 64 * MIB);
    json_init(&j, &json);
    graph_json(&g, &show, &j);
    CHECK(buf_ok(&json));
    buf_deinit(&json);
    graph_deinit(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct cli c = { .o = { .server = "http://x" } };
    struct term t = { .tty = true };
    struct json_doc *doc = NULL;
    struct versus v;
    struct costs f;
    struct buf out;
    struct err e;

    if (!size)
        return 0;
    t.width = TERM_WIDTH_MIN + data[0] / 2;
    t.utf8 = data[0] & 4;
    struct str s = str_n(data + 1, size - 1);
    buf_init(&out, 64 * MIB);
    switch (data[0] & 3) {
    case 0:
        graph(&c, &t, s, &out);
        break;
    case 1:
        if (!costs_read(&c, s, &f, &e)) {
            top_table(&t, &f, STR("nanoseconds"), &out);
            costs_deinit(&f);
        }
        break;
    case 2:
        if (!versus_read(&c, s, size & 1, &v, &e)) {
            versus_text(&t, &v, STR("count"), 20, &out);
            versus_deinit(&v);
        }
        break;
    default:
        if (!json_parse(s, &doc, &e))
            space_text(&t, json_root(doc), &out);
        json_doc_free(doc);
    }
    check(&out);
    buf_deinit(&out);
    return 0;
}
