/* SPDX-License-Identifier: Apache-2.0
 *
 * selector.h: label matchers: parse, print, match. Two dialects:
 *   Prometheus  process_cpu:cpu:...{service_name="a", pod=~"b.*"}   regex anchored, dot matches \n
 *   FlameQL     app.cpu{env="prod"}                                 regex unanchored
 * Grammar: Prometheus selectors (metric optional, quoted names, "...", '...', `...` strings).
 * Errors carry the column (1-based). Regex: PCRE2 with JIT, match and heap limits behind a gate
 * that refuses what RE2 would (back references, look-around, ...). A limit hit is an error, never
 * "no".
 *
 * Grammar: proto/WIRE.md, "Selectors".
 */
#ifndef COMMON_MODEL_SELECTOR_H
#define COMMON_MODEL_SELECTOR_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/model/label.h"

enum match_op { MATCH_EQ = 0, MATCH_NE = 1, MATCH_RE = 2, MATCH_NRE = 3 }; /* travels in rpc */
struct matcher {
    enum match_op op;
    struct str name;
    struct str value;
    bool unanchored;     /* regex searches instead of matching whole (FlameQL) */
    size_t column;       /* of the value in the text that was parsed, from 1; 0: of no text */
    struct regex *regex; /* owned through selector_deinit; NULL for EQ and NE */
};
struct selector {
    struct str metric; /* text before '{', may be empty; not part of matchers */
    struct matcher *matchers;
    size_t len;
};
enum selector_dialect { SELECTOR_PROMETHEUS, SELECTOR_FLAMEQL };

/* Copies into the arena; compile later with selector_compile. ERR_INPUT with column. */
NODISCARD int selector_parse(struct str text, enum selector_dialect d, struct arena *a,
                             struct selector *ret, struct err *e);
/* Compiles the regexes. ERR_INPUT names the pattern, and its column. */
NODISCARD int selector_compile(struct selector *s, struct err *e);
/* What hard matches of all its regexes may cost together (regex.h); after selector_compile. */
void selector_limit(struct selector *s, uint64_t *steps_left);
void selector_deinit(struct selector *s); /* frees regexes only */
/* 1, 0, or -1 with the error set (regex limit). Value {NULL,0} = label missing = "". */
int matcher_match(const struct matcher *m, struct str value, struct err *e);
int selector_match(const struct selector *s, const struct labels *l, struct err *e);
void selector_format(const struct selector *s, struct buf *out);

#endif
