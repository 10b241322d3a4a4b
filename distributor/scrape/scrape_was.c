/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_was: last profiles over a restart that was in order.
 *
 *   start: read <data>/scrape-last, remove it ─> by id ─> given to the entries as they come
 *   end:   those of all entries ─> <data>/scrape-last
 *
 * An entry whose last body may or may not be stored is left out: it begins with a first profile,
 * and counts nothing twice. What no entry claims within WAIT_MS is dropped: its target is not ours
 * any more. Bytes count against scrape_bytes all the while, so that is the bound of the file, too.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "common/obs/log.h"
#include "distributor/scrape/scrape_impl.h"
#include "distributor/scrape/scrape_keep.h"

#define WAIT_MS  600000
#define PER_KEPT 64 /* bytes in the file beside the profile itself, and more */

static void path_of(const struct scrape *s, char *to, size_t n)
{
    int len = snprintf(to, n, "%s/scrape-last", s->d->ctx->data_dir);

    CHECK(len > 0 && (size_t)len < n);
}

static size_t file_max(const struct scrape *s)
{
    return (size_t)s->d->conf->scrape_bytes + PER_KEPT * (size_t)s->d->conf->scrape_targets + KIB;
}

static void keep(void *cookie, const struct scrape_kept *k)
{
    struct scrape *s = cookie;
    struct scrape_was was = { .id = k->id, .body = { .at_ms = k->at_ms } };

    if (!budget_reserve(&s->memory, k->bytes.len))
        return;
    was.body.charged = k->bytes.len;
    buf_init(&was.body.bytes, k->bytes.len);
    (void)buf_add_str(&was.body.bytes, k->bytes);
    vec_push(&s->was, was);
}

/* For good: not even a power cut brings it back. */
static bool gone_for_good(const struct scrape *s, const char *path)
{
    int dir = open(s->d->ctx->data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = dir >= 0 && unlink(path) == 0 && fsync(dir) == 0;

    if (dir >= 0)
        (void)close(dir);
    return ok;
}

void scrape_was_load(struct scrape *s)
{
    const struct env *env = s->d->ctx->env;
    char path[4096];
    struct buf text;
    struct err e;

    if (s->d->ctx->simulated)
        return;
    path_of(s, path, sizeof(path));
    buf_init(&text, file_max(s));
    int rc = env->fs->read_file(env->fs, path, &text, &e);
    if (rc != ERR_NOT_FOUND && !gone_for_good(s, path))
        rc = err_set(&e, ERR_IO, "cannot remove %s", path);
    if (!rc)
        rc = scrape_keep_each(buf_str(&text), clock_wall_ms(env->clock), keep, s, &e);
    if (rc && rc != ERR_NOT_FOUND)
        log_warn("what scraping fetched before the restart cannot be used: growth since then is "
                 "not counted",
                 KV_ERR(&e));
    buf_deinit(&text);
    s->was_until_ms = clock_mono_ms(env->clock) + WAIT_MS;
}

void scrape_was_give(struct scrape *s, struct scrape_entry *x)
{
    vec_for (i, &s->was) {
        struct scrape_was *w = &s->was.ptr[i];
        if (w->id != x->id)
            continue;
        x->last = w->body;
        *w = s->was.ptr[--s->was.len];
        return;
    }
}

void scrape_was_drop(struct scrape *s)
{
    vec_for (i, &s->was)
        scrape_body_drop(s, &s->was.ptr[i].body);
    vec_free(&s->was);
}

void scrape_was_tick(struct scrape *s)
{
    if (s->was.len && clock_mono_ms(s->d->ctx->env->clock) >= s->was_until_ms)
        scrape_was_drop(s);
}

void scrape_was_save(struct scrape *s)
{
    const struct env *env = s->d->ctx->env;
    size_t n = 0, most = file_max(s);
    char path[4096];
    struct buf text;
    struct err e;

    if (s->d->ctx->simulated)
        return;
    buf_init(&text, most);
    scrape_keep_head(&text);
    vec_for (i, &s->entries) {
        const struct scrape_entry *x = s->entries.ptr[i];
        size_t len = x->last.bytes.len;
        if (x->run || !len || text.len + len + PER_KEPT > most)
            continue;
        scrape_keep_one(&(struct scrape_kept){ x->id, x->last.at_ms, buf_str(&x->last.bytes) },
                        &text);
        n++;
    }
    scrape_keep_end(&text);
    path_of(s, path, sizeof(path));
    if (n && buf_ok(&text) && env->fs->write_file(env->fs, path, buf_str(&text), &e))
        log_warn("what scraping fetched last cannot be kept: growth until the next start is not "
                 "counted",
                 KV_ERR(&e));
    buf_deinit(&text);
}
