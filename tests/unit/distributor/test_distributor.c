/* SPDX-License-Identifier: Apache-2.0
 *
 * The role behind its HTTP route, with ingesters that ack, fail, or say nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/compress/compress.h"
#include "common/base/mem.h"
#include "common/cluster/view/view_impl.h"
#include "common/model/shard.h"
#include "common/model/slot.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_bed.h"

#define INGEST "/ingest?name=app.cpu&from=now-10s&until=now"

static void free_write(Embertree__WriteRequest *m)
{
    embertree__write_request__free_unpacked(m, NULL);
}

static bool is(ProtobufCBinaryData b, const char *text)
{
    return str_eqc(str_n(b.data, b.len), text);
}

static bool has_label(const Embertree__WriteSeries *s, const char *name, const char *value)
{
    for (size_t i = 0; i < s->n_labels; i++)
        if (is(s->labels[i]->name, name))
            return is(s->labels[i]->value, value);
    return false;
}

static void test_push(void **state)
{
    (void)state;
    struct dist_bed b;
    const char *got;

    dist_bed_init(&b, 1, NULL);
    assert_int_equal(dist_bed_push(&b, INGEST, "", STR("a;b 3\na 2\n"), &got), 200);
    assert_non_null(strstr(got, "Content-Length: 0\r\n"));
    assert_int_equal(b.writes.len, 1);
    Embertree__WriteRequest *m = dist_bed_write(&b, 0);
    assert_true(is(m->tenant, "anonymous") && is(m->service, "app"));
    assert_int_equal(m->received_ms, clock_wall_ms(b.env.clock));
    assert_int_equal(m->n_series, 1);
    const Embertree__WriteSeries *s = m->series[0];
    assert_true(is(s->profile_type, "process_cpu:cpu:nanoseconds:cpu:nanoseconds"));
    assert_int_equal(s->write_id.len, 16);
    assert_false(s->gauge);
    assert_true(has_label(s, "service_name", "app"));
    assert_true(has_label(s, "__name__", "process_cpu"));
    assert_true(has_label(s, "__unit__", "nanoseconds"));
    for (size_t i = 1; i < s->n_labels; i++) /* canonical */
        assert_true(str_cmp(str_n(s->labels[i - 1]->name.data, s->labels[i - 1]->name.len),
                            str_n(s->labels[i]->name.data, s->labels[i]->name.len)) < 0);
    assert_int_equal(s->n_vectors, 1);
    assert_int_equal(s->vectors[0]->slot, slot_of_ms(m->received_ms - 10000));
    assert_int_equal(s->vectors[0]->n_node, 2);
    assert_int_equal(s->vectors[0]->value[0], 20000000);
    assert_int_equal(s->vectors[0]->value[1], 30000000);
    assert_int_equal(m->stacks->n_node_parent, 2);
    assert_int_equal(m->stacks->node_parent[1], 1);
    assert_int_equal(m->stacks->string_data.len, 2);
    free_write(m);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_total"), 1);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_working_bytes"), 0);
    /* The other path, the same handler; a long push is spread over the leaves. */
    assert_int_equal(dist_bed_push(&b, "/pyroscope/ingest?name=app&from=now-40s&until=now", "",
                                   STR("a 8\n"), NULL),
                     200);
    m = dist_bed_write(&b, 1);
    uint64_t sum = 0;
    for (size_t i = 0; i < m->series[0]->n_vectors; i++)
        sum += m->series[0]->vectors[i]->value[0];
    assert_in_range(m->series[0]->n_vectors, 4, 5);
    assert_int_equal(sum, 80000000);
    free_write(m);
    dist_bed_deinit(&b);
}

/* Anything but an ack of the ingester is no 200. */
static void test_no_ack_no_200(void **state)
{
    (void)state;
    static const struct {
        int code, status;
        uint32_t again_s;
        const char *retry_after;
    } rows[] = {
        { ERR_NO_SPACE, 503, 0, "Retry-After: 30\r" }, { ERR_BUSY, 503, 0, "Retry-After: 1\r" },
        { ERR_BUSY, 503, 42, "Retry-After: 42\r" },    { ERR_INTERNAL, 500, 42, NULL },
        { ERR_RATE, 429, 0, "Retry-After: 1\r" },
    };
    struct dist_bed b;
    const char *got;

    dist_bed_init(&b, 1, NULL);
    b.answer = DIST_BED_FAIL;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        b.fail = rows[i].code;
        b.again_s = rows[i].again_s;
        int status = dist_bed_push(&b, INGEST, "", STR("a 1\n"), &got);
        if (status != rows[i].status || (rows[i].retry_after && !strstr(got, rows[i].retry_after)))
            fail_msg("%s: %s", err_name(rows[i].code), got);
        assert_non_null(strstr(got, "\"message\":\"the ingester says no\""));
        assert_int_equal(b.writes.len, i + 1); /* asked once: it did answer */
    }
    dist_bed_deinit(&b);
}

/* No answer: the same bytes once more, the same ids in them, until it is acked. */
static void test_retry(void **state)
{
    (void)state;
    static const char *const flags[] = { "--distributor.attempt_timeout=1s", NULL };
    struct dist_bed b;

    dist_bed_init(&b, 1, flags);
    b.fail_first = 2;
    b.duplicates = 1;
    assert_int_equal(dist_bed_push(&b, INGEST, "", STR("a 1\nb 2\n"), NULL), 200);
    assert_int_equal(b.writes.len, 3);
    Embertree__WriteRequest *first = dist_bed_write(&b, 0);
    for (size_t i = 1; i < 3; i++) {
        Embertree__WriteRequest *m = dist_bed_write(&b, i);
        assert_memory_equal(m->series[0]->write_id.data, first->series[0]->write_id.data, 16);
        assert_memory_equal(m->series[0]->vectors[0]->value, first->series[0]->vectors[0]->value,
                            16);
        free_write(m);
    }
    free_write(first);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_retries_total"), 2);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_duplicates_total"), 1);
    dist_bed_deinit(&b);
}

/* A service that comes again is named by numbers. These ingesters are older and know no such thing:
 * the push is sent again at once, in full, and after a few refusals it is not tried for a while. */
static void test_known_stacks(void **state)
{
    (void)state;
    struct dist_bed b;
    struct gen_pprof g;
    struct buf body;
    const char *reply;

    buf_init(&body, MIB);
    gen_pprof_init(&g);
    gen_type(&g, "cpu", "nanoseconds");
    uint64_t leaf = gen_location(&g, gen_function(&g, "leaf", "a.go"), 7);
    uint64_t top = gen_location(&g, gen_function(&g, "top", "b.go"), 8);
    gen_sample(&g, (uint64_t[]){ leaf, top }, 2, (int64_t[]){ 10 }, 1);
    gen_sample(&g, (uint64_t[]){ top }, 1, (int64_t[]){ 3 }, 1);
    gen_pprof_finish(&g, &body);
    dist_bed_init(&b, 1, NULL);
    for (size_t i = 0; i < 6; i++) {
        if (dist_bed_push(&b, INGEST "&format=pprof", "", buf_str(&body), &reply) != 200)
            fail_msg("push %zu: %s", i, reply);
        assert_int_equal(b.writes.len, i + 1);
        Embertree__WriteRequest *m = dist_bed_write(&b, i);
        assert_null(m->told);
        assert_int_equal(m->stacks->n_node_parent, 2);
        assert_int_equal(m->series[0]->vectors[0]->n_node, 2);
        uint64_t sum = m->series[0]->vectors[0]->value[0] + m->series[0]->vectors[0]->value[1];
        assert_int_equal(sum, 13);
        free_write(m);
    }
    uint64_t told = dist_bed_metric(&b, "embertree_distributor_told_requests_total");
    assert_in_range(told, 1, 4);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_told_refused_total"), told);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_total"), 6);
    dist_bed_deinit(&b);
    buf_deinit(&body);
    gen_pprof_deinit(&g);
}

static void test_never_acked(void **state)
{
    (void)state;
    static const char *const flags[] = { "--distributor.attempt_timeout=1s",
                                         "--distributor.ack_timeout=4s", NULL };
    struct dist_bed b;
    const char *got;

    dist_bed_init(&b, 1, flags);
    b.answer = DIST_BED_SILENT;
    uint64_t began = clock_mono_ms(b.env.clock);
    assert_int_equal(dist_bed_push(&b, INGEST, "", STR("a 1\n"), &got), 503);
    assert_non_null(strstr(got, "Retry-After: "));
    assert_non_null(strstr(got, "\"code\":\"unavailable\""));
    assert_in_range(clock_mono_ms(b.env.clock) - began, 2500, 4200);
    assert_true(b.writes.len >= 3);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_working"), 0);
    dist_bed_deinit(&b);
}

static void test_ingester_down_and_back(void **state)
{
    (void)state;
    struct dist_bed b;
    const char *why = NULL;

    dist_bed_init(&b, 1, NULL);
    assert_true(distributor_role.ready(b.self, &why));
    dist_bed_kill_ingester(&b, 0);
    net_pass(&b.world, 2000);
    assert_false(distributor_role.ready(b.self, &why));
    assert_non_null(strstr(why, "mem://ingester0"));
    dist_bed_send(&b, INGEST, "", STR("a 1\n"));
    net_pass(&b.world, 1500);
    assert_string_equal(dist_bed_reply(&b, 0), ""); /* waits, it may come back */
    dist_bed_start_ingester(&b, 0);
    assert_non_null(strstr(dist_bed_reply(&b, 10000), "HTTP/1.1 200 OK"));
    assert_true(distributor_role.ready(b.self, &why));
    dist_bed_deinit(&b);
}

static void test_shards(void **state)
{
    (void)state;
    static const char *const flags[] = { "--cluster.shards=6", NULL };
    struct dist_bed b;
    size_t used[3] = { 0 };

    dist_bed_init(&b, 3, flags);
    for (int i = 0; i < 40; i++) {
        char target[128], service[16];
        snprintf(service, sizeof(service), "svc%d", i);
        snprintf(target, sizeof(target), "/ingest?name=%s.cpu&from=now-10s&until=now", service);
        assert_int_equal(dist_bed_push(&b, target, "", STR("a 1\n"), NULL), 200);
        Embertree__WriteRequest *m = dist_bed_write(&b, (size_t)i);
        uint32_t shard = shard_of(STR("anonymous"), str_c(service), 6);
        assert_int_equal(m->shard, shard);
        assert_int_equal(b.writes_to.ptr[i], shard % 3);
        used[shard % 3]++;
        free_write(m);
    }
    assert_true(used[0] && used[1] && used[2]);
    /* Final: data on disk is found by it. */
    assert_int_equal(shard_of(STR("anonymous"), STR("app"), 1000000), 976623);
    dist_bed_deinit(&b);
}

/* The map as it would come from the coordination service. */
static void set_map(struct dist_bed *b, struct map_steps spread)
{
    int64_t rev;
    struct map from = *view_map(b->ctx.view, &rev);
    struct map_service s = { STR("anonymous"), STR("big"), spread };
    const struct map *m;
    struct view *v = (struct view *)(uintptr_t)b->ctx.view;
    struct err e;

    from.version++;
    from.services = &s;
    from.services_len = 1;
    assert_int_equal(map_new(&from, &m, &e), 0);
    view_set_map(v, m);
    view_changed(v);
}

/* One push of pod `pod`; the shard it went to. */
static uint32_t shard_of_pod(struct dist_bed *b, int pod, const char *times, const char *headers,
                             uint8_t *ret_id)
{
    char target[256];
    size_t before = b->writes.len;

    (void)snprintf(target, sizeof(target), "/ingest?name=big.cpu{pod=p%d}%s", pod, times);
    assert_int_equal(dist_bed_push(b, target, headers, STR("a 1\n"), NULL), 200);
    assert_int_equal(b->writes.len, before + 1); /* one push is one message */
    Embertree__WriteRequest *m = dist_bed_write(b, before);
    uint32_t shard = m->shard;
    int64_t rev;
    assert_int_equal(m->map_version, view_map(b->ctx.view, &rev)->version);
    if (ret_id)
        memcpy(ret_id, m->series[0]->write_id.data, 16);
    free_write(m);
    return shard;
}

/* A service is spread for profiles of a time on: what is older goes where it went, and so does what
 * comes again and has no time of its own. */
static void test_spread_service(void **state)
{
    (void)state;
    static const char *const flags[] = { "--cluster.shards=12", NULL };
    int64_t step;
    uint32_t home = shard_of(STR("anonymous"), STR("big"), 12), used = 0;
    struct dist_bed b;
    char late[64], early[64];
    uint8_t id[2][16];

    dist_bed_init(&b, 3, flags);
    step = clock_wall_ms(b.env.clock) - 60000;
    step -= step % 10000;
    (void)snprintf(early, sizeof(early), "&from=%" PRId64, step - 10000);
    (void)snprintf(late, sizeof(late), "&from=%" PRId64 "&until=now", step);
    assert_int_equal(shard_of_pod(&b, 1, "", "Idempotency-Key: k\r\n", id[0]), home);
    assert_int_equal(shard_of_pod(&b, 1, late, "", NULL), home); /* the map does not know yet */
    set_map(&b, (struct map_steps){ .at = { { .n = 1 }, { step, 2, 4 } }, .len = 2 });
    for (int i = 0; i < 40; i++) {
        uint32_t at = shard_of_pod(&b, i, late, "", NULL);

        used |= 1u << at;
        assert_int_equal(shard_of_pod(&b, i, late, "Idempotency-Key: x\r\n", NULL), at);
        assert_int_equal(shard_of_pod(&b, i, early, "", NULL), home);
        assert_int_equal(shard_of_pod(&b, i, "&from=now-1s", "Idempotency-Key: x\r\n", NULL), home);
        assert_int_equal(shard_of_pod(&b, i, "", "", NULL), at); /* by its arrival, once */
    }
    assert_int_equal(__builtin_popcount(used), 4);
    assert_true(used & 1u << home);
    assert_int_equal(shard_of_pod(&b, 1, "", "Idempotency-Key: k\r\n", id[1]), home);
    assert_memory_equal(id[0], id[1], 16);
    dist_bed_deinit(&b);
}

/* A 200 says which parts of the push were left out or changed. The reply to a whole push, and to a
 * refused one, says nothing of this. */
static void test_left_out_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *target, *body;
        int status;
        const char *told;
    } rows[] = {
        { INGEST, "a;b 1\na;c 2\n", 200, NULL },
        { INGEST, "a;b 1\nno count\na;c -2\n", 200, "line_without_count=2" },
        { "/ingest?name=app.alloc_space", "a;b 9223372036854775807\na;b 9\nx y\n", 200,
          "line_without_count=1, value_saturated=1" },
        { INGEST, "no count\nat all\n", 400, NULL },
        { "/ingest?name=app.cpu&from=now-10s&until=now&format=lines", "a;b\na;b\n", 200, NULL },
    };
    struct dist_bed b;
    const char *got;

    dist_bed_init(&b, 1, NULL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char want[128];
        assert_int_equal(dist_bed_push(&b, rows[i].target, "", str_c(rows[i].body), &got),
                         rows[i].status);
        (void)snprintf(want, sizeof(want), "X-Embertree-Left-Out: %s\r\n",
                       rows[i].told ? rows[i].told : "");
        if (rows[i].told ? !strstr(got, want) : strstr(got, "Left-Out") != NULL)
            fail_msg("row %zu: %s", i, got);
    }
    b.answer = DIST_BED_FAIL; /* nothing was taken: nothing of it was left out */
    b.fail = ERR_LIMIT;
    assert_int_equal(dist_bed_push(&b, INGEST, "", STR("a;b 1\nno count\n"), &got), 400);
    assert_null(strstr(got, "Left-Out"));
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_left_out_total{what=\"line_without"
                                         "_count\"}"),
                     3);
    dist_bed_deinit(&b);
}

#define FORM "Content-Type: multipart/form-data; boundary=B\r\n"
#define PART(name, content)                                                                    \
    "--B\r\nContent-Disposition: form-data; name=\"" name "\"; filename=\"f\"\r\n\r\n" content \
    "\r\n"
#define ENDED "--B--\r\n"

static void test_bad_requests(void **state)
{
    (void)state;
    static const struct {
        const char *target, *headers, *body;
        int status;
        const char *says;
    } rows[] = {
        { "/ingest", "", "a 1", 400, "name: the service name is empty" },
        { "/ingest?name=", "", "a 1", 400, "name: " },
        { "/ingest?name=a%20b", "", "a 1", 400, "name: byte 0x20" },
        { "/ingest?name=app%7Ba%20b%3D1", "", "a 1", 400, "name: byte 0x20" },
        { "/ingest?name=app&from=yesterday", "", "a 1", 400, "from: " },
        { "/ingest?name=app&until=soon", "", "a 1", 400, "until: " },
        { "/ingest?name=app&from=now&until=now-1h", "", "a 1", 400, "after until" },
        { "/ingest?name=app&from=0&until=5", "", "a 1", 400, "before 1990" },
        { "/ingest?name=app&from=now-2y&until=now", "", "a 1", 400, "not_in_ingestion_window" },
        { "/ingest?name=app&from=now%2B1h", "", "a 1", 400, "not_in_ingestion_window" },
        { "/ingest?name=app", "", "", 400, "the body is empty" },
        { "/ingest?name=app", "", "hello", 400, "as count; the first one is \\\"hello\\\"\"" },
        { "/ingest?name=app", "", "\n\na;b 1.5\nc", 400, "the first one is \\\"a;b 1.5\\\"\"" },
        { "/ingest?name=app", "", "bad \xff bytes", 400, "a whole number as count\"" },
        { INGEST "&format=pprof", "", "a;b 1", 400, "folded stacks are sent without format=" },
        { INGEST "&format=pprof", "", "hello", 400, "pprof" },
        { "/ingest?name=app&format=jfr", "", "FLR", 400, "less than a header" },
        { "/ingest?name=app&sampleRate=99999999999", "", "a 1", 400, "sampleRate" },
        { "/ingest?name=app", "Content-Encoding: br\r\n", "a 1", 400, "" },
        { "/ingest?name=app", "Content-Encoding: gzip\r\n", "a 1", 400, "" },
        { "/ingest?name=app", "Content-Type: multipart/form-data\r\n", "a 1", 400, "boundary" },
        { "/ingest?name=app&format=pprof", FORM, PART("profile", "x") ENDED, 400,
          "with format=pprof the body is the data itself, not a form" },
        { "/ingest?name=app&format=lines", FORM, PART("profile", "x") ENDED, 400,
          "with format=lines" },
        { "/ingest?name=app", FORM, PART("profile", "no pprof") ENDED, 400,
          "part \\\"profile\\\" (want a pprof message, plain or gzip): pprof: malformed" },
        { "/ingest?name=app", FORM,
          PART("profile", "\x0a\x02\x08\x01") PART("prev_profile", "no pprof") ENDED, 400,
          "part \\\"prev_profile\\\" (want a pprof message, plain or gzip): pprof: malformed" },
        { "/ingest?name=app", FORM, PART("profile", "x") PART("sample_type_config", "[]") ENDED,
          400, "part \\\"sample_type_config\\\" (want a JSON object by sample type): " },
        { "/ingest?name=app", FORM, PART("other", "x") ENDED, 400,
          "no file part named \\\"profile\\\" among 1 parts; there is \\\"other\\\"\"" },
        { "/ingest?name=app", FORM, PART("jfr", "x") ENDED, 400,
          "there is \\\"jfr\\\": a form with a recording needs format=jfr\"" },
        { "/ingest?name=app&format=jfr", FORM, PART("jfr", "x") ENDED, 400, "jfr: " },
    };
    struct dist_bed b;
    const char *got;

    dist_bed_init(&b, 1, NULL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int status = dist_bed_push(&b, rows[i].target, rows[i].headers, str_c(rows[i].body), &got);
        if (status != rows[i].status || !strstr(got, rows[i].says) ||
            !strstr(got, "{\"code\":\"invalid_argument\",\"message\":\""))
            fail_msg("row %zu: %s", i, got);
    }
    assert_int_equal(b.writes.len, 0); /* nothing stored */
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_working_bytes"), 0);
    assert_int_equal(
        dist_bed_metric(&b, "embertree_distributor_refused_total{reason=\"ERR_INPUT\"}"),
        ARRAY_LEN(rows));
    assert_int_equal(dist_bed_push(&b, INGEST, "", STR("a 1\n"), NULL), 200); /* and it continues */
    dist_bed_deinit(&b);
}

static void test_nothing_to_store(void **state)
{
    (void)state;
    struct dist_bed b;

    dist_bed_init(&b, 1, NULL);
    assert_int_equal(dist_bed_push(&b, INGEST, "", STR("a 0\n"), NULL), 200);
    assert_int_equal(b.writes.len, 0);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_empty_pushes_total"), 1);
    dist_bed_deinit(&b);
}

static void test_gzip(void **state)
{
    (void)state;
    struct dist_bed b;
    struct buf once, twice, bomb, zeros;
    struct err e;

    dist_bed_init(&b, 1, NULL);
    buf_init(&once, MIB);
    buf_init(&twice, MIB);
    assert_int_equal(gzip(STR("a 1\n"), 1, &once, &e), 0);
    assert_int_equal(gzip(buf_str(&once), 1, &twice, &e), 0);
    /* By its magic, by the header, and both: one layer of HTTP, one of the format. */
    assert_int_equal(dist_bed_push(&b, INGEST, "", buf_str(&once), NULL), 200);
    assert_int_equal(dist_bed_push(&b, INGEST, "Content-Encoding: gzip\r\n", buf_str(&once), NULL),
                     200);
    assert_int_equal(dist_bed_push(&b, INGEST, "Content-Encoding: gzip\r\n", buf_str(&twice), NULL),
                     200);
    assert_int_equal(dist_bed_push(&b, INGEST, "", buf_str(&twice), NULL), 400);
    /* A bomb: refused by size and ratio in each of the two layers. */
    buf_init(&zeros, 128 * MIB);
    buf_init(&bomb, 4 * MIB);
    memset(buf_room(&zeros, 65 * MIB), 'a', 65 * MIB);
    zeros.len = 65 * MIB;
    assert_int_equal(gzip(buf_str(&zeros), 6, &bomb, &e), 0);
    assert_int_equal(dist_bed_push(&b, INGEST, "", buf_str(&bomb), NULL), 400);
    assert_int_equal(dist_bed_push(&b, INGEST, "Content-Encoding: gzip\r\n", buf_str(&bomb), NULL),
                     400);
    buf_reset(&twice);
    twice.max = 4 * MIB;
    assert_int_equal(gzip(buf_str(&bomb), 6, &twice, &e), 0);
    assert_int_equal(dist_bed_push(&b, INGEST, "Content-Encoding: gzip\r\n", buf_str(&twice), NULL),
                     400);
    assert_int_equal(b.writes.len, 3);
    buf_deinit(&once);
    buf_deinit(&twice);
    buf_deinit(&bomb);
    buf_deinit(&zeros);
    dist_bed_deinit(&b);
}

static void test_idempotency_key(void **state)
{
    (void)state;
    struct dist_bed b;
    char header[400] = "Idempotency-Key: ";

    dist_bed_init(&b, 1, NULL);
    for (int i = 0; i < 4; i++) /* 0 and 1: one key; 2: another; 3: none */
        assert_int_equal(dist_bed_push(&b, INGEST,
                                       i < 2    ? "Idempotency-Key: k1\r\n"
                                       : i == 2 ? "Idempotency-Key: k2\r\n"
                                                : "",
                                       STR("a 1\n"), NULL),
                         200);
    Embertree__WriteRequest *m[4];
    for (size_t i = 0; i < 4; i++)
        m[i] = dist_bed_write(&b, i);
    assert_memory_equal(m[0]->series[0]->write_id.data, m[1]->series[0]->write_id.data, 16);
    assert_memory_not_equal(m[0]->series[0]->write_id.data, m[2]->series[0]->write_id.data, 16);
    assert_memory_not_equal(m[0]->series[0]->write_id.data, m[3]->series[0]->write_id.data, 16);
    for (size_t i = 0; i < 4; i++)
        free_write(m[i]);
    size_t at = strlen(header);
    memset(header + at, 'k', 256);
    memcpy(header + at + 256, "\r\n", 3);
    assert_int_equal(dist_bed_push(&b, INGEST, header, STR("a 1\n"), NULL), 400);
    dist_bed_deinit(&b);
}

static void test_tenants(void **state)
{
    (void)state;
    static const char *const flags[] = { "--tenancy.multi", "--distributor.tenant_rate_bytes=100",
                                         "--distributor.tenant_burst_bytes=1KiB", NULL };
    struct dist_bed b;
    const char *got;
    struct buf body;

    dist_bed_init(&b, 1, flags);
    buf_init(&body, MIB);
    while (body.len < 600)
        buf_add_str(&body, STR("a;b;c;d 1\n"));
    assert_int_equal(dist_bed_push(&b, INGEST, "", STR("a 1\n"), &got), 401);
    assert_non_null(strstr(got, "no org id"));
    assert_int_equal(dist_bed_push(&b, INGEST, "X-Scope-OrgID: a|b\r\n", STR("a 1\n"), NULL), 400);
    assert_int_equal(dist_bed_push(&b, INGEST, "X-Scope-OrgID: t1\r\n", buf_str(&body), NULL), 200);
    Embertree__WriteRequest *m = dist_bed_write(&b, 0);
    assert_true(is(m->tenant, "t1"));
    free_write(m);
    /* The bucket is down to 424 bytes: no second one, but another tenant's is full. */
    assert_int_equal(dist_bed_push(&b, INGEST, "X-Scope-OrgID: t1\r\n", buf_str(&body), &got), 429);
    assert_non_null(strstr(got, "Retry-After: "));
    assert_non_null(strstr(got, "resource_exhausted"));
    assert_int_equal(dist_bed_push(&b, INGEST, "X-Scope-OrgID: t2\r\n", buf_str(&body), NULL), 200);
    net_pass(&b.world, 2500);
    assert_int_equal(dist_bed_push(&b, INGEST, "X-Scope-OrgID: t1\r\n", buf_str(&body), NULL), 200);
    buf_deinit(&body);
    dist_bed_deinit(&b);
}

static void test_tenant_requests(void **state)
{
    (void)state;
    static const char *const flags[] = { "--tenancy.multi", "--distributor.tenant_requests=1",
                                         NULL };
    struct dist_bed b;

    dist_bed_init(&b, 1, flags);
    b.answer = DIST_BED_SILENT;
    dist_bed_send(&b, INGEST, "X-Scope-OrgID: t1\r\n", STR("a 1\n"));
    struct net_mem *first = b.client;
    b.client = net_connect(&b.world);
    assert_int_equal(dist_bed_push(&b, INGEST, "X-Scope-OrgID: t1\r\n", STR("a 1\n"), NULL), 429);
    dist_bed_send(&b, INGEST, "X-Scope-OrgID: t2\r\n", STR("a 1\n")); /* gets in, waits too */
    net_pass(&b.world, 100);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_working"), 2);
    net_pass(&b.world, 30000);
    assert_non_null(strstr(net_got(first), "HTTP/1.1 503"));
    net_end(first, false);
    net_pass(&b.world, 1000);
    net_mem_free(first);
    (void)net_got(b.client);
    dist_bed_deinit(&b);
}

/* The memory set aside for pushes is a bound; over it 503, and all of it comes back. */
static void test_memory_budget(void **state)
{
    (void)state;
    static const char *const flags[] = { "--distributor.in_flight_bytes=256KiB", NULL };
    struct dist_bed b;
    const char *got;
    struct buf body;

    dist_bed_init(&b, 1, flags);
    buf_init(&body, MIB);
    while (body.len < 100000)
        buf_addf(&body, "frame%zu 1\n", body.len);
    /* The error for a push that can never fit does not ask to try again. */
    assert_int_equal(dist_bed_push(&b, INGEST, "", buf_str(&body), &got), 400);
    assert_non_null(strstr(got, "all pushes together may hold"));
    assert_int_equal(b.writes.len, 0);
    /* What only does not fit beside others is. */
    b.answer = DIST_BED_SILENT;
    dist_bed_send(&b, INGEST, "", str_sub(buf_str(&body), 0, 7000));
    struct net_mem *first = b.client;
    b.client = net_connect(&b.world);
    assert_int_equal(dist_bed_push(&b, INGEST, "", str_sub(buf_str(&body), 0, 7000), &got), 503);
    assert_non_null(strstr(got, "Retry-After: "));
    net_pass(&b.world, 30000);
    assert_non_null(strstr(net_got(first), "HTTP/1.1 503"));
    net_end(first, false);
    net_pass(&b.world, 1000);
    net_mem_free(first);
    b.answer = DIST_BED_ACK;
    assert_int_equal(dist_bed_push(&b, INGEST, "", STR("a 1\n"), NULL), 200);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_working_bytes"), 0);
    buf_deinit(&body);
    dist_bed_deinit(&b);
}

static void test_drain(void **state)
{
    (void)state;
    struct dist_bed b;

    dist_bed_init(&b, 1, NULL);
    b.fail_first = 1; /* the first attempt gets no answer: in work when the drain begins */
    dist_bed_send(&b, INGEST, "", STR("a 1\n"));
    net_pass(&b.world, 100);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_working"), 1);
    struct net_mem *first = b.client;
    dist_bed_stop(&b); /* CHECKs that it ends; the push was brought to its end */
    assert_non_null(strstr(net_got(first), "HTTP/1.1 200 OK"));
    assert_int_equal(b.writes.len, 2);
    dist_bed_deinit(&b);
}

static void note(void *cookie)
{
    *(bool *)cookie = true;
}

static void test_drain_refuses(void **state)
{
    (void)state;
    struct dist_bed b;
    const char *got, *why;

    dist_bed_init(&b, 1, NULL);
    b.answer = DIST_BED_SILENT;
    dist_bed_send(&b, INGEST, "", STR("a 1\n"));
    net_pass(&b.world, 100);
    struct net_mem *first = b.client;
    b.client = net_connect(&b.world);
    bool drained = false;
    distributor_role.drain(b.self, note, &drained);
    assert_false(distributor_role.ready(b.self, &why));
    assert_int_equal(dist_bed_push(&b, INGEST, "", STR("a 1\n"), &got), 503);
    net_pass(&b.world, 30000);
    assert_non_null(strstr(net_got(first), "HTTP/1.1 503"));
    assert_true(drained);
    distributor_role.free(b.self);
    b.self = NULL;
    net_end(first, false);
    net_pass(&b.world, 1000);
    net_mem_free(first);
    dist_bed_deinit(&b);
}

/* A client that hangs up: the push is stored, nothing leaks, nothing crashes. */
static void test_client_gone(void **state)
{
    (void)state;
    struct dist_bed b;

    dist_bed_init(&b, 1, NULL);
    b.fail_first = 1;
    dist_bed_send(&b, INGEST, "", STR("a 1\n"));
    net_end(b.client, true);
    net_pass(&b.world, 30000);
    assert_true(b.writes.len >= 1);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_working"), 0);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_working_bytes"), 0);
    dist_bed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_push),
        cmocka_unit_test(test_no_ack_no_200),
        cmocka_unit_test(test_retry),
        cmocka_unit_test(test_known_stacks),
        cmocka_unit_test(test_never_acked),
        cmocka_unit_test(test_ingester_down_and_back),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_spread_service),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_left_out_is_told),
        cmocka_unit_test(test_nothing_to_store),
        cmocka_unit_test(test_gzip),
        cmocka_unit_test(test_idempotency_key),
        cmocka_unit_test(test_tenants),
        cmocka_unit_test(test_tenant_requests),
        cmocka_unit_test(test_memory_budget),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_refuses),
        cmocka_unit_test(test_client_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
