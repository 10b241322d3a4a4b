/* SPDX-License-Identifier: Apache-2.0
 *
 * tomb: rows of deletes, and all of them in memory for the shard thread. The essay is in tomb.h.
 *
 * In memory since each push whose write id is known asks whether a delete forgot it, and since the
 * seal and the builds ask before each piece of work; there are at most some hundreds.
 */
#include "common/store/mask/tomb.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/catalog/derived.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

#define VERSION    1
#define ROW_MAX    MIB
#define TOMB_ARENA (4 * MIB)
#define LIST_ARENA "the list of deletes does not fit the request's memory"

/* ---- keys ---- */

void key_tomb(struct key *k, enum key_table table, uint32_t tenant, uint64_t entry)
{
    k->b[0] = (char)table;
    put_u32be(k->b + 1, tenant);
    put_u64be(k->b + 5, entry);
    k->len = KEY_TOMB_LEN;
}

void key_tomb_mask(struct key *k, uint32_t tenant, uint64_t entry, uint32_t scope, uint32_t chunk)
{
    key_tomb(k, KEY_TOMB_MASK, tenant, entry);
    put_u32be(k->b + 13, scope);
    put_u32be(k->b + 17, chunk);
    k->len = KEY_TOMB_MASK_LEN;
}

void key_tomb_span(struct key *k, uint32_t tenant, uint64_t entry, enum kv_cf cf, uint32_t lead,
                   uint32_t bucket)
{
    key_tomb(k, KEY_TOMB_SPAN, tenant, entry);
    k->b[13] = (char)cf;
    k->b[14] = (char)lead;
    put_u32be(k->b + 15, bucket);
    k->len = KEY_TOMB_SPAN_LEN;
}

bool key_tomb_span_read(struct str key, enum kv_cf *ret_cf, uint32_t *ret_lead,
                        uint32_t *ret_bucket)
{
    if (key.len != KEY_TOMB_SPAN_LEN || (uint8_t)key.ptr[13] >= KV_CFS)
        return false;
    *ret_cf = (enum kv_cf)key.ptr[13];
    *ret_lead = (uint8_t)key.ptr[14];
    *ret_bucket = get_u32be(key.ptr + 15);
    return true;
}

/* ---- rows ---- */

static void put_text(struct buf *out, struct str s)
{
    wr_varint(out, s.len);
    buf_add_str(out, s);
}

static bool get_text(struct rd *r, struct arena *a, struct str *ret)
{
    uint64_t n;

    if (!rd_varint(r, &n) || n > rd_left(r) || !rd_bytes(r, (size_t)n, ret))
        return false;
    *ret = arena_strdup(a, *ret);
    return ret->ptr != NULL;
}

void tomb_row_put(const struct tomb *t, struct buf *out)
{
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_u8(out, (uint8_t)t->kind);
    wr_u8(out, (uint8_t)t->state);
    wr_u64be(out, (uint64_t)t->created_ms);
    wr_u64be(out, (uint64_t)t->ended_ms);
    wr_u32be(out, t->from);
    wr_u32be(out, t->to);
    wr_varint(out, t->services);
    wr_varint(out, t->series);
    wr_varint(out, t->raw_rows);
    put_text(out, t->id);
    put_text(out, t->name);
    put_text(out, t->what);
    wr_varint(out, t->selector.len);
    for (size_t i = 0; i < t->selector.len; i++) {
        const struct matcher *m = &t->selector.matchers[i];
        wr_u8(out, (uint8_t)m->op);
        wr_u8(out, m->unanchored);
        put_text(out, m->name);
        put_text(out, m->value);
    }
    CHECK(buf_ok(out));
}

static bool get_selector(struct rd *r, struct tomb *t)
{
    uint64_t n;

    if (!rd_varint(r, &n) || n > rd_left(r) / 4)
        return false;
    t->selector.matchers = ARENA_ARRAY(t->arena, struct matcher, n + 1);
    if (!t->selector.matchers)
        return false;
    for (size_t i = 0; i < n; i++) {
        struct matcher *m = &t->selector.matchers[i];
        uint8_t op = 0, unanchored = 0;
        if (!rd_u8(r, &op) || op > MATCH_NRE || !rd_u8(r, &unanchored) || unanchored > 1 ||
            !get_text(r, t->arena, &m->name) || !get_text(r, t->arena, &m->value))
            return false;
        m->op = (enum match_op)op;
        m->unanchored = unanchored;
    }
    t->selector.len = (size_t)n;
    return true;
}

static bool get_row(struct rd *r, struct tomb *t)
{
    uint8_t version = 0, kind = 0, state = 0;
    uint64_t created, ended;

    if (!rd_u8(r, &version) || version != VERSION || !rd_u8(r, &kind) || kind < TOMB_TENANT ||
        kind > TOMB_RANGE || !rd_u8(r, &state) || state > TOMB_DONE || !rd_u64be(r, &created) ||
        !rd_u64be(r, &ended) || !rd_u32be(r, &t->from) || !rd_u32be(r, &t->to) ||
        !rd_varint(r, &t->services) || !rd_varint(r, &t->series) || !rd_varint(r, &t->raw_rows))
        return false;
    t->kind = (enum tomb_kind)kind;
    t->state = (enum tomb_state)state;
    t->created_ms = (int64_t)created;
    t->ended_ms = (int64_t)ended;
    return get_text(r, t->arena, &t->id) && get_text(r, t->arena, &t->name) &&
           get_text(r, t->arena, &t->what) && get_selector(r, t);
}

int tomb_row_read(struct str key, struct str row, struct tomb *ret, struct err *e)
{
    struct rd r = rd_of(row);

    if (key.len != KEY_TOMB_LEN)
        return err_set(e, ERR_CORRUPT, "key of a delete has %zu bytes", key.len);
    ret->tenant = get_u32be(key.ptr + 1);
    ret->entry = get_u64be(key.ptr + 5);
    if (!get_row(&r, ret) || rd_left(&r))
        return err_set(e, ERR_CORRUPT, "row of a delete of %zu bytes is not one of version %d",
                       row.len, VERSION);
    return 0;
}

void tomb_at_put(const struct tomb *t, struct buf *out)
{
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_u8(out, t->phase);
    wr_varint(out, t->rows);
    wr_varint(out, t->bytes);
    wr_u32be(out, t->done);
    wr_u32be(out, t->of);
    buf_add_str(out, buf_str(&t->cursor));
    CHECK(buf_ok(out));
}

int tomb_at_read(struct str row, struct tomb *ret, struct err *e)
{
    struct rd r = rd_of(row);
    uint8_t version = 0;

    if (!rd_u8(&r, &version) || version != VERSION || !rd_u8(&r, &ret->phase) ||
        !rd_varint(&r, &ret->rows) || !rd_varint(&r, &ret->bytes) || !rd_u32be(&r, &ret->done) ||
        !rd_u32be(&r, &ret->of))
        return err_set(e, ERR_CORRUPT, "progress of a delete of %zu bytes is not one of version %d",
                       row.len, VERSION);
    buf_reset(&ret->cursor);
    buf_add_str(&ret->cursor, str_sub(row, row.len - rd_left(&r), row.len));
    return 0;
}

/* ---- one in memory ---- */

struct tomb *tomb_new(void)
{
    struct tomb *t = XNEW(struct tomb);

    t->arena = arena_new(TOMB_ARENA);
    buf_init(&t->cursor, 64 * KIB);
    return t;
}

void tomb_free(struct tomb *t)
{
    if (!t)
        return;
    selector_deinit(&t->selector);
    masks_deinit(&t->masks);
    buf_deinit(&t->cursor);
    arena_free(t->arena);
    xfree(t);
}

int tomb_load_masks(struct store *s, struct tomb *t, struct err *e)
{
    size_t n = 0;
    int rc = masks_load(&t->masks, s->kv, NULL, t->tenant, e);

    vec_for (i, &t->masks.at)
        if (t->masks.at.ptr[i].entry == t->entry)
            t->masks.at.ptr[n++] = t->masks.at.ptr[i];
    t->masks.at.len = n;
    return rc;
}

static int read_progress(struct kv *kv, const struct kv_snap *snap, struct tomb *t, struct buf *row,
                         struct err *e)
{
    struct key k;

    key_tomb(&k, KEY_TOMB_AT, t->tenant, t->entry);
    int rc = kv_get(kv, snap, KV_META, key_str(&k), row, e);
    if (rc == ERR_NOT_FOUND)
        return 0;
    return rc ? rc : tomb_at_read(buf_str(row), t, e);
}

/* ---- phases of purging ---- */

#define PHASES_MAX 6
static const struct {
    uint8_t len;
    uint8_t at[PHASES_MAX];
} phases[] = {
    [TOMB_TENANT] = { 2, { TOMB_RANGES, TOMB_TABLES } },
    [TOMB_SERVICES] = { 5, { TOMB_RANGES, TOMB_LABELS, TOMB_POSTINGS, TOMB_PAIRS, TOMB_TABLES } },
    [TOMB_SERIES] = { 5, { TOMB_GROUPS, TOMB_ROWS, TOMB_POSTINGS, TOMB_PAIRS, TOMB_DAYS } },
    [TOMB_RANGE] = { 6,
                     { TOMB_MARKS, TOMB_GROUPS, TOMB_ROWS, TOMB_POSTINGS, TOMB_PAIRS, TOMB_DAYS } },
};
/* For the list of deletes. */
static const char *const phase_words[] = {
    [TOMB_RANGES] = "rows of whole services",
    [TOMB_LABELS] = "label sets",
    [TOMB_POSTINGS] = "label index",
    [TOMB_PAIRS] = "label values",
    [TOMB_TABLES] = "dictionaries and names",
    [TOMB_MARKS] = "edges of the range",
    [TOMB_GROUPS] = "roll-ups of those who stay",
    [TOMB_ROWS] = "rows of series",
    [TOMB_DAYS] = "days with data",
};

uint32_t tomb_phase_count(const struct tomb *t)
{
    return phases[t->kind].len;
}

enum tomb_phase tomb_phase_at(const struct tomb *t)
{
    CHECK(t->phase < tomb_phase_count(t));
    return (enum tomb_phase)phases[t->kind].at[t->phase];
}

const char *tomb_phase(const struct tomb *t)
{
    if (t->state == TOMB_DONE)
        return "";
    if (t->state == TOMB_PURGED)
        return "files";
    if (!t->of)
        return "waiting";
    return t->phase < tomb_phase_count(t) ? phase_words[tomb_phase_at(t)] : "";
}

/* ---- all in memory ---- */

static int by_entry(const void *a, const void *b)
{
    const struct tomb *x = *(const struct tomb *const *)a, *y = *(const struct tomb *const *)b;

    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

typedef int (*tomb_fn)(void *cookie, struct tomb *t, struct err *e);

/* Calls fn, which takes the tomb over, for each row. */
static int each_row(struct kv *kv, const struct kv_snap *snap, tomb_fn fn, void *cookie,
                    struct err *e)
{
    struct key from = { .len = 1, .b = { KEY_TOMB } }, to = from;
    struct buf row;
    int rc = 0;

    key_end(&to);
    buf_init(&row, ROW_MAX);
    struct kv_iter *it = kv_iter_new(kv, snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct tomb *t = tomb_new();
        rc = tomb_row_read(kv_iter_key(it), kv_iter_value(it), t, e);
        if (!rc)
            rc = read_progress(kv, snap, t, &row, e);
        if (rc)
            tomb_free(t);
        else
            rc = fn(cookie, t, e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    buf_deinit(&row);
    return rc;
}

static int remember(void *cookie, struct tomb *t, struct err *e)
{
    struct store *s = cookie;
    struct tombs *all = s->tombs;

    vec_push(&all->at, t);
    all->last = MAX(all->last, t->entry);
    tomb_guard(s, t, true);
    if (t->state != TOMB_PURGING)
        return 0;
    all->pending++;
    all->ranges += t->kind == TOMB_RANGE;
    return tomb_load_masks(s, t, e);
}

struct tombs *tombs_new(void)
{
    return XNEW(struct tombs);
}

int tombs_open(struct store *s, struct err *e)
{
    int rc = each_row(s->kv, NULL, remember, s, e);
    if (s->tombs->at.len)
        qsort(s->tombs->at.ptr, s->tombs->at.len, sizeof(*s->tombs->at.ptr), by_entry);
    return rc;
}

void tombs_close(struct tombs *t)
{
    if (!t)
        return;
    vec_for (i, &t->at)
        tomb_free(t->at.ptr[i]);
    vec_free(&t->at);
    xfree(t);
}

/* ---- what others ask ---- */

bool tombs_pending_on(const struct store *s, uint32_t tenant, uint32_t scope)
{
    const struct tombs *all = s->tombs;

    for (size_t i = 0; all->pending && i < all->at.len; i++) {
        const struct tomb *t = all->at.ptr[i];
        if (t->state == TOMB_PURGING && t->tenant == tenant &&
            (t->kind == TOMB_TENANT || masks_members(&t->masks, scope)))
            return true;
    }
    return false;
}

bool tombs_hold(const struct store *s, const struct member *m, uint32_t slot)
{
    const struct tombs *all = s->tombs;

    for (size_t i = 0; all->ranges && i < all->at.len; i++) {
        const struct tomb *t = all->at.ptr[i];
        if (t->state == TOMB_PURGING && t->tenant == m->tenant && t->kind == TOMB_RANGE &&
            masks_hide(&t->masks, m->scope, m->ptype, m->series, slot))
            return true;
    }
    return false;
}

bool tombs_newer_than(const struct store *s, uint64_t applied)
{
    return s->tombs->last > applied;
}

void store_delete_stats(const struct store *s, struct tomb_stats *ret)
{
    const struct tombs *all = s->tombs;

    *ret = (struct tomb_stats){
        .pending = all->pending,
        .deletes = all->deletes,
        .rows = all->rows,
        .bytes = all->bytes,
        .rollups_restarted = all->rollups_restarted,
    };
    vec_for (i, &all->at)
        ret->purged += all->at.ptr[i]->state == TOMB_PURGED;
}

/* ---- selectors ---- */

bool tomb_by_service(const struct matcher *m)
{
    return str_eq(m->name, SERVICE_LABEL) || derived_find(m->name) == DERIVED_SERVICE;
}

bool tomb_by_type(const struct matcher *m)
{
    return derived_find(m->name) >= 0 && derived_find(m->name) != DERIVED_SERVICE;
}

int tomb_selects(const struct selector *sel, const struct labels *l, struct str profile_type,
                 struct err *e)
{
    struct ptype parts;

    if (ptype_parse(profile_type, &parts, e))
        return -1;
    for (size_t i = 0; i < sel->len; i++) {
        const struct matcher *m = &sel->matchers[i];
        struct str value = tomb_by_service(m) ? labels_get(l, SERVICE_LABEL)
                           : tomb_by_type(m)  ? derived_value((enum derived)derived_find(m->name),
                                                              profile_type, &parts)
                                              : labels_get(l, m->name);
        int yes = matcher_match(m, value, e);
        if (yes <= 0)
            return yes;
    }
    return 1;
}

/* False for a delete that matched nothing: its tomb exists only to remember the request id. */
static bool tomb_took(const struct tomb *t)
{
    return t->kind == TOMB_TENANT || t->services;
}

/* Is all of the push, known by this row, deleted by t? */
static int forgot(struct tomb *t, const struct labels *l, const struct tomb_push *push,
                  const struct wid_row *row, struct err *e)
{
    if (row->entry >= t->entry || push->first < t->from || push->last >= t->to || !tomb_took(t))
        return 0;
    if (!t->compiled && selector_compile(&t->selector, e))
        return -1;
    t->compiled = true;
    return tomb_selects(&t->selector, l, push->profile_type, e);
}

int tombs_forgot(struct store *s, const struct tomb_push *push, const struct wid_row *row,
                 const struct tomb **ret, struct err *e)
{
    const struct tombs *all = s->tombs;
    struct labels l;
    int yes = 0;

    *ret = NULL;
    if (row->entry >= all->last)
        return 0;
    struct arena *a = arena_new(4 * MIB);
    int rc = labels_decode(push->labels, a, &l, e);
    for (size_t i = all->at.len; !rc && yes == 0 && i > 0; i--) {
        *ret = all->at.ptr[i - 1];
        if ((*ret)->tenant == push->tenant)
            yes = forgot(all->at.ptr[i - 1], &l, push, row, e);
    }
    arena_free(a);
    *ret = yes > 0 ? *ret : NULL;
    return rc ? rc : yes < 0 ? e->code : 0;
}

/* ---- the list ---- */

struct listing {
    struct store_view *v;
    struct str tenant;
    struct arena *arena;
    struct tomb_list *ret;
};

static int64_t bound_ms(uint32_t slot)
{
    return slot == 0 || slot == UINT32_MAX ? 0 : slot_to_ms(slot);
}

/* Rows of table 63. */
static bool any_range(const struct listing *x, const struct tomb *t)
{
    struct key from, to;

    key_tomb(&from, KEY_TOMB_SPAN, t->tenant, t->entry);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(x->v->kv, x->v->snap, KV_META, key_str(&from), key_str(&to));
    bool any = kv_iter_valid(it);
    kv_iter_free(it);
    return any;
}

static int list_one(void *cookie, struct tomb *t, struct err *e)
{
    struct listing *x = cookie;

    if (x->tenant.len && !str_eq(x->tenant, t->name)) { /* takes none of the memory */
        tomb_free(t);
        return 0;
    }
    struct tomb_info i = {
        .entry = t->entry,
        .kind = t->kind,
        .state = t->state,
        .id = arena_strdup(x->arena, t->id),
        .tenant = arena_strdup(x->arena, t->name),
        .what = arena_strdup(x->arena, t->what),
        .created_ms = t->created_ms,
        .ended_ms = t->ended_ms,
        .from_ms = bound_ms(t->from),
        .to_ms = bound_ms(t->to),
        .services = t->services,
        .series = t->series,
        .raw_rows = t->raw_rows,
        .rows = t->rows,
        .bytes = t->bytes,
        .done = t->done,
        .of = t->of,
        .phase = tomb_phase(t),
        .ranges_left = t->state != TOMB_PURGING && any_range(x, t),
    };

    tomb_free(t);
    if (!i.id.ptr || !i.tenant.ptr || !i.what.ptr)
        return err_set(e, ERR_LIMIT, LIST_ARENA);
    vec_push(&x->ret->at, i);
    return 0;
}

static int newest_first(const void *a, const void *b)
{
    const struct tomb_info *x = a, *y = b;

    return x->entry > y->entry ? -1 : x->entry < y->entry;
}

int store_deletes(struct store_view *v, struct str tenant, struct arena *a, struct tomb_list *ret,
                  struct err *e)
{
    struct listing x = { v, tenant, a, ret };

    *ret = (struct tomb_list){ 0 };
    int rc = each_row(v->kv, v->snap, list_one, &x, e);
    if (rc)
        tomb_list_deinit(ret);
    else if (ret->at.len)
        qsort(ret->at.ptr, ret->at.len, sizeof(*ret->at.ptr), newest_first);
    return rc;
}

void tomb_list_deinit(struct tomb_list *l)
{
    vec_free(&l->at);
}
