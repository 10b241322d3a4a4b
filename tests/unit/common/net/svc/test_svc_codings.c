/* SPDX-License-Identifier: Apache-2.0
 *
 * What collectors may be set to compress their messages with: one call for each, by gRPC.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/compress/compress.h"
#include "common/net/svc/svc.h"
#include "tests/lib/gen/push_gen.h"
#include "tests/lib/net/net_h2.h"

static char seen[64];

static void on_call(struct svc_call *c)
{
    const struct inflate_limits l = { .bytes_max = sizeof(seen) - 1, .ratio_max = 200 };
    struct str message;
    struct buf tmp;
    struct err e;

    buf_init(&tmp, sizeof(seen) - 1);
    if (svc_message(c, &l, &tmp, &message, &e)) {
        svc_reply_err(c, &e);
    } else {
        (void)snprintf(seen, sizeof(seen), "%.*s", STR_ARG(message));
        svc_reply(c, NULL);
    }
    buf_deinit(&tmp);
}

static void test_codings(void **state)
{
    static const struct {
        const char *name;
        struct str coded;
        int status;
    } rows[] = {
        { "zstd", { "\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00hello", 14 }, 0 },
        { "snappy", { "\x05\x10hello", 7 }, 0 },
        { "snappy", { "\xff\x06\0\0sNaPpY\x01\x09\0\0\xbb\x1f\x1c\x19hello", 23 }, 0 },
        { "Snappy", { "\x05\x10hello", 7 }, 0 },
        { "snappy", { "\x05\x10hell", 6 }, 3 },
        { "snappy", { "\xff\xff\xff\xff\x0f\x10hello", 11 }, 3 }, /* says 4 GiB */
        { "zstd", { "hello", 5 }, 3 },
        { "lz4", { "hello", 5 }, 12 },
    };
    struct net_world w;
    struct buf b;

    (void)state;
    net_world_init(&w);
    svc_route(w.server, "/t.Echo/Shout", SVC_PROTO, MIB, on_call, NULL);
    struct net_h2 *c = net_h2_connect(&w, false, 0);
    buf_init(&b, MIB);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *const headers[] = { "content-type", "application/grpc", "grpc-encoding",
                                        rows[i].name, NULL };
        char want[32];

        seen[0] = 0;
        buf_reset(&b);
        push_gen_frame(1, rows[i].coded, &b);
        struct net_h2_stream *s = net_h2_request(c, "POST", "/t.Echo/Shout", headers, buf_str(&b));
        (void)snprintf(want, sizeof(want), "grpc-status: %d\n", rows[i].status);
        const char *got = rows[i].status ? s->headers : s->trailers;
        if (!got || !strstr(got, want) || (rows[i].status == 0) != str_eqc(STR("hello"), seen))
            fail_msg("row %zu: %s", i, got);
    }
    buf_deinit(&b);
    net_h2_finish(c);
    net_world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_codings) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
