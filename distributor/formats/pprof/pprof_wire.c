/* SPDX-License-Identifier: Apache-2.0 */
#include "distributor/formats/pprof/pprof_wire.h"

bool wire_malformed(const struct wire *w, const struct rd *r)
{
    err_set(w->e, ERR_INPUT, "pprof: malformed %s at byte %zu", w->what, (size_t)(r->p - w->body));
    return false;
}

int wire_field_slow(const struct wire *w, struct rd *r, struct wire_field *f)
{
    uint64_t tag;

    if (!wire_varint(w, r, &tag) || tag < 8 || tag >> 3 > (1u << 29) - 1)
        return -1;
    f->number = (uint32_t)(tag >> 3);
    f->wire = (uint32_t)(tag & 7);
    if (f->wire == 0)
        return wire_varint(w, r, &f->u64) ? 1 : -1;
    if (f->wire == 2) {
        if (!wire_varint(w, r, &f->u64) || f->u64 > rd_left(r))
            return -1;
        f->sub = (struct rd){ r->p, r->p + f->u64 };
        r->p = f->sub.end;
        return 1;
    }
    if (f->wire == 1)
        return rd_skip(r, 8) ? 1 : -1;
    if (f->wire == 5)
        return rd_skip(r, 4) ? 1 : -1;
    return -1; /* groups, and what is no wire type */
}

/* The tight loop takes one-byte tags of known varint fields, all else goes the long way. */
bool wire_numbers(struct wire *w, struct rd r, uint64_t *v, uint32_t known)
{
    struct wire_field f;

    if (w->end - r.end >= WIRE_VARINT_MAX && wire_numbers_fast(r.p, r.end, v, known))
        return true;
    while (r.p != r.end) {
        uint32_t tag = *r.p;
        if (LIKELY((tag & 0x87) == 0 && tag >> 3 <= known && tag &&
                   w->end - r.p > WIRE_VARINT_MAX)) {
            r.p++;
            if (!wire_varint_fast(&r.p, r.end, &v[tag >> 3]))
                return wire_malformed(w, &r);
            continue;
        }
        if (wire_field_slow(w, &r, &f) < 0)
            return wire_malformed(w, &r);
        if (f.number > known)
            w->unknown_fields++;
        else if (f.wire != 0)
            return wire_malformed(w, &r);
        else
            v[f.number] = f.u64;
    }
    return true;
}
