/* SPDX-License-Identifier: Apache-2.0
 *
 * holder: the holder is known by names of objects alone, so an object store needs to offer only a
 * listing. A database that claims puts an object after the last one, and lists again. If two
 * databases claim at once both see, at the next check at the latest, which name is last. Claims are
 * never deleted: by them a database knows that it was the holder once, and does not claim again
 * after another took over.
 *
 * The database, too, knows that it was the holder (the row 7d, written before it moves or deletes
 * anything), and does not claim again: a bucket without its claim is another bucket, for example
 * the empty folder below a mount point. A database that names parts claims only where it finds one
 * of them; it may have been restored, or have moved them in a version that knew no claims.
 *
 * The check guards against mistakes, not against races: a process that is suspended between the
 * check and a deletion still deletes. So two databases must not use one bucket in turn.
 */
#include "common/cold/shard_owner.h"

#include <stdio.h>
#include <string.h>

#include "common/base/hex.h"
#include "common/base/wr.h"
#include "common/store/codec/keys.h"

#define VERSION   1
#define ID_BYTES  (COLD_SHARD_OWNER_LEN / 2)
#define COUNT_LEN 8
#define NAME_LEN  (COUNT_LEN + 1 + COLD_SHARD_OWNER_LEN) /* behind the prefix */
#define KEY_CLAIM 0x7d
#define TRIES_MAX 8 /* parts that are looked for, of each family */

void cold_shard_owner_make(const uint8_t bytes[ID_BYTES], struct cold_shard_owner *ret)
{
    hex_put_c(bytes, ID_BYTES, ret->id);
}

/* ---- the row -------------------------------------------------------------------------------- */

static struct str row_key(char *key)
{
    key[0] = (char)KEY_COLD_HOLDER;
    return str_n(key, 1);
}

int cold_shard_owner_read(struct kv *kv, struct cold_shard_owner *ret, struct err *e)
{
    struct err why = { 0 };
    struct buf row;
    char key[1];
    int rc;

    *ret = (struct cold_shard_owner){ "" };
    buf_init(&row, KIB);
    rc = kv_get(kv, NULL, KV_META, row_key(key), &row, &why);
    if (!rc && (row.len != 1 + ID_BYTES || row.ptr[0] != VERSION))
        rc = err_set(e, ERR_CORRUPT, "the row that says which database this is cannot be read");
    else if (!rc)
        cold_shard_owner_make((const uint8_t *)(const void *)(row.ptr + 1), ret);
    else if (rc != ERR_NOT_FOUND)
        *e = why;
    buf_deinit(&row);
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

void cold_shard_owner_put(const struct cold_shard_owner *h, struct kv_batch *b)
{
    char key[1], row[1 + ID_BYTES] = { VERSION };

    CHECK(strlen(h->id) == COLD_SHARD_OWNER_LEN);
    CHECK(hex_read(h->id, ID_BYTES, row + 1));
    kv_batch_put(b, KV_META, row_key(key), str_n(row, sizeof(row)));
}

int cold_shard_owner_forget(struct kv *kv, struct err *e)
{
    struct kv_batch *b = kv_batch_new();
    char key[1];

    kv_batch_del(b, KV_META, row_key(key));
    key[0] = KEY_CLAIM;
    kv_batch_del(b, KV_META, str_n(key, 1));
    int rc = kv_write(kv, b, true, e);
    kv_batch_free(b);
    return rc;
}

int cold_claim_read(struct kv *kv, struct cold_claim *ret, struct err *e)
{
    char key = KEY_CLAIM;
    struct err why = { 0 };
    struct buf row;
    int rc;

    *ret = (struct cold_claim){ .held = false };
    buf_init(&row, KIB);
    rc = kv_get(kv, NULL, KV_META, str_n(&key, 1), &row, &why);
    if (!rc && (row.len < 1 || row.ptr[0] != VERSION || row.len - 1 > COLD_CLAIM_WHERE))
        rc = err_set(e, ERR_CORRUPT, "the row that says which objects are ours cannot be read");
    else if (!rc)
        ret->held = true;
    else if (rc != ERR_NOT_FOUND)
        *e = why;
    if (ret->held)
        (void)snprintf(ret->where, sizeof(ret->where), "%.*s",
                       STR_ARG(str_sub(buf_str(&row), 1, row.len)));
    buf_deinit(&row);
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

void cold_claim_put(const char *where, struct kv_batch *b)
{
    char key = KEY_CLAIM, row[1 + COLD_CLAIM_WHERE] = { VERSION };
    size_t len = MIN(strlen(where), (size_t)COLD_CLAIM_WHERE);

    memcpy(row + 1, where, len);
    kv_batch_put(b, KV_META, str_n(&key, 1), str_n(row, 1 + len));
}

/* ---- the claims ----------------------------------------------------------------------------- */

struct claims {
    size_t skip; /* bytes of the prefix */
    const char *id;
    uint32_t count; /* of the last claim; 0: no claim */
    char last[COLD_SHARD_OWNER_LEN + 1];
    bool was; /* one of the claims is this database's */
};

static bool on_claim(void *cookie, struct str name, uint64_t size)
{
    struct claims *c = cookie;
    char text[NAME_LEN + 1], again[NAME_LEN + 1];
    uint32_t count;

    (void)size;
    if (name.len != c->skip + NAME_LEN)
        return true;
    memcpy(text, name.ptr + c->skip, NAME_LEN);
    text[NAME_LEN] = '\0';
    if (sscanf(text, "%8" SCNx32, &count) != 1 || !count)
        return true;
    (void)snprintf(again, sizeof(again), "%08" PRIx32 "-", count);
    if (memcmp(text, again, COUNT_LEN + 1) != 0)
        return true;
    c->count = count; /* in order of names */
    memcpy(c->last, text + COUNT_LEN + 1, COLD_SHARD_OWNER_LEN + 1);
    c->was = c->was || strcmp(c->last, c->id) == 0;
    return true;
}

static int look(struct object_store *o, uint32_t shard, const char *id, struct claims *ret,
                struct err *e)
{
    char prefix[32];
    int n = snprintf(prefix, sizeof(prefix), "holder/%08" PRIx32 "/", shard);

    *ret = (struct claims){ .skip = (size_t)n, .id = id };
    return object_list(o, str_c(prefix), STR_NULL, on_claim, ret, e);
}

static int claim(struct object_store *o, uint32_t shard, const char *id, uint32_t count,
                 struct err *e)
{
    char name[OBJECT_NAME_MAX + 1];

    if (count == UINT32_MAX)
        return err_set(e, ERR_CORRUPT, "shard %" PRIu32 " in %.250s cannot be claimed any more",
                       shard, object_where(o));
    (void)snprintf(name, sizeof(name), "holder/%08" PRIx32 "/%08" PRIx32 "-%s", shard, count + 1,
                   id);
    return object_put(o, str_c(name), STR("embertree holder 1\n"), e);
}

static int refuse(const struct object_store *o, uint32_t shard, const struct claims *c,
                  struct err *e)
{
    if (c->was)
        return err_set(e, ERR_CONFLICT,
                       "the objects of shard %" PRIu32 " in %.250s were taken over by another "
                       "database (%s): this one writes and deletes nothing there. Run only one "
                       "of them with this cold.url",
                       shard, object_where(o), c->last);
    return err_set(e, ERR_CONFLICT,
                   "the objects of shard %" PRIu32 " in %.250s are those of another database (%s): "
                   "this database writes and deletes nothing there. If it was restored from "
                   "a backup of the other, which will not run again, set cold.take_over; if they "
                   "are unrelated, give this one a cold.url of its own",
                   shard, object_where(o), c->last);
}

/* ---- is it the bucket it held? --------------------------------------------------------------- */

/* Looks for the parts of a family from the first to the last, so a single damaged part does not
 * decide. */
static int find_part(struct object_store *o, const struct cold_family *f, bool *ret_found,
                     struct err *e)
{
    size_t step = MAX(f->parts.len / TRIES_MAX, (size_t)1);
    int rc = 0;

    for (size_t i = 0; i < f->parts.len && !rc && !*ret_found; i += step) {
        uint64_t size;

        rc = object_size(o, str_c(f->parts.ptr[i]->name), &size, e);
        *ret_found = !rc;
        rc = rc == ERR_NOT_FOUND ? 0 : rc;
    }
    return rc;
}

static int refuse_place(const struct object_store *o, uint32_t shard,
                        const struct cold_shard_owner *h, const struct cold_shard_owner_terms *t,
                        struct err *e)
{
    return err_set(e, ERR_CONFLICT,
                   "%.100s does not hold the objects of shard %" PRIu32
                   " (%s%.100s): nothing is moved or backed up. Mount the right volume or set the "
                   "right cold.url: it continues by itself. If that place is lost for good, make "
                   "this one its place by an empty object holder/%08" PRIx32 "/00000001-%s",
                   object_where(o), shard,
                   t->claim->held ? "they were put into " : "none of its parts is ",
                   t->claim->held ? t->claim->where : "there", shard, h->id);
}

/* May it claim the bucket: is it unclaimed, or may its holder be replaced? */
static int may_claim(struct object_store *o, uint32_t shard, const struct cold_shard_owner *h,
                     const struct cold_shard_owner_terms *t, struct err *e)
{
    bool found = false, any = false;
    int rc = 0;

    for (size_t i = 0; i < KV_CFS && t->parts && !rc && !found; i++) {
        any |= t->parts->of[i].parts.len > 0;
        rc = find_part(o, &t->parts->of[i], &found, e);
    }
    if (!rc && any && !found)
        rc = refuse_place(o, shard, h, t, e);
    return rc;
}

int cold_shard_owner_check(struct object_store *o, uint32_t shard, const struct cold_shard_owner *h,
                           const struct cold_shard_owner_terms *t, struct err *e)
{
    struct claims c;
    int rc = look(o, shard, h->id, &c, e);

    if (rc || strcmp(c.last, h->id) == 0)
        return rc;
    if (t->claim->held && !c.was)
        return refuse_place(o, shard, h, t, e);
    if (c.count && (!t->take_over || c.was))
        return refuse(o, shard, &c, e);
    rc = may_claim(o, shard, h, t, e);
    if (!rc)
        rc = claim(o, shard, h->id, c.count, e);
    if (!rc)
        rc = look(o, shard, h->id, &c, e);
    if (!rc && strcmp(c.last, h->id) != 0)
        rc = refuse(o, shard, &c, e);
    return rc;
}
