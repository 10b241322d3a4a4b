/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/rate_estimate.h"

void rate_estimate_note(struct rate_estimate *s, uint64_t now_ms, uint64_t value)
{
    struct rate_estimate_point p = { now_ms, value };

    if (s->len && (value < s->at[s->len - 1].value || now_ms < s->at[s->len - 1].ms))
        s->len = 0;
    if (s->len > 1 && now_ms - s->at[s->len - 2].ms < RATE_ESTIMATE_STEP_MS) {
        s->at[s->len - 1] = p;
        return;
    }
    if (s->len == RATE_ESTIMATE_POINTS) {
        memmove(s->at, s->at + 1, (RATE_ESTIMATE_POINTS - 1) * sizeof(s->at[0]));
        s->len--;
    }
    s->at[s->len++] = p;
}

bool rate_estimate_of(const struct rate_estimate *s, uint64_t *ret)
{
    const struct rate_estimate_point *last = &s->at[s->len ? s->len - 1 : 0];
    uint64_t span_ms = last->ms - s->at[0].ms, grown = last->value - s->at[0].value;

    if (span_ms < RATE_ESTIMATE_LEAST_MS)
        return false;
    *ret = grown / span_ms * 1000 + grown % span_ms * 1000 / span_ms;
    return true;
}

uint64_t rate_estimate_left_s(uint64_t per_s, uint64_t left)
{
    if (!left)
        return 0;
    return per_s ? left / per_s + (left % per_s != 0) : RATE_ESTIMATE_NEVER;
}
