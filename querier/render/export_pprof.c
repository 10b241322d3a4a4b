/* SPDX-License-Identifier: Apache-2.0
 *
 * export_pprof: the set as one sample type of pprof (proto/WIRE.md, "querier.v1 merges"): what
 * common/model/pprof_out.h wants, around its writer.
 */
#include "querier/render/export.h"

#include "common/base/mem.h"

struct export_pprof {
    struct stacks_view view;
    uint32_t *nodes;  /* owned; those with a value, ascending */
    uint64_t *values; /* owned */
    struct pprof_out_values by_type;
    struct pprof_out_part part;
    struct pprof_out_type type;
    struct pprof_out out;
    struct pprof_out_writer *writer; /* owned */
};

int64_t export_period(const struct ptype *t)
{
    if (str_eqc(t->name, "process_cpu"))
        return 1000000000;
    return str_eqc(t->name, "memory") ? 524288 : 1;
}

static void fill_values(struct export_pprof *w, const struct export_set *x)
{
    size_t n = 0;

    w->nodes = XNEW_ARRAY(uint32_t, x->self.len);
    w->values = XNEW_ARRAY(uint64_t, x->self.len);
    vec_for (i, &x->self)
        if (x->self.ptr[i]) {
            w->nodes[n] = (uint32_t)i;
            w->values[n++] = x->self.ptr[i];
        }
    w->by_type = (struct pprof_out_values){ w->nodes, w->values, n };
}

struct export_pprof *export_pprof_new(const struct export_set *x, const struct export_head *h,
                                      size_t bytes_max)
{
    struct export_pprof *w = XNEW(struct export_pprof);

    w->view = stacks_view(&x->stacks);
    fill_values(w, x);
    w->part.by_type = &w->by_type;
    w->type = (struct pprof_out_type){ h->type.sample_type, h->type.sample_unit };
    w->out = (struct pprof_out){
        .stacks = &w->view,
        .types = &w->type,
        .types_len = 1,
        .parts = &w->part,
        .parts_len = 1,
        .period_type = { h->type.period_type, h->type.period_unit },
        .default_type = h->type.sample_type,
        .period = h->period ? h->period : export_period(&h->type),
        .time_ns = h->time_ns,
        .duration_ns = h->duration_ns,
    };
    w->writer = pprof_out_new(&w->out, bytes_max);
    return w;
}

void export_pprof_free(struct export_pprof *w)
{
    if (!w)
        return;
    pprof_out_free(w->writer);
    xfree(w->nodes);
    xfree(w->values);
    xfree(w);
}

int export_pprof_next(struct export_pprof *w, size_t want, struct buf *out, bool *ret_more,
                      struct err *e)
{
    return pprof_out_next(w->writer, want, out, ret_more, e);
}

int export_pprof_write(const struct export_set *x, const struct export_head *h, struct buf *out,
                       struct err *e)
{
    struct export_pprof *w = export_pprof_new(x, h, out->max);
    bool more = false;
    int code = export_pprof_next(w, SIZE_MAX, out, &more, e);

    export_pprof_free(w);
    return code;
}
