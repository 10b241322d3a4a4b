/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_tree.h: YAML (or JSON, which is YAML) of any shape as a tree with line numbers, for files
 * whose shape is not that of the option tables: rules, targets, overrides.
 *
 *   conf_node_keys(map, file, names, n, e); conf_node_get(map, "name"); conf_node_u64(node, ...)
 *
 * Anchors, aliases, tags, repeated keys and second documents are refused; depth, nodes and memory
 * are bounded. Nodes and their text live in the arena. Errors are ERR_CONFIG, "file line 3: ...".
 */
#ifndef COMMON_CONF_CONF_TREE_H
#define COMMON_CONF_CONF_TREE_H

#include "common/base/arena.h"
#include "common/base/err.h"

#define CONF_TREE_BYTES_MAX ((size_t)8 * 1024 * 1024) /* of text */
#define CONF_TREE_DEPTH_MAX 32
#define CONF_TREE_NODES_MAX 1000000

enum conf_node_kind { CONF_NODE_NULL, CONF_NODE_SCALAR, CONF_NODE_MAP, CONF_NODE_LIST };
struct conf_node {
    enum conf_node_kind kind;
    bool quoted;                    /* scalars: "1" is text, 1 may be a number */
    size_t line;                    /* from 1 */
    struct str key;                 /* in a map, else {NULL, 0} */
    struct str value;               /* scalars; ends with a NUL that is not counted */
    struct conf_node *first, *next; /* children of maps and lists, in their order */
    size_t len;                     /* children */
};

/* An empty text is a CONF_NODE_NULL. */
NODISCARD int conf_tree_parse(const char *file, struct str text, struct arena *a,
                              struct conf_node **ret, struct err *e);
/* The child of a map. NULL: no child has this key, or `map` is NULL or not a map. */
const struct conf_node *conf_node_get(const struct conf_node *map, const char *key);
/* It is a map and has only these keys (NULL-terminated), or nothing at all. The error names the
 * line, the key and the nearest that is known. */
NODISCARD int conf_node_keys(const struct conf_node *map, const char *file,
                             const char *const *names, struct err *e);
NODISCARD int conf_node_is(const struct conf_node *n, const char *file, enum conf_node_kind kind,
                           struct err *e);
/* Values; *ret is left alone where n is NULL (the key is missing). */
NODISCARD int conf_node_str(const struct conf_node *n, const char *file, struct str *ret,
                            struct err *e);
NODISCARD int conf_node_u64(const struct conf_node *n, const char *file, uint64_t min, uint64_t max,
                            uint64_t *ret, struct err *e);
NODISCARD int conf_node_bytes(const struct conf_node *n, const char *file, uint64_t min,
                              uint64_t max, uint64_t *ret, struct err *e); /* "64MiB" */
NODISCARD int conf_node_ms(const struct conf_node *n, const char *file, uint64_t min, uint64_t max,
                           uint64_t *ret, struct err *e); /* "1h"; "0" */
NODISCARD int conf_node_double(const struct conf_node *n, const char *file, double min, double max,
                               double *ret, struct err *e);
NODISCARD int conf_node_bool(const struct conf_node *n, const char *file, bool *ret, struct err *e);
/* One of `choices`, "a|b|c". */
NODISCARD int conf_node_choice(const struct conf_node *n, const char *file, const char *choices,
                               struct str *ret, struct err *e);
/* A list of scalars, or one scalar as a list of one. In the arena. */
NODISCARD int conf_node_strs(const struct conf_node *n, const char *file, struct arena *a,
                             struct str **ret, size_t *ret_len, struct err *e);
/* "file line 3: " + text; keeps an error's code as ERR_CONFIG. */
int conf_node_fail(const struct conf_node *n, const char *file, struct err *e, const char *fmt, ...)
    PRINTF(4, 5);

#endif
