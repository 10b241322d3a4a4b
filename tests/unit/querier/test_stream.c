/* SPDX-License-Identifier: Apache-2.0
 *
 * Long answers in pieces: the same bytes as at once, however slowly they are taken; little of them
 * waits; a client that leaves in the middle leaves nothing behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>
#include <string.h>

#include "common/base/compress/compress.h"
#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/size.h"
#include "common/net/json_in.h"
#include "querier/base/state.h"
#include "tests/lib/net/net_h2.h"
#include "tests/lib/roles/querier_bed.h"

#define STACKS   1500
#define NAME_MAX 4000
#define FOLDED   "/pyroscope/render?query=" QBED_CPU "%7B%7D&from=now-100s&format=collapsed"
#define PPROF    "/pyroscope/render?query=" QBED_CPU "%7B%7D&from=now-100s&format=pprof"

#define FLAME   "/pyroscope/render?query=" QBED_CPU "%7B%7D&from=now-100s&maxNodes=1048576"
#define GROUPED FLAME "&groupBy=pod"
#define DIFF                                                                                     \
    "/pyroscope/render-diff?leftQuery=" QBED_CPU "%7B%7D&leftFrom=now-100s&rightQuery=" QBED_CPU \
    "%7B%7D&rightFrom=now-100s&maxNodes=1048576"
#define STACKTRACES "SelectMergeStacktraces"
#define STACKTRACES_BODY                                                                 \
    "{\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{}\",\"maxNodes\":1048576," \
    "\"start\":1749999900000,\"end\":1750000000000}"
#define DIFF_BODY "{\"left\":" STACKTRACES_BODY ",\"right\":" STACKTRACES_BODY "}"

static char names[STACKS][NAME_MAX];
static struct qbed_push pushes[STACKS];

/* Stacks with long names: some 6 MiB of folded text; of noise, 3 MiB of that compressed. */
static void open_bed_of(struct qbed *b, bool noise)
{
    struct prng p;

    prng_init(&p, 7);
    qbed_init(b, 1, NULL);
    for (int i = 0; i < STACKS; i++) {
        int n = snprintf(names[i], NAME_MAX, "main;f%d", i);
        for (int k = n; k < NAME_MAX - 1; k++)
            names[i][k] = (char)('a' + (noise ? (int)prng_below(&p, 26) : i % 26));
        names[i][NAME_MAX - 1] = 0;
        pushes[i] = (struct qbed_push){
            0, "a", "", QBED_CPU, QBED_NOW - 50000, names[i], (uint64_t)i + 1, false, NULL
        };
    }
    qbed_data(b, pushes, STACKS);
}

static void open_bed(struct qbed *b)
{
    open_bed_of(b, false);
}

/* The body of a chunked reply. */
static void unchunk(const char *reply, size_t len, struct buf *out)
{
    const char *p = strstr(reply, "\r\n\r\n"), *end = reply + len;

    assert_non_null(p);
    assert_non_null(strcasestr(reply, "transfer-encoding: chunked"));
    for (p += 4; p < end;) {
        char *digits;
        size_t n = strtoul(p, &digits, 16);
        assert_true(digits[0] == '\r' && digits + 2 + n + 2 <= end);
        buf_add_str(out, str_n(digits + 2, n));
        p = digits + 2 + n + 2;
        if (n == 0)
            break;
    }
    assert_true(p == end);
}

static const char *more_headers = ""; /* of the requests below */

struct taken {
    struct buf all;
    size_t most; /* bytes reserved by queries */
};

static void send_get(struct qbed *b, const char *target)
{
    char text[500];

    snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n", target, more_headers);
    net_send_c(b->client, text);
}

/* Takes `step` bytes at a time, SIZE_MAX: all. */
static void take_all(struct qbed *b, size_t step, struct taken *t)
{
    const struct querier *qr = b->self;

    buf_init(&t->all, 64 * MIB);
    t->most = 0;
    for (int idle = 0, n = 0; idle < 3 && n < 10000; n++) {
        size_t had = t->all.len;
        net_pass(&b->world, 1);
        buf_add_str(&t->all, buf_str(&b->client->out));
        b->client->out.len = 0;
        assert_true(b->world.budget.used < 300 * KIB); /* what waits for the client */
        t->most = MAX(t->most, qr->bytes.used);
        if (step != SIZE_MAX)
            net_take(b->client, step);
        idle = t->all.len == had && qr->running == 0 ? idle + 1 : 0;
    }
    if (qr->running || qr->bytes.used)
        fail_msg("step %zu: %zu running, %zu bytes, %zu taken, %zu queued %zu", step, qr->running,
                 (size_t)qr->bytes.used, t->all.len, b->world.budget.used, b->client->room);
}

static void test_folded_in_pieces(void **state)
{
    static const size_t steps[] = { SIZE_MAX, 100000, 3000000 };
    struct taken first = { 0 };
    struct qbed b;

    (void)state;
    open_bed(&b);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct taken t;
        struct buf text;
        size_t lines = 0;

        b.client->room = steps[i] == SIZE_MAX ? SIZE_MAX : 0;
        send_get(&b, FOLDED);
        take_all(&b, steps[i], &t);
        buf_init(&text, 64 * MIB);
        unchunk(t.all.ptr, t.all.len, &text);
        assert_true(text.len > 5 * MIB);
        for (size_t k = 0; k < text.len; k++)
            lines += text.ptr[k] == '\n';
        assert_int_equal(lines, STACKS);
        if (i)
            assert_true(str_eq(buf_str(&text), buf_str(&first.all)));
        else
            first.all = text;
        if (i)
            buf_deinit(&text);
        buf_deinit(&t.all);
    }
    buf_deinit(&first.all);
    qbed_deinit(&b);
}

/* Members of gzip behind each other are one file. */
static void test_pprof_in_pieces(void **state)
{
    struct taken t;
    struct buf zipped, plain;
    struct qbed b;
    struct err e;

    (void)state;
    open_bed(&b);
    send_get(&b, PPROF);
    take_all(&b, SIZE_MAX, &t);
    const char *head = strstr(t.all.ptr, "\r\n\r\n");
    assert_non_null(head);
    buf_init(&zipped, 64 * MIB);
    buf_init(&plain, 64 * MIB);
    if (strcasestr(t.all.ptr, "transfer-encoding: chunked"))
        unchunk(t.all.ptr, t.all.len, &zipped);
    else
        buf_add_str(&zipped, str_n(head + 4, t.all.len - (size_t)(head + 4 - t.all.ptr)));
    struct inflate_limits l = { .bytes_max = 64 * MIB, .ratio_max = 100000 };
    assert_int_equal(gunzip(buf_str(&zipped), &l, &plain, &e), 0);
    assert_true(plain.len > 5 * MIB);
    buf_deinit(&zipped);
    buf_deinit(&plain);
    buf_deinit(&t.all);
    qbed_deinit(&b);
}

static void send_rpc(struct qbed *b, const char *method, const char *json)
{
    char text[1500];

    snprintf(text, sizeof(text),
             "POST /querier.v1.QuerierService/%s HTTP/1.1\r\nHost: h\r\n"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n%s",
             method, strlen(json), more_headers, json);
    net_send_c(b->client, text);
}

static void ask_json(struct qbed *b, int which)
{
    if (which == 5)
        send_get(b, FOLDED);
    else if (which == 0)
        send_get(b, FLAME);
    else if (which == 1)
        send_get(b, GROUPED);
    else if (which == 2)
        send_get(b, DIFF);
    else
        send_rpc(b, which == 3 ? STACKTRACES : "Diff", which == 3 ? STACKTRACES_BODY : DIFF_BODY);
}

static bool ends_with(struct str s, const char *end)
{
    size_t n = strlen(end);

    return s.len >= n && str_eqc(str_sub(s, s.len - n, s.len), end);
}

/* Five answers, at once and slowly: the same, whole, parsed by another's parser. */
static void test_json_in_pieces(void **state)
{
    static const size_t steps[] = { SIZE_MAX, 300000 };
    struct qbed b;
    struct err e;

    (void)state;
    open_bed(&b);
    for (int which = 0; which < 5; which++) {
        struct buf first;
        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
            struct json_doc *doc;
            struct taken t;
            struct buf text;

            b.client->room = steps[i] == SIZE_MAX ? SIZE_MAX : 0;
            ask_json(&b, which);
            take_all(&b, steps[i], &t);
            assert_non_null(strcasestr(t.all.ptr, "content-type: application/json\r\n"));
            buf_init(&text, 64 * MIB);
            unchunk(t.all.ptr, t.all.len, &text);
            buf_deinit(&t.all);
            assert_true(text.len > 5 * MIB);
            assert_true(ends_with(buf_str(&text), which < 2    ? "\"heatmap\":null}"
                                                  : which == 2 ? "\"rightTicks\":1125750}"
                                                  : which == 3 ? "\"maxSelf\":\"1500\"}}"
                                                               : "\"rightTicks\":\"1125750\"}}"));
            assert_int_equal(json_parse(buf_str(&text), &doc, &e), 0);
            json_doc_free(doc);
            if (i)
                assert_true(str_eq(buf_str(&text), buf_str(&first)));
            else
                first = text;
            if (i)
                buf_deinit(&text);
        }
        buf_deinit(&first);
    }
    qbed_deinit(&b);
}

#define DEEP       1000 /* frames of a stack */
#define DEEP_BYTES (DEEP * 8 + 16)
#define DEEP_MOST  1048

/* Over a million nodes: what the answer is made from is kept, its text is not. */
static void test_a_million_nodes(void **state)
{
    static char(*deep)[DEEP_BYTES];
    static const char *const flags[] = { "--querier.query-bytes-max=1GiB",
                                         "--querier.bytes-max=1GiB",
                                         "--querier.tenant-bytes-max=1GiB", NULL };
    struct taken t;
    struct buf text;
    struct qbed b;

    (void)state;
    deep = xcalloc(DEEP_MOST, sizeof(*deep));
    for (size_t i = 0; i < DEEP_MOST; i++) {
        size_t n = (size_t)snprintf(deep[i], DEEP_BYTES, "r%zu", i);
        for (size_t k = 1; k < DEEP; k++)
            n += (size_t)snprintf(deep[i] + n, DEEP_BYTES - n, ";f%zu", k % 300);
        pushes[i] = (struct qbed_push){
            0, "a", "", QBED_CPU, QBED_NOW - 50000, deep[i], 1000000000000 + i, false, NULL
        };
    }
    qbed_init(&b, 1, flags);
    qbed_data(&b, pushes, DEEP_MOST);
    b.client->room = 0;
    send_get(&b, FLAME);
    take_all(&b, 4000000, &t);
    buf_init(&text, 256 * MIB);
    unchunk(t.all.ptr, t.all.len, &text);
    printf("%zu MiB of text, at most %zu MiB reserved\n", text.len / MIB, t.most / MIB);
    assert_true(text.len > DEEP_MOST * DEEP * 20);
    assert_true(t.most > DEEP_MOST * DEEP * 50);
    assert_true(t.most < DEEP_MOST * DEEP * 380); /* tree, layout, bars; with the reply before */
    buf_deinit(&text);
    buf_deinit(&t.all);
    qbed_deinit(&b);
    xfree(deep);
}

static void test_json_whose_reader_leaves(void **state)
{
    const struct querier *qr;
    struct qbed b;

    (void)state;
    open_bed(&b);
    qr = b.self;
    for (int which = 0; which < 5; which++) {
        b.client->room = 0;
        ask_json(&b, which);
        net_pass(&b.world, 8);
        net_take(b.client, 200000);
        net_pass(&b.world, 5);
        assert_int_equal(qr->running, 1);
        assert_true(qr->bytes.used > 0);
        qbed_hang_up(&b);
        net_pass(&b.world, 5);
        assert_int_equal(qr->running, 0);
        assert_int_equal(qr->bytes.used, 0);
        assert_int_equal(qbed_metric(&b, "embertree_querier_gone_total"), which + 1);
    }
    qbed_deinit(&b);
}

static void test_who_leaves_in_the_middle(void **state)
{
    const struct querier *qr;
    struct qbed b;

    (void)state;
    open_bed(&b);
    qr = b.self;
    b.client->room = 0;
    send_get(&b, FOLDED);
    net_pass(&b.world, 5);
    net_take(b.client, 200000);
    net_pass(&b.world, 5);
    assert_int_equal(qr->running, 1); /* waits for room */
    assert_true(qr->bytes.used > 0);
    qbed_hang_up(&b);
    net_pass(&b.world, 5);
    assert_int_equal(qr->running, 0);
    assert_int_equal(qr->bytes.used, 0);
    assert_int_equal(qbed_metric(&b, "embertree_querier_gone_total"), 1);
    qbed_deinit(&b);
}

/* ---- gzip */

static void unzip(struct buf *zipped, struct buf *plain)
{
    const struct inflate_limits l = { .bytes_max = 64 * MIB, .ratio_max = 0 };
    struct err e;

    buf_init(plain, 64 * MIB);
    if (gunzip(buf_str(zipped), &l, plain, &e))
        fail_msg("%s", e.text);
    buf_deinit(zipped);
}

/* What `which` answers under `headers`, its head to *head. */
static void answer_of(struct qbed *b, int which, const char *headers, size_t step, struct buf *head,
                      struct buf *body)
{
    struct taken t;

    more_headers = headers;
    b->client->room = step == SIZE_MAX ? SIZE_MAX : 0;
    ask_json(b, which);
    take_all(b, step, &t);
    more_headers = "";
    buf_init(body, 64 * MIB);
    unchunk(t.all.ptr, t.all.len, body);
    buf_init(head, 10000);
    buf_add(head, t.all.ptr, (size_t)(strstr(t.all.ptr, "\r\n\r\n") - t.all.ptr) + 4);
    buf_add_c(head, '\0');
    buf_deinit(&t.all);
}

/* All six kinds, by readers of all speeds: one gzip file, and in it what others get. */
static void test_zipped_in_pieces(void **state)
{
    static const size_t steps[] = { SIZE_MAX, 70001, 400000 };
    struct qbed b;

    (void)state;
    open_bed_of(&b, true);
    for (int which = 0; which < 6; which++) {
        struct buf head, plain;
        answer_of(&b, which, "", SIZE_MAX, &head, &plain);
        assert_null(strcasestr(head.ptr, "content-encoding"));
        assert_non_null(strcasestr(head.ptr, "\r\nvary: accept-encoding\r\n"));
        buf_deinit(&head);
        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
            struct buf zipped, text;
            answer_of(&b, which, "Accept-Encoding: br, gzip\r\n", steps[i], &head, &zipped);
            assert_non_null(strcasestr(head.ptr, "\r\ncontent-encoding: gzip\r\n"));
            assert_non_null(strcasestr(head.ptr, "\r\nvary: accept-encoding\r\n"));
            assert_true(zipped.len > 2 * MIB && zipped.len < plain.len * 3 / 4);
            unzip(&zipped, &text);
            assert_true(str_eq(buf_str(&text), buf_str(&plain)));
            buf_deinit(&text);
            buf_deinit(&head);
        }
        buf_deinit(&plain);
    }
    qbed_deinit(&b);
}

static void test_who_is_not_zipped_for(void **state)
{
    static const char *const headers[] = { "Accept-Encoding: br\r\n",
                                           "Accept-Encoding: gzip;q=0, *\r\n",
                                           "Accept-Encoding: identity\r\n" };
    struct buf head, body;
    struct qbed b;

    (void)state;
    open_bed_of(&b, true);
    for (size_t i = 0; i < ARRAY_LEN(headers); i++) {
        answer_of(&b, 5, headers[i], SIZE_MAX, &head, &body);
        assert_null(strcasestr(head.ptr, "content-encoding"));
        assert_memory_equal(body.ptr, "main;f", 6);
        buf_deinit(&head);
        buf_deinit(&body);
    }
    /* A pprof file is gzip as it is: once. */
    struct taken t;
    more_headers = "Accept-Encoding: gzip\r\n";
    send_get(&b, PPROF);
    more_headers = "";
    take_all(&b, SIZE_MAX, &t);
    assert_null(strcasestr(t.all.ptr, "content-encoding"));
    assert_non_null(strcasestr(t.all.ptr, "transfer-encoding: chunked"));
    buf_init(&body, 64 * MIB);
    unchunk(t.all.ptr, t.all.len, &body);
    assert_true(gzip_sniff(buf_str(&body)));
    unzip(&body, &head);
    assert_false(gzip_sniff(buf_str(&head)));
    buf_deinit(&head);
    buf_deinit(&t.all);
    qbed_deinit(&b);
}

/* Every byte is freed, zlib's state too (ASan), wherever the client left. */
static void test_zipped_for_nobody(void **state)
{
    const struct querier *qr;
    struct qbed b;

    (void)state;
    open_bed_of(&b, true);
    qr = b.self;
    more_headers = "Accept-Encoding: gzip\r\n";
    for (int i = 0; i < 12; i++) {
        b.client->room = 0;
        ask_json(&b, i % 6);
        net_pass(&b.world, 8);
        net_take(b.client, (size_t)i * 90000);
        net_pass(&b.world, 5);
        assert_int_equal(qr->running, 1);
        assert_true(qr->bytes.used > GZIP_STREAM_BYTES);
        qbed_hang_up(&b);
        net_pass(&b.world, 5);
        assert_int_equal(qr->running, 0);
        assert_int_equal(qr->bytes.used, 0);
    }
    more_headers = "";
    qbed_deinit(&b);
}

/* ---- broken off */

/* A pool whose one place is taken for good, by a job for a loop that does not run. */
struct jam {
    struct loop *elsewhere;
    struct pool *pool, *was;
};

static void nothing(void *cookie)
{
    (void)cookie;
}

static void jam_in(struct jam *j, struct qbed *b)
{
    j->elsewhere = loop_sim_new(&b->world.clock);
    j->pool = pool_new("jam", 0, 1);
    assert_true(pool_submit(j->pool, j->elsewhere, nothing, NULL, NULL));
    j->was = b->ctx.pool;
    b->ctx.pool = j->pool;
}

static void jam_out(struct jam *j, struct qbed *b)
{
    b->ctx.pool = j->was;
    pool_free(j->pool);
    loop_sim_step(j->elsewhere);
    loop_free(j->elsewhere);
}

/* Tells of what came since `opened`; talks, so more may come. */
static size_t open_what_came(struct net_h2 *c, struct net_h2_stream *s, size_t opened)
{
    size_t n = s->body_len - opened;

    net_h2_open(c, s, n);
    return n;
}

#define H2_WINDOW 65535 /* of the connection, until it is opened */

/* What goes wrong behind the first byte cannot be told in words: the end does not come. */
static void test_chunked_is_broken_off(void **state)
{
    static const char *const headers[] = { "", "Accept-Encoding: gzip\r\n" };
    const struct querier *qr;
    struct qbed b;

    (void)state;
    open_bed_of(&b, true);
    qr = b.self;
    for (int i = 0; i < 10; i++) {
        struct jam j;
        struct taken t;
        more_headers = headers[i % 2];
        b.client->room = 0;
        ask_json(&b, i / 2);
        net_pass(&b.world, 8);
        net_take(b.client, 200000);
        assert_int_equal(qr->running, 1);
        jam_in(&j, &b);
        take_all(&b, SIZE_MAX / 2, &t);
        jam_out(&j, &b);
        assert_memory_equal(t.all.ptr, "HTTP/1.1 200 ", 13);
        assert_non_null(strcasestr(t.all.ptr, "transfer-encoding: chunked"));
        assert_true(t.all.len > 500000 && t.all.len < 3 * MIB);
        assert_false(ends_with(buf_str(&t.all), "0\r\n\r\n"));
        assert_true(b.client->closed);
        buf_deinit(&t.all);
        qbed_hang_up(&b);
    }
    more_headers = "";
    qbed_deinit(&b);
}

static void test_h2_is_broken_off(void **state)
{
    static const char *const gz[] = { "accept-encoding", "gzip", NULL };
    const struct querier *qr;
    struct qbed b;

    (void)state;
    open_bed_of(&b, true);
    qr = b.self;
    for (int i = 0; i < 2; i++) {
        struct net_h2 *c = net_h2_connect(&b.world, true, 0);
        struct net_h2_stream *s = net_h2_request(c, "GET", FLAME, i ? gz : NULL, STR_NULL);
        struct jam j;
        size_t opened = 0;
        for (int k = 0; k < 20; k++) {
            net_pass(&b.world, 1);
            net_h2_talk(c);
        }
        assert_int_equal(s->status, 200);
        assert_int_equal(s->body_len, H2_WINDOW);
        assert_int_equal(qr->running, 1);
        assert_int_equal(strstr(s->headers, "content-encoding: gzip\n") != NULL, i);
        jam_in(&j, &b);
        for (int k = 0; k < 100 && !s->closed; k++) {
            opened += open_what_came(c, s, opened);
            net_pass(&b.world, 1);
            net_h2_talk(c);
        }
        jam_out(&j, &b);
        assert_true(s->closed && s->body_len > 500000);
        assert_false(s->ended);
        assert_int_equal(s->error, NGHTTP2_INTERNAL_ERROR);
        assert_int_equal(qr->running, 0);
        assert_int_equal(qr->bytes.used, 0);
        net_h2_finish(c);
    }
    qbed_deinit(&b);
}

/* The same bytes by HTTP/2, through a window that opens bit by bit. */
static void test_h2_zipped(void **state)
{
    static const char *const gz[] = { "accept-encoding", "gzip", NULL };
    static const size_t windows[] = { 20000, 300000 };
    struct buf head, plain, zipped, text;
    struct qbed b;

    (void)state;
    open_bed_of(&b, true);
    answer_of(&b, 0, "", SIZE_MAX, &head, &plain);
    buf_deinit(&head);
    for (size_t i = 0; i < ARRAY_LEN(windows); i++) {
        struct net_h2 *c = net_h2_connect(&b.world, true, (uint32_t)windows[i]);
        struct net_h2_stream *s = net_h2_request(c, "GET", FLAME, gz, STR_NULL);
        size_t opened = 0;
        for (int k = 0; k < 1000 && !s->ended; k++) {
            net_pass(&b.world, 1);
            net_h2_talk(c);
            assert_true(b.world.budget.used < 700 * KIB);
            opened += open_what_came(c, s, opened);
        }
        assert_true(s->ended);
        assert_non_null(strstr(s->headers, "content-encoding: gzip\n"));
        assert_non_null(strstr(s->headers, "vary: Accept-Encoding\n"));
        buf_init(&zipped, 64 * MIB);
        buf_add(&zipped, s->body, s->body_len);
        unzip(&zipped, &text);
        assert_true(str_eq(buf_str(&text), buf_str(&plain)));
        buf_deinit(&text);
        net_h2_finish(c);
    }
    buf_deinit(&plain);
    qbed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folded_in_pieces),
        cmocka_unit_test(test_pprof_in_pieces),
        cmocka_unit_test(test_who_leaves_in_the_middle),
        cmocka_unit_test(test_json_in_pieces),
        cmocka_unit_test(test_json_whose_reader_leaves),
        cmocka_unit_test(test_a_million_nodes),
        cmocka_unit_test(test_zipped_in_pieces),
        cmocka_unit_test(test_who_is_not_zipped_for),
        cmocka_unit_test(test_zipped_for_nobody),
        cmocka_unit_test(test_h2_zipped),
        cmocka_unit_test(test_chunked_is_broken_off),
        cmocka_unit_test(test_h2_is_broken_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
