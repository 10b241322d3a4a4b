/* SPDX-License-Identifier: Apache-2.0
 *
 * collectors: one point of a timeline, grouped by the labels that name collectors. Those are kept
 * by roll-ups, so it costs what the timeline of the service costs. A route that asks for a sum asks
 * this with it; the replies are read before the route's next step (q->before), so that the notice
 * is known when a reply begins. Each sum has a number of its own: the sides of a comparison, and
 * tenants that both have a service of this name, are never taken for collectors of one service.
 *
 *   source          what Grafana's agents set, by their documentation: alloy/pyroscope.ebpf, ...
 *   pyroscope_spy   what `spyName` of a push said; only of profilers of whole machines, since the
 *                   others name languages, and a service may be written in two
 *
 * Series without either are of an SDK. A label called source may mean something else, so one of its
 * values must have a word of collectors in it. Where it has more values than fit into the memory of
 * a question it names no collectors, and the answer has no notice.
 */
#include "querier/merge/collectors.h"

#include "common/base/mem.h"
#include "querier/merge/merged.h"

#define ASK_FIRST  ((size_t)1 << 32) /* above the numbers of all other questions */
#define NAMED_MAX  4                 /* values that a notice names */
#define NAME_BYTES 100               /* of each */
#define TEXT_MAX   1024

enum collector_label { SOURCE, SPY };
static const struct str labels[] = { [SOURCE] = { "source", 6 }, [SPY] = { "pyroscope_spy", 13 } };

static bool picks_one(const struct wire_query *wq)
{
    for (size_t i = 0; i < wq->selectors_len; i++)
        for (size_t k = 0; k < wq->selectors[i].len; k++) {
            const struct matcher *m = &wq->selectors[i].matchers[k];
            if (m->op == MATCH_EQ && str_eq(m->name, labels[SOURCE]))
                return true;
        }
    return false;
}

void collectors_apart(struct query *q, const struct str *group_by, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < ARRAY_LEN(labels); k++)
            q->collectors_apart |= str_eq(group_by[i], labels[k]) ? 1u << k : 0;
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

/* "" is an SDK. False: the answer shows this one apart from all others. */
static bool collector_of(const struct query *q, const struct labels *l, struct str *ret)
{
    struct str source = labels_get(l, labels[SOURCE]), spy = labels_get(l, labels[SPY]);
    bool of_machine = has_word(spy, STR("ebpf")) || has_word(spy, STR("parca"));

    if (q->collectors_apart & 1u << SPY)
        of_machine = false;
    *ret = source.len ? source : of_machine ? spy : STR("");
    return !(q->collectors_apart & 1u << SOURCE) || !source.len;
}

/* Distinct ones, as many as are named; *ret_len counts one more where there are more. True: one of
 * all is called as collectors are. */
static bool list(const struct query *q, const struct timeline *t, struct str ret[NAMED_MAX],
                 size_t *ret_len)
{
    bool any = false;

    *ret_len = 0;
    vec_for (i, &t->groups) {
        struct str name;
        size_t k = 0;

        if (!collector_of(q, &t->groups.ptr[i].labels, &name))
            continue;
        any |= is_collector(name);
        while (k < MIN(*ret_len, NAMED_MAX) && !str_eq(ret[k], name))
            k++;
        if (k < MIN(*ret_len, NAMED_MAX) || *ret_len > NAMED_MAX)
            continue;
        if (*ret_len < NAMED_MAX)
            ret[k] = name;
        ++*ret_len;
    }
    return any;
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

static int read_one(struct query *q, size_t number, struct err *e)
{
    struct str names[NAMED_MAX];
    struct timeline t;
    size_t n;

    timeline_init(&t, q->arena);
    int code = merged_timeline(q, ASK_FIRST + number, 1, false, &t, e);
    if (!code && list(q, &t, names, &n) && n > 1)
        say(q, names, n);
    if (code == ERR_LIMIT) {
        err_clear(e);
        code = 0;
    }
    timeline_deinit(&t);
    return code;
}

/* q->before: all replies. */
static int read_all(struct query *q, struct err *e)
{
    size_t n = q->collectors;

    q->collectors = 0;
    for (size_t i = 0; i < n; i++)
        if (read_one(q, i, e))
            return e->code;
    return 0;
}

NODISCARD int collectors_ask(struct query *q, size_t sum, size_t tenant,
                             const struct wire_query *wq, struct err *e)
{
    size_t number = sum * QUERY_TENANTS_MAX + tenant;
    struct plan_range r = wq->range;
    struct wire_timeline tl = { .grid = { r.end_ms - 1, r.end_ms - r.start_ms, 1 },
                                .group_by = labels,
                                .group_by_len = ARRAY_LEN(labels) };
    struct str service;

    CHECK(tenant < QUERY_TENANTS_MAX);
    if (r.empty || r.end_ms <= r.start_ms || picks_one(wq) ||
        !plan_service(wq->selectors, wq->selectors_len, &service))
        return 0;
    q->collectors = MAX(q->collectors, number + 1);
    q->before = read_all;
    return query_ask_timeline_if(q, ASK_FIRST + number, wq, &tl, e);
}

void collectors_json(const struct query *q, struct json *j)
{
    if (!q->notice.len)
        return;
    json_put_str(j, "notice", q->notice);
}
