/* SPDX-License-Identifier: Apache-2.0
 *
 * build_merge: the rows of a job added up, id by id. Pure: the compactor runs it in a process of
 * its own. The same children give the same bytes, however they were cut into jobs, because a row
 * depends on nothing but its own children, and equal sums have one encoding (vec.h).
 */
#include "common/base/mem.h"
#include "common/store/build/build_state.h"
#include "common/store/codec/function_cost.h"

#define ROW_MAX GIB

struct merger {
    struct vecsum fold;
    struct rollup_row_sum rollup;
    struct buf out;
    VEC(struct str) bytes; /* of the rows of one id */
    struct arena *a;
    struct build_result *ret;
};

static int merge_vectors(struct merger *m, struct str *ret, struct err *e)
{
    int rc = 0;

    if (m->bytes.len == 1) { /* a sum of one is itself, byte for byte */
        *ret = m->bytes.ptr[0];
        return 0;
    }
    vecsum_begin(&m->fold);
    for (size_t i = 0; !rc && i < m->bytes.len; i++)
        rc = vecsum_add(&m->fold, m->bytes.ptr[i], e);
    if (!rc)
        rc = vecsum_end(&m->fold, &m->out, e);
    *ret = buf_str(&m->out);
    return rc;
}

static int merge_fn(struct merger *m, struct str *ret, struct err *e)
{
    int rc = function_cost_merge(m->bytes.ptr, m->bytes.len, &m->out, e);

    *ret = buf_str(&m->out);
    return rc;
}

static int merge_rollup(struct merger *m, struct str *ret, struct err *e)
{
    struct vec_meta meta;
    int rc = rollup_row_merge(&m->rollup, m->bytes.ptr, m->bytes.len, &m->out, &meta, e);

    *ret = buf_str(&m->out);
    return rc;
}

/* All rows of one id. */
static int merge_id(struct merger *m, const struct build_job *j, const struct build_row *r,
                    size_t n, struct err *e)
{
    struct build_row row = { .cf = r->cf, .id = r->id, .t = j->node.t };
    int rc;

    m->bytes.len = 0;
    for (size_t i = 0; i < n; i++)
        vec_push(&m->bytes, r[i].bytes);
    if (r->cf == KV_COARSE)
        rc = merge_vectors(m, &row.bytes, e);
    else if (r->cf == KV_RU)
        rc = merge_rollup(m, &row.bytes, e);
    else if (r->cf == KV_FN)
        rc = merge_fn(m, &row.bytes, e);
    else
        rc = err_set(e, ERR_CORRUPT, "rows of column family %d are not built", (int)r->cf);
    if (rc)
        return err_wrap(e, "sum of %zu rows of %016" PRIx64 " at slot %u", n, r->id, j->node.t);
    char *copy = arena_alloc(m->a, row.bytes.len);
    if (!copy)
        return err_set(e, ERR_LIMIT, "the sums of a job have more than %zu bytes",
                       arena_limit(m->a));
    memcpy(copy, row.bytes.ptr, row.bytes.len);
    row.bytes.ptr = copy;
    vec_push(&m->ret->rows, row);
    return 0;
}

int build_merge(const struct build_job *j, struct arena *a, struct build_result *ret, struct err *e)
{
    struct merger m = { .a = a, .ret = ret };
    int rc = 0;

    ret->rows.len = 0;
    vecsum_init(&m.fold);
    rollup_row_sum_init(&m.rollup);
    buf_init(&m.out, ROW_MAX);
    for (size_t i = 0, end; !rc && i < j->rows.len; i = end) {
        const struct build_row *r = &j->rows.ptr[i];
        for (end = i + 1;
             end < j->rows.len && j->rows.ptr[end].cf == r->cf && j->rows.ptr[end].id == r->id;)
            end++;
        rc = merge_id(&m, j, r, end - i, e);
    }
    vecsum_deinit(&m.fold);
    rollup_row_sum_deinit(&m.rollup);
    buf_deinit(&m.out);
    vec_free(&m.bytes);
    return rc;
}

void build_result_deinit(struct build_result *r)
{
    vec_free(&r->rows);
}
