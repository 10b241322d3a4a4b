/* SPDX-License-Identifier: Apache-2.0
 *
 * regex.h: regular expressions over label values. The syntax is RE2's as Go documents it, the
 * engine is PCRE2 with JIT, bounded in steps and memory.
 *
 * Thread: one at a time per regex (it owns its match buffers).
 */
#ifndef COMMON_MODEL_REGEX_H
#define COMMON_MODEL_REGEX_H

#include "common/base/err.h"
#include "common/base/str.h"

#define REGEX_PATTERN_MAX (16 * KIB)
#define REGEX_REPEAT_MAX  1000
/* What the hard matches of one query may cost together: about a second. */
#define REGEX_QUERY_STEPS (UINT64_C(20) * 1000 * 1000)

struct regex;

/* `anchored`: the whole value must match; else a search. Dot matches newline, $ is the very end.
 * ERR_INPUT names the pattern, the offset and the construct that is refused. */
NODISCARD int regex_new(struct str pattern, bool anchored, struct regex **ret, struct err *e);
/* Anchored, and its groups are kept: read them with regex_group after a match. */
NODISCARD int regex_new_groups(struct str pattern, struct regex **ret, struct err *e);
void regex_free(struct regex *r); /* NULL is fine */
/* Steps of matches that are not done at once (over 1,000 steps) are taken from *steps_left; once
 * there are not enough, matching is ERR_LIMIT. Several regexes may share it; it must outlive their
 * matches. NULL, as at first: a limit by match alone. */
void regex_limit(struct regex *r, uint64_t *steps_left);
/* 1, 0, or -1 with the error set: a limit was hit, which is not the same as "no match". */
int regex_match(const struct regex *r, struct str value, struct err *e);
/* Returns the part of `value` that group n matched (0: the whole match) in the last regex_match
 * that returned 1 over the same value. {NULL, 0}: the group took no part, or does not exist. */
struct str regex_group(const struct regex *r, struct str value, uint32_t n);
/* The number of a named group, or -1. */
int regex_group_named(const struct regex *r, struct str name);
/* The syntax gate alone (pure): refuses what RE2 has not. */
NODISCARD int regex_gate(struct str pattern, struct err *e);

#endif
