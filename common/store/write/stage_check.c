/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_check: the shape of a request, before the engine looks at anything else.
 *
 * Distributors check what clients send. This is for two versions, a bug or a broken message: what
 * passes cannot become bad rows. Pure: no store, any thread.
 */
#include "common/base/mem.h"
#include "common/model/ptype.h"
#include "common/store/codec/vec.h"
#include "common/store/dict/dict_known.h"
#include "common/store/exemplar/exm.h"
#include "common/store/store.h"

#define SERIES_MAX 65536
#define LABELS_MAX 1024
#define NODES_MAX  (8u << 20)

static int check_vector(const struct store_vector *v, size_t nodes, struct err *e)
{
    if (v->slot >= KEY_SLOT_MAX)
        return err_set(e, ERR_INPUT, "slot %u is behind the last one, %u", v->slot, KEY_SLOT_MAX);
    if (!v->len || (v->nodes[v->len - 1] <= nodes && vec_sound(v->nodes, v->values, v->len)))
        return 0;
    for (size_t i = 0; i < v->len; i++) {
        if (v->nodes[i] > nodes)
            return err_set(e, ERR_INPUT, "node %u of %zu", v->nodes[i], nodes);
        if (!v->values[i])
            return err_set(e, ERR_INPUT, "value of node %u is 0", v->nodes[i]);
        if (i && v->nodes[i] <= v->nodes[i - 1])
            return err_set(e, ERR_INPUT, "nodes do not ascend at %zu", i);
    }
    return 0;
}

static int check_series(const struct store_series *r, size_t nodes, struct err *e)
{
    struct ptype t;

    if (r->len < 1)
        return err_set(e, ERR_INPUT, "a series without vectors");
    if (r->labels.len > LABELS_MAX)
        return err_set(e, ERR_INPUT, "a series with %zu labels", r->labels.len);
    for (size_t i = 0; i < r->labels.len; i++) {
        const struct label *l = &r->labels.ptr[i];
        if (!l->name.len || (i && str_cmp(l[-1].name, l->name) >= 0))
            return err_set(e, ERR_INPUT, "labels are not sorted, or a name is empty");
    }
    if (ptype_parse(r->profile_type, &t, e))
        return e->code;
    for (size_t i = 0; i < r->len; i++) {
        if (i && r->vectors[i].slot <= r->vectors[i - 1].slot)
            return err_set(e, ERR_INPUT, "slots of a series do not ascend");
        if (check_vector(&r->vectors[i], nodes, e))
            return e->code;
    }
    return exemplar_check(r, nodes, e);
}

int store_write_check(const struct store_write *w, struct err *e)
{
    if (w->tenant.len > STORE_NAME_MAX || w->service.len > STORE_NAME_MAX)
        return err_set(e, ERR_INPUT, "name of the tenant or service is over %d bytes",
                       STORE_NAME_MAX);
    if (w->len > SERIES_MAX)
        return err_set(e, ERR_LIMIT, "%zu series in one request, at most %d", w->len, SERIES_MAX);
    if (w->stacks->nodes > NODES_MAX)
        return err_set(e, ERR_LIMIT, "%zu call stack nodes in one request, at most %u",
                       w->stacks->nodes, NODES_MAX);
    if (w->told && w->told->nodes != w->stacks->nodes)
        return err_set(e, ERR_INPUT, "%zu stacks of a session for %zu of the request",
                       w->told->nodes, w->stacks->nodes);
    if (w->told && dict_told_check(w->told, e))
        return e->code;
    for (size_t i = 0; i < w->len; i++)
        if (check_series(&w->series[i], w->stacks->nodes, e))
            return err_wrap(e, "series %zu", i);
    return 0;
}
