/* SPDX-License-Identifier: Apache-2.0
 *
 * order: a JSON order in, a priced, checked and signed receipt out.
 *
 * The demo's work for one request: parsing, a search for the best discount, a model that scores
 * fraud, and a signature that is slow on purpose. Each is a function of its own, with a shape that
 * is worth looking at in a flame graph.
 */
#include <math.h>

#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/net/json_in.h"
#include "deploy/demo/shop.h"

enum { LINES_MAX_ = 40, FRAUD_FEATURES = 512, SIGN_ROUNDS = 400 };

struct line {
    uint32_t product, count;
    uint64_t cents;
};
struct order {
    struct line lines[LINES_MAX_];
    size_t len;
    struct str customer;
    uint64_t total_cents, discount_cents;
};

void order_make_up(struct shop *s)
{
    uint64_t lines = 3 + prng_below(&s->prng, LINES_MAX_ - 3);
    struct json j;

    buf_reset(&s->request);
    json_init(&j, &s->request);
    json_obj(&j);
    json_put_u64(&j, "customer", prng_below(&s->prng, 100000));
    json_put_str(&j, "note", s->catalog->products[prng_below(&s->prng, PRODUCTS)].description);
    json_key(&j, "lines");
    json_arr(&j);
    for (uint64_t i = 0; i < lines; i++) {
        json_obj(&j);
        json_put_u64(&j, "product", prng_below(&s->prng, PRODUCTS));
        json_put_u64(&j, "count", 1 + prng_below(&s->prng, 9));
        json_obj_end(&j);
    }
    json_arr_end(&j);
    json_obj_end(&j);
}

NOINLINE static void parse_order(struct shop *s, struct order *o)
{
    struct json_doc *d = NULL;
    const struct json_val *lines;
    struct err e = { 0 };

    CHECK(json_parse(buf_str(&s->request), &d, &e) == 0);
    lines = json_get(json_root(d), "lines", NULL);
    for (size_t i = 0; i < MIN(json_len(lines), (size_t)LINES_MAX_); i++) {
        const struct json_val *v = json_at(lines, i);
        int64_t product = 0, count = 0;

        CHECK(json_take_i64(json_get(v, "product", NULL), "product", &product, &e) == 0);
        CHECK(json_take_i64(json_get(v, "count", NULL), "count", &count, &e) == 0);
        o->lines[o->len++] = (struct line){ (uint32_t)product % PRODUCTS, (uint32_t)count, 0 };
    }
    json_doc_free(d);
}

/* Discounts: the best set of "buy three, pay two" groups, tried for each limit of the budget. */
NOINLINE static void apply_discounts(const struct shop *s, struct order *o)
{
    enum { STEPS = 256 };
    uint64_t best[STEPS + 1] = { 0 };

    for (size_t i = 0; i < o->len; i++) {
        uint64_t price = s->catalog->products[o->lines[i].product].price_cents;
        uint64_t gain = o->lines[i].count / 3 * price, cost = 1 + price / 100 % STEPS;

        for (uint64_t room = STEPS; gain && room >= cost; room--)
            best[room] = MAX(best[room], best[room - cost] + gain);
    }
    o->discount_cents = best[STEPS];
}

NOINLINE static void price_lines(const struct shop *s, struct order *o)
{
    for (size_t i = 0; i < o->len; i++) {
        struct line *l = &o->lines[i];

        l->cents = (uint64_t)s->catalog->products[l->product].price_cents * l->count;
        o->total_cents += l->cents;
    }
    apply_discounts(s, o);
}

/* Logistic regression over hashed pairs of what is in the basket. */
NOINLINE static double fraud_score(const struct order *o)
{
    double sum = -3;

    for (size_t i = 0; i < o->len; i++)
        for (size_t k = 0; k < i; k++) {
            uint64_t h = hash_u64((uint64_t)o->lines[i].product << 32 | o->lines[k].product);

            sum += ((double)(h % FRAUD_FEATURES) / FRAUD_FEATURES - 0.5) * 0.01;
        }
    return 1 / (1 + exp(-sum));
}

NOINLINE static struct hash128 sign_receipt(struct str text)
{
    struct hash128 h = { 0, 0 };

    for (uint64_t i = 0; i < SIGN_ROUNDS; i++)
        h = hash128(text.ptr, text.len, h.lo ^ h.hi ^ i);
    return h;
}

NOINLINE static void write_receipt(struct shop *s, const struct order *o, double fraud)
{
    struct hash128 h;
    struct json j;

    json_init(&j, &s->page);
    json_obj(&j);
    json_key(&j, "lines");
    json_arr(&j);
    for (size_t i = 0; i < o->len; i++) {
        json_obj(&j);
        json_put_str(&j, "name", s->catalog->products[o->lines[i].product].name);
        json_put_u64(&j, "cents", o->lines[i].cents);
        json_obj_end(&j);
    }
    json_arr_end(&j);
    json_put_u64(&j, "total", o->total_cents - MIN(o->discount_cents, o->total_cents));
    json_put_double(&j, "fraud", fraud);
    h = sign_receipt(buf_str(&s->page));
    json_put_u64(&j, "signature", h.lo ^ h.hi);
    json_obj_end(&j);
    CHECK(buf_ok(&s->page));
}

void order_checkout(struct shop *s)
{
    struct order o = { .len = 0 };

    parse_order(s, &o);
    price_lines(s, &o);
    write_receipt(s, &o, fraud_score(&o));
    s->checksum ^= o.total_cents;
}
