/* SPDX-License-Identifier: Apache-2.0
 *
 * check: asks all rules (check_*.c) of a database, one kind of rows after the other. Nothing is
 * written.
 *
 * Memory: the dictionaries, a few words per series and per unsealed row. Vectors and timelines are
 * compared as they stream by, both in the order of their keys.
 */
#include "common/store/check/check.h"

#include "common/base/mem.h"
#include "common/store/check/check_impl.h"
#include "common/store/state/view.h"

#define ROW_MAX   GIB
#define ARENA_MAX (SIZE_MAX / 2)

static int run(struct check *c, struct err *e)
{
    size_t pos = 0;
    struct str key;
    void *p;

    *c->report = (struct check_report){ 0 };
    c->arena = arena_new(ARENA_MAX);
    for (size_t i = 0; i < ARRAY_LEN(c->maps); i++)
        c->maps[i] = map_str_new();
    buf_init(&c->row, ROW_MAX);
    buf_init(&c->text, ROW_MAX);
    int rc = purging_load(&c->purging, c->v->kv, c->v->snap, e);
    if (!rc)
        rc = check_meta(c, e);
    if (!rc)
        rc = check_rows(c, e);
    if (!rc)
        rc = check_levels(c, e);
    if (!rc)
        rc = check_presence(c, e);
    if (!rc)
        rc = check_rollups(c, e);
    if (!rc)
        rc = check_exemplars(c, e);
    if (!rc)
        rc = check_docs(c, e);
    if (!rc)
        rc = check_ledger(c, e);
    while (map_str_next(c->maps[CHECK_MAP_DICTS], &pos, &key, &p))
        dict_free(*(struct dict **)p);
    for (size_t i = 0; i < ARRAY_LEN(c->maps); i++)
        map_str_free(c->maps[i]);
    buf_deinit(&c->row);
    buf_deinit(&c->text);
    arena_free(c->arena);
    vec_free(&c->purging.at);
    return rc;
}

int store_check(struct store_view *v, struct check_report *ret, struct err *e)
{
    struct check c = { .v = v, .report = ret, .strict = true };

    return run(&c, e);
}

int store_check_all(struct store_view *v, const struct check_opts *o, struct check_report *ret,
                    struct err *e)
{
    struct check c = { .v = v, .o = *o, .report = ret };

    return run(&c, e);
}

uint64_t check_findings(const struct check_report *r)
{
    uint64_t n = 0;

    for (size_t i = 0; i < CHECK_KINDS_LEN; i++)
        n += r->findings[i];
    return n;
}
