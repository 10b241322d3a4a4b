/* SPDX-License-Identifier: Apache-2.0
 *
 * check_walk: walks rows for the rules, hands each to a rule and keeps what it says. Rows in the
 * cold tier are left out where the reads of this thread may not go there (cold_read.h).
 */
#include "common/base/mem.h"
#include "common/store/check/check_impl.h"
#include "common/store/kv/cold_read.h"
#include "common/store/state/view.h"

#define PROGRESS_EVERY 65536

#define CHECK_KIND_NAME(id, name, help) [id] = name,
const char *const check_kind_names[CHECK_KINDS_LEN] = { CHECK_KINDS(CHECK_KIND_NAME) };

void *check_find(struct check *c, enum check_map map, struct str key)
{
    return map_str_get(c->maps[map], key);
}

void *check_entry(struct check *c, enum check_map map, struct str key, size_t size)
{
    void *p = check_find(c, map, key);

    if (!p) {
        p = arena_calloc(c->arena, 1, size);
        struct str kept = arena_strdup(c->arena, key);
        CHECK(p && kept.ptr);
        map_str_put(c->maps[map], kept, p);
    }
    return p;
}

void check_begin(struct check *c, enum check_kind kind)
{
    c->kind = kind;
    if (c->o.progress)
        c->o.progress(c->o.cookie, kind, c->report->rows[kind]);
}

int check_found(struct check *c, int rc, struct err *e)
{
    struct cold_read *reach = cold_read();

    if (!rc || rc != ERR_CORRUPT)
        return rc;
    if (reach && reach->met) {
        c->report->left_out++;
        err_clear(e);
        return 0;
    }
    uint64_t n = ++c->report->findings[c->kind];
    if (c->strict)
        return err_wrap(e, "%s", check_kind_names[c->kind]);
    if (c->o.found && n <= c->o.shown_max)
        c->o.found(c->o.cookie, c->kind, e->text);
    err_clear(e);
    return 0;
}

void check_here(void)
{
    struct cold_read *reach = cold_read();

    if (reach)
        reach->met = false;
}

bool check_is_away(void)
{
    const struct cold_read *reach = cold_read();

    return reach && reach->met;
}

int check_row(struct check *c, struct err *e)
{
    uint64_t n = ++c->report->rows[c->kind];

    check_here();
    if (n % PROGRESS_EVERY == 0 && c->o.progress)
        c->o.progress(c->o.cookie, c->kind, n);
    if (c->o.cancel && atomic_load_explicit(c->o.cancel, memory_order_relaxed))
        return err_set(e, ERR_CANCELED, "the check was stopped");
    return 0;
}

int check_each(struct check *c, enum kv_cf cf, unsigned table, size_t key_min, check_fn fn,
               struct err *e)
{
    struct key from = { .len = table ? 1 : 0, .b = { (char)table } }, to = from;
    int rc = 0;

    if (table)
        key_end(&to);
    struct kv_iter *it =
        kv_iter_new(c->v->kv, c->v->snap, cf, key_str(&from), table ? key_str(&to) : STR_NULL);
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        rc = check_row(c, e);
        if (rc)
            break;
        rc = check_found(c,
                         key.len < key_min
                             ? err_set(e, ERR_CORRUPT, "a key of %zu bytes is too short", key.len)
                             : fn(c, key, kv_iter_value(it), e),
                         e);
    }
    check_here();
    if (!rc && kv_iter_status(it, e)) {
        rc = e->code == ERR_CORRUPT ? err_wrap(e, "what follows could not be read") : e->code;
        rc = check_found(c, rc, e);
    }
    kv_iter_free(it);
    return rc;
}

int check_get(struct check *c, enum kv_cf cf, struct str key, const char *what, struct err *e)
{
    int rc = kv_get(c->v->kv, c->v->snap, cf, key, &c->row, e);

    return rc == ERR_NOT_FOUND ? err_set(e, ERR_CORRUPT, "%s is missing", what) : rc;
}
