/* SPDX-License-Identifier: Apache-2.0
 *
 * backup_sweep: deletes what nothing names any more.
 *
 *   list the objects ─> a write of the shard (we lead) ─> the manifest, the heads that stay
 *   ─> objects listed that neither names, and did not at the last sweep ─> deleted
 *
 * The order is what makes it safe to be late, that is, to be stopped before any of these deletions
 * and to lead no more when it happens: README.md, "Deletions". Names, not times, decide: clocks of
 * machines and object stores cannot be trusted. The second look is for readers that began before:
 * their snapshot names parts that the manifest has dropped.
 */
#include <stdio.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/cold/backup.h"
#include "common/cold/backup_places.h"

struct backup_sweep {
    struct map_str *unnamed; /* names found so at the last sweep: owned copies */
};

struct listing {
    uint32_t shard;
    struct map_str *named; /* keys are owned */
    VEC(char *) all;       /* parts of the shard that are there, owned */
    VEC(uint64_t) heads;
};

static void add_name(struct map_str *m, const char *name)
{
    if (!map_str_get(m, str_c(name))) {
        char *copy = xstrdup(name);
        (void)map_str_put(m, str_c(copy), copy);
    }
}

static void free_names(struct map_str *m)
{
    struct str key;
    size_t pos = 0;
    void *value;

    while (map_str_next(m, &pos, &key, &value))
        xfree(value);
    map_str_free(m);
}

struct backup_sweep *backup_sweep_new(void)
{
    struct backup_sweep *s = XNEW(struct backup_sweep);

    s->unnamed = map_str_new();
    return s;
}

void backup_sweep_free(struct backup_sweep *s)
{
    if (!s)
        return;
    free_names(s->unnamed);
    xfree(s);
}

static bool on_name(void *cookie, struct str name, uint64_t size)
{
    struct listing *l = cookie;
    char copy[OBJECT_NAME_MAX + 1];
    uint64_t number;
    int n = 0;

    (void)size;
    memcpy(copy, name.ptr, name.len);
    copy[name.len] = '\0';
    if (strstr(copy, "/head-")) {
        if (sscanf(strstr(copy, "/head-"), "/head-%16" SCNx64 "%n", &number, &n) == 1 && n == 22)
            vec_push(&l->heads, number);
    } else {
        vec_push(&l->all, xstrdup(copy));
    }
    return true;
}

static int name_head(struct object_store *o, struct listing *l, uint64_t number, struct err *e)
{
    char name[OBJECT_NAME_MAX + 1];
    struct backup_head h;

    if (backup_head_get(o, l->shard, number, &h, e))
        return e->code;
    vec_for (i, &h.parts) {
        manifest_part_name(l->shard, h.parts.ptr[i].cf, h.parts.ptr[i].hash, name);
        add_name(l->named, name);
    }
    backup_head_deinit(&h);
    return 0;
}

static void name_manifest(struct listing *l, const struct manifest *m)
{
    for (int cf = 0; cf < KV_CFS; cf++)
        vec_for (i, &m->of[cf].parts)
            add_name(l->named, m->of[cf].parts.ptr[i]->name);
}

static int delete_head(struct object_store *o, const struct listing *l, uint64_t number,
                       struct err *e)
{
    char name[OBJECT_NAME_MAX + 1];

    backup_head_name(l->shard, number, name);
    return object_delete(o, str_c(name), e);
}

static int sweep(struct backup_sweep *s, struct object_store *o, struct listing *l,
                 uint64_t *ret_deleted, struct err *e)
{
    struct map_str *unnamed = map_str_new();
    int rc = 0;

    vec_for (i, &l->all) {
        struct str name = str_c(l->all.ptr[i]);

        if (map_str_get(l->named, name))
            continue;
        if (!rc && map_str_get(s->unnamed, name)) {
            rc = object_delete(o, name, e);
            *ret_deleted += !rc;
        } else {
            add_name(unnamed, l->all.ptr[i]);
        }
    }
    free_names(s->unnamed);
    s->unnamed = unnamed;
    return rc;
}

/* A head of an earlier generation may still arrive and be the newest: then all objects it names
 * must exist. Once a head of our generation exists it cannot be the newest. */
static int check_newest(const struct listing *l, uint64_t generation, struct err *e)
{
    uint64_t newest = l->heads.len ? l->heads.ptr[l->heads.len - 1] : 0;

    if (l->heads.len && cold_generation_of_head(newest) == generation)
        return 0;
    return err_set(e, ERR_CONFLICT,
                   "the newest backup is of generation %" PRIu64 ", this is %" PRIu64
                   ": nothing is deleted",
                   cold_generation_of_head(newest), generation);
}

static void listing_deinit(struct listing *l)
{
    vec_for (i, &l->all)
        xfree(l->all.ptr[i]);
    vec_free(&l->all);
    vec_free(&l->heads);
    free_names(l->named);
}

int backup_sweep(struct backup_sweep *s, const struct backup_sweep_opts *o, uint64_t *ret_deleted,
                 struct err *e)
{
    struct listing l = { .shard = o->shard, .named = map_str_new() };
    struct manifest *now = NULL;
    char prefix[32];
    int rc;

    CHECK(o->keep > 0);
    *ret_deleted = 0;
    (void)snprintf(prefix, sizeof(prefix), "shard-%08" PRIx32 "/", o->shard);
    rc = object_list(o->o, str_c(prefix), STR_NULL, on_name, &l, e);
    if (!rc)
        rc = check_newest(&l, o->generation, e);
    if (!rc)
        rc = o->prove(o->cookie, &now, e);
    if (!rc)
        name_manifest(&l, now);
    /* Without every head that stays being read nothing may go. */
    for (size_t i = 0; !rc && i < l.heads.len; i++) {
        if (i + o->keep >= l.heads.len)
            rc = name_head(o->o, &l, l.heads.ptr[i], e);
    }
    for (size_t i = 0; !rc && i + o->keep < l.heads.len; i++) {
        rc = delete_head(o->o, &l, l.heads.ptr[i], e);
        *ret_deleted += !rc;
    }
    if (!rc) { /* older generations are over: none writes a head after ours */
        size_t first = l.heads.len - MIN(l.heads.len, o->keep);
        rc = backup_places_sweep(o->o, o->shard, l.heads.ptr + first, l.heads.len - first,
                                 ret_deleted, e);
    }
    if (!rc)
        rc = sweep(s, o->o, &l, ret_deleted, e);
    manifest_unref(now);
    listing_deinit(&l);
    return rc;
}
