/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_wire.h: walking protobuf messages of a request; internal to distributor/otlp.
 *
 *   while (otlp_next(w, &r, "sample", &f)) switch (f.number) ...
 *   return !w->bad;
 *
 * Format: the wire encoding of Protocol Buffers (proto/FORMATS.md, "Protobuf").
 */
#ifndef DISTRIBUTOR_OTLP_OTLP_WIRE_H
#define DISTRIBUTOR_OTLP_OTLP_WIRE_H

#include "common/base/err.h"
#include "common/base/rd.h"

struct otlp_wire {
    const uint8_t *body;
    bool bad; /* *e says how */
    struct err *e;
};

static inline bool otlp_malformed(struct otlp_wire *w, const char *what, const uint8_t *at)
{
    if (!w->bad)
        err_set(w->e, ERR_INPUT, "otlp: malformed %s at byte %zu", what, (size_t)(at - w->body));
    w->bad = true;
    return false;
}

/* The next field of the message; false at its end, or if it is malformed. */
static inline bool otlp_next(struct otlp_wire *w, struct rd *r, const char *what,
                             struct pb_field *f)
{
    if (w->bad)
        return false;
    int got = rd_pb(r, f);
    if (got < 0)
        return otlp_malformed(w, what, r->p);
    return got > 0;
}

/* A field that must have this wire type. */
static inline bool otlp_is(struct otlp_wire *w, const struct rd *r, const char *what,
                           const struct pb_field *f, unsigned wire)
{
    return f->wire == wire || otlp_malformed(w, what, r->p);
}

/* Repeated numbers: packed, or this one. */
struct otlp_ints {
    struct rd r;
    uint64_t one;
    bool has_one;
    unsigned wire; /* of the elements: 0, or 1 for fixed64 */
};
static inline bool otlp_ints_of(struct otlp_wire *w, const struct rd *at, const char *what,
                                const struct pb_field *f, unsigned wire, struct otlp_ints *ret)
{
    *ret = (struct otlp_ints){ .one = f->u64, .has_one = f->wire == wire, .wire = wire };
    if (f->wire == 2)
        ret->r = rd_of(f->bytes);
    else if (f->wire != wire)
        return otlp_malformed(w, what, at->p);
    return true;
}
static inline bool otlp_ints_next(struct otlp_wire *w, struct otlp_ints *it, const char *what,
                                  uint64_t *ret)
{
    if (it->has_one) {
        it->has_one = false;
        *ret = it->one;
        return true;
    }
    if (it->r.p == it->r.end)
        return false;
    if (it->wire == 0 ? rd_varint(&it->r, ret) : rd_u64le(&it->r, ret))
        return true;
    return otlp_malformed(w, what, it->r.p);
}

#endif
