/* SPDX-License-Identifier: Apache-2.0
 *
 * vecdiff: both rows are in order of (epoch, id), so they are walked side by side. Values that
 * become 0 leave no entry, and sections without entries no section, as in a sum that never
 * had them.
 */
#include "common/store/codec/vecdiff.h"

#include "common/store/codec/fp.h"

void vecdiff_init(struct vecdiff *d)
{
    *d = (struct vecdiff){ 0 };
}

void vecdiff_deinit(struct vecdiff *d)
{
    vec_free(&d->ids);
    vec_free(&d->values);
    vec_free(&d->parts);
    vec_free(&d->less_ids);
    vec_free(&d->less_values);
}

static int no_part(struct err *e, const char *what)
{
    return err_set(e, ERR_CORRUPT, "a vector cannot be taken out of a sum: %s", what);
}

int vecdiff_meta(const struct vec_meta *all, const struct vec_meta *less, struct vec_meta *ret,
                 struct err *e)
{
    if (all->saturated || less->saturated || all->total == UINT64_MAX || all->writes == UINT64_MAX)
        return no_part(e, "the sum stayed at 2^64-1");
    if (less->total > all->total || less->writes > all->writes)
        return no_part(e, "it has more than the sum");
    *ret = (struct vec_meta){
        .total = all->total - less->total,
        .writes = all->writes - less->writes,
        .fp = fp_sub(all->fp, less->fp),
    };
    if (!ret->writes && (ret->total || ret->fp))
        return no_part(e, "values are left, but no write");
    return 0;
}

/* Appends the section `s` without the entries `less`. */
static int take_section(struct vecdiff *d, const struct vec_section *s,
                        const struct vec_section *less, struct err *e)
{
    size_t at = d->ids.len, n = at, less_len = less ? less->len : 0, j = 0;

    vec_reserve(&d->ids, at + s->len);
    vec_reserve(&d->values, at + s->len);
    vec_decode(s, d->ids.ptr + at, d->values.ptr + at);
    vec_reserve(&d->less_ids, less_len);
    vec_reserve(&d->less_values, less_len);
    if (less)
        vec_decode(less, d->less_ids.ptr, d->less_values.ptr);
    for (size_t i = at; i < at + s->len; i++) {
        uint32_t id = d->ids.ptr[i];
        uint64_t value = d->values.ptr[i];
        if (j < less_len && d->less_ids.ptr[j] == id) {
            if (d->less_values.ptr[j] > value)
                return no_part(e, "a stack has more than in the sum");
            value -= d->less_values.ptr[j++];
        }
        if (!value)
            continue;
        d->ids.ptr[n] = id;
        d->values.ptr[n++] = value;
    }
    if (j < less_len)
        return no_part(e, "the sum does not have one of its stacks");
    if (n > at)
        vec_push(&d->parts, ((struct vec_part){ .epoch = s->epoch, .len = n - at }));
    d->ids.len = d->values.len = n;
    return 0;
}

static int take_sections(struct vecdiff *d, struct vec_reader *all, struct vec_reader *less,
                         struct err *e)
{
    struct vec_section s, l;
    bool more = vec_next(less, &l);

    while (vec_next(all, &s)) {
        bool same = more && l.epoch == s.epoch;
        if (take_section(d, &s, same ? &l : NULL, e))
            return e->code;
        if (same)
            more = vec_next(less, &l);
    }
    return more ? no_part(e, "the sum does not have one of its epochs") : 0;
}

int vecdiff_make(struct vecdiff *d, struct str all, struct str less, struct buf *out,
                 struct vec_meta *ret_meta, struct err *e)
{
    struct vec_reader a, l;
    size_t at = 0;

    d->ids.len = d->values.len = d->parts.len = 0;
    buf_reset(out);
    if (vec_open(all, &a, e) || vec_open(less, &l, e) ||
        vecdiff_meta(&a.meta, &l.meta, ret_meta, e) || take_sections(d, &a, &l, e))
        return e->code;
    vec_for (i, &d->parts) {
        struct vec_part *p = &d->parts.ptr[i];
        p->ids = d->ids.ptr + at;
        p->values = d->values.ptr + at;
        at += p->len;
    }
    if (!ret_meta->writes)
        return d->parts.len ? no_part(e, "stacks are left, but no write") : 0;
    if (!vec_encode(d->parts.ptr, d->parts.len, ret_meta, out))
        return err_set(e, ERR_LIMIT, "a difference has more than %zu bytes", out->max);
    return 0;
}
