/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/sys/thread.h"
#include "distributor/parca/debuginfo/debuginfo.h"
#include "distributor/parca/debuginfo/debuginfo_upload.h"
#include "tests/lib/store/kv_dir.h"

struct bed {
    struct env_sim sim;
    struct clock_fake clock;
    struct debuginfo *index;
    struct debuginfo_opts o;
};

static void bed_open(struct bed *b)
{
    struct err e;

    if (debuginfo_new(&b->o, &b->index, &e))
        fail_msg("%s", e.text);
}

static void bed_init(struct bed *b, char *dir)
{
    clock_fake_init(&b->clock, 1790000000000);
    env_sim_init(&b->sim, &b->clock.clock, fs_real(), 5);
    b->o = (struct debuginfo_opts){ .dir = dir,
                                    .env = &b->sim.env,
                                    .file_bytes = 1000,
                                    .tenant_bytes = 1000,
                                    .bytes = 1500,
                                    .stale_ms = 1000 };
    bed_open(b);
}

/* begin, write n bytes, received, kept: as the upload does it. */
static int upload(struct bed *b, const char *who, const char *id, size_t n, struct err *e)
{
    struct debuginfo_goners gone = { 0 };
    struct debuginfo_entry *x;
    char *bytes = xcalloc(1, n + 1);

    int rc = debuginfo_begin(b->index,
                             &(struct debuginfo_offer){ .tenant = str_c(who),
                                                        .build_id = str_c(id),
                                                        .type = DEBUGINFO_SOURCES,
                                                        .hash = STR("h\n"),
                                                        .name = STR("n") },
                             &x, e);
    if (!rc)
        rc = debuginfo_claim(x, str_c(x->upload_id), e);
    if (!rc) {
        assert_int_equal(debuginfo_temp_open(b->o.dir, n, &x->temp, e), 0);
        assert_int_equal(debuginfo_temp_write(&x->temp, str_n(bytes, n), e), 0);
        assert_int_equal(debuginfo_temp_finish(&x->temp, &x->m, e), 0);
        x->m.size = n;
        rc = debuginfo_make_room(b->index, x, &gone, e);
        for (size_t i = 0; i < gone.len; i++)
            debuginfo_remove(b->o.dir, &gone.ptr[i]);
        if (!rc) {
            assert_int_equal(debuginfo_temp_keep(&x->temp, b->o.dir, &x->m, fs_real(), e), 0);
            debuginfo_keep(b->index, x);
        } else {
            debuginfo_temp_drop(&x->temp);
            debuginfo_forget(b->index, x);
        }
    }
    vec_free(&gone);
    xfree(bytes);
    return rc;
}

static bool here(struct bed *b, const char *who, const char *id)
{
    return debuginfo_find(b->index, str_c(who), str_c(id), DEBUGINFO_SOURCES) != NULL;
}

static void test_quotas(void **state)
{
    char *dir = *state;
    struct bed b;
    struct err e;

    bed_init(&b, dir);
    assert_int_equal(upload(&b, "a", "01", 400, &e), 0);
    assert_int_equal(upload(&b, "a", "02", 400, &e), 0);
    assert_true(here(&b, "a", "01")); /* used: 02 is the oldest now */
    assert_int_equal(upload(&b, "a", "03", 400, &e), 0);
    assert_true(here(&b, "a", "01") && !here(&b, "a", "02") && here(&b, "a", "03"));
    assert_int_equal(upload(&b, "b", "01", 700, &e), 0);
    assert_int_equal(upload(&b, "b", "02", 701, &e), ERR_RATE); /* a's are not touched for it */
    assert_true(here(&b, "a", "01") && here(&b, "b", "01") && !here(&b, "b", "02"));
    assert_int_equal(upload(&b, "a", "01", 10, &e), ERR_CONFLICT);
    assert_int_equal(debuginfo_bytes(b.index), 1500);
    debuginfo_free(b.index);
    bed_open(&b); /* unchanged, from the disk */
    assert_int_equal(debuginfo_bytes(b.index), 1500);
    assert_true(here(&b, "a", "01") && here(&b, "a", "03") && here(&b, "b", "01"));
    debuginfo_free(b.index);
}

/* An entry of one byte in the index alone: no file is written. */
static struct debuginfo_entry *keep_in_index(struct bed *b, const char *who, int id, bool force,
                                             struct err *e)
{
    struct debuginfo_entry *x;
    char text[16];

    (void)snprintf(text, sizeof(text), "%08x", (unsigned)id);
    if (debuginfo_begin(b->index,
                        &(struct debuginfo_offer){ .tenant = str_c(who),
                                                   .build_id = str_c(text),
                                                   .type = DEBUGINFO_SOURCES,
                                                   .force = force },
                        &x, e))
        return NULL;
    assert_int_equal(debuginfo_claim(x, STR(""), e), 0);
    x->m.size = 1;
    debuginfo_keep(b->index, x);
    return x;
}

/* As many as there may be: one more is refused with a word about them, not about uploads; what a
 * large file needs goes at once, oldest first. */
static void test_entries(void **state)
{
    struct debuginfo_goners gone = { 0 };
    struct debuginfo_entry *x;
    struct bed b;
    struct err e;

    bed_init(&b, *state);
    b.o.tenant_bytes = b.o.bytes = DEBUGINFO_ENTRIES_MAX;
    debuginfo_free(b.index);
    bed_open(&b);
    const size_t before = debuginfo_bytes(b.index);
    int n = 0;
    while (keep_in_index(&b, "many", n, false, &e))
        n++;
    assert_true(n > DEBUGINFO_ENTRIES_MAX - 100 && n <= DEBUGINFO_ENTRIES_MAX);
    assert_int_equal(e.code, ERR_RATE);
    assert_non_null(strstr(e.text, "debuginfo_tenant_bytes"));
    assert_true(here(&b, "many", "00000000")); /* used: the newest now */
    assert_non_null(x = debuginfo_find(b.index, STR("many"), STR("00000001"), DEBUGINFO_SOURCES));
    debuginfo_forget(b.index, x); /* makes place for an upload */
    assert_int_equal(debuginfo_begin(b.index,
                                     &(struct debuginfo_offer){ .tenant = STR("many"),
                                                                .build_id = STR("ffff"),
                                                                .type = DEBUGINFO_SOURCES },
                                     &x, &e),
                     0);
    assert_int_equal(debuginfo_claim(x, STR(""), &e), 0);
    x->m.size = DEBUGINFO_ENTRIES_MAX - 2 - before;
    assert_int_equal(debuginfo_make_room(b.index, x, &gone, &e), 0);
    assert_int_equal(gone.len, n - 3);
    assert_string_equal(gone.ptr[0].build_id, "00000002");
    assert_true(here(&b, "many", "00000000"));
    debuginfo_keep(b.index, x);
    assert_int_equal(debuginfo_bytes(b.index), DEBUGINFO_ENTRIES_MAX);
    vec_free(&gone);
    debuginfo_free(b.index);
}

/* Uploads that are never finished make place for others, of any build. */
static void test_stale_uploads(void **state)
{
    struct debuginfo_entry *x;
    struct bed b;
    struct err e;

    bed_init(&b, *state);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i <= DEBUGINFO_UPLOADS_MAX; i++) {
            char id[16];
            (void)snprintf(id, sizeof(id), "%02x%02x", (unsigned)round + 0xa0, (unsigned)i);
            int rc = debuginfo_begin(b.index,
                                     &(struct debuginfo_offer){ .tenant = STR("stale"),
                                                                .build_id = str_c(id),
                                                                .type = DEBUGINFO_SOURCES },
                                     &x, &e);
            assert_int_equal(rc, i < DEBUGINFO_UPLOADS_MAX ? 0 : ERR_RATE);
        }
        assert_non_null(strstr(e.text, "are under way"));
        clock_fake_advance(&b.clock, 1001);
    }
    /* A forced upload that fails leaves the old file; a whole one replaces it. */
    assert_non_null(keep_in_index(&b, "stale", 5, false, &e));
    assert_int_equal(debuginfo_begin(b.index,
                                     &(struct debuginfo_offer){ .tenant = STR("stale"),
                                                                .build_id = STR("00000005"),
                                                                .type = DEBUGINFO_SOURCES,
                                                                .force = true },
                                     &x, &e),
                     0);
    debuginfo_forget(b.index, x);
    x = debuginfo_find(b.index, STR("stale"), STR("00000005"), DEBUGINFO_SOURCES);
    assert_true(x && x->state == DEBUGINFO_KEPT);
    const uint64_t bytes = debuginfo_bytes(b.index);
    struct debuginfo_entry *forced = keep_in_index(&b, "stale", 5, true, &e);
    x = debuginfo_find(b.index, STR("stale"), STR("00000005"), DEBUGINFO_SOURCES);
    assert_ptr_equal(x, forced);
    assert_int_equal(debuginfo_bytes(b.index), bytes);
    debuginfo_free(b.index);
}

static void test_uploads(void **state)
{
    struct debuginfo_entry *x, *again;
    const char *why;
    struct bed b;
    struct err e;

    bed_init(&b, *state);
    struct str a = STR("c"), id = STR("0a");
    assert_true(debuginfo_wanted(b.index, a, id, DEBUGINFO_DEBUG, false, &why));
    assert_int_equal(debuginfo_begin(b.index,
                                     &(struct debuginfo_offer){
                                         .tenant = a, .build_id = id, .type = DEBUGINFO_DEBUG },
                                     &x, &e),
                     0);
    assert_false(debuginfo_wanted(b.index, a, id, DEBUGINFO_DEBUG, false, &why));
    assert_string_equal(why, "A previous upload is still in-progress and not stale yet (only stale "
                             "uploads can be retried).");
    assert_int_equal(debuginfo_claim(x, STR("other"), &e), ERR_CONFIG);
    assert_int_equal(debuginfo_claim(NULL, STR(""), &e), ERR_CONFIG);
    clock_fake_advance(&b.clock, 1001);
    assert_true(debuginfo_wanted(b.index, a, id, DEBUGINFO_DEBUG, false, &why));
    for (int i = 0; i < DEBUGINFO_UPLOADS_MAX; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "0%d", i);
        assert_int_equal(debuginfo_begin(b.index,
                                         &(struct debuginfo_offer){ .tenant = a,
                                                                    .build_id = str_c(name),
                                                                    .type = DEBUGINFO_DEBUG },
                                         &again, &e),
                         0);
    }
    assert_int_equal(debuginfo_begin(b.index,
                                     &(struct debuginfo_offer){ .tenant = a,
                                                                .build_id = STR("ff"),
                                                                .type = DEBUGINFO_DEBUG },
                                     &again, &e),
                     ERR_RATE);
    debuginfo_free(b.index);
}

/* ---- turns ---- */

struct turns {
    struct distributor d;
    struct loop *loop;
    struct mutex gate; /* held: the pool's only thread waits */
    struct debuginfo_upload up[DEBUGINFO_UPLOADS_MAX + 1];
    size_t at[DEBUGINFO_UPLOADS_MAX + 1]; /* which one was written as which */
    size_t written;
};
struct turn {
    struct turns *t;
    size_t i;
};

static void gate_work(void *cookie)
{
    struct turns *t = cookie;

    mutex_lock(&t->gate);
    mutex_unlock(&t->gate);
}

static void on_written(void *cookie, const struct err *e)
{
    struct turn *turn = cookie;
    struct turns *t = turn->t;

    assert_null(e);
    t->at[turn->i] = t->written++;
    if (t->written == ARRAY_LEN(t->up))
        loop_stop(t->loop);
}

/* What many uploads of one tenant have waiting does not stand before the upload of another. */
static void test_tenants_take_turns(void **state)
{
    struct tenancy_conf tenancy = { .multi = true };
    struct role_ctx ctx = { .tenancy = &tenancy };
    struct metrics *m = metrics_new();
    struct turn turn[DEBUGINFO_UPLOADS_MAX + 1];
    struct turns t = { .d = { .ctx = &ctx } };
    struct debuginfo_entry *x;
    struct bed b;
    struct err e;

    bed_init(&b, *state);
    ctx.env = &b.sim.env;
    ctx.loop = t.loop = loop_new(clock_real());
    ctx.pool = pool_new("turns", 1, 100);
    distributor_metrics_init(&t.d.metrics, m, b.sim.env.clock);
    mutex_init(&t.gate);
    mutex_lock(&t.gate);
    assert_true(pool_submit(ctx.pool, ctx.loop, gate_work, NULL, &t));
    for (size_t i = 0; i < ARRAY_LEN(t.up); i++) {
        char id[16];
        (void)snprintf(id, sizeof(id), "%04zx", i);
        struct str who = i < DEBUGINFO_UPLOADS_MAX ? STR("busy") : STR("quiet");
        assert_int_equal(debuginfo_begin(b.index,
                                         &(struct debuginfo_offer){ .tenant = who,
                                                                    .build_id = str_c(id),
                                                                    .type = DEBUGINFO_SOURCES },
                                         &x, &e),
                         0);
        assert_int_equal(debuginfo_claim(x, STR(""), &e), 0);
        turn[i] = (struct turn){ &t, i };
        debuginfo_upload_open(&t.up[i], &t.d, b.index, x);
        t.up[i].then = on_written;
        t.up[i].cookie = &turn[i];
        debuginfo_upload_write(&t.up[i], STR("bytes"));
    }
    mutex_unlock(&t.gate);
    loop_run(t.loop);
    assert_in_range(t.at[DEBUGINFO_UPLOADS_MAX], 0, 1);
    for (size_t i = 0; i < ARRAY_LEN(t.up); i++)
        debuginfo_upload_close(&t.up[i]);
    pool_free(ctx.pool);
    debuginfo_free(b.index);
    metrics_free(m);
    loop_free(t.loop);
    mutex_deinit(&t.gate);
}

static void test_names(void **state)
{
    static const char *const bad[] = { "", "a", "a b", "a\nb", "\xc3\xa4\xc3\xa4" };
    struct debuginfo_meta m = { .tenant = "t", .build_id = "../../x", .size = 3 }, back;
    struct buf b;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(debuginfo_id_check(str_c(bad[i]), &e), ERR_INPUT);
    buf_init(&b, 4096);
    debuginfo_path("d", &m, &b);
    assert_true(str_starts(buf_str(&b), STR("d/")));
    assert_int_equal(b.len, 2 + 32 + 1 + 1 + 14 + strlen(".debuginfo"));
    buf_reset(&b);
    debuginfo_meta_write(&m, &b);
    assert_int_equal(debuginfo_meta_read(buf_str(&b), &back, &e), 0);
    assert_string_equal(back.build_id, m.build_id);
    assert_int_equal(back.size, 3);
    assert_int_equal(debuginfo_meta_read(STR("tenant=t\n"), &back, &e), ERR_CORRUPT);
    assert_int_equal(debuginfo_meta_read(STR("junk"), &back, &e), ERR_CORRUPT);
    buf_deinit(&b);
}

/* What a crash leaves behind is gone after the next start. */
static void test_scan(void **state)
{
    struct debuginfo_temp t;
    struct debuginfo_meta m = { .tenant = "s", .build_id = "0b", .size = 5 };
    struct bed b;
    struct buf path;
    struct stat st;
    struct err e;

    bed_init(&b, *state);
    assert_int_equal(upload(&b, "s", "0b", 5, &e), 0);
    assert_int_equal(debuginfo_temp_open(b.o.dir, 99, &t, &e), 0);
    (void)close(t.fd);
    m.type = DEBUGINFO_SOURCES;
    buf_init(&path, 4096);
    debuginfo_path(b.o.dir, &m, &path);
    buf_addf(&path, ".meta%c", 0);
    assert_int_equal(unlink(path.ptr), 0); /* the data stays without its .meta */
    debuginfo_free(b.index);
    bed_open(&b);
    assert_false(here(&b, "s", "0b"));
    assert_int_not_equal(stat(t.path, &st), 0);
    path.ptr[path.len - strlen(".meta") - 1] = 0;
    assert_int_not_equal(stat(path.ptr, &st), 0);
    buf_deinit(&path);
    debuginfo_free(b.index);
}

static int setup(void **state)
{
    *state = kv_dir_new();
    return 0;
}

static int teardown(void **state)
{
    kv_dir_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_quotas, setup, teardown),
        cmocka_unit_test_setup_teardown(test_uploads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_entries, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stale_uploads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tenants_take_turns, setup, teardown),
        cmocka_unit_test(test_names),
        cmocka_unit_test_setup_teardown(test_scan, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
