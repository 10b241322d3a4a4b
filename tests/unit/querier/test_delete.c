/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /api/v1/deletes and POST /api/v1/delete over ingesters with canned replies: how what shards
 * say becomes one answer. The engine is tested in tests/unit/common/store/mask/test_tomb.c, the
 * whole path in tests/cluster/store/test_delete.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/store/mask/tomb.h"
#include "proto/delete.pb-c.h"
#include "tests/lib/roles/querier_bed.h"

static struct qbed bed;

static int setup(void **state)
{
    (void)state;
    qbed_init(&bed, 2, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    qbed_deinit(&bed);
    return 0;
}

static ProtobufCBinaryData bytes(const char *s)
{
    return (ProtobufCBinaryData){ strlen(s), (uint8_t *)(uintptr_t)s };
}

static Embertree__DeleteTomb tomb(const char *id, uint32_t shard, enum tomb_state state,
                                  uint32_t done, const char *phase)
{
    Embertree__DeleteTomb t = EMBERTREE__DELETE_TOMB__INIT;

    t.id = bytes(id);
    t.what = bytes("{pod=\"a\"}");
    t.tenant = bytes("anonymous");
    t.shard = shard;
    t.kind = TOMB_SERIES;
    t.state = state;
    t.series = 1;
    t.created_ms = 1000 + shard;
    t.done = done;
    t.of = done || state ? 5000 : 0;
    t.phase = bytes(phase);
    return t;
}

/* The reply of an ingester with these tombs; valid until the next for the same one. */
static void answer(size_t ingester, Embertree__DeleteTomb *t, size_t n)
{
    static char packed[2][4096];
    static struct str canned[2];
    Embertree__DeleteReply r = EMBERTREE__DELETE_REPLY__INIT;
    Embertree__DeleteTomb *at[8];

    assert_true(n <= 8);
    for (size_t i = 0; i < n; i++)
        at[i] = &t[i];
    r.tombs = at;
    r.n_tombs = n;
    size_t len = embertree__delete_reply__get_packed_size(&r);
    assert_true(len <= sizeof(packed[0]));
    (void)embertree__delete_reply__pack(&r, (uint8_t *)(void *)packed[ingester]);
    canned[ingester] = str_n(packed[ingester], len);
    bed.ingesters[ingester].canned = &canned[ingester];
}

static void has(const char *reply, const char *text)
{
    if (!strstr(reply, text))
        fail_msg("no %s in %s", text, reply);
}

static const char *list(void)
{
    const char *reply = qbed_get(&bed, "/api/v1/deletes");

    assert_int_equal(qbed_status(reply), 200);
    return qbed_body(reply);
}

/* The phase is that of the shard that is furthest behind. */
static void test_phase(void **state)
{
    Embertree__DeleteTomb a[] = { tomb("one", 0, TOMB_PURGING, 3000, "label index"),
                                  tomb("two", 0, TOMB_PURGED, 5000, "files") };
    Embertree__DeleteTomb b[] = { tomb("one", 1, TOMB_PURGING, 1200, "rows of series"),
                                  tomb("two", 1, TOMB_DONE, 5000, "") };

    (void)state;
    answer(0, a, 2);
    answer(1, b, 2);
    const char *body = list();
    has(body, "\"id\":\"one\",\"what\":\"{pod=\\\"a\\\"}\",\"kind\":\"series\",\"state\":"
              "\"purging\",\"phase\":\"rows of series\"");
    has(body, "\"percent\":42");
    has(body, "\"state\":\"purged\",\"phase\":\"files\"");
    a[0] = tomb("one", 0, TOMB_PURGING, 0, "waiting");
    answer(0, a, 1);
    answer(1, b, 1);
    has(list(), "\"state\":\"purging\",\"phase\":\"waiting\"");
    a[0] = tomb("one", 0, TOMB_DONE, 5000, "");
    b[0] = tomb("one", 1, TOMB_DONE, 5000, "");
    answer(0, a, 1);
    answer(1, b, 1);
    has(list(), "\"state\":\"done\",\"phase\":\"\"");
}

/* A shard that has nothing of it is no measure of how far the others are. */
static void test_shard_without(void **state)
{
    Embertree__DeleteTomb a[] = { tomb("one", 0, TOMB_PURGING, 0, "waiting") };
    Embertree__DeleteTomb b[] = { tomb("one", 1, TOMB_PURGING, 2000, "rows of series") };

    (void)state;
    a[0].series = 0;
    answer(0, a, 1);
    answer(1, b, 1);
    has(list(), "\"phase\":\"rows of series\"");
}

static void test_refused(void **state)
{
    static const struct {
        const char *target, *want;
    } rows[] = {
        { "/api/v1/delete", "query is missing" },
        { "/api/v1/delete?all=1&query=%7Ba=%22b%22%7D", "exclude each other" },
        { "/api/v1/delete?query=%7B%7D", "selects everything" },
        { "/api/v1/delete?query=%7Ba=%22b%22%7D", "confirm is missing" },
        { "/api/v1/delete?all=1&confirm=acme", "confirm is not the tenant's name" },
        { "/api/v1/delete?all=1&dry_run=1&from=200&until=100", "from is not before until" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        qbed_send(&bed, "POST", rows[i].target, "", "");
        const char *reply = qbed_reply(&bed);
        assert_int_equal(qbed_status(reply), 400);
        has(reply, rows[i].want);
    }
    qbed_send(&bed, "POST", "/api/v1/delete?all=1&confirm=anonymous",
              "Origin: http://elsewhere.example\r\n", "");
    assert_int_equal(qbed_status(qbed_reply(&bed)), 403);
    assert_int_equal(bed.ingesters[0].calls + bed.ingesters[1].calls, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* ---- keys that may delete some series only --------------------------------------------------- */

#define DELETE(what) "/api/v1/delete?query=" what "&confirm=" what
#define POD_X        "%7Bpod=%22x%22%7D"
#define LIMITED \
    "[{\"tenants\":[\"anonymous\"],\"roles\":[\"delete\"],\"match\":\"{team=\\\"a\\\"}\"}]"

static void told(size_t ingester, const char *id, const char *what, const char *const *matchers)
{
    const struct buf *got = &bed.ingesters[ingester].told;
    Embertree__DeleteRequest *m =
        embertree__delete_request__unpack(NULL, got->len, (const uint8_t *)(const void *)got->ptr);
    size_t n = 0;

    assert_non_null(m);
    if (id)
        assert_true(str_eqc(str_n(m->id.data, m->id.len), id));
    assert_true(str_eqc(str_n(m->what.data, m->what.len), what));
    for (; matchers[n]; n++) {
        assert_true(n < m->n_matchers);
        struct str name = str_n(m->matchers[n]->name.data, m->matchers[n]->name.len);
        struct str value = str_n(m->matchers[n]->value.data, m->matchers[n]->value.len), want;
        want = str_c(matchers[n]);
        assert_int_equal(want.len, name.len + 1 + value.len);
        assert_true(str_starts(want, name) && str_eq(str_sub(want, name.len + 1, want.len), value));
    }
    assert_int_equal(m->n_matchers, n);
    embertree__delete_request__free_unpacked(m, NULL);
}

static void test_limited_key(void **state)
{
    static const char *const both[] = { "pod=x", "team=a", NULL }, *const pod[] = { "pod=x", NULL };
    struct key_record *k = fake_identity("aaaaaaaaaaaa", LIMITED);

    (void)state;
    bed.door.who = k;
    qbed_send(&bed, "POST", DELETE(POD_X) "&id=t-1", "", "");
    net_pass(&bed.world, 100);
    const char *reply = qbed_reply(&bed);
    assert_int_equal(qbed_status(reply), 200);
    has(qbed_body(reply), "\"id\":\"t-1\"");
    has(qbed_body(reply), "\"what\":\"{pod=\\\"x\\\"}\"");
    for (size_t i = 0; i < 2; i++)
        told(i, "aaaaaaaaaaaa/t-1", "{pod=\"x\"} and {team=\"a\"}", both);
    qbed_send(&bed, "POST", DELETE(POD_X) "&dry_run=1", "", ""); /* an id of the server's making */
    net_pass(&bed.world, 100);
    assert_int_equal(qbed_status(qbed_reply(&bed)), 200);
    told(0, NULL, "{pod=\"x\"} and {team=\"a\"}", both);
    static const struct {
        const char *target, *want;
        int status;
    } refused[] = {
        { "/api/v1/delete?all=1&confirm=anonymous", "scoped_key: ", 403 },
        { "/api/v1/delete?all=1&dry_run=1", "scoped_key: ", 403 },
        { DELETE(POD_X) "&id=0123456789012345678901234567890123456789012345678901", "at most 51",
          400 },
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        qbed_send(&bed, "POST", refused[i].target, "", "");
        net_pass(&bed.world, 100);
        reply = qbed_reply(&bed);
        assert_int_equal(qbed_status(reply), refused[i].status);
        has(reply, refused[i].want);
    }
    bed.door.who = NULL;
    qbed_send(&bed, "POST", DELETE(POD_X) "&id=t-1", "", "");
    net_pass(&bed.world, 100);
    assert_int_equal(qbed_status(qbed_reply(&bed)), 200);
    told(0, "t-1", "{pod=\"x\"}", pod);
    record_key_unref(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = { T(test_phase), T(test_shard_without), T(test_refused),
                                        T(test_limited_key) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
