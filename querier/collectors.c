/* SPDX-License-Identifier: Apache-2.0
 *
 * collectors: one point of a timeline, grouped by the labels that name collectors. Those are kept
 * by roll-ups, so it costs what the timeline of the service costs.
 *
 *   source          what Grafana's agents set, by their documentation: alloy/pyroscope.ebpf, ...
 *   pyroscope_spy   what `spyName` of a push said; only of profilers of whole machines, since the
 *                   others name languages, and a service may be written in two
 *
 * Series without either are of an SDK. A label called source may mean something else, so one of its
 * values must have a word of collectors in it.
 */
#include "querier/collectors.h"

#include "common/base/mem.h"
#include "querier/merged.h"

#define NAMED_MAX  4   /* values that a notice names */
#define NAME_BYTES 100 /* of each */
#define TEXT_MAX   1024

static const struct str labels[] = { { "source", 6 }, { "pyroscope_spy", 13 } };

static bool picks_one(const struct wire_query *wq)
{
    for (size_t i = 0; i < wq->selectors_len; i++)
        for (size_t k = 0; k < wq->selectors[i].len; k++) {
            const struct matcher *m = &wq->selectors[i].matchers[k];
            if (m->op == MATCH_EQ && str_eq(m->name, labels[0]))
                return true;
        }
    return false;
}

NODISCARD int collectors_ask(struct query *q, size_t ask, const struct wire_query *wq,
                             struct err *e)
{
    struct plan_range r = wq->range;
    struct wire_timeline tl = { .grid = { r.end_ms - 1, r.end_ms - r.start_ms, 1 },
                                .group_by = labels,
                                .group_by_len = ARRAY_LEN(labels) };
    struct str service;

    if (r.empty || !plan_service(wq->selectors, wq->selectors_len, &service) || picks_one(wq))
        return 0;
    return query_ask_timeline(q, ask, wq, &tl, e);
}

static bool has_word(struct str s, struct str word)
{
    for (size_t i = 0; i + word.len <= s.len; i++)
        if (str_eq(str_sub(s, i, i + word.len), word))
            return true;
    return false;
}

static bool is_collector(struct str name)
{
    static const char *const words[] = { "ebpf",  "sdk",  "alloy",    "agent",
                                         "parca", "otel", "pyroscope" };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (has_word(name, str_c(words[i])))
            return true;
    return false;
}

/* "" is an SDK. */
static struct str collector_of(const struct labels *l)
{
    struct str source = labels_get(l, labels[0]), spy = labels_get(l, labels[1]);

    if (source.len)
        return source;
    return has_word(spy, STR("ebpf")) || has_word(spy, STR("parca")) ? spy : STR("");
}

/* Distinct ones, as many as are named; *ret_len counts one more where there are more. */
static void list(const struct timeline *t, struct str ret[NAMED_MAX], size_t *ret_len)
{
    *ret_len = 0;
    vec_for (i, &t->groups) {
        struct str name = collector_of(&t->groups.ptr[i].labels);
        size_t k = 0;

        while (k < MIN(*ret_len, NAMED_MAX) && !str_eq(ret[k], name))
            k++;
        if (k < MIN(*ret_len, NAMED_MAX) || *ret_len > NAMED_MAX)
            continue;
        if (*ret_len < NAMED_MAX)
            ret[k] = name;
        ++*ret_len;
    }
}

static void say(struct query *q, const struct str *names, size_t n)
{
    struct buf text;

    buf_init(&text, TEXT_MAX);
    (void)buf_add_str(&text, STR("the sum has profiles of several collectors of this service ("));
    for (size_t i = 0; i < MIN(n, NAMED_MAX); i++)
        (void)buf_addf(&text, "%s%.*s", i ? ", " : "",
                       (int)(names[i].len ? MIN(names[i].len, NAME_BYTES) : strlen("an SDK")),
                       names[i].len ? names[i].ptr : "an SDK");
    (void)buf_add_str(&text, n > NAMED_MAX ? STR(", ...)") : STR(")"));
    (void)buf_add_str(&text, STR(": what two of them measured counts twice; the label source or "
                                 "pyroscope_spy selects one"));
    q->notice = arena_strdup(q->arena, buf_ok(&text) ? buf_str(&text) : STR(""));
    buf_deinit(&text);
}

NODISCARD int collectors_read(struct query *q, size_t ask, struct err *e)
{
    struct str names[NAMED_MAX];
    struct timeline t;
    size_t n;

    timeline_init(&t, q->arena);
    int code = merged_timeline(q, ask, 1, false, &t, e);
    if (!code) {
        bool any = false;
        list(&t, names, &n);
        for (size_t i = 0; i < MIN(n, NAMED_MAX); i++)
            any |= is_collector(names[i]);
        if (n > 1 && any)
            say(q, names, n);
    }
    timeline_deinit(&t);
    return code;
}
