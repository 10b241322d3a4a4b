/* SPDX-License-Identifier: Apache-2.0
 *
 * arrow_fbw.h: writing flatbuffers front to back, for the few messages that we send (and the many
 * that tests make). Each field takes 8 bytes: simple, and aligned for every reader.
 *
 *   root = fbw_table(w, mask);  fbw_put(w, root, 0, v);
 *   t = fbw_table(w, mask);     fbw_ref(w, root, 2, t);
 */
#ifndef DISTRIBUTOR_PARCA_ARROW_ARROW_FBW_H
#define DISTRIBUTOR_PARCA_ARROW_ARROW_FBW_H

#include "common/base/buf.h"

struct fbw {
    struct buf *out; /* borrowed */
    size_t base;     /* of the flatbuffer in it; a multiple of 8 */
};

void fbw_init(struct fbw *w, struct buf *out);
/* A table that has the fields of the mask, all 0; positions are in out. The first one is the root.
 * Positions stay valid, also where out is full (its `failed` flag says so). */
size_t fbw_table(struct fbw *w, uint32_t mask);
void fbw_put(struct fbw *w, size_t table, unsigned field, uint64_t v);
/* Makes a field refer to what is at `target`, a table or a vector. */
void fbw_ref(struct fbw *w, size_t table, unsigned field, size_t target);
/* Room for n elements of `size` bytes, all 0; the position of the vector. */
size_t fbw_vector(struct fbw *w, size_t n, size_t size);
void fbw_element(struct fbw *w, size_t vector, size_t i, size_t target); /* of references */
void fbw_number(struct fbw *w, size_t vector, size_t i, uint64_t v);     /* of 8 bytes each */
size_t fbw_string(struct fbw *w, struct str s);
/* Makes it a multiple of 8 long. */
void fbw_end(struct fbw *w);

#endif
