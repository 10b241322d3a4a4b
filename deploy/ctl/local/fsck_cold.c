/* SPDX-License-Identifier: Apache-2.0
 *
 * fsck_cold: a handle of the object store and a cache in a folder of its own, which goes in the
 * end.
 */
#include "deploy/ctl/local/fsck_cold.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/cold/conf.h"

#define CACHE_BYTES (256 * MIB)

struct fsck_cold {
    struct conf *conf;
    const struct cold_conf *cold;
    struct object_store *o;
    struct cold_cache *cache;
    char dir[PATH_MAX];
};

static int open_handle(void *cookie, struct object_store **ret, struct err *e)
{
    struct fsck_cold *c = cookie;

    return cold_conf_open(c->cold, env_real(), NULL, ret, e);
}

static int load(struct fsck_cold *c, const char *const *args, size_t n, struct err *e)
{
    static const struct conf_table *const tables[] = { &cold_options };
    char **argv = XNEW_ARRAY(char *, n + 2);
    int rc;

    argv[0] = (char *)(uintptr_t) "embertree fsck";
    for (size_t i = 0; i < n; i++)
        argv[i + 1] = (char *)(uintptr_t)args[i];
    rc = conf_load(tables, ARRAY_LEN(tables), (int)n + 1, argv, &c->conf, e);
    xfree(argv);
    if (rc)
        return rc;
    c->cold = conf_get(c->conf, &cold_options);
    if (!c->cold->url[0])
        return err_set(e, ERR_CONFIG,
                       "--cold wants to know where the cold tier is: --cold.url=...");
    return 0;
}

int fsck_cold_new(const char *const *args, size_t n, struct fsck_cold **ret, struct err *e)
{
    struct fsck_cold *c = XNEW(struct fsck_cold);
    struct cold_cache_opts o = { .bytes_max = CACHE_BYTES, .open = open_handle, .cookie = c };
    const char *temp = getenv("TMPDIR");
    int rc = load(c, args, n, e);

    if (!rc && (size_t)snprintf(c->dir, sizeof(c->dir), "%s/embertree-fsck-XXXXXX",
                                temp && temp[0] ? temp : "/tmp") >= sizeof(c->dir))
        rc = err_set(e, ERR_CONFIG, "TMPDIR is longer than a path may be");
    if (rc)
        c->dir[0] = 0;
    if (!rc && !mkdtemp(c->dir)) {
        rc = err_errno(e, errno, "cannot make %s", c->dir);
        c->dir[0] = 0;
    }
    o.dir = c->dir;
    if (!rc)
        rc = cold_cache_new(&o, &c->cache, e);
    if (!rc)
        rc = open_handle(c, &c->o, e);
    if (rc) {
        fsck_cold_free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

static void remove_dir(const char *dir)
{
    DIR *d = dir[0] ? opendir(dir) : NULL;

    if (!d)
        return;
    for (struct dirent *one; (one = readdir(d));)
        if (one->d_name[0] != '.')
            (void)unlinkat(dirfd(d), one->d_name, 0);
    (void)closedir(d);
    (void)rmdir(dir);
}

void fsck_cold_free(struct fsck_cold *c)
{
    if (!c)
        return;
    cold_cache_free(c->cache);
    object_close(c->o);
    remove_dir(c->dir);
    conf_free(c->conf);
    xfree(c);
}

struct cold_cache *fsck_cold_cache(struct fsck_cold *c)
{
    return c->cache;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static int check_part(struct fsck_cold *c, const struct cold_part *p, struct err *e)
{
    struct buf bytes;
    uint64_t size;
    int rc = object_size(c->o, str_c(p->name), &size, e);

    if (rc)
        return rc == ERR_NOT_FOUND ? err_set(e, ERR_CORRUPT, "%s is not there", p->name) : rc;
    if (size != p->size || size > OBJECT_BYTES_MAX)
        return err_set(e, ERR_CORRUPT, "%s has %" PRIu64 " bytes, the shard says %" PRIu64, p->name,
                       size, p->size);
    buf_init(&bytes, (size_t)size);
    rc = object_read(c->o, str_c(p->name), 0, (size_t)size, &bytes, e);
    if (!rc && !hash128_eq(hash128(bytes.ptr, bytes.len, 0), p->hash))
        rc = err_set(e, ERR_CORRUPT, "%s: its bytes are not those it is named by", p->name);
    buf_deinit(&bytes);
    return rc;
}

static int check_family(struct fsck_cold *c, const struct cold_family *family, uint64_t all,
                        struct fsck_parts *f, struct err *e)
{
    vec_for (i, &family->parts) {
        const struct cold_part *p = family->parts.ptr[i];
        int rc = check_part(c, p, e);

        if (rc && rc != ERR_CORRUPT)
            return rc;
        if (rc) {
            f->wrong++;
            f->found(f->cookie, e->text);
        }
        f->parts++;
        f->bytes += p->size;
        f->progress(f->cookie, f->bytes, all);
    }
    return 0;
}

int fsck_cold_parts(struct fsck_cold *c, struct kv *kv, struct fsck_parts *f, struct err *e)
{
    struct manifest *m = kv_cold_manifest(kv, NULL);
    uint64_t all = 0;
    int rc = 0;

    for (int cf = 0; cf < KV_CFS; cf++)
        vec_for (i, &m->of[cf].parts)
            all += m->of[cf].parts.ptr[i]->size;
    for (int cf = 0; !rc && cf < KV_CFS; cf++)
        rc = check_family(c, &m->of[cf], all, f, e);
    manifest_unref(m);
    return rc;
}
