/* SPDX-License-Identifier: Apache-2.0
 *
 * share.h: what one tenant holds of a budget that all tenants share.
 *
 * A tenant may hold up to SHARE_FACTOR times what is free after it took. Alone it may therefore
 * fill three quarters of the budget; the last quarter stays free for a tenant that comes next. The
 * more tenants hold something, the less each of them may hold, without a count of tenants: with n
 * floods each one ends at 3 / (3 n + 1) of the budget, and 1 / (3 n + 1) stays free. A tenant that
 * held more when others came gets nothing until it is below.
 *
 * A request that was let in and needs more than was thought may go up to SHARE_GROWTH times what is
 * free: work that was done for it would be lost if it were refused then.
 *
 * A request that is the only one of its tenant is not held to the share: it may take whatever is
 * free, or a body larger than the share would be refused each time.
 *
 * Thread: any.
 */
#ifndef COMMON_SYS_SHARE_H
#define COMMON_SYS_SHARE_H

#include <stdatomic.h>

#include "common/sys/budget.h"

#define SHARE_FACTOR 3
#define SHARE_GROWTH 7

struct share { /* zeroed before its first use */
    _Atomic size_t held;
};
enum share_result {
    SHARE_TAKEN,
    SHARE_OVER, /* the tenant holds its share: it should send less at once */
    SHARE_FULL, /* the budget is used up */
};

/* `own`: what the request that asks holds of the share already. `s` NULL: there is one tenant only,
 * and the budget alone decides. */
enum share_result share_take(struct share *s, struct budget *b, size_t own, size_t n) NODISCARD;
void share_give(struct share *s, struct budget *b, size_t n);
/* The two halves of share_take, for a caller that takes from the budget by itself: may it have n
 * more, and it has taken them. */
bool share_is_over(const struct share *s, const struct budget *b, size_t own, size_t n);
void share_count(struct share *s, size_t n);
size_t share_held(const struct share *s);

#endif
