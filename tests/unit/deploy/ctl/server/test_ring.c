/* SPDX-License-Identifier: Apache-2.0
 *
 * `cluster status`: a recorded /ring of a whole cluster, one with everything that can be wrong, and
 * answers that no server should give. UPDATE=1 writes tests/golden/ctl again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/sys/fs.h"
#include "deploy/ctl/commands.h"
#include "deploy/ctl/server/ring.h"

static const struct cli cli = { .program = "embertreectl", .o = { .server = "http://x" } };
static struct term term;

static int setup(void **state)
{
    (void)state;
    term_detect(&term, "never", 120);
    term.tty = term.utf8 = true;
    return 0;
}

static void read_golden(const char *name, struct buf *ret)
{
    char path[128];
    struct err e;

    (void)snprintf(path, sizeof(path), "tests/golden/ctl/%s", name);
    buf_init(ret, MIB);
    if (fs_real()->read_file(fs_real(), path, ret, &e))
        fail_msg("%s", e.text);
}

static void golden(const char *name, struct buf *got)
{
    char path[128];
    struct buf want;
    struct err e;

    (void)snprintf(path, sizeof(path), "tests/golden/ctl/%s", name);
    if (getenv("UPDATE"))
        assert_int_equal(fs_real()->write_file(fs_real(), path, buf_str(got), &e), 0);
    read_golden(name, &want);
    if (!str_eq(buf_str(got), buf_str(&want)))
        fail_msg("%s: got\n%.*s\nwant\n%.*s", path, STR_ARG(buf_str(got)), STR_ARG(buf_str(&want)));
    buf_deinit(&want);
    buf_reset(got);
}

static struct json_doc *parse(struct str text, struct ring *r)
{
    struct json_doc *doc;
    struct err e;

    if (json_parse(text, &doc, &e) || ring_read(&cli, json_root(doc), r, &e))
        fail_msg("%s", e.text);
    return doc;
}

static void test_whole(void **state)
{
    struct json_doc *doc;
    struct buf text, b;
    struct ring r;
    struct json j;

    (void)state;
    read_golden("ring.json", &text);
    buf_init(&b, MIB);
    doc = parse(buf_str(&text), &r);
    assert_true(ring_healthy(&r));
    assert_int_equal(r.moving, 0);
    ring_text(&term, &r, &b);
    golden("cluster.txt", &b);
    json_init(&j, &b);
    ring_json(&r, &j);
    golden("cluster.json", &b);
    ring_deinit(&r);
    json_doc_free(doc);
    buf_deinit(&text);
    buf_deinit(&b);
}

#define NODE(name, state, live)                                                                \
    "{\"name\":\"" name "\",\"addr\":\"tcp://" name ":4041\",\"zone\":\"\",\"state\":\"" state \
    "\",\"live\":" live "}"
#define SHARD(n, leader, live, established, members, learners)                     \
    "{\"shard\":" #n ",\"term\":7,\"leader\":\"" leader "\",\"leader_live\":" live \
    ",\"established\":" established ",\"members\":[" members "],\"learners\":[" learners "]}"
#define NODE_A NODE("a", "active", "true") ","
#define NODE_B NODE("b", "draining", "true") ","
#define NODE_C NODE("c", "active", "false") ","
#define NODE_D NODE("d\\u001b[2J", "joining", "true")
#define NODES  "\"nodes\":[" NODE_A NODE_B NODE_C NODE_D "]"
#define RING(shards, cluster, records, replicas)                             \
    "{\"ready\":true,\"shards\":" #shards ",\"cluster\":{" NODES "," cluster \
    ",\"shards\":[" records "]},\"roles\":{\"ingester\":{\"replicas\":[" replicas "]}}}"
#define ETCD  "\"coordination\":\"etcd\",\"replicas\":2,\"age_ms\":5"
#define WHOLE SHARD(0, "a", "true", "true", "\"a\",\"b\"", "")

static void test_troubles(void **state)
{
    static const char text[] =
        RING(7, "\"coordination\":\"etcd\",\"replicas\":2,\"age_ms\":65000,\"unreadable\":\"x\"",
             WHOLE "," SHARD(1, "c", "false", "true", "\"c\",\"a\"", "") "," SHARD(
                 2, "a", "true", "false", "\"a\",\"b\"",
                 "") "," SHARD(3, "a", "true", "true", "\"a\",\"c\"",
                               "\"b\"") "," SHARD(4, "a", "true", "true", "\"a\",\"b\"",
                                                  "") "," SHARD(5, "a", "true", "true",
                                                                "\"a\",\"b\"", "\"d\\u001b[2J\""),
             "{\"shard\":4,\"state\":\"serving\",\"peers\":[{\"name\":\"b\",\"member\":true,"
             "\"behind\":5000,\"snapshot\":false}]},"
             "{\"shard\":5,\"state\":\"serving\",\"peers\":[{\"name\":\"b\",\"member\":true,"
             "\"behind\":1000,\"snapshot\":false},{\"name\":\"d\",\"member\":false,"
             "\"behind\":9000,\"snapshot\":true}]},"
             "{\"shard\":0,\"state\":\"following\",\"peers\":[{\"name\":\"b\",\"member\":true,"
             "\"behind\":5000,\"snapshot\":false}]},{\"shard\":99,\"state\":\"serving\"}");
    static const enum ring_trouble want[] = { RING_FINE,     RING_MINORITY, RING_STARTING,
                                              RING_MINORITY, RING_BEHIND,   RING_FINE,
                                              RING_UNNAMED };
    struct json_doc *doc;
    struct ring r;
    struct buf b;

    (void)state;
    buf_init(&b, MIB);
    doc = parse(str_c(text), &r);
    assert_int_equal(r.shards.len, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        assert_int_equal(r.shards.ptr[i].trouble, want[i]);
    assert_int_equal(r.moving, 2);
    assert_false(ring_healthy(&r));
    assert_int_equal(ring_node(&r, STR("b"))->shards, 5);
    assert_null(ring_node(&r, STR("e")));
    ring_text(&term, &r, &b);
    golden("cluster_bad.txt", &b);
    ring_deinit(&r);
    json_doc_free(doc);
    buf_deinit(&b);
}

struct says { /* of its copy of a shard */
    uint64_t shard, last, commit;
    bool leads, full, lost;
    const char *more; /* of its object; NULL: nothing */
};

static const char *truth(bool b)
{
    return b ? "true" : "false";
}

static void put_node(const char *name, const struct says *says, size_t n, struct buf *out)
{
    (void)buf_addf(out, "{\"name\":\"%s\",\"shards\":[", name);
    for (size_t i = 0; i < n; i++)
        (void)buf_addf(out,
                       "%s{\"shard\":%" PRIu64 ",\"last\":%" PRIu64 ",\"commit\":%" PRIu64
                       ",\"leads\":%s,\"full\":%s,\"lost\":%s%s}",
                       i ? "," : "", says[i].shard, says[i].last, says[i].commit,
                       truth(says[i].leads), truth(says[i].full), truth(says[i].lost),
                       says[i].more ? says[i].more : "");
    (void)buf_addf(out, "]},");
}

static void put_copies(struct buf *out)
{
    static const struct says a[] = {
        { 0, 500, 500, true, false, false, ",\"entriesPerSecond\":5" },
        { 1, 40000, 40000, true, false, false, ",\"entriesPerSecond\":100" },
        { 2, 1000, 1000, true, false, false, NULL },
        { 3, 0, 0, false, false, true,
          ",\"copy\":{\"rows\":true,\"bytes\":1288490188,\"bytesPerSecond\":0}" },
        { 4, 90000, 90000, true, false, false, ",\"entriesPerSecond\":100" }
    };
    static const struct says b[] = {
        { 0, 480, 470, false, true, false,
          ",\"entriesPerSecond\":5,\"why\":\"a copy of 40 MiB is to come in, and the volume "
          "has room for 7 MiB: free some\"" },
        { 1, 10000, 10000, false, true, false, ",\"entriesPerSecond\":600" },
        { 2, 0, 0, false, true, false,
          ",\"copy\":{\"rows\":false,\"bytes\":13207024435,\"of\":43057047142,"
          "\"bytesPerSecond\":325058560}" },
        { 3, 70, 70, true, true, false, NULL },
        { 4, 10000, 10000, false, true, false, ",\"entriesPerSecond\":100" }
    };
    static const struct says gone[] = { { 2, 3, 3, false, true, true, NULL } };
    static const struct says unknown[] = { { 2, 3, 3, true, true, true, NULL } };

    (void)buf_addf(out, "{\"nodes\":[");
    put_node("a", a, ARRAY_LEN(a), out);
    put_node("b", b, ARRAY_LEN(b), out);
    put_node("c", gone, ARRAY_LEN(gone), out);
    put_node("unlisted", unknown, ARRAY_LEN(unknown), out);
    (void)buf_addf(out, "7]}");
}

#define NODE_DEAD NODE("d", "draining", "false") ","
#define NODE_GONE                                                                 \
    "{\"name\":\"c\",\"addr\":\"tcp://c:1\",\"zone\":\"z\",\"state\":\"active\"," \
    "\"live\":false,\"gone_ms\":125000},"
#define SHARD_1 "," SHARD(1, "a", "true", "true", "\"a\",\"b\"", "")
#define SHARD_2 "," SHARD(2, "a", "true", "true", "\"a\",\"c\"", "\"b\"")
#define SHARD_3 "," SHARD(3, "b", "true", "true", "\"b\",\"a\"", "")
#define SHARD_4 "," SHARD(4, "a", "true", "true", "\"a\",\"b\",\"d\"", "")

/* What nodes say of their copies, and what is to be done. */
static void test_copies(void **state)
{
    static const char text[] = "{\"ready\":true,\"shards\":5,\"cluster\":{\"nodes\":[" NODE_A NODE_B
        NODE_GONE NODE_DEAD NODE("e", "draining", "true") "," NODE("f", "left", "true") "," NODE(
            "g", "left", "false") "]," ETCD ",\"shards\":[" WHOLE SHARD_1 SHARD_2 SHARD_3 SHARD_4
                                  "]},\"roles\":{}}";
    static const enum ring_trouble want[] = { RING_FINE, RING_BEHIND, RING_MINORITY, RING_MINORITY,
                                              RING_BEHIND };
    struct json_doc *doc, *said;
    struct ring r;
    struct err e;
    struct json j;
    struct buf b;

    (void)state;
    buf_init(&b, MIB);
    doc = parse(str_c(text), &r);
    put_copies(&b);
    assert_int_equal(json_parse(buf_str(&b), &said, &e), 0);
    buf_reset(&b);
    ring_copies_read(&r, json_root(said));
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        assert_int_equal(r.shards.ptr[i].trouble, want[i]);
    assert_int_equal(r.troubles[RING_BEHIND], 2);
    assert_int_equal(r.troubles[RING_FINE], 1);
    ring_text(&term, &r, &b);
    golden("cluster_copies.txt", &b);
    json_init(&j, &b);
    ring_json(&r, &j);
    assert_true(str_contains(buf_str(&b), STR("\"advice\":[\"shards 2, 3: half or more of the")));
    assert_true(str_contains(buf_str(&b), STR("\"shards 1, 4: a copy is far")));
    assert_true(str_contains(buf_str(&b), STR("\"goneMs\":125000,\"full\":false")));
    assert_true(str_contains(
        buf_str(&b), STR("\"copies\":[{\"name\":\"b\",\"behind\":30000,\"leftSeconds\":60}]")));
    assert_true(str_contains(buf_str(&b), STR("\"copy\":{\"bytes\":13207024435,\"of\":43057047142,"
                                              "\"bytesPerSecond\":325058560,\"leftSeconds\":92}")));
    assert_true(str_contains(buf_str(&b), STR("\"copies\":[{\"name\":\"b\",\"behind\":80000}]")));
    assert_int_equal(ring_coming_of(json_root(said), 2, STR("b")), UINT64_C(13207024435));
    assert_int_equal(ring_coming_of(json_root(said), 1, STR("b")), 0);
    assert_int_equal(ring_coming_of(NULL, 2, STR("b")), 0);
    ring_deinit(&r);
    json_doc_free(said);
    json_doc_free(doc);
    buf_deinit(&b);
}

static void test_how_far(void **state)
{
    static const struct {
        struct progress_now at;
        const char *words;
    } rows[] = {
        { { 13207024435, 43057047142, true, 325058560 },
          "12.3 of 40.1 GiB, 310 MiB/s, 1 m 32 s left" },
        { { 0, 1, false, 0 }, "0 of 1 B" },
        { { 0, 1, true, 0 }, "0 of 1 B, stands still" },
        { { 5, 5, true, 0 }, "5 of 5 B" },
        { { 9, 5, true, 7 }, "9 of 5 B, 7 B/s, 0 s left" },
        { { 0, 999, true, 1 }, "0 of 999 B, 1 B/s, 16 m 39 s left" },
        { { 0, 1023, true, 1023 }, "0.00 of 1.00 KiB, 1023 B/s, 1 s left" },
        { { 512 * MIB, 200 * GIB, true, MIB }, "0 of 200 GiB, 1 MiB/s, 2 d 8 h left" },
        { { GIB, 100 * GIB, true, 10 * MIB }, "1 of 100 GiB, 10 MiB/s, 2 h 48 m left" },
        { { 3 * GIB, 0, true, 31 * MIB }, "3 GiB so far, 31 MiB/s" },
        { { 3 * GIB, 0, false, 0 }, "3 GiB so far" },
        { { UINT64_MAX, UINT64_MAX, true, 1 }, "16.0 of 16.0 EiB, 1 B/s, 0 s left" },
    };
    struct buf b;

    (void)state;
    buf_init(&b, KIB);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        buf_reset(&b);
        progress_words(&rows[i].at, &b);
        if (!str_eqc(buf_str(&b), rows[i].words))
            fail_msg("row %zu: %.*s", i, STR_ARG(buf_str(&b)));
    }
    buf_deinit(&b);
}

/* Each thing by itself makes it unwell. */
static void test_healthy(void **state)
{
    static const struct {
        const char *text;
        bool healthy;
    } rows[] = {
        { RING(1, ETCD, WHOLE, ""), true },
        { RING(2, ETCD, WHOLE, ""), false },
        { RING(0, ETCD, "", ""), false },
        { RING(1, ETCD ",\"unreadable\":\"x\"", WHOLE, ""), false },
        { RING(1, "\"coordination\":\"etcd\",\"replicas\":2,\"age_ms\":30001", WHOLE, ""), false },
        { RING(1, "\"coordination\":\"etcd\",\"replicas\":3,\"age_ms\":1", WHOLE, ""), false },
        { RING(1, ETCD, SHARD(0, "a", "true", "true", "\"a\",\"c\"", ""), ""), false },
        { RING(1, ETCD, SHARD(0, "a", "false", "true", "\"a\",\"b\"", ""), ""), false },
        { RING(1, ETCD, SHARD(0, "a", "true", "false", "\"a\",\"b\"", ""), ""), false },
        { RING(1, ETCD, SHARD(0, "a", "true", "true", "\"a\",\"b\",\"c\"", "\"c\""), ""), true },
        { RING(1, "\"coordination\":\"none\",\"replicas\":1,\"age_ms\":0",
               SHARD(0, "a", "true", "true", "\"a\"", ""), ""),
          true },
        { "{\"ready\":false,\"shards\":1,\"cluster\":{\"coordination\":\"none\",\"replicas\":1,"
          "\"shards\":[" SHARD(0, "a", "true", "true", "", "") "]}}",
          false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ring r;
        struct json_doc *doc = parse(str_c(rows[i].text), &r);

        if (ring_healthy(&r) != rows[i].healthy)
            fail_msg("row %zu", i);
        ring_deinit(&r);
        json_doc_free(doc);
    }
}

static void add_line(void *cookie, struct str sentence)
{
    buf_addf(cookie, "%.*s\n", STR_ARG(sentence));
}

#define CLOCK(name, ms) "{\"addr\":\"tcp://" name ":4041\",\"ahead_ms\":" #ms ",\"unsure_ms\":200}"

/* One of three is gone, or two. With two gone nothing can be stored, whichever node leads. */
static void test_majority(void **state)
{
    static const struct {
        const char *text, *is;
        enum ring_trouble trouble;
    } rows[] = {
        { RING(1, "\"coordination\":\"etcd\",\"replicas\":3,\"age_ms\":1",
               SHARD(0, "a", "true", "true", "\"a\",\"b\",\"c\"", ""), ""),
          "1 with fewer live copies", RING_COPIES },
        { RING(1, "\"coordination\":\"etcd\",\"replicas\":3,\"age_ms\":1",
               SHARD(0, "a", "true", "true", "\"a\",\"x\",\"c\"", ""), ""),
          "1 without a majority", RING_MINORITY },
        { RING(1, "\"coordination\":\"etcd\",\"replicas\":3,\"age_ms\":1",
               SHARD(0, "a", "true", "false", "\"a\",\"x\",\"c\"", ""), ""),
          "1 without a majority", RING_MINORITY },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ring r;
        struct buf b;
        struct json_doc *doc = parse(str_c(rows[i].text), &r);

        buf_init(&b, MIB);
        ring_words(&r, &b);
        assert_int_equal(r.shards.ptr[0].trouble, rows[i].trouble);
        assert_true(str_contains(buf_str(&b), str_c(rows[i].is)));
        assert_false(ring_healthy(&r));
        buf_deinit(&b);
        ring_deinit(&r);
        json_doc_free(doc);
    }
}

/* What the asked server knows of other nodes. */
static void test_heard(void **state)
{
    static const struct {
        const char *text, *says, *says_not;
        bool healthy;
    } rows[] = {
        { RING(1, ETCD, WHOLE, ""), "", "clock", true },
        { RING(1, ETCD ",\"clocks\":[" CLOCK("a", 100) "," CLOCK("b", 5200) "]", WHOLE, ""), "",
          "clock", true },
        { RING(1, ETCD ",\"clocks\":[" CLOCK("a", 100) "," CLOCK("b", 7200) "]", WHOLE, ""),
          "the clock of b is 7 s ahead of the others'", "server asked", true },
        { RING(1, ETCD ",\"clocks\":[" CLOCK("a", -9000200) "," CLOCK("b", -9000300) "]", WHOLE,
               ""),
          "the clock of the server asked is 9000 s ahead of the others'", "clock of b", true },
        { RING(1, ETCD ",\"clocks\":[" CLOCK("x", 90000) ",7]", WHOLE, ""), "", "clock", true },
        { RING(1, ETCD ",\"refused\":[],\"refused_here\":false", WHOLE, ""), "", "refuses", true },
        { RING(1, ETCD ",\"refused\":[\"tcp://b:4041\",\"tcp://b:4041\",\"tcp://a:4041\",3]", WHOLE,
               ""),
          "refuses changes of a, b:", "", false },
        { RING(1, ETCD ",\"trouble\":\"no space\",\"refused\":[],\"refused_here\":true", WHOLE, ""),
          "no space", "refuses changes of", false },
        { "{\"ready\":true,\"shards\":1,\"cluster\":{" NODES "," ETCD ",\"shards\":[" WHOLE
          "]},\"roles\":{\"ingester\":{\"registered\":false,\"whyNot\":\"another node a\"}}}",
          "not in the cluster: another node a", "", false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ring r;
        struct buf b;
        struct json_doc *doc = parse(str_c(rows[i].text), &r);

        buf_init(&b, MIB);
        ring_advice(&r, add_line, &b);
        buf_add_c(&b, '\0');
        if (!strstr(b.ptr, rows[i].says) ||
            (rows[i].says_not[0] && strstr(b.ptr, rows[i].says_not)) ||
            ring_healthy(&r) != rows[i].healthy)
            fail_msg("row %zu: %s", i, b.ptr);
        buf_deinit(&b);
        ring_deinit(&r);
        json_doc_free(doc);
    }
}

#define THREE  "\"a\",\"b\",\"c\""
#define LIVE_C NODE("c", "active", "true")
#define GONE_C                                                                    \
    "{\"name\":\"c\",\"addr\":\"tcp://c:1\",\"zone\":\"z\",\"state\":\"active\"," \
    "\"live\":false,\"gone_ms\":40000}"
#define LIVE_B           NODE("b", "active", "true") ","
#define OF_THREE(c, rec) OF_THREE_AGED("5", c, rec)
#define OF_THREE_AGED(age, c, rec)                                                         \
    "{\"ready\":true,\"shards\":1,\"cluster\":{\"nodes\":[" NODE_A LIVE_B c                \
    "],\"coordination\":\"etcd\",\"replicas\":3,\"age_ms\":" age ",\"shards\":[" rec "]}," \
    "\"roles\":{}}"
#define ESTABLISHED SHARD(0, "a", "true", "true", THREE, "")
#define BEGINS      SHARD(0, "a", "true", "false", THREE, "")
#define SAYS(name, more) \
    "{\"name\":\"" name "\",\"shards\":[{\"shard\":0,\"last\":5,\"commit\":5" more "}]"
#define BAD(node, why) ",\"bad\":[{\"shard\":0" node ",\"why\":\"" why "\"}]}"
#define NODE_IS(name)  ",\"node\":\"" name "\""

static const struct {
    const char *ring, *nodes, *says, *says_not;
    enum ring_trouble trouble;
} truths[] = {
    { OF_THREE(LIVE_C, ESTABLISHED), SAYS("a", "") "}", "", "stores nothing", RING_FINE },
    { OF_THREE(LIVE_C, ESTABLISHED), SAYS("c", "") BAD("", "cannot sync: Read-only file system"),
      "c lives and stores nothing of shard 0: cannot sync: Read-only file system. See to that "
      "disk; take no other node",
      "keep up", RING_COPIES },
    { OF_THREE(LIVE_C, ESTABLISHED),
      SAYS("a", ",\"leads\":true") BAD(NODE_IS("c"), "it does not answer"),
      "c lives and stores nothing of shard 0: it does not answer. Its /readyz", "", RING_COPIES },
    { OF_THREE(LIVE_C, ESTABLISHED),
      SAYS("a", "") BAD(NODE_IS("c"), "it does not answer") "," SAYS("c", "") BAD("", "no disk"),
      "c lives and stores nothing of shard 0: no disk. See to that disk", "", RING_COPIES },
    { OF_THREE(LIVE_C, ESTABLISHED), SAYS("b", "") BAD(NODE_IS("c"), "says a follower"), "",
      "stores nothing", RING_FINE },
    { OF_THREE(LIVE_C, ESTABLISHED), SAYS("c", "") ",\"trouble\":\"its disk hangs\"}",
      "c lives and stores nothing: its disk hangs. See to that disk", "", RING_COPIES },
    { OF_THREE(LIVE_C, ESTABLISHED), SAYS("a", "") ",\"trouble\":\"its disk hangs\"}",
      "shard 0: the leader is gone or takes nothing", "", RING_LEADERLESS },
    { OF_THREE(GONE_C, ESTABLISHED), SAYS("b", "") BAD("", "no disk"),
      "gone or take nothing, so pushes and questions there wait, and get 503: start the nodes "
      "that are gone, mend those that take nothing; nothing acked is lost by waiting; missing: "
      "b, c",
      "takes seconds", RING_MINORITY },
    /* One disk is empty, one node dead: no lead can begin. */
    { OF_THREE(GONE_C, BEGINS), SAYS("b", ",\"lost\":true") "}", "missing: b, c", "takes seconds",
      RING_MINORITY },
    { OF_THREE(LIVE_C, BEGINS), "7", "takes seconds as most of the copies are there", "",
      RING_STARTING },
    { OF_THREE_AGED("40000", LIVE_C, BEGINS), "7", "whether it began is not known here",
      "takes seconds", RING_STARTING },
    { OF_THREE_AGED("40000", LIVE_C, ESTABLISHED), "7", "continue where a leader works",
      "Pushes and queries continue;", RING_FINE },
    /* Which cluster.replace_after is in force, and how long until the node is replaced. */
    { OF_THREE(GONE_C, ESTABLISHED), SAYS("a", "") ",\"replaceAfterMs\":90000}",
      "start it. In about 50 s (cluster.replace_after is 90 s) others", "30 min", RING_COPIES },
    { OF_THREE(GONE_C, ESTABLISHED), SAYS("a", "") "}",
      "start it. After cluster.replace_after others", "30 min", RING_COPIES },
    /* It leads nothing for another reason than room. */
    { OF_THREE(LIVE_C, ESTABLISHED), SAYS("c", ",\"full\":true") ",\"noRoom\":false}", "",
      "as good as full", RING_FINE },
    { OF_THREE(LIVE_C, ESTABLISHED), SAYS("c", "") ",\"noRoom\":true}", "c: its disk is as good",
      "", RING_FINE },
};

/* A copy that takes nothing is no copy; nothing that cannot happen is promised. */
static void test_truth(void **state)
{

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(truths); i++) {
        struct json_doc *doc, *said;
        struct ring r;
        struct err e;
        struct buf b;

        buf_init(&b, MIB);
        doc = parse(str_c(truths[i].ring), &r);
        (void)buf_addf(&b, "{\"nodes\":[%s]}", truths[i].nodes);
        if (json_parse(buf_str(&b), &said, &e))
            fail_msg("row %zu: %s: %s", i, e.text, b.ptr);
        buf_reset(&b);
        ring_copies_read(&r, json_root(said));
        ring_text(&term, &r, &b);
        buf_add_c(&b, '\0');
        bool unwell = truths[i].trouble != RING_FINE || strstr(truths[i].ring, "40000,");
        if (!strstr(b.ptr, truths[i].says) ||
            (truths[i].says_not[0] && strstr(b.ptr, truths[i].says_not)) ||
            r.shards.ptr[0].trouble != truths[i].trouble || ring_healthy(&r) == unwell)
            fail_msg("row %zu, trouble %d: %s", i, (int)r.shards.ptr[0].trouble, b.ptr);
        buf_deinit(&b);
        ring_deinit(&r);
        json_doc_free(said);
        json_doc_free(doc);
    }
}

/* No map yet, though etcd answers: that is not etcd's fault. */
static void test_no_map(void **state)
{
    struct buf b;
    struct ring r;
    struct json_doc *doc = parse(STR(RING(0, ETCD, "", "")), &r);

    (void)state;
    buf_init(&b, MIB);
    ring_advice(&r, add_line, &b);
    buf_add_c(&b, '\0');
    assert_non_null(strstr(b.ptr, "the cluster has no map yet"));
    assert_non_null(strstr(b.ptr, "3 live now"));
    assert_null(strstr(b.ptr, "see to etcd"));
    buf_deinit(&b);
    ring_deinit(&r);
    json_doc_free(doc);
}

static void test_strange(void **state)
{
    static const char *const rows[] = {
        "{}",
        "[]",
        "{\"cluster\":3}",
        "{\"cluster\":{}}",
        "{\"cluster\":{\"coordination\":7}}",
        RING(4097, ETCD, "", ""),
        RING(9223372036854775807, ETCD, "", ""),
        RING(1, ETCD, SHARD(1, "a", "true", "true", "", ""), ""),
        RING(1, ETCD, SHARD(4294967296, "a", "true", "true", "", ""), ""),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct json_doc *doc;
        struct ring r;
        struct err e = { 0 };

        assert_int_equal(json_parse(str_c(rows[i]), &doc, &e), 0);
        if (ring_read(&cli, json_root(doc), &r, &e) != ERR_IO)
            fail_msg("row %zu: %s", i, e.text);
        json_doc_free(doc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),   cmocka_unit_test(test_troubles),
        cmocka_unit_test(test_copies),  cmocka_unit_test(test_healthy),
        cmocka_unit_test(test_strange), cmocka_unit_test(test_how_far),
        cmocka_unit_test(test_heard),   cmocka_unit_test(test_majority),
        cmocka_unit_test(test_truth),   cmocka_unit_test(test_no_map),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
