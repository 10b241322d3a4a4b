/* SPDX-License-Identifier: Apache-2.0
 *
 * check_exm: the rules of exemplars.
 *
 *   rows     the vector is sound; its series exists and had data on that day; the index says the
 *            same duration and total
 *   index    leads to a row
 */
#include "common/store/check/check_impl.h"
#include "common/store/exemplar/exm.h"

static int on_index(struct check *c, const struct exm_ref *x, struct str value, struct err *e)
{
    struct exm_mark mark;
    struct exm_key k;

    exm_row_key(&k, x);
    return exm_mark_read(value, &mark, e) ||
                   check_get(c, KV_EXM, exm_key_str(&k), "the exemplar of an index row", e)
               ? e->code
               : 0;
}

static int on_row(struct check *c, const struct exm_ref *x, struct str value, struct err *e)
{
    struct exm_mark mark;
    struct vec_reader r;
    struct exm_row row;
    struct exm_key k;

    if (exm_row_read(value, &row, e) || check_member(c, &x->m, x->t, 1, e) ||
        check_vector(c, x->m.tenant, x->m.scope, row.vector, &r, e))
        return e->code;
    if (r.sections > 1 || r.meta.writes != 1)
        return err_set(e, ERR_CORRUPT, "%u epochs and %" PRIu64 " writes", r.sections,
                       r.meta.writes);
    exm_index_key(&k, x);
    if (check_get(c, KV_EXM, exm_key_str(&k), "its index row", e) ||
        exm_mark_read(buf_str(&c->row), &mark, e))
        return e->code;
    if (mark.total != r.meta.total || mark.duration_ms != row.duration_ms)
        return err_set(e, ERR_CORRUPT,
                       "total %" PRIu64 " of %u ms, its index row says %" PRIu64 " of %u ms",
                       r.meta.total, row.duration_ms, mark.total, mark.duration_ms);
    return 0;
}

static int on_exm(struct check *c, struct str key, struct str value, struct err *e)
{
    struct exm_ref x;
    bool index;

    if (!exm_key_read(key, &index, &x))
        return err_set(e, ERR_CORRUPT, "key of %zu bytes among exemplars", key.len);
    if (purging_has(&c->purging, x.m.tenant, x.m.scope))
        return 0;
    if (index ? on_index(c, &x, value, e) : on_row(c, &x, value, e))
        return err_wrap(e, "exemplar at slot %u of series %016" PRIx64, x.t, x.m.series);
    return 0;
}

int check_exemplars(struct check *c, struct err *e)
{
    check_begin(c, CHECK_EXM);
    return check_each(c, KV_EXM, 0, EXM_SCOPE_LEN + 1, on_exm, e);
}
