/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_tree: libyaml's events into a tree, without recursion: `open` is the path from the root to
 * where the reader stands, one frame per map or list that is not closed yet. Each open map has a
 * table of the keys it has seen, so that a repeated key is found in constant time.
 */
#include "common/conf/conf_tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <yaml.h>

#include "common/base/buf.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/conf/conf_impl.h"

struct frame {
    struct conf_node *node;
    struct conf_node *last;
    struct map_str *keys; /* owned; maps */
    struct str key;       /* read, its value is not; ptr NULL: a key is next */
};
struct reader {
    const char *file;
    struct arena *arena;
    struct frame open[CONF_TREE_DEPTH_MAX];
    size_t depth, nodes, line;
    struct conf_node *root;
    struct err *e;
};

static int refuse(const struct reader *r, const char *what)
{
    return err_set(r->e, ERR_CONFIG, "%s line %zu: %s", r->file, r->line, what);
}

static int full(const struct reader *r)
{
    return err_set(r->e, ERR_CONFIG, "%s line %zu: more than %zu bytes of memory", r->file, r->line,
                   arena_limit(r->arena));
}

/* Hangs a node where the reader stands. */
static int add(struct reader *r, enum conf_node_kind kind, struct conf_node **ret)
{
    struct conf_node *n = ARENA_NEW(r->arena, struct conf_node);

    if (!n)
        return full(r);
    if (++r->nodes > CONF_TREE_NODES_MAX)
        return refuse(r, "too many values in one file");
    n->kind = kind;
    n->line = r->line;
    *ret = n;
    if (r->depth == 0) {
        r->root = n;
        return 0;
    }
    struct frame *f = &r->open[r->depth - 1];
    if (f->node->kind == CONF_NODE_MAP) {
        if (!f->key.ptr)
            return refuse(r, "a map or list cannot be a key");
        n->key = f->key;
        f->key = STR_NULL;
    }
    if (f->last)
        f->last->next = n;
    else
        f->node->first = n;
    f->last = n;
    f->node->len++;
    return 0;
}

static int on_key(struct reader *r, struct frame *f, struct str s)
{
    struct str key = arena_strdup(r->arena, s);

    if (!key.ptr)
        return full(r);
    if (map_str_get(f->keys, key))
        return err_set(r->e, ERR_CONFIG, "%s line %zu: \"%s\" is given twice", r->file, r->line,
                       conf_quote(key).text);
    (void)map_str_put(f->keys, key, f);
    f->key = key;
    return 0;
}

static int on_scalar(struct reader *r, const yaml_event_t *ev)
{
    struct str s = str_n(ev->data.scalar.value, ev->data.scalar.length);
    struct frame *f = r->depth ? &r->open[r->depth - 1] : NULL;
    bool plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    struct conf_node *n;

    if (ev->data.scalar.anchor || ev->data.scalar.tag)
        return refuse(r, "anchors (&name) and tags (!name) are not accepted here");
    if (f && f->node->kind == CONF_NODE_MAP && !f->key.ptr)
        return on_key(r, f, s);
    bool null = plain && (s.len == 0 || str_eqc(s, "~") || str_eq_nocase(s, STR("null")));
    if (add(r, null ? CONF_NODE_NULL : CONF_NODE_SCALAR, &n))
        return r->e->code;
    n->quoted = !plain;
    n->value = arena_strdup(r->arena, s);
    return n->value.ptr ? 0 : full(r);
}

static int on_open(struct reader *r, enum conf_node_kind kind, bool odd)
{
    struct conf_node *n;

    if (odd)
        return refuse(r, "anchors (&name) and tags (!name) are not accepted here");
    if (r->depth == CONF_TREE_DEPTH_MAX)
        return refuse(r, "nested too deep");
    if (add(r, kind, &n))
        return r->e->code;
    r->open[r->depth++] =
        (struct frame){ .node = n, .keys = kind == CONF_NODE_MAP ? map_str_new() : NULL };
    return 0;
}

static void close_frame(struct reader *r)
{
    map_str_free(r->open[--r->depth].keys);
}

static int on_event(struct reader *r, const yaml_event_t *ev)
{
    r->line = ev->start_mark.line + 1;
    switch (ev->type) {
    case YAML_SCALAR_EVENT:
        return on_scalar(r, ev);
    case YAML_MAPPING_START_EVENT:
        return on_open(r, CONF_NODE_MAP,
                       ev->data.mapping_start.anchor || ev->data.mapping_start.tag);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(r, CONF_NODE_LIST,
                       ev->data.sequence_start.anchor || ev->data.sequence_start.tag);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        close_frame(r);
        return 0;
    case YAML_ALIAS_EVENT:
        return refuse(r, "aliases (*name) are not accepted here");
    case YAML_DOCUMENT_START_EVENT:
        return r->root ? refuse(r, "a second document is not accepted") : 0;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return 0;
    }
    return refuse(r, "an event of an unknown kind");
}

int conf_tree_parse(const char *file, struct str text, struct arena *a, struct conf_node **ret,
                    struct err *e)
{
    static const unsigned char nothing[1] = { 0 };
    struct reader r = { .file = file, .arena = a, .line = 1, .e = e };
    yaml_parser_t p;
    bool end = false;
    int rc = 0;

    if (text.len > CONF_TREE_BYTES_MAX)
        return err_set(e, ERR_CONFIG, "%s has more than %zu bytes", file, CONF_TREE_BYTES_MAX);
    CHECK(yaml_parser_initialize(&p)); /* fails only without memory */
    yaml_parser_set_encoding(&p, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(
        &p, text.len ? (const unsigned char *)(const void *)text.ptr : nothing, text.len);
    while (!rc && !end) {
        yaml_event_t ev;

        if (!yaml_parser_parse(&p, &ev)) {
            rc = err_set(e, ERR_CONFIG, "%s line %zu: %s", file, p.problem_mark.line + 1,
                         p.problem ? p.problem : "cannot be read");
            break;
        }
        rc = on_event(&r, &ev);
        end = ev.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&ev);
    }
    while (r.depth)
        close_frame(&r);
    yaml_parser_delete(&p);
    if (!rc && !r.root)
        rc = add(&r, CONF_NODE_NULL, &r.root);
    *ret = r.root;
    return rc;
}

/* ---- reading ---- */

int conf_node_fail(const struct conf_node *n, const char *file, struct err *e, const char *fmt, ...)
{
    char text[ERR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (n->key.len)
        return err_set(e, ERR_CONFIG, "%s line %zu: %s: %s", file, n->line, conf_quote(n->key).text,
                       text);
    return err_set(e, ERR_CONFIG, "%s line %zu: %s", file, n->line, text);
}

const struct conf_node *conf_node_get(const struct conf_node *map, const char *key)
{
    if (!map || map->kind != CONF_NODE_MAP)
        return NULL;
    for (const struct conf_node *n = map->first; n; n = n->next)
        if (str_eqc(n->key, key))
            return n;
    return NULL;
}

int conf_node_is(const struct conf_node *n, const char *file, enum conf_node_kind kind,
                 struct err *e)
{
    static const char *const names[] = { "nothing", "one value", "a map (name: value)",
                                         "a list (- item)" };

    if (n->kind == kind)
        return 0;
    return conf_node_fail(n, file, e, "wants %s, not %s", names[kind], names[n->kind]);
}

int conf_node_keys(const struct conf_node *map, const char *file, const char *const *names,
                   struct err *e)
{
    size_t known = 0;

    if (map->kind == CONF_NODE_NULL)
        return 0;
    if (conf_node_is(map, file, CONF_NODE_MAP, e))
        return e->code;
    while (names[known])
        known++;
    for (const struct conf_node *n = map->first; n; n = n->next) {
        size_t i = 0;
        while (i < known && !str_eqc(n->key, names[i]))
            i++;
        if (i < known)
            continue;
        const char *near = conf_nearest(n->key, names, known);
        return err_set(e, ERR_CONFIG, "%s line %zu: unknown key \"%s\"%s%s%s", file, n->line,
                       conf_quote(n->key).text, near ? "; did you mean \"" : "", near ? near : "",
                       near ? "\"?" : "");
    }
    return 0;
}

int conf_node_str(const struct conf_node *n, const char *file, struct str *ret, struct err *e)
{
    if (!n)
        return 0;
    if (conf_node_is(n, file, CONF_NODE_SCALAR, e))
        return e->code;
    *ret = n->value;
    return 0;
}

/* What a number counts: the largest unit that divides it is how people would write it. */
struct unit {
    const char *suffix;
    uint64_t size;
};
static const struct unit counts[] = { { "", 1 } };
static const struct unit sizes[] = {
    { "TiB", GIB *KIB }, { "GiB", GIB }, { "MiB", MIB }, { "KiB", KIB }, { "", 1 },
};
static const struct unit times[] = {
    { "d", 86400000 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 }, { "ms", 1 },
};

static void add_bound(struct buf *b, const struct unit *u, uint64_t v)
{
    while (u->size > 1 && (v % u->size || !v))
        u++;
    buf_addf(b, "%" PRIu64 "%s", v / u->size, v ? u->suffix : "");
}

/* "0s is not within 1s and 24h"; there is no end to what is below UINT64_MAX. */
static int out_of_bounds(const struct conf_node *n, const char *file, const struct unit *u,
                         uint64_t min, uint64_t max, struct err *e)
{
    struct buf b;

    buf_init(&b, 128);
    if (max == UINT64_MAX) {
        buf_add_str(&b, STR("less than "));
        add_bound(&b, u, min);
    } else {
        buf_add_str(&b, STR("not within "));
        add_bound(&b, u, min);
        buf_add_str(&b, STR(" and "));
        add_bound(&b, u, max);
    }
    (void)conf_node_fail(n, file, e, "%s is %.*s", conf_quote(n->value).text, STR_ARG(buf_str(&b)));
    buf_deinit(&b);
    return e->code;
}

#define NUMBER(fn, parse, units, what)                                                             \
    int fn(const struct conf_node *n, const char *file, uint64_t min, uint64_t max, uint64_t *ret, \
           struct err *e)                                                                          \
    {                                                                                              \
        uint64_t v = 0;                                                                            \
                                                                                                   \
        if (!n)                                                                                    \
            return 0;                                                                              \
        if (conf_node_is(n, file, CONF_NODE_SCALAR, e))                                            \
            return e->code;                                                                        \
        if (!(parse))                                                                              \
            return conf_node_fail(n, file, e, "\"%s\" is no %s", conf_quote(n->value).text, what); \
        if (v < min || v > max)                                                                    \
            return out_of_bounds(n, file, units, min, max, e);                                     \
        *ret = v;                                                                                  \
        return 0;                                                                                  \
    }
NUMBER(conf_node_u64, str_u64(n->value, &v), counts, "number")
NUMBER(conf_node_bytes, str_bytes(n->value, &v), sizes, "size, such as 64MiB")
NUMBER(conf_node_ms, str_eqc(n->value, "0") || str_duration_ms(n->value, &v), times,
       "duration, such as 15s or 1h")

int conf_node_double(const struct conf_node *n, const char *file, double min, double max,
                     double *ret, struct err *e)
{
    double v;

    if (!n)
        return 0;
    if (conf_node_is(n, file, CONF_NODE_SCALAR, e))
        return e->code;
    if (!str_double(n->value, &v) || !(v >= min && v <= max))
        return conf_node_fail(n, file, e, "\"%s\" is not a number from %g to %g",
                              conf_quote(n->value).text, min, max);
    *ret = v;
    return 0;
}

int conf_node_bool(const struct conf_node *n, const char *file, bool *ret, struct err *e)
{
    if (!n)
        return 0;
    if (conf_node_is(n, file, CONF_NODE_SCALAR, e))
        return e->code;
    bool yes = str_eqc(n->value, "true") || str_eqc(n->value, "yes") || str_eqc(n->value, "on");
    if (!yes && !str_eqc(n->value, "false") && !str_eqc(n->value, "no") &&
        !str_eqc(n->value, "off"))
        return conf_node_fail(n, file, e, "\"%s\" is neither true nor false",
                              conf_quote(n->value).text);
    *ret = yes;
    return 0;
}

int conf_node_choice(const struct conf_node *n, const char *file, const char *choices,
                     struct str *ret, struct err *e)
{
    struct str rest = str_c(choices), one;
    bool more = true;

    if (!n)
        return 0;
    if (conf_node_is(n, file, CONF_NODE_SCALAR, e))
        return e->code;
    while (str_next(&rest, '|', &more, &one)) {
        if (!str_eq(one, n->value))
            continue;
        *ret = n->value;
        return 0;
    }
    return conf_node_fail(n, file, e, "\"%s\" is not one of %s", conf_quote(n->value).text,
                          choices);
}

int conf_node_strs(const struct conf_node *n, const char *file, struct arena *a, struct str **ret,
                   size_t *ret_len, struct err *e)
{
    size_t len = 0;

    if (!n)
        return 0;
    if (n->kind != CONF_NODE_SCALAR && conf_node_is(n, file, CONF_NODE_LIST, e))
        return e->code;
    struct str *all = ARENA_ARRAY(a, struct str, n->len + 1);
    if (!all)
        return conf_node_fail(n, file, e, "more than %zu bytes of memory", arena_limit(a));
    if (n->kind == CONF_NODE_SCALAR)
        all[len++] = n->value;
    for (const struct conf_node *i = n->first; i; i = i->next) {
        if (conf_node_is(i, file, CONF_NODE_SCALAR, e))
            return e->code;
        all[len++] = i->value;
    }
    *ret = all;
    *ret_len = len;
    return 0;
}
