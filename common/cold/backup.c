/* SPDX-License-Identifier: Apache-2.0
 *
 * backup: a shard as of one snapshot. The rows that are here become parts like those of the cold
 * tier, cut where buckets end, so that a bucket that has not changed gives the same bytes, the same
 * name, and no upload. The head comes last: an object store that has it has everything it names.
 */
#include "common/cold/backup.h"

#include <stdio.h>

#include "common/base/hex.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/cold/backup_places.h"
#include "common/cold/offload.h"
#include "common/store/kv/kv.h"

#define CUT_BYTES   (1 * MIB) /* a part does not end at a bucket before */
#define BATCH_BYTES (8 * MIB)

static const char *const families[KV_CFS] = { "raw", "fine", "coarse", "ru", "tl",
                                              "fn",  "meta", "wid",    "exm" };

void backup_head_deinit(struct backup_head *h)
{
    vec_free(&h->parts);
}

void backup_head_name(uint32_t shard, uint64_t number, char *ret)
{
    (void)snprintf(ret, OBJECT_NAME_MAX + 1, "shard-%08" PRIx32 "/head-%016" PRIx64, shard, number);
}

/* ---- writing -------------------------------------------------------------------------------- */

struct writing {
    const struct backup_opts *o;
    struct manifest *m;
    struct part_writer *w;
    struct buf text;
    struct map_str *before; /* names of `before`, owned; the value is its part */
    struct backup_done *done;
};

static void name_part(struct writing *w, const char *where, enum kv_cf cf, struct hash128 hash,
                      uint64_t size, uint64_t rows)
{
    (void)buf_addf(&w->text, "%s %s %016" PRIx64 "%016" PRIx64 " %" PRIu64 " %" PRIu64 "\n", where,
                   families[cf], hash.hi, hash.lo, size, rows);
    w->done->parts++;
    w->done->bytes += size;
}

static void names_of(const struct backup_head *h, struct map_str *ret)
{
    char name[OBJECT_NAME_MAX + 1];

    for (size_t i = 0; h && i < h->parts.len; i++) {
        const struct backup_part *p = &h->parts.ptr[i];

        manifest_part_name(h->shard, p->cf, p->hash, name);
        if (!p->away && !map_str_get(ret, str_c(name)))
            (void)map_str_put(ret, str_c(xstrdup(name)), (void *)(uintptr_t)p);
    }
}

static void free_names(struct map_str *m)
{
    struct str key;
    size_t pos = 0;
    void *value;

    while (map_str_next(m, &pos, &key, &value))
        xfree((void *)(uintptr_t)key.ptr);
    map_str_free(m);
}

/* Does the head before name the same rows, with a stamp of now or of earlier? *info is that part
 * then. */
static bool named_before(struct writing *w, enum kv_cf cf, struct part_info *info)
{
    const struct cold_generation *g = w->o->generation;
    char name[OBJECT_NAME_MAX + 1];
    struct str object;

    for (size_t i = 0; i < g->earlier_len + 2; i++) {
        uint64_t stamp = i == 0 ? g->now : i <= g->earlier_len ? g->earlier[i - 1] : 0;

        part_stamp(w->w, stamp, info, &object);
        manifest_part_name(w->m->shard, cf, info->hash, name);
        if (map_str_get(w->before, str_c(name)))
            return true;
    }
    return false;
}

/* Does the part exist in this generation already, from a backup that was cut off? Only the process
 * of this generation deletes such parts. */
static int is_there(struct writing *w, enum kv_cf cf, const struct part_info *info, bool *ret,
                    struct err *e)
{
    char name[OBJECT_NAME_MAX + 1];
    struct err why = { 0 };
    uint64_t size = 0;
    int rc;

    manifest_part_name(w->m->shard, cf, info->hash, name);
    rc = object_size(w->o->o, str_c(name), &size, &why);
    *ret = !rc && size == info->size;
    if (rc && rc != ERR_NOT_FOUND) {
        *e = why;
        return rc;
    }
    return 0;
}

static int end_part(struct writing *w, enum kv_cf cf, struct err *e)
{
    struct part_info info;
    struct str object;
    bool there = true;
    int rc = 0;

    if (!part_bytes(w->w))
        return 0;
    part_finish(w->w, &info, &object);
    if (!named_before(w, cf, &info)) {
        part_stamp(w->w, w->o->generation->now, &info, &object);
        rc = is_there(w, cf, &info, &there, e);
    }
    if (!rc && !there) {
        rc = cold_upload(w->o->o, w->m->shard, cf, &info, object, e);
        w->done->uploaded++;
        w->done->up_bytes += info.size;
    }
    name_part(w, "here", cf, info.hash, info.size, info.rows);
    return rc;
}

static bool stopped(const struct backup_opts *o)
{
    return o->stop && atomic_load(o->stop);
}

static int write_family(struct writing *w, enum kv_cf cf, const struct kv_snap *snap, struct err *e)
{
    struct kv_iter *it = kv_iter_new(kv_cold_inner(w->o->kv), snap, cf, STR_NULL, STR_NULL);
    char unit[5] = { 0 };
    int rc = 0;

    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        size_t n = MIN(key.len, sizeof(unit));
        bool other = memcmp(unit, key.ptr, n) != 0;

        if (stopped(w->o))
            rc = err_set(e, ERR_CANCELED, "canceled");
        if (!rc && (part_bytes(w->w) >= PART_BYTES || (other && part_bytes(w->w) >= CUT_BYTES)))
            rc = end_part(w, cf, e);
        memcpy(unit, key.ptr, n);
        if (!rc)
            rc = part_add(w->w, key, kv_iter_value(it), e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc ? rc : end_part(w, cf, e);
}

static void name_away(struct writing *w)
{
    for (int cf = 0; cf < KV_CFS; cf++) {
        vec_for (i, &w->m->of[cf].parts) {
            const struct cold_part *p = w->m->of[cf].parts.ptr[i];
            name_part(w, "away", p->cf, p->hash, p->size, p->rows);
        }
    }
}

/* Before the head, so that no head is without them. */
static int write_places(const struct backup_opts *o, uint32_t shard, struct err *e)
{
    bool sure = false;
    struct buf text;
    int rc;

    if (!o->places)
        return 0;
    buf_init(&text, BACKUP_PLACES_MAX);
    rc = o->places(o->cookie, &text, &sure, e);
    if (!rc && !buf_ok(&text))
        rc = err_set(e, ERR_LIMIT, "the places of services take more than %zu bytes", text.max);
    if (!rc)
        rc = backup_places_put(o->o, shard, o->number, sure, buf_str(&text), e);
    buf_deinit(&text);
    return rc;
}

int backup_write(const struct backup_opts *o, struct backup_done *ret, struct err *e)
{
    struct kv_snap *snap = kv_snap_new(o->kv);
    struct writing w = { .o = o, .m = kv_cold_manifest(o->kv, snap), .done = ret };
    char name[OBJECT_NAME_MAX + 1];
    int rc = 0;

    *ret = (struct backup_done){ 0 };
    CHECK(o->generation->now);
    w.w = part_writer_new();
    w.before = map_str_new();
    names_of(o->before, w.before);
    buf_init(&w.text, BACKUP_HEAD_MAX);
    (void)buf_addf(&w.text,
                   "embertree head 1\nshard %" PRIu32 " of %" PRIu32 "\ntime %" PRId64 "\n",
                   w.m->shard, o->shards, o->wall_ms);
    for (int cf = 0; !rc && cf < KV_CFS; cf++)
        rc = write_family(&w, (enum kv_cf)cf, kv_cold_inner_snap(snap), e);
    name_away(&w);
    if (!rc && !buf_ok(&w.text))
        rc = err_set(e, ERR_LIMIT, "a head would pass %zu bytes", BACKUP_HEAD_MAX);
    if (!rc)
        rc = write_places(o, w.m->shard, e);
    if (!rc) {
        (void)buf_addf(&w.text, "end %016" PRIx64 "\n", hash64(w.text.ptr, w.text.len, 0));
        backup_head_name(w.m->shard, o->number, name);
        rc = object_put(o->o, str_c(name), buf_str(&w.text), e);
    }
    buf_deinit(&w.text);
    free_names(w.before);
    part_writer_free(w.w);
    manifest_unref(w.m);
    kv_snap_free(o->kv, snap);
    return rc;
}

/* ---- reading heads -------------------------------------------------------------------------- */

static bool read_hex(struct str s, uint64_t *ret)
{
    return s.len == 16 && hex_u64(s, ret);
}

/* The words of a line, at most `max`; how many there are. */
static size_t words(struct str line, struct str *ret, size_t max)
{
    bool more = true;
    size_t n = 0;
    struct str word;

    while (str_next(&line, ' ', &more, &word)) {
        if (n < max)
            ret[n] = word;
        n++;
    }
    return n;
}

static bool read_part(const struct str w[5], struct backup_part *ret)
{
    ret->away = str_eqc(w[0], "away");
    if (!ret->away && !str_eqc(w[0], "here"))
        return false;
    for (ret->cf = 0; ret->cf < KV_CFS && !str_eqc(w[1], families[ret->cf]);)
        ret->cf++;
    return ret->cf < KV_CFS && w[2].len == 32 && read_hex(str_sub(w[2], 0, 16), &ret->hash.hi) &&
           read_hex(str_sub(w[2], 16, 32), &ret->hash.lo) && str_u64(w[3], &ret->size) &&
           str_u64(w[4], &ret->rows);
}

static bool read_line(struct str line, size_t number, struct backup_head *h)
{
    struct backup_part part;
    struct str w[5];
    size_t n = words(line, w, ARRAY_LEN(w));
    uint64_t a, b;

    if (number == 0)
        return str_eqc(line, "embertree head 1");
    if (number == 1) {
        if (n != 4 || !str_eqc(w[0], "shard") || !str_u64(w[1], &a) || !str_eqc(w[2], "of") ||
            !str_u64(w[3], &b) || a >= b || b > UINT32_MAX)
            return false;
        h->shard = (uint32_t)a;
        h->shards = (uint32_t)b;
        return true;
    }
    if (number == 2)
        return n == 2 && str_eqc(w[0], "time") && str_i64(w[1], &h->wall_ms);
    if (n != 5 || !read_part(w, &part))
        return false;
    vec_push(&h->parts, part);
    return true;
}

int backup_head_read(struct str text, struct backup_head *ret, struct err *e)
{
    struct str rest = text, line;
    uint64_t hash;
    bool more = true;

    *ret = (struct backup_head){ 0 };
    for (size_t number = 0; str_next(&rest, '\n', &more, &line); number++) {
        if (number > 2 && str_starts(line, STR("end "))) {
            size_t above = (size_t)(line.ptr - text.ptr);
            if (read_hex(str_sub(line, 4, line.len), &hash) && rest.len == 0 && more &&
                hash == hash64(text.ptr, above, 0))
                return 0;
            break;
        }
        if (!read_line(line, number, ret)) {
            backup_head_deinit(ret);
            return err_set(e, ERR_CORRUPT, "line %zu of the head cannot be read", number + 1);
        }
    }
    backup_head_deinit(ret);
    return err_set(e, ERR_CORRUPT, "the head is cut or damaged");
}

/* ---- finding them --------------------------------------------------------------------------- */

struct heads {
    VEC(uint64_t) numbers;
    size_t skip;
};

static bool on_head(void *cookie, struct str name, uint64_t size)
{
    struct heads *h = cookie;
    uint64_t number;

    (void)size;
    if (read_hex(str_sub(name, h->skip, name.len), &number))
        vec_push(&h->numbers, number);
    return true;
}

static int list_heads(struct object_store *o, uint32_t shard, struct heads *ret, struct err *e)
{
    char prefix[64];
    int n = snprintf(prefix, sizeof(prefix), "shard-%08" PRIx32 "/head-", shard);

    *ret = (struct heads){ .skip = (size_t)n };
    return object_list(o, str_c(prefix), STR_NULL, on_head, ret, e);
}

int backup_head_get(struct object_store *o, uint32_t shard, uint64_t number,
                    struct backup_head *ret, struct err *e)
{
    char name[OBJECT_NAME_MAX + 1];
    struct buf text;
    uint64_t size;
    int rc;

    backup_head_name(shard, number, name);
    buf_init(&text, BACKUP_HEAD_MAX + KIB);
    rc = object_size(o, str_c(name), &size, e);
    if (!rc && size > text.max)
        rc = err_set(e, ERR_CORRUPT, "%s has %" PRIu64 " bytes", name, size);
    if (!rc)
        rc = object_read(o, str_c(name), 0, (size_t)size, &text, e);
    if (!rc)
        rc = backup_head_read(buf_str(&text), ret, e) ? err_wrap(e, "%s", name) : 0;
    if (!rc && ret->shard != shard) {
        backup_head_deinit(ret);
        rc = err_set(e, ERR_CORRUPT, "%s is of shard %" PRIu32, name, ret->shard);
    }
    buf_deinit(&text);
    return rc;
}

int backup_newest(struct object_store *o, uint32_t shard, uint64_t *ret_number,
                  struct backup_head *ret, struct err *e)
{
    struct heads h;
    int rc = list_heads(o, shard, &h, e);

    if (!rc && !h.numbers.len)
        rc = err_set(e, ERR_NOT_FOUND, "%s has no head of shard %" PRIu32, object_where(o), shard);
    /* Ascending, as names are. A damaged one is passed over: the one before is whole. */
    for (size_t i = h.numbers.len; !rc && i-- > 0;) {
        struct err why = { 0 };
        rc = backup_head_get(o, shard, h.numbers.ptr[i], ret, &why);
        if (!rc) {
            *ret_number = h.numbers.ptr[i];
            break;
        }
        if (rc == ERR_CORRUPT && i > 0)
            rc = 0;
        else
            *e = why;
    }
    vec_free(&h.numbers);
    return rc;
}

static bool on_shard(void *cookie, struct str name, uint64_t size)
{
    struct backup_shards *all = cookie;
    uint64_t number, head;
    char padded[16];

    (void)size;
    if (name.len < 20 || !str_starts(name, STR("shard-")) ||
        !str_starts(str_sub(name, 14, name.len), STR("/head-")))
        return true;
    memset(padded, '0', 8);
    memcpy(padded + 8, name.ptr + 6, 8);
    if (!read_hex(str_n(padded, 16), &number) || !read_hex(str_sub(name, 20, name.len), &head))
        return true;
    if (!all->at.len || all->at.ptr[all->at.len - 1] != (uint32_t)number) {
        vec_push(&all->at, (uint32_t)number);
        vec_push(&all->newest, head);
    }
    all->newest.ptr[all->newest.len - 1] = head;
    return true;
}

int backup_shards(struct object_store *o, struct backup_shards *ret, struct err *e)
{
    *ret = (struct backup_shards){ 0 };
    return object_list(o, STR("shard-"), STR_NULL, on_shard, ret, e);
}

void backup_shards_deinit(struct backup_shards *s)
{
    vec_free(&s->at);
    vec_free(&s->newest);
}

/* ---- back ----------------------------------------------------------------------------------- */

static int from_memory(void *cookie, uint64_t at, size_t len, struct buf *out, struct err *e)
{
    const struct buf *whole = cookie;

    buf_reset(out);
    if (at > whole->len || len > whole->len - at || !buf_add(out, whole->ptr + at, len))
        return err_set(e, ERR_CORRUPT, "bytes beyond the end");
    return 0;
}

static int put_block(struct str block, enum kv_cf cf, struct kv_batch *b, struct err *e)
{
    struct part_row row;
    int got;

    part_row_begin(&row, block);
    while ((got = part_row_next(&row)) > 0)
        kv_batch_put(b, cf, part_row_key(&row), row.value);
    return got ? err_set(e, ERR_CORRUPT, "a block cannot be read") : 0;
}

static int put_part(const struct buf *object, const struct backup_part *p, struct kv *to,
                    struct err *e)
{
    struct kv_batch *b = kv_batch_new();
    struct part_index *x = NULL;
    struct buf block;
    int rc = part_index_read(object->len, from_memory, (void *)(uintptr_t)object, &x, e);

    buf_init(&block, PART_BLOCK_MAX + 2 * PART_BLOCK);
    if (!rc && part_index_rows(x) != p->rows)
        rc = err_set(e, ERR_CORRUPT, "%" PRIu64 " rows instead of %" PRIu64, part_index_rows(x),
                     p->rows);
    for (size_t i = 0; !rc && i < part_blocks(x); i++) {
        rc = part_block_read(x, i, from_memory, (void *)(uintptr_t)object, &block, e);
        if (!rc)
            rc = put_block(buf_str(&block), p->cf, b, e);
        if (!rc && (kv_batch_bytes(b) >= BATCH_BYTES || i + 1 == part_blocks(x))) {
            rc = kv_write(to, b, false, e);
            kv_batch_clear(b);
        }
    }
    buf_deinit(&block);
    part_index_free(x);
    kv_batch_free(b);
    return rc;
}

static int restore_part(struct object_store *o, uint32_t shard, const struct backup_part *p,
                        struct kv *to, struct err *e)
{
    char name[OBJECT_NAME_MAX + 1];
    struct buf object;
    int rc;

    if (p->size > OBJECT_BYTES_MAX)
        return err_set(e, ERR_CORRUPT, "the head names a part of %" PRIu64 " bytes", p->size);
    manifest_part_name(shard, p->cf, p->hash, name);
    buf_init(&object, (size_t)p->size);
    rc = object_read(o, str_c(name), 0, (size_t)p->size, &object, e);
    if (!rc && !hash128_eq(hash128(object.ptr, object.len, 0), p->hash))
        rc = err_set(e, ERR_CORRUPT, "its bytes are not those it is named by");
    if (!rc)
        rc = put_part(&object, p, to, e);
    buf_deinit(&object);
    return rc ? err_wrap(e, "%s", name) : 0;
}

int backup_restore(struct object_store *o, const struct backup_head *h, struct kv *to,
                   void (*progress)(void *cookie, uint64_t bytes), void *cookie, struct err *e)
{
    struct kv_batch *none = kv_batch_new();
    int rc = 0;

    vec_for (i, &h->parts) {
        const struct backup_part *p = &h->parts.ptr[i];

        if (!rc && !p->away) {
            rc = restore_part(o, h->shard, p, to, e);
            if (!rc && progress)
                progress(cookie, p->size);
        }
    }
    if (!rc)
        rc = kv_flush(to, e);
    if (!rc)
        rc = kv_write(to, none, true, e);
    kv_batch_free(none);
    return rc;
}
