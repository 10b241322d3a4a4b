/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/roles/dist_push.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "tests/lib/gen/gen_pprof.h"

#define TEXT_MAX (512 * MIB)

int dist_decode_raw(struct dist_push *d, const struct ingest_raw *raw, struct str body,
                    const struct limits *l, struct err *e)
{
    *d = (struct dist_push){ .arena = arena_new((size_t)l->decode_bytes) };
    push_init(&d->push, d->arena, l, UINT64_C(0x5eed));
    if (ingest_parse(raw, l, DIST_NOW_MS, d->arena, &d->in, e) ||
        formats_decode(&(struct decode_job){ &d->in, l, DIST_NOW_MS, &d->push }, body, e))
        return e->code;
    dist_check(&d->push, l);
    return 0;
}

int dist_decode(struct dist_push *d, const char *name, const char *format, const char *content_type,
                struct str body, const struct limits *l, struct err *e)
{
    struct ingest_raw raw = { .name = str_c(name),
                              .format = str_c(format),
                              .content_type = str_c(content_type) };

    return dist_decode_raw(d, &raw, body, l, e);
}

void dist_push_free(struct dist_push *d)
{
    push_deinit(&d->push);
    arena_free(d->arena);
}

void dist_frame_name(const struct stacks *s, uint32_t frame, struct buf *out)
{
    struct str func = stacks_string_at(s, s->frame_func.ptr[frame]);
    struct str file = stacks_string_at(s, s->frame_file.ptr[frame]);
    struct str module = stacks_string_at(s, s->frame_module.ptr[frame]);

    if (func.len) {
        buf_add_str(out, func);
        return;
    }
    if (!file.len)
        file = str_sub(module, (size_t)(str_rfind(module, '/') + 1), module.len);
    buf_add_str(out, file.len ? file : STR("unknown"));
    buf_addf(out, "!0x%" PRIx64, s->frame_addr.ptr[frame]);
}

/* Root first, joined by ';'. */
static void stack_text(const struct stacks *s, uint32_t node, struct buf *out)
{
    VEC(uint32_t) path = { 0 };

    for (uint32_t at = node; at; at = s->node_parent.ptr[at - 1])
        vec_push(&path, at);
    for (size_t i = path.len; i > 0; i--) {
        if (i < path.len)
            buf_add_c(out, ';');
        dist_frame_name(s, s->node_frame.ptr[path.ptr[i - 1] - 1], out);
    }
    vec_free(&path);
}

static bool everywhere(struct str name)
{
    return str_starts(name, STR("__")) || str_eqc(name, "service_name") ||
           str_eqc(name, "pyroscope_spy");
}

static struct str sample_type(const struct push_series *s)
{
    return labels_get(&s->labels, STR("__type__"));
}

/* Rows of one stack text that stand for several nodes (files differ) are added up. */
void dist_rows(const struct push *p, struct buf *out)
{
    struct buf rows;
    struct str rest, line, last = STR_NULL;
    uint64_t sum = 0, v;
    bool more = true;

    buf_init(&rows, TEXT_MAX);
    for (size_t i = 0; i < p->series_len; i++) {
        const struct push_series *s = &p->series[i];
        for (size_t k = 0; k < s->len; k++) {
            bool comma = false;
            size_t from = rows.len;
            buf_add_str(&rows, sample_type(s));
            buf_add_str(&rows, STR("\t{"));
            for (size_t n = 0; n < s->labels.len; n++) {
                if (everywhere(s->labels.ptr[n].name))
                    continue;
                buf_addf(&rows, "%s%.*s=%.*s", comma ? "," : "", STR_ARG(s->labels.ptr[n].name),
                         STR_ARG(s->labels.ptr[n].value));
                comma = true;
            }
            buf_add_str(&rows, STR("}\t"));
            stack_text(&p->stacks, s->nodes[k], &rows);
            for (size_t n = from; n < rows.len; n++) /* names may hold anything; a row is a line */
                rows.ptr[n] = rows.ptr[n] == '\n' ? '~' : rows.ptr[n];
            buf_addf(&rows, "\t%" PRIu64 "\n", s->values[k]);
        }
    }
    gen_sort_lines(&rows);
    rest = buf_str(&rows);
    buf_init(out, TEXT_MAX);
    while (str_next(&rest, '\n', &more, &line)) {
        ptrdiff_t tab = str_rfind(line, '\t');
        struct str key = str_sub(line, 0, tab < 0 ? 0 : (size_t)tab);
        if (last.ptr && !str_eq(key, last)) {
            buf_addf(out, "%.*s\t%" PRIu64 "\n", STR_ARG(last), sum);
            sum = 0;
        }
        last = key.len ? key : STR_NULL;
        if (key.len) {
            CHECK(str_u64(str_sub(line, (size_t)tab + 1, line.len), &v));
            sum += v;
        }
    }
    buf_deinit(&rows);
    gen_sort_lines(out);
}

void dist_stack(const struct stacks *s, uint32_t node, struct buf *out)
{
    VEC(uint32_t) path = { 0 };

    for (uint32_t at = node; at; at = s->node_parent.ptr[at - 1])
        vec_push(&path, at);
    for (size_t i = path.len; i > 0; i--) {
        uint32_t f = s->node_frame.ptr[path.ptr[i - 1] - 1];
        buf_addf(out, ";%.*s|%.*s|%.*s|%" PRIu32 "|%" PRIx64,
                 STR_ARG(stacks_string_at(s, s->frame_func.ptr[f])),
                 STR_ARG(stacks_string_at(s, s->frame_file.ptr[f])),
                 STR_ARG(stacks_string_at(s, s->frame_module.ptr[f])), s->frame_line.ptr[f],
                 s->frame_addr.ptr[f]);
    }
    vec_free(&path);
}

/* x: NULL, or one of its exemplars. */
static void whole_rows(const struct push *p, const struct push_series *s,
                       const struct push_exemplar *x, struct buf *out)
{
    const uint32_t *nodes = x ? x->nodes : s->nodes;
    const uint64_t *values = x ? x->values : s->values;

    for (size_t k = 0; k < (x ? x->len : s->len); k++) {
        size_t from = out->len;
        buf_addf(out, "%.*s\t{", STR_ARG(s->profile_type));
        for (size_t n = 0; n < s->labels.len; n++)
            buf_addf(out, "%.*s=%.*s,", STR_ARG(s->labels.ptr[n].name),
                     STR_ARG(s->labels.ptr[n].value));
        buf_addf(out, "}\t%" PRIu64 "\t%d\t", s->unit, s->gauge);
        if (x)
            buf_addf(out, "%d:%.*s\t", (int)x->kind, STR_ARG(x->id));
        dist_stack(&p->stacks, nodes[k], out);
        for (size_t n = from; n < out->len; n++)
            out->ptr[n] = out->ptr[n] == '\n' ? '~' : out->ptr[n];
        buf_addf(out, "\t%" PRIu64 "\n", values[k]);
    }
}

void dist_whole(const struct push *p, struct buf *out)
{
    buf_init(out, TEXT_MAX);
    for (size_t i = 0; i < p->series_len; i++) {
        const struct push_series *s = &p->series[i];
        whole_rows(p, s, NULL, out);
        for (size_t k = 0; k < s->exemplars_len; k++)
            whole_rows(p, s, &s->exemplars[k], out);
    }
    CHECK(buf_ok(out));
    gen_sort_lines(out);
}

void dist_same_drops(const struct push *a, const struct push *b)
{
    for (size_t i = 0; i < PUSH_DROPS; i++)
        if (i == CHANGE_SATURATED)
            CHECK(!a->drops[i] == !b->drops[i]);
        else
            CHECK(a->drops[i] == b->drops[i]);
}

const struct push_series *dist_series(const struct push *p, const char *type)
{
    for (size_t i = 0; i < p->series_len; i++)
        if (str_eqc(sample_type(&p->series[i]), type))
            return &p->series[i];
    return NULL;
}

static int line_cmp(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static int self_by_name(const void *a, const void *b)
{
    const struct dist_self *x = a, *y = b;

    return str_cmp(str_n(x->name, x->len), str_n(y->name, y->len));
}

static int self_by_value(const void *a, const void *b)
{
    const struct dist_self *x = a, *y = b;

    return x->value > y->value ? -1 : x->value < y->value ? 1 : self_by_name(a, b);
}

static size_t distinct(struct buf *texts, const size_t *ends, size_t n)
{
    VEC(struct str) all = { 0 };
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        vec_push(&all, str_sub(buf_str(texts), i ? ends[i - 1] : 0, ends[i]));
    if (n)
        qsort(all.ptr, all.len, sizeof(*all.ptr), line_cmp);
    vec_for (i, &all)
        count += i == 0 || !str_eq(all.ptr[i - 1], all.ptr[i]);
    vec_free(&all);
    return count;
}

void dist_summarise(const struct push *p, const char *type, struct dist_summary *ret)
{
    VEC(struct dist_self) self = { 0 };
    VEC(size_t) ends = { 0 };
    struct buf texts, name;

    *ret = (struct dist_summary){ 0 };
    buf_init(&texts, TEXT_MAX);
    buf_init(&name, TEXT_MAX);
    for (size_t i = 0; i < p->series_len; i++) {
        const struct push_series *s = &p->series[i];
        if (type && !str_eqc(sample_type(s), type))
            continue;
        for (size_t k = 0; k < s->len; k++) {
            buf_reset(&name);
            dist_frame_name(&p->stacks, p->stacks.node_frame.ptr[s->nodes[k] - 1], &name);
            struct dist_self one = { xmemdup(name.ptr, name.len), name.len, s->values[k] };
            vec_push(&self, one);
            stack_text(&p->stacks, s->nodes[k], &texts);
            vec_push(&ends, texts.len);
            ret->total += s->values[k];
        }
    }
    ret->stacks = distinct(&texts, ends.ptr, ends.len);
    if (self.len)
        qsort(self.ptr, self.len, sizeof(*self.ptr), self_by_name);
    size_t n = 0;
    vec_for (i, &self) {
        if (n && self_by_name(&self.ptr[n - 1], &self.ptr[i]) == 0) {
            self.ptr[n - 1].value += self.ptr[i].value;
            xfree(self.ptr[i].name);
        } else {
            self.ptr[n++] = self.ptr[i];
        }
    }
    if (n)
        qsort(self.ptr, n, sizeof(*self.ptr), self_by_value);
    ret->self = self.ptr;
    ret->self_len = n;
    vec_free(&ends);
    buf_deinit(&texts);
    buf_deinit(&name);
}

void dist_summary_deinit(struct dist_summary *s)
{
    for (size_t i = 0; i < s->self_len; i++)
        xfree(s->self[i].name);
    xfree(s->self);
}

static size_t depth(const struct stacks *s, uint32_t node)
{
    size_t n = 0;

    for (; node; node = s->node_parent.ptr[node - 1])
        n++;
    return n;
}

void dist_check_exemplars(const struct push_series *s)
{
    uint64_t *left = XNEW_ARRAY(uint64_t, s->len + 1);

    for (int kind = EXID_SPAN; kind < EXID_KINDS; kind++) {
        if (s->len)
            memcpy(left, s->values, s->len * sizeof(*left));
        for (size_t i = 0; i < s->exemplars_len; i++) {
            const struct push_exemplar *x = &s->exemplars[i];
            size_t at = 0;
            if ((int)x->kind != kind)
                continue;
            CHECK(exid_valid(x->id) && x->len > 0);
            for (size_t k = 0; k < i && s->exemplars_len < 1000; k++)
                CHECK(s->exemplars[k].kind != x->kind || !str_eq(s->exemplars[k].id, x->id));
            for (size_t k = 0; k < x->len; k++) {
                while (at < s->len && s->nodes[at] < x->nodes[k])
                    at++;
                CHECK(at < s->len && s->nodes[at] == x->nodes[k] && x->values[k] > 0);
                if (s->values[at] == INT64_MAX) /* saturated: parts may be more than the sum */
                    continue;
                CHECK(x->values[k] <= left[at]);
                left[at] -= x->values[k];
            }
        }
    }
    xfree(left);
}

void dist_check(const struct push *p, const struct limits *l)
{
    struct stacks_view v = stacks_view(&p->stacks);
    struct err e;

    CHECK(stacks_view_check(&v, &e) == 0);
    CHECK(p->service.len > 0 && p->series_len <= l->series);
    for (size_t i = 0; i < p->series_len; i++) {
        const struct push_series *s = &p->series[i];
        struct ptype t;
        CHECK(s->len > 0 && s->unit > 0 && s->total > 0 && s->total <= INT64_MAX);
        CHECK(ptype_parse(s->profile_type, &t, &e) == 0);
        CHECK(s->gauge == ptype_is_gauge(&t));
        for (size_t k = 0; k < s->len; k++) {
            CHECK(s->nodes[k] > 0 && s->nodes[k] <= v.nodes);
            CHECK(k == 0 || s->nodes[k] > s->nodes[k - 1]);
            CHECK(s->values[k] > 0 && s->values[k] <= INT64_MAX);
            CHECK(depth(&p->stacks, s->nodes[k]) <= l->frames_keep);
        }
        dist_check_exemplars(s);
        CHECK(str_eq(labels_get(&s->labels, STR("service_name")), p->service));
        for (size_t k = 0; k < s->labels.len; k++) {
            CHECK(k == 0 || str_cmp(s->labels.ptr[k - 1].name, s->labels.ptr[k].name) < 0);
            CHECK(s->labels.ptr[k].value.len > 0 && str_utf8_valid(s->labels.ptr[k].value));
            CHECK(!str_eqc(s->labels.ptr[k].name, "profile_id"));
        }
        for (size_t k = 0; k < i; k++)
            CHECK(!labels_eq(&p->series[k].labels, &s->labels));
    }
}
