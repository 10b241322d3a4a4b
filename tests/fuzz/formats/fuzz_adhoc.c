/* SPDX-License-Identifier: Apache-2.0
 *
 * A stored profile, its meta, and a message of the service, with any bytes in them. What
 * can be read can be shown, in all forms, with the same total.
 */
#include "common/base/compress/compress.h"
#include "common/base/wr.h"
#include "common/net/json_in.h"
#include "distributor/adhoc/adhoc_msg.h"
#include "distributor/adhoc/adhoc_view.h"

#define PLAIN_MAX (4 * MIB)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void show(struct adhoc_side *sides)
{
    struct buf out;
    struct json j;
    struct err e;

    buf_init(&out, 64 * MIB);
    CHECK(adhoc_choose(sides, 2, STR_NULL, &e) == 0);
    json_init(&j, &out);
    json_obj(&j);
    int rc = adhoc_view_flame(sides, 50, 1, &j, &e) || adhoc_view_diff(sides, 50, 1, &j, &e);
    json_obj_end(&j);
    CHECK(rc == 0 || e.code == ERR_LIMIT);
    buf_reset(&out);
    rc = adhoc_view_folded(sides, 0, 1, &out, &e);
    CHECK(rc == 0 || e.code == ERR_LIMIT);
    buf_deinit(&out);
}

static void read_body(struct str body)
{
    struct arena *a = arena_new(adhoc_profile_cost(PLAIN_MAX));
    struct adhoc_profile p;
    struct adhoc_meta m;
    struct err e;

    if (adhoc_profile_read(body, PLAIN_MAX, a, &p, &e) == 0 && adhoc_types_of(&p, a, &m, &e) == 0) {
        struct adhoc_side sides[2] = { { &p, &m, NULL }, { &p, &m, NULL } };
        show(sides);
    }
    arena_free(a);
}

/* The fuzzer cannot make zstd frames: it writes what is in them. */
static void read_plain(struct str plain)
{
    struct buf body;
    struct err e;

    buf_init(&body, PLAIN_MAX);
    wr_u8(&body, 1);
    wr_varint(&body, plain.len);
    if (zstd_compress(plain, 1, &body, &e) == 0)
        read_body(buf_str(&body));
    buf_deinit(&body);
}

static void read_texts(struct str in)
{
    struct arena *a = arena_new(MIB);
    struct json_doc *doc = NULL;
    struct adhoc_meta m;
    struct adhoc_ask q;
    struct err e;

    if (adhoc_meta_read(in, a, &m, &e) == 0) {
        struct buf again;
        buf_init(&again, 16 * KIB);
        adhoc_meta_pack(&m, &again);
        buf_deinit(&again);
    }
    if (adhoc_id_check(in, &e) == 0)
        CHECK(adhoc_id_ms(in) >= 0);
    for (int op = ADHOC_UPLOAD; op <= ADHOC_DELETE; op++)
        (void)!adhoc_ask_proto((enum adhoc_op)op, in, &q, &e);
    if (json_parse(in, &doc, &e) == 0)
        for (int op = ADHOC_UPLOAD; op <= ADHOC_DELETE; op++)
            (void)!adhoc_ask_json((enum adhoc_op)op, json_root(doc), &q, &e);
    json_doc_free(doc);
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str in = str_n(data, size);

    read_body(in);
    read_plain(in);
    read_texts(in);
    return 0;
}
