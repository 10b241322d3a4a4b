/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/store/store_bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/wr.h"
#include "common/model/slot.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"
#include "common/store/write/stage_ahead.h"

static void must_open(struct store_bed *b)
{
    struct err e;

    b->o.clock = &b->clock.clock;
    if (store_open(&b->o, &b->s, &e))
        fail_msg("open: %s", e.text);
}

void store_bed_init(struct store_bed *b, const struct store_opts *o)
{
    *b = (struct store_bed){ .o = *o };
    clock_fake_init(&b->clock, BED_START_MS);
    b->o.kv = kv_mem_new(&b->faults);
    must_open(b);
}

void store_bed_deinit(struct store_bed *b)
{
    store_close(b->s);
    b->s = NULL;
}

void store_bed_reopen(struct store_bed *b, enum kv_mem_crash how, uint64_t keep)
{
    view_close(b->s); /* its snapshot */
    struct kv *kv = kv_mem_reopen(b->s->kv, how, keep);

    b->s->kv = NULL; /* the store below is thrown away without its database */
    store_close(b->s);
    b->o.kv = kv;
    must_open(b);
}

uint32_t store_bed_slot(const struct store_bed *b)
{
    return slot_of_ms(atomic_load(&b->clock.wall_ms));
}

/* ---- pushes in words ---- */

static struct labels parse_labels(const char *text, const char *service, struct arena *a)
{
    struct str rest = str_c(text), part;
    struct labels l = { 0 };
    struct err e;
    bool more = true;

    assert_int_equal(labels_set(&l, a, STR("service_name"), str_c(service), &e), 0);
    while (text && str_next(&rest, ',', &more, &part)) {
        ptrdiff_t eq = str_find(part, '=');
        assert_true(eq > 0);
        assert_int_equal(labels_set(&l, a, str_sub(part, 0, (size_t)eq),
                                    str_sub(part, (size_t)eq + 1, part.len), &e),
                         0);
    }
    return l;
}

struct pair {
    uint32_t node;
    uint64_t value;
};

static int by_node(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return x->node < y->node ? -1 : x->node > y->node;
}

static uint32_t parse_stack(struct stacks *st, struct str path)
{
    struct str name;
    bool more = true;
    uint32_t node = 0;

    while (str_next(&path, ';', &more, &name)) {
        struct frame f = { .func = stacks_string(st, name), .file = stacks_string(st, STR("x.c")) };
        node = stacks_node(st, node, stacks_frame(st, &f));
    }
    return node;
}

static struct store_vector parse_vector(struct str rest, uint32_t slot, struct stacks *st,
                                        struct arena *a)
{
    struct str part;
    VEC(struct pair) pairs = { 0 };
    bool more = true;

    while (rest.len && str_next(&rest, ' ', &more, &part)) {
        ptrdiff_t eq = str_find(part, '=');
        struct pair x = { .node = parse_stack(st, str_sub(part, 0, (size_t)eq)) };
        assert_true(str_u64(str_sub(part, (size_t)eq + 1, part.len), &x.value));
        vec_push(&pairs, x);
    }
    if (pairs.len)
        qsort(pairs.ptr, pairs.len, sizeof(*pairs.ptr), by_node);
    uint32_t *nodes = ARENA_ARRAY(a, uint32_t, pairs.len + 1);
    uint64_t *values = ARENA_ARRAY(a, uint64_t, pairs.len + 1);
    vec_for (i, &pairs) {
        nodes[i] = pairs.ptr[i].node;
        values[i] = pairs.ptr[i].value;
    }
    struct store_vector v = { slot, nodes, values, pairs.len };
    vec_free(&pairs);
    return v;
}

static void parse_exemplars(const char *text, uint32_t duration_ms, struct stacks *st,
                            struct arena *a, struct store_series *r)
{
    struct store_exemplar *list = ARENA_ARRAY(a, struct store_exemplar, 1000);
    struct str rest = str_c(text), part;
    bool more = true;

    while (text && str_next(&rest, '|', &more, &part)) {
        struct str id = str_sub(part, 2, (size_t)str_rfind(part, ':'));
        struct store_exemplar *x = &list[r->exemplars_len++];
        struct store_vector v = parse_vector(str_sub(part, 2 + id.len + 1, part.len), 0, st, a);
        struct exid packed;
        assert_true(exid_parse(id, &packed) && r->exemplars_len < 1000);
        *x = (struct store_exemplar){ .kind = (enum exid_kind)(part.ptr[0] - '0'),
                                      .id = arena_strdup(a, exid_str(&packed)),
                                      .duration_ms = duration_ms ? duration_ms : 10000,
                                      .nodes = v.nodes,
                                      .values = v.values,
                                      .len = v.len };
    }
    r->exemplars = list;
}

/* Each part in a batch of its own; as many as do something. */
static void stage_ahead(struct store_bed *b, const struct store_write *w, unsigned n)
{
    bool more = true;

    for (unsigned i = 1; more && i <= n; i++) {
        struct store_batch *batch = store_batch_new(b->s);
        struct err e;

        more = store_stage_ahead(b->s, batch, w, i, n);
        b->ahead += more;
        if (store_commit(b->s, batch, &e))
            fail_msg("commit: %s", e.text);
    }
}

static int stage_push(struct store_bed *b, struct store_batch *to, const struct bed_push *p,
                      struct store_result *ret, struct err *e)
{
    const char *service = p->service ? p->service : "svc";
    struct arena *a = arena_new(MIB);
    struct stacks st;

    stacks_init(&st, MIB, 7);
    struct store_vector v[BED_TIMES_MAX];
    uint32_t times = MAX(p->times, 1);
    assert_true(times <= BED_TIMES_MAX);
    for (uint32_t i = 0; i < times; i++)
        v[i] = parse_vector(str_c(p->stacks), p->slot + i * p->every, &st, a);
    struct store_series r = {
        .labels = parse_labels(p->labels, service, a),
        .profile_type = str_c(p->type ? p->type : BED_CPU),
        .gauge = p->gauge,
        .vectors = v,
        .len = times,
        .spread = p->spread,
    };
    put_u64be(r.wid, p->wid);
    parse_exemplars(p->exemplars, p->duration_ms, &st, a, &r);
    struct stacks_view view = stacks_view(&st);
    struct store_write w = {
        str_c(p->tenant ? p->tenant : "t"), str_c(service), &view, &r, 1, NULL, 0, 0, p->print
    };
    struct store_batch *own = NULL;
    if (!to) {
        stage_ahead(b, &w, p->ahead);
        to = own = store_batch_new(b->s);
    }
    size_t before = store_batch_bytes(to);
    int rc = store_stage(b->s, to, &w, ret, e);
    if (store_batch_bytes(to) - before > store_write_bytes(&w))
        fail_msg("a request of %zu bytes became %zu", store_write_bytes(&w),
                 store_batch_bytes(to) - before);
    if (own && !rc)
        rc = store_commit(b->s, own, e);
    stacks_deinit(&st);
    arena_free(a);
    return rc;
}

int store_bed_stage(struct store_bed *b, struct store_batch *to, const struct bed_push *p,
                    struct store_result *ret, struct err *e)
{
    return stage_push(b, to, p, ret, e);
}

int store_bed_push(struct store_bed *b, const struct bed_push *p)
{
    struct store_result r;
    struct err e;

    if (stage_push(b, NULL, p, &r, &e))
        fail_msg("push: %s", e.text);
    assert_int_equal(r.stored + r.duplicates, 1);
    return (int)r.stored;
}

void store_bed_seal(struct store_bed *b)
{
    struct err e;
    bool more = true;

    while (more)
        if (store_seal(b->s, 1000, &more, &e))
            fail_msg("seal: %s", e.text);
}

/* ---- answers in words ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *path_text(const struct stacks *st, uint32_t node, uint64_t value)
{
    struct buf b;
    uint32_t up[32];
    size_t n = 0;

    buf_init(&b, MIB);
    for (; node; node = st->node_parent.ptr[node - 1])
        up[n++] = st->node_frame.ptr[node - 1];
    for (size_t i = n; i > 0; i--)
        buf_addf(&b, "%s%.*s", i < n ? ";" : "",
                 STR_ARG(stacks_string_at(st, st->frame_func.ptr[up[i - 1]])));
    buf_addf(&b, "=%" PRIu64, value);
    buf_add_c(&b, '\0');
    return b.ptr;
}

/* "a;b=5 a;b;c=3", in order of text. */
const char *store_bed_text(const struct store_merge *m)
{
    static char answer[4096];
    VEC(char *) lines = { 0 };

    vec_for (i, &m->nodes)
        vec_push(&lines, path_text(m->stacks, m->nodes.ptr[i], m->values.ptr[i]));
    if (lines.len)
        qsort(lines.ptr, lines.len, sizeof(*lines.ptr), by_text);
    answer[0] = '\0';
    size_t n = 0;
    vec_for (i, &lines) {
        n += (size_t)snprintf(answer + n, sizeof(answer) - n, "%s%s", i ? " " : "", lines.ptr[i]);
        assert_true(n < sizeof(answer));
        xfree(lines.ptr[i]);
    }
    vec_free(&lines);
    return answer;
}

const char *store_bed_merge(struct store_bed *b, const char *tenant, const char *selector,
                            const char *type, uint32_t from, uint32_t to)
{
    struct arena *a = arena_new(MIB);
    struct store_merge m = { 0 };
    struct selector s;
    struct stacks st;
    struct err e;

    if (selector_parse(str_c(selector), SELECTOR_PROMETHEUS, a, &s, &e) || selector_compile(&s, &e))
        fail_msg("selector: %s", e.text);
    struct store_query q = { .tenant = str_c(tenant ? tenant : "t"),
                             .selector = &s,
                             .profile_type = str_c(type ? type : BED_CPU),
                             .start_ms = slot_to_ms(from),
                             .end_ms = slot_to_ms(to) };
    stacks_init(&st, 64 * MIB, 3);
    m.stacks = &st;
    struct store_view *v = store_view_get(b->s);
    if (store_merge(v, &q, &m, &e))
        fail_msg("merge: %s", e.text);
    store_view_put(v);
    const char *answer = store_bed_text(&m);
    store_merge_deinit(&m);
    stacks_deinit(&st);
    selector_deinit(&s);
    arena_free(a);
    return answer;
}
