/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger_audit: walks all a service has, by the heads of its rows, and compares with the ledger.
 *
 *   RAW      its unsealed rows, minute by minute
 *   LEVELS   what a query of all time reads: the fewest clean nodes (cover.h), some 50 a series
 *   BASE     the finest rows that are kept, if there are not too many
 *
 * All in one snapshot, that of the view, in which the ledger is read, too: so writes, seals and
 * builds beside it change nothing. LEVELS says that queries see what must be there. That every
 * node on the way down is the sum of its children is the scrubber's (scrub.h), at its own pace;
 * the two together say that no row of any level is missing. BASE says it at once where it is cheap.
 *
 * Buckets that retention is about to take are left alone: floors overtake builds there. So are
 * services with deletes that are not purged; what those take is counted as it goes.
 *
 * The walk goes in steps, each with its own iterator, from the key where the last one ended.
 */
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/check/ledger_walk.h"
#include "common/store/codec/raw.h"
#include "common/store/delete/purge.h"
#include "common/store/kv/cold_read.h"
#include "common/store/ledger/adjust.h"
#include "common/store/mask/purging.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/query/cover.h"
#include "common/store/state/view.h"

const char *const ledger_where_names[] = { "unsealed rows", "levels", "finest rows" };

#define SLOTS_END (KEY_SLOT_MAX - KEY_SLOT_MAX % LEVELS[KEY_LEVELS - 1].node)

/* ---- parts and buckets ---- */

static struct ledger_part *part_of(struct ledger_audit *a, uint16_t ptype)
{
    struct member m = { .tenant = a->result.tenant, .scope = a->result.scope, .ptype = ptype };

    for (size_t i = a->parts.len; i > 0; i--)
        if (a->parts.ptr[i - 1].m.ptype == ptype)
            return &a->parts.ptr[i - 1];
    vec_push(&a->parts, ((struct ledger_part){ .m = m }));
    return &a->parts.ptr[a->parts.len - 1];
}

static struct ledger_node *bucket_of(struct ledger_part *p, uint32_t number)
{
    for (size_t i = p->buckets.len; i > 0; i--)
        if (p->buckets.ptr[i - 1].number == number)
            return &p->buckets.ptr[i - 1];
    vec_push(&p->buckets, ((struct ledger_node){ .number = number }));
    return &p->buckets.ptr[p->buckets.len - 1];
}

static int read_row(struct ledger_audit *a, enum key_table table, struct str key, struct str value,
                    struct err *e)
{
    struct member m = { 0 };
    uint32_t number = 0;

    if (table == KEY_ACTIVE || table == KEY_LEDGER_WHOLE) {
        if (key.len != LEDGER_PART_LEN)
            return err_set(e, ERR_CORRUPT, "a key of %zu bytes in table %02x", key.len, table);
        struct ledger_part *p = part_of(a, (uint16_t)get_u16be(key.ptr + 9));
        if (table == KEY_ACTIVE)
            return 0;
        int rc = ledger_whole_read(value, &p->whole, e);
        p->counted = !rc && p->whole.generation == a->generation;
        return rc;
    }
    if (table == KEY_LEDGER_ACCEPTED) {
        struct ledger_adjust one = { 0 };
        if (ledger_adjust_read(key, value, &one, &m, &number, e))
            return e->code;
        struct ledger_adjust *to = &bucket_of(part_of(a, m.ptype), number)->adjust;
        ledger_add(&to->raw, &one.raw);
        ledger_add(&to->levels, &one.levels);
        ledger_add(&to->base, &one.base);
        to->rows++;
        return 0;
    }
    if (!ledger_key_read(key, &m, &number))
        return err_set(e, ERR_CORRUPT, "a key of %zu bytes in table %02x", key.len, table);
    struct ledger_node *b = bucket_of(part_of(a, m.ptype), number);
    if (table == KEY_LEDGER_IN)
        return ledger_in_read(value, &b->in, e);
    return table == KEY_LEDGER_OUT ? ledger_out_read(value, &b->out, e)
                                   : ledger_found_read(value, &b->found, e);
}

static int read_table(struct ledger_audit *a, enum key_table table, struct err *e)
{
    struct key from, to;
    int rc = 0;

    key_table(&from, table, a->result.tenant);
    put_u32be(from.b + from.len, a->result.scope);
    from.len += 4;
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(a->v->kv, a->v->snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it))
        rc = read_row(a, table, kv_iter_key(it), kv_iter_value(it), e);
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

/* ---- what is to be read ---- */

static int add_cover(struct ledger_audit *a, size_t i, struct err *e)
{
    struct ledger_part *p = &a->parts.ptr[i];
    struct dirty_set dirty = { 0 };
    struct cover c = { 0 };
    struct cover_in in = {
        .from = p->floors.at[KEY_LEVELS - 1],
        .to = SLOTS_END,
        .floors = &p->floors,
        .dirty = &dirty,
    };
    int rc =
        dirty_load(&dirty, &(struct kv_view){ a->v->kv, a->v->snap }, &p->m, in.from, in.to, e);

    if (!rc)
        cover_make(&in, &c);
    for (size_t k = 0; !rc && k < c.runs.len; k++) {
        const struct cover_run *r = &c.runs.ptr[k];
        vec_push(&a->runs, ((struct ledger_run){ i, LEDGER_LEVELS, r->level, r->from, r->to }));
    }
    cover_deinit(&c);
    dirty_deinit(&dirty);
    return rc;
}

static void add_base(struct ledger_audit *a, size_t i)
{
    const struct floors *f = &a->parts.ptr[i].floors;

    for (uint32_t l = 0, to = SLOTS_END; l < KEY_LEVELS; l = level_above(false, l)) {
        if (f->at[l] < to)
            vec_push(&a->runs, ((struct ledger_run){ i, LEDGER_BASE, l, f->at[l], to }));
        to = MIN(to, f->at[l]);
    }
}

static int begin(struct ledger_audit *a, bool deep, struct err *e)
{
    static const enum key_table tables[] = {
        KEY_ACTIVE,       KEY_LEDGER_IN,    KEY_LEDGER_OUT,
        KEY_LEDGER_FOUND, KEY_LEDGER_WHOLE, KEY_LEDGER_ACCEPTED
    };
    struct purging purging = { 0 };
    int rc = purging_load(&purging, a->v->kv, a->v->snap, e);

    a->result.skipped = !rc && purging_has(&purging, a->result.tenant, a->result.scope);
    vec_free(&purging.at);
    a->begun = true;
    for (size_t i = 0; !rc && !a->result.skipped && i < ARRAY_LEN(tables); i++)
        rc = read_table(a, tables[i], e);
    for (size_t i = 0; !rc && i < a->parts.len; i++) {
        struct ledger_part *p = &a->parts.ptr[i];
        rc = floors_load(a->v->kv, a->v->snap, &p->m, &p->floors, e);
        if (!rc)
            rc = add_cover(a, i, e);
    }
    for (size_t i = 0; !rc && deep && i < a->parts.len; i++)
        add_base(a, i);
    for (size_t i = 0; i < a->parts.len; i++)
        a->first = a->first || !a->parts.ptr[i].counted;
    a->result.deep = deep;
    return rc;
}

/* ---- unsealed rows ---- */

static void seek_raw(const struct ledger_audit *a, uint32_t bucket, struct key *k)
{
    key_raw_scope(k, bucket, a->result.tenant, a->result.scope);
}

static int count_raw(struct ledger_audit *a, struct str key, struct str value, struct err *e)
{
    struct ledger_sum one;
    struct raw_row row;
    struct member m;
    const uint8_t *wid;
    uint32_t t;

    if (!key_raw_read(key, &m, &t, &wid))
        return err_set(e, ERR_CORRUPT, "raw key of %zu bytes", key.len);
    if (raw_row_read(value, &row, e) || ledger_of(row.vector, &one, e))
        return e->code;
    ledger_add(&bucket_of(part_of(a, m.ptype), ledger_bucket(t))->at[LEDGER_RAW], &one);
    return 0;
}

static int raw_low(struct ledger_audit *a, uint32_t *ret, struct err *e)
{
    char bytes[16];
    struct buf row = { .ptr = bytes, .cap = sizeof(bytes), .max = sizeof(bytes) };
    struct key k;

    *ret = 0;
    key_control(&k, CONTROL_RAW_LOW);
    int rc = kv_get(a->v->kv, a->v->snap, KV_META, key_str(&k), &row, e);
    if (!rc && !key_u32_read(buf_str(&row), ret))
        rc = err_set(e, ERR_CORRUPT, "control value %d has %zu bytes", CONTROL_RAW_LOW, row.len);
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

/* Where to look next: >= `key`, among the rows of the service. False: the row under it is one. */
static bool raw_elsewhere(const struct ledger_audit *a, struct str key, struct key *ret)
{
    uint64_t here, ours = (uint64_t)a->result.tenant << 32 | a->result.scope;

    if (key.len < KEY_RAW_SCOPE_LEN)
        return false;
    here = get_u64be(key.ptr + 4);
    if (here == ours)
        return false;
    seek_raw(a, get_u32be(key.ptr) + (here > ours), ret);
    return true;
}

static int walk_raw(struct ledger_audit *a, size_t *rows, struct err *e)
{
    uint32_t low = 0;
    struct key k;
    int rc = 0;

    if (!a->in_run) {
        rc = raw_low(a, &low, e);
        seek_raw(a, low, &a->next);
        a->in_run = true;
    }
    if (rc)
        return rc;
    struct kv_iter *it = kv_iter_new(a->v->kv, a->v->snap, KV_RAW, key_str(&a->next), STR_NULL);
    for (; !rc && *rows && kv_iter_valid(it); --*rows) {
        if (raw_elsewhere(a, kv_iter_key(it), &k)) {
            kv_iter_seek(it, key_str(&k));
            continue;
        }
        rc = count_raw(a, kv_iter_key(it), kv_iter_value(it), e);
        a->result.rows++;
        kv_iter_next(it);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    if (!rc && kv_iter_valid(it)) {
        a->next.len = MIN(kv_iter_key(it).len, sizeof(a->next.b));
        memcpy(a->next.b, kv_iter_key(it).ptr, a->next.len);
    } else {
        a->raw = true;
        a->in_run = false;
    }
    kv_iter_free(it);
    return rc;
}

/* ---- sealed rows ---- */

static void seek_bucket(const struct ledger_run *r, const struct member *m, uint64_t bucket,
                        struct key *k)
{
    struct member first = *m;

    first.series = 0;
    key_member(k, r->level, &first, 0);
    put_u32be(k->b + 1, (uint32_t)MIN(bucket, (uint64_t)UINT32_MAX));
    put_u32be(k->b + KEY_MEMBER_HEAD, 0);
}

enum place { ROW, ELSEWHERE, END };

/* ROW: the key is one of the run. ELSEWHERE: *ret is the next place where one may be. */
static enum place classify(const struct ledger_run *r, const struct member *m, struct str key,
                           struct key *ret)
{
    struct key part;

    uint64_t bucket = get_u32be(key.ptr + 1);
    if (bucket * LEVELS[r->level].bucket >= r->to)
        return END;
    seek_bucket(r, m, bucket, &part);
    int order = memcmp(key.ptr + 5, part.b + 5, 10);
    if (order) {
        seek_bucket(r, m, bucket + (order > 0), ret);
        return ELSEWHERE;
    }
    uint32_t t = get_u32be(key.ptr + KEY_MEMBER_HEAD);
    if (t >= r->from && t < r->to)
        return ROW;
    memcpy(ret->b, key.ptr, KEY_MEMBER_LEN);
    ret->len = KEY_MEMBER_LEN;
    if (t < r->from) {
        put_u32be(ret->b + KEY_MEMBER_HEAD, r->from);
    } else {
        put_u32be(ret->b + KEY_MEMBER_HEAD, UINT32_MAX);
        ret->b[ret->len++] = 0; /* behind the series */
    }
    return ELSEWHERE;
}

/* Rows of the run in `it`; *ret_done: all of them. */
static int walk_iter(struct ledger_audit *a, const struct ledger_run *r, struct kv_iter *it,
                     size_t *rows, bool *ret_done, struct err *e)
{
    struct ledger_part *p = &a->parts.ptr[r->part];
    struct ledger_sum one;
    struct key k;
    int rc = 0;

    for (*ret_done = false; !rc && *rows && kv_iter_valid(it); --*rows) {
        struct str key = kv_iter_key(it);
        if (!key.len || (uint8_t)key.ptr[0] != r->level)
            break;
        if (key.len != KEY_MEMBER_LEN)
            return err_set(e, ERR_CORRUPT, "key of a sealed row has %zu bytes", key.len);
        enum place what = classify(r, &p->m, key, &k);
        if (what == END)
            break;
        if (what == ELSEWHERE) {
            kv_iter_seek(it, key_str(&k));
            continue;
        }
        rc = ledger_of(kv_iter_value(it), &one, e);
        if (rc)
            return rc;
        uint32_t t = get_u32be(key.ptr + KEY_MEMBER_HEAD);
        ledger_add(&bucket_of(p, ledger_bucket(t))->at[r->where], &one);
        a->result.rows++;
        a->deep_rows += r->where == LEDGER_BASE;
        kv_iter_next(it);
    }
    *ret_done = *rows > 0;
    return kv_iter_status(it, e);
}

/* Nothing can be said of the buckets that the run is of. */
static void note_away(struct ledger_audit *a, const struct ledger_run *r)
{
    struct ledger_part *p = &a->parts.ptr[r->part];

    vec_for (i, &p->buckets)
        if (p->buckets.ptr[i].number >= ledger_bucket(r->from) &&
            p->buckets.ptr[i].number <= ledger_bucket(r->to - 1))
            p->buckets.ptr[i].away = true;
}

static int walk_run(struct ledger_audit *a, size_t *rows, struct err *e)
{
    const struct ledger_run *r = &a->runs.ptr[a->run];
    const struct member *m = &a->parts.ptr[r->part].m;
    enum kv_cf cf = r->level < 2 ? KV_FINE : KV_COARSE;
    bool done;

    if (!a->in_run)
        seek_bucket(r, m, r->from / LEVELS[r->level].bucket, &a->next);
    struct cold_read *reach = cold_read();
    if (reach)
        reach->met = false;
    struct kv_iter *it = kv_iter_new(a->v->kv, a->v->snap, cf, key_str(&a->next), STR_NULL);
    int rc = walk_iter(a, r, it, rows, &done, e);
    if (reach && reach->met)
        note_away(a, r);
    a->in_run = !rc && !done && kv_iter_valid(it);
    if (a->in_run) {
        a->next.len = MIN(kv_iter_key(it).len, sizeof(a->next.b));
        memcpy(a->next.b, kv_iter_key(it).ptr, a->next.len);
    }
    kv_iter_free(it);
    if (!rc && !a->in_run) {
        a->run++;
        *rows -= *rows > 0;
    }
    return rc;
}

/* ---- comparing ---- */

bool ledger_same(const struct ledger_sum *x, const struct ledger_sum *y, bool rows)
{
    if ((rows && x->rows != y->rows) || x->writes != y->writes)
        return false;
    return x->saturated || y->saturated || (x->total == y->total && x->fp == y->fp);
}

struct ledger_sum ledger_want_raw(const struct ledger_node *b)
{
    struct ledger_sum x = b->in;

    ledger_add(&x, &b->found.raw);
    ledger_sub(&x, &b->out.sealed);
    ledger_sub(&x, &b->out.deleted_raw);
    return x;
}

struct ledger_sum ledger_want_sealed(const struct ledger_node *b)
{
    struct ledger_sum x = b->out.sealed;

    ledger_add(&x, &b->found.sealed);
    ledger_sub(&x, &b->out.deleted);
    ledger_sub(&x, &b->out.expired);
    return x;
}

struct ledger_sum ledger_want(const struct ledger_node *b, enum ledger_where where)
{
    bool raw = where == LEDGER_RAW;
    struct ledger_sum want = raw ? ledger_want_raw(b) : ledger_want_sealed(b);

    if (b->adjust.rows && !ledger_same(&want, &b->at[where], raw))
        ledger_add(&want, raw                      ? &b->adjust.raw
                          : where == LEDGER_LEVELS ? &b->adjust.levels
                                                   : &b->adjust.base);
    return want;
}

static void find(struct ledger_audit *a, const struct ledger_part *p, const struct ledger_node *b,
                 enum ledger_where where, const struct ledger_sum *want)
{
    const struct ledger_sum *got = &b->at[where];
    struct ledger_result *r = &a->result;
    struct ledger_finding f = { where, p->m, b->number, *want, *got, "" };
    struct err text;

    r->difference++;
    if (r->findings.len == LEDGER_FINDINGS_MAX) {
        r->more++;
        return;
    }
    (void)err_set(&text, ERR_CORRUPT,
                  "%s of service %.*s, profile type %u, 64 days from slot %u: %" PRIu64
                  " writes (values %" PRIu64 ", F %016" PRIx64 ") must be there, %" PRIu64
                  " (%" PRIu64 ", %016" PRIx64 ") are",
                  ledger_where_names[where], (int)MIN(r->service.len, 100), r->service.ptr,
                  p->m.ptype, b->number * LEDGER_BUCKET, want->writes, want->total, want->fp,
                  got->writes, got->total, got->fp);
    memcpy(f.text, text.text, sizeof(f.text));
    vec_push(&r->findings, f);
}

static void count_off(struct ledger_result *r, uint64_t want, uint64_t found)
{
    int64_t off = (int64_t)(want - found);

    if (off > 0)
        r->lost += (uint64_t)off;
    else
        r->doubled += (uint64_t)-off;
}

static void compare_bucket(struct ledger_audit *a, const struct ledger_part *p,
                           const struct ledger_node *b)
{
    struct ledger_sum raw = ledger_want(b, LEDGER_RAW), sealed = ledger_want(b, LEDGER_LEVELS);
    struct ledger_sum finest = ledger_want(b, LEDGER_BASE);
    struct ledger_result *r = &a->result;

    r->want += raw.writes;
    r->found += b->at[LEDGER_RAW].writes;
    if (!ledger_same(&raw, &b->at[LEDGER_RAW], true)) {
        find(a, p, b, LEDGER_RAW, &raw);
        count_off(r, raw.writes, b->at[LEDGER_RAW].writes);
    }
    if (b->out.closed)
        return;
    if (b->away) {
        r->away += sealed.writes;
        return;
    }
    r->want += sealed.writes;
    r->found += b->at[LEDGER_LEVELS].writes;
    bool levels = ledger_same(&sealed, &b->at[LEDGER_LEVELS], false);
    bool base = !r->deep || ledger_same(&finest, &b->at[LEDGER_BASE], false);
    if (!levels)
        find(a, p, b, LEDGER_LEVELS, &sealed);
    if (!base)
        find(a, p, b, LEDGER_BASE, &finest);
    if (!levels)
        count_off(r, sealed.writes, b->at[LEDGER_LEVELS].writes);
    else if (!base)
        count_off(r, finest.writes, b->at[LEDGER_BASE].writes);
}

static void compare(struct ledger_audit *a)
{
    vec_for (i, &a->parts) {
        const struct ledger_part *p = &a->parts.ptr[i];
        if (!p->counted)
            a->result.adopt = true;
        for (size_t k = 0; p->counted && k < p->buckets.len; k++)
            compare_bucket(a, p, &p->buckets.ptr[k]);
    }
}

int store_ledger_audit(struct ledger_audit *a, size_t rows_max, size_t deep_max, bool *ret_done,
                       struct err *e)
{
    size_t rows = MAX(rows_max, 1u);
    int rc = 0;

    *ret_done = false;
    if (!a->begun)
        rc = begin(a, deep_max > 0, e);
    if (!rc && a->result.skipped) {
        *ret_done = true;
        return 0;
    }
    if (a->first && cold_read())
        cold_read()->local = false;
    while (!rc && rows && (!a->raw || a->run < a->runs.len)) {
        rc = a->raw ? walk_run(a, &rows, e) : walk_raw(a, &rows, e);
        if (!rc && a->deep_rows > deep_max && a->result.deep) { /* the rest is base, too */
            a->result.deep = false;
            a->run = a->runs.len;
            a->in_run = false;
        }
    }
    if (rc)
        return err_wrap(e, "service %.*s", (int)MIN(a->result.service.len, 100),
                        a->result.service.ptr);
    *ret_done = a->raw && a->run >= a->runs.len;
    if (*ret_done)
        compare(a);
    return 0;
}

const struct ledger_result *ledger_audit_result(const struct ledger_audit *a)
{
    return &a->result;
}

/* ---- life ---- */

static void keep_name(struct ledger_audit *a, size_t i, struct str name, struct str *ret)
{
    size_t len = MIN(name.len, sizeof(a->names[i]));

    memcpy(a->names[i], name.ptr, len);
    *ret = str_n(a->names[i], len);
}

static int read_names(struct ledger_audit *a, struct str scope_row, struct err *e)
{
    struct tenant_row tenant;
    struct str service;
    struct buf row;
    uint32_t epoch;
    struct key k;
    int rc = scope_row_read(scope_row, &epoch, &service, e);

    if (rc)
        return rc;
    keep_name(a, 1, service, &a->result.service);
    buf_init(&row, MIB);
    key_tenant(&k, a->result.tenant);
    rc = kv_get(a->v->kv, a->v->snap, KV_META, key_str(&k), &row, e);
    if (!rc)
        rc = tenant_row_read(buf_str(&row), &tenant, e);
    if (!rc)
        keep_name(a, 0, tenant.name, &a->result.tenant_name);
    buf_deinit(&row);
    return rc;
}

int store_ledger_next(struct store_view *v, uint32_t tenant, uint32_t scope,
                      struct ledger_audit **ret, struct err *e)
{
    struct ledger_audit *a = XNEW(struct ledger_audit);
    struct key from, to = { .len = 1, .b = { KEY_SCOPE } };
    bool found;

    *ret = NULL;
    a->v = v;
    a->result.engine_ms = v->engine_ms;
    key_scope(&from, tenant, scope);
    from.b[from.len++] = 0; /* the least key behind it */
    key_end(&to);
    a->generation = ledger_generation(v->s);
    struct kv_iter *it = kv_iter_new(v->kv, v->snap, KV_META, key_str(&from), key_str(&to));
    found = kv_iter_valid(it);
    int rc = kv_iter_status(it, e);
    if (found && kv_iter_key(it).len != 9)
        rc = err_set(e, ERR_CORRUPT, "key of a service has %zu bytes", kv_iter_key(it).len);
    if (!rc && found) {
        a->result.tenant = get_u32be(kv_iter_key(it).ptr + 1);
        a->result.scope = get_u32be(kv_iter_key(it).ptr + 5);
        rc = read_names(a, kv_iter_value(it), e);
    }
    kv_iter_free(it);
    if (!rc && found)
        *ret = a;
    else
        ledger_audit_free(a);
    return rc;
}

int store_ledger_of(struct store_view *v, uint32_t tenant, uint32_t scope,
                    struct ledger_audit **ret, struct err *e)
{
    struct ledger_audit *a = NULL;
    int rc = scope ? store_ledger_next(v, tenant, scope - 1, &a, e) : 0;

    *ret = NULL;
    if (!rc && a && a->result.tenant == tenant && a->result.scope == scope)
        *ret = a;
    else
        ledger_audit_free(a);
    return rc;
}

void ledger_audit_free(struct ledger_audit *a)
{
    if (!a)
        return;
    vec_for (i, &a->parts)
        vec_free(&a->parts.ptr[i].buckets);
    vec_free(&a->parts);
    vec_free(&a->runs);
    vec_free(&a->result.findings);
    xfree(a);
}
