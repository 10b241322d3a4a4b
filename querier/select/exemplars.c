/* SPDX-License-Identifier: Apache-2.0
 *
 * exemplars.c: takes ids out of matchers and messages, and asks for exemplars by them.
 *
 * An id matcher is removed from the selector, because no series has such a label. Of a request only
 * one of spans, traces and profiles may be named. Lists of ids are sorted and unique, so that
 * ingesters can search them. An empty value matches every series, as for any label that is absent.
 */
#include "querier/select/exemplars.h"

#include "common/base/hex.h"

#include <stdlib.h>

#define IDS_MAX  1024 /* of one request */
#define SPANS    (1u << EXID_SPAN)
#define TRACES   (1u << EXID_TRACE)
#define PROFILES (1u << EXID_SPAN | 1u << EXID_PROFILE)

static int by_str(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static int no_room(struct err *e)
{
    return err_set(e, ERR_LIMIT, "too many ids in one request");
}

NODISCARD int exm_of_texts(const struct str *texts, size_t n, unsigned kinds, struct arena *a,
                           struct exm_ids *ret, struct err *e)
{
    struct str *list = ARENA_ARRAY(a, struct str, n + 1);
    struct exid id;
    size_t len = 0;

    if (n > IDS_MAX)
        return err_set(e, ERR_LIMIT, "%zu ids, the limit is %d", n, IDS_MAX);
    for (size_t i = 0; list && i < n; i++) {
        if (!exid_parse(texts[i], &id))
            return err_set(e, ERR_INPUT, "\"%.*s\" is no id of a span, trace or profile",
                           (int)MIN(texts[i].len, 80), texts[i].ptr ? texts[i].ptr : "");
        list[i] = arena_strdup(a, exid_str(&id));
        if (!list[i].ptr)
            return no_room(e);
    }
    if (!list)
        return no_room(e);
    if (n > 1)
        qsort(list, n, sizeof(*list), by_str);
    for (size_t i = 0; i < n; i++)
        if (!len || !str_eq(list[len - 1], list[i]))
            list[len++] = list[i];
    *ret = (struct exm_ids){ kinds, list, len };
    return 0;
}

/* ---- matchers ---- */

/* "x|y" where both are plain text. */
static int alternatives(struct str value, struct arena *a, struct str **ret, size_t *ret_len,
                        struct err *e)
{
    struct str rest = value, part;
    bool more = true;
    size_t n = 1;

    for (size_t i = 0; i < value.len; i++) {
        char c = value.ptr[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     c == '-' || c == '_' || c == '|';
        if (!plain)
            return err_set(e, ERR_INPUT, "ids are matched by = or by =~ with a list a|b|c");
        n += c == '|';
    }
    *ret = ARENA_ARRAY(a, struct str, n);
    *ret_len = 0;
    while (*ret && str_next(&rest, '|', &more, &part))
        (*ret)[(*ret_len)++] = part;
    return *ret ? 0 : no_room(e);
}

static int take_matcher(const struct matcher *m, unsigned kinds, struct arena *a,
                        struct exm_ids *io, struct err *e)
{
    struct str one = m->value, *texts = &one;
    size_t n = 1;

    if (io->kinds)
        return err_set(e, ERR_INPUT, "a query may name one of span_id, trace_id and profile_id");
    if (m->op == MATCH_RE && alternatives(m->value, a, &texts, &n, e))
        return e->code;
    if (m->op != MATCH_RE && m->op != MATCH_EQ)
        return err_set(e, ERR_INPUT, "%.*s: ids are matched by = or by =~ with a list a|b|c",
                       STR_ARG(m->name));
    return exm_of_texts(texts, n, kinds, a, io, e);
}

NODISCARD int exm_of_spec(struct query_spec *s, struct arena *a, struct exm_ids *ret, struct err *e)
{
    *ret = (struct exm_ids){ 0 };
    for (size_t i = 0; i < s->len; i++) {
        struct selector *sel = &s->selectors[i];
        for (size_t k = 0; k < sel->len;) {
            const struct matcher *m = &sel->matchers[k];
            enum exid_kind kind = exid_label(m->name);
            if (kind == EXID_NONE) {
                k++;
                continue;
            }
            unsigned kinds = kind == EXID_TRACE               ? TRACES
                             : str_eqc(m->name, "profile_id") ? PROFILES
                                                              : SPANS;
            /* An empty value means "without the label": so has every series. */
            if (m->value.len && take_matcher(m, kinds, a, ret, e))
                return e->code;
            sel->len--;
            memmove(&sel->matchers[k], &sel->matchers[k + 1], (sel->len - k) * sizeof(*m));
        }
    }
    return 0;
}

/* ---- querier.v1 ---- */

/* Every text has so many hex digits. */
static int check_hex(const struct str *texts, size_t n, size_t digits, const char *what,
                     struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        bool hex = texts[i].len == digits;
        for (size_t k = 0; hex && k < digits; k++)
            hex = hex_digit(texts[i].ptr[k]) >= 0;
        if (!hex)
            return err_set(e, ERR_INPUT, "%s: \"%.*s\" is not an id of %zu hex digits", what,
                           (int)MIN(texts[i].len, 80), texts[i].ptr ? texts[i].ptr : "", digits);
    }
    return 0;
}

NODISCARD int exm_of_msg(struct query *q, const struct v1_merge *m, bool must, struct exm_ids *io,
                         struct err *e)
{
    const struct {
        const struct msg_list *list;
        const char *key;
        size_t digits;
        unsigned kinds;
    } rows[] = {
        { &m->spans, "spanSelector", 16, SPANS },
        { &m->trace_ids, "traceIdSelector", 32, TRACES },
        { &m->profile_ids, "profileIdSelector", 0, PROFILES },
    };

    for (size_t i = 0; i < (must ? 1 : ARRAY_LEN(rows)); i++) {
        const struct str *texts = msg_strs(rows[i].list);
        size_t n = rows[i].list->len;
        if (!n && !must)
            continue;
        if (io->kinds)
            return err_set(e, ERR_INPUT,
                           "%s: a query may name spans, traces or profiles, not two of them",
                           rows[i].key);
        if (rows[i].digits && check_hex(texts, n, rows[i].digits, rows[i].key, e))
            return e->code;
        if (exm_of_texts(texts, n, rows[i].kinds, q->arena, io, e))
            return err_wrap(e, "%s", rows[i].key);
    }
    return 0;
}

/* ---- questions ---- */

NODISCARD int exm_ask_merge(struct query *q, size_t ask, const struct wire_query *wq,
                            const struct exm_ids *ids, struct exm_site site, struct err *e)
{
    struct wire_exemplars x = { .what = WIRE_EXM_MERGE,
                                .kinds = ids->kinds,
                                .ids = ids->ids,
                                .ids_len = ids->len,
                                .call_site = site.names,
                                .call_site_len = site.len };

    return ids->len ? query_ask_exemplars(q, ask, wq, x, e) : 0;
}

NODISCARD int exm_ask_timeline(struct query *q, size_t ask, const struct wire_query *wq,
                               const struct exm_ids *ids, const struct exm_timeline *timeline,
                               struct err *e)
{
    struct wire_exemplars x = { .what = WIRE_EXM_TIMELINE,
                                .kinds = ids->kinds,
                                .ids = ids->ids,
                                .ids_len = ids->len,
                                .call_site = timeline->site.names,
                                .call_site_len = timeline->site.len,
                                .grid = timeline->grid };

    return ids->len ? query_ask_exemplars(q, ask, wq, x, e) : 0;
}

NODISCARD int exm_ask_list(struct query *q, size_t ask, const struct wire_query *wq,
                           struct wire_exemplars more, struct exm_site site, struct err *e)
{
    more.what = WIRE_EXM_LIST;
    more.call_site = site.names;
    more.call_site_len = site.len;
    return query_ask_exemplars(q, ask, wq, more, e);
}

NODISCARD int exm_ask_ids(struct query *q, size_t ask, const struct wire_query *wq,
                          const struct exm_ids *ids, struct exm_site site, struct err *e)
{
    struct wire_exemplars x = { .what = WIRE_EXM_LIST,
                                .kinds = ids->kinds,
                                .ids = ids->ids,
                                .ids_len = ids->len,
                                .call_site = site.names,
                                .call_site_len = site.len };

    return ids->len ? query_ask_exemplars(q, ask, wq, x, e) : 0;
}

/* ---- answers ---- */

bool exm_point(const struct plan_grid *g, int64_t start_ms, uint32_t *ret_k)
{
    int64_t behind = start_ms - g->origin_ms;
    int64_t k = behind > 0 ? (behind + g->step_ms - 1) / g->step_ms : 0;

    *ret_k = (uint32_t)k;
    return behind > -g->step_ms && k < g->points;
}

NODISCARD int exm_group(const struct labels *series, const struct str *by, size_t by_len,
                        struct arena *a, struct exm_group *ret, struct err *e)
{
    struct exm_group mine = { 0 };
    struct buf key;

    for (size_t i = 0; i < by_len; i++) {
        struct str value = labels_get(series, by[i]);
        if (value.len && labels_set(&mine.labels, a, by[i], value, e))
            return e->code;
    }
    buf_init(&key, MIB);
    labels_encode(&mine.labels, &key);
    mine.key = buf_ok(&key) ? arena_strdup(a, buf_str(&key)) : STR_NULL;
    buf_deinit(&key);
    if (!mine.key.ptr)
        return err_set(e, ERR_LIMIT, "the groups of the answer do not fit the request's memory");
    *ret = mine;
    return 0;
}

void exm_put(const struct wire_exemplar *x, const struct labels *series, const struct str *by,
             size_t by_len, struct msg_out *o)
{
    struct label kept[64];
    struct labels rest = { kept, 0 };
    char text[EXID_BYTES_MAX];
    struct str id = str_n(text, exid_text(x->id, text));

    for (size_t i = 0; i < series->len && rest.len < ARRAY_LEN(kept); i++) {
        bool grouped = false;
        for (size_t k = 0; k < by_len; k++)
            grouped |= str_eq(series->ptr[i].name, by[k]);
        if (!grouped)
            kept[rest.len++] = series->ptr[i];
    }
    msg_out_obj(o, MSG_ITEM);
    msg_out_i64(o, 1, "timestamp", x->start_ms);
    if (x->kind == EXID_SPAN)
        msg_out_str(o, 3, "spanId", id);
    else if (x->kind == EXID_TRACE)
        msg_out_str(o, 6, "traceId", id);
    else
        msg_out_str(o, 2, "profileId", id);
    msg_out_i64(o, 4, "value", (int64_t)MIN(x->total, (uint64_t)INT64_MAX));
    msg_out_labels(o, 5, "labels", &rest);
    msg_out_obj_end(o);
}
