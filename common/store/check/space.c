/* SPDX-License-Identifier: Apache-2.0
 *
 * space: walks over the owners of each column family, seeking from one owner to the next, and asks
 * RocksDB how many bytes each has.
 *
 * The keys of one owner are adjacent within a bucket of time (meta: within a table). So the walk
 * reads one key per owner and bucket, not every row: a year of 1,000 services takes some 100,000
 * look-ups.
 *
 * Adding up: the sum over a column family is compared with the size of its files. The rest becomes
 * the row without an owner. If the estimates exceed the size, each is scaled down by the same
 * factor, and the rounding error is added to the largest.
 *
 * The walk skips remote rows: they take no bytes of the files, and a report must not wait for an
 * object store. Their bytes come from the list of parts.
 */
#include "common/store/check/space.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/store/catalog/names.h"
#include "common/store/codec/keys.h"
#include "common/store/exemplar/exm.h"
#include "common/store/kv/cold_read.h"
#include "common/store/state/view.h"
#include "common/store/store.h"
#include "common/sys/pool.h"

#define BATCH      128
#define PREFIX_MAX 16

#define SPACE_KIND_NAME(id, name) [id] = name,
const char *const space_kind_names[SPACE_KINDS_LEN] = { SPACE_KINDS(SPACE_KIND_NAME) };

/* Where the owner stands in a key; 0: nowhere (no key begins with one). */
struct layout {
    enum space_kind kind;
    uint8_t len; /* of the prefix all keys of an owner share */
    uint8_t tenant, scope;
    bool level; /* the first byte */
};
static const struct layout families[KV_CFS] = {
    [KV_RAW] = { SPACE_RAW, KEY_RAW_SCOPE_LEN, 4, 8, false },
    [KV_FINE] = { SPACE_MEMBERS, 13, 5, 9, true },
    [KV_COARSE] = { SPACE_MEMBERS, 13, 5, 9, true },
    [KV_RU] = { SPACE_GROUPS, 13, 5, 9, true },
    [KV_TL] = { SPACE_TIMELINES, 13, 5, 9, true },
    [KV_FN] = { SPACE_FUNCTIONS, 13, 5, 9, true },
    [KV_META] = { SPACE_META, 1, 0, 0, false }, /* by table: meta_layout */
    [KV_WID] = { SPACE_WIDS, 8, 4, 0, false },
    [KV_EXM] = { SPACE_EXEMPLARS, EXM_SCOPE_LEN, 4, 8, false },
};

static struct layout meta_layout(unsigned table)
{
    const struct layout shared = { SPACE_META, 1, 0, 0, false };
    const struct layout tenant = { SPACE_META, 5, 1, 0, false };
    const struct layout scope = { SPACE_META, 9, 1, 5, false };
    struct layout l = table < KEY_TENANT || table == KEY_SEAL || table >= 0x70 ? shared
                      : table >= KEY_SCOPE && table != KEY_PTYPE_NAME && table != KEY_PTYPE
                          ? scope
                          : tenant;

    switch (table) {
    case KEY_EPOCH:
    case KEY_DICT:
        l.kind = SPACE_DICTIONARY;
        break;
    case KEY_ORD:
    case KEY_PAIR:
    case KEY_POST:
        l = tenant;
        l.kind = SPACE_INDEX;
        break;
    case KEY_SERIES:
    case KEY_ACTIVE:
        l.kind = SPACE_INDEX;
        break;
    default:
        break;
    }
    return table >= 0x56 && table < 0x70 ? tenant : l;
}

struct owner {
    uint32_t tenant, scope; /* 0: none; numbers begin at 1 */
    uint32_t kind, level;
    uint64_t bytes, far_bytes;
};
struct pending {
    char from[PREFIX_MAX];
    struct key to;
    size_t len;
    struct owner *owner;
};
struct walk {
    struct store_view *v;
    const struct space_opts *o;
    struct arena *arena;
    struct map_str *owners; /* first 16 bytes of a struct owner -> it */
    VEC(struct owner *) list;
    struct pending batch[BATCH];
    size_t batch_len;
    enum kv_cf cf;
    uint64_t sum; /* of the family at hand */
    uint64_t far_bytes, far_parts;
};

static_assert(offsetof(struct owner, bytes) == 16, "what stands before the bytes is the key");

static struct owner *owner_of(struct walk *w, const struct owner *id, struct err *e)
{
    struct owner *o = map_str_get(w->owners, str_n(id, offsetof(struct owner, bytes)));

    if (o)
        return o;
    if (w->list.len >= w->o->owners_max) {
        (void)err_set(e, ERR_LIMIT, "over %zu services and levels", w->o->owners_max);
        return NULL;
    }
    o = ARENA_NEW(w->arena, struct owner);
    if (!o) {
        (void)err_set(e, ERR_LIMIT, "the space report needs over %zu bytes", arena_limit(w->arena));
        return NULL;
    }
    *o = *id;
    o->bytes = o->far_bytes = 0;
    map_str_put(w->owners, str_n(o, offsetof(struct owner, bytes)), o);
    vec_push(&w->list, o);
    return o;
}

static int pause_walk(const struct walk *w, struct err *e)
{
    pool_slice();
    if (w->o->cancel && atomic_load_explicit(w->o->cancel, memory_order_relaxed))
        return err_set(e, ERR_CANCELED, "the caller gave up");
    return 0;
}

static int ask(struct walk *w, struct err *e)
{
    struct kv_range ranges[BATCH];
    uint64_t bytes[BATCH] = { 0 };

    for (size_t i = 0; i < w->batch_len; i++)
        ranges[i] =
            (struct kv_range){ str_n(w->batch[i].from, w->batch[i].len), key_str(&w->batch[i].to) };
    if (kv_sizes(w->v->kv, w->cf, ranges, w->batch_len, bytes, e))
        return e->code;
    for (size_t i = 0; i < w->batch_len; i++) {
        w->batch[i].owner->bytes += bytes[i];
        w->sum += bytes[i];
    }
    w->batch_len = 0;
    return pause_walk(w, e);
}

/* One owner's stretch of keys, and where the next one begins. */
static int take(struct walk *w, struct str key, struct key *next, struct err *e)
{
    struct layout l =
        w->cf == KV_META && key.len ? meta_layout((uint8_t)key.ptr[0]) : families[w->cf];
    struct owner id = { .kind = l.kind, .level = SPACE_NO_LEVEL };
    struct pending *p = &w->batch[w->batch_len];

    if (key.len < l.len)
        l.len = (uint8_t)key.len; /* an unknown key: it has no owner */
    else if (l.tenant) {
        id.tenant = get_u32be(key.ptr + l.tenant);
        id.scope = l.scope ? get_u32be(key.ptr + l.scope) : 0;
    }
    if (l.level && key.len)
        id.level = (uint8_t)key.ptr[0] & 0x3f;
    if (w->o->tenants) {
        if (id.tenant)
            l.len = (uint8_t)(l.tenant + sizeof(id.tenant));
        id = (struct owner){ .tenant = id.tenant, .level = SPACE_NO_LEVEL };
    }
    p->owner = owner_of(w, &id, e);
    if (!p->owner)
        return e->code;
    p->len = l.len;
    memcpy(p->from, key.ptr, l.len);
    p->to = (struct key){ .len = l.len };
    memcpy(p->to.b, key.ptr, l.len);
    key_end(&p->to);
    *next = p->to;
    return ++w->batch_len < BATCH ? 0 : ask(w, e);
}

/* Scales the estimates down if their sum exceeds `live`. The caller puts the rest into the row
 * without an owner. */
static void fit(struct walk *w, const uint64_t *before, size_t before_len, uint64_t live)
{
    uint64_t sum = 0;

    if (w->sum <= live)
        return;
    vec_for (i, &w->list) {
        struct owner *o = w->list.ptr[i];
        uint64_t had = i < before_len ? before[i] : 0;
        uint64_t now = (uint64_t)((u128)(o->bytes - had) * live / w->sum);

        o->bytes = had + now;
        sum += now;
    }
    w->sum = sum;
}

static int walk_family(struct walk *w, uint64_t live, struct err *e)
{
    size_t before_len = w->list.len;
    uint64_t *before = XNEW_ARRAY(uint64_t, before_len + 1);
    struct owner nobody = { .kind = w->o->tenants ? 0 : families[w->cf].kind,
                            .level = SPACE_NO_LEVEL };
    struct kv_iter *it = kv_iter_new(w->v->kv, w->v->snap, w->cf, STR_NULL, STR_NULL);
    struct key next;
    int rc = 0;

    for (size_t i = 0; i < before_len; i++)
        before[i] = w->list.ptr[i]->bytes;
    w->sum = 0;
    while (!rc && kv_iter_valid(it)) {
        rc = take(w, kv_iter_key(it), &next, e);
        if (!rc)
            kv_iter_seek(it, key_str(&next));
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    if (!rc)
        rc = ask(w, e);
    kv_iter_free(it);
    if (!rc) {
        fit(w, before, before_len, live);
        struct owner *o = w->sum < live ? owner_of(w, &nobody, e) : NULL;
        if (o)
            o->bytes += live - w->sum;
        else if (w->sum < live)
            rc = e->code;
    }
    xfree(before);
    return rc;
}

/* ---- remote parts ---- */

static int far_bytes(struct walk *w, struct owner id, uint64_t bytes, struct err *e)
{
    struct owner *o = bytes ? owner_of(w, &id, e) : NULL;

    if (bytes && !o)
        return e->code;
    if (o)
        o->far_bytes += bytes;
    return 0;
}

static int on_far(void *cookie, const struct kv_far *f, struct err *e)
{
    struct walk *w = cookie;
    struct owner id = { .kind = w->o->tenants ? 0 : families[f->cf].kind, .level = SPACE_NO_LEVEL };
    uint64_t left = f->bytes;

    if (families[f->cf].level && f->first.len && !w->o->tenants)
        id.level = (uint8_t)f->first.ptr[0] & 0x3f;
    for (size_t i = 0; i < f->owners_len; i++) {
        const struct kv_far_owner *one = &f->owners[i];

        id.tenant = one->tenant;
        id.scope = w->o->tenants ? 0 : one->scope;
        if (far_bytes(w, id, one->bytes, e))
            return e->code;
        left -= MIN(left, one->bytes);
    }
    id.tenant = id.scope = 0;
    w->far_bytes += f->bytes;
    if (far_bytes(w, id, left, e))
        return e->code;
    return ++w->far_parts % BATCH ? 0 : pause_walk(w, e);
}

/* ---- names ---- */

/* Returns the name of a tenant or service, or its number if it is deleted and not yet purged. */
static int name_of(struct walk *w, struct buf *row, uint32_t tenant, uint32_t scope,
                   struct str *ret, struct err *e)
{
    struct tenant_row t;
    uint32_t epoch;
    struct key k;
    struct str name;
    char number[32];

    if (scope)
        key_scope(&k, tenant, scope);
    else
        key_tenant(&k, tenant);
    int rc = kv_get(w->v->kv, w->v->snap, KV_META, key_str(&k), row, e);
    if (rc && rc != ERR_NOT_FOUND)
        return rc;
    if (!rc)
        rc = scope ? scope_row_read(buf_str(row), &epoch, &name, e)
                   : tenant_row_read(buf_str(row), &t, e);
    if (rc)
        name =
            str_n(number, (size_t)snprintf(number, sizeof(number), "#%u", scope ? scope : tenant));
    else if (!scope)
        name = t.name;
    err_clear(e);
    *ret = arena_strdup(w->arena, name);
    return ret->ptr ? 0
                    : err_set(e, ERR_LIMIT, "the space report needs over %zu bytes",
                              arena_limit(w->arena));
}

static int name_rows(struct walk *w, struct space *ret, struct err *e)
{
    struct buf row;
    int rc = 0;

    ret->rows = ARENA_ARRAY(w->arena, struct space_row, w->list.len + 1);
    if (!ret->rows)
        return err_set(e, ERR_LIMIT, "the space report needs over %zu bytes",
                       arena_limit(w->arena));
    buf_init(&row, GIB);
    vec_for (i, &w->list) {
        const struct owner *o = w->list.ptr[i];
        struct space_row *r = &ret->rows[ret->len];

        if (!o->bytes && !o->far_bytes)
            continue;
        *r = (struct space_row){ .kind = (enum space_kind)o->kind,
                                 .level = o->level,
                                 .bytes = o->bytes,
                                 .far_bytes = o->far_bytes };
        if (o->tenant)
            rc = name_of(w, &row, o->tenant, 0, &r->tenant, e);
        if (!rc && o->scope)
            rc = name_of(w, &row, o->tenant, o->scope, &r->service, e);
        if (rc)
            break;
        ret->len++;
    }
    buf_deinit(&row);
    if (ret->len)
        qsort(ret->rows, ret->len, sizeof(*ret->rows), space_row_cmp);
    return rc;
}

int store_space(struct store_view *v, const struct space_opts *o, struct arena *a,
                struct space *ret, struct err *e)
{
    struct walk w = { .v = v, .o = o, .arena = a, .owners = map_str_new() };
    struct kv_stats stats;
    struct kv_disk disk;
    struct cold_read here = { .local = true }, *before = cold_read_policy_set(&here);
    int rc = kv_disk(v->kv, &disk, e);

    *ret = (struct space){ 0 };
    for (int i = 0; !rc && i < KV_CFS; i++) {
        w.cf = (enum kv_cf)i;
        rc = walk_family(&w, disk.live_bytes[i], e);
        ret->tables_bytes += disk.live_bytes[i];
    }
    (void)cold_read_policy_set(before);
    if (!rc)
        rc = kv_far(v->kv, v->snap, on_far, &w, e);
    if (!rc)
        rc = name_rows(&w, ret, e);
    kv_stats(v->kv, &stats);
    ret->obsolete_bytes = disk.tables_bytes - MIN(disk.tables_bytes, ret->tables_bytes);
    ret->log_bytes = disk.log_bytes;
    ret->other_bytes = disk.other_bytes;
    ret->memtable_bytes = stats.memtable_bytes;
    ret->far_bytes = w.far_bytes;
    vec_free(&w.list);
    map_str_free(w.owners);
    return rc;
}
