/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiving folder of a copy: every system call of a whole transfer fails once, and everything
 * ends there once, as by kill -9; the shard then opens with the old database or the new one, never
 * a mixture, and the transfer continues from the files that arrived. Damaged, doubled and missing
 * pieces.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/repl/apply.h"
#include "common/repl/copy_in.h"
#include "common/store/kv/kv.h"
#include "tests/lib/store/kv_dir.h"

enum { NEW_INDEX = 90, OLD_INDEX = 20, TERM = 5, ROWS = 3000 };

static struct {
    char *dir;
    char db[400], base[400], out[400];
    struct copy_list list;
    /* The call that fails. */
    int calls, fail_at, code;
    bool dead;           /* all that follow fail, too */
    size_t part_of_note; /* so many bytes of the next one are written, and no more; 0: whole */
} t;

static int fails(void *cookie, const char *what, const char *path)
{
    (void)cookie;
    t.calls++;
    if (t.part_of_note && !strcmp(what, "append")) { /* the disk is full in the middle of it */
        FILE *f = fopen(path, "ab");
        assert_non_null(f);
        assert_int_equal(fwrite("a part ", 1, t.part_of_note, f), t.part_of_note);
        assert_int_equal(fclose(f), 0);
        t.part_of_note = 0;
        return ENOSPC;
    }
    return t.fail_at && (t.calls == t.fail_at || (t.dead && t.calls > t.fail_at)) ? t.code : 0;
}
static const struct copy_faults faults = { .fails = fails };

static void fill(struct kv *kv, uint64_t index, uint64_t rows)
{
    struct err e;

    for (uint64_t i = 0; i < rows; i++) {
        struct kv_batch *b = kv_batch_new();
        char key[8], value[1000];
        put_u64be(key, i);
        for (size_t k = 0; k < sizeof(value); k += 8)
            put_u64le(value + k, hash_u64(i * 1000 + k + index));
        kv_batch_put(b, (enum kv_cf)(i % KV_CFS), str_n(key, 8), str_n(value, sizeof(value)));
        assert_int_equal(kv_write(kv, b, false, &e), 0);
        kv_batch_free(b);
        if (i == rows / 2)
            assert_int_equal(kv_flush(kv, &e), 0);
    }
    assert_int_equal(apply_note(kv, index, TERM, &e), 0);
}

static uint64_t rows_of(struct kv *kv)
{
    uint64_t n = 0;

    for (int cf = 0; cf < KV_CFS; cf++) {
        struct kv_iter *it = kv_iter_new(kv, NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        struct err e;
        for (; kv_iter_valid(it); kv_iter_next(it))
            n++;
        assert_int_equal(kv_iter_status(it, &e), 0);
        kv_iter_free(it);
    }
    return n;
}

static void old_db(void)
{
    struct kv *kv = kv_dir_open(t.db);

    fill(kv, OLD_INDEX, 10);
    kv_close(kv);
}

static void setup(void)
{
    char source[400];
    struct kv *kv;
    struct err e;

    memset(&t, 0, sizeof(t));
    t.dir = kv_dir_new();
    (void)snprintf(t.db, sizeof(t.db), "%s/shard-3", t.dir);
    (void)snprintf(t.base, sizeof(t.base), "%s/copy-3", t.dir);
    (void)snprintf(t.out, sizeof(t.out), "%s/out", t.dir);
    (void)snprintf(source, sizeof(source), "%s/source", t.dir);
    kv = kv_dir_open(source);
    fill(kv, NEW_INDEX, ROWS);
    if (kv_checkpoint(kv, t.out, &e))
        fail_msg("%s", e.text);
    fill(kv, NEW_INDEX + 1, 5); /* the database changes, the copy does not */
    kv_close(kv);
    assert_int_equal(copy_scan(t.out, &t.list, &e), 0);
    t.list.index = NEW_INDEX;
    t.list.index_term = TERM;
    assert_true(t.list.len >= 5 && t.list.bytes > (uint64_t)MIB);
    assert_int_equal(mkdir(t.base, 0755), 0);
}

static void teardown(void)
{
    copy_list_free(&t.list);
    kv_dir_remove(t.dir);
}

static struct copy_list list_again(void)
{
    struct copy_list l;
    struct buf out;
    struct err e;

    buf_init(&out, MIB);
    copy_list_write(&t.list, &out);
    assert_int_equal(copy_list_read(buf_str(&out), &l, &e), 0);
    assert_int_equal(l.bytes, t.list.bytes);
    buf_deinit(&out);
    return l;
}

static int pull_file(struct copy_in *in, size_t i, uint64_t *fetched, struct err *e)
{
    const struct copy_file *f = &t.list.files[i];
    struct buf piece;
    int rc = 0;

    buf_init(&piece, COPY_PIECE_BYTES);
    for (uint64_t at = 0; !rc && at < f->size; at += COPY_PIECE_BYTES) {
        buf_reset(&piece);
        assert_int_equal(
            copy_read(t.out, f, at, MIN((size_t)(f->size - at), COPY_PIECE_BYTES), &piece, e), 0);
        rc = copy_in_write(in, i, at, buf_str(&piece), copy_piece_sum(buf_str(&piece), f->name, at),
                           e);
        *fetched += piece.len;
    }
    buf_deinit(&piece);
    return rc;
}

/* Everything a receiver does, up to `upto` files. */
static int pull(uint64_t id, size_t upto, uint64_t *fetched, struct err *e)
{
    struct copy_offer offer = { .source = "n1", .id = id, .list = list_again() };
    struct copy_in *in;
    uint64_t total[64];
    int rc = copy_in_begin(t.base, &faults, &offer, &in, e);

    *fetched = 0;
    if (rc)
        return rc;
    for (size_t i = 0; !rc && i < MIN(upto, t.list.len); i++)
        if (!in->sums[i])
            rc = pull_file(in, i, fetched, e);
    if (!rc && upto >= t.list.len) {
        assert_int_equal(in->files_left, 0);
        assert_int_equal(in->bytes, t.list.bytes);
        assert_true(t.list.len < ARRAY_LEN(total));
        memcpy(total, in->sums, t.list.len * sizeof(*total));
        assert_true(copy_in_total(in) == copy_total(total, t.list.len));
        rc = copy_in_complete(in, false, e);
    }
    copy_in_free(in);
    return rc;
}

static int install(bool *ret, struct err *e)
{
    return copy_install(t.db, t.base, &faults, ret, e);
}

/* What a start finds: the index, and nothing left over. */
static uint64_t start(void)
{
    uint64_t index, term, rows;
    struct stat st;
    char path[500];
    struct kv *kv;
    struct err e;
    bool installed;

    t.fail_at = 0;
    if (install(&installed, &e))
        fail_msg("%s", e.text);
    (void)snprintf(path, sizeof(path), "%s/old", t.base);
    assert_int_not_equal(stat(path, &st), 0);
    (void)snprintf(path, sizeof(path), "%s/" COPY_COMPLETE, t.db);
    assert_int_not_equal(stat(path, &st), 0);
    kv = kv_dir_open(t.db);
    assert_int_equal(apply_read(kv, &index, &term, &e), 0);
    rows = rows_of(kv);
    kv_close(kv);
    assert_int_equal(rows, index == NEW_INDEX ? ROWS + 1 : 10 + 1);
    return index;
}

static void test_whole(void **state)
{
    uint64_t fetched;
    bool installed;
    struct err e;

    (void)state;
    setup();
    old_db();
    if (pull(7, SIZE_MAX, &fetched, &e))
        fail_msg("%s", e.text);
    assert_int_equal(fetched, t.list.bytes);
    assert_int_equal(install(&installed, &e), 0);
    assert_true(installed);
    assert_int_equal(start(), NEW_INDEX);
    assert_int_equal(install(&installed, &e), 0);
    assert_false(installed);
    teardown();
}

/* A database that went on meanwhile stays, unless it counts for nothing. */
static void test_newer(void **state)
{
    uint64_t fetched;
    struct copy_in *in;
    struct kv *kv;
    bool installed;
    struct err e;

    (void)state;
    setup();
    old_db();
    assert_int_equal(pull(7, SIZE_MAX, &fetched, &e), 0);
    kv = kv_dir_open(t.db);
    assert_int_equal(apply_note(kv, NEW_INDEX, TERM, &e), 0);
    kv_close(kv);
    assert_int_equal(install(&installed, &e), 0);
    assert_false(installed);
    assert_int_equal(copy_in_load(t.base, NULL, &in, &e), ERR_NOT_FOUND); /* its space is free */
    assert_int_equal(pull(7, SIZE_MAX, &fetched, &e), 0);
    assert_int_equal(copy_in_load(t.base, NULL, &in, &e), 0);
    assert_int_equal(copy_in_complete(in, true, &e), 0);
    copy_in_free(in);
    assert_int_equal(install(&installed, &e), 0);
    assert_true(installed);
    assert_int_equal(start(), NEW_INDEX);
    teardown();
}

/* The same try again fetches what was not whole; another copy of the same source its table files
 * not again. */
static void test_resume(void **state)
{
    uint64_t fetched, whole = 0, tables = 0;
    struct copy_in *in;
    struct err e;

    (void)state;
    setup();
    assert_int_equal(pull(7, 4, &fetched, &e), 0);
    for (size_t i = 0; i < t.list.len; i++) {
        bool table = str_ends(str_c(t.list.files[i].name), STR(".sst"));
        whole += i < 4 ? t.list.files[i].size : 0;
        tables += table ? t.list.files[i].size : 0;
    }
    assert_int_equal(fetched, whole);
    assert_int_equal(copy_in_load(t.base, NULL, &in, &e), 0);
    assert_string_equal(in->source, "n1");
    assert_int_equal(in->id, 7);
    assert_int_equal(in->list.index, NEW_INDEX);
    assert_int_equal(in->files_left, t.list.len - 4);
    copy_in_free(in);
    assert_int_equal(pull(7, SIZE_MAX, &fetched, &e), 0);
    assert_int_equal(fetched, t.list.bytes - whole);
    assert_int_equal(pull(8, SIZE_MAX, &fetched, &e), 0);
    assert_true(tables > 0);
    assert_int_equal(fetched, t.list.bytes - tables);
    /* A file of the same name and length with another end is another one. */
    t.list.files[0].tail++;
    assert_int_equal(pull(9, SIZE_MAX, &fetched, &e), 0);
    assert_int_equal(
        fetched,
        t.list.bytes - tables +
            (str_ends(str_c(t.list.files[0].name), STR(".sst")) ? t.list.files[0].size : 0));
    assert_int_equal(start(), NEW_INDEX);
    teardown();
}

/* A full disk took part of a note: the notes behind it are still read, so no file that has arrived
 * is fetched again. */
static void test_part_of_a_note(void **state)
{
    uint64_t fetched = 0, whole = 0;
    struct copy_in *in;
    struct err e;

    (void)state;
    setup();
    struct copy_offer offer = { .source = "n1", .id = 7, .list = list_again() };
    assert_int_equal(copy_in_begin(t.base, &faults, &offer, &in, &e), 0);
    t.part_of_note = 7;
    assert_int_equal(pull_file(in, 0, &fetched, &e), ERR_NO_SPACE);
    assert_int_equal(t.part_of_note, 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pull_file(in, i, &fetched, &e), 0);
        whole += t.list.files[i].size;
    }
    copy_in_free(in);
    assert_int_equal(copy_in_load(t.base, NULL, &in, &e), 0);
    assert_int_equal(in->files_left, t.list.len - 4);
    copy_in_free(in);
    assert_int_equal(pull(7, SIZE_MAX, &fetched, &e), 0);
    assert_int_equal(fetched, t.list.bytes - whole);
    assert_int_equal(start(), NEW_INDEX);
    teardown();
}

static void test_damage(void **state)
{
    struct copy_in *in;
    struct buf piece;
    struct err e;

    (void)state;
    setup();
    struct copy_offer offer = { .source = "n1", .id = 7, .list = list_again() };
    assert_int_equal(copy_in_begin(t.base, NULL, &offer, &in, &e), 0);
    const struct copy_file *f = &t.list.files[0];
    size_t n = MIN((size_t)f->size, COPY_PIECE_BYTES);
    buf_init(&piece, COPY_PIECE_BYTES);
    assert_int_equal(copy_read(t.out, f, 0, n, &piece, &e), 0);
    uint64_t sum = copy_piece_sum(buf_str(&piece), f->name, 0);
    piece.ptr[n / 2] ^= 4;
    assert_int_equal(copy_in_write(in, 0, 0, buf_str(&piece), sum, &e), ERR_CORRUPT);
    piece.ptr[n / 2] ^= 4;
    assert_int_equal(copy_in_write(in, 0, 0, str_n(piece.ptr, n - 1), sum, &e), ERR_CORRUPT);
    /* Right bytes, of another file or place. */
    assert_int_equal(
        copy_in_write(in, 0, 0, buf_str(&piece), copy_piece_sum(buf_str(&piece), "other", 0), &e),
        ERR_CORRUPT);
    assert_int_equal(in->bytes, 0);
    assert_int_equal(copy_in_write(in, 0, 0, buf_str(&piece), sum, &e), 0);
    assert_int_equal(copy_in_write(in, 0, 0, buf_str(&piece), sum, &e), 0); /* twice */
    assert_int_equal(in->bytes, n);
    buf_deinit(&piece);
    copy_in_free(in);
    /* A file of the source that became shorter. */
    char path[500];
    (void)snprintf(path, sizeof(path), "%s/%s", t.out, f->name);
    assert_int_equal(truncate(path, (off_t)n / 2), 0);
    buf_init(&piece, COPY_PIECE_BYTES);
    assert_int_equal(copy_read(t.out, f, 0, n, &piece, &e), ERR_CORRUPT);
    buf_deinit(&piece);
    teardown();
}

/* The files are whole, and yet no database, or of another moment. */
static void test_not_it(void **state)
{
    uint64_t fetched;
    struct err e;

    (void)state;
    setup();
    t.list.index++;
    assert_int_equal(pull(7, SIZE_MAX, &fetched, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "as of entry"));
    t.list.index--;
    size_t gone = 0;
    while (!str_starts(str_c(t.list.files[gone].name), STR("MANIFEST")))
        gone++;
    t.list.bytes -= t.list.files[gone].size;
    memmove(&t.list.files[gone], &t.list.files[gone + 1],
            (--t.list.len - gone) * sizeof(*t.list.files));
    assert_int_not_equal(pull(8, SIZE_MAX, &fetched, &e), 0);
    teardown();
}

/* Each call fails once, for want of space, and from each one on nothing happens any more. */
static void each_call(bool dead)
{
    bool all = getenv("ALL") != NULL; /* otherwise every fourth, every ninth */
    int calls, seen_old = 0, seen_new = 0;
    uint64_t fetched;
    bool installed;
    struct err e;

    setup();
    old_db();
    t.calls = 0;
    assert_int_equal(pull(7, SIZE_MAX, &fetched, &e), 0);
    assert_int_equal(install(&installed, &e), 0);
    calls = t.calls;
    assert_true(calls > 20);
    for (int at = 1; at <= calls; at += all ? 1 : dead ? 4 : 9) {
        char rm[500];
        (void)snprintf(rm, sizeof(rm), "rm -rf '%s'", t.db);
        assert_int_equal(system(rm), 0);
        old_db();
        t.calls = 0;
        t.fail_at = at;
        t.dead = dead;
        t.code = dead ? EIO : ENOSPC;
        if (pull(100 + (uint64_t)at % 2, SIZE_MAX, &fetched, &e) == 0)
            (void)install(&installed, &e);
        else
            assert_int_equal(e.code, dead ? ERR_IO : ERR_NO_SPACE);
        assert_true(t.calls >= at);
        uint64_t index = start();
        assert_true(index == OLD_INDEX || index == NEW_INDEX);
        seen_old += index == OLD_INDEX;
        seen_new += index == NEW_INDEX;
        assert_int_equal(pull(7, SIZE_MAX, &fetched, &e), 0); /* and then it continues */
        assert_int_equal(start(), NEW_INDEX);
    }
    printf("%d calls: then the old one %d times, the new one %d times\n", calls, seen_old,
           seen_new);
    assert_true(seen_old > 3 && seen_new >= 2);
    teardown();
}

static void test_each_fails(void **state)
{
    (void)state;
    each_call(false);
}

static void test_each_ends(void **state)
{
    (void)state;
    each_call(true);
}

/* Whatever was written to the journal last may be torn. */
static void test_torn(void **state)
{
    uint64_t fetched, before;
    struct copy_in *in;
    char path[500];
    struct stat st;
    struct err e;

    (void)state;
    setup();
    assert_int_equal(pull(7, 6, &fetched, &e), 0);
    (void)snprintf(path, sizeof(path), "%s/in/" COPY_JOURNAL, t.base);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(copy_in_load(t.base, NULL, &in, &e), 0);
    before = in->files_left;
    copy_in_free(in);
    for (off_t cut = 1; cut < st.st_size; cut++) {
        assert_int_equal(truncate(path, st.st_size - cut), 0);
        int rc = copy_in_load(t.base, NULL, &in, &e);
        if (rc) {
            assert_int_equal(rc, ERR_NOT_FOUND);
            continue;
        }
        assert_true(in->files_left > before && in->files_left <= t.list.len);
        copy_in_free(in);
    }
    assert_int_equal(pull(7, SIZE_MAX, &fetched, &e), 0);
    assert_int_equal(fetched, t.list.bytes);
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),      cmocka_unit_test(test_newer),
        cmocka_unit_test(test_resume),     cmocka_unit_test(test_part_of_a_note),
        cmocka_unit_test(test_damage),     cmocka_unit_test(test_not_it),
        cmocka_unit_test(test_each_fails), cmocka_unit_test(test_each_ends),
        cmocka_unit_test(test_torn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
