/* SPDX-License-Identifier: Apache-2.0
 *
 * fsck: reads a stopped database, or a copy of one, and says in words which of the engine's rules
 * it breaks. Nothing in the folder is changed: databases are opened for reading, and rows that are
 * only in the write-ahead log are replayed in memory. While it looks, it holds shared locks on the
 * lock files that are there, so that no server starts on what it reads.
 *
 * With --mark it is opened for writing first, under the locks of a server, and does at once what
 * the scrubber does over days (store/check/scrub.h): nodes that are not the sum of their children,
 * whose children are sound, are marked. A server builds them again, queries read their children
 * until then. What follows is the same check: it passes over marked nodes, so what it still finds
 * is what marking does not heal.
 *
 * Where rows are in the cold tier, rules that need them are left out, and that is said; with --cold
 * they are read, and each part is fetched and compared with what it is named by.
 *
 * DIR is a data folder (it holds shard-0, shard-1, ...) or one shard's folder.
 * Exit: 0 nothing found, or nothing but what was marked; 1 something found; 2 could not look.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/base/size.h"
#include "common/base/str.h"
#include "common/base/vec.h"
#include "common/cold/kv_cold.h"
#include "common/repl/apply.h"
#include "common/store/check/check.h"
#include "common/store/check/scrub.h"
#include "common/store/kv/cold_read.h"
#include "deploy/ctl/ctl.h"
#include "deploy/ctl/local/fsck_cold.h"

#define SHOWN_MAX         20
#define BLOCK_CACHE_BYTES (64 * MIB)
#define DICT_BYTES        (256 * MIB)
#define SHARDS_MAX        4096
#define PROGRESS_MS       1000
#define MEMTABLE_BYTES    (16 * MIB)
#define SCRUB_ROWS        1024
#define SCRUB_ARENA_BYTES (64 * MIB)
#define SCRUB_EVERY_NODE  1

struct fsck {
    const char *dir; /* of the shard at hand */
    uint64_t shown_max;
    uint64_t findings;
    uint64_t told_ms; /* monotonic: when progress was shown last */
    bool quiet, mark;
    uint64_t marked, lost; /* of the shard at hand */
    uint64_t parts_shown;
    struct fsck_cold *cold; /* NULL: rows in the cold tier are not checked */
    VEC(uint32_t) shards;
};

/* ---- what it says ---- */

static void on_found(void *cookie, enum check_kind kind, const char *text)
{
    const struct fsck *f = cookie;

    (void)printf("%s: %s: %s\n", f->dir, check_kind_names[kind], text);
}

static void on_progress(void *cookie, enum check_kind kind, uint64_t rows)
{
    struct fsck *f = cookie;
    uint64_t now = clock_mono_ms(clock_real());

    if (f->quiet || (rows && now < f->told_ms + PROGRESS_MS))
        return;
    f->told_ms = now;
    (void)fprintf(stderr, "%s: %s: %" PRIu64 " rows\n", f->dir, check_kind_names[kind], rows);
}

static void print_report(const struct fsck *f, const struct check_report *r)
{
    (void)printf("%s: %" PRIu64 " tenants, %" PRIu64 " services, %" PRIu64
                 " profile types, %" PRIu64 " series, %" PRIu64 " stack nodes in %" PRIu64
                 " dictionaries\n",
                 f->dir, r->tenants, r->scopes, r->types, r->series, r->nodes, r->epochs);
    (void)printf("%s: %-14s %12s %12s\n", f->dir, "kind", "rows", "findings");
    for (size_t i = 0; i < CHECK_KINDS_LEN; i++) {
        if (r->rows[i] || r->findings[i])
            (void)printf("%s: %-14s %12" PRIu64 " %12" PRIu64 "\n", f->dir, check_kind_names[i],
                         r->rows[i], r->findings[i]);
    }
    for (size_t i = 0; i < CHECK_KINDS_LEN; i++) {
        if (r->findings[i] > f->shown_max)
            (void)printf("%s: %s: %" PRIu64 " findings more than shown (--findings=n)\n", f->dir,
                         check_kind_names[i], r->findings[i] - f->shown_max);
    }
    if (r->left_out)
        (void)printf("%s: %" PRIu64 " rules were left out: rows they need are in the cold tier "
                     "(--cold reads them)\n",
                     f->dir, r->left_out);
}

static int check_parts(struct fsck *f, struct store *s, struct err *e);

static int check_store(struct fsck *f, struct store *s, struct err *e)
{
    struct check_opts o = {
        .shown_max = f->shown_max, .found = on_found, .progress = on_progress, .cookie = f
    };
    struct store_view *v = store_view_get(s);
    struct check_report r;
    int rc = store_check_all(v, &o, &r, e);

    store_view_put(v);
    if (!rc)
        print_report(f, &r);
    f->findings += check_findings(&r);
    if (!rc && f->cold)
        rc = check_parts(f, s, e);
    return rc;
}

/* ---- rows in the cold tier ---- */

static void on_part(void *cookie, const char *text)
{
    struct fsck *f = cookie;

    f->findings++;
    if (f->parts_shown++ < f->shown_max)
        (void)printf("%s: cold tier: %s\n", f->dir, text);
}

static void on_part_bytes(void *cookie, uint64_t bytes, uint64_t all)
{
    struct fsck *f = cookie;
    uint64_t now = clock_mono_ms(clock_real());

    if (f->quiet || (bytes < all && now < f->told_ms + PROGRESS_MS))
        return;
    f->told_ms = now;
    (void)fprintf(stderr, "%s: cold tier: %" PRIu64 " of %" PRIu64 " MiB\n", f->dir, bytes >> 20,
                  all >> 20);
}

static int check_parts(struct fsck *f, struct store *s, struct err *e)
{
    struct fsck_parts p = { .found = on_part, .progress = on_part_bytes, .cookie = f };
    struct store_view *v = store_view_get(s);
    int rc = fsck_cold_parts(f->cold, store_view_kv(v), &p, e);

    store_view_put(v);
    if (!rc && p.parts)
        (void)printf("%s: %" PRIu64 " parts of the cold tier, %" PRIu64 " bytes, %" PRIu64
                     " wrong\n",
                     f->dir, p.parts, p.bytes, p.wrong);
    return rc;
}

/* ---- marking ---- */

static int mark_one(struct fsck *f, struct store *s, const struct scrub_finding *n, struct err *e)
{
    bool node = n->kind == SCRUB_NODE;

    if (node && store_scrub_mark(s, &n->node, e))
        return e->code;
    *(node ? &f->marked : &f->lost) += 1;
    if (*(node ? &f->marked : &f->lost) <= f->shown_max)
        (void)printf("%s: %s: %s\n", f->dir, node ? "marked" : "cannot be built from anything",
                     n->text);
    return 0;
}

/* A round over the shard; *ret_more counts what a step found and could not name. */
static int mark_round(struct fsck *f, struct store *s, struct arena *a, uint64_t *ret_more,
                      struct err *e)
{
    const struct scrub_opts o = { SCRUB_ROWS, SCRUB_EVERY_NODE, a };
    struct scrub_found found = { 0 };
    struct scrub at = { 0 };
    int rc = 0;

    while (!rc && !at.done) {
        struct store_view *v = store_view_get(s);
        rc = store_scrub(v, &at, &o, &found, e);
        store_view_put(v);
        for (size_t i = 0; !rc && i < found.at.len; i++)
            rc = mark_one(f, s, &found.at.ptr[i], e);
        *ret_more += found.more;
        found.at.len = 0;
        found.more = 0;
        if (!f->quiet && clock_mono_ms(clock_real()) >= f->told_ms + PROGRESS_MS) {
            f->told_ms = clock_mono_ms(clock_real());
            (void)fprintf(stderr, "%s: nodes against their children: %" PRIu64 " rows\n", f->dir,
                          at.rows);
        }
    }
    vec_free(&found.at);
    return rc;
}

/* Marks are skipped by the next round, so each finds fewer. */
static int mark_store(struct fsck *f, struct store *s, struct err *e)
{
    struct arena *a = arena_new(SCRUB_ARENA_BYTES);
    uint64_t more = 1, before = UINT64_MAX;
    int rc = 0;

    f->marked = 0;
    while (!rc && more && f->marked != before) {
        before = f->marked;
        more = f->lost = 0;
        rc = mark_round(f, s, a, &more, e);
    }
    arena_free(a);
    if (rc)
        return rc;
    (void)printf("%s: %" PRIu64
                 " nodes were not the sum of their children and are marked: a server "
                 "builds them again, answers read their children until then\n",
                 f->dir, f->marked);
    if (f->lost + more)
        (void)printf("%s: %" PRIu64 " rows are damaged or missing that nothing can be built from: "
                     "what is above them keeps what it had\n",
                     f->dir, f->lost + more);
    return 0;
}

/* ---- one shard ---- */

/* Takes a shared lock, as a reader: a writer takes it exclusively. RocksDB locks by record, the
 * data folder by file. -1 and no error: there is no such file, as in a copy. */
static int lock_file(const char *dir, bool record, bool write, int *ret_fd, struct err *e)
{
    struct flock l = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
    char path[PATH_MAX];

    *ret_fd = -1;
    if ((size_t)snprintf(path, sizeof(path), "%s/LOCK", dir) >= sizeof(path))
        return err_set(e, ERR_CONFIG, "the path is too long");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_errno(e, errno, "cannot open %s", path);
    if (record ? fcntl(fd, F_SETLK, &l) : flock(fd, (write ? LOCK_EX : LOCK_SH) | LOCK_NB)) {
        (void)close(fd);
        return err_set(e, ERR_BUSY,
                       "%s is in use by a running process; stop it first, or check a copy", dir);
    }
    *ret_fd = fd;
    return 0;
}

/* The number a folder is called by: names of parts have it. */
static uint32_t shard_of_dir(const char *dir)
{
    struct str name = str_c(dir);
    uint64_t n;

    while (str_ends(name, STR("/")))
        name.len--;
    name = str_sub(name, (size_t)(str_rfind(name, '/') + 1), name.len);
    return str_starts(name, STR("shard-")) && str_u64(str_sub(name, 6, name.len), &n) &&
                   n <= UINT32_MAX
               ? (uint32_t)n
               : 0;
}

static int open_store(const struct fsck *f, const char *dir, bool write, struct store **ret,
                      struct err *e)
{
    struct kv_opts ko = { .dir = dir,
                          .block_cache_bytes = BLOCK_CACHE_BYTES,
                          .memtable_bytes = MEMTABLE_BYTES,
                          .read_only = !write };
    struct store_opts so = { .clock = clock_real(), .dict_bytes_max = DICT_BYTES };
    struct kv_cold_opts co = { .cache = f->cold ? fsck_cold_cache(f->cold) : NULL,
                               .local = !f->cold,
                               .shard = shard_of_dir(dir) };
    int rc = kv_rocks_open(&ko, &co.inner, e);

    if (!rc)
        rc = kv_cold_open(&co, &so.kv, e);
    return rc ? rc : store_open(&so, ret, e);
}

/* Opening for writing takes RocksDB's lock itself. */
static int mark_shard(struct fsck *f, const char *dir, struct err *e)
{
    struct store *s = NULL;
    int rc = open_store(f, dir, true, &s, e);

    if (rc == ERR_BUSY)
        return err_set(e, ERR_BUSY, "%s is in use by a running process; stop it first", dir);
    if (!rc)
        rc = mark_store(f, s, e);
    store_close(s);
    return rc;
}

/* Rows that are missing may leave all others in order. What cannot be read is found later. */
static void check_logs(struct fsck *f, const char *dir)
{
    struct err e;

    if (apply_check_files(dir, &e) != ERR_CORRUPT)
        return;
    (void)printf("%s: %s\n", dir, e.text);
    f->findings++;
}

static int check_shard(struct fsck *f, const char *dir, struct err *e)
{
    struct store *s = NULL;
    int fd, rc = 0;

    f->dir = dir;
    if (f->mark)
        rc = mark_shard(f, dir, e);
    if (!rc)
        rc = lock_file(dir, true, false, &fd, e);
    if (rc)
        return rc;
    check_logs(f, dir);
    rc = open_store(f, dir, false, &s, e);
    if (!rc)
        rc = check_store(f, s, e);
    store_close(s);
    if (fd >= 0)
        (void)close(fd);
    return rc;
}

/* A database that cannot be opened is a finding; it is an error if it cannot be reached (a lock,
 * rights). */
static int check_one(struct fsck *f, const char *dir)
{
    struct err e = { 0 };
    int rc = check_shard(f, dir, &e);

    if (rc == ERR_CORRUPT) {
        (void)printf("%s: %s\n", dir, e.text);
        f->findings++;
        return 0;
    }
    if (rc)
        (void)fprintf(stderr, "embertree fsck: %s: %s\n", dir, e.text);
    return rc;
}

/* ---- the folder ---- */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static int find_shards(struct fsck *f, const char *dir, struct err *e)
{
    DIR *d = opendir(dir);

    if (!d)
        return err_errno(e, errno, "cannot read the folder");
    for (struct dirent *one; (one = readdir(d)) && f->shards.len < SHARDS_MAX;) {
        struct str name = str_c(one->d_name);
        uint64_t n;

        if (str_starts(name, STR("shard-")) && str_u64(str_sub(name, 6, name.len), &n) &&
            n <= UINT32_MAX)
            vec_push(&f->shards, (uint32_t)n);
    }
    (void)closedir(d);
    if (f->shards.len)
        qsort(f->shards.ptr, f->shards.len, sizeof(*f->shards.ptr), by_number);
    return 0;
}

static int check_folder(struct fsck *f, const char *dir, struct err *e)
{
    char path[PATH_MAX];
    int fd, rc = find_shards(f, dir, e);

    if (rc)
        return rc;
    if (!f->shards.len)
        return check_one(f, dir);
    rc = lock_file(dir, false, f->mark, &fd, e);
    vec_for (i, &f->shards) {
        int n = snprintf(path, sizeof(path), "%s/shard-%" PRIu32, dir, f->shards.ptr[i]);
        if (!rc)
            rc = n < PATH_MAX ? check_one(f, path) : err_set(e, ERR_CONFIG, "the path is too long");
    }
    if (fd >= 0)
        (void)close(fd);
    return rc;
}

static int usage(void)
{
    (void)fprintf(stderr,
                  "usage: embertree fsck [--mark] [--cold] [--findings=N] [--quiet] DIR\n"
                  "  DIR           a data folder, or the folder of one shard\n"
                  "  --mark        mark nodes that are not the sum of their children, so that a "
                  "server\n"
                  "                builds them again; without it nothing is written\n"
                  "  --findings=N  show at most N findings of a kind (default %d)\n"
                  "  --cold        with --cold.url=... and so on: rows in the cold tier, too, "
                  "and\n"
                  "                whether each part is there and is what it should be\n"
                  "  --quiet       no progress\n"
                  "exit code: 0 nothing found, 1 something found, 2 could not look\n",
                  SHOWN_MAX);
    return 2;
}

static int fsck(int argc, char **argv)
{
    struct fsck f = { .shown_max = SHOWN_MAX };
    const char *dir = NULL;
    VEC(const char *) args = { 0 };
    struct cold_read reach = { .local = true };
    bool with_cold = false;
    struct err e = { 0 };

    for (int i = 1; i < argc; i++) {
        struct str a = str_c(argv[i]);
        if (str_starts(a, STR("--findings=")) && str_u64(str_sub(a, 11, a.len), &f.shown_max))
            continue;
        if (str_eq(a, STR("--quiet")))
            f.quiet = true;
        else if (str_eq(a, STR("--mark")))
            f.mark = true;
        else if (str_eq(a, STR("--cold")))
            with_cold = true;
        else if (str_starts(a, STR("--cold.")))
            vec_push(&args, argv[i]);
        else if (!dir && a.len && a.ptr[0] != '-')
            dir = argv[i];
        else
            return usage();
    }
    if (!dir)
        return usage();
    int rc = with_cold ? fsck_cold_new(args.ptr, args.len, &f.cold, &e) : 0;
    (void)cold_read_policy_set(with_cold ? NULL : &reach);
    if (!rc)
        rc = check_folder(&f, dir, &e);
    (void)cold_read_policy_set(NULL);
    fsck_cold_free(f.cold);
    vec_free(&args);
    vec_free(&f.shards);
    if (e.code)
        (void)fprintf(stderr, "embertree fsck: %s: %s\n", dir, e.text);
    if (rc)
        return 2;
    (void)printf("%s: %" PRIu64 " findings\n", dir, f.findings);
    return f.findings ? 1 : 0;
}

const struct command fsck_command = {
    .name = "fsck",
    .args = "[--mark] [--cold] [--findings=N] DIR",
    .help = "Check a stopped database: everything it holds against everything it says about it.",
    .run = fsck,
};
