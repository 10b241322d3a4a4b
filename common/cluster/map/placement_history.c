/* SPDX-License-Identifier: Apache-2.0
 *
 * places: more places for readers, without another place for any profile.
 *
 * Readers ask all numbers that were ever in a list of steps, whenever they were valid. So a number
 * that is missing from a list is added as a step of a time that no profile has (any before 1990 is
 * refused, distributor/base/window.c), with a step back to the first number behind it:
 *
 *   1, from 2026 on 4; and 8:   1, in 1970 for a leaf 8, then 1, from 2026 on 4
 */
#include "common/cluster/map/placement_history.h"

#include <limits.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/model/slot.h"

#define OLD_MS INT64_C(631152000000) /* 1990-01-01 */

/* Numbers of a list, what is announced among them. */
struct numbers {
    uint32_t n[MAP_STEPS_MAX + 2], len;
};

void placement_history_write(const struct map *m, struct buf *out)
{
    struct map to = *m;

    to.nodes_len = 0;
    to.moves = 0;
    to.replicas_of = NULL;
    map_write(&to, out);
}

/* True if the list has only the number that counts without steps. */
static bool plain(const struct map_steps *s, uint32_t none)
{
    return !s->next.version && (!s->len || (s->len == 1 && s->at[0].n == none));
}

bool placement_history_plain(const struct map *m)
{
    bool yes = plain(&m->tenant_steps, 0);

    for (size_t i = 0; i < m->tenants_len; i++)
        yes = yes && plain(&m->tenants[i].steps, 0);
    for (size_t i = 0; i < m->services_len; i++)
        yes = yes && plain(&m->services[i].steps, 1);
    return yes;
}

/* ---- lists of steps -------------------------------------------------------------------------- */

static struct numbers numbers_of(const struct map_steps *s, uint32_t none)
{
    struct numbers all = { .len = 0 };

    for (uint32_t i = 0; i < s->len; i++)
        all.n[all.len++] = s->at[i].n;
    if (!all.len)
        all.n[all.len++] = none;
    if (s->next.from_ms)
        all.n[all.len++] = s->next.n;
    return all;
}

/* Services: a list with a larger number covers this one. Tenants: each number is another set of
 * shards, so only the same number covers it. */
static bool has(const struct numbers *all, uint32_t n, bool largest)
{
    for (uint32_t i = 0; i < all->len; i++)
        if (all->n[i] == n || (largest && all->n[i] > n))
            return true;
    return false;
}

static int full(struct err *e)
{
    return err_set(e, ERR_LIMIT, "more than %d numbers of shards, all of which are to be read",
                   MAP_STEPS_MAX);
}

/* The last of the old steps is the way back, but the first one of all, which stays: it is of all
 * times before the second. */
static int add_old(struct map_steps *to, uint32_t none, uint32_t n, struct err *e)
{
    struct map_step old = { .from_ms = LEAF_MS, .n = n }, back;
    uint32_t at = 0, more = 1, max = MAP_STEPS_MAX - (to->next.version ? 1 : 0);

    if (!to->len)
        to->at[to->len++] = (struct map_step){ .n = none };
    while (at + 1 < to->len && to->at[at + 1].from_ms < OLD_MS)
        at++;
    back = to->at[at];
    if (at > 0) {
        old.from_ms = back.from_ms;
    } else {
        back.version = 0;
        at = 1;
        more = 2;
    }
    back.from_ms = old.from_ms + LEAF_MS;
    if (to->len + more > max || back.from_ms >= OLD_MS)
        return full(e);
    if (more == 2)
        to->at[0].from_ms = 0;
    memmove(to->at + at + more, to->at + at, (to->len - at) * sizeof(*to->at));
    to->at[at] = old;
    to->at[at + 1] = back;
    to->len += more;
    return 0;
}

static int unite(struct map_steps *to, const struct map_steps *some, uint32_t none, bool largest,
                 struct err *e)
{
    struct numbers want = numbers_of(some, none);

    for (uint32_t i = 0; i < want.len; i++) {
        struct numbers have = numbers_of(to, none);

        if (!has(&have, want.n[i], largest) && add_old(to, none, want.n[i], e))
            return e->code;
    }
    return 0;
}

/* ---- whole maps ------------------------------------------------------------------------------ */

static const struct map_steps *service_steps(const struct map *m, const struct map_service *s)
{
    static const struct map_steps none;
    const struct map_service *found = map_service(m, s->tenant, s->name);

    return found ? &found->steps : &none;
}

/* Tenants of `m`, and those that `more` names and m does not, with what is m's for them. */
static struct map_tenant *tenants_of(const struct map *m, const struct map *more, size_t *ret_len)
{
    struct map_tenant *all = XNEW_ARRAY(struct map_tenant, m->tenants_len + more->tenants_len + 1);
    size_t len = 0;

    for (size_t i = 0; i < m->tenants_len; i++)
        all[len++] = m->tenants[i];
    for (size_t i = 0; i < more->tenants_len; i++) {
        if (map_tenant(m, more->tenants[i].name))
            continue;
        all[len] = (struct map_tenant){ more->tenants[i].name, m->tenant_steps };
        all[len++].steps.next = (struct map_pending){ .version = 0 };
    }
    *ret_len = len;
    return all;
}

static struct map_service *services_of(const struct map *m, const struct map *more, size_t *ret_len)
{
    struct map_service *all =
        XNEW_ARRAY(struct map_service, m->services_len + more->services_len + 1);
    size_t len = 0;

    for (size_t i = 0; i < m->services_len; i++)
        all[len++] = m->services[i];
    for (size_t i = 0; i < more->services_len; i++) {
        const struct map_service *s = &more->services[i];

        if (!map_service(m, s->tenant, s->name))
            all[len++] = (struct map_service){ .tenant = s->tenant, .name = s->name };
    }
    *ret_len = len;
    return all;
}

/* A copy of m that reads the places of `more`, too. */
static int grown(const struct map *m, const struct map *more, const struct map **ret, struct err *e)
{
    struct map to = *m;
    struct map_tenant *tenants = tenants_of(m, more, &to.tenants_len);
    struct map_service *services = services_of(m, more, &to.services_len);
    int code = unite(&to.tenant_steps, &more->tenant_steps, 0, false, e);

    to.tenants = tenants;
    to.services = services;
    for (size_t i = 0; !code && i < to.tenants_len; i++)
        if (unite(&tenants[i].steps, map_tenant_steps(m, tenants[i].name), 0, false, e) ||
            unite(&tenants[i].steps, map_tenant_steps(more, tenants[i].name), 0, false, e))
            code = err_wrap(e, "tenant %.*s", STR_ARG(str_sub(tenants[i].name, 0, 64)));
    for (size_t i = 0; !code && i < to.services_len; i++)
        if (unite(&services[i].steps, service_steps(more, &services[i]), 1, true, e))
            code = err_wrap(e, "service %.*s", STR_ARG(str_sub(services[i].name, 0, 64)));
    if (!code)
        code = map_new(&to, ret, e);
    xfree(tenants);
    xfree(services);
    return code;
}

int placement_history_join(const struct map *a, const struct map *b, const struct map **ret,
                           struct err *e)
{
    const struct map *newer = a->version >= b->version ? a : b, *older = newer == a ? b : a;
    struct err why;

    if (a->shards != b->shards)
        return err_set(e, ERR_CONFLICT, "places among %u shards, and among %u", a->shards,
                       b->shards);
    if (placement_history_cover(newer, older, &why) == 0) {
        *ret = map_ref(newer);
        return 0;
    }
    return grown(newer, older, ret, e);
}

static bool uncovered(const struct map_steps *m, const struct map_steps *of, uint32_t none,
                      bool largest, uint32_t *ret)
{
    struct numbers have = numbers_of(m, none), want = numbers_of(of, none);

    for (uint32_t i = 0; i < want.len; i++) {
        *ret = want.n[i];
        if (!has(&have, want.n[i], largest))
            return true;
    }
    return false;
}

static int lacks_tenant(struct str name, uint32_t n, struct err *e)
{
    if (!n)
        return err_set(e, ERR_CONFIG,
                       "tenant %.*s was in all shards; queries would ask only some of them",
                       STR_ARG(str_sub(name, 0, 64)));
    return err_set(e, ERR_CONFIG,
                   "tenant %.*s was in %" PRIu32 " shards; queries would not ask all of them",
                   STR_ARG(str_sub(name, 0, 64)), n);
}

int placement_history_cover(const struct map *m, const struct map *of, struct err *e)
{
    uint32_t n;

    if (m->shards != of->shards)
        return err_set(e, ERR_CONFIG, "services are placed among %u shards, not %u", of->shards,
                       m->shards);
    if (uncovered(&m->tenant_steps, &of->tenant_steps, 0, false, &n))
        return lacks_tenant(STR("*"), n, e);
    for (int k = 0; k < 2; k++) {
        const struct map *named = k ? of : m;

        for (size_t i = 0; i < named->tenants_len; i++) {
            struct str name = named->tenants[i].name;

            if (uncovered(map_tenant_steps(m, name), map_tenant_steps(of, name), 0, false, &n))
                return lacks_tenant(name, n, e);
        }
    }
    for (size_t i = 0; i < of->services_len; i++) {
        const struct map_service *s = &of->services[i];

        if (uncovered(service_steps(m, s), &s->steps, 1, true, &n))
            return err_set(e, ERR_CONFIG,
                           "service %.*s of tenant %.*s was spread over %" PRIu32
                           " shards; queries would not ask all of them",
                           STR_ARG(str_sub(s->name, 0, 64)), STR_ARG(str_sub(s->tenant, 0, 64)), n);
    }
    return 0;
}

/* ---- a new cluster --------------------------------------------------------------------------- */

/* The processes that knew the announcement are gone. The change is wanted again, and its place is
 * read until it is committed, in case it was already valid when an unsure backup was made
 * (common/cold/backup_places.h). Where the list has no room for that, it is only wanted. */
static void unannounce(struct map_steps *s, uint64_t version, uint32_t none, bool largest)
{
    struct map_steps was = *s, more;
    struct err e;

    if (!s->next.version)
        return;
    s->next.version = version;
    s->next.from_ms = 0;
    more = *s;
    if (unite(&more, &was, none, largest, &e) == 0)
        *s = more;
}

int placement_history_begin(const struct map *places, uint32_t replicas, const struct map **ret,
                            struct err *e)
{
    struct map to = { .version = places->version + 1,
                      .shards = places->shards,
                      .replicas = replicas,
                      .tenant_steps = places->tenant_steps };
    const struct map none = { .version = 0 };
    struct map_tenant *tenants = tenants_of(places, &none, &to.tenants_len);
    struct map_service *services = services_of(places, &none, &to.services_len);
    int code;

    unannounce(&to.tenant_steps, to.version, 0, false);
    to.tenants = tenants;
    to.services = services;
    for (size_t i = 0; i < to.tenants_len; i++)
        unannounce(&tenants[i].steps, to.version, 0, false);
    for (size_t i = 0; i < to.services_len; i++)
        unannounce(&services[i].steps, to.version, 1, true);
    code = map_new(&to, ret, e);
    xfree(tenants);
    xfree(services);
    return code;
}

/* ---- the file next to databases -------------------------------------------------------------- */

static int path_in(const char *dir, char ret[PATH_MAX], struct err *e)
{
    if (snprintf(ret, PATH_MAX, "%s/" PLACEMENT_HISTORY_FILE, dir) >= PATH_MAX)
        return err_set(e, ERR_CONFIG, "data.dir is longer than a path may be");
    return 0;
}

int placement_history_load(const struct fs *fs, const char *dir, const struct map **ret,
                           struct err *e)
{
    char path[PATH_MAX];
    struct buf text;
    int code = path_in(dir, path, e);

    *ret = NULL;
    if (code)
        return code;
    buf_init(&text, MAP_BYTES_MAX);
    code = fs->read_file(fs, path, &text, e);
    if (!code)
        code = map_parse(path, buf_str(&text), false, ret, e);
    buf_deinit(&text);
    return code == ERR_NOT_FOUND ? 0 : code;
}

static int save(const struct fs *fs, const char *dir, const struct map *m, struct err *e)
{
    char path[PATH_MAX];
    struct buf text;
    int code = path_in(dir, path, e);

    buf_init(&text, MAP_BYTES_MAX);
    placement_history_write(m, &text);
    (void)buf_add_c(&text, '\n');
    if (!code && !buf_ok(&text))
        code = err_set(e, ERR_LIMIT, "the places take more than %zu MiB", MAP_BYTES_MAX / MIB);
    if (!code)
        code = fs->write_file(fs, path, buf_str(&text), e);
    buf_deinit(&text);
    return code;
}

int placement_history_keep(const struct fs *fs, const char *dir, const struct map *places,
                           struct err *e)
{
    const struct map *had, *all;
    struct err why;
    int code = placement_history_load(fs, dir, &had, e);

    if (code || (had && placement_history_cover(had, places, &why) == 0)) {
        map_unref(had);
        return code;
    }
    all = map_ref(places);
    if (had) {
        map_unref(all);
        code = placement_history_join(had, places, &all, e);
    }
    if (!code) {
        code = save(fs, dir, all, e);
        map_unref(all);
    }
    map_unref(had);
    return code;
}
