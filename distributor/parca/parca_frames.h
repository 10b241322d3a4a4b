/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_frames.h: locations of Parca's Arrow schemas to frames and nodes of a push.
 */
#ifndef DISTRIBUTOR_PARCA_PARCA_FRAMES_H
#define DISTRIBUTOR_PARCA_PARCA_FRAMES_H

#include "distributor/formats/paths.h"
#include "distributor/parca/arrow/arrow.h"

/* Fields of a location, of its lines, and of a line's function (v1 has these in the line):
 * ARROW_NO_FIELD where the schema has none. */
struct parca_fields {
    uint32_t address, file, build_id, start, limit, offset, lines;
    uint32_t line, function;
    uint32_t name, system_name, filename;
};
/* `list`: the column whose elements are locations. ERR_INPUT if it cannot be one. */
NODISCARD int parca_fields_find(const struct arrow_schema *s, uint32_t list,
                                struct parca_fields *ret, struct err *e);
/* The field that has the values of f: behind run ends and dictionaries. */
uint32_t parca_value_field(const struct arrow_schema *s, uint32_t f);

/* Frames and nodes of the pushes of one batch, one push after the other: what was seen is
 * remembered by push, so that nothing needs to be cleared between them. */
struct parca_seen_stack {
    uint32_t push, batch;
    uint64_t from, len;
    uint32_t node;
};
struct parca_seen_location {
    uint32_t from, len; /* of frames */
};
struct parca_frames {
    struct arrow *arrow; /* that has the locations */
    const struct parca_fields *fields;
    const struct limits *limits;
    struct push *push; /* the current one */
    uint32_t push_no;
    struct paths paths;
    uint32_t *path; /* owned: limits->frames of them */
    struct map_u64 location_ids, stack_ids;
    VEC(struct parca_seen_location) locations;
    VEC(struct parca_seen_stack) stacks;
    VEC(uint32_t) frames; /* of all locations, leaf first */
    struct buf tmp;
    uint64_t work;    /* frames and lines looked at */
    uint64_t text;    /* bytes of names looked at */
    uint64_t longest; /* of these names, in this push */
};
void parca_frames_init(struct parca_frames *f, struct arrow *a, const struct parca_fields *fields,
                       const struct limits *l);
void parca_frames_deinit(struct parca_frames *f);
/* Between them all nodes belong to one push. */
void parca_frames_begin(struct parca_frames *f, struct push *push);
void parca_frames_end(struct parca_frames *f);
/* The node of n locations, leaf first. ERR_LIMIT; ERR_INPUT: the arrow's fault. */
NODISCARD int parca_frames_node(struct parca_frames *f, struct arrow_cell first, uint64_t n,
                                uint32_t *ret, struct err *e);

#endif
