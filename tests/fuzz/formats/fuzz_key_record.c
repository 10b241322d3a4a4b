/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of keys, blocks, grants, ranges of addresses and texts of keys: any bytes. What is taken
 * can be written and signed within the limit, reads back to the same text, covers itself, and has
 * nothing that the limits forbid.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/identity/record_net.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t sign[RECORD_SIGN_BYTES] = { 1, 2, 3 };
static const uint8_t other[RECORD_SIGN_BYTES] = { 3, 2, 1 };

static void check_key(const struct key_record *r)
{
    struct key_record *back;
    struct buf one, two;
    struct err e;

    CHECK(key_id_ok(r->id) && r->name.len <= RECORD_NAME_MAX && r->nets_len <= RECORD_NETS_MAX);
    CHECK(r->grants.len <= GRANTS_MAX && r->from_ms >= 0 && r->until_ms >= 0);
    for (size_t i = 0; i < r->grants.len; i++) {
        const struct grant *g = &r->grants.ptr[i];

        CHECK(g->roles && (g->everywhere ? !g->tenants_len : g->tenants_len > 0));
        CHECK(g->match.len <= GRANT_LABELS_MAX && g->set.len <= GRANT_LABELS_MAX);
    }
    CHECK(grants_cover(&r->grants, &r->grants, &e));
    buf_init(&one, KEY_RECORD_BYTES_MAX);
    buf_init(&two, KEY_RECORD_BYTES_MAX);
    record_key_write(r, sign, &one);
    CHECK(buf_ok(&one));
    CHECK(record_sig_ok(buf_str(&one), sign) && !record_sig_ok(buf_str(&one), other));
    CHECK(record_key_read(buf_str(&one), &back, &e) == 0);
    record_key_write(back, sign, &two);
    CHECK(str_eq(buf_str(&one), buf_str(&two)));
    record_key_unref(back);
    buf_deinit(&one);
    buf_deinit(&two);
}

static void check_block(const struct block_record *b, struct arena *a)
{
    struct block_record back;
    struct buf one;
    struct err e;

    buf_init(&one, KEY_RECORD_BYTES_MAX);
    record_block_write(b, sign, &one);
    CHECK(buf_ok(&one) && record_sig_ok(buf_str(&one), sign));
    CHECK(record_block_read(buf_str(&one), a, &back, &e) == 0);
    CHECK(str_eq(back.id, b->id) && str_eq(back.why, b->why) && back.at_ms == b->at_ms);
    buf_deinit(&one);
}

/* A range reads back from its own text, and has the address of that text. */
static void check_range(const struct net_range *r)
{
    char text[NET_RANGE_TEXT], peer[NET_RANGE_TEXT + 8];
    struct net_range back;
    struct err e;

    net_range_format(r, text);
    CHECK(net_range_parse(str_c(text), &back, &e) == 0);
    CHECK(back.bits == r->bits && memcmp(back.addr, r->addr, sizeof(back.addr)) == 0);
    *strchr(text, '/') = '\0';
    (void)snprintf(peer, sizeof(peer), strchr(text, ':') ? "[%s]:1" : "%s:1", text);
    CHECK(net_range_has(r, 1, peer));
}

static void check_texts(struct str in)
{
    char peer[80] = "";
    struct net_range range;
    struct key_text text;
    struct err e;

    if (key_text_parse(in, &text))
        CHECK(key_id_ok(text.id) && text.secret.len == KEY_SECRET_LEN);
    if (in.len)
        memcpy(peer, in.ptr, MIN(in.len, sizeof(peer) - 1));
    if (net_range_parse(in, &range, &e))
        CHECK(e.code == ERR_INPUT);
    else
        check_range(&range);
    range = (struct net_range){ .bits = 0 };
    (void)net_range_has(&range, 1, peer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str in = str_n(data, size);
    struct arena *a = arena_new(64 * KIB);
    struct block_record b;
    struct key_record *r;
    struct err e;

    check_texts(in);
    if (record_key_read(in, &r, &e)) {
        CHECK((e.code == ERR_INPUT || e.code == ERR_LIMIT) && e.text[0]);
    } else {
        check_key(r);
        record_key_unref(r);
    }
    if (record_block_read(in, a, &b, &e))
        CHECK((e.code == ERR_INPUT || e.code == ERR_LIMIT) && e.text[0]);
    else
        check_block(&b, a);
    (void)record_sig_ok(in, sign);
    arena_free(a);
    return 0;
}
