/* SPDX-License-Identifier: Apache-2.0
 *
 * PushRequests: JSON where the first byte is an opening brace, else proto.
 */
#include "distributor/formats/push_msg.h"
#include "tests/lib/roles/batch_keep.h"
#include "tests/lib/roles/dist_push.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct batch_keep keep;
    struct arena *a = arena_new(4 * MIB);
    struct json_doc *doc = NULL;
    struct push_msg msg;
    struct limits l;
    struct err e = { 0 };
    int rc;

    batch_keep_init(&keep, NULL, DIST_NOW_MS);
    l = keep.limits;
    l.decode_bytes = 8 * MIB;
    l.inflated_bytes = MIB;
    l.series = 20;
    keep.limits = l;
    if (size && data[0] == '{')
        rc = json_parse(str_n(data, size), &doc, &e) ||
                     push_msg_json(json_root(doc), 20, a, &msg, &e)
                 ? e.code
                 : 0;
    else
        rc = push_msg_proto(str_n(data, size), 20, a, &msg, &e);
    if (!rc)
        rc = push_msg_push(&msg, &keep.sink, &e);
    CHECK(rc == 0 || rc == ERR_INPUT || rc == ERR_LIMIT);
    CHECK(rc == 0 || e.text[0]);
    vec_for (i, &keep.pushes)
        if (keep.pushes.ptr[i]->ended)
            dist_check(&keep.pushes.ptr[i]->push, &keep.limits);
    json_doc_free(doc);
    batch_keep_free(&keep);
    arena_free(a);
    return 0;
}
