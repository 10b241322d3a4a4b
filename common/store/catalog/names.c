/* SPDX-License-Identifier: Apache-2.0
 *
 * names: text -> number, cached.
 *
 * All four kinds share one map, keyed by the very meta key that holds the number on disk; a miss
 * reads that key. What is in a batch that is not committed yet cannot be read back, so such entries
 * stay (`seq` > committed) when names_trim empties the map. Tenants stay always: their high-water
 * marks live here, and there are few.
 *
 * Thread: the shard's.
 */
#include "common/store/catalog/names.h"

#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/base/wr.h"
#include "common/store/catalog/names_max.h"

#define VERSION     1
#define TEXT_MAX    (256 * KIB)
#define TENANTS_MAX 1000000
#define PTYPES_MAX  65536

struct names {
    struct kv *kv; /* borrowed */
    uint64_t seed;
    uint32_t next_tenant;
    uint32_t tenants_max;    /* 0: TENANTS_MAX */
    struct map_str *map;     /* meta key -> struct known_name */
    struct map_str *tenants; /* name -> struct tenant */
    size_t bytes, bytes_max; /* of the entries of map */
    struct buf key, row;
};

int names_new(struct kv *kv, uint64_t seed, size_t bytes_max, struct names **ret, struct err *e)
{
    struct names *n = XNEW(struct names);
    struct key k;

    n->kv = kv;
    n->seed = seed;
    n->bytes_max = bytes_max;
    n->next_tenant = 1;
    n->map = map_str_new();
    n->tenants = map_str_new();
    buf_init(&n->key, TEXT_MAX);
    buf_init(&n->row, TEXT_MAX);
    key_control(&k, CONTROL_TENANTS);
    int rc = kv_get(kv, NULL, KV_META, key_str(&k), &n->row, e);
    if (!rc && !key_u32_read(buf_str(&n->row), &n->next_tenant))
        rc = err_set(e, ERR_CORRUPT, "next tenant number has %zu bytes", n->row.len);
    if (rc && rc != ERR_NOT_FOUND) {
        names_free(n);
        return rc;
    }
    *ret = n;
    return 0;
}

static void free_maps(struct names *n)
{
    size_t pos = 0;
    struct str key;
    void *p;

    while (map_str_next(n->map, &pos, &key, &p))
        xfree(p);
    map_str_free(n->map);
    for (pos = 0; map_str_next(n->tenants, &pos, &key, &p);) {
        struct tenant *t = p;
        xfree(t->known);
        xfree(t);
    }
    map_str_free(n->tenants);
}

void names_drop(struct names *n)
{
    free_maps(n);
    n->map = map_str_new();
    n->tenants = map_str_new();
    n->bytes = 0;
}

void names_free(struct names *n)
{
    if (!n)
        return;
    free_maps(n);
    buf_deinit(&n->key);
    buf_deinit(&n->row);
    xfree(n);
}

static struct known_name *known_name_new(struct str key, uint64_t seq, uint32_t number,
                                         uint32_t extra)
{
    struct known_name *k = xmalloc(sizeof(*k) + key.len);

    k->seq = seq;
    k->days = DAYS_NONE;
    k->number = number;
    k->extra = extra;
    k->key_len = (uint32_t)key.len;
    memcpy(k->key, key.ptr, key.len);
    return k;
}

static struct known_name *remember(struct names *n, uint64_t seq, uint32_t number, uint32_t extra)
{
    struct known_name *k = known_name_new(buf_str(&n->key), seq, number, extra);

    map_str_put(n->map, str_n(k->key, k->key_len), k);
    n->bytes += sizeof(*k) + k->key_len;
    return k;
}

/* The number under n->key: *ret NULL if it has none; from disk it comes with its row's value. */
static int find(struct names *n, struct known_name **ret, bool *ret_on_disk, struct err *e)
{
    *ret_on_disk = false;
    *ret = map_str_get(n->map, buf_str(&n->key));
    if (*ret)
        return 0;
    int rc = kv_get(n->kv, NULL, KV_META, buf_str(&n->key), &n->row, e);
    if (rc == ERR_NOT_FOUND)
        return 0;
    *ret_on_disk = !rc;
    return rc;
}

static int bad_number(const struct names *n, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "a number of table %02x has %zu bytes", (uint8_t)n->key.ptr[0],
                   n->row.len);
}

static int too_long(struct str text, struct err *e)
{
    return err_set(e, ERR_INPUT, "a name of %zu bytes is too long", text.len);
}

static int used_up(const char *what, const struct tenant *t, struct err *e)
{
    return err_set(e, ERR_LIMIT, "tenant %.*s has no number left for another %s", STR_ARG(t->name),
                   what);
}

/* ---- tenants ---- */

static struct tenant *add_tenant(struct names *n, struct str name, struct known_name *k)
{
    struct tenant *t = XNEW(struct tenant);

    t->number = k->number;
    t->known = k;
    t->name = str_n(k->key + 1, k->key_len - 1);
    CHECK(str_eq(t->name, name));
    map_str_put(n->tenants, t->name, t);
    return t;
}

static int load_tenant(struct names *n, struct str name, struct tenant **ret, struct err *e)
{
    struct tenant_row r;
    uint32_t number;
    struct key k;

    if (!key_u32_read(buf_str(&n->row), &number))
        return bad_number(n, e);
    key_tenant(&k, number);
    int rc = kv_get(n->kv, NULL, KV_META, key_str(&k), &n->row, e);
    if (!rc)
        rc = tenant_row_read(buf_str(&n->row), &r, e);
    if (rc)
        return err_wrap(e, "tenant %u", number);
    struct tenant *t = add_tenant(n, name, known_name_new(buf_str(&n->key), 0, number, 0));
    t->seed = r.seed;
    t->next_scope = r.next_scope;
    t->next_ptype = r.next_ptype;
    t->next_ordinal = r.next_ordinal;
    t->next_pair = r.next_pair;
    *ret = t;
    return 0;
}

int names_tenant(struct names *n, struct str name, struct tenant **ret, struct err *e)
{
    *ret = map_str_get(n->tenants, name);
    if (*ret)
        return 0;
    if (!key_tenant_name(&n->key, name))
        return too_long(name, e);
    int rc = kv_get(n->kv, NULL, KV_META, buf_str(&n->key), &n->row, e);
    if (!rc)
        return load_tenant(n, name, ret, e);
    if (rc != ERR_NOT_FOUND)
        return rc;
    if (n->next_tenant > TENANTS_MAX)
        return err_set(e, ERR_LIMIT, "this shard has %d tenants already", TENANTS_MAX);
    if (n->tenants_max && n->next_tenant > n->tenants_max)
        return err_set_again(e, ERR_RATE, 60,
                             "tenants_limit: this tenant has nothing stored yet, and a shard takes "
                             "%" PRIu32 " tenants (ingester.tenants_max)",
                             n->tenants_max);
    struct known_name *k = known_name_new(buf_str(&n->key), NAMES_RESERVED, n->next_tenant++, 0);
    struct tenant *t = add_tenant(n, name, k);
    t->seed = hash64(name.ptr, name.len, n->seed);
    t->next_scope = 1;
    t->dirty = true;
    *ret = t;
    return 0;
}

void names_tenants_max(struct names *n, uint32_t max)
{
    n->tenants_max = max;
}

static void tenant_row(const struct tenant *t, struct buf *out)
{
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_u64be(out, t->seed);
    wr_u32be(out, t->next_scope);
    wr_u32be(out, t->next_ptype);
    wr_u32be(out, t->next_ordinal);
    wr_u32be(out, t->next_pair);
    buf_add_str(out, t->name);
    CHECK(buf_ok(out));
}

int tenant_row_read(struct str row, struct tenant_row *ret, struct err *e)
{
    if (row.len < 25 || row.ptr[0] != VERSION)
        return err_set(e, ERR_CORRUPT, "tenant row of %zu bytes is not one of version %d", row.len,
                       VERSION);
    *ret = (struct tenant_row){
        .seed = get_u64be(row.ptr + 1),
        .next_scope = get_u32be(row.ptr + 9),
        .next_ptype = get_u32be(row.ptr + 13),
        .next_ordinal = get_u32be(row.ptr + 17),
        .next_pair = get_u32be(row.ptr + 21),
        .name = str_sub(row, 25, row.len),
    };
    return 0;
}

/* ---- services ---- */

int scope_row_read(struct str row, uint32_t *ret_epoch, struct str *ret_name, struct err *e)
{
    if (row.len < 5 || row.ptr[0] != VERSION)
        return err_set(e, ERR_CORRUPT, "service row of %zu bytes is not one of version %d", row.len,
                       VERSION);
    *ret_epoch = get_u32be(row.ptr + 1);
    *ret_name = str_sub(row, 5, row.len);
    return 0;
}

static int load_scope(struct names *n, const struct tenant *t, struct known_name **ret,
                      struct err *e)
{
    uint32_t number, epoch = 0;
    struct str name;
    struct key k;

    if (!key_u32_read(buf_str(&n->row), &number))
        return bad_number(n, e);
    key_scope(&k, t->number, number);
    int rc = kv_get(n->kv, NULL, KV_META, key_str(&k), &n->row, e);
    if (!rc)
        rc = scope_row_read(buf_str(&n->row), &epoch, &name, e);
    if (rc)
        return err_wrap(e, "service %u of tenant %u", number, t->number);
    *ret = remember(n, 0, number, epoch);
    return 0;
}

int names_scope(struct names *n, struct tenant *t, struct str name, struct known_name **ret,
                struct err *e)
{
    bool on_disk;

    if (!key_name(&n->key, KEY_SCOPE_NAME, t->number, name))
        return too_long(name, e);
    int rc = find(n, ret, &on_disk, e);
    if (rc || *ret)
        return rc;
    if (on_disk)
        return load_scope(n, t, ret, e);
    if (t->next_scope == UINT32_MAX)
        return used_up("service", t, e);
    t->dirty = true;
    *ret = remember(n, NAMES_RESERVED, t->next_scope++, 0);
    return 0;
}

/* ---- profile types ---- */

int ptype_row_read(struct str row, bool *ret_gauge, struct str *ret_id, struct err *e)
{
    if (row.len < 2 || row.ptr[0] != VERSION || (uint8_t)row.ptr[1] > 1)
        return err_set(e, ERR_CORRUPT, "profile type row of %zu bytes is not one of version %d",
                       row.len, VERSION);
    *ret_gauge = row.ptr[1];
    *ret_id = str_sub(row, 2, row.len);
    return 0;
}

static int load_ptype(struct names *n, const struct tenant *t, struct known_name **ret,
                      struct err *e)
{
    uint32_t number;
    bool gauge = false;
    struct str id;
    struct key k;

    if (!key_u16_read(buf_str(&n->row), &number))
        return bad_number(n, e);
    key_ptype(&k, t->number, number);
    int rc = kv_get(n->kv, NULL, KV_META, key_str(&k), &n->row, e);
    if (!rc)
        rc = ptype_row_read(buf_str(&n->row), &gauge, &id, e);
    if (rc)
        return err_wrap(e, "profile type %u of tenant %u", number, t->number);
    *ret = remember(n, 0, number, gauge);
    return 0;
}

int names_ptype(struct names *n, struct tenant *t, struct str id, bool gauge,
                struct known_name **ret, struct err *e)
{
    bool on_disk;

    if (!key_name(&n->key, KEY_PTYPE_NAME, t->number, id))
        return too_long(id, e);
    int rc = find(n, ret, &on_disk, e);
    if (rc || *ret)
        return rc;
    if (on_disk)
        return load_ptype(n, t, ret, e);
    if (t->next_ptype == PTYPES_MAX)
        return used_up("profile type", t, e);
    t->dirty = true;
    *ret = remember(n, NAMES_RESERVED, t->next_ptype++, gauge);
    return 0;
}

/* ---- label pairs ---- */

int names_pair(struct names *n, struct tenant *t, struct str name, struct str value,
               struct known_name **ret, struct err *e)
{
    uint32_t number;
    bool on_disk;

    if (!key_pair(&n->key, t->number, name, value))
        return too_long(value, e);
    int rc = find(n, ret, &on_disk, e);
    if (rc || *ret)
        return rc;
    if (on_disk) {
        if (!key_u32_read(buf_str(&n->row), &number))
            return bad_number(n, e);
        *ret = remember(n, 0, number, 0);
        return 0;
    }
    if (t->next_pair == UINT32_MAX)
        return used_up("label value", t, e);
    t->dirty = true;
    *ret = remember(n, NAMES_RESERVED, t->next_pair++, 0);
    return 0;
}

/* ---- activity ---- */

int days_read(struct str row, struct days *ret, struct err *e)
{
    if (row.len != 4)
        return err_set(e, ERR_CORRUPT, "first and last day have %zu bytes", row.len);
    ret->first = get_u16be(row.ptr);
    ret->last = get_u16be(row.ptr + 2);
    return 0;
}

struct days days_add(struct days d, uint16_t day)
{
    return (struct days){ MIN(d.first, day), MAX(d.last, day) };
}

int names_activity(struct names *n, const struct tenant *t, uint32_t scope, uint32_t ptype,
                   struct known_name **ret, struct err *e)
{
    struct days days = DAYS_NONE;
    bool on_disk;
    struct key k;

    key_active(&k, t->number, scope, ptype);
    buf_reset(&n->key);
    buf_add_str(&n->key, key_str(&k));
    int rc = find(n, ret, &on_disk, e);
    if (rc || *ret)
        return rc;
    if (on_disk && days_read(buf_str(&n->row), &days, e))
        return e->code;
    *ret = remember(n, 0, 0, 0);
    (*ret)->days = days;
    return 0;
}

void names_touch(struct known_name *activity, uint16_t day, uint64_t seq, struct kv_batch *b)
{
    struct days days = days_add(activity->days, day);
    char row[4];

    if (days.first == activity->days.first && days.last == activity->days.last)
        return;
    activity->days = days;
    activity->seq = seq;
    put_u16be(row, days.first);
    put_u16be(row + 2, days.last);
    kv_batch_put(b, KV_META, str_n(activity->key, activity->key_len), str_n(row, sizeof(row)));
}

/* ---- emitting ---- */

static struct str known_key(const struct known_name *k)
{
    return str_n(k->key, k->key_len);
}

/* Text behind table and tenant. */
static struct str known_name_text(const struct known_name *k)
{
    return str_n(k->key + 5, k->key_len - 5);
}

static void emit_number(const struct known_name *k, bool wide, struct kv_batch *b)
{
    char v[4];

    if (wide)
        put_u32be(v, k->number);
    else
        put_u16be(v, (uint16_t)k->number);
    kv_batch_put(b, KV_META, known_key(k), str_n(v, wide ? 4 : 2));
}

static void emit_scope_row(struct names *n, const struct known_name *k, struct kv_batch *b)
{
    struct key key;

    buf_reset(&n->row);
    wr_u8(&n->row, VERSION);
    wr_u32be(&n->row, k->extra);
    buf_add_str(&n->row, known_name_text(k));
    CHECK(buf_ok(&n->row));
    key_scope(&key, get_u32be(k->key + 1), k->number);
    kv_batch_put(b, KV_META, key_str(&key), buf_str(&n->row));
}

static void emit_ptype_row(struct names *n, const struct known_name *k, struct kv_batch *b)
{
    struct key key;

    buf_reset(&n->row);
    wr_u8(&n->row, VERSION);
    wr_u8(&n->row, (uint8_t)k->extra);
    buf_add_str(&n->row, known_name_text(k));
    CHECK(buf_ok(&n->row));
    key_ptype(&key, get_u32be(k->key + 1), k->number);
    kv_batch_put(b, KV_META, key_str(&key), buf_str(&n->row));
}

void names_emit(struct names *n, struct known_name *k, uint64_t seq, struct kv_batch *b)
{
    if (k->seq != NAMES_RESERVED)
        return;
    k->seq = seq;
    emit_number(k, k->key[0] != KEY_PTYPE_NAME, b);
    if (k->key[0] == KEY_SCOPE_NAME)
        emit_scope_row(n, k, b);
    else if (k->key[0] == KEY_PTYPE_NAME)
        emit_ptype_row(n, k, b);
}

void names_set_epoch(struct names *n, struct known_name *scope, uint32_t epoch, uint64_t seq,
                     struct kv_batch *b)
{
    CHECK(scope->seq != NAMES_RESERVED);
    scope->extra = epoch;
    scope->seq = seq;
    emit_scope_row(n, scope, b);
}

void names_emit_tenant(struct names *n, struct tenant *t, uint64_t seq, struct kv_batch *b)
{
    struct key k, v;

    if (t->known->seq == NAMES_RESERVED) {
        t->known->seq = seq;
        emit_number(t->known, true, b);
        key_control(&k, CONTROL_TENANTS);
        key_u32(&v, n->next_tenant);
        kv_batch_put(b, KV_META, key_str(&k), key_str(&v));
    }
    if (!t->dirty)
        return;
    t->dirty = false;
    tenant_row(t, &n->row);
    key_tenant(&k, t->number);
    kv_batch_put(b, KV_META, key_str(&k), buf_str(&n->row));
}

size_t names_bytes(const struct names *n)
{
    return n->bytes;
}

void names_resize(struct names *n, size_t bytes_max)
{
    n->bytes_max = bytes_max;
}

void names_trim(struct names *n, uint64_t committed)
{
    size_t pos = 0;
    struct str key;
    void *p;

    if (n->bytes <= n->bytes_max)
        return;
    struct map_str *kept = map_str_new();
    n->bytes = 0;
    while (map_str_next(n->map, &pos, &key, &p)) {
        struct known_name *k = p;
        if (k->seq <= committed) {
            xfree(k);
            continue;
        }
        map_str_put(kept, known_key(k), k);
        n->bytes += sizeof(*k) + k->key_len;
    }
    map_str_free(n->map);
    n->map = kept;
}
