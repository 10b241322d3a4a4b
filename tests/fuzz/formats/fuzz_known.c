/* SPDX-License-Identifier: Apache-2.0
 *
 * A pprof decoded with the cache of its service equals the pprof decoded without one: rows, counts
 * of left-out data, errors, exemplars. Two kinds of input:
 *
 *   any other first byte              the body as it is, with 1 MiB to know in, twice
 *   01 seed size (u16 offset, u8 xor) ...   good bodies of the generator one after the other, as
 *                                     of one service; bytes of the last are changed; little memory
 */
#include "common/base/mem.h"
#include "distributor/formats/pprof/symbol_session.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"

#define BODIES 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct service {
    struct symbol_session *known;
    size_t bytes_max;
    bool taken;
};

static struct symbol_session *take(void *cookie, const struct push *push)
{
    static const uint8_t session[SYMBOL_SESSION_BYTES] = "fuzz";
    struct service *s = cookie;

    CHECK(push->service.len && !s->taken);
    if (s->known && atomic_load(&s->known->dead)) {
        symbol_session_unref(s->known);
        s->known = NULL;
    }
    if (!s->known)
        s->known = symbol_session_new(session, 7, limits_default().symbol_keep_bytes, s->bytes_max);
    s->taken = true;
    return symbol_session_ref(s->known);
}

static void put(void *cookie, struct symbol_session *k)
{
    struct service *s = cookie;

    CHECK(s->taken && k == s->known);
    s->taken = false;
}

static int decode(struct service *s, struct str body, const struct limits *l, struct dist_push *d,
                  struct err *e)
{
    struct ingest_raw raw = { .name = STR("fuzz"), .format = STR("pprof") };

    *d = (struct dist_push){ .arena = arena_new((size_t)l->decode_bytes) };
    push_init(&d->push, d->arena, l, 7);
    if (s)
        d->push.memory = (struct push_memory){ take, put, s };
    CHECK(ingest_parse(&raw, l, DIST_NOW_MS, d->arena, &d->in, e) == 0);
    return formats_decode(&(struct decode_job){ &d->in, l, DIST_NOW_MS, &d->push }, body, e);
}

static void compare(const struct push *a, const struct push *b)
{
    struct buf x, y;

    dist_same_drops(a, b);
    CHECK(a->samples == b->samples && a->series_len == b->series_len);
    for (size_t i = 0; i < a->series_len; i++) {
        CHECK(a->series[i].total == b->series[i].total && a->series[i].unit == b->series[i].unit);
        CHECK(a->series[i].len == b->series[i].len);
        CHECK(a->series[i].exemplars_len == b->series[i].exemplars_len);
    }
    dist_whole(a, &x);
    dist_whole(b, &y);
    CHECK(str_eq(buf_str(&x), buf_str(&y)));
    buf_deinit(&x);
    buf_deinit(&y);
}

static void once(struct service *s, struct str body)
{
    struct limits l = limits_default();
    struct err e = { 0 }, ek = { 0 };
    struct dist_push plain, known;

    l.decode_bytes = 32 * MIB;
    l.inflated_bytes = 256 * KIB;
    l.frames_keep = 64;
    l.stacks = 1000;
    l.series = 20;
    int rc = decode(NULL, body, &l, &plain, &e);
    CHECK(decode(s, body, &l, &known, &ek) == rc);
    if (rc) {
        CHECK(strcmp(e.text, ek.text) == 0);
    } else {
        CHECK(push_known_expand(&known.push, &ek) == 0);
        dist_check(&known.push, &l);
        compare(&plain.push, &known.push);
    }
    dist_push_free(&plain);
    dist_push_free(&known);
    CHECK(!s->taken);
}

static void generated(struct service *s, const uint8_t *data, size_t size)
{
    struct prng p;

    prng_init(&p, data[0]);
    s->bytes_max = (size_t)(1 + data[1]) * 2 * KIB;
    for (int i = 0; i < BODIES; i++) {
        struct gen_random r;
        gen_random_pprof(&p, 1 + prng_below(&p, 60), &r);
        for (size_t at = 2; i == BODIES - 1 && at + 3 <= size; at += 3) {
            size_t offset = data[at] | (size_t)data[at + 1] << 8;
            if (offset < r.body.len)
                r.body.ptr[offset] = (char)(r.body.ptr[offset] ^ data[at + 2]);
        }
        once(s, buf_str(&r.body));
        gen_random_deinit(&r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct service s = { .bytes_max = MIB };

    if (size > 3 && data[0] == 1) {
        generated(&s, data + 1, size - 1);
    } else {
        for (int i = 0; i < 2; i++)
            once(&s, str_n(data, size));
    }
    symbol_session_unref(s.known);
    return 0;
}
