/* SPDX-License-Identifier: Apache-2.0
 *
 * arrow_schema.h: the schema of an Arrow stream as one flat array of fields.
 *
 * A tree is stored parent first (the order in which batches list nodes and buffers): the first
 * child of field i is i + 1, a field's next sibling is its `end`. The columns come first; behind
 * them stands one tree per dictionary, for its values. A field that is encoded by a dictionary has
 * no children itself: it is a column of indexes.
 */
#ifndef DISTRIBUTOR_PARCA_ARROW_ARROW_SCHEMA_H
#define DISTRIBUTOR_PARCA_ARROW_ARROW_SCHEMA_H

#include "common/base/vec.h"
#include "distributor/parca/arrow/arrow_fb.h"

#define ARROW_FIELDS_MAX 4096 /* of the columns and all dictionaries */
#define ARROW_DEPTH_MAX  64
#define ARROW_NO_FIELD   UINT32_MAX

/* What a column looks like in memory; types that look alike are one kind. */
enum arrow_kind {
    ARROW_NULL,
    ARROW_BOOL,
    ARROW_INT,       /* also times: width 1, 2, 4, 8 */
    ARROW_FIXED,     /* opaque: width bytes each */
    ARROW_BYTES,     /* binary and text by offsets; wide: of 8 bytes */
    ARROW_VIEW,      /* binary and text by views */
    ARROW_LIST,      /* and map; wide: offsets of 8 bytes */
    ARROW_LISTVIEW,  /* the same */
    ARROW_FIXEDLIST, /* width elements each */
    ARROW_STRUCT,
    ARROW_RUNS, /* children: run ends, values */
    ARROW_DICT, /* indexes of `width` bytes into dicts[dict] */
};
struct arrow_field {
    struct str name; /* in the message */
    enum arrow_kind kind;
    bool is_signed, wide;
    uint32_t width;
    uint32_t children;
    uint32_t end;
    uint32_t dict;
};
struct arrow_dict_type {
    int64_t id;    /* on the wire */
    uint32_t root; /* of its values */
};
struct arrow_schema {
    VEC(struct arrow_field) fields;
    VEC(struct arrow_dict_type) dicts;
    uint32_t columns_end; /* first field that is not of the columns */
    struct fb_vector metadata;
};

/* From the Schema table of a message, which must outlive s. ERR_INPUT, ERR_LIMIT; free it after
 * failure too. */
NODISCARD int arrow_schema_read(const struct fb_table *schema, struct arrow_schema *s,
                                struct err *e);
void arrow_schema_deinit(struct arrow_schema *s);
/* A column, or a child of field `parent`, by its name; ARROW_NO_FIELD: not found. */
uint32_t arrow_column(const struct arrow_schema *s, struct str name);
uint32_t arrow_child(const struct arrow_schema *s, uint32_t parent, struct str name);
/* The value of a key in the schema's metadata; {NULL, 0} if it is not there. */
NODISCARD int arrow_metadata(const struct arrow_schema *s, struct str key, struct str *ret,
                             struct err *e);
/* Position of a dictionary by its id, or ARROW_NO_FIELD. */
uint32_t arrow_dict_of(const struct arrow_schema *s, int64_t id);
const char *arrow_kind_name(enum arrow_kind k);

#endif
