/* SPDX-License-Identifier: Apache-2.0
 *
 * backup_places: small objects with a name that says all but their text, so that a restore reads
 * each text once, however many shards say the same.
 */
#include "common/cold/backup_places.h"

#include <stdio.h>

#include "common/base/hash.h"

#define PREFIX "places/"
#define UNSURE "-unsure"
#define NAME   (sizeof(PREFIX) - 1 + 8 + 1 + 16 + 1 + 16) /* bytes without -unsure */
#define SEED   0

static void name_of(const struct backup_places *p, char ret[OBJECT_NAME_MAX + 1])
{
    (void)snprintf(ret, OBJECT_NAME_MAX + 1, PREFIX "%08" PRIx32 "-%016" PRIx64 "-%016" PRIx64 "%s",
                   p->shard, p->number, p->hash, p->sure ? "" : UNSURE);
}

int backup_places_put(struct object_store *o, uint32_t shard, uint64_t number, bool sure,
                      struct str text, struct err *e)
{
    struct backup_places p = { shard, number, hash64(text.ptr, text.len, SEED), sure };
    char name[OBJECT_NAME_MAX + 1];

    if (text.len > BACKUP_PLACES_MAX)
        return err_set(e, ERR_LIMIT, "the places of services take %zu bytes, at most %zu", text.len,
                       (size_t)BACKUP_PLACES_MAX);
    name_of(&p, name);
    return object_put(o, str_c(name), text, e);
}

/* Names of others are passed over. */
static bool on_name(void *cookie, struct str name, uint64_t size)
{
    struct backup_places_all *all = cookie;
    struct backup_places p;
    char copy[OBJECT_NAME_MAX + 1], again[OBJECT_NAME_MAX + 1];

    (void)size;
    memcpy(copy, name.ptr, name.len);
    copy[name.len] = '\0';
    p.sure = name.len == NAME;
    if (sscanf(copy, PREFIX "%8" SCNx32 "-%16" SCNx64 "-%16" SCNx64, &p.shard, &p.number,
               &p.hash) != 3)
        return true;
    name_of(&p, again);
    if (strcmp(copy, again) == 0)
        vec_push(&all->at, p);
    return true;
}

int backup_places_list(struct object_store *o, struct backup_places_all *ret, struct err *e)
{
    *ret = (struct backup_places_all){ 0 };
    return object_list(o, STR(PREFIX), STR_NULL, on_name, ret, e);
}

void backup_places_deinit(struct backup_places_all *all)
{
    vec_free(&all->at);
}

int backup_places_get(struct object_store *o, const struct backup_places *p, struct buf *out,
                      struct err *e)
{
    char name[OBJECT_NAME_MAX + 1];
    size_t had = out->len;
    uint64_t size;
    int code;

    name_of(p, name);
    code = object_size(o, str_c(name), &size, e);
    if (!code && size > BACKUP_PLACES_MAX)
        code = err_set(e, ERR_CORRUPT, "%s has %" PRIu64 " bytes", name, size);
    if (!code)
        code = object_read(o, str_c(name), 0, (size_t)size, out, e);
    if (!code && hash64(out->ptr + had, out->len - had, SEED) != p->hash)
        code = err_set(e, ERR_CORRUPT, "%s: its bytes are not those it is named by", name);
    return code;
}

static bool is_kept(uint64_t number, const uint64_t *kept, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (kept[i] == number)
            return true;
    return false;
}

int backup_places_sweep(struct object_store *o, uint32_t shard, const uint64_t *kept, size_t n,
                        uint64_t *ret_deleted, struct err *e)
{
    struct backup_places_all all = { 0 };
    char name[OBJECT_NAME_MAX + 1];
    int code;

    CHECK(n > 0);
    (void)snprintf(name, sizeof(name), PREFIX "%08" PRIx32 "-", shard);
    code = object_list(o, str_c(name), STR_NULL, on_name, &all, e);
    vec_for (i, &all.at) {
        const struct backup_places *p = &all.at.ptr[i];

        if (code || p->number >= kept[n - 1] || is_kept(p->number, kept, n))
            continue;
        name_of(p, name);
        code = object_delete(o, str_c(name), e);
        *ret_deleted += !code;
    }
    backup_places_deinit(&all);
    return code;
}
