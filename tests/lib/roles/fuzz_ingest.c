/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/roles/fuzz_ingest.h"

#include "distributor/base/options.h"
#include "distributor/formats/upload/upload.h"
#include "distributor/send/pack.h"
#include "tests/lib/roles/dist_push.h"

#define NOW_MS INT64_C(1795000000000)

/* What the store and the queries rely on: canonical labels, nodes ascending, values that fit. */
static void check_push(const struct push *p, const struct limits *l)
{
    struct stacks_view v = stacks_view(&p->stacks);
    struct err e;

    CHECK(stacks_view_check(&v, &e) == 0);
    CHECK(p->series_len <= 64 * (l->series + 1));
    for (size_t i = 0; i < p->series_len; i++) {
        const struct push_series *s = &p->series[i];
        struct ptype t;
        uint64_t total = 0;
        CHECK(ptype_parse(s->profile_type, &t, &e) == 0);
        for (size_t k = 1; k < s->labels.len; k++)
            CHECK(str_cmp(s->labels.ptr[k - 1].name, s->labels.ptr[k].name) < 0);
        for (size_t k = 0; k < s->len; k++) {
            CHECK(s->nodes[k] <= v.nodes && (k == 0 || s->nodes[k - 1] < s->nodes[k]));
            CHECK(s->values[k] > 0 && s->values[k] <= INT64_MAX);
            total = MIN(total + s->values[k], (uint64_t)INT64_MAX);
        }
        CHECK(total == s->total);
        dist_check_exemplars(s);
        for (size_t k = 0; k < i; k++) /* equal series would get one write id */
            CHECK(!str_eq(p->series[k].profile_type, s->profile_type) ||
                  !labels_eq(&p->series[k].labels, &s->labels));
    }
}

static void pack(const struct ingest *in, const struct push *p, const struct limits *l,
                 struct str body)
{
    const struct write_secret secret = { 1, 2 };
    struct window_accept accept = { NOW_MS, 400ull * 86400000, 600000 };
    struct window w;
    struct leaves leaves;
    struct buf out;
    struct err e;

    if (window_of(in, p, &accept, &w, &e) || !leaves_of(&w, l->leaves, p->arena, &leaves))
        return;
    CHECK(w.end_ms >= w.start_ms);
    struct write_base base = write_base_of(&secret, &(struct write_sender){ .key = STR("key") }, in,
                                           p, body, env_real());
    struct packing packing = {
        .tenant = STR("t"), .push = p, .leaves = &leaves, .secret = &secret, .write_base = &base
    };
    buf_init(&out, 64 * MIB);
    (void)!pack_write(&packing, &out, &e);
    buf_deinit(&out);
}

/* With `upload` the format is found by looking at the body. */
static void run(bool upload, enum format format, const char *content_type, const char *name,
                struct str body)
{
    const char *found;
    struct limits l = limits_default();
    struct arena *a = arena_new(MIB), *pa;
    struct ingest_raw raw = { .name = str_c(name), .content_type = str_c(content_type) };
    struct ingest in;
    struct push p;
    struct err e = { 0 };

    l.decode_bytes = 32 * MIB;
    l.inflated_bytes = 4 * MIB;
    l.series = 20;
    CHECK(ingest_parse(&raw, &l, NOW_MS, a, &in, &e) == 0);
    in.format = format;
    pa = arena_new((size_t)l.decode_bytes);
    push_init(&p, pa, &l, 7);
    const struct decode_job job = { &in, &l, NOW_MS, &p };
    if (upload ? upload_push(&job, body, &found, &e) : formats_decode(&job, body, &e)) {
        CHECK(e.code == ERR_INPUT || e.code == ERR_LIMIT);
        CHECK(e.text[0]);
    } else {
        check_push(&p, &l);
        pack(&in, &p, &l, body);
    }
    push_deinit(&p);
    arena_free(pa);
    arena_free(a);
}

void fuzz_ingest(enum format format, const char *content_type, const char *name, struct str body)
{
    run(false, format, content_type, name, body);
}

void fuzz_upload(struct str body)
{
    run(true, FORMAT_GROUPS, "", "fuzz", body);
}
