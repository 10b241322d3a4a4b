/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp.h: an ExportProfilesServiceRequest as flat columns, whatever its layout and encoding.
 *
 * All tables of a request are pools; a dictionary is a range in each of them. There is one
 * dictionary per request, but in layout 1.5, where each profile carries its own. After parsing,
 * every reference is a position in its pool, checked (otlp_model.c); strings are slices of the body
 * or of the arena.
 */
#ifndef DISTRIBUTOR_OTLP_OTLP_H
#define DISTRIBUTOR_OTLP_OTLP_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/base/str.h"
#include "common/base/vec.h"
#include "distributor/formats/limits.h"

#define OTLP_NONE        UINT32_MAX
#define OTLP_VALUE_DEPTH 8  /* nesting of attribute values */
#define OTLP_TYPES_MAX   64 /* sample types of one profile, layouts up to 1.7 */

/* Revisions of the schema with field numbers of their own; OTLP_110 is what 1.10 and later have. */
enum otlp_layout { OTLP_AUTO, OTLP_15, OTLP_17, OTLP_18, OTLP_19, OTLP_110, OTLP_LAYOUTS };
const char *otlp_layout_name(enum otlp_layout l);
bool otlp_layout_parse(struct str name, enum otlp_layout *ret);

/* Positions from .. from + len of a pool. */
struct otlp_range {
    uint32_t from, len;
};
enum otlp_kind {
    OTLP_EMPTY, /* no value, or a value that is not a scalar */
    OTLP_STRING,
    OTLP_STRING_INDEX, /* number: position in strings */
    OTLP_BOOL,
    OTLP_INT,
    OTLP_DOUBLE,
};
struct otlp_attr {
    struct str key;     /* if key_index is OTLP_NONE */
    uint32_t key_index; /* of strings */
    enum otlp_kind kind;
    struct str text;
    int64_t number; /* of a double: its bits */
};
struct otlp_mapping {
    uint64_t start, limit, offset;
    uint32_t file;
    struct otlp_range attrs; /* in indices: positions in attrs */
};
struct otlp_location {
    uint64_t address;
    uint32_t mapping;
    struct otlp_range lines;
};
struct otlp_line {
    uint32_t function, line;
};
struct otlp_function {
    uint32_t name, system_name, file;
};
struct otlp_link {
    struct str trace, span; /* bytes */
};
struct otlp_sample {
    uint32_t stack; /* OTLP_NONE: it has none */
    uint32_t link;
    uint32_t stack_len;       /* layouts up to 1.7, until they are resolved */
    struct otlp_range attrs;  /* in indices */
    struct otlp_range values; /* in values */
    uint32_t timestamps;      /* number of them */
};
struct otlp_type {
    uint32_t type, unit; /* strings */
};
struct otlp_dict {
    struct otlp_range strings, mappings, locations, lines, functions, links, attrs, stacks;
};
struct otlp_profile {
    uint32_t dict, scope;
    struct otlp_range types; /* in types */
    bool has_period_type, has_times;
    struct otlp_type period_type;
    int64_t period;
    uint64_t time_ns; /* as sent: revisions do not agree on whether it has a sign */
    int64_t duration_ns;
    uint64_t first_ns, last_ns; /* timestamps of samples, if has_times */
    struct str id;              /* 16 bytes, or empty */
    struct str text;            /* its bytes in the body */
    struct otlp_range samples, attrs;
    struct otlp_range list; /* in indices: what samples are cut from, layouts up to 1.7 */
};
/* A scope within a resource. */
struct otlp_scope {
    struct otlp_range resource, scope; /* in labels */
};

struct otlp {
    enum otlp_layout layout;
    struct arena *arena; /* borrowed */
    VEC(struct str) strings;
    VEC(struct otlp_mapping) mappings;
    VEC(struct otlp_location) locations;
    VEC(struct otlp_line) lines;
    VEC(struct otlp_function) functions;
    VEC(struct otlp_link) links;
    VEC(struct otlp_attr) attrs;
    VEC(struct otlp_range) stacks; /* in indices: locations, leaf first */
    VEC(struct otlp_dict) dicts;
    VEC(struct otlp_attr) labels; /* of resources and scopes */
    VEC(struct otlp_scope) scopes;
    VEC(struct otlp_type) types;
    VEC(struct otlp_profile) profiles;
    VEC(struct otlp_sample) samples;
    VEC(uint32_t) indices;
    VEC(int64_t) values;
    size_t bytes, bytes_max; /* of the pools */
    const struct limits *limits;
};

/* Both: o is initialised, and to be freed after failure too. `a` holds strings that are not slices
 * of the body, which must outlive o. `layout` forces one, OTLP_AUTO looks. ERR_INPUT, ERR_LIMIT. */
NODISCARD int otlp_parse_proto(struct otlp *o, struct str body, enum otlp_layout layout,
                               const struct limits *l, struct arena *a, struct err *e);
NODISCARD int otlp_parse_json(struct otlp *o, struct str body, const struct limits *l,
                              struct arena *a, struct err *e);
void otlp_deinit(struct otlp *o);

#endif
