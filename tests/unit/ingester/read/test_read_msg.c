/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of the querier that the ingester refuses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/size.h"
#include "ingester/read/read_msg.h"
#include "proto/query.pb-c.h"
#include "tests/lib/gen/write_gen.h"

static ProtobufCBinaryData bytes(const char *s)
{
    return (ProtobufCBinaryData){ strlen(s), (uint8_t *)(uintptr_t)s };
}

static Embertree__MergeRequest merge_request(void)
{
    Embertree__MergeRequest m = EMBERTREE__MERGE_REQUEST__INIT;

    m.tenant = bytes("t");
    m.profile_type = bytes(WRITE_GEN_CPU);
    m.start_ms = 1000;
    m.end_ms = 2000;
    return m;
}

static void refused(enum rpc_method method, const ProtobufCMessage *m, const char *want)
{
    struct arena *a = arena_new(MIB);
    struct read_msg msg;
    struct err e = { 0 };
    uint8_t payload[1024];
    size_t len = protobuf_c_message_get_packed_size(m);

    assert_true(len <= sizeof(payload));
    (void)protobuf_c_message_pack(m, payload);
    int code = read_msg_decode(method, str_n(payload, len), a, &msg, &e);
    read_msg_deinit(&msg);
    arena_free(a);
    if ((code != ERR_INPUT && code != ERR_LIMIT) || !strstr(e.text, want))
        fail_msg("wanted %s: %d %s", want, code, e.text);
}

static void test_refused_requests(void **state)
{
    Embertree__Matcher matcher = EMBERTREE__MATCHER__INIT, *matchers = &matcher;
    Embertree__MergeRequest m = merge_request();
    Embertree__TimelineRequest t = EMBERTREE__TIMELINE_REQUEST__INIT;
    Embertree__FunctionsRequest f = EMBERTREE__FUNCTIONS_REQUEST__INIT;
    Embertree__LabelsRequest l = EMBERTREE__LABELS_REQUEST__INIT;

    (void)state;
    m.end_ms = 1;
    refused(RPC_MERGE, &m.base, "after end");
    m.end_ms = INT64_MAX;
    refused(RPC_MERGE, &m.base, "absurd");
    m = merge_request();
    m.tenant = bytes("");
    refused(RPC_MERGE, &m.base, "no tenant");
    m = merge_request();
    m.matchers = &matchers;
    m.n_matchers = 1;
    refused(RPC_MERGE, &m.base, "has no name");
    matcher.name = bytes("a");
    matcher.op = MATCH_NRE + 1;
    refused(RPC_MERGE, &m.base, "operator");
    matcher.op = MATCH_RE;
    matcher.value = bytes("(");
    refused(RPC_MERGE, &m.base, "(");
    t.tenant = bytes("t");
    refused(RPC_TIMELINE, &t.base, "0 points");
    t.points = 10;
    refused(RPC_TIMELINE, &t.base, "absurd");
    t.step_ms = INT64_MAX / 2;
    refused(RPC_TIMELINE, &t.base, "absurd");
    f.tenant = bytes("t");
    f.step_ms = 1;
    refused(RPC_FUNCTIONS, &f.base, "0 points");
    l.tenant = bytes("t");
    l.kind = STORE_TYPES + 1;
    refused(RPC_LABELS, &l.base, "unknown kind");
    l.kind = STORE_VALUES;
    refused(RPC_LABELS, &l.base, "which label");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
