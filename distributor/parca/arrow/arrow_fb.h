/* SPDX-License-Identifier: Apache-2.0
 *
 * arrow_fb.h: reading flatbuffers, the metadata of Arrow messages.
 *
 *   u32 offset of the root table, then tables anywhere:
 *   table  = i32 (its place - its vtable's place), fields    vtable = u16 bytes, u16 bytes of the
 *   table, then u16 per field: where it is in the table, 0 = absent (has its default)
 *   vector = u32 count, elements       string = vector of bytes       reference = u32, forward
 *
 * Nothing is checked in advance: each step is checked against the buffer when it is taken, so a
 * part that is not read may be garbage. The bytes need no alignment.
 *
 * Format: FlatBuffers, "Internals" (proto/FORMATS.md, "Arrow streams").
 */
#ifndef DISTRIBUTOR_PARCA_ARROW_ARROW_FB_H
#define DISTRIBUTOR_PARCA_ARROW_ARROW_FB_H

#include "common/base/err.h"
#include "common/base/str.h"

struct fb_table {
    struct str buf; /* the whole flatbuffer */
    size_t at;      /* of the table */
    size_t vtable;
    size_t fields, size; /* bytes of the vtable and of the table, both within buf */
};
struct fb_vector {
    struct str buf;
    size_t at; /* of the first element */
    size_t len;
};

/* ERR_INPUT: malformed. A field that is absent is not an error: see each function. */
NODISCARD int fb_root(struct str buf, struct fb_table *ret, struct err *e);
/* Scalars: *ret is set to the default by the caller, and stays so when absent. */
NODISCARD int fb_u8(const struct fb_table *t, unsigned field, uint8_t *ret, struct err *e);
NODISCARD int fb_i16(const struct fb_table *t, unsigned field, int16_t *ret, struct err *e);
NODISCARD int fb_i32(const struct fb_table *t, unsigned field, int32_t *ret, struct err *e);
NODISCARD int fb_i64(const struct fb_table *t, unsigned field, int64_t *ret, struct err *e);
/* *ret_has says whether the table is there. */
NODISCARD int fb_child(const struct fb_table *t, unsigned field, bool *ret_has,
                       struct fb_table *ret, struct err *e);
/* {NULL, 0} when absent. */
NODISCARD int fb_string(const struct fb_table *t, unsigned field, struct str *ret, struct err *e);
/* Elements of `size` bytes; empty when absent. */
NODISCARD int fb_vector(const struct fb_table *t, unsigned field, size_t size,
                        struct fb_vector *ret, struct err *e);
/* The i-th of a vector of tables (elements of 4 bytes); i < v->len. */
NODISCARD int fb_element(const struct fb_vector *v, size_t i, struct fb_table *ret, struct err *e);
/* A number of 8 bytes, `off` bytes into the i-th element of `size` bytes. */
int64_t fb_number(const struct fb_vector *v, size_t i, size_t size, size_t off);

#endif
