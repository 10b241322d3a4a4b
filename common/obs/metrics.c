/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics: a registry of metrics, each with cells, each cell a few relaxed atomics.
 *
 *   registry ── metrics in order of name ── cells in order of birth ── value | buckets + sum
 *
 * Registering and finding a cell take the registry's mutex; counting does not. Rendering takes the
 * mutex too, which only keeps new cells out: values still change, so a histogram's count is
 * computed from its buckets as read, and the text is consistent in itself.
 *
 * Cells are bounded: the METRIC_CELLS_MAX-th label set and all after it share one cell whose label
 * values are all "other".
 */
#include "common/obs/metrics.h"

#include <stdatomic.h>
#include <stdio.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/sys/thread.h"

enum { LABELS_MAX = 8, BUCKETS_MAX = 64, VALUE_MAX = 256, HOOKS_MAX = 64 };

struct metric_cell {
    const struct metric *metric; /* borrowed */
    struct str key;              /* owned: label values, each ended by a NUL */
    _Atomic uint64_t value;      /* counter; gauge as two's complement */
    _Atomic uint64_t *buckets;   /* owned; one more than the metric has bounds, the last is +Inf */
    _Atomic uint64_t sum_bits;   /* a double */
};

struct metric {
    enum metric_kind kind;
    struct metrics *registry; /* borrowed */
    char *name, *help;        /* owned */
    char *labels;             /* owned; NUL-separated */
    const char *label_names[LABELS_MAX];
    size_t label_count;
    double bounds[BUCKETS_MAX];
    size_t bounds_len;
    VEC(struct metric_cell *) cells;
    struct map_str *by_key;
    struct metric_cell *other; /* in cells; NULL until needed */
};

struct hook {
    void (*fn)(void *cookie);
    void *cookie;
};

struct metrics {
    struct mutex lock;
    VEC(struct metric *) list; /* by name */
    struct hook hooks[HOOKS_MAX];
    size_t hooks_len;
};

/* ---- life ------------------------------------------------------------------------------------ */

struct metrics *metrics_new(void)
{
    struct metrics *m = XNEW(struct metrics);

    mutex_init(&m->lock);
    return m;
}

static void cell_free(struct metric_cell *c)
{
    xfree((void *)(uintptr_t)c->key.ptr);
    xfree((void *)(uintptr_t)c->buckets);
    xfree(c);
}

static void metric_free(struct metric *m)
{
    vec_for (i, &m->cells)
        cell_free(m->cells.ptr[i]);
    vec_free(&m->cells);
    map_str_free(m->by_key);
    xfree(m->name);
    xfree(m->help);
    xfree(m->labels);
    xfree(m);
}

void metrics_free(struct metrics *m)
{
    if (!m)
        return;
    vec_for (i, &m->list)
        metric_free(m->list.ptr[i]);
    vec_free(&m->list);
    mutex_deinit(&m->lock);
    xfree(m);
}

/* ---- registering ----------------------------------------------------------------------------- */

static bool name_ok(const char *s)
{
    if (!((*s >= 'a' && *s <= 'z') || *s == '_'))
        return false;
    for (; *s; s++)
        if (!((*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9') || *s == '_'))
            return false;
    return true;
}

static void split_labels(struct metric *m, const char *labels)
{
    m->labels = xstrdup(labels ? labels : "");
    if (!*m->labels)
        return;
    m->label_names[m->label_count++] = m->labels;
    for (char *p = m->labels; *p; p++)
        if (*p == ',') {
            *p = '\0';
            CHECK(m->label_count < LABELS_MAX);
            m->label_names[m->label_count++] = p + 1;
        }
    for (size_t i = 0; i < m->label_count; i++)
        CHECK(name_ok(m->label_names[i]));
}

/* Where `name` is or belongs in the sorted list. */
static size_t position(const struct metrics *m, const char *name)
{
    size_t lo = 0, hi = m->list.len;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (strcmp(m->list.ptr[mid]->name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The metric of this name, which is made if the registry has none; *ret_made: it was. Under the
 * lock. */
static struct metric *get_or_make(struct metrics *m, enum metric_kind kind, const char *name,
                                  const char *help, const char *labels, bool *ret_made)
{
    size_t at = position(m, name);
    struct metric *n;

    CHECK(name_ok(name));
    *ret_made = false;
    if (at < m->list.len && strcmp(m->list.ptr[at]->name, name) == 0) {
        n = m->list.ptr[at];
        CHECK(n->kind == kind);
        return n;
    }
    n = XNEW(struct metric);
    n->kind = kind;
    n->registry = m;
    n->name = xstrdup(name);
    n->help = xstrdup(help);
    split_labels(n, labels);
    n->by_key = map_str_new();
    vec_push(&m->list, n);
    memmove(m->list.ptr + at + 1, m->list.ptr + at,
            (m->list.len - 1 - at) * sizeof(struct metric *));
    m->list.ptr[at] = n;
    *ret_made = true;
    return n;
}

struct metric *metric_new(struct metrics *m, enum metric_kind kind, const char *name,
                          const char *help, const char *labels)
{
    struct metric *n;
    bool made;

    CHECK(kind != METRIC_HISTOGRAM);
    mutex_lock(&m->lock);
    n = get_or_make(m, kind, name, help, labels, &made);
    mutex_unlock(&m->lock);
    return n;
}

struct metric *metric_new_histogram(struct metrics *m, const char *name, const char *help,
                                    const char *labels, const double *buckets, size_t buckets_len)
{
    struct metric *n;
    bool made;

    CHECK(buckets_len > 0 && buckets_len <= BUCKETS_MAX);
    for (size_t i = 1; i < buckets_len; i++)
        CHECK(buckets[i - 1] < buckets[i]);
    mutex_lock(&m->lock);
    n = get_or_make(m, METRIC_HISTOGRAM, name, help, labels, &made);
    if (made) {
        memcpy(n->bounds, buckets, buckets_len * sizeof(*buckets));
        n->bounds_len = buckets_len;
    }
    mutex_unlock(&m->lock);
    return n;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static struct metric_cell *cell_new(struct metric *m, const char *key, size_t key_len)
{
    struct metric_cell *c = XNEW(struct metric_cell);

    c->metric = m;
    c->key = str_n(xmemdup(key, MAX(key_len, (size_t)1)), key_len);
    if (m->kind == METRIC_HISTOGRAM)
        c->buckets = XNEW_ARRAY(_Atomic uint64_t, m->bounds_len + 1);
    vec_push(&m->cells, c);
    return c;
}

/* Label values one behind the other, each ended by a NUL; long ones are cut. */
static size_t make_key(char *key, const struct str *values, size_t n)
{
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        size_t part = MIN(values[i].len, (size_t)VALUE_MAX);

        for (size_t j = 0; j < part; j++)
            key[len++] = values[i].ptr[j] ? values[i].ptr[j] : '?';
        key[len++] = '\0';
    }
    return len;
}

struct metric_cell *metric_at(struct metric *m, const struct str *values, size_t n)
{
    static const struct str other = { "other", 5 };
    char key[LABELS_MAX * (VALUE_MAX + 1)];
    struct str others[LABELS_MAX];
    struct metric_cell *c;
    size_t len;

    CHECK(n == m->label_count);
    len = make_key(key, values, n);
    mutex_lock(&m->registry->lock);
    c = map_str_get(m->by_key, str_n(key, len));
    if (!c && m->cells.len + 1 < METRIC_CELLS_MAX) {
        c = cell_new(m, key, len);
        (void)map_str_put(m->by_key, c->key, c);
    } else if (!c) {
        if (!m->other) {
            for (size_t i = 0; i < n; i++)
                others[i] = other;
            m->other = cell_new(m, key, make_key(key, others, n));
        }
        c = m->other;
    }
    mutex_unlock(&m->registry->lock);
    return c;
}

void metric_forget(struct metric *m, const struct str *values, size_t n)
{
    char key[LABELS_MAX * (VALUE_MAX + 1)];
    struct metric_cell *c;

    CHECK(n == m->label_count);
    size_t len = make_key(key, values, n), at = 0;
    mutex_lock(&m->registry->lock);
    c = map_str_del(m->by_key, str_n(key, len));
    if (c) {
        while (m->cells.ptr[at] != c)
            at++;
        m->cells.len--;
        memmove(m->cells.ptr + at, m->cells.ptr + at + 1,
                (m->cells.len - at) * sizeof(struct metric_cell *));
        cell_free(c);
    }
    mutex_unlock(&m->registry->lock);
}

void metric_add(struct metric_cell *c, uint64_t n)
{
    DCHECK(c->metric->kind == METRIC_COUNTER);
    atomic_fetch_add_explicit(&c->value, n, memory_order_relaxed);
}

void metric_set(struct metric_cell *c, int64_t v)
{
    DCHECK(c->metric->kind == METRIC_GAUGE);
    atomic_store_explicit(&c->value, (uint64_t)v, memory_order_relaxed);
}

void metric_move(struct metric_cell *c, int64_t by)
{
    DCHECK(c->metric->kind == METRIC_GAUGE);
    atomic_fetch_add_explicit(&c->value, (uint64_t)by, memory_order_relaxed);
}

uint64_t metric_value(const struct metric_cell *c)
{
    return atomic_load_explicit(&c->value, memory_order_relaxed);
}

static double bits_double(uint64_t bits)
{
    double d;

    memcpy(&d, &bits, sizeof(d));
    return d;
}

static uint64_t double_bits(double d)
{
    uint64_t bits;

    memcpy(&bits, &d, sizeof(d));
    return bits;
}

void metric_observe(struct metric_cell *c, double v)
{
    uint64_t old = atomic_load_explicit(&c->sum_bits, memory_order_relaxed);
    size_t i = 0;

    CHECK(c->metric->kind == METRIC_HISTOGRAM);
    while (i < c->metric->bounds_len && v > c->metric->bounds[i])
        i++;
    atomic_fetch_add_explicit(&c->buckets[i], 1, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&c->sum_bits, &old,
                                                  double_bits(bits_double(old) + v),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* ---- rendering ------------------------------------------------------------------------------- */

void metrics_on_render(struct metrics *m, void (*fn)(void *cookie), void *cookie)
{
    mutex_lock(&m->lock);
    CHECK(m->hooks_len < HOOKS_MAX);
    m->hooks[m->hooks_len++] = (struct hook){ fn, cookie };
    mutex_unlock(&m->lock);
}

/* Quotes are escaped in a label value, and not in a help text. */
static void add_escaped(struct buf *out, struct str s, bool quotes)
{
    bool utf8 = str_utf8_valid(s);

    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];

        if (c == '\\')
            (void)buf_add_str(out, STR("\\\\"));
        else if (c == '\n')
            (void)buf_add_str(out, STR("\\n"));
        else if (c == '"' && quotes)
            (void)buf_add_str(out, STR("\\\""));
        else
            (void)buf_add_c(out, (unsigned char)c >= 0x80 && !utf8 ? '?' : c);
    }
}

/* `{a="x",le="0.5"}`; nothing when there is nothing to say. */
static void add_labels(struct buf *out, const struct metric_cell *c, const char *le)
{
    const char *value = c->key.ptr;
    bool first = true;

    for (size_t i = 0; i < c->metric->label_count; i++) {
        struct str v = str_c(value);

        (void)buf_addf(out, "%s%s=\"", first ? "{" : ",", c->metric->label_names[i]);
        add_escaped(out, v, true);
        (void)buf_add_c(out, '"');
        value += v.len + 1;
        first = false;
    }
    if (le)
        (void)buf_addf(out, "%sle=\"%s\"", first ? "{" : ",", le);
    if (le || !first)
        (void)buf_add_c(out, '}');
}

static void add_histogram(struct buf *out, const struct metric_cell *c)
{
    const struct metric *m = c->metric;
    uint64_t total = 0;

    for (size_t i = 0; i <= m->bounds_len; i++) {
        char le[32] = "+Inf";

        if (i < m->bounds_len)
            (void)snprintf(le, sizeof(le), "%.12g", m->bounds[i]);
        total += atomic_load_explicit(&c->buckets[i], memory_order_relaxed);
        (void)buf_addf(out, "%s_bucket", m->name);
        add_labels(out, c, le);
        (void)buf_addf(out, " %" PRIu64 "\n", total);
    }
    (void)buf_addf(out, "%s_sum", m->name);
    add_labels(out, c, NULL);
    (void)buf_addf(out, " %.17g\n%s_count",
                   bits_double(atomic_load_explicit(&c->sum_bits, memory_order_relaxed)), m->name);
    add_labels(out, c, NULL);
    (void)buf_addf(out, " %" PRIu64 "\n", total);
}

static void add_metric(struct buf *out, const struct metric *m)
{
    static const char *const kinds[] = { "counter", "gauge", "histogram" };

    (void)buf_addf(out, "# HELP %s ", m->name);
    add_escaped(out, str_c(m->help), false);
    (void)buf_addf(out, "\n# TYPE %s %s\n", m->name, kinds[m->kind]);
    vec_for (i, &m->cells) {
        const struct metric_cell *c = m->cells.ptr[i];

        if (m->kind == METRIC_HISTOGRAM) {
            add_histogram(out, c);
            continue;
        }
        (void)buf_add_str(out, str_c(m->name));
        add_labels(out, c, NULL);
        (void)buf_add_c(out, ' ');
        if (m->kind == METRIC_GAUGE)
            (void)buf_add_i64(out, (int64_t)metric_value(c));
        else
            (void)buf_add_u64(out, metric_value(c));
        (void)buf_add_c(out, '\n');
    }
}

void metrics_render(struct metrics *m, struct buf *out)
{
    struct hook hooks[HOOKS_MAX];
    size_t n;

    /* Hooks find cells, which takes the lock. */
    mutex_lock(&m->lock);
    n = m->hooks_len;
    memcpy(hooks, m->hooks, sizeof(hooks));
    mutex_unlock(&m->lock);
    for (size_t i = 0; i < n; i++)
        hooks[i].fn(hooks[i].cookie);
    mutex_lock(&m->lock);
    vec_for (i, &m->list)
        add_metric(out, m->list.ptr[i]);
    mutex_unlock(&m->lock);
}
