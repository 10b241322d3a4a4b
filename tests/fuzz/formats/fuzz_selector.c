/* SPDX-License-Identifier: Apache-2.0
 *
 * Selector and regex: any bytes are parsed in both dialects; what parses prints to text that parses
 * to the same, compiles or says why, and matches within its limits.
 */
#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/model/regex.h"
#include "common/model/selector.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(const struct selector *s, struct arena *a)
{
    struct selector back;
    struct err e;
    struct buf out;

    buf_init(&out, MIB);
    selector_format(s, &out);
    if (out.len <= 64 * KIB) { /* escapes may lengthen it past what the parser takes */
        if (selector_parse(buf_str(&out), SELECTOR_PROMETHEUS, a, &back, &e) == 0) {
            CHECK(back.len == s->len && str_eq(back.metric, s->metric));
            for (size_t i = 0; i < s->len; i++)
                CHECK(back.matchers[i].op == s->matchers[i].op &&
                      str_eq(back.matchers[i].name, s->matchers[i].name) &&
                      str_eq(back.matchers[i].value, s->matchers[i].value));
        } else {
            CHECK(out.len > KIB); /* only sizes may be refused now */
        }
    }
    buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a = arena_new(4 * MIB);
    struct str text = str_n(data, size);
    struct selector s;
    struct err e;
    struct regex *r = NULL;

    for (int d = SELECTOR_PROMETHEUS; d <= SELECTOR_FLAMEQL; d++) {
        if (selector_parse(text, (enum selector_dialect)d, a, &s, &e))
            continue;
        round_trip(&s, a);
        if (selector_compile(&s, &e) == 0)
            for (size_t i = 0; i < s.len; i++)
                (void)matcher_match(&s.matchers[i], text, &e);
        selector_deinit(&s);
    }
    if (regex_new(text, size & 1, &r, &e) == 0) {
        (void)regex_match(r, text, &e);
        (void)regex_match(r, STR("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"), &e);
        regex_free(r);
    }
    arena_free(a);
    return 0;
}
