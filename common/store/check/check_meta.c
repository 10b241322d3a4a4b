/* SPDX-License-Identifier: Apache-2.0
 *
 * check_meta: the rules of meta.
 *
 *   format     the row is ours, control rows have their lengths
 *   names      text -> number -> text is the same text; numbers are below the tenant's next ones
 *   epochs     one open per service, all before it closed; dictionaries load without a gap, name
 *              only what exists, and hold nothing twice
 *   series     id -> ordinal -> labels -> the same id, over a probe chain without holes
 *   postings   exactly the ordinals whose labels have the pair
 *   activity   days of a service are those of its series
 *   seal log   entries follow each other up to `applied`
 */
#include "common/store/check/check_impl.h"

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/store/catalog/postings.h"
#include "common/store/seal/seal.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"

#define KEY_EPOCH_LEN 13

static int wrong(struct err *e, const char *what, uint32_t tenant, uint32_t number)
{
    return err_set(e, ERR_CORRUPT, "%s %u of tenant %u is wrong", what, number, tenant);
}

/* ---- format and control ---- */

static int check_format(struct check *c, struct err *e)
{
    static const struct {
        enum key_control id;
        size_t len;
    } controls[] = { { CONTROL_CLOCK, 8 },   { CONTROL_APPLIED, 12 }, { CONTROL_RAW_LOW, 4 },
                     { CONTROL_WID_LOW, 4 }, { CONTROL_TENANTS, 4 },  { CONTROL_WID_HIGH, 4 },
                     { CONTROL_STOOD, 16 } };
    struct key k;

    key_format(&k);
    if (check_get(c, KV_META, key_str(&k), "format row", e))
        return e->code;
    if (c->row.len != 8 || memcmp(c->row.ptr, "EMBR", 4))
        return err_set(e, ERR_CORRUPT, "the format row is not ours");
    for (size_t i = 0; i < ARRAY_LEN(controls); i++) {
        key_control(&k, controls[i].id);
        int rc = kv_get(c->v->kv, c->v->snap, KV_META, key_str(&k), &c->row, e);
        if (rc && rc != ERR_NOT_FOUND)
            return rc;
        if (!rc && c->row.len != controls[i].len)
            return err_set(e, ERR_CORRUPT, "control row %d has %zu bytes instead of %zu",
                           (int)controls[i].id, c->row.len, controls[i].len);
    }
    err_clear(e);
    return 0;
}

/* ---- names ---- */

static int tenant_of(struct check *c, uint32_t tenant, struct tenant_row *ret, struct err *e)
{
    struct key k;

    key_tenant(&k, tenant);
    int rc = check_get(c, KV_META, key_str(&k), "tenant row", e);
    return rc ? rc : tenant_row_read(buf_str(&c->row), ret, e);
}

static int on_tenant(struct check *c, struct str key, struct str value, struct err *e)
{
    struct tenant_row r;
    uint32_t number = 0;

    if (!key_u32_read(value, &number))
        return wrong(e, "number", 0, 0);
    if (tenant_of(c, number, &r, e))
        return e->code;
    if (!str_eq(r.name, str_sub(key, 1, key.len)))
        return wrong(e, "name", number, number);
    c->report->tenants++;
    return 0;
}

static int on_scope(struct check *c, struct str key, struct str value, struct err *e)
{
    uint32_t tenant = get_u32be(key.ptr + 1), number = 0, open = 0;
    struct dict_counts n;
    struct tenant_row r;
    struct str name;
    struct key k;
    bool closed;

    if (!key_u32_read(value, &number) || tenant_of(c, tenant, &r, e) || number >= r.next_scope)
        return wrong(e, "service number", tenant, number);
    key_scope(&k, tenant, number);
    if (check_get(c, KV_META, key_str(&k), "service row", e) ||
        scope_row_read(buf_str(&c->row), &open, &name, e))
        return e->code;
    if (!str_eq(name, str_sub(key, 5, key.len)))
        return wrong(e, "service name", tenant, number);
    for (uint32_t epoch = 0; epoch <= open; epoch++) {
        key_epoch(&k, tenant, number, epoch);
        /* Retention deletes closed epochs that no row names. If a row still names a deleted epoch,
         * the check of that row finds it. */
        if (epoch < open &&
            kv_get(c->v->kv, c->v->snap, KV_META, key_str(&k), &c->row, e) == ERR_NOT_FOUND)
            continue;
        if (check_get(c, KV_META, key_str(&k), "epoch row", e) ||
            dict_epoch_read(buf_str(&c->row), &closed, &n, e))
            return e->code;
        if (closed != (epoch < open))
            return wrong(e, "epoch's state of service", tenant, number);
    }
    c->report->scopes++;
    return 0;
}

static int on_type(struct check *c, struct str key, struct str value, struct err *e)
{
    uint32_t tenant = get_u32be(key.ptr + 1), number = 0;
    struct tenant_row r;
    struct str id;
    struct key k;
    bool gauge;

    if (!key_u16_read(value, &number) || tenant_of(c, tenant, &r, e) || number >= r.next_ptype)
        return wrong(e, "profile type", tenant, number);
    key_ptype(&k, tenant, number);
    if (check_get(c, KV_META, key_str(&k), "profile type row", e) ||
        ptype_row_read(buf_str(&c->row), &gauge, &id, e))
        return e->code;
    if (!str_eq(id, str_sub(key, 5, key.len)))
        return wrong(e, "profile type", tenant, number);
    c->report->types++;
    return 0;
}

/* ---- dictionaries ---- */

static bool all_differ(struct check *c, const struct dict *d)
{
    struct dict_counts n = dict_counts(d);
    struct map_str *strings = map_str_new(), *frames = map_str_new();
    struct map_u64 nodes;
    bool ok = true;

    (void)c;
    map_u64_init(&nodes);
    for (uint32_t i = 0; ok && i < n.strings; i++)
        ok = !map_str_put(strings, dict_string(d, i), strings);
    for (uint32_t i = 0; ok && i < n.frames; i++)
        ok = !map_str_put(frames, str_n(dict_frame(d, i), sizeof(struct frame)), frames);
    for (uint32_t i = 1; ok && i < n.nodes; i++)
        ok = map_u64_put(&nodes, (uint64_t)dict_node(d, i)->parent << 32 | dict_node(d, i)->frame,
                         i) == MAP_U64_EMPTY;
    map_str_free(strings);
    map_str_free(frames);
    map_u64_deinit(&nodes);
    return ok;
}

static int on_epoch(struct check *c, struct str key, struct str value, struct err *e)
{
    struct dict_id id = { get_u32be(key.ptr + 1), get_u32be(key.ptr + 5), get_u32be(key.ptr + 9) };
    struct dict_counts n;
    struct tenant_row r;
    bool closed;

    if (dict_epoch_read(value, &closed, &n, e) || tenant_of(c, id.tenant, &r, e))
        return e->code;
    struct dict *d = dict_new(id, r.seed, &c->dict_bytes);
    struct dict **at = check_entry(c, CHECK_MAP_DICTS, str_n(&id, sizeof(id)), sizeof(d));
    *at = d;
    if (dict_load(d, c->v->kv, c->v->snap, n, e))
        return e->code;
    if (!all_differ(c, d))
        return err_set(e, ERR_CORRUPT, "dictionary of service %u, epoch %u has something twice",
                       id.scope, id.epoch);
    dict_open_writer(d, UINT64_MAX);
    c->report->epochs++;
    c->report->nodes += n.nodes - 1;
    return 0;
}

/* ---- series ---- */

static int check_id(struct check *c, uint32_t tenant, uint32_t ordinal, const struct series_row *r,
                    struct err *e)
{
    uint64_t mask = c->v->s->o.hash_bits ? (UINT64_C(1) << c->v->s->o.hash_bits) - 1 : UINT64_MAX;
    struct tenant_row t;
    uint32_t found = 0;
    struct key k;

    if (tenant_of(c, tenant, &t, e))
        return e->code;
    if (ordinal >= t.next_ordinal)
        return wrong(e, "series", tenant, ordinal);
    uint64_t id = hash64(r->labels.ptr, r->labels.len, t.seed) & mask;
    for (;; id++) {
        key_series(&k, tenant, r->scope, id);
        if (check_get(c, KV_META, key_str(&k), "id of a series", e))
            return e->code;
        if (id == r->id)
            break;
    }
    return key_u32_read(buf_str(&c->row), &found) && found == ordinal
               ? 0
               : wrong(e, "ordinal of series", tenant, ordinal);
}

static int check_pairs(struct check *c, uint32_t tenant, uint32_t ordinal, struct str labels,
                       struct err *e)
{
    struct arena *a = arena_new(MIB);
    struct labels l;
    uint32_t pair = 0;
    int rc = labels_decode(labels, a, &l, e);

    for (size_t i = 0; !rc && i < l.len; i++) {
        CHECK(key_pair(&c->text, tenant, l.ptr[i].name, l.ptr[i].value));
        rc = check_get(c, KV_META, buf_str(&c->text), "label pair", e);
        if (rc)
            break;
        if (!key_u32_read(buf_str(&c->row), &pair))
            rc = wrong(e, "label pair", tenant, pair);
        roaring_bitmap_t *bits = roaring_bitmap_create();
        if (!rc)
            rc = postings_read(c->v->kv, c->v->snap, tenant, pair, bits, e);
        if (!rc && !roaring_bitmap_contains(bits, ordinal))
            rc = wrong(e, "posting of series", tenant, ordinal);
        roaring_bitmap_free(bits);
        uint32_t id[2] = { tenant, pair };
        ++*(uint64_t *)check_entry(c, CHECK_MAP_PAIRS, str_n(id, sizeof(id)), sizeof(uint64_t));
    }
    arena_free(a);
    return rc;
}

static struct days unite(struct days a, struct days b, bool first)
{
    return first ? b : (struct days){ MIN(a.first, b.first), MAX(a.last, b.last) };
}

struct type_id {
    uint32_t tenant, scope, ptype, pad;
    uint64_t series;
};

static int check_type(struct check *c, struct str key, struct str value, struct err *e)
{
    uint32_t tenant = get_u32be(key.ptr + 1), ordinal = get_u32be(key.ptr + 5);
    struct series_type t;
    struct series_row r;
    struct key k;

    key_ord(&k, tenant, ordinal);
    if (series_type_read(key, value, &t, e) ||
        check_get(c, KV_META, key_str(&k), "series row", e) ||
        series_row_read(buf_str(&c->row), &r, e))
        return e->code;
    if (t.days.first > t.days.last)
        return wrong(e, "days of series", tenant, ordinal);
    struct type_id id = { tenant, r.scope, t.ptype, 0, r.id };
    struct days *d = check_entry(c, CHECK_MAP_SERIES, str_n(&id, sizeof(id)), sizeof(*d));
    *d = t.days;
    struct str scope = str_n(&id, offsetof(struct type_id, pad));
    bool first = !check_find(c, CHECK_MAP_ACTIVE, scope);
    d = check_entry(c, CHECK_MAP_ACTIVE, scope, sizeof(*d));
    *d = unite(*d, t.days, first);
    return 0;
}

static int on_ord(struct check *c, struct str key, struct str value, struct err *e)
{
    uint32_t tenant = get_u32be(key.ptr + 1), ordinal = get_u32be(key.ptr + 5);
    struct series_row r;

    if (key.len != KEY_ORD_LEN && key.len != KEY_ORD_TYPE_LEN)
        return wrong(e, "length of a row of series", tenant, ordinal);
    if (key.len == KEY_ORD_TYPE_LEN)
        return check_type(c, key, value, e);
    if (series_row_read(value, &r, e) || check_id(c, tenant, ordinal, &r, e))
        return e->code;
    c->report->series++;
    return check_pairs(c, tenant, ordinal, r.labels, e);
}

/* Each ordinal was found in the postings of its pairs: equal counts mean that no more is there. */
static int on_pair(struct check *c, struct str key, struct str value, struct err *e)
{
    uint32_t id[2] = { get_u32be(key.ptr + 1), 0 };
    roaring_bitmap_t *bits = roaring_bitmap_create();
    int rc = key_u32_read(value, &id[1]) ? 0 : wrong(e, "label pair", id[0], id[1]);

    if (!rc)
        rc = postings_read(c->v->kv, c->v->snap, id[0], id[1], bits, e);
    const uint64_t *uses = check_find(c, CHECK_MAP_PAIRS, str_n(id, sizeof(id)));
    if (!rc && !purging_has(&c->purging, id[0], 0) &&
        roaring_bitmap_get_cardinality(bits) != (uses ? *uses : 0))
        rc = wrong(e, "postings of label pair", id[0], id[1]);
    roaring_bitmap_free(bits);
    c->report->pairs++;
    return rc;
}

static int on_active(struct check *c, struct str key, struct str value, struct err *e)
{
    struct type_id id = { get_u32be(key.ptr + 1), get_u32be(key.ptr + 5), get_u16be(key.ptr + 9), 0,
                          0 };
    struct days days;
    const struct days *want =
        check_find(c, CHECK_MAP_ACTIVE, str_n(&id, offsetof(struct type_id, pad)));

    if (days_read(value, &days, e))
        return e->code;
    if (purging_has(&c->purging, id.tenant, id.scope))
        return 0;
    if (!want || want->first != days.first || want->last != days.last)
        return wrong(e, "activity of service", id.tenant, id.scope);
    return 0;
}

/* ---- seal log ---- */

static int check_entry_row(struct check *c, uint64_t i, struct err *e)
{
    struct seal_entry n;
    struct key k;

    key_seal(&k, i);
    if (check_get(c, KV_META, key_str(&k), "seal entry", e) ||
        seal_row_read(i, buf_str(&c->row), &n, e))
        return err_wrap(e, "seal entry %" PRIu64, i);
    if (!n.tomb && (!n.rows || n.bucket_low > n.bucket_high))
        return err_set(e, ERR_CORRUPT, "seal entry %" PRIu64 " names no rows", i);
    return 0;
}

static int check_log(struct check *c, struct err *e)
{
    struct key k;
    int rc;

    key_control(&k, CONTROL_APPLIED);
    rc = kv_get(c->v->kv, c->v->snap, KV_META, key_str(&k), &c->row, e);
    if (rc)
        return rc == ERR_NOT_FOUND ? 0 : rc;
    if (c->row.len != 12)
        return check_found(c, err_set(e, ERR_CORRUPT, "applied entry has %zu bytes", c->row.len),
                           e);
    uint64_t applied = get_u64be(c->row.ptr);
    for (uint64_t i = applied > SEAL_LOG_KEPT ? applied - SEAL_LOG_KEPT + 1 : 1;
         !rc && i <= applied; i++) {
        rc = check_row(c, e);
        if (!rc)
            rc = check_found(c, check_entry_row(c, i, e), e);
    }
    return rc;
}

/* ---- the whole ---- */

/* Kinds in the order of check.h; a rule may use what those before it have left in the maps. */
int check_meta(struct check *c, struct err *e)
{
    static const struct {
        enum check_kind kind;
        enum key_table table;
        size_t key_min;
        check_fn fn;
    } tables[] = {
        { CHECK_NAMES, KEY_TENANT_NAME, 2, on_tenant },
        { CHECK_NAMES, KEY_SCOPE_NAME, 6, on_scope },
        { CHECK_NAMES, KEY_PTYPE_NAME, 6, on_type },
        { CHECK_DICTS, KEY_EPOCH, KEY_EPOCH_LEN, on_epoch },
        { CHECK_SERIES, KEY_ORD, KEY_ORD_LEN, on_ord },
        { CHECK_POSTINGS, KEY_PAIR, 7, on_pair },
        { CHECK_SERIES, KEY_ACTIVE, KEY_ACTIVE_LEN, on_active },
    };
    check_begin(c, CHECK_FORMAT);
    if (check_found(c, check_format(c, e), e))
        return e->code;
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        check_begin(c, tables[i].kind);
        if (check_each(c, KV_META, tables[i].table, tables[i].key_min, tables[i].fn, e))
            return e->code;
    }
    check_begin(c, CHECK_LOG);
    return check_log(c, e);
}
