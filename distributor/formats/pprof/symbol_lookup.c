/* SPDX-License-Identifier: Apache-2.0 */
#include "distributor/formats/pprof/symbol_lookup.h"

#include "common/base/mem.h"

/* The position of the first that has this tag: nearly always what is looked for.
 * SYMBOL_SESSION_NONE: no such. */
static inline uint32_t first_of(const struct symbol_session_slots *t, uint32_t tag)
{
    size_t at = tag & t->mask;

    while (t->slots[at] && t->slots[at] >> 32 != tag)
        at = (at + 1) & t->mask;
    return (uint32_t)t->slots[at] - 1; /* of an empty slot SYMBOL_SESSION_NONE */
}
static_assert((uint32_t)0 - 1 == SYMBOL_SESSION_NONE, "");

void symbol_lookup_texts(const struct symbol_session *k, const struct str *s, size_t n,
                         uint32_t *ret)
{
    const struct symbol_session_slots *t = &k->text_slots;
    uint32_t tags[SYMBOL_SESSION_BATCH];

    CHECK(n <= SYMBOL_SESSION_BATCH);
    for (size_t i = 0; i < n; i++) {
        ret[i] = SYMBOL_SESSION_NONE;
        tags[i] = symbol_session_text_tag(k, s[i]);
        if (t->slots)
            PREFETCH(&t->slots[tags[i] & t->mask]);
    }
    if (!t->slots)
        return;
    for (size_t i = 0; i < n; i++) {
        ret[i] = first_of(t, tags[i]);
        if (ret[i] != SYMBOL_SESSION_NONE)
            PREFETCH(&k->texts.ptr[ret[i]]);
    }
    for (size_t i = 0; i < n; i++)
        if (ret[i] != SYMBOL_SESSION_NONE && UNLIKELY(!symbol_session_is_text(k, ret[i], s[i])))
            ret[i] = (uint32_t)t->slots[symbol_session_text_slot(k, s[i], tags[i])] - 1;
}

void symbol_lookup_frames(const struct symbol_session *k, const struct frame *f, size_t n,
                          uint32_t *ret)
{
    const struct symbol_session_slots *t = &k->frame_slots;
    uint32_t tags[SYMBOL_SESSION_BATCH];

    CHECK(n <= SYMBOL_SESSION_BATCH);
    for (size_t i = 0; i < n; i++) {
        ret[i] = SYMBOL_SESSION_NONE;
        tags[i] = symbol_session_frame_tag(k, &f[i]);
        if (t->slots)
            PREFETCH(&t->slots[tags[i] & t->mask]);
    }
    if (!t->slots)
        return;
    for (size_t i = 0; i < n; i++) {
        ret[i] = first_of(t, tags[i]);
        if (ret[i] != SYMBOL_SESSION_NONE)
            PREFETCH(&k->frames.ptr[ret[i]]);
    }
    for (size_t i = 0; i < n; i++)
        if (ret[i] != SYMBOL_SESSION_NONE && UNLIKELY(!symbol_session_is_frame(k, ret[i], &f[i])))
            ret[i] = (uint32_t)t->slots[symbol_session_frame_slot(k, &f[i], tags[i])] - 1;
}
