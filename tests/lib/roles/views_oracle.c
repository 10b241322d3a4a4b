/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/roles/views_oracle.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"

#define DEPTH_MAX 4096

void oracle_free(struct oracle *o)
{
    vec_for (i, &o->sums)
        xfree(o->sums.ptr[i].text);
    vec_free(&o->sums);
}

const struct oracle_sum *oracle_find(const struct oracle *o, struct str text)
{
    vec_for (i, &o->sums)
        if (str_eq(str_c(o->sums.ptr[i].text), text))
            return &o->sums.ptr[i];
    return NULL;
}

static void add(struct oracle *o, struct str text, uint64_t self, uint64_t total)
{
    struct oracle_sum *s = (struct oracle_sum *)(uintptr_t)oracle_find(o, text);

    if (!s) {
        char *copy = xcalloc(text.len + 1, 1);
        memcpy(copy, text.len ? text.ptr : "", text.len);
        vec_push(&o->sums, ((struct oracle_sum){ .text = copy }));
        s = &o->sums.ptr[o->sums.len - 1];
    }
    s->self += self;
    s->total += total;
}

/* A stack as names, root first. */
struct names {
    struct str at[DEPTH_MAX];
    size_t len;
};

static void split(const char *path, struct names *ret)
{
    struct str rest = str_c(path), part;
    bool more = rest.len > 0;

    ret->len = 0;
    while (more && str_next(&rest, '\n', &more, &part)) {
        CHECK(ret->len < DEPTH_MAX);
        ret->at[ret->len++] = part;
    }
}

/* Adds a stack to each of its beginnings of at least `from` names; its own value to the whole. */
static void add_path(struct oracle *o, const struct names *n, size_t from, uint64_t value)
{
    struct buf b;

    buf_init(&b, MIB);
    for (size_t i = 0; i <= n->len; i++) {
        if (i > 1)
            buf_add_c(&b, '\n');
        if (i > 0)
            buf_add_str(&b, n->at[i - 1]);
        if (i >= from)
            add(o, buf_str(&b), i == n->len ? value : 0, value);
    }
    buf_deinit(&b);
    o->total += value;
}

static size_t index_of(const struct names *n, struct str name)
{
    size_t i = 0;

    while (i < n->len && !str_eq(n->at[i], name))
        i++;
    return i;
}

void oracle_top(struct oracle *o, const struct gen_model *m)
{
    struct names n;

    vec_for (i, &m->paths) {
        uint64_t value = m->paths.ptr[i].self;
        split(m->paths.ptr[i].text, &n);
        o->total += value;
        for (size_t k = 0; value && k < n.len; k++)
            if (index_of(&n, n.at[k]) == k)
                add(o, n.at[k], str_eq(n.at[k], n.at[n.len - 1]) ? value : 0, value);
    }
}

void oracle_focus(struct oracle *o, const struct gen_model *m, struct str name)
{
    struct names n;

    vec_for (i, &m->paths) {
        split(m->paths.ptr[i].text, &n);
        if (m->paths.ptr[i].self && index_of(&n, name) < n.len)
            add_path(o, &n, 0, m->paths.ptr[i].self);
    }
}

void oracle_callees(struct oracle *o, const struct gen_model *m, struct str name)
{
    struct names n;

    vec_for (i, &m->paths) {
        split(m->paths.ptr[i].text, &n);
        size_t at = index_of(&n, name);
        if (!m->paths.ptr[i].self || at == n.len)
            continue;
        memmove(n.at, n.at + at, (n.len - at) * sizeof(*n.at));
        n.len -= at;
        add_path(o, &n, 0, m->paths.ptr[i].self);
    }
}

void oracle_callers(struct oracle *o, const struct gen_model *m, struct str name)
{
    struct names n;

    vec_for (i, &m->paths) {
        split(m->paths.ptr[i].text, &n);
        size_t at = index_of(&n, name);
        if (!m->paths.ptr[i].self || at == n.len)
            continue;
        n.len = at + 1;
        for (size_t k = 0; k < n.len / 2; k++) {
            struct str swap = n.at[k];
            n.at[k] = n.at[n.len - 1 - k];
            n.at[n.len - 1 - k] = swap;
        }
        add_path(o, &n, 0, m->paths.ptr[i].self);
    }
}

void oracle_of_tree(struct oracle *o, const struct calltree *t)
{
    static struct names n;

    for (size_t i = 0; i < t->parent.len; i++) {
        size_t depth = 0;
        if (!t->self.ptr[i])
            continue;
        for (uint32_t k = (uint32_t)i; k; k = t->parent.ptr[k])
            depth++;
        CHECK(depth < DEPTH_MAX);
        n.len = depth;
        for (uint32_t k = (uint32_t)i; k; k = t->parent.ptr[k])
            n.at[--depth] = t->names.ptr[t->name.ptr[k]];
        add_path(o, &n, 0, t->self.ptr[i]);
    }
}

int oracle_differ(const struct oracle *a, const struct oracle *b)
{
    if (a->total != b->total || a->sums.len != b->sums.len) {
        printf("totals %llu and %llu, %zu and %zu paths\n", (unsigned long long)a->total,
               (unsigned long long)b->total, a->sums.len, b->sums.len);
        return 1;
    }
    vec_for (i, &a->sums) {
        const struct oracle_sum *x = &a->sums.ptr[i], *y = oracle_find(b, str_c(x->text));
        if (!y || x->self != y->self || x->total != y->total) {
            printf("%s: self %llu total %llu, and %llu %llu\n", x->text,
                   (unsigned long long)x->self, (unsigned long long)x->total,
                   (unsigned long long)(y ? y->self : 0), (unsigned long long)(y ? y->total : 0));
            return 1;
        }
    }
    return 0;
}
