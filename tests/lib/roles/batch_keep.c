/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/roles/batch_keep.h"

#include <string.h>

#include "distributor/base/options.h"
#include "tests/lib/roles/dist_push.h"

static struct push *keep_begin(void *cookie, const struct ingest *in, struct err *e)
{
    struct batch_keep *k = cookie;

    CHECK(in->name.app.len > 0);
    if (k->pushes.len >= k->begin_max) {
        err_set(e, ERR_LIMIT, "more than %zu profiles", k->begin_max);
        return NULL;
    }
    struct batch_kept *p = XNEW(struct batch_kept);
    p->arena = arena_new((size_t)k->limits.decode_bytes);
    push_init(&p->push, p->arena, &k->limits, 7);
    vec_push(&k->pushes, p);
    return &p->push;
}

static struct batch_kept *kept_of(struct batch_keep *k, struct push *push)
{
    struct batch_kept *p = container_of(push, struct batch_kept, push);

    CHECK(k->pushes.len > 0 && k->pushes.ptr[k->pushes.len - 1] == p);
    CHECK(!p->ended && !p->rejected);
    return p;
}

static char *copy(struct str s)
{
    char *c = s.ptr ? xmalloc(s.len + 1) : NULL;

    if (c && s.len)
        memcpy(c, s.ptr, s.len);
    return c;
}

static int keep_end(void *cookie, struct push *push, struct str identity, struct str id,
                    struct err *e)
{
    struct batch_kept *p = kept_of(cookie, push);

    (void)e;
    p->ended = true;
    p->identity = copy(identity);
    p->identity_len = identity.len;
    p->id = copy(id);
    p->id_len = id.len;
    return 0;
}

static void keep_reject(void *cookie, struct push *push, uint64_t profiles, const struct err *why)
{
    struct batch_keep *k = cookie;

    CHECK(why->code && why->text[0] && profiles > 0);
    if (push) {
        struct batch_kept *p = kept_of(k, push);
        p->rejected = true;
        p->why = *why;
    }
    k->rejected += profiles;
    k->why = *why;
}

void batch_keep_init(struct batch_keep *k, const struct limits *l, int64_t now_ms)
{
    *k = (struct batch_keep){ .limits = l ? *l : limits_default(), .begin_max = 100000 };
    k->sink = (struct batch_sink){ .begin = keep_begin,
                                   .end = keep_end,
                                   .reject = keep_reject,
                                   .limits = &k->limits,
                                   .now_ms = now_ms,
                                   .cookie = k };
}

void batch_keep_free(struct batch_keep *k)
{
    vec_for (i, &k->pushes) {
        struct batch_kept *p = k->pushes.ptr[i];
        push_deinit(&p->push);
        arena_free(p->arena);
        xfree(p->identity);
        xfree(p->id);
        xfree(p);
    }
    vec_free(&k->pushes);
}

void batch_keep_check(const struct batch_keep *k)
{
    vec_for (i, &k->pushes)
        if (k->pushes.ptr[i]->ended)
            dist_check(&k->pushes.ptr[i]->push, &k->limits);
}

void batch_keep_rows(const struct batch_keep *k, struct buf *out)
{
    struct buf rows;

    batch_keep_check(k);
    vec_for (i, &k->pushes) {
        const struct batch_kept *p = k->pushes.ptr[i];
        if (!p->ended)
            continue;
        dist_rows(&p->push, &rows);
        buf_add_str(out, p->push.service);
        buf_add_c(out, '\n');
        buf_add_str(out, buf_str(&rows));
        buf_deinit(&rows);
    }
}

uint64_t batch_keep_total(const struct batch_keep *k, const char *sample_type)
{
    uint64_t total = 0;

    vec_for (i, &k->pushes) {
        const struct batch_kept *p = k->pushes.ptr[i];
        for (size_t s = 0; p->ended && s < p->push.series_len; s++) {
            const struct push_series *at = &p->push.series[s];
            if (!sample_type || str_eqc(labels_get(&at->labels, STR("__type__")), sample_type))
                total += at->total;
        }
    }
    return total;
}
