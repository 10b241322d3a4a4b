/* SPDX-License-Identifier: Apache-2.0
 *
 * The overrides file: any bytes; what is taken has limits within their bounds, and what a policy
 * prints is an entry that reads back to the same.
 */
#include <stdlib.h>

#include "common/base/buf.h"
#include "distributor/rules/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each line of `from` behind four blanks, as the tenant x. */
static void as_entry(struct str from, struct buf *out)
{
    struct str line;
    bool more = true;

    buf_add_str(out, STR("tenants:\n  x:\n"));
    while (from.len && str_next(&from, '\n', &more, &line))
        buf_addf(out, "    %.*s\n", STR_ARG(line));
}

static void check(const struct policy *p, const struct distributor_conf *c, const struct limits *l)
{
    struct buf one, two, file;
    struct overrides *back;
    struct err e;

    CHECK(p->rules && p->past_ms <= c->past_ms && p->limits.frames >= p->limits.frames_keep &&
          p->limits.symbol_bytes >= p->limits.symbol_keep_bytes &&
          p->limits.decode_bytes == l->decode_bytes);
    buf_init(&one, 8 * MIB);
    buf_init(&two, 8 * MIB);
    buf_init(&file, 8 * MIB);
    policy_format(p, &one);
    as_entry(buf_str(&one), &file);
    if (overrides_parse("f", buf_str(&file), c, l, &back, &e) == 0) {
        policy_format(overrides_policy(back, STR("x")), &two);
        CHECK(str_eq(buf_str(&one), buf_str(&two)));
        overrides_free(back);
    }
    buf_deinit(&one);
    buf_deinit(&two);
    buf_deinit(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct distributor_conf c = { .past_ms = UINT64_C(400) * 86400000, .future_ms = 600000 };
    struct limits l = limits_default();
    struct overrides *o;
    struct err e;

    if (overrides_parse("f", str_n(data, size), &c, &l, &o, &e)) {
        CHECK(e.code == ERR_CONFIG);
        return 0;
    }
    check(overrides_policy(o, STR("unlisted")), &c, &l);
    check(overrides_policy(o, STR("team-a")), &c, &l);
    overrides_free(o);
    return 0;
}
